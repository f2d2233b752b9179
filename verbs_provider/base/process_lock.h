// The lock of the plugin's lists of sessions, contexts and channels. The fork handlers hold it
// across fork, so that a child gets consistent lists and a free lock.
#pragma once

namespace roci::provider {

/// Holds the lock. Lock order: RegistrationLock, this lock, a session's lock. Not recursive; never
/// taken by post or poll.
class ProcessLock {
 public:
  ProcessLock();
  ~ProcessLock();
  ProcessLock(const ProcessLock&) = delete;
  ProcessLock& operator=(const ProcessLock&) = delete;

  /// For the fork handlers only.
  static void BeforeFork();
  static void AfterFork();
};

}  // namespace roci::provider
