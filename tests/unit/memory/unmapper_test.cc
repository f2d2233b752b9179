// Users take turns at the unmapper.
#include "memory/unmapper.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <future>
#include <memory>
#include <mutex>
#include <string>

namespace roci::memory {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class UnmapperTest : public ::testing::Test {
 protected:
  UnmapperTest() { Unmapper::Drain(); }
  // `name` is appended to ended() when the last mapping of the user is unmapped.
  std::shared_ptr<RetiredUse> MakeUser(char name) {
    return {new RetiredUse, [this, name](RetiredUse* use) {
              const std::lock_guard guard(mutex_);
              ended_ += name;
              delete use;
            }};
  }
  // A user whose mapping blocks the unmapper until `gate` is ready.
  static std::shared_ptr<RetiredUse> MakeBlocker(const std::shared_future<void>& gate) {
    return {new RetiredUse, [gate](RetiredUse* use) {
              gate.wait();
              delete use;
            }};
  }
  static void Retire(size_t bytes, std::shared_ptr<RetiredUse> use) {
    void* base =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(base, MAP_FAILED);
    auto mapping = std::make_unique<RetiredMapping>();
    mapping->base = static_cast<std::byte*>(base);
    mapping->length = bytes;
    mapping->use = std::move(use);
    Unmapper::Retire(mapping.release());
  }
  // After all mappings are unmapped, their owners are destroyed in order.
  std::string AwaitEnd() {
    Unmapper::Drain();
    const auto last = std::make_shared<std::promise<void>>();
    Retire(kMiB, {new RetiredUse, [last](RetiredUse* use) {
                    delete use;
                    last->set_value();
                  }});
    last->get_future().wait();
    const std::lock_guard guard(mutex_);
    return ended_;
  }

 private:
  std::mutex mutex_;
  std::string ended_;
};

TEST_F(UnmapperTest, AHugeMappingDelaysNoOtherUser) {
  std::promise<void> gate;
  Retire(kMiB, MakeBlocker(gate.get_future().share()));
  auto huge = MakeUser('h');
  auto small = MakeUser('s');
  Retire(4096 * kMiB, huge);
  for (int i = 0; i < 3; ++i) Retire(kMiB, huge);
  for (int i = 0; i < 3; ++i) Retire(kMiB, small);
  EXPECT_EQ(huge->mappings.load(), 4U);
  EXPECT_EQ(huge->bytes.load(), 4099 * kMiB);
  EXPECT_EQ(small->mappings.load(), 3U);
  EXPECT_GE(Unmapper::backlog(), 7U);
  EXPECT_GE(Unmapper::backlog_bytes(), 4102 * kMiB);
  huge.reset();
  small.reset();
  gate.set_value();
  EXPECT_EQ(AwaitEnd(), "sh");
}

TEST_F(UnmapperTest, MappingsCountForTheirUserUntilTheyAreUnmapped) {
  const auto user = std::make_shared<RetiredUse>();
  for (int i = 0; i < 100; ++i) Retire(kMiB, user);
  Retire(kMiB, nullptr);
  Unmapper::Drain();
  EXPECT_EQ(user->mappings.load(), 0U);
  EXPECT_EQ(user->bytes.load(), 0U);
  EXPECT_EQ(Unmapper::backlog(), 0U);
  EXPECT_EQ(Unmapper::backlog_bytes(), 0U);
}

}  // namespace
}  // namespace roci::memory
