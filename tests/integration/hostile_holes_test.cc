// A program punches holes into registered memory that it has mapped very often: while the kernel
// removes the pages from all mappings, an access to them sleeps. Lcores must sleep once at most.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/attacker.h"
#include "tests/integration/hostile/rig.h"
#include "tests/integration/other_users.h"
#include "tools/show/manage_client.h"

namespace roci::testing {
namespace {

using hostile::kAllAccess;
using hostile::kPage;
using hostile::Region;
using hostile::RigPair;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kBytes = 24 * kPage;  // no other region's
constexpr int kMappings = 60'000;
constexpr uid_t kAttacker = kNobody - 7;  // no other test's

// Removes the pages of the file and brings them back into all mappings, again and again.
void Punch(int fd, const std::vector<std::byte*>& mappings) {
  constexpr size_t kAround = 16 * kPage;  // the kernel maps so many pages at a read
  for (;;) {
    const std::vector<std::byte> bytes(kBytes);
    if (pwrite(fd, bytes.data(), kBytes, 0) != ssize_t{kBytes}) _exit(6);
    for (const std::byte* mapping : mappings) {
      for (size_t at = 0; at < kBytes; at += kAround) {
        static_cast<void>(*static_cast<const volatile std::byte*>(mapping + at));
      }
    }
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes);
  }
}

// WRITEs and READs of the memory that loses its pages.
void PunchUnderTraffic(int line) {
  const int fd = memfd_create("holes", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, kBytes) != 0) _exit(3);
  std::vector<std::byte*> mappings;
  for (int i = 0; i < kMappings; ++i) {
    void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) _exit(4);
    mappings.push_back(static_cast<std::byte*>(at));
  }
  RigPair pair;
  Region region;
  if (pair.near.Register(mappings[0], kBytes, region, kAllAccess, fd) != 0) _exit(5);
  Line::Send(line, 0);
  Line::Receive(line);
  std::thread([&] { Punch(fd, mappings); }).detach();
  for (uint32_t i = 0;; ++i) {
    const uint8_t opcode = i % 2 != 0 ? ROCI_ABI_WR_RDMA_READ : ROCI_ABI_WR_RDMA_WRITE;
    pair.near.Post(pair.near_qp, pair.ValidWqe(opcode), {region.Sge(3 * kPage, i % 8 * kPage)});
    roci_abi_cqe cqe{};
    while (!pair.near.cq.Poll(&cqe)) usleep(100);
    if (cqe.status != 0) pair.Reconnect();
  }
}

uint64_t Blocked() {
  const auto lcores = tools::AskDaemon("", {{"command", "show"}, {"what", "lcores"}});
  EXPECT_TRUE(lcores.ok()) << lcores.status();
  uint64_t blocked = 0;
  for (const nlohmann::json& lcore : *lcores) {
    blocked += lcore.value("memory_blocked", uint64_t{0});
  }
  return blocked;
}

// How the memory that loses its pages is reached.
std::string Reach() {
  const auto mrs = tools::AskDaemon("", {{"command", "show"}, {"what", "mrs"}});
  EXPECT_TRUE(mrs.ok()) << mrs.status();
  for (const nlohmann::json& mr : *mrs) {
    if (mr.value("length", uint64_t{0}) == kBytes) return mr.value("reached_by", "");
  }
  return "";
}

// The longest time of an 8-byte WRITE of this process, of those in `period`.
milliseconds LongestWrite(RigPair& pair, milliseconds period) {
  auto longest = steady_clock::duration{};
  const auto end = steady_clock::now() + period;
  for (auto begin = steady_clock::now(); begin < end && !::testing::Test::HasFailure();) {
    pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE), {pair.near.region.Sge(8)});
    roci_abi_cqe cqe{};
    while (!pair.near.cq.Poll(&cqe) && steady_clock::now() < begin + std::chrono::seconds(20)) {
      usleep(50);
    }
    EXPECT_EQ(cqe.status, 0u);
    longest = std::max(longest, steady_clock::now() - begin);
    begin = steady_clock::now();
  }
  return std::chrono::duration_cast<milliseconds>(longest);
}

TEST(HostileHoles, BlockAnLcoreOnce) {
  if (geteuid() != 0) GTEST_SKIP() << "cannot become somebody else";
  LetOtherUsersIn();
  RigPair victim;
  const uint64_t before = Blocked();
  Attacker attacker(PunchUnderTraffic, kAttacker);
  ASSERT_EQ(attacker.Hear(), 0);
  ASSERT_EQ(Reach(), "mapped");
  attacker.Say(0);
  milliseconds longest{};
  for (int i = 0; i < 100 && Blocked() == before; ++i) {
    longest = std::max(longest, LongestWrite(victim, milliseconds(200)));
  }
  std::printf("an 8-byte WRITE took %lld ms at most", static_cast<long long>(longest.count()));
  // On a busy machine the kernel may never make an access sleep for long enough to be noticed.
  const uint64_t noticed = Blocked() - before;
  EXPECT_EQ(Reach(), noticed != 0 ? "calls" : "mapped");
  longest = {};
  for (int i = 0; i < 20; ++i) longest = std::max(longest, LongestWrite(victim, milliseconds(200)));
  std::printf(", afterwards %lld ms\n", static_cast<long long>(longest.count()));
  EXPECT_LE(Blocked() - before, 1u) << "the lcore slept again";
}

}  // namespace
}  // namespace roci::testing
