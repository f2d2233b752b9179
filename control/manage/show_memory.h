// The registered memory of sessions as JSON, for `roci show mrs` and `roci show apps`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "control/session/session.h"
#include "memory/key_table.h"

namespace roci::control {

// The regions, windows and lists of one session, in parts. Control thread.
class MemoryRows {
 public:
  // Appends at most `most` of them to `out`. Each is an object with the members of `head`. The
  // first call looks at all regions: later ones are not shown. False: none is left.
  bool AddSome(const Session& session, const nlohmann::json& head, size_t most,
               nlohmann::json& out);

 private:
  enum class Stage : uint8_t { kStart, kRegions, kWindows, kLists, kEnd };
  const memory::RegionInfo* Find(uint32_t number) const;

  Stage stage_ = Stage::kStart;
  uint32_t next_handle_ = 0;
  std::vector<memory::RegionInfo> infos_;  // by key
};

// How the session's regions are accessed, as of their registration; null if it has none.
nlohmann::json ShowMemoryOf(const Session& session);

}  // namespace roci::control
