// An exact fault of packets: which ones it concerns, and what it does to them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dataplane/types/fault_occasions.h"
#include "dataplane/types/frame_filter.h"
#include "dataplane/types/impairment_settings.h"
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

  bool DoSomething() const {
    return drops || delay_ns != 0 || overtaken_by != 0 || copies != 0 || cut_bytes != 0 ||
           marks_ecn || !changes.empty() || !flips.empty();
  }
};

struct FaultSettings {
  FaultMatch match;
  FaultActions actions;
};

// X(member, name)
#define ROCI_FAULT_COUNTERS(X)                                                                   \
  /* Packets for which all but `nth`, `every`, `chance` and `times` held */                      \
  X(matched, "matched")                                                                          \
  X(hit, "hit")                                                                                  \
  /* Parts of actions without effect: no such field or bit in the packet; no room, or no memory, \
     for a frame: one to be overtaken passes at once, one to be delayed and copies are lost */   \
  X(not_there, "not_there")                                                                      \
  X(no_room, "no_room")                                                                          \
  /* Packets of more queue pairs than a fault with a PSN distinguishes; they pass */             \
  X(untracked, "untracked")

struct FaultSnapshot {
#define ROCI_FAULT_VALUE(member, name) uint64_t member = 0;
  ROCI_FAULT_COUNTERS(ROCI_FAULT_VALUE)
#undef ROCI_FAULT_VALUE
};

}  // namespace roci::dataplane
