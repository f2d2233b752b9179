// Replaces functions that one loaded library calls, for that library alone.
#pragma once

#include <cstddef>

namespace roci::provider {

// One imported function. `*original` is set to what the library called before, and before the first
// call can reach `replacement`; it is left alone where the library does not import the function.
struct SlotPatch {
  const char* symbol;
  void* replacement;
  void** original;
  bool found = false;  // set by PatchLibrary
};

// Patches the slots of the loaded library whose file is named `soname` (or `soname` and more, as
// libx.so.1.2 for libx.so.1). False if there is none, or its tables could not be made writable;
// then nothing has changed. Eager and lazy binding, full and partial RELRO. 64-bit ELF.
bool PatchLibrary(const char* soname, SlotPatch* patches, size_t count);

}  // namespace roci::provider
