// One generation of libibverbs, which the build gives: ROCI_PRIVATE_ABI is its number,
// ROCI_LAYOUT_A its layout. If one number has two layouts, libibverbs has the function
// ROCI_SYMBOL_OF_B with the later one, ROCI_LAYOUT_B.
#include "verbs_provider/base/generation.h"

#include "verbs_provider/generations/layouts.h"
#include "verbs_provider/verbs/verbs_ops.h"

#define ROCI_JOIN_EXPANDED(a, b) a##b
#define ROCI_JOIN(a, b) ROCI_JOIN_EXPANDED(a, b)
// The number is part of the name, so that a plugin cannot register with another generation.
#define ROCI_REGISTER ROCI_JOIN(verbs_register_driver_, ROCI_PRIVATE_ABI)

extern "C" void ROCI_REGISTER(const verbs_device_ops* ops);
#ifdef ROCI_SYMBOL_OF_B
extern "C" __attribute__((weak)) void ROCI_SYMBOL_OF_B();
#endif

namespace roci::provider {
namespace {

#define ROCI_LAYOUT ROCI_LAYOUT_A
namespace layout_a {
#include "verbs_provider/generations/generation_of_layout.inc"
}  // namespace layout_a
#undef ROCI_LAYOUT

#ifdef ROCI_SYMBOL_OF_B
#define ROCI_LAYOUT ROCI_LAYOUT_B
namespace layout_b {
#include "verbs_provider/generations/generation_of_layout.inc"
}  // namespace layout_b
#undef ROCI_LAYOUT
#endif

}  // namespace

const Generation& LoadedGeneration() {
#ifdef ROCI_SYMBOL_OF_B
  if (&ROCI_SYMBOL_OF_B != nullptr) return layout_b::kGeneration;
#endif
  return layout_a::kGeneration;
}

void RegisterWithLibibverbs(const verbs_device_ops* ops) { ROCI_REGISTER(ops); }

}  // namespace roci::provider
