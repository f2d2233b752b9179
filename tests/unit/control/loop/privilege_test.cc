#include "control/loop/privilege.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace roci::control {
namespace {

// Runs `become` in a child process and returns the result of `may` for it.
bool MayChild(uid_t uid, bool (*become)(),
              bool (*may)(const Peer&, const memory::AppMemory*) = MayUseRawPackets) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const char done = become() ? 'y' : 'n';
    [[maybe_unused]] const ssize_t n = write(ready[1], &done, 1);
    pause();
    _exit(0);
  }
  char done = 0;
  EXPECT_EQ(read(ready[0], &done, 1), 1);
  EXPECT_EQ(done, 'y');
  Peer peer;
  peer.pid = child;
  peer.uid = uid;
  peer.has_rights_of_daemon = HasRightsOfDaemon(child, uid);
  int error = 0;
  const auto program = memory::AppMemory::Open(child, -1, memory::Reach::kAddressSpace, &error);
  EXPECT_NE(program, nullptr) << "errno " << error;
  const bool answer = may(peer, program.get());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  return answer;
}

bool SetCapabilities(uint32_t mask) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {{mask, mask, 0}, {0, 0, 0}};
  return syscall(SYS_capset, &header, data) == 0;
}

constexpr uid_t kNobody = 65534;

TEST(PrivilegeTest, TheDaemonsOwnUser) {
  EXPECT_TRUE(MayChild(geteuid(), [] { return true; }));
}

TEST(PrivilegeTest, OthersNeedTheCapability) {
  if (geteuid() != 0) GTEST_SKIP() << "cannot become somebody else";
  EXPECT_FALSE(MayChild(kNobody, [] { return setresuid(kNobody, kNobody, kNobody) == 0; }));
  EXPECT_TRUE(MayChild(kNobody, [] {
    return prctl(PR_SET_KEEPCAPS, 1) == 0 && setresuid(kNobody, kNobody, kNobody) == 0 &&
           SetCapabilities(1u << CAP_NET_RAW);
  }));
}

bool HasRights(const Peer& peer, const memory::AppMemory*) {
  return HasRightsOfDaemon(peer.pid, peer.uid);
}

// The root of a container usually has some capabilities only.
TEST(PrivilegeTest, RootWithoutCapabilitiesIsAnOrdinaryUser) {
  if (geteuid() != 0) GTEST_SKIP() << "is not root";
  const auto with_none = [] { return SetCapabilities(0); };
  const auto with_raw_packets = [] { return SetCapabilities(1u << CAP_NET_RAW); };
  EXPECT_TRUE(MayChild(
      0, [] { return true; }, HasRights));
  EXPECT_FALSE(MayChild(0, with_none, HasRights));
  EXPECT_FALSE(MayChild(0, with_none, MayUseRawPackets));
  EXPECT_FALSE(MayChild(0, with_none, MayBindPrivilegedPorts));
  EXPECT_FALSE(MayChild(0, with_raw_packets, HasRights));
  EXPECT_TRUE(MayChild(0, with_raw_packets, MayUseRawPackets));
  EXPECT_FALSE(MayChild(0, with_raw_packets, MayBindPrivilegedPorts));
}

// The capabilities count that the process has when it asks.
TEST(PrivilegeTest, CapabilitiesThatWereGivenUpDoNotCount) {
  if (geteuid() != 0) GTEST_SKIP() << "is not root";
  const auto gave_up = [](const Peer& peer, const memory::AppMemory* program) {
    Peer before;
    before.pid = peer.pid;
    before.has_rights_of_daemon = true;
    return MayUseRawPackets(before, program);
  };
  EXPECT_TRUE(MayChild(
      0, [] { return true; }, gave_up));
  EXPECT_FALSE(MayChild(
      0, [] { return SetCapabilities(0); }, gave_up));
}

TEST(PrivilegeTest, WithoutFileCapabilitiesPermissionsOfFilesHold) {
  if (geteuid() != 0) GTEST_SKIP() << "is not root";
  char path[] = "/tmp/roci-privilege-XXXXXX";
  const int fd = mkostemp(path, O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(fchown(fd, kNobody, kNobody), 0);
  ASSERT_EQ(fchmod(fd, 0444), 0);
  const auto may_write = [&path] {
    const UniqueFd written(open(path, O_RDWR | O_CLOEXEC));
    return written.valid();
  };
  EXPECT_TRUE(may_write());
  {
    const WithoutFileCapabilities without;
    ASSERT_TRUE(without.ok());
    EXPECT_FALSE(may_write());
  }
  EXPECT_TRUE(may_write());
  unlink(path);
  close(fd);
}

// After exec of another program, the capabilities of the process do not count.
TEST(PrivilegeTest, OfTheProgramThatAskedAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "cannot become somebody else";
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    if (read(go[0], &byte, 1) == 1) execl("/bin/sleep", "sleep", "30", static_cast<char*>(nullptr));
    _exit(1);
  }
  Peer peer;
  peer.pid = child;
  peer.uid = kNobody;  // as if it had been
  int error = 0;
  const auto program = memory::AppMemory::Open(child, -1, memory::Reach::kAddressSpace, &error);
  ASSERT_NE(program, nullptr) << "errno " << error;
  EXPECT_TRUE(MayUseRawPackets(peer, program.get()));
  EXPECT_FALSE(MayUseRawPackets(peer, nullptr));
  ASSERT_EQ(write(go[1], "x", 1), 1);
  for (int tries = 0; tries < 2000 && program->Alive(); ++tries) usleep(1000);
  EXPECT_FALSE(MayUseRawPackets(peer, program.get()));
  EXPECT_FALSE(MayBindPrivilegedPorts(peer, program.get()));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(go[0]);
  close(go[1]);
}

TEST(PrivilegeTest, PortsWantACapabilityOfTheirOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "cannot become somebody else";
  const auto with_raw_packets = [] {
    return prctl(PR_SET_KEEPCAPS, 1) == 0 && setresuid(kNobody, kNobody, kNobody) == 0 &&
           SetCapabilities(1u << CAP_NET_RAW);
  };
  const auto with_ports = [] {
    return prctl(PR_SET_KEEPCAPS, 1) == 0 && setresuid(kNobody, kNobody, kNobody) == 0 &&
           SetCapabilities(1u << CAP_NET_BIND_SERVICE);
  };
  EXPECT_FALSE(MayChild(kNobody, with_raw_packets, MayBindPrivilegedPorts));
  EXPECT_TRUE(MayChild(kNobody, with_ports, MayBindPrivilegedPorts));
  EXPECT_FALSE(MayChild(kNobody, with_ports, MayUseRawPackets));
}

TEST(PrivilegeTest, CapabilitiesInAnotherUserNamespaceAreNone) {
  if (geteuid() != 0) GTEST_SKIP() << "cannot become somebody else";
  const bool has_namespaces = [] {
    const pid_t child = fork();
    if (child == 0) {
      _exit(setresuid(kNobody, kNobody, kNobody) == 0 && unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    return status == 0;
  }();
  if (!has_namespaces) GTEST_SKIP() << "no user namespaces here";
  EXPECT_FALSE(MayChild(kNobody, [] {
    return setresuid(kNobody, kNobody, kNobody) == 0 && unshare(CLONE_NEWUSER) == 0;
  }));
}

}  // namespace
}  // namespace roci::control
