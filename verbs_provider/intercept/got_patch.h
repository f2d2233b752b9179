// Replaces imported functions of one loaded library, in its global offset table. Other libraries
// are not affected.
#pragma once

#include <cstddef>

namespace roci::provider {

// One imported function. `*original` is set to the function that the library called before, before
// the first call can reach `replacement`. It is unchanged if the library does not import the
// function.
struct SlotPatch {
  const char* symbol;
  void* replacement;
  void** original;
  bool found = false;  // set by PatchLibrary
};

// Patches the slots of the loaded library whose file name is `soname` or begins with `soname` and a
// dot (libx.so.1.2 for libx.so.1). False, with nothing changed, if no such library is loaded or its
// tables could not be made writable. Supports 64-bit ELF with eager and lazy binding, full and
// partial RELRO.
bool PatchLibrary(const char* soname, SlotPatch* patches, size_t count);

}  // namespace roci::provider
