#include "control/manage/show_memory.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "control/session/memory_reach.h"
#include "dataplane/shard/shard_client.h"
#include "memory/key_table.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

std::string Hex(uint64_t value) { return absl::StrFormat("0x%x", value); }

Json AccessNames(memory::Access access) {
  struct Name {
    memory::Access bit;
    const char* text;
  };
  constexpr Name kNames[] = {
      {memory::Access::kLocalWrite, "local_write"},
      {memory::Access::kRemoteWrite, "remote_write"},
      {memory::Access::kRemoteRead, "remote_read"},
      {memory::Access::kRemoteAtomic, "remote_atomic"},
      {memory::Access::kWindowBind, "window_bind"},
      {memory::Access::kZeroBased, "zero_based"},
      {memory::Access::kOnDemand, "on_demand"},
      {memory::Access::kHugeTlb, "hugetlb"},
      {memory::Access::kFlushGlobal, "flush_global"},
      {memory::Access::kFlushPersistent, "flush_persistent"},
      {memory::Access::kRelaxedOrdering, "relaxed_ordering"},
  };
  Json out = Json::array();
  for (const Name& name : kNames) {
    if (memory::Includes(access, name.bit)) out.push_back(name.text);
  }
  return out;
}

const char* KindOf(const memory::RegionInfo& info) {
  if (info.window) return "window";
  if (info.list) return "list";
  return info.null_region ? "null" : "region";
}

// Why not all of a region is mapped now. `registered`: the reason at registration.
NotMapped WhyNotMapped(const memory::RegionInfo& info, NotMapped registered,
                       const ReachFacts& facts) {
  if (info.direct_length == info.length) return NotMapped::kMapped;
  if (registered != NotMapped::kMapped) return registered;
  return facts.has_blocked ? NotMapped::kHasBlocked : NotMapped::kGivenUp;
}

const char* HowReached(const memory::RegionInfo& info, NotMapped why, const ReachFacts& facts) {
  if (info.window || info.list) return "regions";
  if (info.null_region) return "nothing";
  return why != NotMapped::kMapped && info.direct_length != 0 ? "mixed" : WayOf(why, facts);
}

// Both null for kMapped.
void AddReasons(NotMapped why, const ReachFacts& facts, Json& out) {
  const bool is_mapped = why == NotMapped::kMapped;
  out["why_not_mapped"] = is_mapped ? Json() : Json(ReasonOf(why));
  out["faster_with"] = is_mapped ? Json() : Json(FasterWith(why, facts));
}

Json ShowMr(Json mr, uint32_t handle, const memory::RegionInfo& info, NotMapped registered,
            const ReachFacts& facts) {
  const bool is_region = !info.window && !info.list && !info.null_region;
  const NotMapped why = is_region ? WhyNotMapped(info, registered, facts) : NotMapped::kMapped;
  mr["handle"] = handle;
  mr["kind"] = KindOf(info);
  mr["pd"] = info.pd;
  mr["key"] = Hex(info.key);
  mr["address"] = Hex(info.va);
  mr["iova"] = Hex(info.iova);
  mr["length"] = info.length;
  mr["access"] = AccessNames(info.access);
  mr["reached_by"] = HowReached(info, why, facts);
  AddReasons(why, facts, mr);
  mr["mapped_bytes"] = info.direct_length;
  mr["extents"] = info.extents;
  return mr;
}

}  // namespace

const memory::RegionInfo* MemoryRows::Find(uint32_t number) const {
  const auto found = std::lower_bound(
      infos_.begin(), infos_.end(), number,
      [](const memory::RegionInfo& info, uint32_t wanted) { return info.key >> 8 < wanted; });
  return found != infos_.end() && found->key >> 8 == number ? &*found : nullptr;
}

// Sessions may share a key table: adds only the keys of `session`. The upper 24 bits of a key are
// constant.
bool MemoryRows::AddSome(const Session& session, const Json& head, size_t most, Json& out) {
  if (stage_ == Stage::kStart) {
    infos_ = session.shard()->Do(dataplane::ListRegions{});
    stage_ = Stage::kRegions;
  }
  const ReachFacts facts = session.reach_facts();
  const auto add = [&](uint32_t handle, uint32_t number, NotMapped registered) {
    const memory::RegionInfo* info = Find(number);
    if (info != nullptr) out.push_back(ShowMr(head, handle, *info, registered, facts));
  };
  const auto add_some = [&](const auto& table, const auto& add_one) {
    auto it = table.From(next_handle_);
    for (; most != 0 && it != table.end(); --most, ++it) {
      add_one(it->first, it->second);
      next_handle_ = it->first + 1;
    }
    if (it != table.end()) return;
    stage_ = static_cast<Stage>(static_cast<uint8_t>(stage_) + 1);
    next_handle_ = 0;
  };
  const auto add_unmapped = [&](uint32_t handle, const auto&) {
    add(handle, handle, NotMapped::kMapped);
  };
  if (stage_ == Stage::kRegions) {
    add_some(session.mrs(), [&](uint32_t handle, const MrRecord& record) {
      add(handle, record.key >> 8, record.not_mapped);
    });
  }
  if (stage_ == Stage::kWindows) add_some(session.mws(), add_unmapped);
  if (stage_ == Stage::kLists) add_some(session.lists(), add_unmapped);
  return stage_ != Stage::kEnd;
}

Json ShowMemoryOf(const Session& session) {
  if (session.mrs().size() == 0) return {};
  const ReachFacts facts = session.reach_facts();
  NotMapped why = NotMapped::kMapped;
  bool some_is_mapped = false;
  for (const auto& [handle, record] : session.mrs()) {
    const bool is_mapped = record.not_mapped == NotMapped::kMapped;
    why =
        std::max(why, is_mapped && facts.has_blocked ? NotMapped::kHasBlocked : record.not_mapped);
    some_is_mapped |= is_mapped && !facts.has_blocked;
  }
  const bool is_mixed = some_is_mapped && why != NotMapped::kMapped;
  Json out = {{"reached_by", is_mixed ? "mixed" : WayOf(why, facts)}};
  AddReasons(why, facts, out);
  return out;
}

}  // namespace roci::control
