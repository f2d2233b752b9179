// The daemon's side of an identifier (rdma_cm_id) of librdmacm. Control thread only.
#pragma once

#include <netinet/in.h>
// After the C library's header: the kernel's header then uses its address types.
#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <vector>

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
  // Queues an event for the program, with this identifier's number and user data.
  void Post(rdma_ucm_event_resp event);
  void Post(uint32_t event, int32_t status = 0);

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

}  // namespace roci::control::cm
