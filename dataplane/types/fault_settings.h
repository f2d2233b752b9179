// An exact fault of packets: which ones it concerns, and what it does to them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dataplane/types/fault_occasions.h"
#include "dataplane/types/frame_filter.h"
#include "dataplane/types/impairment_settings.h"
#include "dataplane/types/queue_pair_match.h"
#include "roce/packet_fields.h"

namespace roci::dataplane {

// A fault hits RoCE packets only. All conditions must hold.
struct FaultMatch {
  LinkDirection direction = LinkDirection::kOut;
  FrameFilter filter;
  // The PSN of the packet; with `psn_from_first` counted from the first packet to the same queue
  // pair, of the same kind (request or response), that the fault has seen.
  std::optional<uint32_t> psn;
  bool psn_from_first = false;
  // With `psn`: only when a packet with this PSN passes for the n-th time. 0: every time.
  uint64_t pass = 0;
  // The communication manager's messages with this attribute ID (IBTA vol 1, 16.7.3); 0: any
  // packet.
  uint16_t cm_message = 0;
  // The device's queue pair: the sender of outgoing packets, the receiver of incoming ones.
  QueuePairMatch queue_pair;
  // The address at the other end of the packet's way.
  std::optional<roce::Gid> peer;
  // Of the packets for which all of this holds.
  FaultOccasions when;
};

struct FieldChange {
  const roce::PacketField* field = nullptr;
  bool adds = false;  // to the value; otherwise replaces it
  uint64_t value = 0;
};

enum class PacketPart : uint8_t { kHeaders, kPayload, kIcrc };

struct BitFlip {
  PacketPart part = PacketPart::kHeaders;  // from the BTH on
  uint32_t bit = 0;                        // from the part's most significant bit on
};

// A frame that is sent in addition to the packet that is hit, in front of it.
struct Injection {
  enum class Kind : uint8_t {
    kNone,
    kCnp,    // to the sender of a request, or where a response goes
    kNak,    // likewise, with `syndrome` and the packet's PSN
    kStale,  // the first packet that the fault has matched, again
    kMad,    // a datagram with `bytes` to the sender of the packet, which is one to QP 1
    kFrame,  // `bytes` in the direction of the fault, as they are
  };
  // Bytes of the packet's MAD that the injected one repeats.
  struct Copy {
    uint16_t from = 0;
    uint16_t to = 0;
    uint16_t bytes = 0;
  };

  static constexpr size_t kMostBytes = 4352;  // what a frame buffer holds

  Kind kind = Kind::kNone;
  uint8_t syndrome = 0;
  std::vector<std::byte> bytes;
  std::array<Copy, 4> copies{};
  // The name in the request, shown by lists: "nak_access", "rej".
  std::string_view name;
  uint16_t reason = 0;  // of "rej"
};

struct FaultActions {
  static constexpr size_t kMostChanges = 16;
  static constexpr uint32_t kMostCopies = 16;
  static constexpr uint32_t kMostOvertaking = 1024;
  static constexpr uint32_t kMostCutBytes = 65536;

  bool drops = false;
  uint64_t delay_ns = 0;
  // Packets of the same direction that go first. Such a packet is not delayed itself: the delays of
  // those that overtake it count.
  uint32_t overtaken_by = 0;
  uint32_t copies = 0;     // duplicates
  uint32_t cut_bytes = 0;  // off the end of the frame
  bool marks_ecn = false;
  std::vector<FieldChange> changes;
  std::vector<BitFlip> flips;
  bool fixes_icrc = false;  // after changes and flips
  // With it, `marks_ecn`, `changes` and `flips` concern the injected frame.
  Injection injection;

  bool DoSomething() const {
    return drops || delay_ns != 0 || overtaken_by != 0 || copies != 0 || cut_bytes != 0 ||
           marks_ecn || !changes.empty() || !flips.empty() ||
           injection.kind != Injection::Kind::kNone;
  }
};

struct FaultSettings {
  FaultMatch match;
  FaultActions actions;
};

// X(member, name)
#define ROCI_FAULT_COUNTERS(X)                                                                    \
  /* Packets for which all but `nth`, `every`, `chance` and `times` held */                       \
  X(matched, "matched")                                                                           \
  X(hit, "hit")                                                                                   \
  /* Parts of actions without effect: no such field or bit in the packet, or no frame to inject   \
     can be made from it; no room, or no memory, for a frame: one to be overtaken passes at once, \
     one to be delayed, copies and injected ones are lost */                                      \
  X(not_there, "not_there")                                                                       \
  X(no_room, "no_room")                                                                           \
  /* Packets of more queue pairs than a fault with a PSN distinguishes, and received ones whose   \
     queue pair another lcore knows, for a fault of certain programs; they pass */                \
  X(untracked, "untracked")

struct FaultSnapshot {
#define ROCI_FAULT_VALUE(member, name) uint64_t member = 0;
  ROCI_FAULT_COUNTERS(ROCI_FAULT_VALUE)
#undef ROCI_FAULT_VALUE
};

}  // namespace roci::dataplane
