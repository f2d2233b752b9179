#include "control/manage/event_requests.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "control/config/nearest_name.h"
#include "control/manage/event_table.h"
#include "control/manage/manage_request.h"
#include "control/manage/request_values.h"
#include "dataplane/base/async_event.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

// The port number in events; devices have one.
constexpr uint64_t kPortNumber = 1;

absl::StatusOr<const EventRow*> RequestedEvent(const Json& request) {
  const absl::StatusOr<std::string> name = RequestText(request, "event");
  if (!name.ok()) return name.status();
  const auto found = std::ranges::find(kEventTable, std::string_view(*name),
                                       [](const EventRow& e) { return e.name; });
  if (found != kEventTable.end()) return &*found;
  std::vector<std::string_view> names;
  for (const EventRow& event : kEventTable) names.push_back(event.name);
  return absl::InvalidArgumentError(absl::StrCat("there is no event ", *name, "; the nearest is ",
                                                 std::string(NearestName(*name, names))));
}

// The key that names the object of such an event; null: none.
const char* KeyOf(EventTarget target) {
  switch (target) {
    case EventTarget::kQueuePair:
    case EventTarget::kFailedQueuePair:
      return "qp";
    case EventTarget::kFailedWorkQueue:
      return "wq";
    case EventTarget::kCompletionQueue:
      return "cq";
    case EventTarget::kReceiveQueue:
    case EventTarget::kBrokenReceiveQueue:
      return "srq";
    default:
      return nullptr;
  }
}

// Whose object an event is about.
template <class Record>
struct Target {
  Session* session = nullptr;
  const Record* record = nullptr;
};

struct Wanted {
  const char* key;
  uint64_t number = 0;
  uint64_t pid = 0;  // 0: any
};

absl::StatusOr<Wanted> RequestedObject(const Json& request, const char* key) {
  Wanted wanted{key};
  if (!request.contains(key)) {
    return absl::InvalidArgumentError(absl::StrCat("the event needs its object: \"", key, "\""));
  }
  for (const absl::Status& status : {TakeNumber(request, key, UINT32_MAX, wanted.number),
                                     TakeNumber(request, "pid", INT32_MAX, wanted.pid)}) {
    if (!status.ok()) return status;
  }
  return wanted;
}

const void* ObjectOf(const QpRecord& record) { return record.qp; }
const void* ObjectOf(const CqRecord& record) { return record.cq; }
const void* ObjectOf(const SrqRecord& record) { return record.srq; }

// The only object of the device's programs that `has` accepts; several programs may have an XRC
// receive queue pair. `table` returns a session's.
template <class Record, class Table, class Has>
absl::StatusOr<Target<Record>> FindTarget(const SessionServer& sessions, const Device& device,
                                          const Wanted& wanted, Table&& table, Has&& has) {
  Target<Record> found;
  for (const auto& [number, session] : sessions.sessions()) {
    if (session->device() != &device) continue;
    if (wanted.pid != 0 && static_cast<uint64_t>(session->peer().pid) != wanted.pid) continue;
    for (const auto& [handle, record] : table(*session)) {
      if (!has(handle, record)) continue;
      if (found.record != nullptr && ObjectOf(*found.record) != ObjectOf(record)) {
        return absl::FailedPreconditionError(absl::StrCat("several programs of ", device.name(),
                                                          " have ", wanted.key, " ", wanted.number,
                                                          ": choose one by its process (--pid)"));
      }
      found = {session.get(), &record};
    }
  }
  if (found.record != nullptr) return found;
  return absl::NotFoundError(absl::StrCat("no program has ", wanted.key, " ", wanted.number, " on ",
                                          device.name(), " (see `roci show ", wanted.key, "s`)"));
}

// Each returns how many programs get the event.
absl::StatusOr<size_t> RaiseForQueuePair(const SessionServer& sessions, const Device& device,
                                         const Wanted& wanted, const EventRow& event) {
  const bool is_work_queue = event.target == EventTarget::kFailedWorkQueue;
  const auto target = FindTarget<QpRecord>(
      sessions, device, wanted, [](const Session& session) -> auto& { return session.qps(); },
      [&](uint32_t, const QpRecord& record) {
        return record.qpn.value() == wanted.number && record.is_work_queue == is_work_queue;
      });
  if (!target.ok()) return target.status();
  dataplane::ShardClient& shard = *target->session->shard();
  dataplane::QueuePair& qp = *target->record->qp;
  if (event.target != EventTarget::kQueuePair) {
    roce::QpAttributes error;
    error.state = roce::QpState::kErr;
    const auto modified = shard.Do(dataplane::ModifyQueuePair{qp, error, roce::kAttrState});
    if (modified.result != roce::ModifyResult::kOk) {
      return absl::FailedPreconditionError(absl::StrCat(wanted.key, " ", wanted.number, " is in ",
                                                        roce::QpStateName(modified.state),
                                                        ", from which it does not go to ERR"));
    }
  }
  return shard.Do(dataplane::RaiseQueuePairEvent{qp, event.number});
}

absl::StatusOr<size_t> RaiseForCompletionQueue(const SessionServer& sessions, const Device& device,
                                               const Wanted& wanted) {
  const auto target = FindTarget<CqRecord>(
      sessions, device, wanted, [](const Session& session) -> auto& { return session.cqs(); },
      [&](uint32_t handle, const CqRecord&) { return handle == wanted.number; });
  if (!target.ok()) return target.status();
  if (!target->session->shard()->Do(dataplane::BreakCompletionQueue{*target->record->cq})) {
    return absl::FailedPreconditionError(
        absl::StrCat("cq ", wanted.number, " has overflowed already"));
  }
  return 1;
}

absl::StatusOr<size_t> RaiseForReceiveQueue(const SessionServer& sessions, const Device& device,
                                            const Wanted& wanted, const EventRow& event) {
  const auto target = FindTarget<SrqRecord>(
      sessions, device, wanted, [](const Session& session) -> auto& { return session.srqs(); },
      [&](uint32_t handle, const SrqRecord&) { return handle == wanted.number; });
  if (!target.ok()) return target.status();
  dataplane::ShardClient& shard = *target->session->shard();
  dataplane::SharedReceiveQueue& srq = *target->record->srq;
  if (event.target == EventTarget::kReceiveQueue) {
    return shard.Do(dataplane::RaiseReceiveQueueEvent{srq, event.number}) ? 1 : 0;
  }
  if (!shard.Do(dataplane::BreakReceiveQueue{srq})) {
    return absl::FailedPreconditionError(absl::StrCat("srq ", wanted.number, " is broken already"));
  }
  return 1;
}

size_t SessionsOf(const SessionServer& sessions, const Device& device) {
  const auto is_of_device = [&](const auto& entry) { return entry.second->device() == &device; };
  return static_cast<size_t>(std::ranges::count_if(sessions.sessions(), is_of_device));
}

size_t RaiseForPort(const SessionServer& sessions, const Device& device, const EventRow& event) {
  size_t programs = 0;
  for (const auto& [number, session] : sessions.sessions()) {
    if (session->device() != &device) continue;
    programs += session->shard()->Do(dataplane::RaiseEvent{kPortNumber, event.number});
  }
  return programs;
}

absl::StatusOr<size_t> SetLink(const SessionServer& sessions, const Device& device,
                               LinkStates& links, const EventRow& event, roce::TimeNs now) {
  const bool is_down = event.number == dataplane::kEventPortError;
  if (device.dataplane().link_up() != is_down) {
    return absl::FailedPreconditionError(
        absl::StrCat("the link of ", device.name(), is_down ? " is down" : " is up", " already"));
  }
  const Json request = {{"device", device.name()}, {"state", is_down ? "down" : "up"}};
  const absl::Status status = links.Run(request, now).status();
  if (!status.ok()) return status;
  if (device.dataplane().link_up() == is_down) {
    return absl::FailedPreconditionError(
        absl::StrCat("the link of ", device.name(), " follows its port, which is down"));
  }
  return SessionsOf(sessions, device);
}

absl::StatusOr<size_t> RaiseForObject(const SessionServer& sessions, const Device& device,
                                      const Json& request, const EventRow& event) {
  const absl::StatusOr<Wanted> wanted = RequestedObject(request, KeyOf(event.target));
  if (!wanted.ok()) return wanted.status();
  switch (event.target) {
    case EventTarget::kCompletionQueue:
      return RaiseForCompletionQueue(sessions, device, *wanted);
    case EventTarget::kReceiveQueue:
    case EventTarget::kBrokenReceiveQueue:
      return RaiseForReceiveQueue(sessions, device, *wanted, event);
    default:
      return RaiseForQueuePair(sessions, device, *wanted, event);
  }
}

absl::Status CheckKeys(const Json& request, const EventRow& event) {
  const char* const wanted = KeyOf(event.target);
  for (const std::string_view key : {"qp", "wq", "cq", "srq", "pid"}) {
    if (!request.contains(key)) continue;
    if (wanted != nullptr && (key == wanted || key == "pid")) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the event ", std::string(event.name), " has no \"", std::string(key), "\""));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> RunEventCommand(const Services& services, SessionServer& sessions,
                                     LinkStates& links, const Json& request, roce::TimeNs now) {
  const absl::StatusOr<Device*> device = RequestDevice(services, request);
  if (!device.ok()) return device.status();
  if (absl::Status status = CheckPlugged(**device); !status.ok()) return status;
  const absl::StatusOr<const EventRow*> found = RequestedEvent(request);
  if (!found.ok()) return found.status();
  const EventRow& event = **found;
  if (absl::Status status = CheckKeys(request, event); !status.ok()) return status;
  absl::StatusOr<size_t> programs = SessionsOf(sessions, **device);
  switch (event.target) {
    case EventTarget::kPort:
      programs = RaiseForPort(sessions, **device, event);
      break;
    case EventTarget::kLink:
      programs = SetLink(sessions, **device, links, event, now);
      break;
    case EventTarget::kDevice:
      sessions.EndAll(**device);
      break;
    default:
      programs = RaiseForObject(sessions, **device, request, event);
  }
  if (!programs.ok()) return programs.status();
  return Json{{"device", (*device)->name()}, {"event", event.name}, {"programs", *programs}};
}

}  // namespace roci::control
