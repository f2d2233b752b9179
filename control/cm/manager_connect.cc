// Commands of programs for connections and datagram services: to the engine.

#include <algorithm>
#include <cerrno>

#include "control/cm/manager.h"
#include "control/cm/verbs_numbers.h"
#include "control/loop/errno_status.h"
#include "dataplane/base/async_event.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::control::cm {
namespace {

constexpr uint8_t kMaxRetries = 7;  // 3 bits in a REQ; of RNR NAKs: without end

std::span<const std::byte> DataOf(const rdma_ucm_conn_param& param) {
  return {reinterpret_cast<const std::byte*>(param.private_data), param.private_data_len};
}

uint8_t TransportOf(uint8_t qp_type) {
  switch (qp_type) {
    case kQpUc:
      return static_cast<uint8_t>(TransportService::kUc);
    case kQpXrcSend:
    case kQpXrcRecv:
      return static_cast<uint8_t>(TransportService::kExtended);
    default:
      return static_cast<uint8_t>(TransportService::kRc);
  }
}

uint64_t ServiceOf(const CmId& id) {
  return id.destination.family == AF_IB ? id.destination.service
                                        : ServiceIdOf({id.space, id.destination.port});
}

// The program's private data, preceded by the IP header if the addresses are IP addresses.
std::vector<std::byte> WithHeader(const CmId& id, std::span<const std::byte> data) {
  if (id.destination.family == AF_IB) return {data.begin(), data.end()};
  IpHeader header;
  header.source_port = id.source.port;
  header.source = id.source.gid;
  header.destination = id.destination.gid;
  const IpHeaderBytes bytes = BuildIpHeader(header);
  std::vector<std::byte> out(bytes.begin(), bytes.end());
  out.insert(out.end(), data.begin(), data.end());
  return out;
}

Ece EceOf(const rdma_ucm_ece& ece) { return {ece.vendor_id, ece.attr_mod}; }

absl::Status ConnectDatagram(CmId& id, std::span<const std::byte> data) {
  DatagramOptions options;
  options.owner = id.number;
  options.account = id.account();
  options.path = id.path;
  options.service_id = ServiceOf(id);
  options.private_data = data;
  const absl::StatusOr<uint32_t> connection =
      id.port->engine.ConnectDatagram(MonotonicNow(), options);
  if (!connection.ok()) return connection.status();
  id.connection = *connection;
  return absl::OkStatus();
}

}  // namespace

absl::Status Manager::Connect(CmId& id, const rdma_ucm_conn_param& param, const rdma_ucm_ece& ece) {
  if (param.valid == 0) return Invalid("no parameters");
  if (id.state != IdState::kRouteResolved) return Invalid("no route is resolved");
  const std::vector<std::byte> data = WithHeader(id, DataOf(param));
  id.qpn = param.qp_num;
  id.srq = param.srq != 0;
  absl::Status status;
  if (id.qp_type == kQpUd) {
    status = ConnectDatagram(id, data);
  } else {
    ConnectOptions options;
    options.owner = id.number;
    options.account = id.account();
    options.path = id.path;
    options.service_id = ServiceOf(id);
    options.transport = TransportOf(id.qp_type);
    options.extended_transport =
        options.transport == static_cast<uint8_t>(TransportService::kExtended) ? kExtendedXrc : 0;
    options.qpn = param.qp_num & roce::kMask24;
    options.psn = id.psn;
    options.path_mtu = static_cast<uint8_t>(id.port->device.max_path_mtu());
    options.responder_resources = param.responder_resources;
    options.initiator_depth = param.initiator_depth;
    options.retry_count = std::min<uint8_t>(param.retry_count, kMaxRetries);
    options.rnr_retry_count = std::min<uint8_t>(param.rnr_retry_count, kMaxRetries);
    options.flow_control = param.flow_control != 0;
    options.srq = param.srq != 0;
    // The program gives the exponent of the QP's timeout: one more than that of the life time.
    options.packet_life_time = id.ack_timeout > 1 ? static_cast<uint8_t>(id.ack_timeout - 1) : 0;
    options.ece = EceOf(ece);
    options.private_data = data;
    const absl::StatusOr<uint32_t> connection = id.port->engine.Connect(MonotonicNow(), options);
    status = connection.status();
    if (connection.ok()) id.connection = *connection;
  }
  if (!status.ok()) return status;
  id.has_asked_peer = true;
  id.state = IdState::kConnect;
  Flush(*id.port);
  return absl::OkStatus();
}

absl::Status Manager::Accept(CmId& id, uint64_t uid, const rdma_ucm_conn_param& param,
                             const rdma_ucm_ece& ece) {
  if (id.state != IdState::kConnect) return Invalid("nothing to accept");
  Engine& engine = id.port->engine;
  absl::Status status;
  if (param.valid == 0) {
    status = engine.Ready(MonotonicNow(), id.connection);
  } else if (id.qp_type == kQpUd) {
    id.qpn = param.qp_num;
    id.qkey = param.qkey;
    DatagramAnswer answer;
    answer.qpn = param.qp_num;
    answer.qkey = id.used_qkey();
    answer.ece = EceOf(ece);
    answer.private_data = DataOf(param);
    status = engine.AnswerDatagram(MonotonicNow(), id.connection, answer);
  } else {
    id.qpn = param.qp_num;
    id.srq = param.srq != 0;
    AcceptOptions options;
    options.qpn = param.qp_num & roce::kMask24;
    options.psn = id.psn;
    options.responder_resources = param.responder_resources;
    options.initiator_depth = param.initiator_depth;
    options.rnr_retry_count = std::min<uint8_t>(param.rnr_retry_count, kMaxRetries);
    options.flow_control = param.flow_control != 0;
    options.srq = param.srq != 0;
    options.ece = EceOf(ece);
    options.private_data = DataOf(param);
    status = engine.Accept(MonotonicNow(), id.connection, options);
  }
  if (status.ok() && param.valid != 0) id.uid = uid;
  // The program considers the connection failed: reject it, so that the peer does too.
  if (!status.ok()) Reject(id, 0, {}).IgnoreError();
  Flush(*id.port);
  return absl::IsFailedPrecondition(status) ? Invalid("the connection is gone") : status;
}

absl::Status Manager::Reject(CmId& id, uint8_t reason, std::span<const std::byte> private_data) {
  if (reason == 0) reason = static_cast<uint8_t>(RejectReason::kConsumer);
  if (reason != static_cast<uint8_t>(RejectReason::kConsumer) &&
      reason != static_cast<uint8_t>(RejectReason::kVendorOption)) {
    return Invalid("unsupported reject reason");
  }
  if (id.connection == 0) return Invalid("nothing to reject");
  Engine& engine = id.port->engine;
  absl::Status status;
  if (id.qp_type == kQpUd) {
    DatagramAnswer answer;
    answer.status = SidrStatus::kRejected;
    answer.private_data = private_data;
    status = engine.AnswerDatagram(MonotonicNow(), id.connection, answer);
  } else {
    status = engine.Reject(MonotonicNow(), id.connection, static_cast<RejectReason>(reason), {},
                           private_data);
  }
  if (status.ok()) id.connection = 0;
  Flush(*id.port);
  return absl::IsFailedPrecondition(status) ? Invalid("nothing to reject") : status;
}

absl::Status Manager::Disconnect(CmId& id) {
  if (!id.has_asked_peer) return Invalid("never connected");
  // As in Linux, succeeds for an identifier that is not connected yet or no longer, or for
  // datagrams: servers may call rdma_disconnect() after the peer has disconnected.
  if (id.connection == 0 || id.qp_type == kQpUd) return absl::OkStatus();
  const absl::Status status = id.port->engine.Disconnect(MonotonicNow(), id.connection);
  Flush(*id.port);
  return absl::IsFailedPrecondition(status) ? absl::OkStatus() : status;
}

absl::Status Manager::Notify(CmId& id, uint32_t event) {
  if (id.connection == 0) return Invalid("not connected");
  if (event != dataplane::kEventCommunicationEstablished)
    return Invalid("only IBV_EVENT_COMM_EST can be notified");
  const absl::Status status = id.port->engine.NoticeEstablished(MonotonicNow(), id.connection);
  Flush(*id.port);
  if (absl::IsAlreadyExists(status))
    return StatusFromErrno(EISCONN, "the connection is established");
  return absl::IsFailedPrecondition(status) ? Invalid("the connection cannot be established now")
                                            : status;
}

}  // namespace roci::control::cm
