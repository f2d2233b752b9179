// One session: an open ibv_context of a program, on one connection and one device. Owns the objects
// that the program created through it. session_*.cc have the commands, by kind of object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "control/device/services.h"
#include "control/device/users.h"
#include "control/loop/socket.h"
#include "control/session/context_group.h"
#include "control/session/handle_table.h"
#include "control/session/memory_reach.h"
#include "control/session/path_waits.h"
#include "control/session/session_decoder.h"
#include "control/session/session_records.h"
#include "control/session/session_reply.h"
#include "dataplane/shard/shard_client.h"
#include "memory/app_memory.h"
#include "memory/mapped_file.h"
#include "verbs_provider/abi/spin_judge.h"

namespace roci::control {

// Control thread only.
class Session {
 public:
  // Kept open for every session: socket, pidfd (twice), the program's memory, doorbell page,
  // wake eventfd, async event socket.
  static constexpr uint64_t kDescriptors = 7;
  // Quotas of its user that a session occupies; `user` keeps them.
  struct Admission {
    std::shared_ptr<User> user;
    QuotaShare session;
    QuotaShare descriptors;
    RingShare doorbells;
    roce::TimeNs hello_deadline = roce::kNever;  // see HelloDeadlines
  };

  // `number`: as `roci show apps` prints it. `end` requests destruction; it may be called
  // repeatedly and must not destroy the session before it returns.
  static absl::StatusOr<std::unique_ptr<Session>> Create(Services& services, UniqueFd socket,
                                                         Peer peer, Admission admission,
                                                         uint32_t number,
                                                         std::function<void()> end);
  // Releases everything. Peers of its queue pairs see silence.
  ~Session();
  // Incremental destruction: the first call ends the connection, each call releases some objects.
  // False: none is left.
  bool ReleaseSome();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  uint32_t number() const { return number_; }
  const Peer& peer() const { return peer_; }
  const std::string& program() const { return program_; }
  User& user() const { return *admission_.user; }
  // After resume_later(): sends the held answer and reads requests again, if the copies of the
  // program's memory have ended and large queues are unmapped, or refuses a request that has waited
  // for them too long. False: not yet.
  bool Resume();
  // After continue_later(): does the next part of the request. False: it is answered.
  bool Continue();
  roce::TimeNs hello_deadline() const { return admission_.hello_deadline; }
  // Null before HELLO.
  Device* device() const { return device_; }
  dataplane::ShardClient* shard() const { return shard_.get(); }
  // The user's part of the device; null before HELLO.
  const DeviceQuotas* quotas() const { return quotas_; }
  const memory::AppMemory* app() const { return app_.get(); }
  ReachFacts reach_facts() const;
  // Whether the log says how the program's memory is accessed.
  bool has_logged_reach() const { return has_logged_reach_; }
  // How the program has named its context; nothing: it has not, or is not visible.
  std::optional<ContextName> context_name() const;

  const HandleTable<PdRecord>& pds() const { return pds_; }
  const HandleTable<MrRecord>& mrs() const { return mrs_; }
  const HandleTable<MwRecord>& mws() const { return mws_; }
  const HandleTable<ListRecord>& lists() const { return lists_; }
  const HandleTable<ChannelRecord>& channels() const { return channels_; }
  const HandleTable<CqRecord>& cqs() const { return cqs_; }
  const HandleTable<QpRecord>& qps() const { return qps_; }
  const HandleTable<SrqRecord>& srqs() const { return srqs_; }
  const HandleTable<XrcdRecord>& xrcds() const { return xrcds_; }
  const HandleTable<AhRecord>& ahs() const { return ahs_; }
  const HandleTable<FlowRecord>& flows() const { return flows_; }

 private:
  using FdsPointer = std::shared_ptr<ForeignFiles>;  // null: none
  using Handler = absl::Status (Session::*)(const Request&, const FdsPointer&, Reply&);
  static Handler HandlerOf(uint32_t command);

  Session(Services& services, UniqueFd socket, Peer peer, Admission admission, uint32_t number,
          std::function<void()> end);
  absl::Status Watch();
  void Disconnect();
  bool CancelSomePaths();
  bool CloseSomeTargets();
  void HandleSocket(uint32_t events);
  // Whether there was a message, after which there may be another.
  bool HandleNext(bool is_first);
  bool CheckSize(size_t size) const;
  // Requests with descriptors are received by the broker; nothing else is read meanwhile.
  void ReceiveDescriptors(std::span<const std::byte> message);
  void HandleDescriptors(const ForeignMessage* message);
  void RefuseDescriptors(std::span<const std::byte> message, const absl::Status& reason);
  static absl::Status TooManyDescriptors();  // of the user; they are not closed yet
  void HandleMessage(std::span<const std::byte> message, const FdsPointer& fds);
  void BeginRequest(absl::Status status, const FdsPointer& fds);
  void AnswerMessage(std::span<const std::byte> message, const FdsPointer& fds);
  // session_faults.cc
  // Applies the device's faults of calls to request_, which was decoded with this status. True: the
  // request is delayed.
  bool ApplyFaults(absl::Status& status, const FdsPointer& fds);
  bool ContinueDelayed();
  // `findings`: the request has used some, so it cannot be handled a second time.
  enum class FindingsUse : uint8_t { kNone, kUsed };
  void AnswerRequest(absl::Status status, const FdsPointer& fds, FindingsUse findings);
  // Handles request_ again when the user's ended sessions have released their objects.
  absl::Status RetryLater(const FdsPointer& fds);
  absl::Status Dispatch(const Request& request, const FdsPointer& fds, Reply& reply);
  // Sends the answer to request_, or holds it while a copy may still access what the request has
  // reset, destroyed or deregistered.
  void SendOrHold(const absl::Status& status, Reply& reply);
  void Send(const Request& request, const absl::Status& status, Reply& reply);
  // Runs f, which may send an answer. Ends the session if there is no memory for the answer: the
  // program would wait for it without end.
  template <class F>
  void AnswerOrEnd(F&& f) {
    try {
      f();
    } catch (const std::bad_alloc&) {
      end_();
    }
  }
  // Reads no requests until Resume() returns true.
  void Pause();
  bool MustWait() const;
  // Since Pause(). Then the next request is refused (WaitedTooLong), which changes nothing.
  bool HasWaitedTooLong() const;
  static absl::Status WaitedTooLong();
  void RefuseNext();
  // A part of a request that takes long. False: the request is done, and the reply is filled in.
  using Part = std::function<absl::StatusOr<bool>(Reply&)>;
  // For handlers: calls `part` until it returns false or a failure; all calls but the first come in
  // later iterations of the loop, so that other requests are handled in between. Meanwhile this
  // session reads no requests.
  absl::Status RunInParts(Part part, Reply& reply);
  // Sends the answer to the request that set Reply::deferred. Throws std::bad_alloc.
  void FinishDeferred(const absl::Status& status, Reply& reply);

  // session_lookups.cc
  // A call for a helper thread, which owns what it uses; null: nothing has to be found out.
  struct Lookup {
    std::function<void(Findings&)> find;
    uint64_t descriptors = 0;  // that it uses at the same time
  };
  Lookup LookupFor(const Request& request, const FdsPointer& fds) const;
  Lookup LookUpProgram(uint64_t features, const FdsPointer& fds) const;
  Lookup LookUpContext(const Request& request, const FdsPointer& fds) const;
  Lookup LookUpMappings(std::span<const roci_abi_extent> extents, uint32_t access) const;
  Lookup LookUpPrivilege() const;
  // session_dma_buffers.cc
  Lookup MapDmaBuffer(const Request& request, const FdsPointer& fds) const;
  // True: request_ is answered when its lookup has ended.
  absl::StatusOr<bool> StartLookup(const FdsPointer& fds);
  void FinishLookup(const FdsPointer& fds, Findings& findings);

  // session_device.cc
  absl::Status Hello(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status OpenDevice(Device& device, uint16_t minor, Session* shared, Reply& reply);
  bool IsDaemonsOwnUser() const { return peer_.is_own_user(); }
  uint32_t MemoryPolicy() const;
  absl::Status OpenApp();
  absl::Status OpenDataplane(Device& device, Reply& reply);
  // session_sharing.cc
  absl::Status NameContext(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status Attach(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status ImportPd(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status ImportMr(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status ImportDm(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status JoinGroup(Session& other);
  template <class Visit>
  void ForEachTable(Visit&& visit) {
    ForEachOwnTable(visit);
    visit(channels_);
    visit(mws_);
    visit(lists_);
    visit(srqs_);
    visit(qps_);
    visit(ahs_);
  }
  // The tables whose handles no other session of the context gives, and that another session (of a
  // program that confuses its contexts, or of a child) could be given by mistake. Windows and lists
  // have numbers of the key table; handles in the program's own objects cannot be confused.
  template <class Visit>
  void ForEachOwnTable(Visit&& visit) {
    visit(pds_);
    visit(mrs_);
    visit(dms_);
    visit(cqs_);
    visit(xrcds_);
    visit(flows_);
    visit(counters_);
    visit(queue_tables_);
  }
  bool DropSomeKeys();
  // The session, other than this one, that gave out `handle`.
  Session* AnothersHandle(uint32_t handle) const;
  bool DestroysAnothers(const Request& request) const;
  // Also those of sessions that share the context; null if there is none.
  PdRecord* FindPd(uint32_t handle);
  DmRecord* FindDm(uint32_t handle);
  absl::Status QueryDevice(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status QueryPort(const Request& request, const FdsPointer& fds, Reply& reply);
  // session_memory.cc
  absl::Status AllocPd(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status DeallocPd(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status RegMr(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status ReregMr(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status DeregMr(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status UnshareRange(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status MakeTranslation(std::span<const roci_abi_extent> extents, uint64_t start,
                               uint64_t length, uint64_t iova, uint32_t access,
                               const FdsPointer& fds, memory::Translation& out, NotMapped& why);
  // Extent `number` of a request. Null: not mapped because of *why.
  std::shared_ptr<memory::MappedFile> MapExtent(const roci_abi_extent& extent, size_t number,
                                                bool writable, uint64_t longest,
                                                const FdsPointer& fds, NotMapped* why);
  // Logs once per program how its memory is accessed, if a region is not mapped. Does not throw.
  void LogReach(NotMapped why);
  static bool WantsWritableMappings(uint32_t access);
  // The rights that mappings for new translations of REREG_MR must allow.
  static uint32_t AccessIn(const roci_abi_rereg_mr_request& rereg);
  // session_device_memory.cc
  absl::Status AllocNullMr(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status AllocDm(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status FreeDm(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status RegDmMr(const Request& request, const FdsPointer& fds, Reply& reply);
  // session_lists.cc
  absl::Status AllocListMr(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status FreeListMr(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status AllocSignatureMr(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status CheckSignatureMr(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status RegDmaBufferMr(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status MakeList(uint32_t pd, const dataplane::ListRoom& room, Reply& reply);
  // session_windows.cc
  absl::Status AllocMw(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status DeallocMw(const Request& request, const FdsPointer& fds, Reply& reply);
  // session_completion.cc
  // How many of the `sent` asynchronous events of an object that is gone are in the socket, or
  // were.
  uint32_t KeptAsyncEvents(uint64_t user_handle, uint32_t sent);
  std::shared_ptr<dataplane::EventSocket> MakeEventSocket(UniqueFd sending) const;
  absl::Status CreateChannel(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status DestroyChannel(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status CreateCq(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status ResizeCq(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status ModifyCq(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status DestroyCq(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status ReturnEvents(const Request& request, const FdsPointer& fds, Reply& reply);
  // session_queue_pairs.cc
  absl::Status CreateQp(const Request& request, const FdsPointer& fds, Reply& reply);
  static bool NeedsPrivilege(const roci_abi_create_qp_request& create);
  dataplane::QueuePairConfig ConfigOf(const roci_abi_create_qp_request& create) const;
  absl::Status UseQueues(const roci_abi_create_qp_request& create,
                         dataplane::QueuePairConfig& config);
  bool MayUseRawPackets() const;
  // Makes what CREATE_QP and CREATE_RSS_QP answer; `record` has what the caller knows.
  absl::Status AddQueuePair(const dataplane::QueuePairConfig& config, QpRecord record,
                            Reply& reply);
  absl::Status ModifyQp(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status CheckEce(const roci_abi_modify_qp_request& modify, roce::QpType type) const;
  // `values` are checked; `path` is null without an address vector.
  absl::Status ApplyModify(const roci_abi_modify_qp_request& modify,
                           const roce::QpAttributes& values, const roce::Path* path, Reply& reply);
  absl::Status QueryQp(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status DestroyQp(const Request& request, const FdsPointer& fds, Reply& reply);
  roce::QpLimits TransportLimits() const;
  dataplane::QueuePairOrigin Origin() const;
  // session_shared_queues.cc
  absl::Status CreateSrq(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status CreateTagSrq(const Request& request, const FdsPointer& fds, Reply& reply);
  struct AddedSrq {
    uint32_t handle;
    dataplane::CreatedSharedReceiveQueue created;  // without `memory`
  };
  // Hands the memory over; `record` has what the caller knows.
  absl::StatusOr<AddedSrq> AddSrq(const dataplane::SharedReceiveQueueConfig& config,
                                  SrqRecord record, Reply& reply);
  absl::Status ModifySrq(const Request& request, const FdsPointer& fds, Reply& reply);
  // `limit`: to be set once the size is changed.
  absl::Status ResizeSrq(SrqRecord& record, uint32_t max_wr, std::optional<uint32_t> limit,
                         Reply& reply);
  absl::Status GrowSrq(SrqRecord& record, uint32_t max_wr, std::optional<uint32_t> limit,
                       Reply& reply);
  absl::Status QuerySrq(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status DestroySrq(const Request& request, const FdsPointer& fds, Reply& reply);
  // session_xrc.cc
  absl::Status OpenXrcd(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status JoinLcore(uint32_t lcore_index);
  absl::Status CloseXrcd(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status CreateTargetQp(const roci_abi_create_qp_request& create, Reply& reply);
  absl::StatusOr<uint32_t> OpenTarget(uint32_t xrcd, uint32_t qpn, uint64_t user_handle);
  absl::Status OpenQp(const Request& request, const FdsPointer& fds, Reply& reply);
  uint32_t CloseTarget(QpRecord& record);
  // session_addresses.cc
  // Runs `then` with the path of an address vector: now, or, deferring the answer, when the peer
  // has been found. For programs with ROCI_ABI_FEATURE_PATH_WAITS: now, or when the program repeats
  // the request.
  using UsePath = std::function<absl::Status(const roce::Path&, Reply&)>;
  absl::Status WithPath(const roci_abi_ah_attr& attr, roce::Qpn local, roce::Qpn remote,
                        const UsePath& then, Reply& reply);
  absl::Status WithPathOrWait(const roci_abi_ah_attr& attr, roce::Qpn local, roce::Qpn remote,
                              const UsePath& then, Reply& reply);
  static absl::Status MustAskAgain(uint32_t wait, Reply& reply);
  absl::Status CreateAh(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status DestroyAh(const Request& request, const FdsPointer& fds, Reply& reply);
  // session_multicast.cc
  absl::Status AttachMulticast(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status DetachMulticast(const Request& request, const FdsPointer& fds, Reply& reply);
  // session_flows.cc
  absl::Status CreateFlow(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status DestroyFlow(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status CreateCounters(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status DestroyCounters(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status AttachCounters(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status ReadCounters(const Request& request, const FdsPointer& fds, Reply& reply);
  // session_rss.cc
  absl::Status CreateQueueTable(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status DestroyQueueTable(const Request& request, const FdsPointer& fds, Reply& reply);
  absl::Status CreateRssQp(const Request& request, const FdsPointer& fds, Reply& reply);

  Services& services_;
  const Admission admission_;
  const uint32_t number_;
  const std::function<void()> end_;
  UniqueFd socket_;
  Peer peer_;
  std::string program_;
  uint64_t app_features_ = 0;  // ROCI_ABI_FEATURE_*
  EventLoop::Watch socket_watch_ = 0;
  abi::SpinJudge spins_;
  EventLoop::Watch exit_watch_ = 0;

  Device* device_ = nullptr;
  // The user's part of the device. Null, or without meaning, before HELLO.
  DeviceQuotas* quotas_ = nullptr;
  DeviceLimits limits_;
  Request request_;                  // being handled, or deferred
  roce::TimeNs request_began_ = 0;   // 0: answered
  Findings findings_;                // for request_
  uint64_t blocking_call_ = 0;       // what a deferred request waits for: either this
  uint64_t waiting_path_ = 0;        // or this
  Part next_part_;                   // or this
  std::optional<FdsPointer> retry_;  // or its second try, with these descriptors
  PathWaits path_waits_;             // for which no request is deferred
  // A request that a fault delays.
  struct DelayedRequest {
    absl::Status status;
    FdsPointer fds;
    roce::TimeNs until;
  };
  std::optional<DelayedRequest> delayed_;
  int injected_error_ = 0;                     // errno that a fault gives to request_
  std::vector<LoweredLimit> injected_limits_;  // of the answer to request_
  bool deferred_ = false;                      // the answer to a request comes later
  bool paused_ = false;                        // see Resume
  roce::TimeNs paused_at_ = 0;
  bool disconnected_ = false;
  uint32_t next_target_ = 0;  // handle from which CloseSomeTargets continues
  // An answer to request_ that waits for copies.
  struct HeldAnswer {
    absl::Status status;
    Reply reply;
    roce::TimeNs deadline;
  };
  std::optional<HeldAnswer> held_answer_;
  uint64_t broker_ticket_ = 0;  // while the broker receives; see ForeignFds
  int context_fd_ = -1;         // in the program
  bool has_logged_reach_ = false;
  std::shared_ptr<ContextGroup> group_;  // null: shares nothing

  // Destroyed from the last to the first: dataplane before what it refers to. Most tables have no
  // limit of their own, the device's quotas rule.
  static constexpr uint32_t kNoLimit = HandleTable<PdRecord>::kLast;
  std::shared_ptr<memory::AppMemory> app_;
  memory::FileMappings file_mappings_;
  HandleTable<ChannelRecord> channels_{kMaxCompletionChannels};
  HandleTable<PdRecord> pds_{kNoLimit};
  HandleTable<DmRecord> dms_{kNoLimit};
  HandleTable<MrRecord> mrs_{kNoLimit};
  HandleTable<MwRecord> mws_{kNoLimit};
  HandleTable<ListRecord> lists_{kNoLimit};
  HandleTable<CqRecord> cqs_{kNoLimit};
  HandleTable<XrcdRecord> xrcds_{kNoLimit};
  HandleTable<SrqRecord> srqs_{kNoLimit, ROCI_ABI_MAX_SRQ_HANDLES - 1};
  HandleTable<QpRecord> qps_{kNoLimit};
  HandleTable<AhRecord> ahs_{kNoLimit};
  HandleTable<CountersRecord> counters_{kNoLimit};
  HandleTable<QueueTableRecord> queue_tables_{kNoLimit};
  std::unique_ptr<dataplane::ShardClient> shard_;
  HandleTable<FlowRecord> flows_{kNoLimit};  // they name queue pairs
};

}  // namespace roci::control
