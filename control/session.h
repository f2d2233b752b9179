// One session: one open ibv_context of one app, on one connection and one device. Owns everything
// that the app created through it. The commands are spread over session_*.cc by kind of object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "control/event_pipe.h"
#include "control/handle_table.h"
#include "control/quota.h"
#include "control/services.h"
#include "control/session_decoder.h"
#include "control/socket.h"
#include "dataplane/session.h"
#include "memory/app_memory.h"
#include "memory/mapped_file.h"

namespace roci::control {

// The answer to one request while it is made.
struct Reply {
  static constexpr size_t kMaxBytes = 512;
  alignas(8) std::array<std::byte, kMaxBytes> bytes{};
  std::vector<int> fds;         // sent, in this order; stay open
  std::vector<UniqueFd> owned;  // closed once sent
  bool deferred = false;        // Session::FinishDeferred will send it

  template <class T>
  T& As() {
    static_assert(sizeof(T) <= kMaxBytes);
    return *reinterpret_cast<T*>(bytes.data());
  }
  // Passes `fd` on and closes it here.
  void Hand(UniqueFd fd) {
    fds.push_back(fd.get());
    owned.push_back(std::move(fd));
  }
};

struct PdRecord {
  QuotaShare share;
  uint32_t users = 0;  // regions, queue pairs, address handles
};
struct MrRecord {
  QuotaShare share;
  QuotaShare mappings;
  uint32_t pd = 0;
  uint32_t key = 0;
  uint64_t start = 0;
  uint64_t length = 0;
};
struct ChannelRecord {
  EventPipe pipe;
  uint32_t users = 0;  // completion queues
};
struct CqRecord {
  QuotaShare share;
  QuotaShare memory;
  dataplane::CompletionQueue* cq = nullptr;
  uint64_t user_handle = 0;
  uint32_t channel = 0;  // 0: none
};
struct QpRecord {
  QuotaShare share;
  QuotaShare memory;
  dataplane::QueuePair* qp = nullptr;
  uint64_t user_handle = 0;
  uint32_t pd = 0;
  uint32_t send_cq = 0;
  uint32_t recv_cq = 0;
  bool sq_sig_all = false;
  std::optional<roci_abi_ah_attr> address;  // as the app gave it
};
struct AhRecord {
  QuotaShare share;
  uint32_t pd = 0;
};

// Control thread only.
class Session {
 public:
  // `number` is what people know the session by. `end` is called (perhaps more than once) when the
  // session is over and wants to be destroyed; it must not do so at once.
  static absl::StatusOr<std::unique_ptr<Session>> Create(Services& services, UniqueFd socket,
                                                         Peer peer, uint32_t number,
                                                         std::function<void()> end);
  // Releases everything. Peers of its queue pairs see silence.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  uint32_t number() const { return number_; }
  const Peer& peer() const { return peer_; }
  const std::string& program() const { return program_; }
  // Null before HELLO.
  Device* device() const { return device_; }
  dataplane::Session* dataplane() const { return dataplane_.get(); }
  const memory::AppMemory* app() const { return app_.get(); }

  const HandleTable<PdRecord>& pds() const { return pds_; }
  const HandleTable<MrRecord>& mrs() const { return mrs_; }
  const HandleTable<ChannelRecord>& channels() const { return channels_; }
  const HandleTable<CqRecord>& cqs() const { return cqs_; }
  const HandleTable<QpRecord>& qps() const { return qps_; }
  const HandleTable<AhRecord>& ahs() const { return ahs_; }

 private:
  using Fds = std::vector<UniqueFd>;
  using Handler = absl::Status (Session::*)(const Request&, Fds&, Reply&);
  static Handler HandlerOf(uint32_t command);

  Session(Services& services, UniqueFd socket, Peer peer, uint32_t number,
          std::function<void()> end);
  absl::Status Watch();
  void HandleSocket(uint32_t events);
  void HandleMessage(std::span<const std::byte> message, Fds& fds);
  absl::Status Dispatch(const Request& request, Fds& fds, Reply& reply);
  void Send(const Request& request, const absl::Status& status, Reply& reply);
  // The answer to the request that set Reply::deferred.
  void FinishDeferred(const absl::Status& status, Reply& reply);

  // session_device.cc
  absl::Status Hello(const Request& request, Fds& fds, Reply& reply);
  absl::Status OpenDataplane(Device& device, Reply& reply);
  absl::Status QueryDevice(const Request& request, Fds& fds, Reply& reply);
  absl::Status QueryPort(const Request& request, Fds& fds, Reply& reply);
  // session_memory.cc
  absl::Status AllocPd(const Request& request, Fds& fds, Reply& reply);
  absl::Status DeallocPd(const Request& request, Fds& fds, Reply& reply);
  absl::Status RegMr(const Request& request, Fds& fds, Reply& reply);
  absl::Status ReregMr(const Request& request, Fds& fds, Reply& reply);
  absl::Status DeregMr(const Request& request, Fds& fds, Reply& reply);
  absl::Status UnshareRange(const Request& request, Fds& fds, Reply& reply);
  absl::Status MakeTranslation(std::span<const roci_abi_extent> extents, uint64_t start,
                               uint64_t length, uint64_t iova, uint32_t access, const Fds& fds,
                               memory::Translation& out);
  std::shared_ptr<memory::MappedFile> MapExtent(const roci_abi_extent& extent, bool writable,
                                                const Fds& fds);
  // session_completion.cc
  absl::Status CreateChannel(const Request& request, Fds& fds, Reply& reply);
  absl::Status DestroyChannel(const Request& request, Fds& fds, Reply& reply);
  absl::Status CreateCq(const Request& request, Fds& fds, Reply& reply);
  absl::Status ResizeCq(const Request& request, Fds& fds, Reply& reply);
  absl::Status DestroyCq(const Request& request, Fds& fds, Reply& reply);
  // session_queue_pairs.cc
  absl::Status CreateQp(const Request& request, Fds& fds, Reply& reply);
  absl::Status ModifyQp(const Request& request, Fds& fds, Reply& reply);
  absl::Status ApplyModify(const roci_abi_modify_qp_request& modify, const roce::Path* path,
                           Reply& reply);
  absl::Status QueryQp(const Request& request, Fds& fds, Reply& reply);
  absl::Status DestroyQp(const Request& request, Fds& fds, Reply& reply);
  // session_addresses.cc
  // Runs `then` with the path of an address vector: now, or, deferring the answer, when the peer
  // has been found.
  using UsePath = std::function<absl::Status(const roce::Path&, Reply&)>;
  absl::Status WithPath(const roci_abi_ah_attr& attr, roce::Qpn local, roce::Qpn remote,
                        const UsePath& then, Reply& reply);
  absl::Status CreateAh(const Request& request, Fds& fds, Reply& reply);
  absl::Status DestroyAh(const Request& request, Fds& fds, Reply& reply);

  Services& services_;
  const uint32_t number_;
  const std::function<void()> end_;
  UniqueFd socket_;
  Peer peer_;
  std::string program_;
  EventLoop::Watch socket_watch_ = 0;
  EventLoop::Watch exit_watch_ = 0;

  Device* device_ = nullptr;
  Request request_;            // being handled, or deferred
  uint64_t waiting_path_ = 0;  // what a deferred request waits for
  bool deferred_ = false;
  EventPipe async_events_;  // the dataplane has a writing end of its own

  // Destroyed from the last to the first: dataplane before what it refers to. Most tables have no
  // limit of their own, the device's quotas rule.
  static constexpr uint32_t kNoLimit = HandleTable<PdRecord>::kLast;
  std::unique_ptr<memory::AppMemory> app_;
  memory::FileMappings file_mappings_;
  HandleTable<ChannelRecord> channels_{kMaxCompletionChannels};
  HandleTable<PdRecord> pds_{kNoLimit};
  HandleTable<MrRecord> mrs_{kNoLimit};
  HandleTable<CqRecord> cqs_{kNoLimit};
  HandleTable<QpRecord> qps_{kNoLimit};
  HandleTable<AhRecord> ahs_{kNoLimit};
  std::unique_ptr<dataplane::Session> dataplane_;
};

}  // namespace roci::control
