// PSNs that a requester with selective repeat sends before anything else.
#pragma once

#include <optional>

#include "roce/headers.h"
#include "roce/types.h"

namespace roci::roce {

class RepeatSet {
 public:
  void Clear() { missing_ = MissingEth(); }
  // Adds `missing`, which counts from `psn`. Of what was in the set, PSNs before `psn` are dropped.
  void Add(Psn psn, const MissingEth& missing);
  // Drops PSNs before `psn`.
  void DropBefore(Psn psn);
  // The first PSN at or after `from`.
  std::optional<Psn> Next(Psn from) const;
  bool Has(Psn psn) const;

 private:
  Psn first_;  // of distance 0
  MissingEth missing_;
};

}  // namespace roci::roce
