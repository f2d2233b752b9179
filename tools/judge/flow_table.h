// All flows of a capture, and which belong together.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "tools/judge/flow.h"

namespace roci::tools::judge {

class FlowTable {
 public:
  // Further flows are not followed.
  static constexpr size_t kMostFlows = 65536;

  // Null: there are too many.
  Flow* FindOrAdd(const FlowKey& key);
  // `flow` has a response with `psn` and no peer: finds the one flow of the opposite direction
  // whose open requests have it.
  void Pair(Flow& flow, roce::Psn psn);

  std::deque<Flow>& flows() { return flows_; }
  const std::deque<Flow>& flows() const { return flows_; }

 private:
  struct Hash {
    size_t operator()(const FlowKey& key) const;
  };
  // The flows of one direction between two addresses have one key with the queue pair number 0.
  static FlowKey DirectionOf(const FlowKey& key);

  std::deque<Flow> flows_;  // stable addresses, in the order of their first packets
  std::unordered_map<FlowKey, Flow*, Hash> by_key_;
  std::unordered_map<FlowKey, std::vector<Flow*>, Hash> by_direction_;
  Flow* last_[2] = {};  // found last: most packets belong to one of two
  unsigned turn_ = 0;
};

}  // namespace roci::tools::judge
