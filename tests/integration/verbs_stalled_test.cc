// A program whose memory blocks every access, or that is stopped at any time, delays neither data
// nor requests of other programs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/late_memory.h"
#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

constexpr size_t kBytes = 256 << 10;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
// By how much others' requests may be late, on a machine that is busy with other tests.
constexpr std::chrono::milliseconds kSoon(2000);

// Runs this program again as TEST `name` of Culprit, and ends it.
class Culprit {
 public:
  explicit Culprit(const std::string& name) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      const std::string filter = "--gtest_filter=Culprit.DISABLED_" + name;
      execl("/proc/self/exe", "culprit", "--gtest_also_run_disabled_tests", filter.c_str(),
            nullptr);
      _exit(127);
    }
    close(ends[1]);
    said_ = ends[0];
  }
  ~Culprit() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(said_);
  }
  Culprit(const Culprit&) = delete;
  Culprit& operator=(const Culprit&) = delete;

  // Waits until it says that it is at work. False: it cannot, or has ended.
  bool Works() {
    std::string all;
    char part[256];
    for (ssize_t got; (got = read(said_, part, sizeof part)) > 0;) {
      all.append(part, static_cast<size_t>(got));
      if (all.find("at work") != std::string::npos) return true;
      if (all.find("no userfaultfd") != std::string::npos) return false;
    }
    ADD_FAILURE() << all;
    return false;
  }
  void Signal(int number) const { kill(pid_, number); }

 private:
  pid_t pid_ = -1;
  int said_ = -1;
};

void SayAtWork() {
  std::printf("at work\n");
  std::fflush(stdout);
}

// WRITEs into memory whose pages never come.
TEST(Culprit, DISABLED_NeverServesItsPages) {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  uffdio_register range{};
  // But the ends, which registration looks at.
  range.range = {reinterpret_cast<uint64_t>(memory) + 4096, kBytes - 8192};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &range) != 0) {
    std::printf("no userfaultfd\n");
    return;
  }
  Pair pair;
  ibv_mr* mr = ibv_reg_mr(pair.far_device.pd, memory, kBytes, kAccess);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  Buffer here(pair.near_device, 8192, 1);
  ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 8192), IBV_SEND_SIGNALED,
                               reinterpret_cast<uint64_t>(memory), mr->rkey),
            0);
  EXPECT_TRUE(pair.near.IsQuiet(50));
  SayAtWork();
  pause();
}

// Registers, WRITEs, deregisters, over and over.
TEST(Culprit, DISABLED_IsBusy) {
  Pair pair;
  std::vector<uint8_t> memory(kBytes);
  Buffer here(pair.near_device, kBytes, 1);
  for (bool first = true;; first = false) {
    ibv_mr* mr = ibv_reg_mr(pair.far_device.pd, memory.data(), kBytes, kAccess);
    ASSERT_NE(mr, nullptr) << strerror(errno);
    ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, kBytes), IBV_SEND_SIGNALED,
                                 reinterpret_cast<uint64_t>(memory.data()), mr->rkey),
              0);
    pair.near.ExpectSuccess();
    ASSERT_EQ(ibv_dereg_mr(mr), 0);
    if (first) SayAtWork();
  }
}

EndpointOptions Patient() {
  EndpointOptions options;
  options.timeout = 18;  // 1.1 s
  return options;
}

// What others do meanwhile: READs that bring the right bytes, and requests.
void WorkAsOthersDo(Pair& pair, int rounds) {
  Buffer here(pair.near_device, 64, 1);
  Buffer there(pair.far_device, 64, 2);
  for (int i = 0; i < rounds && !::testing::Test::HasFailure(); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    there.data()[0] = static_cast<uint8_t>(i);
    ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_READ, here.Sge(0, 8), IBV_SEND_SIGNALED,
                                 there.address(), there.rkey()),
              0);
    pair.near.ExpectSuccess();
    EXPECT_EQ(here.data()[0], static_cast<uint8_t>(i));
    ibv_mr* mr = ibv_reg_mr(pair.near_device.pd, here.data(), 64, kAccess);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kSoon);
  }
}

TEST(VerbsStalled, ByPagesThatNeverCome) {
  Pair pair(Patient());
  for (int i = 0; i < 3; ++i) {
    Culprit culprit("NeverServesItsPages");
    if (!culprit.Works()) GTEST_SKIP() << "no userfaultfd for faults of the kernel here";
    WorkAsOthersDo(pair, 100);
  }
  // They have ended meanwhile.
  WorkAsOthersDo(pair, 100);
}

TEST(VerbsStalled, ByAProgramThatIsStopped) {
  Pair pair(Patient());
  Culprit culprit("IsBusy");
  ASSERT_TRUE(culprit.Works());
  std::mt19937 random(1);
  for (int i = 0; i < 1000 && !::testing::Test::HasFailure(); ++i) {
    usleep(static_cast<useconds_t>(random() % 2000));
    culprit.Signal(SIGSTOP);
    WorkAsOthersDo(pair, 3);
    culprit.Signal(SIGCONT);
  }
}

// At whatever moment of a copy the request comes. An adapter does not access the memory any more
// when the call has returned.
TEST(VerbsStalled, NoAccessAfterDeregistration) {
  LateMemory memory;
  if (!memory.works()) GTEST_SKIP() << "no userfaultfd for faults of the kernel here";
  std::mt19937 random(1);
  for (int i = 0; i < 200 && !::testing::Test::HasFailure(); ++i) {
    Pair pair(Patient());
    Buffer here(pair.near_device, 64, 1);
    ibv_mr* mr = ibv_reg_mr(pair.far_device.pd, memory.data(), memory.size(), kAccess);
    ASSERT_NE(mr, nullptr) << strerror(errno);
    ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 64), IBV_SEND_SIGNALED,
                                 memory.late_address(), mr->rkey),
              0);
    SpinFor(std::chrono::microseconds(random() % 400));
    ASSERT_EQ(ibv_dereg_mr(mr), 0);
    memory.ExpectNoAccess();
    memory.Empty();
  }
}

}  // namespace
}  // namespace roci::testing
