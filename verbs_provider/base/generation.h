// Differences between libibverbs' generations. Each plugin is linked with one definition of these
// functions (generations/generation.cc); all other files are compiled once.
#pragma once

#include <cstddef>

#include "verbs_provider/base/provider_api.h"

namespace roci::provider {

struct Generation {
  size_t context_offset;  // of the ibv_context in libibverbs' verbs_context, which ends with it
  const verbs_context_ops* operations;
};

/// The generation of the libibverbs that has loaded the plugin, after RegisterWithLibibverbs().
const Generation& LoadedGeneration();

/// Registers the provider with libibverbs. False: libibverbs may have another layout, and is left
/// alone. `ops` must never be freed.
bool RegisterWithLibibverbs(const verbs_device_ops* ops);

}  // namespace roci::provider
