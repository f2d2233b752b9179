// Calls between a context's copies, for the files that execute commands.
#pragma once

#include <time.h>

#include <optional>
#include <type_traits>

#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/shard_client.h"

namespace roci::dataplane {

// As Lcore::Call, but f runs when no copy of the context is pending, or when one takes long; see
// HasUnfinishedCopies().
template <class F>
auto ShardClient::CallBetweenCopies(F&& f) -> std::invoke_result_t<F&, const OnShard&> {
  using Result = std::invoke_result_t<F&, const OnShard&>;
  if constexpr (std::is_void_v<Result>) {
    const auto try_once = [&](const OnShard& shard) {
      const AppCopies& copies = context_->copies();
      if (!copies.IsIdle(shard) && !copies.IsStalled()) return false;
      if (!copies.IsIdle(shard)) settled_at_end_ = copies.settled() + 1;
      f(shard);
      return true;
    };
    if (lcore_->Call(try_once)) return;
    // A copy takes some tens of microseconds.
    constexpr timespec kCheckPeriod{0, 20'000};
    while (!lcore_->CallInRound(try_once)) nanosleep(&kCheckPeriod, nullptr);
  } else {
    std::optional<Result> result;
    CallBetweenCopies([&](const OnShard& shard) { result = f(shard); });
    return *std::move(result);
  }
}

}  // namespace roci::dataplane
