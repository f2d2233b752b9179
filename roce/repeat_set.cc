// Definitions of RepeatSet.
#include "roce/repeat_set.h"

#include "roce/qp_context.h"

namespace roci::roce {

void RepeatSet::DropBefore(Psn psn) { Add(psn, MissingEth()); }

bool RepeatSet::Has(Psn psn) const { return Next(psn) == psn; }

void RepeatSet::Add(Psn psn, const MissingEth& missing) {
  MissingEth all = missing;
  for (std::optional<Psn> left = Next(psn); left; left = Next(*left + 1)) {
    const uint32_t distance = StepsForward(psn, *left);
    if (distance < MissingEth::kPsns) all.Add(distance);
  }
  first_ = psn;
  missing_ = all;
}

std::optional<Psn> RepeatSet::Next(Psn from) const {
  const uint32_t begin = Distance(first_, from) < 0 ? 0 : StepsForward(first_, from);
  for (uint32_t i = begin; i < MissingEth::kPsns; ++i) {
    if (missing_.Has(i)) return first_ + i;
  }
  return std::nullopt;
}

}  // namespace roci::roce
