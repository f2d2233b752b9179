#include "tools/judge/flow_table.h"

#include <bit>

#include "memory/split_mix.h"
#include "tools/judge/sent_requests.h"

namespace roci::tools::judge {
namespace {

// Limit of flows of the opposite direction among which a pair is looked for.
constexpr size_t kMostCandidates = 4096;

uint64_t Mix(uint64_t hash, uint64_t word) {
  return std::rotl((hash ^ word) * memory::kGoldenRatio64, 29);
}

}  // namespace

size_t FlowTable::Hash::operator()(const FlowKey& key) const {
  const auto src = std::bit_cast<std::array<uint64_t, 2>>(key.src.bytes);
  const auto dst = std::bit_cast<std::array<uint64_t, 2>>(key.dst.bytes);
  uint64_t hash = Mix(Mix(src[0], src[1]), Mix(dst[0], dst[1]));
  hash = Mix(hash, uint64_t{key.dest_qpn} << 32 | key.interface);
  return Mix(hash, key.vlan);
}

FlowKey FlowTable::DirectionOf(const FlowKey& key) {
  FlowKey direction = key;
  direction.dest_qpn = 0;
  return direction;
}

Flow* FlowTable::FindOrAdd(const FlowKey& key) {
  for (Flow* flow : last_) {
    if (flow != nullptr && flow->key == key) return flow;
  }
  auto at = by_key_.find(key);
  if (at == by_key_.end()) {
    if (flows_.size() == kMostFlows) return nullptr;
    Flow& added = flows_.emplace_back();
    added.key = key;
    by_direction_[DirectionOf(key)].push_back(&added);
    at = by_key_.emplace(key, &added).first;
  }
  last_[turn_ ^= 1] = at->second;
  return at->second;
}

void FlowTable::Pair(Flow& flow, roce::Psn psn) {
  FlowKey opposite = DirectionOf(flow.key);
  std::swap(opposite.src, opposite.dst);
  const auto at = by_direction_.find(opposite);
  if (at == by_direction_.end()) return;
  Flow* found = nullptr;
  size_t looked = 0;
  for (Flow* other : at->second) {
    if (++looked > kMostCandidates) return;
    if (other == &flow || other->peer != nullptr || other->transport != flow.transport) continue;
    if (!other->requests.known || !MayBeAnswered(*other, psn)) continue;
    if (found != nullptr) return;  // not the only one
    found = other;
  }
  if (found == nullptr) return;
  flow.peer = found;
  found->peer = &flow;
}

}  // namespace roci::tools::judge
