#include "control/manage/show_objects.h"

#include <vector>

#include "control/net/ip_text.h"
#include "dataplane/shard/shard_client.h"

namespace roci::control {

using Json = nlohmann::json;

nlohmann::json SessionHead(const Session& session) {
  return {{"session", session.number()},
          {"pid", session.peer().pid},
          {"program", session.program()},
          {"device", session.device() != nullptr ? Json(session.device()->name()) : Json()}};
}

namespace {

const char* QpTypeName(roce::QpType type) {
  switch (type) {
    case roce::QpType::kRc:
      return "RC";
    case roce::QpType::kUc:
      return "UC";
    case roce::QpType::kUd:
      return "UD";
    case roce::QpType::kRawPacket:
      return "RAW";
    case roce::QpType::kXrcSend:
      return "XRC_SEND";
    case roce::QpType::kXrcRecv:
      return "XRC_RECV";
  }
  return "?";
}

Json ShowRequester(const roce::RequesterDebug& debug) {
  return {{"oldest_unacknowledged", debug.oldest_unacknowledged.value()},
          {"next_to_send", debug.next_to_send.value()},
          {"end_of_sent", debug.end_of_sent.value()},
          {"next_new", debug.next_new.value()},
          {"window", roce::StepsForward(debug.oldest_unacknowledged, debug.end_of_sent)},
          {"window_limit", debug.window},
          {"records", debug.records},
          {"rd_atomic_outstanding", debug.rd_atomic_outstanding},
          {"retries_left", debug.retries_left},
          {"rnr_retries_left", debug.rnr_retries_left},
          {"rnr_waiting", debug.rnr_waiting},
          {"recovering", debug.recovering},
          {"credits", debug.obeys_credits ? Json(debug.credits) : Json()},
          {"credit_waiting", debug.credit_waiting},
          {"timer_running", debug.deadline != roce::kNever}};
}

Json ShowResponder(const roce::ResponderDebug& debug) {
  return {{"expected_psn", debug.expected_psn.value()},
          {"msn", debug.msn.value()},
          {"resources_pending", debug.resources_pending},
          {"ack_pending", debug.ack_pending},
          {"nak_pending", debug.nak_pending},
          {"gap_reported", debug.gap_reported},
          {"in_message", debug.in_message},
          {"waits_for_durable", debug.waits_for_durable},
          {"awaits_receives", debug.awaits_receives}};
}

Json ShowQp(const Session& session, const QpRecord& record, const dataplane::QueuePairInfo& info) {
  Json out = SessionHead(session);
  const roce::QpAttributes& attributes = info.attributes;
  out["qpn"] = info.qpn.value();
  out["handle"] = info.handle;
  out["type"] = QpTypeName(info.type);
  out["state"] = roce::QpStateName(info.state);
  out["pd"] = info.pd;
  out["send_cq"] = record.send_cq;
  out["recv_cq"] = record.recv_cq;
  out["srq"] = record.srq;
  out["xrcd"] = record.xrcd;
  out["remote_qpn"] = attributes.dest_qpn.value();
  out["local"] = IpText(info.local_gid);
  out["remote"] = IpText(info.remote_gid);
  out["vlan"] = info.vlan;
  out["path_mtu"] = roce::PathMtuBytes(attributes.path_mtu);
  out["sq_psn"] = attributes.sq_psn.value();
  out["rq_psn"] = attributes.rq_psn.value();
  out["timeout"] = attributes.timeout;
  out["retry_count"] = attributes.retry_count;
  out["rnr_retry"] = attributes.rnr_retry;
  out["min_rnr_timer"] = attributes.min_rnr_timer;
  out["max_rd_atomic"] = attributes.max_rd_atomic;
  out["max_dest_rd_atomic"] = attributes.max_dest_rd_atomic;
  out["access"] = attributes.access_flags;
  out["max_send_wr"] = record.layout.max_send_wr;
  out["max_recv_wr"] = record.layout.max_recv_wr;
  out["send_taken"] = info.send_taken;
  out["recv_taken"] = info.recv_taken;
  out["tx_packets"] = info.tx_packets;
  out["rx_packets"] = info.rx_packets;
  out["drops"] = info.drops;
  out["active"] = info.active;
  out["flushing"] = info.debug.flushing;
  const uint32_t throttled = info.debug.throttled_to_kbps;
  out["throttled_to_kbps"] = throttled != 0 ? Json(throttled) : Json();
  out["selective_repeat"] = info.debug.selective_repeat;
  out["requester"] = ShowRequester(info.debug.requester);
  out["responder"] = ShowResponder(info.debug.responder);
  return out;
}

// Calls add(handle, record) for some objects from the handle `next` on. False: none is left.
template <class Table, class Add>
bool ForSome(const Table& table, uint32_t& next, Add&& add) {
  auto it = table.From(next);
  for (size_t i = 0; i < ShownObjects::kMostInPart && it != table.end(); ++i, ++it) {
    add(it->first, it->second);
    next = it->first + 1;
  }
  return it != table.end();
}

}  // namespace

bool ShownObjects::AddSome(std::string& out) {
  const auto it = sessions_.sessions().lower_bound(session_);
  if (it == sessions_.sessions().end()) return false;
  if (it->first != session_) {  // the session has ended
    session_ = it->first;
    next_handle_ = 0;
    regions_ = {};
  }
  Json rows = Json::array();
  const bool is_open = it->second->device() != nullptr;  // null before HELLO
  if (!is_open || !AddSomeOf(*it->second, rows)) {
    ++session_;
    next_handle_ = 0;
    regions_ = {};
  }
  // Program names may be invalid UTF-8.
  for (const Json& row : rows)
    out += row.dump(-1, ' ', false, Json::error_handler_t::replace) + ",";
  return true;
}

bool ShownObjects::AddSomeOf(const Session& session, Json& rows) {
  switch (kind_) {
    case ShowKind::kQps:
      return AddQps(session, rows);
    case ShowKind::kCqs:
      return AddCqs(session, rows);
    case ShowKind::kSrqs:
      return AddSrqs(session, rows);
    default:
      return regions_.AddSome(session, SessionHead(session), kMostInPart, rows);
  }
}

bool ShownObjects::AddQps(const Session& session, Json& rows) {
  std::vector<dataplane::QueuePair*> qps;
  std::vector<const QpRecord*> records;
  const bool has_more = ForSome(session.qps(), next_handle_, [&](uint32_t, const QpRecord& record) {
    qps.push_back(record.qp);
    records.push_back(&record);
  });
  const auto infos = session.shard()->Do(dataplane::InspectQueuePairs{qps});
  for (size_t i = 0; i < infos.size(); ++i) rows.push_back(ShowQp(session, *records[i], infos[i]));
  return has_more;
}

bool ShownObjects::AddCqs(const Session& session, Json& rows) {
  return ForSome(session.cqs(), next_handle_, [&](uint32_t handle, const CqRecord& record) {
    const auto info = session.shard()->Do(dataplane::InspectCompletionQueue{*record.cq});
    Json cq = SessionHead(session);
    cq["handle"] = handle;
    cq["capacity"] = info.capacity;
    cq["channel"] = record.channel;
    cq["qp_queues"] = info.ref_count;
    cq["comp_events"] = info.comp_events;
    cq["async_events"] = info.async_events;
    cq["overflowed"] = info.overflowed;
    rows.push_back(std::move(cq));
  });
}

bool ShownObjects::AddSrqs(const Session& session, Json& rows) {
  return ForSome(session.srqs(), next_handle_, [&](uint32_t handle, const SrqRecord& record) {
    const auto state = session.shard()->Do(dataplane::InspectReceiveQueue{*record.srq});
    Json srq = SessionHead(session);
    srq["handle"] = handle;
    srq["type"] = record.xrcd != 0 ? "XRC" : record.has_tags ? "tags" : "basic";
    srq["number"] = record.number;
    srq["pd"] = record.pd;
    srq["max_wr"] = record.max_wr;
    srq["max_sge"] = record.layout.max_sge;
    srq["qps"] = state.ref_count;
    srq["async_events"] = state.async_events;
    srq["posted"] = state.posted;
    srq["taken"] = state.taken;
    srq["limit"] = state.limit;
    srq["broken"] = state.broken;
    srq["tags"] = state.tags;
    rows.push_back(std::move(srq));
  });
}

}  // namespace roci::control
