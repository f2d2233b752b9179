#include "control/device/subordinate_ids.h"

#include <shadow/subid.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace roci::control {
namespace {

// Libsubid logs to the given stream, by default stderr.
bool Init() {
  static FILE* const nowhere = std::fopen("/dev/null", "we");
  return nowhere != nullptr && subid_init("rocid", nowhere);
}

}  // namespace

uid_t AccountOf(uid_t uid) {
  static std::mutex mutex;  // libsubid is not thread-safe
  const std::lock_guard guard(mutex);
  static const bool is_ready = Init();
  if (!is_ready) return uid;
  uid_t* found = nullptr;
  const int count = subid_get_uid_owners(uid, &found);
  if (count <= 0) return uid;
  const std::unique_ptr<uid_t, decltype(&std::free)> owners(found, &std::free);
  return *std::min_element(found, found + count);
}

}  // namespace roci::control
