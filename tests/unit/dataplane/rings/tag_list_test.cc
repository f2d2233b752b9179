// The list of tagged buffers: comparison with a simple reference model, and each rule for
// unexpected messages.
#include "dataplane/rings/tag_list.h"

#include <gtest/gtest.h>

#include <list>
#include <map>
#include <optional>
#include <random>
#include <vector>

namespace roci::dataplane {
namespace {

TaggedBuffer Buffer(uint32_t handle, uint64_t tag, uint64_t mask, uint64_t wr_id = 0) {
  TaggedBuffer buffer;
  buffer.handle = handle;
  buffer.tag = tag;
  buffer.mask = mask;
  buffer.wr_id = wr_id;
  return buffer;
}

TEST(TagList, TheOldestMatchingBufferWins) {
  TagList list(4);
  ASSERT_TRUE(list.Add(Buffer(0, 0x10, 0xF0, 100)));
  ASSERT_TRUE(list.Add(Buffer(1, 0x12, 0xFF, 101)));
  ASSERT_TRUE(list.Add(Buffer(2, 0, 0, 102)));
  EXPECT_EQ(list.Match(0x12)->wr_id, 100U);
  EXPECT_EQ(list.Match(0x12)->wr_id, 101U);
  EXPECT_EQ(list.Match(0x12)->wr_id, 102U);
  EXPECT_EQ(list.Match(0x12), nullptr);
  EXPECT_EQ(list.size(), 0U);
}

TEST(TagList, ATagOutsideOfItsMaskMatchesNothing) {
  TagList list(1);
  ASSERT_TRUE(list.Add(Buffer(0, 0x1F, 0x0F)));
  EXPECT_EQ(list.Match(0x1F), nullptr);
}

TEST(TagList, ASlotIsOccupiedUntilReleasedAndItsOldHandleIsInvalid) {
  TagList list(2);
  EXPECT_FALSE(list.Add(Buffer(2, 0, 0)));  // no such slot
  ASSERT_TRUE(list.Add(Buffer(1 | 7U << 16, 1, ~0ULL)));
  EXPECT_FALSE(list.Add(Buffer(1 | 8U << 16, 1, ~0ULL)));
  EXPECT_FALSE(list.Remove(1 | 6U << 16));
  ASSERT_NE(list.Match(1), nullptr);
  EXPECT_FALSE(list.Remove(1 | 7U << 16));
  EXPECT_FALSE(list.Add(Buffer(1 | 8U << 16, 1, ~0ULL)));
  list.Release(1);
  ASSERT_TRUE(list.Add(Buffer(1 | 8U << 16, 1, ~0ULL)));
  EXPECT_FALSE(list.Remove(1 | 7U << 16));
  EXPECT_TRUE(list.Remove(1 | 8U << 16));
  EXPECT_FALSE(list.Remove(~0U));
}

TEST(TagList, BuffersPostedBehindAnUnexpectedMessageWait) {
  TagList list(4);
  ASSERT_TRUE(list.Add(Buffer(0, 1, ~0ULL)));
  list.NoteUnexpected();
  EXPECT_FALSE(list.in_sync());
  ASSERT_TRUE(list.Add(Buffer(1, 2, ~0ULL)));
  ASSERT_TRUE(list.Add(Buffer(2, 1, ~0ULL)));
  EXPECT_EQ(list.Match(2), nullptr);
  EXPECT_NE(list.Match(1), nullptr);  // was there before
  EXPECT_EQ(list.Match(1), nullptr);
  list.Sync(0);
  EXPECT_EQ(list.Match(2), nullptr);
  list.Sync(2);  // more than there were
  EXPECT_EQ(list.Match(2), nullptr);
  list.Sync(1);
  EXPECT_TRUE(list.in_sync());
  EXPECT_NE(list.Match(2), nullptr);
  EXPECT_NE(list.Match(1), nullptr);
}

TEST(TagList, ALostUnexpectedMessageIsNotCounted) {
  TagList list(1);
  list.NoteUnexpected();
  list.TakeBackUnexpected();
  ASSERT_TRUE(list.Add(Buffer(0, 1, ~0ULL)));
  EXPECT_NE(list.Match(1), nullptr);
}

TEST(TagList, TheFirstWaitingBufferMayBeRemoved) {
  TagList list(3);
  list.NoteUnexpected();
  ASSERT_TRUE(list.Add(Buffer(0, 1, ~0ULL)));
  ASSERT_TRUE(list.Add(Buffer(1, 1, ~0ULL)));
  EXPECT_TRUE(list.Remove(0));
  EXPECT_EQ(list.Match(1), nullptr);
  EXPECT_TRUE(list.Remove(1));
  ASSERT_TRUE(list.Add(Buffer(2, 1, ~0ULL)));
  EXPECT_EQ(list.Match(1), nullptr);
  list.Sync(1);
  EXPECT_NE(list.Match(1), nullptr);
}

// A simple reference model of TagList.
struct Oracle {
  struct Entry {
    TaggedBuffer buffer;
    bool waits;
  };
  std::list<Entry> entries;
  std::map<uint32_t, bool> taken;  // slots of the list, or matched
  uint32_t unexpected = 0, handled = 0;

  bool Add(const TaggedBuffer& buffer, uint32_t max) {
    if (buffer.slot() >= max || taken[buffer.slot()]) return false;
    taken[buffer.slot()] = true;
    entries.push_back({buffer, unexpected != handled});
    return true;
  }
  bool Remove(uint32_t handle) {
    for (auto it = entries.begin(); it != entries.end(); ++it) {
      if (it->buffer.handle != handle) continue;
      taken[it->buffer.slot()] = false;
      entries.erase(it);
      return true;
    }
    return false;
  }
  std::optional<TaggedBuffer> Match(uint64_t tag) {
    for (auto it = entries.begin(); it != entries.end(); ++it) {
      if (it->waits || (tag & it->buffer.mask) != it->buffer.tag) continue;
      const TaggedBuffer found = it->buffer;
      entries.erase(it);
      return found;
    }
    return std::nullopt;
  }
  void Sync(uint32_t count) {
    handled = count;
    if (handled != unexpected) return;
    for (Entry& entry : entries) entry.waits = false;
  }
};

TEST(TagList, AgreesWithTheReferenceModel) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 engine(seed);
    const auto random = [&engine] { return static_cast<uint32_t>(engine()); };
    const uint32_t max = 1 + random() % 40;
    TagList list(max);
    Oracle oracle;
    std::vector<uint32_t> matched;
    std::vector<uint32_t> handles;
    for (int step = 0; step < 2000; ++step) {
      switch (random() % 8) {
        case 0:
        case 1: {
          const uint64_t mask = random() % 3 == 0 ? 0x3 : 0xF;
          const TaggedBuffer buffer =
              Buffer((random() % (max + 1)) | (random() % 4) << 16, random() % 16 & mask, mask,
                     static_cast<uint64_t>(step));
          const bool added = list.Add(buffer);
          ASSERT_EQ(added, oracle.Add(buffer, max)) << "seed " << seed << " step " << step;
          if (added) handles.push_back(buffer.handle);
          break;
        }
        case 2: {
          if (handles.empty()) break;
          const uint32_t handle = handles[random() % handles.size()];
          ASSERT_EQ(list.Remove(handle), oracle.Remove(handle))
              << "seed " << seed << " step " << step;
          break;
        }
        case 3:
        case 4: {
          const uint64_t tag = random() % 16;
          const TaggedBuffer* found = list.Match(tag);
          const std::optional<TaggedBuffer> expected = oracle.Match(tag);
          ASSERT_EQ(found != nullptr, expected.has_value()) << "seed " << seed << " step " << step;
          if (found == nullptr) {
            list.NoteUnexpected();
            ++oracle.unexpected;
            break;
          }
          ASSERT_EQ(found->wr_id, expected->wr_id) << "seed " << seed << " step " << step;
          matched.push_back(found->slot());
          break;
        }
        case 5: {
          if (matched.empty()) break;
          list.Release(matched.back());
          oracle.taken[matched.back()] = false;
          matched.pop_back();
          break;
        }
        case 6: {
          const uint32_t count = random() % 3 == 0 ? oracle.unexpected - 1 : oracle.unexpected;
          list.Sync(count);
          oracle.Sync(count);
          break;
        }
        default:
          ASSERT_EQ(list.size(), oracle.entries.size());
          ASSERT_EQ(list.in_sync(), oracle.unexpected == oracle.handled);
          ASSERT_EQ(list.behind(), oracle.unexpected - oracle.handled);
          break;
      }
    }
  }
}

}  // namespace
}  // namespace roci::dataplane
