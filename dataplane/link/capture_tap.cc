#include "dataplane/link/capture_tap.h"

#include <rte_mbuf.h>
#include <rte_ring.h>

#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "dataplane/base/frame_pool.h"
#include "dataplane/link/frame_filter.h"

namespace roci::dataplane {
namespace {

// Metadata of a copied frame, in its headroom.
struct Note {
  uint64_t time_ns;
  uint32_t original_length;
  LinkDirection direction;
};
static_assert(sizeof(Note) <= RTE_PKTMBUF_HEADROOM);

Note NoteOf(const rte_mbuf* frame) {
  Note note;
  std::memcpy(&note, frame->buf_addr, sizeof(note));
  return note;
}

bool IsGroup(const rte_mbuf* frame) { return (*rte_pktmbuf_mtod(frame, const uint8_t*) & 1) != 0; }

}  // namespace

CaptureTap::CaptureTap(const CaptureSettings& settings) : settings_(settings) {}

absl::StatusOr<std::unique_ptr<CaptureTap>> CaptureTap::Create(uint32_t lcores,
                                                               const CaptureSettings& settings) {
  static std::atomic<uint32_t> serial{0};
  std::unique_ptr<CaptureTap> tap(new CaptureTap(settings));
  absl::StatusOr<std::unique_ptr<FramePool>> pool = FramePool::Create(kMaxWaiting);
  if (!pool.ok()) return pool.status();
  tap->pool_ = *std::move(pool);
  tap->lcores_ = lcores;
  for (uint32_t i = 0; i < lcores; ++i) {
    const std::string name = absl::StrCat("roci_c", serial.fetch_add(1));
    tap->lanes_[i].ring =
        rte_ring_create(name.c_str(), kMaxWaiting, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
    if (tap->lanes_[i].ring == nullptr) return absl::ResourceExhaustedError("ring of a capture");
  }
  return tap;
}

CaptureTap::~CaptureTap() {
  Free(handed_out_);
  for (Lane& lane : lanes_) {
    Free(lane.oldest);
    void* frame;
    while (lane.ring != nullptr && rte_ring_dequeue(lane.ring, &frame) == 0) {
      Free(static_cast<rte_mbuf*>(frame));
    }
    rte_ring_free(lane.ring);
  }
}

void CaptureTap::Free(rte_mbuf* frame) {
  if (frame != nullptr) rte_pktmbuf_free(frame);
}

void CaptureTap::Take(uint32_t lcore, rte_mbuf* const* frames, uint32_t count,
                      LinkDirection direction, uint64_t now_ns) {
  if (direction == LinkDirection::kIn ? !settings_.in : !settings_.out) return;
  Lane& lane = lanes_[lcore];
  for (uint32_t i = 0; i < count; ++i) {
    const rte_mbuf* frame = frames[i];
    // On the built-in wire every lcore receives a copy of a multicast frame. Lcore 0 captures it.
    if (lcore != 0 && direction == LinkDirection::kIn && IsGroup(frame)) continue;
    if (!Matches(settings_.filter, {rte_pktmbuf_mtod(frame, const std::byte*), frame->data_len})) {
      continue;
    }
    rte_mbuf* copy = rte_pktmbuf_copy(frame, pool_->mempool(), 0, settings_.snap_length);
    if (copy == nullptr) {
      lane.dropped.Add(1);
      continue;
    }
    const Note note{now_ns, frame->pkt_len, direction};
    std::memcpy(copy->buf_addr, &note, sizeof(note));
    if (rte_ring_sp_enqueue(lane.ring, copy) != 0) {
      rte_pktmbuf_free(copy);
      lane.dropped.Add(1);
    }
  }
}

bool CaptureTap::HasRoom(uint32_t lcore) const {
  return rte_ring_count(lanes_[lcore].ring) < kMaxWaiting / 2;
}

bool CaptureTap::Next(CapturedFrame& out) {
  Free(handed_out_);
  handed_out_ = nullptr;
  Lane* first = nullptr;
  for (uint32_t i = 0; i < lcores_; ++i) {
    Lane& lane = lanes_[i];
    void* taken;
    if (lane.oldest == nullptr && rte_ring_sc_dequeue(lane.ring, &taken) == 0) {
      lane.oldest = static_cast<rte_mbuf*>(taken);
    }
    if (lane.oldest == nullptr) continue;
    if (first == nullptr || NoteOf(lane.oldest).time_ns < NoteOf(first->oldest).time_ns) {
      first = &lane;
    }
  }
  if (first == nullptr) return false;
  handed_out_ = first->oldest;
  first->oldest = nullptr;
  const Note note = NoteOf(handed_out_);
  gathered_.resize(handed_out_->pkt_len);
  const auto* bytes = static_cast<const std::byte*>(
      rte_pktmbuf_read(handed_out_, 0, handed_out_->pkt_len, gathered_.data()));
  out = {note.direction, note.time_ns, note.original_length, {bytes, handed_out_->pkt_len}};
  return true;
}

uint64_t CaptureTap::dropped() const {
  uint64_t sum = 0;
  for (const Lane& lane : lanes_) sum += lane.dropped.value();
  return sum;
}

}  // namespace roci::dataplane
