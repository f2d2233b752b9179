// One generation of libibverbs, which the build gives: ROCI_PRIVATE_ABI is its number,
// ROCI_LAYOUT_A its layout, and ROCI_LAYOUT_B the later one if the number has two.
#include "verbs_provider/base/generation.h"

#include <cstdio>
#include <cstdlib>

#include "verbs_provider/abi/generations.h"
#include "verbs_provider/generations/layouts.h"
#include "verbs_provider/generations/symbol_versions.h"
#include "verbs_provider/verbs/verbs_ops.h"

#define ROCI_JOIN_EXPANDED(a, b) a##b
#define ROCI_JOIN(a, b) ROCI_JOIN_EXPANDED(a, b)
// The number is part of the name, so that a plugin cannot register with another generation.
#define ROCI_REGISTER ROCI_JOIN(verbs_register_driver_, ROCI_PRIVATE_ABI)

extern "C" void ROCI_REGISTER(const verbs_device_ops* ops);

namespace roci::provider {
namespace {

#define ROCI_LAYOUT ROCI_LAYOUT_A
namespace layout_a {
#include "verbs_provider/generations/generation_of_layout.inc"
}  // namespace layout_a
#undef ROCI_LAYOUT

#ifdef ROCI_LAYOUT_B
#define ROCI_LAYOUT ROCI_LAYOUT_B
namespace layout_b {
#include "verbs_provider/generations/generation_of_layout.inc"
}  // namespace layout_b
#undef ROCI_LAYOUT
#endif

const Generation* FindLoaded() {
  const abi::LibibverbsGeneration* found =
      abi::FindGeneration(ROCI_PRIVATE_ABI, NewestPublicVersion());
  if (found == nullptr) return nullptr;
  if (found->layout == ROCI_LAYOUT_A) return &layout_a::kGeneration;
#ifdef ROCI_LAYOUT_B
  if (found->layout == ROCI_LAYOUT_B) return &layout_b::kGeneration;
#endif
  return nullptr;
}

// Constant after RegisterWithLibibverbs.
const Generation* loaded = nullptr;

}  // namespace

const Generation& LoadedGeneration() { return *loaded; }

bool RegisterWithLibibverbs(const verbs_device_ops* ops) {
  loaded = FindLoaded();
  if (loaded != nullptr) {
    ROCI_REGISTER(ops);
    return true;
  }
  const char* level = secure_getenv("VERBS_LOG_LEVEL");
  if (level != nullptr && atoi(level) >= 1) {
    fprintf(stderr,
            "libroci: this libibverbs has the private ABI %d and %s%d, of which the layout is not "
            "known; its programs find no devices\n",
            ROCI_PRIVATE_ABI, abi::kPublicVersion, NewestPublicVersion());
  }
  return false;
}

}  // namespace roci::provider
