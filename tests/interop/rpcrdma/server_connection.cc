#include "tests/interop/rpcrdma/server_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/interop/rpcrdma/xdr_words.h"

namespace rpcrdma {
namespace {

// Receive buffers beyond the credits, for messages that need none (RDMA_DONE, RDMA_ERROR).
constexpr uint32_t kSpareReceives = 4;
// Of a work request's identifier: the slot of a receive, else the index of a call.
constexpr uint64_t kIsReceive = uint64_t{1} << 32;
constexpr int kCompletionsAtOnce = 16;
// Header, and the message on both sides of what was placed directly.
constexpr uint32_t kReplySges = 3;
// Requests of a batch beside one for each segment: parts of a chunk that another one divides,
// both sides of what was placed directly, the SEND.
constexpr uint32_t kMoreRequests = 4;

uint32_t Receives(const ServerOptions& options) { return options.credits + kSpareReceives; }

}  // namespace

struct ServerConnection::Call {
  enum class Step { kFetch, kReply };

  uint32_t index = 0;
  Step step = Step::kFetch;
  std::optional<uint32_t> receive;  // slot that holds the payload
  std::optional<uint32_t> buffer;   // of the device
  Header header;
  std::span<const std::byte> payload;
  CallPlan call_plan;
  RpcReply reply;
  ReplyPlan reply_plan;
  SendBatch batch;
};

ServerConnection::ServerConnection(ServerDevice& device, Owned<rdma_cm_id> id,
                                   const ServerOptions& options, RpcService& service,
                                   ServerCounters& counters)
    : device_(device),
      options_(options),
      service_(service),
      counters_(counters),
      id_(std::move(id)) {
  CreateQueues();
  const uint32_t receives = Receives(options_);
  receives_.emplace(device_.pd(), receives, options_.inline_bytes, IBV_ACCESS_LOCAL_WRITE);
  sends_.emplace(device_.pd(), receives, options_.inline_bytes, IBV_ACCESS_LOCAL_WRITE);
  for (uint32_t i = 0; i < receives; ++i) {
    calls_.push_back(std::make_unique<Call>());
    calls_.back()->index = i;
    free_calls_.push_back(i);
    PostReceive(i);
  }
  if (closed_) ThrowErrno("ibv_post_recv");
}

// After the QP is gone no adapter touches buffers, so they can serve others.
ServerConnection::~ServerConnection() {
  if (accepted_) rdma_disconnect(id_.get());
  device_.Forget(*this);
  id_.reset();
  cq_.reset();
  for (const auto& call : calls_) {
    if (call->buffer) device_.PutBuffer(*call->buffer);
  }
}

void ServerConnection::CreateQueues() {
  const ibv_device_attr& attr = device_.attr();
  const uint32_t receives = Receives(options_);
  const auto most = std::min(static_cast<uint32_t>(attr.max_qp_wr), options_.max_send_entries);
  const uint32_t entries =
      std::min(most, std::max(2 * receives, options_.max_segments + 2 * kMoreRequests));
  cq_.reset(ibv_create_cq(device_.context(), static_cast<int>(entries + receives), this,
                          device_.channel(), 0));
  if (cq_ == nullptr) ThrowErrno("ibv_create_cq");
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq_.get();
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = entries;
  init.cap.max_recv_wr = receives;
  init.cap.max_send_sge =
      std::min({kReplySges, options_.max_send_sges, static_cast<uint32_t>(attr.max_sge)});
  init.cap.max_recv_sge = 1;
  if (rdma_create_qp(id_.get(), device_.pd(), &init) != 0) ThrowErrno("rdma_create_qp");
  max_sges_ = std::min(init.cap.max_send_sge, options_.max_send_sges);
  room_.emplace(entries);
  limits_.max_segments = options_.max_segments;
  limits_.max_chunk_bytes = std::max<uint64_t>(limits_.max_chunk_bytes, options_.message_bytes);
}

void ServerConnection::Accept(const rdma_conn_param& request, std::optional<PrivateData> peer) {
  // A peer that says nothing receives 1 KiB (RFC 8166, section 3.3.3).
  if (peer) send_bytes_ = std::min(options_.inline_bytes, peer->receive_bytes);
  may_invalidate_ = peer && peer->remote_invalidation && device_.OffersSendWithInvalidate();
  may_read_ = request.initiator_depth > 0;
  const std::array<std::byte, kPrivateDataBytes> mine =
      EncodePrivateData({.remote_invalidation = false,
                         .send_bytes = options_.inline_bytes,
                         .receive_bytes = options_.inline_bytes});
  rdma_conn_param answer = {};
  answer.private_data = mine.data();
  answer.private_data_len = static_cast<uint8_t>(mine.size());
  answer.responder_resources = static_cast<uint8_t>(
      std::min<int>(request.responder_resources, device_.attr().max_qp_rd_atom));
  answer.initiator_depth = static_cast<uint8_t>(
      std::min<int>(request.initiator_depth, device_.attr().max_qp_init_rd_atom));
  answer.flow_control = 1;
  answer.rnr_retry_count = 6;
  if (rdma_accept(id_.get(), &answer) != 0) ThrowErrno("rdma_accept");
  accepted_ = true;
}

void ServerConnection::Close(CloseReason reason) {
  if (closed_) return;
  closed_ = true;
  counters_.closed[static_cast<size_t>(reason)].Add();
}

void ServerConnection::PostReceive(uint32_t slot) {
  ibv_sge sge = receives_->Sge(receives_->Slot(slot));
  ibv_recv_wr request = {};
  request.wr_id = kIsReceive | slot;
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (ibv_post_recv(id_->qp, &request, &bad) != 0) Close(CloseReason::kPostFailed);
}

void ServerConnection::Arm() {
  if (armed_ || closed_) return;
  armed_ = true;
  if (ibv_req_notify_cq(cq_.get(), 0) != 0) Close(CloseReason::kPostFailed);
}

bool ServerConnection::Poll() {
  ibv_wc completions[kCompletionsAtOnce];
  const int count = closed_ ? 0 : ibv_poll_cq(cq_.get(), kCompletionsAtOnce, completions);
  if (count < 0) Close(CloseReason::kWorkRequestFailed);
  for (int i = 0; i < count && !closed_; ++i) OnCompletion(completions[i]);
  return count > 0;
}

void ServerConnection::OnCompletion(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) return Close(CloseReason::kWorkRequestFailed);
  if ((wc.wr_id & kIsReceive) != 0) {
    ++received_;
    return OnReceive(static_cast<uint32_t>(wc.wr_id & ~kIsReceive), wc.byte_len);
  }
  ++completed_;
  room_->Complete();
  Call& call = *calls_[wc.wr_id];
  if (call.step == Call::Step::kFetch) {
    Answer(call, device_.buffers().Slot(*call.buffer).first(call.call_plan.length));
  } else {
    Discard(call);
  }
  if (!closed_) PostWaiting();
}

void ServerConnection::OnReceive(uint32_t slot, uint32_t bytes) {
  if (free_calls_.empty()) {
    waiting_receives_.push_back({slot, bytes});
    return;
  }
  Call& call = *calls_[free_calls_.back()];
  free_calls_.pop_back();
  Begin(call, slot, bytes);
}

void ServerConnection::Begin(Call& call, uint32_t slot, uint32_t bytes) {
  call.receive = slot;
  const std::span<const std::byte> message = receives_->Slot(slot).first(bytes);
  // Not even its XID can be trusted (RFC 8166, section 4.5).
  if (message.size() < kEmptyHeaderBytes) {
    counters_.short_messages.Add();
    return Discard(call);
  }
  size_t length = 0;
  const HeaderFault fault = DecodeHeader(message, limits_, call.header, length);
  if (fault != HeaderFault::kNone) return OnHeaderFault(call, fault);
  if (call.header.procedure == Procedure::kDone || call.header.procedure == Procedure::kError) {
    counters_.ignored_messages.Add();
    return Discard(call);
  }
  call.payload = message.subspan(length);
  if (call.header.procedure == Procedure::kMsg && call.header.reads.empty()) {
    return Answer(call, call.payload);
  }
  PlanFetch(call);
}

void ServerConnection::OnHeaderFault(Call& call, HeaderFault fault) {
  counters_.header_faults[static_cast<size_t>(fault)].Add();
  // An error is never answered by an error.
  if (call.header.procedure == Procedure::kError) return Discard(call);
  if (fault == HeaderFault::kOtherVersion) {
    counters_.version_errors.Add();
    return SendError(call, VersionError(call.header.xid, options_.credits));
  }
  SendError(call, ChunkError(call.header.xid, options_.credits));
}

void ServerConnection::PlanFetch(Call& call) {
  const CallFault fault =
      PlanCall(call.header, call.payload.size(), options_.message_bytes, call.call_plan);
  if (fault != CallFault::kNone) {
    counters_.call_faults[static_cast<size_t>(fault)].Add();
    return SendError(call, ChunkError(call.header.xid, options_.credits));
  }
  if (!may_read_) {
    counters_.unreadable_chunks.Add();
    return SendError(call, ChunkError(call.header.xid, options_.credits));
  }
  call.step = Call::Step::kFetch;
  WantBuffer(call);
}

void ServerConnection::WantBuffer(Call& call) {
  if (!call.buffer) call.buffer = device_.TakeBuffer(*this, call.index);
  if (!call.buffer) return counters_.waits_for_buffers.Add();
  OnBuffer(call.index, *call.buffer);
}

void ServerConnection::OnBuffer(uint32_t token, uint32_t buffer) {
  Call& call = *calls_[token];
  call.buffer = buffer;
  if (closed_) return;  // given back with the connection
  if (call.step == Call::Step::kFetch) {
    Fetch(call);
  } else {
    ReplyFromBuffer(call);
  }
}

// Puts the message together in the call's buffer (RFC 8166, section 3.4.5).
void ServerConnection::Fetch(Call& call) {
  const std::span<std::byte> buffer = device_.buffers().Slot(*call.buffer);
  call.batch.Clear();
  for (const CallPart& part : call.call_plan.parts) {
    const std::span<std::byte> to = buffer.subspan(part.to, part.length);
    switch (part.source) {
      case CallPart::Source::kPayload:
        std::memcpy(to.data(), call.payload.data() + part.from, part.length);
        break;
      case CallPart::Source::kZeros:
        std::memset(to.data(), 0, part.length);
        break;
      case CallPart::Source::kRead:
        call.batch.AddRead(device_.buffers().Sge(to), part.remote, part.handle);
        counters_.reads.Add();
        counters_.read_bytes.Add(part.length);
    }
  }
  if (call.batch.size() == 0) return Answer(call, buffer.first(call.call_plan.length));
  Post(call);
}

void ServerConnection::Answer(Call& call, std::span<const std::byte> message) {
  const uint32_t credits = std::clamp<uint32_t>(call.header.credits, 1, options_.credits);
  // RFC 8166, section 4.2.1.
  if (message.size() < 4 || LoadWord(message.data()) != call.header.xid) {
    counters_.wrong_xids.Add();
    return SendError(call, ChunkError(call.header.xid, credits));
  }
  counters_.calls.Add();
  call.reply = service_.Answer(message);
  if (call.reply.drop) return Close(CloseReason::kServiceDropped);
  const RpcReply& reply = call.reply;
  ReplyFault fault =
      PlanReply(call.header, reply.message.size(), {reply.bulk_offset, reply.bulk_length},
                send_bytes_, credits, call.reply_plan);
  if (reply.message.size() > options_.message_bytes) fault = ReplyFault::kTooLongForInline;
  if (fault != ReplyFault::kNone) {
    counters_.reply_faults[static_cast<size_t>(fault)].Add();
    return SendError(call, ChunkError(call.header.xid, credits));
  }
  call.step = Call::Step::kReply;
  if (call.reply_plan.writes.empty()) return ReplyInline(call);
  WantBuffer(call);
}

void ServerConnection::ReplyInline(Call& call) {
  call.batch.Clear();
  const std::span<std::byte> room = sends_->Slot(call.index);
  size_t length = EncodeHeader(call.reply_plan.header, room);
  for (const Range& range : call.reply_plan.payload) {
    std::memcpy(room.data() + length, call.reply.message.data() + range.offset, range.length);
    length += range.length;
  }
  const ibv_sge sge = sends_->Sge(room.first(length));
  AddSend(call, {&sge, 1});
  GiveBackReceive(call);
  Post(call);
}

// WRITEs first, so that their data is there when the SEND arrives (IBTA vol 1, 9.5: ordering).
void ServerConnection::ReplyFromBuffer(Call& call) {
  const std::span<std::byte> message =
      device_.buffers().Slot(*call.buffer).first(call.reply.message.size());
  std::memcpy(message.data(), call.reply.message.data(), message.size());
  // Many long messages at a time would make the allocator give memory back and fetch it again.
  call.reply = RpcReply();
  call.batch.Clear();
  AddWrites(call, message);
  AddReplySend(call, message);
  GiveBackReceive(call);
  Post(call);
}

void ServerConnection::AddWrites(Call& call, std::span<const std::byte> message) {
  for (const RemoteWrite& write : call.reply_plan.writes) {
    const std::span<const std::byte> from = message.subspan(write.from.offset, write.from.length);
    call.batch.AddWrite(device_.buffers().Sge(from), write.to, write.handle);
    counters_.writes.Add();
    counters_.write_bytes.Add(write.from.length);
  }
  const bool is_nomsg = call.reply_plan.header.procedure == Procedure::kNomsg;
  (is_nomsg ? counters_.reply_chunk_replies : counters_.write_chunk_replies).Add();
}

// The parts of the message are gathered from its buffer as far as the QP has elements, else pulled
// up behind the header.
void ServerConnection::AddReplySend(Call& call, std::span<const std::byte> message) {
  const std::span<std::byte> room = sends_->Slot(call.index);
  size_t length = EncodeHeader(call.reply_plan.header, room);
  const std::vector<Range>& payload = call.reply_plan.payload;
  ibv_sge sges[kReplySges];
  uint32_t count = 1;
  const bool gathers = payload.size() < max_sges_ && payload.size() < kReplySges;
  if (!gathers) counters_.pulled_up.Add();
  for (const Range& range : payload) {
    const std::span<const std::byte> from = message.subspan(range.offset, range.length);
    if (gathers) {
      sges[count++] = device_.buffers().Sge(from);
    } else {
      std::memcpy(room.data() + length, from.data(), from.size());
      length += from.size();
    }
  }
  sges[0] = sends_->Sge(room.first(length));
  AddSend(call, {sges, count});
}

void ServerConnection::AddSend(Call& call, std::span<const ibv_sge> sges) {
  const uint32_t key = may_invalidate_ ? KeyToInvalidate(call.header) : 0;
  call.batch.AddSend(sges, key);
  if (key != 0) counters_.invalidations.Add();
  counters_.replies.Add();
}

void ServerConnection::SendError(Call& call, const Header& header) {
  if (header.error == ErrorCode::kChunk) counters_.chunk_errors.Add();
  call.step = Call::Step::kReply;
  call.batch.Clear();
  const std::span<std::byte> room = sends_->Slot(call.index);
  const ibv_sge sge = sends_->Sge(room.first(EncodeHeader(header, room)));
  call.batch.AddSend({&sge, 1});
  GiveBackReceive(call);
  Post(call);
}

void ServerConnection::GiveBackReceive(Call& call) {
  if (!call.receive) return;
  PostReceive(*call.receive);
  call.receive.reset();
}

// Posts the call's batch, behind those that wait for room.
void ServerConnection::Post(Call& call) {
  if (call.batch.size() > room_->entries()) {
    counters_.oversized_batches.Add();
    // (An error is one request, so this ends.)
    return SendError(call, ChunkError(call.header.xid, options_.credits));
  }
  waiting_posts_.push_back(call.index);
  PostWaiting();
  if (!waiting_posts_.empty()) counters_.waits_for_send_queue.Add();
}

void ServerConnection::PostWaiting() {
  while (!waiting_posts_.empty() && !closed_) {
    Call& call = *calls_[waiting_posts_.front()];
    if (!room_->Reserve(call.batch.size())) return;
    waiting_posts_.pop_front();
    if (call.batch.Post(id_->qp, call.index) != 0) Close(CloseReason::kPostFailed);
  }
}

// Ends a call: its context and buffers serve the next one.
void ServerConnection::Discard(Call& call) {
  GiveBackReceive(call);
  call.reply = RpcReply();
  call.payload = {};
  if (call.buffer) {
    const uint32_t buffer = *call.buffer;
    call.buffer.reset();
    device_.PutBuffer(buffer);
  }
  free_calls_.push_back(call.index);
  if (waiting_receives_.empty() || closed_) return;
  const Received next = waiting_receives_.front();
  waiting_receives_.pop_front();
  OnReceive(next.slot, next.bytes);
}

}  // namespace rpcrdma
