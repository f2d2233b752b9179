// Mappings of the daemon's memfds.
#include "verbs_provider/base/shared_mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace roci::provider {
namespace {

int MakeMemfd(off_t size, int seals) {
  const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(fd, size), 0);
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(SharedMapping, MapsSealedMemory) {
  const int fd = MakeMemfd(8192, F_SEAL_SHRINK | F_SEAL_GROW);
  SharedMapping mapping;
  ASSERT_EQ(mapping.Map(fd, 8192), 0);
  *mapping.At<uint64_t>(4096) = 42;
  uint64_t value = 0;
  EXPECT_EQ(pread(fd, &value, sizeof(value), 4096), static_cast<ssize_t>(sizeof(value)));
  EXPECT_EQ(value, 42u);
  mapping.Unmap();
  EXPECT_EQ(mapping.data, nullptr);
  close(fd);
}

TEST(SharedMapping, RefusesMemoryThatCouldShrinkOrIsTooSmall) {
  SharedMapping mapping;
  const int unsealed = MakeMemfd(8192, F_SEAL_GROW);
  EXPECT_EQ(mapping.Map(unsealed, 8192), EPROTO);
  const int sealed = MakeMemfd(4096, F_SEAL_SHRINK);
  EXPECT_EQ(mapping.Map(sealed, 4097), EPROTO);
  EXPECT_EQ(mapping.Map(sealed, 0), EPROTO);
  EXPECT_EQ(mapping.Map(-1, 4096), EBADF);
  EXPECT_EQ(mapping.data, nullptr);
  close(unsealed);
  close(sealed);
}

TEST(SharedMapping, ChecksThatObjectsLieInside) {
  const int fd = MakeMemfd(4096, F_SEAL_SHRINK);
  SharedMapping mapping;
  ASSERT_EQ(mapping.Map(fd, 4096), 0);
  EXPECT_NE(mapping.At<uint64_t>(4088), nullptr);
  EXPECT_EQ(mapping.At<uint64_t>(4089), nullptr) << "not aligned";
  EXPECT_EQ(mapping.At<uint64_t>(4096), nullptr);
  EXPECT_EQ(mapping.At<uint64_t>(~uint64_t{7}), nullptr);
  EXPECT_NE(mapping.At<uint64_t>(0, 512), nullptr);
  EXPECT_EQ(mapping.At<uint64_t>(0, 513), nullptr);
  EXPECT_EQ(mapping.At<uint64_t>(8, ~uint64_t{0}), nullptr);
  mapping.Unmap();
  close(fd);
}

TEST(SharedMapping, IsNotInheritedByAChild) {
  const int fd = MakeMemfd(4096, F_SEAL_SHRINK);
  SharedMapping mapping;
  ASSERT_EQ(mapping.Map(fd, 4096), 0);
  const pid_t child = fork();
  if (child == 0) {
    unsigned char resident;
    _exit(mincore(mapping.data, 4096, &resident) == -1 && errno == ENOMEM ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  mapping.Unmap();
  close(fd);
}

}  // namespace
}  // namespace roci::provider
