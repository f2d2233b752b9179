// What a program can do with the memfd that it gets.
#include "dataplane/base/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace roci::testing {
namespace {

using dataplane::SharedMemory;

constexpr size_t kBytes = 4096;

class SharedMemoryTest : public ::testing::Test {
 public:
  SharedMemoryTest() : memory_(*SharedMemory::Create("test", kBytes)) {
    mapped_ = static_cast<char*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.fd(), 0));
  }
  ~SharedMemoryTest() override { munmap(mapped_, kBytes); }

 protected:
  SharedMemory memory_;
  char* mapped_;
};

TEST_F(SharedMemoryTest, IsSharedWithTheProgram) {
  ASSERT_NE(mapped_, MAP_FAILED);
  memory_.data()[17] = std::byte{5};
  EXPECT_EQ(mapped_[17], 5);
  mapped_[18] = 6;
  EXPECT_EQ(memory_.data()[18], std::byte{6});
}

TEST_F(SharedMemoryTest, KeepsItsSize) {
  EXPECT_NE(ftruncate(memory_.fd(), 0), 0);
  EXPECT_NE(ftruncate(memory_.fd(), 2 * kBytes), 0);
  EXPECT_NE(fcntl(memory_.fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST_F(SharedMemoryTest, HasNoHoles) {
  if (!dataplane::KeepPages(memory_.fd())) GTEST_SKIP() << "not permitted";
  memory_.data()[17] = std::byte{5};
  EXPECT_NE(fallocate(memory_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(madvise(mapped_, kBytes, MADV_REMOVE), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(mapped_[17], 5);
}

}  // namespace
}  // namespace roci::testing
