// Tag matching for a reliable queue pair: finds the tagged buffers of messages, turns rendezvous
// requests into RDMA READs and final notes, writes tagged completions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/prefetch.h"
#include "dataplane/qp/tag_queue.h"
#include "dataplane/rings/work_queue.h"
#include "memory/segment.h"
#include "memory/types.h"
#include "roce/packet.h"
#include "roce/tag_header.h"
#include "roce/work.h"

namespace roci::dataplane {

class QueuePairHost;
class SharedReceiveQueue;

// One per queue pair of a tag-matching receive queue, on its lcore. It owns the send queue of that
// queue pair; the program cannot post to it. The shared receive queue outlives it.
class TagReceiver {
 public:
  // Limit of concurrent rendezvous; beyond it senders get an RNR NAK.
  static constexpr uint32_t kMaxRendezvous = 16;
  static constexpr uint32_t kSendEntries = 2 * kMaxRendezvous;

  explicit TagReceiver(SharedReceiveQueue& srq) : srq_(srq) {}
  TagReceiver(const TagReceiver&) = delete;
  TagReceiver& operator=(const TagReceiver&) = delete;

  SendQueue MakeSendQueue();

  // The host's calls of the same names, for this queue pair. `packet` as QpHost says.
  roce::FetchResult FetchRecv(QueuePairHost& host, const roce::Packet* packet, roce::RecvWqe& out,
                              roce::CompletionStatus& bad_status);
  // Whether `wqe` is a tagged buffer rather than an entry of the shared receive queue.
  static bool IsTagged(const roce::RecvWqe& wqe) { return wqe.num_sge == kTagged; }
  memory::MemoryStatus ScatterRecv(QueuePairHost& host, const roce::RecvWqe& wqe, uint32_t offset,
                                   uint32_t length, memory::SegmentList& out);
  void CompleteRecv(QueuePairHost& host, const roce::Completion& completion);
  void CompleteSend(QueuePairHost& host, const roce::Completion& completion);

  // The queue pair is reset or destroyed: tagged buffers of the current message and of rendezvous
  // complete as flushed. True: the message had taken a WQE from the shared receive queue, which the
  // caller gives back.
  bool Abandon(QueuePairHost& host);

 private:
  // More SGEs than any WQE has.
  static constexpr uint8_t kTagged = 0xFF;
  static_assert(kTagged > ROCI_ABI_MAX_SGE);
  static constexpr uint32_t kStride =
      sizeof(roci_abi_send_wqe) + ROCI_ABI_MAX_TAG_SGE * sizeof(roci_abi_sge);

  // The current message.
  enum class Kind : uint8_t {
    kNone,
    kPlain,       // no tag header
    kNoTag,       // a tag header that says "no tag"
    kUnexpected,  // matches no buffer
    kEager,
    kRendezvous,
    kTooShort,  // a rendezvous for which the tagged buffer is too short
  };

  Kind Classify(const roce::Packet* packet);
  roce::FetchResult FetchUntagged(QueuePairHost& host, Kind kind, roce::RecvWqe& out,
                                  roce::CompletionStatus& bad_status);
  void TakeBuffer(const TaggedBuffer& buffer, bool is_last, QueuePairHost& host,
                  roce::RecvWqe& out);
  bool HasRoom() const { return begun_ - noted_ < kMaxRendezvous; }
  void BeginRendezvous(QueuePairHost& host);
  std::byte* NextSlot();
  uint8_t TrimElements(const QueuePairHost& host, uint32_t length, roci_abi_sge* out) const;
  void CompleteTagged(QueuePairHost& host, const roce::Completion& completion);
  void CompleteData(QueuePairHost& host, uint64_t wr_id, uint32_t bytes,
                    roce::CompletionStatus status);
  void WriteTagged(QueuePairHost& host, roci_abi_cqe entry, bool solicited);

  SharedReceiveQueue& srq_;
  Kind kind_ = Kind::kNone;
  bool reported_match_ = false;  // of a message of several packets
  uint32_t slot_ = 0;            // of the tagged buffer
  roce::TagHeader header_;
  roce::RendezvousHeader rendezvous_;
  std::array<std::byte, ROCI_ABI_MAX_RNDV_HEADER> sink_{};  // for bytes that are dropped

  // READs complete in order. The three counters run freely.
  uint32_t begun_ = 0;  // rendezvous started
  uint32_t read_ = 0;   // READs done
  uint32_t noted_ = 0;  // final notes done
  std::array<uint64_t, kMaxRendezvous> wr_ids_{};

  alignas(kCacheLineBytes) roci_abi_queue queue_{};
  alignas(kCacheLineBytes) std::array<std::byte, size_t{kSendEntries} * kStride> slots_{};
};

}  // namespace roci::dataplane
