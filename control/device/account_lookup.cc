#include "control/device/account_lookup.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "control/loop/no_memory.h"

namespace roci::control {

bool AccountLookup::Await(uid_t uid, bool is_trusted, std::function<void()> then) {
  if (is_trusted || users_.Knows(uid)) {
    then();
    return true;
  }
  // Charged to the ID itself while its account is not known.
  const std::shared_ptr<User> user = users_.Get(uid);
  QuotaShare descriptors(user->descriptors, kDescriptors);
  if (!descriptors.ok()) return false;
  const auto [waiting, is_first] = waiting_.try_emplace(uid);
  absl::Cleanup undo = [&, waiting = waiting, is_first = is_first] {
    if (is_first) waiting_.erase(waiting);
  };
  waiting->second.push_back({user, std::move(descriptors), std::move(then)});
  if (is_first) {
    const auto account = std::make_shared<uid_t>(uid);
    const uint64_t call = calls_.Run(
        user_, 1, [=, find = account_of_] { *account = find(uid); },
        [this, uid, account] { Finish(uid, *account); });
    if (call == 0) return false;
  }
  std::move(undo).Cancel();
  return true;
}

void AccountLookup::Finish(uid_t uid, uid_t account) {
  // Without memory the ID stays an account of its own.
  (void)OrRefuse([&] {
    users_.Learn(uid, account);
    return absl::OkStatus();
  });
  const auto waiting = waiting_.extract(uid);
  for (Waiting& each : waiting.mapped()) {
    each.descriptors.Reset();
    each.then();
  }
}

}  // namespace roci::control
