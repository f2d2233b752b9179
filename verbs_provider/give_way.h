// How a thread of the program gives the processor away while it waits for the daemon.
#pragma once

namespace roci::provider {

/// Yields. False, and no yield, where yields of this thread have lately taken long
/// (abi/yield_judge.h): the caller had better sleep.
bool TryYield();

/// Yields, or sleeps some 50 us (the kernel's timer slack) where that is better.
void GiveWay();

}  // namespace roci::provider
