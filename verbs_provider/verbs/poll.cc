// Polling completion queues.
#include "verbs_provider/verbs/poll.h"

#include "verbs_provider/rings/give_way.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

// On a machine with few processors a thread that spins on an empty CQ starves the daemon.
constexpr uint32_t kEmptyPollsBeforeYield = 8;
constexpr uint32_t kEmptyPollsPerPeerCheck = 1024;  // power of two

// Consecutive empty polls of this thread, on any CQ.
thread_local uint32_t empty_polls = 0;

}  // namespace

int PollEmpty(VerbsSession* session) {
  if (!session->alive()) [[unlikely]] {
    return -EIO;
  }
  if (session->counts_polls) [[unlikely]] {
    session->bells.CountEmptyPoll();
  }
  const uint32_t tries = ++empty_polls;
  if (tries <= kEmptyPollsBeforeYield) return 0;
  if ((tries & (kEmptyPollsPerPeerCheck - 1)) == 0 && !session->client.CheckPeer()) return -EIO;
  if (tries == kEmptyPollsBeforeYield + 1) BeginWaiting();
  GiveWay(session->bells);
  return 0;
}

void NotePolled() { empty_polls = 0; }

int PollCq(ibv_cq* ibcq, int count, ibv_wc* wc) {
  Cq* cq = ToCq(ibcq);
  VerbsSession* session = cq->session;
  int polled = 0;
  if (session->inherited()) [[unlikely]] {
    return -EIO;
  }
  cq->lock.Lock();
  uint32_t consumer = cq->ring.consumer;
  while (polled < count) {
    const roci_abi_cqe* entry = cq->ring.At(consumer);
    if (entry == nullptr) break;
    ++consumer;
    if (entry->status == kSkippedStatus) [[unlikely]] {
      continue;
    }
    FillCompletion(*entry, &wc[polled]);
    if ((entry->flags & ROCI_ABI_CQE_GRH) != 0) wc[polled].sl = entry->datagram.header;
    ++polled;
    FreeWork(session, *entry);
  }
  if (consumer != cq->ring.consumer) cq->ring.PublishConsumer(consumer);
  cq->lock.Unlock();
  if (polled == 0) return PollEmpty(session);
  empty_polls = 0;
  return polled;
}

}  // namespace roci::provider
