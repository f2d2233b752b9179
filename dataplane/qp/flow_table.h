// Flow rules: which raw packet queue pair gets a frame that is no packet of another queue pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "dataplane/base/on_shard.h"
#include "dataplane/types/flow_rule.h"
#include "memory/split_mix.h"
#include "roce/flow_key.h"

namespace roci::dataplane {

// Rules of one priority and mask are a class with one hash table. A
// frame costs one lookup per class; kMaxClasses bounds their number.
class FlowTable {
 public:
  static constexpr size_t kMaxClasses = 64;

  // False, with nothing changed: kMaxClasses is reached.
  bool Add(const OnShard&, FlowRule& rule);
  void Remove(const OnShard&, FlowRule& rule);

  bool empty(const OnShard&) const {
    return classes_.empty() && all_default_.empty() && multicast_default_.empty();
  }
  std::span<FlowRule* const> sniffers(const OnShard&) const { return sniffers_; }

  // Calls take(rule) for every rule that gets the frame: the matching rules of each class in order;
  // stops after a class with a rule that consumes the frame. After all classes: the default rules.
  // True: a normal rule consumed the frame.
  template <class Take>
  bool Match(const OnShard&, const roce::FlowKey& key, Take&& take) const {
    for (const Class& c : classes_) {
      const auto found = c.rules.find(Masked(key, c.mask));
      if (found == c.rules.end()) continue;
      bool trapped = false;
      for (FlowRule* rule : found->second) {
        trapped |= !rule->passes_on;
        take(*rule);
      }
      if (trapped) return true;
    }
    const bool is_multicast = key.dst_mac.IsGroup();
    const std::vector<FlowRule*>& rest =
        is_multicast && !multicast_default_.empty() ? multicast_default_ : all_default_;
    for (FlowRule* rule : rest) take(*rule);
    return false;
  }

 private:
  struct Hash {
    size_t operator()(const roce::FlowKey& key) const {
      uint64_t hash = 0;
      for (const uint64_t word : key.words()) hash = (hash ^ word) * memory::kGoldenRatio64;
      return hash ^ hash >> 32;
    }
  };
  struct Same {
    bool operator()(const roce::FlowKey& a, const roce::FlowKey& b) const { return Equal(a, b); }
  };
  struct Class {
    uint16_t priority;
    roce::FlowKey mask;
    std::unordered_map<roce::FlowKey, std::vector<FlowRule*>, Hash, Same> rules;
  };

  std::vector<FlowRule*>* ListOf(FlowKind kind);
  std::vector<Class>::iterator FindClass(const FlowRule& rule);
  void Prune(std::vector<Class>::iterator it, const roce::FlowKey& value);

  std::vector<Class> classes_;  // by priority, then by age
  std::vector<FlowRule*> all_default_;
  std::vector<FlowRule*> multicast_default_;
  std::vector<FlowRule*> sniffers_;
};

}  // namespace roci::dataplane
