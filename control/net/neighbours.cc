#include "control/net/neighbours.h"

#include <algorithm>

#include "roce/headers.h"

namespace roci::control {
namespace {

using roce::TimeNs;

const roce::Gid& AllNodes() {
  static const roce::Gid gid{{0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  return gid;
}

}  // namespace

void Neighbours::Announce(Send send) const {
  for (uint32_t i = 0; i < addresses_.size(); ++i) {
    if (!addresses_.IsFree(i)) AnnounceOne(addresses_.At(i)->net(), send);
  }
}

void Neighbours::AnnounceOne(const roce::NetAddress& own, Send send) const {
  if (own.gid.IsIpv4()) {
    const Frame frame = BuildArp(kBroadcastMac, {.is_request = true,
                                                 .sender_mac = addresses_.mac(),
                                                 .sender_ip = own.gid.ToIpv4(),
                                                 .target_mac = {},
                                                 .target_ip = own.gid.ToIpv4()});
    return send(InVlan(frame, addresses_, own.vlan));
  }
  const Frame frame = BuildNd(MulticastMac(AllNodes()), addresses_.mac(),
                              {.is_solicitation = false,
                               .solicited = false,
                               .override_entry = true,
                               .source = own.gid,
                               .destination = AllNodes(),
                               .target = own.gid,
                               .link_address = addresses_.mac()});
  send(InVlan(frame, addresses_, own.vlan));
}

void Neighbours::Probe(const roce::NetAddress& own, Send send) const {
  if (own.gid.IsIpv4()) {
    const Frame frame = BuildArp(kBroadcastMac, {.is_request = true,
                                                 .sender_mac = addresses_.mac(),
                                                 .sender_ip = {},
                                                 .target_mac = {},
                                                 .target_ip = own.gid.ToIpv4()});
    return send(InVlan(frame, addresses_, own.vlan));
  }
  const roce::Gid group = SolicitedNodeGroup(own.gid);
  const Frame frame = BuildNd(MulticastMac(group), addresses_.mac(),
                              {.is_solicitation = true,
                               .source = {},
                               .destination = group,
                               .target = own.gid,
                               .link_address = std::nullopt});
  send(InVlan(frame, addresses_, own.vlan));
}

const Neighbours::Conflict* Neighbours::ConflictOf(const roce::NetAddress& own) const {
  const auto it = conflicts_.find(own);
  return it == conflicts_.end() ? nullptr : &it->second;
}

// Keeps the address and defends it at a limited rate (RFC 5227, 2.4 (b)).
SlowPathReason Neighbours::NoteConflict(TimeNs now, const roce::NetAddress& own,
                                        const roce::Mac& mac, Send send) {
  const auto [it, is_new] = conflicts_.try_emplace(own);
  Conflict& conflict = it->second;
  if (is_new || conflict.mac != mac) new_conflicts_.push_back(own);
  conflict.mac = mac;
  ++conflict.times;
  if (is_new || now - conflict.defended >= kDefendIntervalNs) {
    conflict.defended = now;
    AnnounceOne(own, send);
  }
  return SlowPathReason::kAddressConflict;
}

void Neighbours::Forget(const roce::NetAddress& address) {
  conflicts_.erase(address);
  const auto it = entries_.find(address);
  if (it == entries_.end()) return;
  ++changes_;
  // The waiters' next hop is our own address now.
  for (const Waiter& waiter : it->second.waiters) {
    answers_.push_back({waiter.number, absl::OkStatus(), addresses_.mac()});
  }
  waiters_ -= it->second.waiters.size();
  SetDue(address, it->second, roce::kNever);
  entries_.erase(it);
}

void Neighbours::SetDue(const roce::NetAddress& address, Entry& entry, TimeNs due) {
  if (entry.due == due) return;
  if (due != roce::kNever) timers_.emplace(due, address);
  if (entry.due != roce::kNever) timers_.erase({entry.due, address});
  entry.due = due;
}

void Neighbours::Schedule(const roce::NetAddress& address, Entry& entry) {
  if (entry.mac) return SetDue(address, entry, roce::kNever);
  TimeNs due = entry.next_try;
  if (!entry.waiters.empty()) due = std::min(due, entry.waiters.front().deadline);
  SetDue(address, entry, due);
}

template <class Matches>
void Neighbours::EraseIf(Matches&& matches) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (!matches(it->second)) {
      ++it;
      continue;
    }
    SetDue(it->first, it->second, roce::kNever);
    it = entries_.erase(it);
  }
}

void Neighbours::DropResolved() {
  ++changes_;
  EraseIf([](const Entry& entry) { return entry.mac.has_value(); });
}

bool Neighbours::CanBeSender(const roce::Mac& mac) const {
  return !mac.IsGroup() && mac != addresses_.mac();
}

SlowPathReason Neighbours::HandleFrame(TimeNs now, std::span<const std::byte> frame, Send send) {
  const SlowPathReason reason = Dispatch(now, frame, send);
  ++counters_[static_cast<size_t>(reason)];
  return reason;
}

SlowPathReason Neighbours::Dispatch(TimeNs now, std::span<const std::byte> frame, Send send) {
  LinkHeader link;
  if (!ParseLinkHeader(frame, link)) return SlowPathReason::kTruncated;
  if (link.ethernet.dst != addresses_.mac() && !link.ethernet.dst.IsGroup()) {
    return SlowPathReason::kOtherDestination;
  }
  if (!CanBeSender(link.ethernet.src)) return SlowPathReason::kOtherDestination;
  if (!addresses_.HasVlan(link.vlan)) return SlowPathReason::kVlanNotOurs;
  switch (link.ethernet.ether_type) {
    case roce::kEtherTypeArp:
      return HandleArp(now, link, send);
    case roce::kEtherTypeIpv4:
      return HandleIcmp(now, link, false, send);
    case roce::kEtherTypeIpv6:
      return HandleIcmp(now, link, true, send);
    default:
      return SlowPathReason::kEtherType;
  }
}

SlowPathReason Neighbours::HandleArp(TimeNs now, const LinkHeader& link, Send send) {
  const std::optional<ArpMessage> message = ParseArp(link.payload);
  if (!message || !CanBeSender(message->sender_mac)) return SlowPathReason::kArpMalformed;
  const roce::NetAddress sender{roce::Gid::FromIpv4(message->sender_ip), link.vlan};
  const roce::NetAddress target{roce::Gid::FromIpv4(message->target_ip), link.vlan};
  if (addresses_.IsOwn(sender)) return NoteConflict(now, sender, message->sender_mac, send);
  const bool for_us = addresses_.IsOwn(target);
  // RFC 826: update a known sender always, add an unknown one only if we are the target.
  Learn(now, sender, message->sender_mac, for_us && message->is_request);
  if (!for_us) return SlowPathReason::kArpNotForUs;
  if (message->is_request) {
    const Frame frame = BuildArp(message->sender_mac, {.is_request = false,
                                                       .sender_mac = addresses_.mac(),
                                                       .sender_ip = message->target_ip,
                                                       .target_mac = message->sender_mac,
                                                       .target_ip = message->sender_ip});
    send(InVlan(frame, addresses_, link.vlan));
  }
  return SlowPathReason::kHandled;
}

SlowPathReason Neighbours::HandleIcmp(TimeNs now, const LinkHeader& link, bool ipv6, Send send) {
  IcmpPacket packet;
  const SlowPathReason reason = ParseIcmp(link.payload, ipv6, packet);
  if (reason != SlowPathReason::kHandled) return reason;
  if (ipv6 && (packet.type == roce::kNdSolicitation || packet.type == roce::kNdAdvertisement)) {
    return HandleNd(now, link, packet, send);
  }
  if (!addresses_.IsOwn({packet.destination, link.vlan})) return SlowPathReason::kIpNotForUs;
  const uint8_t echo = ipv6 ? kIcmpv6EchoRequest : kIcmpEchoRequest;
  if (packet.type != echo || packet.code != 0) return SlowPathReason::kIcmpType;
  if (packet.source.IsZero() || packet.source.IsMulticast()) return SlowPathReason::kIcmpMalformed;
  const Frame reply = BuildEchoReply(link.ethernet.src, addresses_.mac(), packet);
  send(InVlan(reply, addresses_, link.vlan));
  return SlowPathReason::kHandled;
}

SlowPathReason Neighbours::HandleNd(TimeNs now, const LinkHeader& link, const IcmpPacket& packet,
                                    Send send) {
  const std::optional<NdMessage> message = ParseNd(packet);
  if (!message || (message->link_address && !CanBeSender(*message->link_address))) {
    return SlowPathReason::kNdMalformed;
  }
  const roce::NetAddress target{message->target, link.vlan};
  if (!message->is_solicitation) {
    const roce::Mac mac = message->link_address.value_or(link.ethernet.src);
    if (addresses_.IsOwn(target)) return NoteConflict(now, target, mac, send);
    Learn(now, target, mac, false);
    return SlowPathReason::kHandled;
  }
  if (!addresses_.IsOwn(target)) return SlowPathReason::kNdNotForUs;
  if (!message->source.IsZero() && message->link_address) {
    Learn(now, {message->source, link.vlan}, *message->link_address, true);
  }
  AnswerSolicitation(*message, link, send);
  return SlowPathReason::kHandled;
}

void Neighbours::AnswerSolicitation(const NdMessage& message, const LinkHeader& link,
                                    Send send) const {
  // RFC 4861, 7.2.4: a solicitation without a source address is answered to all nodes.
  const bool probe = message.source.IsZero();
  const roce::Gid& to = probe ? AllNodes() : message.source;
  const roce::Mac mac = probe ? MulticastMac(to) : message.link_address.value_or(link.ethernet.src);
  const Frame frame = BuildNd(mac, addresses_.mac(),
                              {.is_solicitation = false,
                               .solicited = !probe,
                               .override_entry = true,
                               .source = message.target,
                               .destination = to,
                               .target = message.target,
                               .link_address = addresses_.mac()});
  send(InVlan(frame, addresses_, link.vlan));
}

void Neighbours::Ask(TimeNs now, const roce::NetAddress& target, Entry& entry, Send send) const {
  entry.next_try = now + (kFirstRetryNs << entry.tries);
  entry.tries = std::min(entry.tries + 1, kMaxTries - 1);
  entry.asked = now;
  if (target.gid.IsIpv4()) {
    const Frame frame = BuildArp(kBroadcastMac, {.is_request = true,
                                                 .sender_mac = addresses_.mac(),
                                                 .sender_ip = entry.source.ToIpv4(),
                                                 .target_mac = {},
                                                 .target_ip = target.gid.ToIpv4()});
    return send(InVlan(frame, addresses_, target.vlan));
  }
  const roce::Gid group = SolicitedNodeGroup(target.gid);
  const Frame frame = BuildNd(MulticastMac(group), addresses_.mac(),
                              {.is_solicitation = true,
                               .source = entry.source,
                               .destination = group,
                               .target = target.gid,
                               .link_address = addresses_.mac()});
  send(InVlan(frame, addresses_, target.vlan));
}

void Neighbours::Learn(TimeNs now, const roce::NetAddress& address, const roce::Mac& mac,
                       bool create) {
  const roce::Gid& gid = address.gid;
  if (gid.IsZero() || gid.IsMulticast() || addresses_.IsOwn(address)) return;
  auto it = entries_.find(address);
  if (it == entries_.end()) {
    if (!create || addresses_.NextHop(address) != gid || !MakeRoom(now)) return;
    it = entries_.emplace(address, Entry{}).first;
  }
  Entry& entry = it->second;
  if (entry.mac != mac) ++changes_;
  entry.mac = mac;
  entry.confirmed = now;
  entry.tries = 0;
  for (const Waiter& waiter : entry.waiters) {
    answers_.push_back({waiter.number, absl::OkStatus(), mac});
  }
  waiters_ -= entry.waiters.size();
  entry.waiters.clear();
  Schedule(address, entry);
}

std::optional<roce::Mac> Neighbours::Find(TimeNs now, const roce::NetAddress& next_hop) const {
  if (addresses_.IsOwn(next_hop)) return addresses_.mac();
  const auto it = entries_.find(next_hop);
  const bool is_known =
      it != entries_.end() && it->second.mac && now - it->second.confirmed < kLifetimeNs;
  return is_known ? it->second.mac : std::nullopt;
}

std::optional<roce::Mac> Neighbours::Resolve(TimeNs now, const roce::Gid& source,
                                             const roce::NetAddress& next_hop, uint64_t waiter,
                                             Send send) {
  if (const std::optional<roce::Mac> mac = Find(now, next_hop)) return mac;
  auto it = entries_.find(next_hop);
  if (waiters_ >= kMaxWaiters || (it == entries_.end() && !MakeRoom(now))) {
    answers_.push_back(
        {waiter, absl::ResourceExhaustedError("too many unresolved neighbours"), {}});
    return std::nullopt;
  }
  Entry& entry = it != entries_.end() ? it->second : entries_[next_hop];
  const bool asked_just_now = !entry.mac && entry.tries > 0 && now - entry.asked < kFirstRetryNs;
  entry.mac.reset();
  entry.source = source;
  entry.tries = 0;
  if (asked_just_now) {
    entry.tries = 1;
    entry.next_try = entry.asked + kFirstRetryNs;
  } else {
    Ask(now, next_hop, entry, send);
  }
  Schedule(next_hop, entry);  // the new waiter's deadline is later
  entry.waiters.push_back({waiter, now + kPatienceNs});
  ++waiters_;
  return std::nullopt;
}

void Neighbours::Cancel(const roce::NetAddress& next_hop, uint64_t waiter) {
  if (const auto it = entries_.find(next_hop); it != entries_.end()) {
    waiters_ -= std::erase_if(it->second.waiters,
                              [&](const Waiter& each) { return each.number == waiter; });
    Schedule(next_hop, it->second);
  }
  std::erase_if(answers_, [&](const Answer& answer) { return answer.waiter == waiter; });
}

void Neighbours::FailLate(TimeNs now, Entry& entry) {
  const auto late = [&](const Waiter& waiter) { return waiter.deadline <= now; };
  const auto end = std::find_if_not(entry.waiters.begin(), entry.waiters.end(), late);
  for (auto it = entry.waiters.begin(); it != end; ++it) {
    answers_.push_back({it->number, absl::DeadlineExceededError("no answer from the peer"), {}});
  }
  waiters_ -= static_cast<size_t>(end - entry.waiters.begin());
  entry.waiters.erase(entry.waiters.begin(), end);
}

// Keeps an entry without waiters until its next retransmission is due: this bounds the rate of
// requests that repeated Resolve() and Cancel() calls can cause.
void Neighbours::HandleTimeout(TimeNs now, Send send) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const auto it = entries_.find(timers_.begin()->second);
    Entry& entry = it->second;
    FailLate(now, entry);
    if (entry.next_try <= now && entry.waiters.empty()) {
      SetDue(it->first, entry, roce::kNever);
      entries_.erase(it);
      continue;
    }
    if (entry.next_try <= now) Ask(now, it->first, entry, send);
    Schedule(it->first, entry);
  }
}

// Evicts expired entries and unresolved entries without waiters, else the least recently confirmed
// entry. False: every entry is unresolved and has waiters.
bool Neighbours::MakeRoom(TimeNs now) {
  if (entries_.size() < kMaxEntries) return true;
  EraseIf([&](const Entry& entry) {
    return entry.mac ? now - entry.confirmed >= kLifetimeNs : entry.waiters.empty();
  });
  if (entries_.size() < kMaxEntries) return true;
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (!it->second.mac) continue;
    if (oldest == entries_.end() || it->second.confirmed < oldest->second.confirmed) oldest = it;
  }
  if (oldest == entries_.end()) return false;
  entries_.erase(oldest);
  return true;
}

}  // namespace roci::control
