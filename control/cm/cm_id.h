// The daemon's side of an identifier (rdma_cm_id) of librdmacm, and the port numbers that
// identifiers hold. Control thread only.
#pragma once

#include <netinet/in.h>
// After the C library's header: the kernel's header then uses its address types.
#include <rdma/rdma_user_cm.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "control/cm/ip_service.h"
#include "control/cm/socket_address.h"
#include "control/cm/verbs_numbers.h"
#include "control/device/users.h"
#include "roce/frame.h"
#include "roce/work.h"

namespace roci::control::cm {

class Channel;
struct Port;

enum class IdState : uint8_t {
  kIdle,
  kBound,
  kAddressQuery,
  kAddressResolved,
  kRouteResolved,
  kConnect,  // from rdma_connect() or a received request until the end
  kDisconnected,
  kListen,
};

struct Membership {
  uint32_t number = 0;
  uint64_t uid = 0;
  roce::NetAddress group;
  bool send_only = false;
  uint32_t events_reported = 0;
  UserShare share;  // of the user that has joined, also after a migration to another user's channel
};

struct CmId {
  uint32_t account() const;  // the user id of the program, for the engine's bounds
  uint32_t used_qkey() const { return qkey != 0 ? qkey : kUdpQkey; }

  uint32_t number = 0;
  Channel* channel = nullptr;
  QuotaShare share;  // of the channel's user
  uint64_t uid = 0;  // 0: a request that has not been accepted yet
  PortSpace space = PortSpace::kTcp;
  PortSpace port_space = PortSpace::kTcp;  // of the held port: an AF_IB address may name another
  uint8_t qp_type = 0;                     // enum ibv_qp_type
  IdState state = IdState::kIdle;
  SocketAddress source;
  SocketAddress destination;
  bool holds_port = false;
  UserShare port_share;  // of the user that has bound it; see PortQuotas

  Port* port = nullptr;   // the device; null: not chosen yet
  Port* bound = nullptr;  // the device of its own address, if bound to one
  uint32_t gid_index = 0;
  uint16_t vlan = 0;  // of the source address
  roce::Path path;    // once resolved
  uint64_t path_wait = 0;
  roce::TimeNs resolve_deadline = roce::kNever;

  bool reuse_address = false;
  bool family_only = false;
  uint8_t type_of_service = 0;  // set by the program, or from the peer's request
  uint8_t ack_timeout = 0;      // 0: not set

  uint32_t connection = 0;      // of the port's engine; 0: none
  bool has_asked_peer = false;  // sent or received a request: rdma_disconnect() is then valid
  uint32_t psn = 0;
  uint32_t qpn = 0;
  uint32_t qkey = 0;
  bool srq = false;

  // Listening.
  uint32_t backlog = 0;  // requests that may still be queued
  // Of a request that the program has not fetched yet.
  uint32_t listener = 0;

  uint32_t events_reported = 0;
  std::vector<Membership> memberships;
};

struct QueuedEvent {
  uint32_t counts_for = 0;  // the identifier to which the program acknowledges the event
  uint32_t membership = 0;  // or 0
  rdma_ucm_event_resp event{};
};

// Ports of one port space.
class PortSet {
 public:
  void Add(uint16_t port) { words_[port / kBits] |= Bit(port); }
  void Remove(uint16_t port) { words_[port / kBits] &= ~Bit(port); }
  // The first port from `from` to `last` that is not in the set. Nothing: all are.
  std::optional<uint16_t> FirstMissing(uint16_t from, uint16_t last) const;

 private:
  static constexpr uint32_t kBits = 64;
  static uint64_t Bit(uint16_t port) { return uint64_t{1} << port % kBits; }
  std::array<uint64_t, (UINT16_MAX + 1) / kBits> words_{};
};

// The identifiers that hold each port of each port space, with the conflict rules of Linux.
class PortTable {
 public:
  // Takes id.source.port of id.port_space; 0: a free port. Fails with EADDRINUSE or EADDRNOTAVAIL.
  absl::Status Take(CmId& id, uint64_t random);
  void Give(CmId& id);
  // OK if `id` may listen: its address overlaps with no other holder's, reusable or not.
  absl::Status CheckListen(const CmId& id) const;
  // `id`, which holds a port, listens until Give().
  void Listen(CmId& id) { listeners_[{id.port_space, id.source.port}].push_back(&id); }
  const std::vector<CmId*>& Listeners(PortSpace space, uint16_t port) const {
    return Find(listeners_, {space, port});
  }

 private:
  using Key = std::pair<PortSpace, uint16_t>;
  using Table = std::map<Key, std::vector<CmId*>>;
  static const std::vector<CmId*>& Find(const Table& table, Key key);
  static void Remove(Table& table, CmId& id);
  absl::Status Check(const CmId& id, const std::vector<CmId*>& holders, bool reuse) const;
  Table holders_;
  Table listeners_;                    // few, while a port may have very many holders
  std::map<PortSpace, PortSet> held_;  // for Take(), which would else look for long
};

}  // namespace roci::control::cm
