// Results of a queue pair's calls for its owner.
#pragma once

#include <cstdint>

#include "roce/drop_reason.h"
#include "roce/work.h"

namespace roci::roce {

// Action of the owner on early packets (QpLimits::reorder_wait_ns): those that arrive while one
// with a lower PSN is missing.
enum class EarlyAction : uint8_t {
  kNone,       // nothing
  kKeep,       // keeps the packet, of which nothing has been done; QpHost::HasRoomToKeep was true
  kOfferKept,  // offers the kept packets that are due (Qp::IsDue), in order
};

// Result of Qp::HandlePacket.
struct alignas(uint32_t) PacketEffects {
  // kNone: the packet was accepted. Otherwise the reason to drop it (kOutOfSequence may cause a
  // NAK).
  DropReason reason = DropReason::kNone;
  // The host has not finished the packet's atomic operation (MemoryStatus::kNotYet) and nothing
  // has changed: offer the packet again.
  bool offer_again = false;
  // UD: a congestion notification (CNP) to the source of this packet has become pending. UD has no
  // path of its own, so the owner keeps the path to the source for Polled::Kind::kCnp.
  bool cnp_to_source = false;
  EarlyAction early = EarlyAction::kNone;
};

// Result of Qp::PollTransmit.
struct Polled {
  enum class Kind : uint8_t {
    kNothing,   // nothing to send now
    kPacket,    // to the peer
    kDatagram,  // UD: to the destination of `address_handle`
    kFrame,     // raw packet: the payload is the whole frame
    kCnp,       // a congestion notification: to the peer; UD: see PacketEffects::cnp_to_source
  };
  Kind kind = Kind::kNothing;
  // Whether the next call may build a packet: true after every packet, and after kNothing if a work
  // request that sends nothing took long.
  bool has_more = false;
  // Unreliable service: the request completes without an answer, in a later call. Call again only
  // when the payload has been read.
  bool completes_once_sent = false;
  bool fill_checksums = false;  // kFrame: of IPv4, TCP and UDP
  uint32_t address_handle = 0;  // kDatagram: of the work request

  explicit operator bool() const { return kind != Kind::kNothing; }
};
static_assert(sizeof(Polled) == sizeof(uint64_t));

// Result of the other calls after which there may be packets to send.
struct Effects {
  bool has_transmit = false;  // Qp::HasTransmit()
};

// Follow-up work of the owner after calls that take a Host: the result of Qp::Upkeep.
struct QpUpkeep {
  TimeNs next_timeout = kNever;   // Qp::NextTimeout()
  bool awaits_receives = false;   // call HandleWork when receives are posted, too
  bool has_idle_records = false;  // records were lent and none is in use
  bool awaits_kept = false;       // else the packets of EarlyAction::kKeep are not needed any more
};

}  // namespace roci::roce
