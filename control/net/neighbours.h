// Answers ARP, IPv6 neighbour discovery and ping for one device, and finds the MACs of its peers.
// Sans I/O: frames and time come in as arguments, frames go out through a callback. Every table and
// every wait is bounded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "control/net/addresses.h"
#include "control/net/neighbour_frames.h"
#include "control/net/vlan_frames.h"
#include "roce/types.h"
#include "roce/work.h"

namespace roci::control {

class Neighbours {
 public:
  using Send = absl::FunctionRef<void(const Frame&)>;
  using SlowPathCounters = std::array<uint64_t, kSlowPathReasonNames.size()>;

  static constexpr size_t kMaxEntries = 4096;
  static constexpr size_t kMaxWaiters = 16384;
  static constexpr uint32_t kMaxTries = 6;
  static constexpr roce::TimeNs kFirstRetryNs = 50'000'000;  // doubles with every try
  // Timeout of one waiter: the duration of kMaxTries requests with exponential backoff.
  static constexpr roce::TimeNs kPatienceNs = kFirstRetryNs * ((1u << kMaxTries) - 1);
  static constexpr roce::TimeNs kLifetimeNs = 60'000'000'000;
  static constexpr roce::TimeNs kDefendIntervalNs = 10'000'000'000;  // RFC 5227, 1.1

  // How a wait ended: OK with the MAC, DeadlineExceeded, or ResourceExhausted.
  struct Answer {
    uint64_t waiter;
    absl::Status status;
    roce::Mac mac;
  };
  struct Waiter {
    uint64_t number;
    roce::TimeNs deadline;
  };
  struct Entry {
    std::optional<roce::Mac> mac;  // absent: being asked for
    roce::TimeNs confirmed = 0;    // with a MAC
    roce::TimeNs asked = 0;        // without a MAC: time of the last request
    roce::TimeNs next_try = 0;     // without a MAC: time of the next request
    uint32_t tries = 0;            // requests since the last waiter was added
    roce::Gid source;              // sender address of the requests
    std::vector<Waiter> waiters;   // in order of arrival
  };

  // `addresses` must outlive this.
  explicit Neighbours(const AddressTable& addresses) : addresses_(addresses) {}

  // Tells the neighbourhood our addresses (gratuitous ARP, unsolicited advertisements).
  void Announce(Send send) const;
  void AnnounceOne(const roce::NetAddress& own, Send send) const;
  // Asks whether somebody else has our address `own` (RFC 5227, 2.1.1; RFC 4862, 5.4.2). Whoever
  // answers has a conflict with us.
  void Probe(const roce::NetAddress& own, Send send) const;
  // `address` has become ours, or is ours no more: what was known or asked about it is forgotten.
  void Forget(const roce::NetAddress& address);
  // The link has been down: whoever was there may be gone, and is asked for again.
  void DoubtAll();
  // Of frames that others than this handle.
  void Count(SlowPathReason reason) { ++counters_[static_cast<size_t>(reason)]; }
  // A received frame that is no RoCE packet.
  SlowPathReason HandleFrame(roce::TimeNs now, std::span<const std::byte> frame, Send send);

  // The MAC of `next_hop` (an address on one of our networks, or our own) if it is known. Otherwise
  // begins to ask for it, with `source`, one of our addresses of the same family and VLAN, and
  // remembers `waiter`: its answer will be in TakeAnswers, kPatienceNs later at the latest. Every
  // waiter gets exactly one answer, unless cancelled. Each new waiter restarts the backoff, because
  // the peer may have become reachable since the last request.
  std::optional<roce::Mac> Resolve(roce::TimeNs now, const roce::Gid& source,
                                   const roce::NetAddress& next_hop, uint64_t waiter, Send send);
  void Cancel(uint64_t waiter);
  std::vector<Answer> TakeAnswers() { return std::exchange(answers_, {}); }

  void HandleTimeout(roce::TimeNs now, Send send);
  // Absolute; kNever if nothing is being asked.
  roce::TimeNs NextTimeout() const;

  // Who said last that an address of ours is his.
  struct Conflict {
    roce::Mac mac;
    uint64_t times = 0;
    roce::TimeNs defended = 0;
  };
  // Null: nobody else claims `own`.
  const Conflict* ConflictOf(const roce::NetAddress& own) const;
  // Addresses that somebody else has begun to claim since the last call.
  std::vector<roce::NetAddress> TakeConflicts() { return std::exchange(new_conflicts_, {}); }

  const SlowPathCounters& counters() const { return counters_; }
  const std::map<roce::NetAddress, Entry>& entries() const { return entries_; }

 private:
  SlowPathReason Dispatch(roce::TimeNs now, std::span<const std::byte> frame, Send send);
  // Neither a group nor our own: what we sent ourselves (a hub, a loop) teaches nothing, and an
  // answer to our own address would go nowhere. For the frame's source and for what its payload
  // claims.
  bool CanBeSender(const roce::Mac& mac) const;
  SlowPathReason HandleArp(roce::TimeNs now, const LinkHeader& link, Send send);
  SlowPathReason HandleIcmp(roce::TimeNs now, const LinkHeader& link, bool ipv6, Send send);
  SlowPathReason HandleNd(roce::TimeNs now, const LinkHeader& link, const IcmpPacket& packet,
                          Send send);
  void AnswerSolicitation(const NdMessage& message, const LinkHeader& link, Send send) const;
  void Ask(roce::TimeNs now, const roce::NetAddress& target, Entry& entry, Send send) const;
  void FailLate(roce::TimeNs now, Entry& entry);
  // `create`: we were asked by it, so we shall soon have to answer it.
  void Learn(roce::TimeNs now, const roce::NetAddress& address, const roce::Mac& mac, bool create);
  bool MakeRoom(roce::TimeNs now);
  SlowPathReason NoteConflict(roce::TimeNs now, const roce::NetAddress& own, const roce::Mac& mac,
                              Send send);

  const AddressTable& addresses_;
  std::map<roce::NetAddress, Entry> entries_;
  size_t waiters_ = 0;
  std::vector<Answer> answers_;
  SlowPathCounters counters_{};
  std::map<roce::NetAddress, Conflict> conflicts_;  // by addresses of ours
  std::vector<roce::NetAddress> new_conflicts_;
};

}  // namespace roci::control
