// AccountOf() of static daemons, with a file of the test's own mounted over /etc/subuid.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "control/device/subordinate_ids.h"

namespace roci::control {
namespace {

constexpr uid_t kNobody = 65534;

class SubordinateIdFiles : public testing::Test {
 protected:
  // Replaces /etc/subuid for this process.
  void SetUp() override {
    if (access("/etc/subuid", F_OK) != 0) GTEST_SKIP() << "there is no /etc/subuid to mount over";
    if (unshare(CLONE_NEWNS) != 0) GTEST_SKIP() << "needs a mount namespace: " << strerror(errno);
    char path[] = "/tmp/roci-subuid.XXXXXX";
    const int fd = mkstemp(path);
    ASSERT_GE(fd, 0);
    const std::string text =
        "nobody:100000:65536\n"
        "1234:100000:10\n"
        "nobody:300000:1\r\n"
        "no such account:400000:10\n"
        "nobody:500000\n"
        "nobody:-1:10\n"
        "nobody:600000:10";
    ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(fd);
    ASSERT_EQ(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0) << strerror(errno);
    ASSERT_EQ(mount(path, "/etc/subuid", nullptr, MS_BIND, nullptr), 0) << strerror(errno);
    unlink(path);
    is_mounted_ = true;
  }

  void TearDown() override {
    if (is_mounted_) umount2("/etc/subuid", MNT_DETACH);
  }

 private:
  bool is_mounted_ = false;
};

TEST_F(SubordinateIdFiles, FindsTheAccountWhoseRangeHasTheId) {
  EXPECT_EQ(AccountOf(100010), kNobody);
  EXPECT_EQ(AccountOf(165535), kNobody);
  EXPECT_EQ(AccountOf(300000), kNobody);
  EXPECT_EQ(AccountOf(600009), kNobody);
}

TEST_F(SubordinateIdFiles, FindsTheLowestOfSeveralAccounts) {
  EXPECT_EQ(AccountOf(100000), 1234U);
  EXPECT_EQ(AccountOf(100009), 1234U);
}

TEST_F(SubordinateIdFiles, ReturnsOtherIdsThemselves) {
  for (const uid_t uid : {0U, 1000U, 99999U, 165536U, 300001U, 600010U}) {
    EXPECT_EQ(AccountOf(uid), uid);
  }
}

TEST_F(SubordinateIdFiles, IgnoresLinesThatItCannotRead) {
  EXPECT_EQ(AccountOf(400000), 400000U);
  EXPECT_EQ(AccountOf(500000), 500000U);
}

}  // namespace
}  // namespace roci::control
