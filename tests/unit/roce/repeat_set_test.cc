#include "roce/repeat_set.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

namespace roci::roce {
namespace {

constexpr Psn kFirst{0xFFFFFE};  // the numbers wrap

MissingEth Missing(std::initializer_list<uint32_t> distances) {
  MissingEth missing;
  for (const uint32_t distance : distances) missing.Add(distance);
  return missing;
}

// All of the set at or after `from`, by their distance from kFirst.
std::vector<int32_t> AllFrom(const RepeatSet& set, Psn from) {
  std::vector<int32_t> all;
  for (std::optional<Psn> next = set.Next(from); next; next = set.Next(*next + 1)) {
    all.push_back(Distance(kFirst, *next));
  }
  return all;
}

TEST(RepeatSet, HasWhatWasAskedForInOrder) {
  RepeatSet set;
  EXPECT_EQ(set.Next(kFirst), std::nullopt);
  set.Add(kFirst, Missing({0, 1, 3, 255}));
  EXPECT_EQ(AllFrom(set, kFirst), (std::vector<int32_t>{0, 1, 3, 255}));
  EXPECT_EQ(AllFrom(set, kFirst + 2), (std::vector<int32_t>{3, 255}));
  EXPECT_EQ(set.Next(kFirst + 256), std::nullopt);
  set.Clear();
  EXPECT_EQ(set.Next(kFirst), std::nullopt);
}

TEST(RepeatSet, KeepsWhatIsNotSentYet) {
  RepeatSet set;
  set.Add(kFirst, Missing({1, 5, 9}));
  set.DropBefore(kFirst + 9);
  set.Add(kFirst + 3, Missing({4}));
  EXPECT_EQ(AllFrom(set, kFirst), (std::vector<int32_t>{7, 9}));
  set.Add(kFirst + 10, Missing({1}));
  EXPECT_EQ(AllFrom(set, kFirst), (std::vector<int32_t>{11}));
}

TEST(MissingEth, PutsTheFirstPsnIntoTheMostSignificantBit) {
  std::byte bytes[MissingEth::kBytes];
  const MissingEth missing = Missing({0, 8, 63, 64, 255});
  missing.Store(bytes);
  EXPECT_EQ(bytes[0], std::byte{0x80});
  EXPECT_EQ(bytes[1], std::byte{0x80});
  EXPECT_EQ(bytes[7], std::byte{0x01});
  EXPECT_EQ(bytes[8], std::byte{0x80});
  EXPECT_EQ(bytes[31], std::byte{0x01});
  EXPECT_EQ(MissingEth::Load(bytes), missing);
}

}  // namespace
}  // namespace roci::roce
