// Attributes of files (fattr3, sattr3 and wcc_data of RFC 1813): from the kernel to XDR, and back.
#pragma once

#include <nfs3.h>

#include "tests/interop/rpcrdma/nfs/exported_folder.h"
#include "tests/interop/rpcrdma/nfs/status.h"

namespace rpcrdma {

Attributes AttributesOf(const struct statx& from, uint64_t file_system);
Time TimeOf(const struct statx_timestamp& from);
// Attributes for replies (post_op_attr). PostOf() reads them anew.
PostAttributes Present(const Attributes& attributes);
PostAttributes PostOf(const Node& node, uint64_t file_system);
// Weak cache consistency data (wcc_data of RFC 1813): the attributes of when `node` was opened, and
// the present ones. For a node that could not be opened: neither.
WccData WccOf(const Node& node, uint64_t file_system);

// Sets the attributes that are to be set.
Status Apply(const Node& node, const SetAttributes& attributes);
Status SetSizeOf(const Node& node, uint64_t size);
// Keeps the verifier of an exclusive CREATE in the file's times (RFC 1813, 3.3.8), and compares it.
Status StoreVerifier(const Node& node, const Verifier& verifier);
bool HasVerifier(const Node& node, const Verifier& verifier);

}  // namespace rpcrdma
