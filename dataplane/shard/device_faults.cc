// Adds exact faults of a device: of packets between its lanes and its port, and of completions.
#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dataplane/base/clock.h"
#include "dataplane/link/link_tap.h"
#include "dataplane/qp/completion_fault.h"
#include "dataplane/qp/qpn_space.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/device_lane.h"
#include "dataplane/shard/device_link.h"
#include "dataplane/shard/lcore.h"

namespace roci::dataplane {

absl::StatusOr<uint32_t> ShardedDevice::AddFault(const FaultSettings& settings) {
  if (faults_.size() == LinkTap::kMaxFaults) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the device has ", LinkTap::kMaxFaults,
                     " faults, the most possible: delete one of them (roci fault del)"));
  }
  OpenTaps();
  faults_.push_back(std::make_unique<FaultRule>(TakeFaultId(), settings, Clock::Monotonic()));
  FaultRule& rule = *faults_.back();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    rule.lanes.push_back(std::make_unique<FaultLane>(rule.fault));
  }
  UseFaults(settings.match.direction);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    dataplane_.lcore(static_cast<uint32_t>(i)).Call([&](const OnShard& shard) {
      lanes_[i]->AttachTap(shard, *taps_[i]);
    });
  }
  return rule.id;
}

// Gives the lanes a table of the faults that there are now, and frees the one before.
void ShardedDevice::UseFaults(LinkDirection direction) {
  for (size_t i = 0; i < taps_.size(); ++i) {
    std::vector<FaultTable::Entry> entries;
    for (const auto& rule : faults_) {
      if (rule->fault.settings.match.direction != direction) continue;
      entries.push_back({rule->lanes[i].get(), rule->qpns});
    }
    auto table = entries.empty() ? nullptr : std::make_unique<FaultTable>(entries);
    dataplane_.lcore(static_cast<uint32_t>(i)).Call([&](const OnShard& shard) {
      taps_[i]->UseFaults(shard, direction, table.get());
    });
    fault_tables_[i][static_cast<size_t>(direction)] = std::move(table);
  }
}

bool ShardedDevice::RemoveFault(uint32_t id) {
  const auto it = std::ranges::find(faults_, id, [](const auto& rule) { return rule->id; });
  if (it == faults_.end()) return false;
  const std::unique_ptr<FaultRule> removed = std::move(*it);
  faults_.erase(it);
  UseFaults(removed->fault.settings.match.direction);
  return true;
}

void ShardedDevice::ClearFaults() {
  const std::vector<std::unique_ptr<FaultRule>> removed = std::exchange(faults_, {});
  for (const LinkDirection direction : {LinkDirection::kIn, LinkDirection::kOut}) {
    UseFaults(direction);
  }
}

absl::StatusOr<uint32_t> ShardedDevice::AddCompletionFault(
    const CompletionFaultSettings& settings) {
  if (completion_faults_.size() == kMostCompletionFaults) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the device has ", kMostCompletionFaults,
                     " faults of completions, the most possible: delete one of them (roci fault "
                     "del)"));
  }
  while (lane_faults_.size() < lanes_.size()) {
    lane_faults_.push_back(std::make_unique<LaneFaults>());
  }
  completion_faults_.push_back(
      std::make_unique<CompletionFault>(TakeFaultId(), settings, Clock::Monotonic()));
  CompletionFault* const added = completion_faults_.back().get();
  ChangeLaneFaults([added](LaneFaults& lane) { lane.faults[lane.count++] = added; });
  return added->id;
}

bool ShardedDevice::RemoveCompletionFault(uint32_t id) {
  const auto it =
      std::ranges::find(completion_faults_, id, [](const auto& fault) { return fault->id; });
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
void ShardedDevice::ChangeLaneFaults(Change&& change) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    dataplane_.lcore(static_cast<uint32_t>(i)).Call([&](const OnShard&) {
      LaneFaults& lane = *lane_faults_[i];
      change(lane);
      lanes_[i]->completion_faults = std::span(lane.faults).first(lane.count);
    });
  }
}

std::vector<CompletionFaultState> ShardedDevice::CompletionFaults() const {
  std::vector<CompletionFaultState> states;
  for (const auto& fault : completion_faults_) {
    states.push_back({fault->id, fault->settings, fault->matched.load(std::memory_order_relaxed),
                      fault->hit.load(std::memory_order_relaxed)});
  }
  return states;
}

void ShardedDevice::NoteCreated(const QueuePair& qp) {
  for (const auto& fault : completion_faults_) fault->choice.NoteCreated(qp.origin());
  for (const auto& rule : faults_) rule->fault.choice.NoteCreated(qp.origin());
}

void ShardedDevice::FreeQpn(const QueuePair& qp) {
  for (size_t i = completion_faults_.size(); i-- > 0;) {
    CompletionFault& fault = *completion_faults_[i];
    if (fault.Forget(qp.qpn()) || fault.choice.Named(qp.origin())) {
      RemoveCompletionFault(fault.id);
    }
  }
  for (size_t i = faults_.size(); i-- > 0;) {
    FaultRule& rule = *faults_[i];
    const bool was_named = std::erase(rule.qpns, qp.qpn()) != 0;
    if ((was_named && rule.qpns.empty()) || rule.fault.choice.Named(qp.origin())) {
      RemoveFault(rule.id);
    } else if (was_named) {
      UseFaults(rule.fault.settings.match.direction);
    }
  }
  qpns_->Free(qp.qpn());
}

std::vector<ShardedDevice::FaultState> ShardedDevice::Faults() const {
  std::vector<FaultState> states;
  for (const auto& rule : faults_) {
    states.push_back({rule->id, rule->fault.settings, rule->fault.Snapshot()});
  }
  return states;
}

}  // namespace roci::dataplane
