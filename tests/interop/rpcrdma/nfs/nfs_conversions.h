// Values of rpcgen's types from and to those of the server.
#pragma once

#include <nfs3.h>

#include <cstring>
#include <span>
#include <string>

#include "tests/interop/rpcrdma/nfs/file_handle.h"

namespace rpcrdma {

inline std::span<const char> BytesOf(const Handle& handle) {
  return {handle.Handle_val, handle.Handle_len};
}

// The result points to `handle`.
inline Handle HandleFor(FileHandle* handle) { return {kHandleBytes, handle->data()}; }

inline PostHandle PresentHandle(FileHandle* handle) {
  PostHandle present{};
  present.follow = TRUE;
  present.PostHandle_u.handle = HandleFor(handle);
  return present;
}

inline std::string NameOf(const Name& name) { return {name.Name_val, name.Name_len}; }
inline std::string PathOf(const Path& path) { return {path.Path_val, path.Path_len}; }

}  // namespace rpcrdma
