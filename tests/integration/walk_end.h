// One queue pair of the random walk, with its memory and its expected completions.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace roci::testing {

/// An open device of the walk.
struct WalkDevice {
  ibv_context* context = nullptr;
  ibv_gid gid = {};
  uint8_t gid_index = 0;
};

/// A request that was posted and has not completed.
struct WalkRequest {
  uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  uint32_t slot = 0;
  uint32_t length = 0;
  bool signaled = true;
  bool must_fail = false;  // key or range is invalid, and the length is not 0
  uint32_t key = 0;        // key that the request binds or invalidates
};

struct WalkSrq;

/// A QP. Its memory has kSlots slots each for data that it sends, that the peer WRITEs, that it
/// READs, and that it receives. Requests use all but the last slot round robin, so that data is
/// compared before it is overwritten. The last slots are constant: data that peers READ (kSource)
/// and the counter for their atomics (kRead).
class WalkEnd {
 public:
  static constexpr uint32_t kSlots = 16;
  static constexpr uint32_t kLastSlot = kSlots - 1;
  static constexpr uint32_t kSlotBytes = 8192;
  static constexpr uint32_t kMaxSges = 2;
  enum class Area : uint32_t { kSource = 0, kWritten = 1, kRead = 2, kReceived = 3 };

  WalkEnd() = default;
  ~WalkEnd();
  WalkEnd(const WalkEnd&) = delete;
  WalkEnd& operator=(const WalkEnd&) = delete;

  uint8_t* At(Area area, uint32_t slot) {
    return memory + (static_cast<uint32_t>(area) * kSlots + slot) * size_t{kSlotBytes};
  }
  uint64_t Address(Area area, uint32_t slot) { return reinterpret_cast<uintptr_t>(At(area, slot)); }
  bool AllocateMemory();
  /// 0 or an errno.
  int ToInit();
  int ToRtr(const WalkEnd& to);
  int ToRts();
  int ToState(ibv_qp_state state);
  ibv_qp_state QueryState() const;
  int PostRecv(uint64_t wr_id, uint32_t slot);
  /// In its domain, of its type.
  bool Create(ibv_qp_init_attr& init, bool extended);
  /// A request by the calls of an extended queue pair: between ibv_wr_start and ibv_wr_complete,
  /// or with them.
  void PutExtended(const ibv_send_wr& wr);
  int PostExtended(const ibv_send_wr& wr);
  void Forget();
  bool is_xrc() const { return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV; }
  /// True: requests arrive or fail.
  bool is_reliable() const { return type == IBV_QPT_RC || is_xrc(); }

  WalkDevice* device = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_qp_ex* qpx = nullptr;  // the same, where it is an extended one
  uint32_t max_inline = 0;
  ibv_mr* mr = nullptr;
  ibv_qp_type type = IBV_QPT_RC;
  uint8_t* memory = nullptr;
  WalkSrq* srq = nullptr;   // null: it has a receive queue
  ibv_ah* ah = nullptr;     // UD: of the peer
  WalkEnd* peer = nullptr;  // null: not connected
  bool disturbed = false;   // its requests may fail from now on
  bool failed = false;      // a send has failed: only flushes may follow
  bool flushing = false;    // it was moved to ERR: every request must complete
  bool drained = false;     // IBV_EVENT_QP_LAST_WQE_REACHED was received
  uint32_t psn = 0;         // first of the connection, of this side
  uint64_t atomics = 0;     // executed on the peer's counter
  uint32_t next_slot = 0;
  uint32_t next_recv = 0;
  std::deque<WalkRequest> sends;
  std::deque<WalkRequest> recvs;
  std::deque<WalkRequest> incoming;  // the peer's SENDs without a receive completion yet

  /// A window on all of its memory, for the peer.
  enum class Window { kNone, kBinding, kBound, kEnding };
  Window window = Window::kNone;
  ibv_mw* mw = nullptr;
  uint32_t window_key = 0;  // kBinding, kBound, kEnding
  uint32_t old_key = 0;     // of the last invalidated window
};

/// Fills `length` bytes with a pattern that CheckPayload verifies.
void FillPayload(uint8_t* data, uint32_t length, uint64_t seed);
bool CheckPayload(const uint8_t* data, uint32_t length);

}  // namespace roci::testing
