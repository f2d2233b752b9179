// The RDMA connection manager: librdmacm's identifiers over all devices of the daemon. Handles
// addresses, port spaces and listeners; the engine of each device handles the messages.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "control/cm/channel.h"
#include "control/cm/cm_id.h"
#include "control/cm/engine.h"
#include "control/device/services.h"
#include "memory/split_mix.h"

namespace roci::control::cm {

// A device and its engine.
struct Port {
  Port(Device& port_device, const EngineConfig& config, uint64_t seed)
      : device(port_device), engine(config, seed) {}
  Device& device;
  Engine engine;
  uint32_t psn = 0;  // of the next datagram of QP 1
};

// Control thread only. Every command has the results of Linux's; see rdma_cm(7) and
// <rdma/rdma_user_cm.h>.
class Manager {
 public:
  static constexpr uint32_t kMaxBacklog = 8192;
  static constexpr size_t kMaxMemberships = 64;  // of one identifier

  explicit Manager(Services& services);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // Null: no such identifier on this channel.
  CmId* Find(const Channel& channel, uint32_t number);

  absl::StatusOr<uint32_t> Create(Channel& channel, const rdma_ucm_create_id& command);
  // Returns the number of events that the program has fetched and must acknowledge.
  uint32_t Destroy(CmId& id);
  // Destroys some identifiers of a channel that has ended, and its events. False: none is left.
  bool DestroySome(Channel& channel);
  absl::Status Bind(CmId& id, const SocketAddress& address);
  absl::Status ResolveAddress(CmId& id, const SocketAddress* source,
                              const SocketAddress& destination, uint32_t timeout_ms);
  absl::Status ResolveRoute(CmId& id);
  absl::Status Listen(CmId& id, uint32_t backlog);
  absl::Status Connect(CmId& id, const rdma_ucm_conn_param& param, const rdma_ucm_ece& ece);
  absl::Status Accept(CmId& id, uint64_t uid, const rdma_ucm_conn_param& param,
                      const rdma_ucm_ece& ece);
  absl::Status Reject(CmId& id, uint8_t reason, std::span<const std::byte> private_data);
  absl::Status Disconnect(CmId& id);
  absl::Status Notify(CmId& id, uint32_t event);
  absl::Status SetOption(CmId& id, uint32_t level, uint32_t name, std::span<const std::byte> value);
  absl::Status InitQpAttr(const CmId& id, uint32_t state, ib_uverbs_qp_attr& out) const;
  void QueryRoute(const CmId& id, rdma_ucm_query_route_resp& out) const;
  void QueryAddress(const CmId& id, rdma_ucm_query_addr_resp& out) const;
  // The same, converted to AF_IB addresses.
  void QueryGids(const CmId& id, rdma_ucm_query_addr_resp& out) const;
  // Fills in one path or none. Returns the size of the answer.
  static constexpr size_t kPathAnswerBytes =
      sizeof(rdma_ucm_query_path_resp) + sizeof(ib_path_rec_data);
  size_t QueryPath(const CmId& id, std::span<std::byte, kPathAnswerBytes> out) const;
  absl::StatusOr<uint32_t> Join(CmId& id, uint64_t uid, const SocketAddress& group, bool send_only);
  // `number`: of a membership. NotFound; InvalidArgument: it belongs to another channel.
  absl::StatusOr<uint32_t> Leave(const Channel& channel, uint32_t number);
  // The errno that a fault of the identifier's device gives to a command of the program
  // (control/device/call_faults.h), and counts it; 0: none. The identifier must have a device.
  static int InjectedError(const CmId& id, uint32_t command);
  // Moves `id` and its waiting events to channel `to`. Returns the number of fetched events.
  uint32_t Migrate(CmId& id, Channel& to);
  // Removes and counts the oldest event of `channel`, which must have one.
  rdma_ucm_event_resp TakeEvent(Channel& channel);

  const std::vector<std::unique_ptr<Port>>& ports() const { return ports_; }
  const std::map<uint32_t, std::unique_ptr<CmId>>& ids() const { return ids_; }

 private:
  using ConnParam = rdma_ucm_conn_param;

  CmId* Get(uint64_t number);
  // Null: the channel's user may have no more identifiers.
  CmId* Add(Channel& channel);
  static void MoveTo(CmId& id, Channel& to);
  Port* PortOf(const roce::Gid& own_address) const;
  absl::Status TakePort(CmId& id);
  absl::Status ChooseRoute(CmId& id);
  void RefuseAddress(CmId& id, int error);
  void AddressKnown(uint32_t number, const absl::StatusOr<roce::Path>& path);
  static void ForgetDestination(CmId& id);
  void EndResolve(CmId& id);
  void ReceivePacket(Port& port, const roce::Packet& packet);
  // Sends the engine's messages and handles its events.
  void Flush(Port& port);
  void HandleEvent(Port& port, const Event& event);
  struct Request;
  void HandleRequest(Port& port, const Event& event);
  // Null: none; notes in `request` how the listener was found.
  CmId* FindListenerOf(const Port& port, Request& request);
  void AdoptRequest(Port& port, const Request& request, const CmId& listener, CmId& id);
  // A listener with an AF_IB address: for requests without IP addresses, and for requests that
  // FindListener finds no listener for.
  CmId* FindServiceListener(const Port& port, const IpService& service,
                            const roce::NetAddress& own) const;
  void DescribeDevice(const CmId& id, rdma_ucm_query_addr_resp& out) const;
  CmId* FindListener(const Port& port, const IpService& service, const IpHeader& header,
                     uint16_t vlan) const;
  void HandleDatagramReply(CmId& id, const SidrRep& rep);
  void EndConnection(CmId& id, uint32_t event, int32_t status, const Rej* rej);
  void Post(CmId& id, rdma_ucm_event_resp event);
  void PostSimple(CmId& id, uint32_t event, int32_t status = 0);
  ib_uverbs_ah_attr AddressHandle(const CmId& id, const roce::Gid& destination) const;
  // `source`: index in the GID table.
  ib_uverbs_ah_attr AddressHandle(const CmId& id, const roce::Gid& destination,
                                  uint32_t source) const;
  absl::Status ConnectDatagram(CmId& id, std::span<const std::byte> data);
  void HandleTimeout(roce::TimeNs now);
  roce::TimeNs NextTimeout() const;

  Services& services_;
  memory::SplitMix random_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::map<uint32_t, std::unique_ptr<CmId>> ids_;
  uint32_t last_number_ = 0;
  PortTable port_table_;
  std::set<std::pair<roce::TimeNs, uint32_t>> resolves_;
  std::map<uint32_t, uint32_t> membership_owners_;  // identifier by membership
  uint32_t last_membership_ = 0;
};

}  // namespace roci::control::cm
