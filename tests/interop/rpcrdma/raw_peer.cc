#include "tests/interop/rpcrdma/raw_peer.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "tests/interop/rpcrdma/socket_address.h"

namespace rpcrdma {
namespace {

constexpr int kStep_ms = 30'000;
constexpr size_t kSendBytes = 64 * 1024;
constexpr uint64_t kIsSend = uint64_t{1} << 32;

// Waits for an event and takes it; null when time is up.
rdma_cm_event* NextEvent(rdma_event_channel* channel, int timeout_ms) {
  pollfd entry = {channel->fd, POLLIN, 0};
  rdma_cm_event* event = nullptr;
  if (poll(&entry, 1, timeout_ms) != 1 || rdma_get_cm_event(channel, &event) != 0) return nullptr;
  return event;
}

std::vector<std::byte> DataOf(const rdma_cm_event& event) {
  const auto* data = static_cast<const std::byte*>(event.param.conn.private_data);
  return {data, data + event.param.conn.private_data_len};
}

}  // namespace

RawPeer::RawPeer(const std::string& address, uint16_t port, const RawPeerOptions& options)
    : options_(options), own_channel_(rdma_create_event_channel()), channel_(own_channel_.get()) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) ThrowErrno("rdma_create_id");
  id_.reset(id);
  SocketAddress server(address, port);
  if (rdma_resolve_addr(id, nullptr, server.get(), kStep_ms) != 0) ThrowErrno("rdma_resolve_addr");
  Expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  if (rdma_resolve_route(id, kStep_ms) != 0) ThrowErrno("rdma_resolve_route");
  Expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
  CreateQueues();
  rdma_conn_param parameters = {};
  parameters.private_data = options_.private_data.data();
  parameters.private_data_len = static_cast<uint8_t>(options_.private_data.size());
  parameters.responder_resources = options_.responder_resources;
  parameters.retry_count = 6;
  parameters.rnr_retry_count = 7;
  if (rdma_connect(id, &parameters) != 0) ThrowErrno("rdma_connect");
  Expect(RDMA_CM_EVENT_ESTABLISHED);
}

RawPeer::RawPeer(rdma_event_channel* channel, const RawPeerOptions& options)
    : options_(options), channel_(channel) {
  rdma_cm_event* event = NextEvent(channel, kStep_ms);
  if (event == nullptr || event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
    if (event != nullptr) rdma_ack_cm_event(event);
    errno = ETIMEDOUT;
    ThrowErrno("no connection request");
  }
  id_.reset(event->id);
  peer_data_ = DataOf(*event);
  rdma_conn_param parameters = {};
  parameters.private_data = options_.private_data.data();
  parameters.private_data_len = static_cast<uint8_t>(options_.private_data.size());
  parameters.initiator_depth = event->param.conn.initiator_depth;
  parameters.rnr_retry_count = 6;
  rdma_ack_cm_event(event);
  CreateQueues();
  if (rdma_accept(id_.get(), &parameters) != 0) ThrowErrno("rdma_accept");
  Expect(RDMA_CM_EVENT_ESTABLISHED);
}

RawPeer::~RawPeer() {
  rdma_disconnect(id_.get());
  id_.reset();
}

void RawPeer::CreateQueues() {
  device_.emplace(id_->verbs);
  memory_.emplace(device_->pd(), 1, options_.memory_bytes,
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  receives_.emplace(device_->pd(), options_.receives, options_.receive_bytes,
                    IBV_ACCESS_LOCAL_WRITE);
  sends_.emplace(device_->pd(), 1, kSendBytes, IBV_ACCESS_LOCAL_WRITE);
  cq_.reset(ibv_create_cq(device_->context(), static_cast<int>(options_.receives) + 16, nullptr,
                          device_->channel(), 0));
  if (cq_ == nullptr) ThrowErrno("ibv_create_cq");
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq_.get();
  init.qp_type = IBV_QPT_RC;
  init.cap = {16, options_.receives, 1, 1, 0};
  if (rdma_create_qp(id_.get(), device_->pd(), &init) != 0) ThrowErrno("rdma_create_qp");
  for (uint32_t i = 0; i < options_.receives; ++i) PostReceive(i);
}

void RawPeer::PostReceive(uint32_t slot) {
  ibv_sge sge = receives_->Sge(receives_->Slot(slot));
  ibv_recv_wr request = {};
  request.wr_id = slot;
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  errno = ibv_post_recv(id_->qp, &request, &bad);
  if (errno != 0) ThrowErrno("ibv_post_recv");
}

void RawPeer::Expect(rdma_cm_event_type type) {
  rdma_cm_event* event = NextEvent(channel_, kStep_ms);
  const int found = event == nullptr ? -1 : static_cast<int>(event->event);
  if (found == RDMA_CM_EVENT_ESTABLISHED && own_channel_ != nullptr) peer_data_ = DataOf(*event);
  if (event != nullptr) rdma_ack_cm_event(event);
  if (found == type) return;
  errno = found == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED : ETIMEDOUT;
  ThrowErrno("expected " + std::string(rdma_event_str(type)));
}

bool RawPeer::PollOnce(int timeout_ms) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  ibv_wc wc = {};
  while (ibv_poll_cq(cq_.get(), 1, &wc) == 0) {
    if (std::chrono::steady_clock::now() >= until) return false;
    pollfd entry = {channel_->fd, POLLIN, 0};
    if (poll(&entry, 1, 1) == 1) return false;  // an event of the connection
  }
  if ((wc.wr_id & kIsSend) != 0) {
    sent_ = wc.status;
  } else if (wc.status != IBV_WC_SUCCESS) {
    ended_ = true;
  } else {
    const auto bytes = receives_->Slot(wc.wr_id).first(wc.byte_len);
    received_.push_back(
        {{bytes.begin(), bytes.end()}, wc.wc_flags & IBV_WC_WITH_INV ? wc.invalidated_rkey : 0});
    if (options_.posts_again) PostReceive(static_cast<uint32_t>(wc.wr_id));
  }
  return true;
}

ibv_wc_status RawPeer::Post(ibv_send_wr& request, std::span<const std::byte> bytes) {
  const std::span<std::byte> room = sends_->Slot(0).first(bytes.size());
  std::copy(bytes.begin(), bytes.end(), room.begin());
  ibv_sge sge = sends_->Sge(room);
  request.wr_id = kIsSend;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_send_wr* bad = nullptr;
  errno = ibv_post_send(id_->qp, &request, &bad);
  if (errno != 0) ThrowErrno("ibv_post_send");
  sent_.reset();
  while (!sent_ && PollOnce(kStep_ms)) {
  }
  // A QP whose connection has ended flushes.
  return sent_.value_or(IBV_WC_WR_FLUSH_ERR);
}

ibv_wc_status RawPeer::Send(std::span<const std::byte> message) {
  ibv_send_wr request = {};
  request.opcode = IBV_WR_SEND;
  return Post(request, message);
}

ibv_wc_status RawPeer::Write(std::span<const std::byte> bytes, uint64_t to, uint32_t rkey) {
  ibv_send_wr request = {};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma = {to, rkey};
  return Post(request, bytes);
}

std::optional<RawPeer::Received> RawPeer::Receive(int timeout_ms) {
  while (received_.empty()) {
    if (ended_ || !PollOnce(timeout_ms)) return std::nullopt;
  }
  Received first = std::move(received_.front());
  received_.erase(received_.begin());
  return first;
}

bool RawPeer::WaitForEnd(int timeout_ms) {
  rdma_cm_event* event = NextEvent(channel_, timeout_ms);
  if (event == nullptr) return false;
  const bool is_end = event->event == RDMA_CM_EVENT_DISCONNECTED;
  rdma_ack_cm_event(event);
  return is_end;
}

void RawPeer::Break() {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  if (ibv_modify_qp(id_->qp, &attributes, IBV_QP_STATE) != 0) ThrowErrno("ibv_modify_qp");
}

RawListener::RawListener(const std::string& address, uint16_t port)
    : channel_(rdma_create_event_channel()) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel_.get(), &id, nullptr, RDMA_PS_TCP) != 0) ThrowErrno("rdma_create_id");
  id_.reset(id);
  SocketAddress own(address, port);
  if (rdma_bind_addr(id, own.get()) != 0 || rdma_listen(id, 8) != 0) ThrowErrno("rdma_listen");
}

}  // namespace rpcrdma
