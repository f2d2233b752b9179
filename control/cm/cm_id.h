// What librdmacm calls an identifier, as the daemon knows it, and the port numbers that identifiers
// hold. Control thread only.
#pragma once

#include <netinet/in.h>
// The kernel's header comes after the C library's, whose addresses it then uses.
#include <rdma/rdma_user_cm.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "control/cm/ip_service.h"
#include "control/cm/socket_address.h"
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
  kConnect,  // from connect or a request until the end
  kDisconnected,
  kListen,
};

struct Membership {
  uint32_t number = 0;
  uint64_t uid = 0;
  roce::NetAddress group;
  bool send_only = false;
  uint32_t events_reported = 0;
};

struct CmId {
  uint32_t number = 0;
  Channel* channel = nullptr;
  uint64_t uid = 0;  // 0: a request that has not been accepted yet
  PortSpace space = PortSpace::kTcp;
  PortSpace port_space = PortSpace::kTcp;  // whose port it holds: AF_IB addresses may name another
  uint8_t qp_type = 0;                     // enum ibv_qp_type
  IdState state = IdState::kIdle;
  SocketAddress source;
  SocketAddress destination;
  bool holds_port = false;

  Port* port = nullptr;   // the device; null: any yet
  Port* bound = nullptr;  // where its own address is, if it was bound to one
  uint32_t gid_index = 0;
  uint16_t vlan = 0;  // of the source address
  roce::Path path;    // once resolved
  uint64_t path_wait = 0;
  roce::TimeNs resolve_deadline = roce::kNever;

  bool reuse_address = false;
  bool family_only = false;
  uint8_t type_of_service = 0;  // as the program has it, or the peer's request
  uint8_t ack_timeout = 0;      // 0: not set

  uint32_t connection = 0;      // of the port's engine; 0: none
  bool has_asked_peer = false;  // or has been asked: disconnecting is no mistake from then on
  uint32_t psn = 0;
  uint32_t qpn = 0;
  uint32_t qkey = 0;
  bool srq = false;

  // Listening.
  uint32_t backlog = 0;  // requests that may still be queued
  // A request that the program has not fetched yet: its listener.
  uint32_t listener = 0;

  uint32_t events_reported = 0;
  std::vector<Membership> memberships;
};

struct QueuedEvent {
  uint32_t counts_for = 0;  // number of the identifier that the program acknowledges it to
  uint32_t membership = 0;  // or 0
  rdma_ucm_event_resp event{};
};

// Who holds which port number of which port space, with Linux's rules of conflict.
class PortTable {
 public:
  // Takes id.source.port of id.port_space, or a free one if it is 0. StatusFromErrno: EADDRINUSE,
  // EADDRNOTAVAIL.
  absl::Status Take(CmId& id, uint64_t random);
  void Give(CmId& id);
  // Whether the holder may listen: nobody else's address overlaps, reusable or not.
  absl::Status CheckListen(const CmId& id) const;
  const std::vector<CmId*>& Holders(PortSpace space, uint16_t port) const;

 private:
  using Key = std::pair<PortSpace, uint16_t>;
  absl::Status Check(const CmId& id, const std::vector<CmId*>& holders, bool reuse) const;
  std::map<Key, std::vector<CmId*>> holders_;
};

}  // namespace roci::control::cm
