#include "control/device/users.h"

#include <algorithm>
#include <utility>

namespace roci::control {
namespace {

constexpr uint32_t kEverything = 100;

uint64_t Part(uint64_t limit, uint32_t percent) {
  // Avoids overflow; 100 % gives `limit` exactly, even if it means "no limit".
  if (percent == kEverything) return limit;
  return std::max<uint64_t>(limit / 100 * percent + limit % 100 * percent / 100, 1);
}

uint32_t Part32(uint32_t limit, uint32_t percent) {
  return static_cast<uint32_t>(Part(limit, percent));
}

// 1/16 of each limit is not available to ordinary users.
constexpr uint64_t kReservedPart = 16;
template <class Number>
Number WithoutReserve(Number limit) {
  return static_cast<Number>(limit - limit / kReservedPart);
}
Quota WithoutReserve(Quota& whole) { return Quota(WithoutReserve(whole.limit()), &whole); }

// make(i): the quota of port space i.
template <class Make>
PortQuotas EachPortSpace(Make&& make) {
  return {{make(0), make(1), make(2), make(3)}};
}

// Bytes of mappings that ordinary users may have.
uint64_t ChargedTo(const SharedQuotas& whole) {
  return std::min(whole.app_bytes.limit(), whole.charged_bytes);
}

// The limits on numbers of objects.
constexpr uint32_t DeviceLimits::*kCounts[] = {
    &DeviceLimits::max_qp,           &DeviceLimits::max_cq,
    &DeviceLimits::max_mr,           &DeviceLimits::max_mw,
    &DeviceLimits::max_dm_bytes,     &DeviceLimits::max_pd,
    &DeviceLimits::max_ah,           &DeviceLimits::max_multicast_memberships,
    &DeviceLimits::max_flows,        &DeviceLimits::max_multicast_groups,
    &DeviceLimits::max_counters,     &DeviceLimits::max_multicast_members,
    &DeviceLimits::max_work_queues,  &DeviceLimits::max_multicast_joins,
    &DeviceLimits::max_queue_tables, &DeviceLimits::max_unresolved_peers,
    &DeviceLimits::max_path_waits,   &DeviceLimits::max_srq,
    &DeviceLimits::max_xrcd};

DeviceLimits WithoutReserve(DeviceLimits limits) {
  for (uint32_t DeviceLimits::*count : kCounts) limits.*count = WithoutReserve(limits.*count);
  return limits;
}

}  // namespace

DeviceQuotas& SharedDeviceQuotas::Of(const DeviceLimits& limits, DeviceQuotas& whole) {
  return devices_.try_emplace(&whole, WithoutReserve(limits), &whole).first->second;
}

User::User(const SharedQuotas& whole, SharedQuotas& from, SharedDeviceQuotas* from_devices,
           uint32_t percent, Uses uses)
    : sessions(Part(whole.sessions.limit(), percent), &from.sessions),
      descriptors(Part(whole.descriptors.limit(), percent), &from.descriptors),
      ring_memory(Part(whole.ring_memory.limit(), percent), &from.ring_memory),
      ring_mappings(Part(whole.ring_mappings.limit(), percent), &from.ring_mappings),
      app_mappings(Part(whole.app_mappings.limit(), percent), &from.app_mappings),
      app_bytes(Part(from_devices == nullptr ? whole.app_bytes.limit() : ChargedTo(whole), percent),
                &from.app_bytes),
      event_channels(Part(whole.event_channels.limit(), percent), &from.event_channels),
      identifiers(Part(whole.identifiers.limit(), percent), &from.identifiers),
      connection_events(Part(whole.connection_events.limit(), percent), &from.connection_events),
      ports(EachPortSpace([&](size_t space) {
        return Quota(Part(whole.ports[space].limit(), percent), &from.ports[space]);
      })),
      copy_use(std::move(uses.copies)),
      retired(std::move(uses.retired)),
      retired_rings(std::move(uses.retired_rings)),
      event_writer(std::move(uses.event_writer)),
      from_devices_(from_devices),
      percent_(percent) {}

Users::Users(SharedQuotas& whole, uint32_t percent)
    : whole_(whole),
      others_{.sessions = WithoutReserve(whole.sessions),
              .descriptors = WithoutReserve(whole.descriptors),
              .ring_memory = WithoutReserve(whole.ring_memory),
              .ring_mappings = WithoutReserve(whole.ring_mappings),
              .app_mappings = WithoutReserve(whole.app_mappings),
              .app_bytes = Quota(WithoutReserve(ChargedTo(whole)), &whole.app_bytes),
              .event_channels = WithoutReserve(whole.event_channels),
              .identifiers = WithoutReserve(whole.identifiers),
              .connection_events = WithoutReserve(whole.connection_events),
              .ports = EachPortSpace([&](size_t i) { return WithoutReserve(whole.ports[i]); })},
      percent_(percent) {}

bool User::MayMap() const {
  // A part of the reserve of mappings (daemon.cc), and of the address space of 128 TiB.
  constexpr uint32_t kMostOfAll = 4096;
  constexpr uint64_t kMostBytesOfAll = uint64_t{64} << 40;
  return retired->mappings < kMostRetired && retired->bytes < kMostRetiredBytes &&
         memory::Unmapper::backlog() < kMostOfAll &&
         memory::Unmapper::backlog_bytes() < kMostBytesOfAll;
}

DeviceLimits User::LimitsOf(const DeviceLimits& limits) const {
  DeviceLimits part = limits;
  for (uint32_t DeviceLimits::*count : kCounts) {
    part.*count = std::min(Part32(limits.*count, percent_), MostOf(limits.*count));
  }
  return part;
}

uint32_t User::MostOf(uint32_t limit) const {
  return from_devices_ == nullptr ? limit : WithoutReserve(limit);
}

DeviceQuotas& User::QuotasOf(const DeviceLimits& limits, DeviceQuotas& whole) {
  DeviceQuotas& from = from_devices_ == nullptr ? whole : from_devices_->Of(limits, whole);
  return devices_.try_emplace(&whole, LimitsOf(limits), &from).first->second;
}

uid_t Users::AccountOf(uid_t uid) const {
  const auto known = accounts_.find(uid);
  return known != accounts_.end() ? known->second : uid;
}

void Users::Learn(uid_t uid, uid_t account) {
  if (accounts_.size() >= kMostAccounts) accounts_.clear();
  accounts_[uid] = account;
}

std::shared_ptr<User> Users::MakeInternal() {
  return std::make_shared<User>(
      whole_, whole_, nullptr, kEverything,
      User::Uses{std::make_shared<dataplane::CopyUse>(), std::make_shared<memory::RetiredUse>(),
                 std::make_shared<memory::RetiredUse>(), nullptr});
}

namespace {

// The object that `known` refers to, or a new one.
template <class T>
std::shared_ptr<T> LockOrMake(std::weak_ptr<T>& known) {
  std::shared_ptr<T> object = known.lock();
  if (object == nullptr) known = object = std::make_shared<T>();
  return object;
}

std::shared_ptr<dataplane::CopyUse> MakeCopyUse(uid_t account, bool is_trusted) {
  auto use = std::make_shared<dataplane::CopyUse>();
  use->account = account;
  use->is_trusted = is_trusted;
  return use;
}

}  // namespace

std::shared_ptr<User> Users::Get(uid_t uid, bool is_trusted) {
  std::erase_if(users_, [](const auto& entry) {
    const Known& known = entry.second;
    return known.user.expired() && known.retired.expired() && known.retired_rings.expired() &&
           (known.copies == nullptr ||
            (known.copies.use_count() == 1 && !known.copies->has_blocked())) &&
           (known.event_writer == nullptr || !known.event_writer->is_slow());
  });
  const uid_t account = is_trusted ? uid : AccountOf(uid);
  Known& known = users_[{account, is_trusted}];
  std::shared_ptr<User> user = known.user.lock();
  if (user != nullptr) return user;
  if (!is_trusted && known.event_writer == nullptr) {
    known.event_writer = std::make_shared<dataplane::EventWriter>();
  }
  if (known.copies == nullptr) known.copies = MakeCopyUse(account, is_trusted);
  User::Uses uses{known.copies, LockOrMake(known.retired), LockOrMake(known.retired_rings),
                  known.event_writer};
  user = is_trusted
             ? std::make_shared<User>(whole_, whole_, nullptr, kEverything, std::move(uses))
             : std::make_shared<User>(whole_, others_, &device_others_, percent_, std::move(uses));
  known.user = user;
  return user;
}

}  // namespace roci::control
