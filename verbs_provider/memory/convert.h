// Conversion: replaces private anonymous memory of the program in place by a mapping of a sealed
// memfd, which the daemon can map, and restores it later. Concurrent writes are kept.
#pragma once

#include <cstdint>

#include "verbs_provider/base/no_cancellation.h"
#include "verbs_provider/memory/app_memory.h"

namespace roci::provider {

/// Which memory of the program the daemon may map.
enum class ConvertPolicy : uint8_t {
  kMapFiles,   ///< Shared mappings of files. Private memory is not converted.
  kProcessVm,  ///< Nothing.
  kConvert,    ///< Shared mappings, and all private anonymous memory that can be converted.
};

/// Most registrations with converted memory at one time; further regions use process_vm.
inline constexpr uint32_t kMaxConversions = 4096;

/// Called by the fork prepare handler, with the RegistrationLock held, before [va, va + length)
/// becomes private again while registrations still use it. Tells each session's daemon to use
/// process_vm for that range and waits for the answer. Returns false if a daemon could not be told
/// because its session has ended.
struct ConvertHook {
  bool (*on_unconverted)(void* argument, uint64_t va, uint64_t length);
  void* argument;
};

/// Holds the process-wide lock that fork's prepare handler also takes. Held from AcquireMemory
/// until the daemon has answered the registration, so that no fork happens in between. Lock order:
/// this lock before any session's. Not recursive. Never taken by post or poll.
class RegistrationLock {
 public:
  RegistrationLock();
  ~RegistrationLock();
  RegistrationLock(const RegistrationLock&) = delete;
  RegistrationLock& operator=(const RegistrationLock&) = delete;

 private:
  const NoCancellation no_cancellation_;  // its holder makes calls that are cancellation points
};

/// The converted memory of one registration: stored in the region's Mr, released by ReleaseMemory.
struct ConvertedRanges {
  uint64_t id = 0;  ///< 0: nothing
};

/// Called once per process, before the first AcquireMemory: installs the fork handlers and the
/// hook. Later calls only replace the hook. 0 or an errno.
int InitConvert(const ConvertHook& hook);
/// A descriptor of /dev/userfaultfd that the daemon opened, for processes that may not call
/// userfaultfd(2) themselves. Takes ownership; closes `fd` if there is such a descriptor already.
void SetUserfaultfdDevice(int fd);
/// Whether this process can convert memory at all. The first call tries it; later ones return the
/// same result.
bool CanConvert();

/// Converts [va, va + length) as `policy` says, then describes it as DescribeMemory does.
/// Overlapping registrations share conversions. 0 or an errno; on failure `*held` is empty. This
/// module owns the descriptors of extents of kind kConverted. Does not call malloc. Conversion
/// takes about 0.3 ms per MiB of touched memory.
int AcquireMemory(const RegistrationLock& lock, uint64_t va, uint64_t length, bool writable,
                  bool on_demand, ConvertPolicy policy, MemoryExtents* extents,
                  ConvertedRanges* held);
/// Ends the registration's use of the memory that AcquireMemory converted; memory without another
/// user becomes private again. Called after the daemon has deregistered the region or its session
/// has ended.
void ReleaseMemory(const RegistrationLock& lock, ConvertedRanges* held);

/// Registrations with converted memory now, for tests and statistics.
uint32_t ConversionCount();

}  // namespace roci::provider
