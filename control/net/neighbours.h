// The neighbour cache of one device: resolves the MACs of peers, and answers ARP, IPv6 neighbour
// discovery and ICMP echo. Does no I/O: frames and time are arguments, frames to send go to a
// callback. Every table and every wait is bounded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
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

  // The result for a waiter: OK with the MAC, DeadlineExceeded, or ResourceExhausted.
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
    std::optional<roce::Mac> mac;     // absent: being resolved
    roce::TimeNs confirmed = 0;       // with a MAC
    roce::TimeNs asked = 0;           // without a MAC: time of the last request
    roce::TimeNs next_try = 0;        // without a MAC: time of the next request
    roce::TimeNs due = roce::kNever;  // in timers_
    uint32_t tries = 0;               // requests since the last waiter was added
    roce::Gid source;                 // sender address of the requests
    std::vector<Waiter> waiters;      // in order of arrival
  };

  // `addresses` outlives this object.
  explicit Neighbours(const AddressTable& addresses) : addresses_(addresses) {}

  // Announces our addresses (gratuitous ARP, unsolicited advertisements).
  void Announce(Send send) const;
  void AnnounceOne(const roce::NetAddress& own, Send send) const;
  // Duplicate address detection for our address `own` (RFC 5227, 2.1.1; RFC 4862, 5.4.2). An answer
  // is recorded as a conflict.
  void Probe(const roce::NetAddress& own, Send send) const;
  // `address` was added to or removed from our addresses: drops its cache entry and its conflict.
  void Forget(const roce::NetAddress& address);
  // Link down: drops all resolved entries, so that peers are resolved again.
  void DropResolved();
  // Counts a frame that another object has handled.
  void Count(SlowPathReason reason) { ++counters_[static_cast<size_t>(reason)]; }
  // Handles a received frame that is not a RoCE packet.
  SlowPathReason HandleFrame(roce::TimeNs now, std::span<const std::byte> frame, Send send);

  // The MAC of `next_hop` (an address in one of our networks, or our own) if it is known.
  std::optional<roce::Mac> Find(roce::TimeNs now, const roce::NetAddress& next_hop) const;
  // As Find. Otherwise starts resolving it and adds `waiter`; TakeAnswers() returns its answer
  // within kPatienceNs. `source`: one of our addresses of the same family and VLAN. Every waiter
  // gets exactly one answer, unless cancelled. Each new waiter restarts the backoff, because the
  // peer may have become reachable since the last request.
  std::optional<roce::Mac> Resolve(roce::TimeNs now, const roce::Gid& source,
                                   const roce::NetAddress& next_hop, uint64_t waiter, Send send);
  void Cancel(const roce::NetAddress& next_hop, uint64_t waiter);
  std::vector<Answer> TakeAnswers() { return std::exchange(answers_, {}); }

  void HandleTimeout(roce::TimeNs now, Send send);
  // Absolute; kNever: nothing is being resolved.
  roce::TimeNs NextTimeout() const {
    return timers_.empty() ? roce::kNever : timers_.begin()->first;
  }

  // The last adapter that claimed one of our addresses.
  struct Conflict {
    roce::Mac mac;
    uint64_t times = 0;
    roce::TimeNs defended = 0;
  };
  // Null: no other adapter claims `own`.
  const Conflict* ConflictOf(const roce::NetAddress& own) const;
  // Our addresses with a new conflict since the last call.
  std::vector<roce::NetAddress> TakeConflicts() { return std::exchange(new_conflicts_, {}); }

  // Changes when Resolve may give another answer than before, except for answers that time out.
  uint64_t changes() const { return changes_; }

  const SlowPathCounters& counters() const { return counters_; }
  const std::map<roce::NetAddress, Entry>& entries() const { return entries_; }

 private:
  SlowPathReason Dispatch(roce::TimeNs now, std::span<const std::byte> frame, Send send);
  // Whether `mac` is valid as the source of a frame or as a sender address in its payload: not
  // multicast and not our own (a frame of ours that a hub or a loop returned).
  bool CanBeSender(const roce::Mac& mac) const;
  SlowPathReason HandleArp(roce::TimeNs now, const LinkHeader& link, Send send);
  SlowPathReason HandleIcmp(roce::TimeNs now, const LinkHeader& link, bool ipv6, Send send);
  SlowPathReason HandleNd(roce::TimeNs now, const LinkHeader& link, const IcmpPacket& packet,
                          Send send);
  void AnswerSolicitation(const NdMessage& message, const LinkHeader& link, Send send) const;
  void Ask(roce::TimeNs now, const roce::NetAddress& target, Entry& entry, Send send) const;
  void FailLate(roce::TimeNs now, Entry& entry);
  void SetDue(const roce::NetAddress& address, Entry& entry, roce::TimeNs due);
  // After a change of the entry's MAC, waiters or next request.
  void Schedule(const roce::NetAddress& address, Entry& entry);
  // Erases the entries for which matches(entry) is true.
  template <class Matches>
  void EraseIf(Matches&& matches);
  // `create`: adds an unknown peer, because it has solicited us and will need our answers.
  void Learn(roce::TimeNs now, const roce::NetAddress& address, const roce::Mac& mac, bool create);
  bool MakeRoom(roce::TimeNs now);
  SlowPathReason NoteConflict(roce::TimeNs now, const roce::NetAddress& own, const roce::Mac& mac,
                              Send send);

  const AddressTable& addresses_;
  std::map<roce::NetAddress, Entry> entries_;
  std::set<std::pair<roce::TimeNs, roce::NetAddress>> timers_;  // of entries without a MAC
  size_t waiters_ = 0;
  std::vector<Answer> answers_;
  uint64_t changes_ = 0;
  SlowPathCounters counters_{};
  std::map<roce::NetAddress, Conflict> conflicts_;  // by our address
  std::vector<roce::NetAddress> new_conflicts_;
};

}  // namespace roci::control
