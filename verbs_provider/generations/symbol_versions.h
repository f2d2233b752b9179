// The symbol versions of the libibverbs in this process.
#pragma once

namespace roci::provider {

/// N of the newest IBVERBS_1.N; 0 if libibverbs cannot be read.
int NewestPublicVersion();

}  // namespace roci::provider
