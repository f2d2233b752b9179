// The slab allocator: packing, and release of empty chunks.
#include "dataplane/base/slab.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>

namespace roci::dataplane {
namespace {

TEST(Slab, PacksObjectsAndFreesEmptyChunks) {
  Slab slab(100, /*huge=*/false);  // 128 with alignment
  constexpr size_t kPerChunk = Slab::kChunkBytes / 128;
  std::set<std::byte*> objects;
  for (size_t i = 0; i < 3 * kPerChunk; ++i) {
    auto* object = static_cast<std::byte*>(slab.Take());
    ASSERT_NE(object, nullptr);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(object) % 64, 0u);
    std::memset(object, 0x77, 100);
    objects.insert(object);
  }
  EXPECT_EQ(objects.size(), 3 * kPerChunk);
  EXPECT_EQ(slab.chunks(), 3u);
  std::byte* last = nullptr;
  for (std::byte* object : objects) {
    EXPECT_TRUE(last == nullptr || object - last >= 128);
    last = object;
    slab.Give(object);
  }
  EXPECT_EQ(slab.chunks(), 1u);
  EXPECT_NE(slab.Take(), nullptr);
}

}  // namespace
}  // namespace roci::dataplane
