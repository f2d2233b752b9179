// A user's copies that wait for memory which never comes: their number has a limit, also when the
// sessions that caused them have ended.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/attacker.h"
#include "tests/integration/hostile/rig.h"
#include "tests/integration/other_users.h"

namespace roci::testing {
namespace {

using hostile::kPage;
using hostile::Region;
using hostile::RigPair;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int kRounds = 18;  // more than it takes to use up the 64 copier threads of an lcore
constexpr int kPairs = 4;    // a user's limit of copier threads
constexpr size_t kBytes = 16 * kPage;

// Pages that never come.
class MissingPages {
 public:
  MissingPages() {
    data_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fd_ = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    uffdio_register range{};
    range.range = {reinterpret_cast<uint64_t>(data_), kBytes};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    works_ =
        fd_ >= 0 && ioctl(fd_, UFFDIO_API, &api) == 0 && ioctl(fd_, UFFDIO_REGISTER, &range) == 0;
  }
  bool works() const { return works_; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  ~MissingPages() {
    if (fd_ >= 0) close(fd_);
    munmap(data_, kBytes);
  }
  MissingPages(const MissingPages&) = delete;
  MissingPages& operator=(const MissingPages&) = delete;
  // Whether an access begins within 50 ms. It waits until the destructor.
  bool IsAccessed() const {
    pollfd readable{fd_, POLLIN, 0};
    uffd_msg message{};
    return poll(&readable, 1, 50) == 1 && read(fd_, &message, sizeof message) == sizeof message;
  }

 private:
  void* data_;
  int fd_;
  bool works_ = false;
};

// One round: sessions whose sends wait for the pages, and which end. The number of accesses.
int OpenStallAndClose(const MissingPages& pages) {
  std::vector<std::unique_ptr<RigPair>> pairs;
  int stalled = 0;
  for (int i = 0; i < kPairs; ++i) {
    pairs.push_back(std::make_unique<RigPair>());
    RigPair& pair = *pairs.back();
    Region region;
    if (pair.near.Register(pages.data(), kBytes, region) != 0) _exit(3);
    pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE), {region.Sge(kPage)});
    stalled += pages.IsAccessed() ? 1 : 0;
  }
  pairs.clear();
  usleep(50'000);  // the daemon forgets the sessions
  return stalled;
}

int DaemonThreads() {
  std::ifstream status("/proc/" + std::string(std::getenv("ROCID_PID")) + "/status");
  for (std::string word; status >> word;) {
    int count = 0;
    if (word == "Threads:" && status >> count) return count;
  }
  return -1;
}

// A WRITE of memory that the daemon has to copy.
bool WritesInTime() {
  RigPair pair;
  pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE), {pair.near.region.Sge(64)});
  roci_abi_cqe cqe{};
  const auto end = steady_clock::now() + seconds(10);
  while (steady_clock::now() < end) {
    if (pair.near.cq.Poll(&cqe)) return cqe.status == 0;
    usleep(1000);
  }
  return false;
}

// The attacker is a program of the daemon's own user, as only such a program can make the daemon
// wait for a userfaultfd; other users' programs can by files of FUSE.
TEST(HostileCopies, OfEndedSessionsCountForTheirUser) {
  if (geteuid() != 0) GTEST_SKIP() << "cannot become somebody else";
  LetOtherUsersIn();
  const int before = DaemonThreads();
  Attacker victim([](int line) {
    Line::Receive(line);
    Line::Send(line, WritesInTime() ? 1 : 0);
  });
  const MissingPages pages;
  if (!pages.works()) GTEST_SKIP() << "no userfaultfd for faults of the kernel here";
  int stalled = 0;
  for (int round = 0; round < kRounds; ++round) stalled += OpenStallAndClose(pages);
  EXPECT_GE(stalled, 1) << "nothing was tried";
  EXPECT_LE(stalled, kPairs) << "copies that wait";
  EXPECT_LE(DaemonThreads(), before + 2 * kPairs);
  victim.Say(0);
  EXPECT_EQ(victim.Hear(), 1) << "the lcore stands still";
}

}  // namespace
}  // namespace roci::testing
