// Finds the accounts of user IDs on helper threads, since subuid(5) may be a question to a server.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "control/device/blocking_calls.h"
#include "control/device/users.h"

namespace roci::control {

// Control thread only.
class AccountLookup {
 public:
  // Of a connection that waits: its socket and its process.
  static constexpr uint64_t kDescriptors = 2;

  // `users` and `calls` outlive this object. `account_of` may block; any thread.
  AccountLookup(Users& users, BlockingCalls& calls, uid_t (*account_of)(uid_t))
      : users_(users), calls_(calls), account_of_(account_of), user_(users.MakeInternal()) {}

  // Calls `then` when Users knows the account of `uid`: now, or after return. A trusted user
  // (HasRightsOfDaemon) has no account. False, with `then` never called: the descriptors of `uid`
  // do not suffice, or no thread can be started.
  bool Await(uid_t uid, bool is_trusted, std::function<void()> then);

 private:
  struct Waiting {
    std::shared_ptr<User> user;
    QuotaShare descriptors;
    std::function<void()> then;
  };
  void Finish(uid_t uid, uid_t account);

  Users& users_;
  BlockingCalls& calls_;
  uid_t (*const account_of_)(uid_t);
  const std::shared_ptr<User> user_;  // that has the threads
  std::map<uid_t, std::vector<Waiting>> waiting_;
};

}  // namespace roci::control
