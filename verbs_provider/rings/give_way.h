// Yields or sleeps while a thread of the program waits for the daemon.
#pragma once

#include "verbs_provider/rings/doorbell.h"

namespace roci::provider {

/// Yields the processor. False, without a yield, if recent yields of this thread took long
/// (abi/yield_judge.h): the caller should sleep.
bool TryYield();

/// This thread begins to wait for the daemon: before the first GiveWay().
void BeginWaiting();

/// Yields or sleeps, whichever is better beside the program's other waiting threads (turns.h), or
/// returns at once. Sleeps up to 2 ms; up to 1 ms of it because the daemon's thread does not get a
/// processor (lcore_progress.h). `bells`: of the session that is waited for.
void GiveWay(const Doorbells& bells);

/// In the child of a fork: only the calling thread is left.
void ForgetOtherThreads();

}  // namespace roci::provider
