// The one lock around the plugin's lists of sessions, contexts and channels. fork takes it first,
// so that a child finds the lists whole and the lock free.
#pragma once

namespace roci::provider {

/// Holds the lock. Lock order: RegistrationLock, this one, a session's own. Not recursive; never
/// taken by post or poll.
class ProcessLock {
 public:
  ProcessLock();
  ~ProcessLock();
  ProcessLock(const ProcessLock&) = delete;
  ProcessLock& operator=(const ProcessLock&) = delete;

  /// For fork's handlers.
  static void BeforeFork();
  static void AfterFork();
};

}  // namespace roci::provider
