#include "tests/integration/cm_end.h"

#include <poll.h>
#include <unistd.h>

#include <cstring>

#include "gtest/gtest.h"

namespace roci::testing {

Address::Address(const std::string& ip, uint16_t port) {
  if (ip.find(':') != std::string::npos) {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(storage_);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    EXPECT_EQ(inet_pton(AF_INET6, ip.c_str(), &in6.sin6_addr), 1) << ip;
  } else {
    auto& in = reinterpret_cast<sockaddr_in&>(storage_);
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    EXPECT_EQ(inet_pton(AF_INET, ip.c_str(), &in.sin_addr), 1) << ip;
  }
}

void IdDeleter::operator()(rdma_cm_id* id) const {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  EXPECT_EQ(rdma_destroy_id(id), 0) << strerror(errno);
}

EventChannel::EventChannel() : channel_(rdma_create_event_channel()) {
  EXPECT_NE(channel_, nullptr) << strerror(errno);
}

EventChannel::~EventChannel() { rdma_destroy_event_channel(channel_); }

Id EventChannel::Create(rdma_port_space space) {
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(channel_, &id, nullptr, space), 0) << strerror(errno);
  return Id(id);
}

Id EventChannel::Listen(const std::string& ip, uint16_t port, rdma_port_space space, int backlog) {
  Id id = Create(space);
  EXPECT_EQ(rdma_bind_addr(id.get(), Address(ip, port).get()), 0) << strerror(errno);
  EXPECT_EQ(rdma_listen(id.get(), backlog), 0) << strerror(errno);
  return id;
}

Id EventChannel::Route(const std::string& ip, uint16_t port, rdma_port_space space,
                       int type_of_service) {
  Id id = Create(space);
  if (type_of_service >= 0) {
    auto value = static_cast<uint8_t>(type_of_service);
    EXPECT_EQ(rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, 1), 0);
  }
  EXPECT_EQ(rdma_resolve_addr(id.get(), Address(kNear).get(), Address(ip, port).get(), 10'000), 0)
      << strerror(errno);
  Expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(rdma_resolve_route(id.get(), 10'000), 0) << strerror(errno);
  Expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
  return id;
}

bool EventChannel::IsWaiting() const {
  pollfd readable = {channel_->fd, POLLIN, 0};
  return poll(&readable, 1, 0) == 1;
}

Seen EventChannel::Next(int timeout_ms) {
  Seen seen;
  pollfd readable = {channel_->fd, POLLIN, 0};
  if (poll(&readable, 1, timeout_ms) != 1) return seen;
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel_, &event), 0) << strerror(errno);
  if (event == nullptr) return seen;
  seen.event = event->event;
  seen.status = event->status;
  seen.id = event->id;
  seen.listener = event->listen_id;
  const bool is_multicast =
      event->event == RDMA_CM_EVENT_MULTICAST_JOIN || event->event == RDMA_CM_EVENT_MULTICAST_ERROR;
  const auto take_data = [&seen](const void* data, uint8_t size) {
    if (size != 0) seen.data.assign(static_cast<const char*>(data), size);
  };
  if (is_multicast || event->id->qp_type == IBV_QPT_UD) {
    seen.ud = event->param.ud;
    seen.ud.private_data = nullptr;
    seen.context = is_multicast ? const_cast<void*>(event->param.ud.private_data) : nullptr;
    if (!is_multicast) take_data(event->param.ud.private_data, event->param.ud.private_data_len);
  } else {
    seen.conn = event->param.conn;
    seen.conn.private_data = nullptr;
    take_data(event->param.conn.private_data, event->param.conn.private_data_len);
  }
  rdma_ack_cm_event(event);
  return seen;
}

Seen EventChannel::Expect(rdma_cm_event_type event) {
  const Seen seen = Next();
  EXPECT_EQ(seen.event, event) << "status " << seen.status;
  return seen;
}

Id EventChannel::ExpectRequest(Seen* seen) {
  const Seen request = Expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  if (seen != nullptr) *seen = request;
  return Id(request.event == RDMA_CM_EVENT_CONNECT_REQUEST ? request.id : nullptr);
}

rdma_conn_param Parameters(const std::string& data) {
  static uint32_t count = 0;
  rdma_conn_param parameters = {};
  parameters.private_data = data.data();
  parameters.private_data_len = static_cast<uint8_t>(data.size());
  parameters.responder_resources = 3;
  parameters.initiator_depth = 5;
  parameters.retry_count = 6;
  parameters.rnr_retry_count = 4;
  parameters.flow_control = 1;
  parameters.qp_num = (static_cast<uint32_t>(getpid()) << 10 | ++count) & 0xFFFFFF;
  return parameters;
}

Connection::Connection(uint16_t port, int type_of_service)
    : listener(far_channel.Listen(kFar, port)) {
  active = near_channel.Route(kFar, port, RDMA_PS_TCP, type_of_service);
  rdma_conn_param parameters = Parameters();
  EXPECT_EQ(rdma_connect(active.get(), &parameters), 0) << strerror(errno);
  passive = far_channel.ExpectRequest();
}

void Connection::Accept() {
  rdma_conn_param parameters = Parameters();
  EXPECT_EQ(rdma_accept(passive.get(), &parameters), 0) << strerror(errno);
  near_channel.Expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
}

void Connection::Establish() {
  Accept();
  EXPECT_EQ(rdma_establish(active.get()), 0) << strerror(errno);
  far_channel.Expect(RDMA_CM_EVENT_ESTABLISHED);
}

int Connection::Mask(rdma_cm_id* id, ibv_qp_state state, ibv_qp_attr* attributes) {
  ibv_qp_attr unused = {};
  ibv_qp_attr& out = attributes != nullptr ? *attributes : unused;
  out = {};
  out.qp_state = state;
  int mask = 0;
  return rdma_init_qp_attr(id, &out, &mask) == 0 ? mask : 0;
}

int CreateQueuePair(rdma_cm_id* id) {
  ibv_qp_init_attr attributes = {};
  attributes.qp_type = id->qp_type;
  attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 4;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  return rdma_create_qp(id, nullptr, &attributes);
}

}  // namespace roci::testing
