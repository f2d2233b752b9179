// Turns private anonymous memory of the app into a mapping of a sealed memfd that the daemon can
// map too, in place and without losing a write, and back again.
#pragma once

#include <cstdint>

#include "verbs_provider/memory/app_memory.h"

namespace roci::provider {

/// What the daemon may map of the program's memory.
enum class ConvertPolicy : uint8_t {
  kMapFiles,   ///< Shared mappings of files. Private memory is left as it is.
  kProcessVm,  ///< Nothing.
  kConvert,    ///< Shared mappings, and all private anonymous memory that can be converted.
};

/// Registrations that may hold converted memory at one time; past it regions go through process_vm.
inline constexpr uint32_t kMaxConversions = 4096;

/// Called with the lock held, just before [va, va + length) turns private again while a
/// registration may still use it (in the fork prepare handler). It must tell every session's daemon
/// to use process_vm there and wait for the answer; false when some daemon could not be told (its
/// session is gone).
struct ConvertHook {
  bool (*on_unconverted)(void* argument, uint64_t va, uint64_t length);
  void* argument;
};

/// Holds the process-wide lock that fork's prepare handler also takes. Hold it from AcquireMemory
/// until the daemon has answered the registration, so that no fork comes between. Lock order: this
/// one first, then any session's. Not recursive. Never taken by post or poll.
class RegistrationLock {
 public:
  RegistrationLock();
  ~RegistrationLock();
  RegistrationLock(const RegistrationLock&) = delete;
  RegistrationLock& operator=(const RegistrationLock&) = delete;
};

/// What one registration holds; the provider keeps it in its ibv_mr and gives it back to
/// ReleaseMemory.
struct ConvertedRanges {
  uint64_t id = 0;  ///< 0: nothing
};

/// Once per process, before the first AcquireMemory: installs the fork handlers and the hook (later
/// calls change the hook). 0 or an errno.
int InitConvert(const ConvertHook& hook);
/// A descriptor of /dev/userfaultfd that the daemon opened, for processes that may not call
/// userfaultfd(2) themselves. Taken over; closed if one is there already.
void SetUserfaultfdDevice(int fd);
/// Whether this process can convert memory at all (checked once, then remembered).
bool CanConvert();

/// Describes [va, va + length) as DescribeMemory does, after converting what `policy` wants
/// converted. Overlapping registrations share conversions. 0 or an errno; on failure nothing is
/// held. Descriptors in `extents` of kind kConverted stay this module's. No malloc. Costs about 0.3
/// ms per MiB of touched memory that is converted.
int AcquireMemory(const RegistrationLock& lock, uint64_t va, uint64_t length, bool writable,
                  bool on_demand, ConvertPolicy policy, MemoryExtents* extents,
                  ConvertedRanges* held);
/// After the daemon has forgotten the region (or its session is gone): lets go of what
/// AcquireMemory took, and turns memory that nobody uses any more private again.
void ReleaseMemory(const RegistrationLock& lock, ConvertedRanges* held);

/// Registrations that hold converted memory now, for tests and statistics.
uint32_t ConversionCount();

}  // namespace roci::provider
