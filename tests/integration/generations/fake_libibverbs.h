// What the stand-in for a libibverbs of another generation shows the test (fake_libibverbs.cc).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

struct FakeLibibverbs {
  const void* driver;       // what the plugin registered, a verbs_device_ops
  int registrations;        // how often
  size_t context_offset;    // of the ibv_context in this generation's verbs_context
  void* allocated;          // by _verbs_init_and_alloc_context
  void* operations_of;      // whose operations were set
  void* const* operations;  // the table that was set
  void* uninitialised;      // by verbs_uninit_context
};

extern "C" FakeLibibverbs fake_libibverbs;
