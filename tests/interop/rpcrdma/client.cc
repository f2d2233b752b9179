#include "tests/interop/rpcrdma/client.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <random>
#include <system_error>

#include "tests/interop/rpcrdma/xdr_words.h"

namespace rpcrdma {
namespace {

uint64_t Now_ms() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

bool IsReadable(int fd) {
  pollfd entry = {fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

}  // namespace

Client::Client(const ClientOptions& options)
    : options_(options),
      channel_(rdma_create_event_channel()),
      requests_(options.slots),
      delay_(options.first_delay_ms, options.most_delay_ms),
      next_xid_(std::random_device()()) {
  if (channel_ == nullptr) ThrowErrno("rdma_create_event_channel");
  // The device must be known before memory can be registered.
  connection_ = std::make_unique<ClientConnection>(channel_.get(), options_);
  delay_.Next_ms();
  connect_until_ms_ = Now_ms() + options_.connect_limit_ms;
  while (device_ == nullptr && connection_ != nullptr) Progress(100);
  if (device_ != nullptr) return;
  errno = EHOSTUNREACH;
  ThrowErrno("resolution of " + options_.address);
}

Client::~Client() {
  Close();
  requests_.clear();
}

AllocationResult Client::Allocate(size_t call_bytes, size_t data_bytes, size_t reply_bytes,
                                  ClientRequest*& request) {
  request = nullptr;
  const auto free = std::find(requests_.begin(), requests_.end(), nullptr);
  const bool lacks_windows =
      options_.registration == Registration::kWindows && !device_->OffersWindows2B();
  if (closed_ || lacks_windows) return AllocationResult::kFailed;
  if (free == requests_.end()) return AllocationResult::kLater;
  const auto slot = static_cast<uint32_t>(free - requests_.begin());
  try {
    *free = std::make_unique<ClientRequest>(*device_, slot, call_bytes, data_bytes, reply_bytes,
                                            options_.registration);
  } catch (const std::system_error& error) {
    const int code = error.code().value();
    return code == ENOMEM || code == EAGAIN ? AllocationResult::kLater : AllocationResult::kFailed;
  }
  request = free->get();
  return AllocationResult::kAllocated;
}

void Client::Free(ClientRequest* request) { requests_[request->slot_].reset(); }

SendResult Client::Send(ClientRequest& request) {
  if (closed_) return SendResult::kFailed;
  if (!is_connected()) {
    CheckLimits();
    return SendResult::kNotConnected;
  }
  if (!again_.empty() || in_flight_ >= granted_) {
    ++counters_.waits_for_credit;
    return SendResult::kNoBuffers;
  }
  request.xid_ = next_xid_++;
  request.transmissions_ = 0;
  StoreWord(request.call().data(), request.xid_);
  return Transmit(request);
}

SendResult Client::Transmit(ClientRequest& request) {
  try {
    if (!request.Marshal(options_.slots, connection_->send_bytes(), connection_->receive_bytes(),
                         options_.segment_bytes, connection_->headers().Slot(request.slot_),
                         connection_->headers())) {
      return SendResult::kFailed;
    }
    if (!connection_->Post(request.batch_, kSend | request.slot_)) return SendResult::kNoBuffers;
  } catch (const std::system_error&) {
    broken_ = true;
    return SendResult::kNotConnected;
  }
  ++in_flight_;
  ++counters_.sent;
  ++request.transmissions_;
  request.status_ = CallStatus::kPending;
  request.sent_ms_ = Now_ms();
  request.waits_for_send_ = request.waits_for_reply_ = true;
  request.waits_for_fence_ = false;
  return SendResult::kSent;
}

// After a loss of the connection, in the order in which they were sent first.
void Client::SendAgain() {
  while (!again_.empty() && in_flight_ < granted_ && !broken_) {
    if (Transmit(*again_.front()) != SendResult::kSent) return;
    ++counters_.resent;
    again_.pop_front();
  }
}

void Client::Progress(int timeout_ms) {
  bool worked = PollCompletions();
  if (!worked && timeout_ms != 0) {
    Wait(UntilNextLimit_ms(timeout_ms));
    worked = PollCompletions();
  }
  HandleCmEvents();
  if (broken_) Lose();
  CheckLimits();
  if (is_connected()) SendAgain();
}

CallStatus Client::Call(ClientRequest& request, int timeout_ms) {
  const uint64_t until_ms = Now_ms() + static_cast<uint64_t>(timeout_ms);
  SendResult sent = Send(request);
  while (sent != SendResult::kSent) {
    if (sent == SendResult::kFailed || Now_ms() >= until_ms) return CallStatus::kIdle;
    Progress(static_cast<int>(until_ms - std::min(until_ms, Now_ms())));
    sent = Send(request);
  }
  while (request.status() == CallStatus::kPending && Now_ms() < until_ms) {
    Progress(static_cast<int>(until_ms - std::min(until_ms, Now_ms())));
  }
  return request.status();
}

// ---- Connections.

void Client::BeginConnecting() {
  connect_until_ms_ = Now_ms() + options_.connect_limit_ms;
  try {
    connection_ = std::make_unique<ClientConnection>(channel_.get(), options_);
  } catch (const std::system_error&) {
    ++counters_.failed_connects;
    connect_at_ms_ = Now_ms() + delay_.Next_ms();
  }
}

VerbsDevice& Client::DeviceOf(ibv_context* context) {
  if (device_ == nullptr) device_ = std::make_unique<VerbsDevice>(context);
  if (device_->context() == context) return *device_;
  // The requests' memory is registered with the first device.
  errno = EXDEV;
  ThrowErrno("the server is reached through another device");
}

void Client::HandleCmEvents() {
  while (IsReadable(channel_->fd)) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_.get(), &event) != 0) return;
    bool goes_on = true;
    if (connection_ != nullptr && event->id == connection_->id()) {
      try {
        goes_on = OnCmEvent(*event);
      } catch (const std::system_error&) {
        goes_on = false;
      }
    }
    // An identifier with an event that is not acknowledged cannot be destroyed.
    rdma_ack_cm_event(event);
    if (!goes_on) Lose();
  }
}

bool Client::OnCmEvent(const rdma_cm_event& event) {
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      connection_->CreateQueues(DeviceOf(connection_->context()));
      return true;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      connection_->Connect();
      return true;
    case RDMA_CM_EVENT_ESTABLISHED: {
      const rdma_conn_param& accepted = event.param.conn;
      connection_->Establish(DecodePrivateData(
          {static_cast<const std::byte*>(accepted.private_data), accepted.private_data_len}));
      ++counters_.connections;
      return true;
    }
    default:
      return false;
  }
}

// Every pending call is sent again on the next connection.
void Client::Lose() {
  broken_ = false;
  if (connection_ == nullptr) return;
  ++(is_connected() ? counters_.lost_connections : counters_.failed_connects);
  // Windows end before the QP to which they are bound.
  for (const auto& request : requests_) {
    if (request != nullptr) request->DropWindows();
  }
  connection_.reset();
  std::vector<ClientRequest*> pending;
  for (const auto& request : requests_) {
    if (request == nullptr || request->status_ != CallStatus::kPending) continue;
    request->waits_for_send_ = request->waits_for_fence_ = false;
    const bool is_waiting = std::find(again_.begin(), again_.end(), request.get()) != again_.end();
    if (is_waiting) continue;
    if (request->waits_for_reply_) {
      request->waits_for_reply_ = false;
      pending.push_back(request.get());
    } else {
      Finish(*request);  // only its fence was missing, which the end of the QP is
    }
  }
  std::sort(pending.begin(), pending.end(), [](const ClientRequest* a, const ClientRequest* b) {
    return a->sent_ms_ < b->sent_ms_;
  });
  again_.insert(again_.end(), pending.begin(), pending.end());
  in_flight_ = 0;
  granted_ = 1;
  connect_at_ms_ = Now_ms() + delay_.Next_ms();
}

void Client::Disconnect() { Lose(); }

void Client::Close() {
  closed_ = true;
  Lose();
  again_.clear();
  for (const auto& request : requests_) {
    if (request == nullptr || request->status_ != CallStatus::kPending) continue;
    request->status_ = CallStatus::kClosed;
    request->waits_for_reply_ = false;
  }
}

void Client::CheckLimits() {
  if (closed_) return;
  const uint64_t now_ms = Now_ms();
  if (connection_ == nullptr) {
    if (now_ms >= connect_at_ms_) BeginConnecting();
    return;
  }
  if (!is_connected()) {
    if (now_ms >= connect_until_ms_) Lose();
    return;
  }
  for (const auto& request : requests_) {
    if (request == nullptr || !request->waits_for_reply_) continue;
    if (now_ms - request->sent_ms_ < options_.call_limit_ms) continue;
    ++counters_.call_timeouts;
    return Lose();
  }
}

// ---- Completions.

bool Client::PollCompletions() {
  if (connection_ == nullptr || !connection_->has_queues()) return false;
  ibv_wc completions[ClientConnection::kCompletions];
  const int count = connection_->Poll(completions);
  if (count < 0) broken_ = true;
  try {
    for (int i = 0; i < count && !broken_; ++i) OnCompletion(completions[i]);
  } catch (const std::system_error&) {
    broken_ = true;
  }
  return count != 0;
}

void Client::OnCompletion(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) {
    broken_ = true;
    return;
  }
  const uint64_t kind = wc.wr_id & ~kSlotMask;
  if (kind == kReceive) return OnReply(wc);
  connection_->NoteBatchCompleted();
  ClientRequest& request = *requests_[wc.wr_id & kSlotMask];
  (kind == kSend ? request.waits_for_send_ : request.waits_for_fence_) = false;
  Finish(request);
}

ClientRequest* Client::FindPending(uint32_t xid) const {
  for (const auto& request : requests_) {
    if (request != nullptr && request->waits_for_reply_ && request->xid_ == xid) {
      return request.get();
    }
  }
  return nullptr;
}

void Client::OnReply(const ibv_wc& wc) {
  const uint64_t slot = wc.wr_id & kSlotMask;
  const std::span<const std::byte> message = connection_->Received(slot, wc.byte_len);
  Header header;
  size_t length = 0;
  const HeaderFault fault = DecodeHeader(message, {}, header, length);
  ClientRequest* const request =
      fault == HeaderFault::kShortFixedPart ? nullptr : FindPending(header.xid);
  if (request == nullptr) {
    ++counters_.unknown_replies;
    return connection_->PostReceive(slot);
  }
  if (wc.wc_flags & IBV_WC_WITH_INV) {
    ++counters_.remote_invalidations;
    request->NoteInvalidated(wc.invalidated_rkey);
  }
  if (fault == HeaderFault::kNone) {
    request->TakeReply(header, message.subspan(length));
  } else {
    request->result_ = CallStatus::kBadReply;
  }
  connection_->PostReceive(slot);
  // A grant of none would be the end of all calls (RFC 8166, section 3.3.1).
  granted_ = std::clamp<uint32_t>(header.credits, 1, options_.slots);
  delay_.Reset();
  ++counters_.replies;
  --in_flight_;
  request->waits_for_reply_ = false;
  // The server must not reach memory that the caller takes for its own.
  if (request->Revoke()) {
    request->waits_for_fence_ = true;
    ++counters_.local_invalidations;
    if (!connection_->Post(request->batch_, kFence | request->slot_)) broken_ = true;
  }
  Finish(*request);
}

void Client::Finish(ClientRequest& request) {
  if (request.waits_for_reply_ || request.waits_for_send_ || request.waits_for_fence_) return;
  request.status_ = request.result_;
  if (request.status_ == CallStatus::kBadReply) ++counters_.bad_replies;
  if (request.status_ == CallStatus::kRemoteError) ++counters_.remote_errors;
}

void Client::Wait(int timeout_ms) {
  pollfd entries[2] = {{channel_->fd, POLLIN, 0}, {-1, POLLIN, 0}};
  if (connection_ != nullptr && connection_->has_queues()) {
    try {
      connection_->Arm();
    } catch (const std::system_error&) {
      broken_ = true;
      return;
    }
    if (PollCompletions()) return;
    entries[1].fd = device_->channel()->fd;
  }
  poll(entries, 2, timeout_ms);
  if (entries[1].fd < 0 || (entries[1].revents & POLLIN) == 0) return;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(device_->channel(), &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
}

// Until something has a limit in time, at most `timeout_ms`.
int Client::UntilNextLimit_ms(int timeout_ms) const {
  const uint64_t now_ms = Now_ms();
  uint64_t until_ms = now_ms + static_cast<uint64_t>(timeout_ms);
  if (connection_ == nullptr) {
    if (!closed_) until_ms = std::min(until_ms, connect_at_ms_);
  } else if (!is_connected()) {
    until_ms = std::min(until_ms, connect_until_ms_);
  } else {
    for (const auto& request : requests_) {
      if (request == nullptr || !request->waits_for_reply_) continue;
      until_ms = std::min(until_ms, request->sent_ms_ + options_.call_limit_ms);
    }
  }
  return static_cast<int>(until_ms - std::min(until_ms, now_ms));
}

}  // namespace rpcrdma
