// Address handles that the program has destroyed and the daemon still has. Creating one with the
// same address vector takes it back, without a round trip to the daemon.
//
// libibverbs' address handles are often short-lived: one for each datagram or each peer that
// answers.
#pragma once

#include <cstdint>

#include "verbs_provider/abi/session.h"
#include "verbs_provider/base/spin_lock.h"

namespace roci::provider {

/// Key of a parked address handle: the arguments of its creation. Unused bytes of `attr` are zero.
struct AhKey {
  uint32_t pd;  // handle
  roci_abi_ah_attr attr;
};

/// The parked address handles of one session. Thread-safe, but not in a forked child (see
/// SpinLock).
class ParkedAhs {
 public:
  static constexpr uint32_t kSets = 16;  // a key belongs to one of them
  static constexpr uint32_t kWays = 4;   // handles in a set

  /// A daemon's address handle. `paths`: roci_abi_doorbells::paths when it was requested. An
  /// address handle whose path may have changed since is not taken back.
  struct Parked {
    uint32_t handle;
    uint32_t paths;
  };

  /// True: `*handle` belongs to the caller.
  bool Take(const AhKey& key, uint32_t paths, uint32_t* handle);
  /// Takes ownership of `parked`. Returns a handle that the caller must destroy: one that was
  /// replaced (first those that cannot be taken back), parked.handle if its path may have changed
  /// since it was requested, or ROCI_ABI_NO_HANDLE. `paths`: the current value; 0, which the daemon
  /// may not report: nothing is parked.
  uint32_t Park(const AhKey& key, Parked parked, uint32_t paths);
  /// Removes a handle of protection domain `pd` (a handle; ROCI_ABI_NO_HANDLE: of any), which the
  /// caller must destroy. ROCI_ABI_NO_HANDLE: there is none.
  uint32_t Remove(uint32_t pd);

 private:
  struct Entry {
    AhKey key = {};
    Parked parked = {ROCI_ABI_NO_HANDLE, 0};
  };
  struct Set {
    Entry entries[kWays];
    uint32_t next = 0;  // to be replaced
  };
  static uint32_t SetOf(const AhKey& key);

  SpinLock lock_;
  Set sets_[kSets];
};

}  // namespace roci::provider
