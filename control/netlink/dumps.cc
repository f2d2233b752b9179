// The dumps of nldev.h: each step fills one datagram.
#include <rdma/rdma_netlink.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "control/netlink/counter_groups.h"
#include "control/netlink/nldev.h"

namespace roci::control::netlink {
namespace {

// Most sessions, and most objects of one session, that one step looks at.
constexpr int kSessionsOfStep = 512;
constexpr int kObjectsOfStep = 512;
// Most queue pairs that one step asks the lcore for.
constexpr size_t kQpsOfStep = 64;

// Where a dump continues.
struct Position {
  uint32_t session = 0;
  uint32_t handle = 0;  // 0: from the session's first object
};

using SessionMap = std::map<uint32_t, std::unique_ptr<Session>>;

// Calls `visit` (session, first handle -> the next handle; 0: no more) for the sessions that the
// viewer sees on `device`. False: all have been visited.
template <class Visit>
bool VisitSessions(const SessionMap& sessions, const Viewer& viewer, const Device& device,
                   Position& at, const Visit& visit) {
  int looked_at = 0;
  for (auto it = sessions.lower_bound(at.session); it != sessions.end(); ++it) {
    if (it->first != at.session) at = {it->first, 0};
    if (++looked_at > kSessionsOfStep) return true;
    const Session& session = *it->second;
    if (session.device() != &device || !viewer.Sees(&session.user())) continue;
    at.handle = visit(session, at.handle);
    if (at.handle != 0) return true;
  }
  return false;
}

// Adds one entry that `put` writes. False: it does not fit, or `put` has nothing to say.
template <class Put>
bool PutEntry(Datagram& out, uint16_t type, const Put& put) {
  const auto entry = out.Open(type);
  put();
  out.Close(entry);
  if (out.ok()) return true;
  out.Return(entry);
  return false;
}

// The tables of a session, as VisitSessions wants them.
template <class Table, class Put>
uint32_t PutTable(const Table& table, uint32_t from, Datagram& out, uint16_t entry_type,
                  const Put& put) {
  int looked_at = 0;
  for (auto it = table.From(from); it != table.end(); ++it) {
    if (++looked_at > kObjectsOfStep) return it->first;
    if (!PutEntry(out, entry_type, [&] { put(it->first, it->second); })) return it->first;
  }
  return 0;
}

// The queue pairs of `session` from handle `from` on, and their state; returns the next handle.
struct InspectedQp {
  uint32_t handle;
  const QpRecord* record;
  dataplane::QueuePairInfo info;
};
uint32_t InspectQps(const Session& session, uint32_t from, std::vector<InspectedQp>& out) {
  std::vector<dataplane::QueuePair*> qps;
  auto it = session.qps().From(from);
  for (; it != session.qps().end() && out.size() < kQpsOfStep; ++it) {
    if (!IsQueuePair(it->second)) continue;
    out.push_back({.handle = it->first, .record = &it->second, .info = {}});
    qps.push_back(it->second.qp);
  }
  if (qps.empty()) return 0;
  const auto infos = session.shard()->Do(dataplane::InspectQueuePairs{qps});
  for (size_t i = 0; i < out.size(); ++i) out[i].info = infos[i];
  return it == session.qps().end() ? 0 : it->first;
}

// ---- The kinds of objects that sessions have. Put() returns the next handle, or 0.

template <uint16_t kTable, uint16_t kEntry, auto kObjects, auto kPut>
struct TableKind {
  static constexpr uint16_t kTableType = kTable;
  static uint32_t Put(const Scope& scope, const Session& session, uint32_t from, const Request&) {
    return PutTable(
        (session.*kObjects)(), from, scope.out, kEntry,
        [&](uint32_t handle, const auto& record) { kPut(scope, session, handle, record); });
  }
};
using PdKind =
    TableKind<RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY, &Session::pds, &PutPd>;
using CqKind =
    TableKind<RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY, &Session::cqs, &PutCq>;
using MrKind =
    TableKind<RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY, &Session::mrs, &PutMr>;
using MrStatisticsKind =
    TableKind<RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY, &Session::mrs, &PutMrNumber>;
using SrqKind =
    TableKind<RDMA_NLDEV_ATTR_RES_SRQ, RDMA_NLDEV_ATTR_RES_SRQ_ENTRY, &Session::srqs, &PutSrq>;

struct ContextKind {
  static constexpr uint16_t kTableType = RDMA_NLDEV_ATTR_RES_CTX;
  static uint32_t Put(const Scope& scope, const Session& session, uint32_t, const Request&) {
    constexpr uint32_t kAgain = 1;
    const auto put = [&] { PutContext(scope, session); };
    return PutEntry(scope.out, RDMA_NLDEV_ATTR_RES_CTX_ENTRY, put) ? 0 : kAgain;
  }
};

struct QpKind {
  static constexpr uint16_t kTableType = RDMA_NLDEV_ATTR_RES_QP;
  static uint32_t Put(const Scope& scope, const Session& session, uint32_t from,
                      const Request& request) {
    std::vector<InspectedQp> qps;
    const uint32_t next = InspectQps(session, from, qps);
    for (const InspectedQp& qp : qps) {
      if (request.port && request.port != PortOf(qp.info)) continue;
      const auto put = [&] { PutQp(scope, session, *qp.record, qp.info); };
      if (!PutEntry(scope.out, RDMA_NLDEV_ATTR_RES_QP_ENTRY, put)) return qp.handle;
    }
    return next;
  }
};

void PutCounter(Datagram& out, const Viewer& viewer, ObjectNumbers& numbers,
                const CounterGroup& group, uint32_t mask) {
  constexpr uint32_t kPort = 1;
  out.PutU32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
  out.PutU32(RDMA_NLDEV_ATTR_STAT_COUNTER_ID, group.id);
  if ((mask & RDMA_COUNTER_MASK_QP_TYPE) != 0) out.PutU8(RDMA_NLDEV_ATTR_RES_TYPE, group.type);
  if ((mask & RDMA_COUNTER_MASK_PID) != 0) {
    PutOwner({out, viewer, numbers}, group.pid, group.program);
  }
  const auto qps = out.Open(RDMA_NLDEV_ATTR_RES_QP);
  for (const uint32_t qpn : group.qpns) {
    const auto entry = out.Open(RDMA_NLDEV_ATTR_RES_QP_ENTRY);
    out.PutU32(RDMA_NLDEV_ATTR_RES_LQPN, qpn);
    out.Close(entry);
  }
  out.Close(qps);
  const auto values = out.Open(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
  const auto put = [&out](std::string_view name, uint64_t value) {
    const auto entry = out.Open(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY);
    out.PutText(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, name);
    out.PutU64(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, value);
    out.Close(entry);
  };
  put("sent_pkts", group.sent_packets);
  put("rcvd_pkts", group.received_packets);
  put("drops", group.drops);
  out.Close(values);
}

}  // namespace

// The dumps of one device's objects, by command.
struct Nldev::ObjectDump {
  uint16_t command;
  Dump (Nldev::*start)(const Viewer& viewer, const Request& request);
};

int Nldev::Start(const Viewer& viewer, const Request& request, Dump& out) {
  static constexpr ObjectDump kObjectDumps[] = {
      {RDMA_NLDEV_CMD_RES_QP_GET, &Nldev::DumpObjects<QpKind>},
      {RDMA_NLDEV_CMD_RES_CQ_GET, &Nldev::DumpObjects<CqKind>},
      {RDMA_NLDEV_CMD_RES_MR_GET, &Nldev::DumpObjects<MrKind>},
      {RDMA_NLDEV_CMD_RES_PD_GET, &Nldev::DumpObjects<PdKind>},
      {RDMA_NLDEV_CMD_RES_SRQ_GET, &Nldev::DumpObjects<SrqKind>},
      {RDMA_NLDEV_CMD_RES_CTX_GET, &Nldev::DumpObjects<ContextKind>},
      {RDMA_NLDEV_CMD_RES_CM_ID_GET, &Nldev::DumpCmIds},
  };
  const uint16_t command = request.command;
  if (command == RDMA_NLDEV_CMD_GET || command == RDMA_NLDEV_CMD_RES_GET) {
    out = DumpDevices(viewer, request, 0, static_cast<uint32_t>(sources_.services.devices.size()));
    return 0;
  }
  if (DeviceOf(request) == nullptr) return EINVAL;
  if (command == RDMA_NLDEV_CMD_PORT_GET) {
    out = DumpDevices(viewer, request, *request.device, *request.device + 1);
    return 0;
  }
  if (command == RDMA_NLDEV_CMD_STAT_GET) return StartStatistics(viewer, request, out);
  for (const ObjectDump& dump : kObjectDumps) {
    if (dump.command != command) continue;
    out = (this->*dump.start)(viewer, request);
    return 0;
  }
  return EINVAL;
}

int Nldev::StartStatistics(const Viewer& viewer, const Request& request, Dump& out) {
  if (request.stat_resource == RDMA_NLDEV_ATTR_RES_MR) {
    out = DumpObjects<MrStatisticsKind>(viewer, request);
    return 0;
  }
  if (request.stat_resource != RDMA_NLDEV_ATTR_RES_QP) return EINVAL;
  const auto mask = counter_masks_.find(DeviceOf(request));
  out = DumpCounters(viewer, request, mask != counter_masks_.end() ? mask->second : 0);
  return 0;
}

Dump Nldev::DumpDevices(const Viewer& viewer, const Request& request, uint32_t first,
                        uint32_t end) const {
  return [this, &viewer, head = request.head, command = request.command, next = first,
          end](Datagram& out) mutable {
    while (next != end && !sources_.services.devices[next]->is_plugged()) ++next;
    if (next == end) return false;
    const auto begin = out.Begin(head, TypeOf(command), NLM_F_MULTI, viewer.port);
    PutWhole(out, viewer, command, next++);
    out.End(begin);
    return next != end;
  };
}

// Writes the part of a dump whose entries `fill` adds (-> whether the dump goes on); without an
// entry, nothing.
template <class Fill>
bool Nldev::PutPart(Datagram& out, const Viewer& viewer, const Request& request,
                    uint16_t table_type, const Fill& fill) const {
  const auto begin = out.Begin(request.head, TypeOf(request.command), NLM_F_MULTI, viewer.port);
  PutDevice(out, *request.device);
  const auto table = out.Open(table_type);
  const auto before = out.mark();
  const bool goes_on = fill();
  if (out.mark() == before) {
    out.Clear();
  } else {
    out.Close(table);
    out.End(begin);
  }
  return goes_on;
}

template <class Kind>
Dump Nldev::DumpObjects(const Viewer& viewer, const Request& request) {
  return [this, &viewer, request, at = Position{}](Datagram& out) mutable {
    return PutPart(out, viewer, request, Kind::kTableType, [&] {
      return VisitSessions(sources_.sessions.sessions(), viewer, *DeviceOf(request), at,
                           [&](const Session& session, uint32_t from) {
                             return Kind::Put({out, viewer, numbers_}, session, from, request);
                           });
    });
  };
}

Dump Nldev::DumpCmIds(const Viewer& viewer, const Request& request) {
  return [this, &viewer, request, next = uint32_t{0}](Datagram& out) mutable {
    return PutPart(out, viewer, request, RDMA_NLDEV_ATTR_RES_CM_ID, [&] {
      const Device& device = *DeviceOf(request);
      const auto& ids = sources_.connections.manager().ids().all();
      int looked_at = 0;
      auto it = ids.lower_bound(next);
      for (; it != ids.end() && ++looked_at <= kObjectsOfStep; ++it) {
        const cm::CmId& id = *it->second;
        if (!viewer.Sees(id.channel->user()) || !IsShownOn(id, device)) continue;
        if (request.port && request.port != PortOf(id)) continue;
        const auto put = [&] { PutCmId({out, viewer, numbers_}, id); };
        if (!PutEntry(out, RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY, put)) break;
      }
      if (it == ids.end()) return false;
      next = it->first;
      return true;
    });
  };
}

// First adds up all queue pairs, which gives empty datagrams, then writes one counter after the
// other.
Dump Nldev::DumpCounters(const Viewer& viewer, const Request& request, uint32_t mask) {
  auto groups = std::make_shared<CounterGroups>(mask);
  return [this, &viewer, request, groups, at = Position{},
          adds = mask != 0](Datagram& out) mutable {
    const Device& device = *DeviceOf(request);
    if (adds) {
      adds = VisitSessions(sources_.sessions.sessions(), viewer, device, at,
                           [&](const Session& session, uint32_t from) {
                             std::vector<InspectedQp> qps;
                             const uint32_t next = InspectQps(session, from, qps);
                             for (const InspectedQp& qp : qps) {
                               if (PortOf(qp.info) == 0) continue;
                               groups->Add(qp.info, session.number(), session.peer().pid,
                                           session.program());
                             }
                             return next;
                           });
      return adds || !groups->empty();
    }
    if (groups->empty()) return false;
    const auto begin = out.Begin(request.head, TypeOf(request.command), NLM_F_MULTI, viewer.port);
    PutDevice(out, *request.device);
    const auto table = out.Open(RDMA_NLDEV_ATTR_STAT_COUNTER);
    const auto put = [&] { PutCounter(out, viewer, numbers_, groups->first(), groups->mask()); };
    while (!groups->empty() && PutEntry(out, RDMA_NLDEV_ATTR_STAT_COUNTER_ENTRY, put)) {
      groups->RemoveFirst();
    }
    out.Close(table);
    out.End(begin);
    return !groups->empty();
  };
}

}  // namespace roci::control::netlink
