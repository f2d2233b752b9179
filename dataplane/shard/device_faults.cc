// Adds exact faults of a device: of packets between its lanes and its port, and of completions.
#include <algorithm>
#include <initializer_list>
#include <new>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "dataplane/link/link_tap.h"
#include "dataplane/qp/completion_fault.h"
#include "dataplane/qp/qpn_space.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/device_impairments.h"
#include "dataplane/shard/device_lane.h"
#include "dataplane/shard/sharded_device.h"

namespace roci::dataplane {

absl::StatusOr<uint32_t> DeviceClient::Do(const AddFault& command) {
  if (faults_.size() == LinkTap::kMaxFaults) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the device has ", LinkTap::kMaxFaults,
                     " faults, the most possible: delete one of them (roci fault del)"));
  }
  OpenTaps();
  auto rule =
      std::make_unique<FaultRule>(TakeFaultId(), command.settings, device_->dataplane().Now());
  for (size_t i = 0; i < device_->lanes().size(); ++i) {
    rule->lanes.push_back(std::make_unique<FaultLane>(rule->fault));
  }
  const uint32_t id = rule->id;
  faults_.push_back(std::move(rule));
  absl::Cleanup undo = [this] { faults_.pop_back(); };
  UseFaults({command.settings.match.direction});
  std::move(undo).Cancel();
  device_->ForEachLane(
      [&](const OnShard& shard, DeviceLane& lane, size_t i) { lane.AttachTap(shard, *taps_[i]); });
  return id;
}

std::unique_ptr<FaultTable> DeviceClient::TableOf(size_t lane, LinkDirection direction) const {
  std::vector<FaultTable::Entry> entries;
  for (const auto& rule : faults_) {
    if (rule->is_over || rule->fault.settings.match.direction != direction) continue;
    entries.push_back({rule->lanes[lane].get(), rule->qpns});
  }
  return entries.empty() ? nullptr : std::make_unique<FaultTable>(entries);
}

// Gives the lanes tables of the faults that there are now and are not over, and frees those before.
// Throws std::bad_alloc before it has changed anything.
void DeviceClient::UseFaults(std::initializer_list<LinkDirection> directions) {
  decltype(fault_tables_) tables(taps_.size());
  for (size_t i = 0; i < taps_.size(); ++i) {
    for (const LinkDirection direction : directions) {
      tables[i][static_cast<size_t>(direction)] = TableOf(i, direction);
    }
  }
  for (size_t i = 0; i < taps_.size(); ++i) {
    device_->LcoreOf(i).Call([&](const OnShard& shard) {
      for (const LinkDirection direction : directions) {
        taps_[i]->UseFaults(shard, direction, tables[i][static_cast<size_t>(direction)].get());
      }
    });
    for (const LinkDirection direction : directions) {
      fault_tables_[i][static_cast<size_t>(direction)] =
          std::move(tables[i][static_cast<size_t>(direction)]);
    }
  }
}

bool DeviceClient::Do(const RemoveFault& command) {
  const auto it = std::ranges::find(faults_, command.id, [](const auto& rule) { return rule->id; });
  if (it == faults_.end()) return false;
  FaultRule& rule = **it;
  rule.is_over = true;
  absl::Cleanup undo = [&rule] { rule.is_over = false; };
  UseFaults({rule.fault.settings.match.direction});
  std::move(undo).Cancel();
  faults_.erase(it);
  return true;
}

void DeviceClient::Do(const ClearFaults&) {
  std::vector<std::unique_ptr<FaultRule>> removed = std::exchange(faults_, {});
  absl::Cleanup undo = [&] { faults_ = std::move(removed); };
  UseFaults({LinkDirection::kIn, LinkDirection::kOut});
  std::move(undo).Cancel();
}

absl::StatusOr<uint32_t> DeviceClient::Do(const AddCompletionFault& command) {
  if (completion_faults_.size() == AddCompletionFault::kMost) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the device has ", AddCompletionFault::kMost,
                     " faults of completions, the most possible: delete one of them (roci fault "
                     "del)"));
  }
  while (lane_faults_.size() < device_->lanes().size()) {
    lane_faults_.push_back(std::make_unique<LaneFaults>());
  }
  completion_faults_.push_back(std::make_unique<CompletionFault>(TakeFaultId(), command.settings,
                                                                 device_->dataplane().Now()));
  CompletionFault* const added = completion_faults_.back().get();
  ChangeLaneFaults([added](LaneFaults& lane) { lane.faults[lane.count++] = added; });
  return added->id;
}

bool DeviceClient::Do(const RemoveCompletionFault& command) {
  const auto it = std::ranges::find(completion_faults_, command.id,
                                    [](const auto& fault) { return fault->id; });
  if (it == completion_faults_.end()) return false;
  ChangeLaneFaults([removed = it->get()](LaneFaults& lane) {
    const auto end = lane.faults.begin() + static_cast<ptrdiff_t>(lane.count);
    lane.count =
        static_cast<size_t>(std::remove(lane.faults.begin(), end, removed) - lane.faults.begin());
  });
  completion_faults_.erase(it);
  return true;
}

template <class Change>
void DeviceClient::ChangeLaneFaults(Change&& change) {
  device_->ForEachLane([&](const OnShard& shard, DeviceLane& lane, size_t i) {
    LaneFaults& used = *lane_faults_[i];
    change(used);
    lane.UseCompletionFaults(shard, std::span(used.faults).first(used.count));
  });
}

std::vector<CompletionFaultState> DeviceClient::Do(const ListCompletionFaults&) const {
  std::vector<CompletionFaultState> states;
  for (const auto& fault : completion_faults_) {
    states.push_back({fault->id, fault->settings, fault->matched.load(std::memory_order_relaxed),
                      fault->hit.load(std::memory_order_relaxed)});
  }
  return states;
}

void DeviceClient::NoteCreated(const QueuePair& qp) {
  for (const auto& fault : completion_faults_) fault->choice.NoteCreated(qp.origin());
  for (const auto& rule : faults_) rule->fault.choice.NoteCreated(qp.origin());
}

void DeviceClient::FreeQpn(const QueuePair& qp) noexcept {
  for (size_t i = completion_faults_.size(); i-- > 0;) {
    CompletionFault& fault = *completion_faults_[i];
    if (fault.Forget(qp.qpn()) || fault.choice.Named(qp.origin())) {
      Do(RemoveCompletionFault{fault.id});
    }
  }
  bool has_changed = false;
  for (const auto& rule : faults_) {
    const bool was_named = std::erase(rule->qpns, qp.qpn()) != 0;
    const bool is_over = (was_named && rule->qpns.empty()) || rule->fault.choice.Named(qp.origin());
    if (is_over) {
      rule->is_over = true;
      rule->fault.is_over.store(true, std::memory_order_relaxed);
    }
    has_changed |= was_named || is_over;
  }
  if (has_changed) ForgetFaults();
  device_->qpns().Free(qp.qpn());
}

// Removes the faults that are over. Without memory for other tables they stay, and hit nothing.
void DeviceClient::ForgetFaults() noexcept {
  try {
    UseFaults({LinkDirection::kIn, LinkDirection::kOut});
  } catch (const std::bad_alloc&) {
    return;
  }
  std::erase_if(faults_, [](const auto& rule) { return rule->is_over; });
}

std::vector<FaultState> DeviceClient::Do(const ListFaults&) const {
  std::vector<FaultState> states;
  for (const auto& rule : faults_) {
    if (rule->is_over) continue;
    states.push_back({rule->id, rule->fault.settings, rule->fault.Snapshot()});
  }
  return states;
}

}  // namespace roci::dataplane
