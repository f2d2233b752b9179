#include "dataplane/qp/flow_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/cleanup/cleanup.h"

namespace roci::dataplane {

std::vector<FlowRule*>* FlowTable::ListOf(FlowKind kind) {
  switch (kind) {
    case FlowKind::kAllDefault:
      return &all_default_;
    case FlowKind::kMulticastDefault:
      return &multicast_default_;
    case FlowKind::kSniffer:
      return &sniffers_;
    case FlowKind::kNormal:
      break;
  }
  return nullptr;
}

std::vector<FlowTable::Class>::iterator FlowTable::FindClass(const FlowRule& rule) {
  return std::find_if(classes_.begin(), classes_.end(), [&rule](const Class& c) {
    return c.priority == rule.priority && Equal(c.mask, rule.mask);
  });
}

bool FlowTable::Add(const OnShard&, FlowRule& rule) {
  if (std::vector<FlowRule*>* list = ListOf(rule.kind)) {
    list->push_back(&rule);
    return true;
  }
  auto it = FindClass(rule);
  if (it == classes_.end()) {
    if (classes_.size() >= kMaxClasses) return false;
    const auto behind = std::find_if(classes_.begin(), classes_.end(), [&rule](const Class& c) {
      return c.priority > rule.priority;
    });
    it = classes_.insert(behind, Class{rule.priority, rule.mask, {}});
  }
  absl::Cleanup prune = [&] { Prune(it, rule.value); };
  it->rules[rule.value].push_back(&rule);
  std::move(prune).Cancel();
  return true;
}

// Removes the value, and then the class, if no rule is left in it.
void FlowTable::Prune(std::vector<Class>::iterator it, const roce::FlowKey& value) {
  const auto same = it->rules.find(value);
  if (same != it->rules.end() && same->second.empty()) it->rules.erase(same);
  if (it->rules.empty()) classes_.erase(it);
}

void FlowTable::Remove(const OnShard&, FlowRule& rule) {
  if (std::vector<FlowRule*>* list = ListOf(rule.kind)) {
    std::erase(*list, &rule);
    return;
  }
  const auto it = FindClass(rule);
  assert(it != classes_.end());
  const auto same = it->rules.find(rule.value);
  assert(same != it->rules.end());
  std::erase(same->second, &rule);
  Prune(it, rule.value);
}

}  // namespace roci::dataplane
