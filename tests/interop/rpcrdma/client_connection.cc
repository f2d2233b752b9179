#include "tests/interop/rpcrdma/client_connection.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "tests/interop/rpcrdma/socket_address.h"

namespace rpcrdma {
namespace {

// Header, and the message on both sides of a Read chunk.
constexpr uint32_t kCallSges = 3;
// Of one call: three binds, a SEND, three invalidations.
constexpr uint32_t kRequestsOfCall = 7;
constexpr uint32_t kSpareReceives = 2;

Owned<rdma_cm_id> CreateId(rdma_event_channel* channel) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) ThrowErrno("rdma_create_id");
  return Owned<rdma_cm_id>(id);
}

}  // namespace

ClientConnection::ClientConnection(rdma_event_channel* channel, const ClientOptions& options)
    : options_(options), id_(CreateId(channel)) {
  SocketAddress server(options_.address, options_.port);
  std::optional<SocketAddress> source;
  if (!options_.source.empty()) source.emplace(options_.source, 0);
  if (rdma_resolve_addr(id_.get(), source ? source->get() : nullptr, server.get(),
                        static_cast<int>(options_.connect_limit_ms)) != 0) {
    ThrowErrno("rdma_resolve_addr of " + options_.address);
  }
}

// After the QP is gone no adapter touches buffers.
ClientConnection::~ClientConnection() {
  if (established_) rdma_disconnect(id_.get());
  id_.reset();
}

void ClientConnection::CreateQueues(VerbsDevice& device) {
  device_ = &device;
  const uint32_t receives = options_.slots + kSpareReceives;
  const uint32_t entries =
      std::min(static_cast<uint32_t>(device.attr().max_qp_wr), options_.slots * kRequestsOfCall);
  cq_.reset(ibv_create_cq(device.context(), static_cast<int>(entries + receives), nullptr,
                          device.channel(), 0));
  if (cq_ == nullptr) ThrowErrno("ibv_create_cq");
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq_.get();
  init.qp_type = IBV_QPT_RC;
  init.cap = {entries, receives, kCallSges, 1, 0};
  if (rdma_create_qp(id_.get(), device.pd(), &init) != 0) ThrowErrno("rdma_create_qp");
  room_.emplace(entries);
  receives_.emplace(device.pd(), receives, options_.inline_bytes, IBV_ACCESS_LOCAL_WRITE);
  headers_.emplace(device.pd(), options_.slots, options_.inline_bytes, IBV_ACCESS_LOCAL_WRITE);
  for (uint32_t i = 0; i < receives; ++i) PostReceive(i);
  if (rdma_resolve_route(id_.get(), static_cast<int>(options_.connect_limit_ms)) != 0) {
    ThrowErrno("rdma_resolve_route");
  }
}

void ClientConnection::Connect() {
  const bool windows = options_.registration == Registration::kWindows;
  const std::array<std::byte, kPrivateDataBytes> mine =
      EncodePrivateData({.remote_invalidation = windows && device_->OffersWindows2B(),
                         .send_bytes = options_.inline_bytes,
                         .receive_bytes = options_.inline_bytes});
  rdma_conn_param parameters = {};
  parameters.private_data = mine.data();
  parameters.private_data_len = static_cast<uint8_t>(mine.size());
  // The server READs from here; nothing is read from the server.
  parameters.responder_resources =
      static_cast<uint8_t>(std::clamp(device_->attr().max_qp_rd_atom, 0, 255));
  parameters.initiator_depth = 0;
  parameters.flow_control = 1;
  parameters.retry_count = 6;
  parameters.rnr_retry_count = 0;  // credits make a receive certain
  if (rdma_connect(id_.get(), &parameters) != 0) ThrowErrno("rdma_connect");
}

void ClientConnection::Establish(std::optional<PrivateData> peer) {
  established_ = true;
  if (!peer) return;
  send_bytes_ = std::min(options_.inline_bytes, peer->receive_bytes);
  receive_bytes_ = std::min(options_.inline_bytes, peer->send_bytes);
}

void ClientConnection::Arm() {
  if (ibv_req_notify_cq(cq_.get(), 0) != 0) ThrowErrno("ibv_req_notify_cq");
}

void ClientConnection::PostReceive(uint64_t slot) {
  ibv_sge sge = receives_->Sge(receives_->Slot(slot));
  ibv_recv_wr request = {};
  request.wr_id = kReceive | slot;
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  errno = ibv_post_recv(id_->qp, &request, &bad);
  if (errno != 0) ThrowErrno("ibv_post_recv");
}

bool ClientConnection::Post(SendBatch& batch, uint64_t wr_id) {
  if (!room_->Reserve(batch.size())) return false;
  errno = batch.Post(id_->qp, wr_id);
  if (errno != 0) ThrowErrno("ibv_post_send");
  return true;
}

}  // namespace rpcrdma
