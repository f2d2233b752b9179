#include "tests/integration/walker.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace roci::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kGrhBytes = 40;
constexpr std::chrono::seconds kPatience{60};

}  // namespace

const Walker::Operation Walker::kOperations[] = {
    {30, &Walker::PostGood},      {20, &Walker::PostRecvs},   {25, &Walker::PollAny},
    {3, &Walker::MakeDomain},     {2, &Walker::DropDomain},   {3, &Walker::MakeQueue},
    {2, &Walker::DropQueue},      {1, &Walker::ResizeQueue},  {4, &Walker::NotifyQueue},
    {3, &Walker::MakeRegion},     {2, &Walker::ChangeRegion}, {2, &Walker::DropRegion},
    {2, &Walker::MakeHandle},     {2, &Walker::DropHandle},   {3, &Walker::MakePair},
    {2, &Walker::ConnectAnyPair}, {1, &Walker::DropEnd},      {1, &Walker::FailEnd},
    {1, &Walker::ResetEnd},       {1, &Walker::LoseMemory},   {1, &Walker::PostBad},
    {2, &Walker::QueryAll},       {2, &Walker::Settle},       {2, &Walker::MakeSrq},
    {1, &Walker::DropSrq},        {1, &Walker::ChangeSrq},    {10, &Walker::PostShared},
    {2, &Walker::MakeXrcPair},    {4, &Walker::ReadEvents},   {20, &Walker::BindWindow},
    {14, &Walker::EndWindow},     {1, &Walker::PostStale},    {2, &Walker::PostNothing},
};

Walker::Walker(uint64_t seed) : seed_(seed), random_(seed) {
  Open(&devices_[0], "roci0");
  Open(&devices_[1], "roci1");
}

void Walker::Fail(const char* format, ...) {
  const int error = errno;
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  fprintf(stderr, "random walk: seed %lu, step %lu: %s (errno %d)\n", seed_, steps_, text, error);
  _exit(1);
}

void Walker::Run(double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) Step();
  Settle();
  // Otherwise the daemon cleans up after the process.
  if (random_.Chance(500)) CleanUp();
}

void Walker::Step() {
  uint32_t total = 0;
  for (const Operation& operation : kOperations) total += operation.weight;
  uint64_t choice = random_.Below(total);
  for (const Operation& operation : kOperations) {
    if (choice < operation.weight) {
      ++steps_;
      (this->*operation.run)();
      return;
    }
    choice -= operation.weight;
  }
}

WalkEnd* Walker::FindEnd(const Queue& queue, uint32_t qpn) {
  for (const auto& end : ends_) {
    if (end->cq == queue.cq && end->qp->qp_num == qpn) return end.get();
  }
  return nullptr;
}

int Walker::Poll(Queue& queue, int count) {
  ibv_wc wcs[16];
  count = std::min(count, 16);
  const bool extended = queue.extended != nullptr && random_.Chance(600);
  const int polled = extended ? PollExtended(queue, count, wcs) : ibv_poll_cq(queue.cq, count, wcs);
  Expect(polled >= 0, "ibv_poll_cq");
  for (int i = 0; i < polled; ++i) Complete(queue, wcs[i]);
  return polled;
}

// Completions are checked after the poll, which locks the CQ.
int Walker::PollExtended(Queue& queue, int count, ibv_wc* wcs) {
  ibv_cq_ex* cq = queue.extended;
  ibv_poll_cq_attr attr = {};
  int result = ibv_start_poll(cq, &attr);
  if (result == ENOENT) return 0;
  Expect(result == 0, "ibv_start_poll");
  int polled = 0;
  bool in_order = true;
  while (result == 0) {
    ibv_wc& wc = wcs[polled++];
    wc.wr_id = cq->wr_id;
    wc.status = cq->status;
    wc.opcode = ibv_wc_read_opcode(cq);
    wc.byte_len = ibv_wc_read_byte_len(cq);
    wc.qp_num = ibv_wc_read_qp_num(cq);
    wc.wc_flags = ibv_wc_read_wc_flags(cq);
    wc.imm_data = ibv_wc_read_imm_data(cq);
    const uint64_t stamp_ns = ibv_wc_read_completion_ts(cq);
    in_order &= stamp_ns >= queue.last_ns;
    queue.last_ns = stamp_ns;
    if (polled == count) break;
    result = ibv_next_poll(cq);
  }
  ibv_end_poll(cq);
  Expect(result == 0 || result == ENOENT, "ibv_next_poll");
  Expect(in_order && queue.last_ns != 0, "the times of completions");
  extended_ += static_cast<uint64_t>(polled);
  return polled;
}

void Walker::PollAny() {
  Queue* queue = Any(queues_);
  if (queue == nullptr) return;
  Poll(*queue, 1 + static_cast<int>(random_.Below(16)));
  if (queue->channel == nullptr) return;
  pollfd fd = {queue->channel->fd, POLLIN, 0};
  if (::poll(&fd, 1, 0) != 1) return;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  Expect(ibv_get_cq_event(queue->channel, &cq, &context) == 0, "ibv_get_cq_event");
  Expect(cq == queue->cq, "the CQ of an event");
  ibv_ack_cq_events(cq, 1);
}

void Walker::Complete(Queue& queue, const ibv_wc& wc) {
  ++completions_;
  WalkEnd* end = FindEnd(queue, static_cast<uint32_t>(wc.qp_num));
  if (end == nullptr) {
    WalkSrq* srq = SharedOf(queue, wc);
    if (srq == nullptr) Fail("a completion of QP %u, which is gone", wc.qp_num);
    srq->Take(wc.wr_id);
  } else if ((wc.wr_id & 1) != 0) {
    CompleteRecv(*end, wc);
  } else {
    CompleteSend(*end, wc);
  }
}

void Walker::CompleteSend(WalkEnd& end, const ibv_wc& wc) {
  for (;;) {
    if (end.sends.empty()) Fail("request %lu completes twice or was never posted", wc.wr_id);
    const WalkRequest request = end.sends.front();
    end.sends.pop_front();
    const bool is_this = request.wr_id == wc.wr_id;
    if (!is_this && (request.signaled || end.failed)) {
      Fail("request %lu completes before %lu", wc.wr_id, request.wr_id);
    }
    if (!is_this || wc.status == IBV_WC_SUCCESS) {
      if (request.must_fail) Fail("request %lu succeeds with a bad key", request.wr_id);
      CompleteWindowWork(end, request);
      CheckDone(end, request);
    }
    if (is_this) break;
  }
  if (wc.status == IBV_WC_SUCCESS) {
    Expect(!end.failed, "a success after an error");
    return;
  }
  if (!end.disturbed) {
    Fail("request %lu of QP %u (type %d) fails: %s", wc.wr_id, end.qp->qp_num, end.type,
         ibv_wc_status_str(wc.status));
  }
  if (end.failed && wc.status != IBV_WC_WR_FLUSH_ERR) {
    Fail("a second error: %s", ibv_wc_status_str(wc.status));
  }
  end.failed = true;
  Disturb(&end);
}

// Handles a successful send, completed by its own or a later completion.
void Walker::CheckDone(WalkEnd& end, const WalkRequest& request) {
  using Area = WalkEnd::Area;
  if (!end.is_reliable() || end.peer == nullptr) return;
  switch (request.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      Expect(memcmp(end.At(Area::kSource, request.slot), end.peer->At(Area::kWritten, request.slot),
                    request.length) == 0,
             "data of a WRITE");
      break;
    case IBV_WR_RDMA_READ:
      Expect(memcmp(end.At(Area::kRead, request.slot),
                    end.peer->At(Area::kSource, WalkEnd::kLastSlot), request.length) == 0,
             "data of a READ");
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: {
      uint64_t before = 0;
      memcpy(&before, end.At(Area::kRead, request.slot), sizeof(before));
      Expect(before == end.atomics, "the value before an atomic");
      ++end.atomics;
      break;
    }
    default:
      break;
  }
}

void Walker::CompleteRecv(WalkEnd& end, const ibv_wc& wc) {
  const uint8_t* data = nullptr;
  if (end.srq != nullptr) {
    data = end.srq->Take(wc.wr_id);
    ++shared_;
    if (data == nullptr) Fail("shared receive %lu completes twice or was never posted", wc.wr_id);
  } else {
    if (end.recvs.empty() || end.recvs.front().wr_id != wc.wr_id) {
      Fail("receive %lu completes out of order", wc.wr_id);
    }
    data = end.At(WalkEnd::Area::kReceived, end.recvs.front().slot);
    end.recvs.pop_front();
  }
  if (wc.status != IBV_WC_SUCCESS) {
    if (!end.disturbed) {
      Fail("receive %lu of QP %u (type %d) fails: %s", wc.wr_id, end.qp->qp_num, end.type,
           ibv_wc_status_str(wc.status));
    }
    return;
  }
  const bool has_data = wc.opcode == IBV_WC_RECV;
  Expect(has_data || wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM, "the opcode of a receive");
  const uint32_t header = end.type == IBV_QPT_UD ? kGrhBytes : 0;
  Expect(wc.byte_len >= header && wc.byte_len <= WalkEnd::kSlotBytes, "the length of a receive");
  if (has_data) {
    Expect(CheckPayload(data + header, wc.byte_len - header), "data of a receive");
  }
  CheckMessage(end, wc);
}

void Walker::CheckMessage(WalkEnd& end, const ibv_wc& wc) {
  if (end.incoming.empty()) return;
  const WalkRequest sent = end.incoming.front();
  end.incoming.pop_front();
  if (end.disturbed || !end.is_reliable()) return;
  Expect(wc.byte_len == sent.length, "the length of a message");
  if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) {
    Expect(wc.imm_data == static_cast<uint32_t>(sent.wr_id), "immediate data");
  } else if (sent.opcode == IBV_WR_SEND_WITH_INV) {
    Expect((wc.wc_flags & IBV_WC_WITH_INV) != 0 && wc.invalidated_rkey == sent.key,
           "the key that a message takes away");
  } else {
    Expect(sent.opcode == IBV_WR_SEND, "a message without its immediate data");
  }
}

void Walker::QueryAll() {
  for (const auto& end : ends_) {
    const ibv_qp_state state = end->QueryState();
    Expect(state != IBV_QPS_UNKNOWN, "ibv_query_qp");
    if (end->flushing) Expect(state == IBV_QPS_ERR, "a QP in ERR stays there");
    if (end->peer != nullptr && !end->disturbed) Expect(state == IBV_QPS_RTS, "a QP in RTS");
  }
  for (WalkDevice& device : devices_) {
    ibv_device_attr attr;
    ibv_port_attr port;
    Expect(ibv_query_device(device.context, &attr) == 0, "ibv_query_device");
    Expect(ibv_query_port(device.context, 1, &port) == 0, "ibv_query_port");
  }
}

bool Walker::Owes(const WalkEnd& end) const {
  // After an error every request completes, signaled or not.
  if (end.failed && !end.sends.empty()) return true;
  if (end.flushing && !end.recvs.empty()) return true;
  if (!end.flushing && (end.peer == nullptr || end.disturbed)) return false;
  for (const WalkRequest& request : end.sends) {
    if (request.signaled) return true;
  }
  return !end.flushing && end.is_reliable() && !end.incoming.empty();
}

void Walker::Settle() {
  const auto deadline = Clock::now() + kPatience;
  for (;;) {
    int polled = 0;
    for (const auto& queue : queues_) polled += Poll(*queue, 16);
    for (const auto& srq : srqs_) Refill(srq.get(), 4);
    const WalkEnd* owing = nullptr;
    for (const auto& end : ends_) owing = Owes(*end) ? end.get() : owing;
    if (owing == nullptr) return;
    if (polled == 0 && Clock::now() > deadline) {
      Fail("QP %u (type %d, state %d%s%s) owes %zu sends, %zu receives, %zu messages",
           owing->qp->qp_num, owing->type, owing->QueryState(),
           owing->disturbed ? ", disturbed" : "", owing->failed ? ", failed" : "",
           owing->sends.size(), owing->recvs.size(), owing->incoming.size());
    }
  }
}

}  // namespace roci::testing
