// Writes programs' objects as attributes of RDMA netlink, and decides which ones a program sees.
#pragma once

#include <cstdint>
#include <string_view>

#include "control/cm/cm_id.h"
#include "control/device/device.h"
#include "control/device/users.h"
#include "control/netlink/datagram.h"
#include "control/netlink/object_numbers.h"
#include "control/session/session.h"
#include "dataplane/types/queue_pair_info.h"

namespace roci::control::netlink {

// The program that asks. Root and the daemon's user see the objects of all programs, as in
// `roci show`; other users those of their own programs.
struct Viewer {
  const User* user = nullptr;
  bool is_trusted = false;  // Peer::has_rights_of_daemon
  // Its process numbers are the daemon's. Else objects show the program's name only.
  bool sees_pids = false;
  uint32_t port = 0;  // its netlink port ID

  bool Sees(const User* owner) const { return is_trusted || owner == user; }
};

struct Scope {
  Datagram& out;
  const Viewer& viewer;
  ObjectNumbers& numbers;
};

// RDMA_NLDEV_ATTR_RES_PID, or the name in its place.
void PutOwner(const Scope& scope, pid_t pid, std::string_view program);

// The attributes of one object. `handle`: in `session`.
void PutPd(const Scope& scope, const Session& session, uint32_t handle, const PdRecord& record);
void PutCq(const Scope& scope, const Session& session, uint32_t handle, const CqRecord& record);
void PutMr(const Scope& scope, const Session& session, uint32_t handle, const MrRecord& record);
void PutSrq(const Scope& scope, const Session& session, uint32_t handle, const SrqRecord& record);
void PutQp(const Scope& scope, const Session& session, const QpRecord& record,
           const dataplane::QueuePairInfo& info);
void PutContext(const Scope& scope, const Session& session);
void PutCmId(const Scope& scope, const cm::CmId& id);

// The number for statistics of a region, which has none.
void PutMrNumber(const Scope& scope, const Session& session, uint32_t handle,
                 const MrRecord& record);

// The port of a queue pair; 0: it has none yet.
uint32_t PortOf(const dataplane::QueuePairInfo& info);
// The port of an identifier; 0: it is bound to no device.
uint32_t PortOf(const cm::CmId& id);
// Whether `device` shows the identifier: its own, and listeners on all devices.
bool IsShownOn(const cm::CmId& id, const Device& device);
// Whether RDMA netlink shows the record as a queue pair.
inline bool IsQueuePair(const QpRecord& record) { return !record.is_work_queue; }

}  // namespace roci::control::netlink
