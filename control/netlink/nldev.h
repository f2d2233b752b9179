// Answers requests of RDMA_NL_NLDEV (<rdma/rdma_netlink.h>) as the kernel does for its devices.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "control/cm/server.h"
#include "control/device/services.h"
#include "control/netlink/datagram.h"
#include "control/netlink/netlink_decoder.h"
#include "control/netlink/object_numbers.h"
#include "control/netlink/objects.h"
#include "control/session/session_server.h"
#include "control/sysfs/sysfs_publisher.h"

namespace roci::control::netlink {

// nlmsg_type of a command.
constexpr uint16_t TypeOf(uint16_t command) {
  return static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
}

// Data sources of the answers. They outlive all objects that use this.
struct Sources {
  const Services& services;
  const SessionServer& sessions;
  const cm::Server& connections;
  const SysfsPublisher& publisher;
};

// The rest of a dump: adds at most one message to the empty `out`, perhaps none. False: that was
// the last one. A call looks at a bounded number of objects. Objects that come and go between two
// calls may be shown or not.
using Dump = std::function<bool(Datagram& out)>;

// Control thread only.
class Nldev {
 public:
  explicit Nldev(const Sources& sources);

  // Adds the messages of an answer; 0 or a positive errno. `request` is no dump.
  int Answer(const Viewer& viewer, const Request& request, std::vector<Datagram>& out);
  // Starts a dump, which keeps a reference to this object and to `viewer`; 0 or a positive errno.
  int Start(const Viewer& viewer, const Request& request, Dump& out);

 private:
  // Answers for one device, number `index`.
  int AnswerDevice(const Viewer& viewer, const Request& request, std::vector<Datagram>& out);
  int AnswerObject(const Viewer& viewer, const Request& request, Datagram& out);
  int PutObject(const Scope& scope, const Request& request, const Device& device);
  int PutQueuePair(const Scope& scope, const Request& request, const Device& device) const;
  int AnswerCounters(const Viewer& viewer, const Request& request, std::vector<Datagram>& out,
                     bool names_only) const;
  int AnswerMode(const Viewer& viewer, const Request& request, Datagram& out) const;
  int SetMode(const Viewer& viewer, const Request& request, Datagram& out);
  int AnswerSystem(const Viewer& viewer, const Request& request, Datagram& out) const;
  int AnswerCharacterDevice(const Viewer& viewer, const Request& request, Datagram& out) const;

  void PutDevice(Datagram& out, uint32_t index) const;
  // Writes the entry of one device in the answer to a command on whole devices.
  void PutWhole(Datagram& out, const Viewer& viewer, uint16_t command, uint32_t index) const;
  void PutProperties(Datagram& out, const Device& device) const;
  void PutPort(Datagram& out, const Device& device) const;
  void PutSummary(Datagram& out, const Viewer& viewer, const Device& device) const;

  const Device* DeviceOf(const Request& request) const;
  // The session of an object if `viewer` may see it on `device`.
  const Session* Visible(const Viewer& viewer, const Device& device, uint32_t session) const;
  // dumps.cc
  Dump DumpDevices(const Viewer& viewer, const Request& request, uint32_t first,
                   uint32_t end) const;
  struct ObjectDump;
  // Of STAT_GET; as Start.
  int StartStatistics(const Viewer& viewer, const Request& request, Dump& out);
  template <class Fill>
  bool PutPart(Datagram& out, const Viewer& viewer, const Request& request, uint16_t table_type,
               const Fill& fill) const;
  template <class Kind>
  Dump DumpObjects(const Viewer& viewer, const Request& request);
  Dump DumpCmIds(const Viewer& viewer, const Request& request);
  Dump DumpCounters(const Viewer& viewer, const Request& request, uint32_t mask);

  const Sources sources_;
  ObjectNumbers numbers_;
  // Criteria (RDMA_COUNTER_MASK_*) of counters of queue pairs, by device; 0 or missing: no
  // counters.
  std::map<const Device*, uint32_t> counter_masks_;
};

}  // namespace roci::control::netlink
