// Helpers of the conversion tests: memory with a pattern, registrations, and checks of mappings.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "verbs_provider/memory/convert.h"
#include "verbs_provider/memory/maps_reader.h"

namespace roci::provider {

using Clock = std::chrono::steady_clock;
inline constexpr uint64_t kPage = 4096;
inline constexpr int kReadWrite = PROT_READ | PROT_WRITE;

inline std::vector<std::pair<uint64_t, uint64_t>> g_told;  // arguments of the hook
inline std::function<void()> g_when_told;

inline bool Told(void* argument, uint64_t va, uint64_t length) {
  EXPECT_EQ(argument, &g_told);
  g_told.emplace_back(va, length);
  if (g_when_told) g_when_told();
  return true;
}

inline uint64_t Va(const volatile void* at) { return reinterpret_cast<uint64_t>(at); }

// One registration.
class Registration {
 public:
  Registration(const volatile void* at, uint64_t length,
               ConvertPolicy policy = ConvertPolicy::kConvert, bool writable = true) {
    const RegistrationLock lock;
    error = AcquireMemory(lock, Va(at), length, writable, false, policy, &extents, &held_);
  }
  ~Registration() { Release(); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  void Release() {
    const RegistrationLock lock;
    ReleaseMemory(lock, &held_);
    CloseExtents(&extents);
    extents.count = 0;
  }
  bool AllConverted() const {
    bool all = error == 0 && extents.count > 0;
    for (uint32_t i = 0; i < extents.count; ++i) {
      all = all && extents.items[i].kind == ExtentKind::kConverted && extents.items[i].writable;
    }
    return all;
  }
  bool NoneConverted() const {
    bool none = error == 0 && extents.count > 0;
    for (uint32_t i = 0; i < extents.count; ++i) {
      none = none && extents.items[i].kind != ExtentKind::kConverted;
    }
    return none;
  }

  MemoryExtents extents;
  int error = 0;

 private:
  ConvertedRanges held_;
};

// Memory apart from all other mappings. Directly above a thread's stack the kernel would merge the
// two, and conversion leaves stacks alone.
inline char* Anonymous(uint64_t length, int flags = MAP_PRIVATE) {
  constexpr uint64_t kApart = 2U << 20;  // longer than any guard of a stack
  void* reserved =
      mmap(nullptr, length + 2 * kApart, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(reserved, MAP_FAILED);
  void* at = mmap(static_cast<char*>(reserved) + kApart, length, kReadWrite,
                  flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  EXPECT_NE(at, MAP_FAILED);
  return static_cast<char*>(at);
}

inline MapsLine LineOf(const volatile void* at) {
  MapsReader reader;
  MapsLine line;
  while (reader.Next(&line)) {
    if (line.begin <= Va(at) && Va(at) < line.end) return line;
  }
  return MapsLine{};
}

inline bool IsPrivate(const volatile void* at) {
  const MapsLine line = LineOf(at);
  return !line.shared && line.inode == 0 && line.end != 0;
}

inline void Fill(char* at, uint64_t length, unsigned seed) {
  for (uint64_t i = 0; i < length; ++i) at[i] = static_cast<char>((i * 31 + seed) >> 3);
}
inline bool Holds(const char* at, uint64_t length, unsigned seed) {
  for (uint64_t i = 0; i < length; ++i) {
    if (at[i] != static_cast<char>((i * 31 + seed) >> 3)) return false;
  }
  return true;
}

/// Tests that convert memory of this process.
class Convert : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(InitConvert({Told, &g_told}), 0);
    if (!CanConvert()) GTEST_SKIP() << "this process may not use userfaultfd";
    g_told.clear();
    g_when_told = nullptr;
    ASSERT_EQ(ConversionCount(), 0U);
  }
  void TearDown() override { EXPECT_EQ(ConversionCount(), 0U); }
};

}  // namespace roci::provider
