// Measures how programs whose memory stalls accesses delay another program: how long its 8-byte
// READs and its control calls take. Run by tools/bench under `roci run`.
//
// stalled_neighbour MOMENTS
//   MOMENTS: measurements of each kind, with kReads READs and one ibv_reg_mr and ibv_dereg_mr each
//   Prints, for each kind of neighbour, the 99.9th percentile of the READs and the longest READ and
//   call, as JSON.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = 256 << 10;
constexpr uint32_t kMessageBytes = 8;
constexpr int kReads = 20;  // of a moment
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "stalled_neighbour: %s: %s\n", what, strerror(errno));
  std::exit(1);
}

void Require(bool is_good, const char* what) {
  if (!is_good) Fail(what);
}

EndpointOptions Patient() {
  EndpointOptions options;
  options.timeout = 18;  // 1.1 s
  options.retry_count = 7;
  return options;
}

// ---- Neighbours, each a process of its own

// Says on standard output that the neighbour does what it is for.
void SayAtWork() { Require(write(STDOUT_FILENO, "!", 1) == 1, "pipe"); }

void* Map(int flags, int fd) {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  Require(memory != MAP_FAILED, "mmap");
  return memory;
}

// WRITEs to `memory` of its own. The completion may never come.
void PostWrite(Pair& pair, Buffer& from, void* memory, ibv_mr* mr, uint32_t bytes) {
  const int error = pair.near.PostSend(IBV_WR_RDMA_WRITE, from.Sge(0, bytes), IBV_SEND_SIGNALED,
                                       reinterpret_cast<uint64_t>(memory), mr->rkey);
  errno = error;
  Require(error == 0, "ibv_post_send");
}

// Sleeps between two polls: what it computes would delay others as well.
void AwaitCompletion(Pair& pair) {
  ibv_wc wc{};
  while (ibv_poll_cq(pair.near.cq, 1, &wc) == 0) usleep(20);
  Require(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
}

ibv_mr* Register(Pair& pair, void* memory) {
  ibv_mr* mr = ibv_reg_mr(pair.far_device.pd, memory, kBytes, kAccess);
  Require(mr != nullptr, "ibv_reg_mr");
  return mr;
}

// Registers, WRITEs and deregisters, over and over: it is stopped at any moment of that.
[[noreturn]] void BeBusy() {
  Pair pair(Patient());
  void* memory = Map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
  Buffer from(pair.near_device, kBytes, 1);
  for (bool is_first = true;; is_first = false) {
    ibv_mr* mr = Register(pair, memory);
    PostWrite(pair, from, memory, mr, kBytes);
    AwaitCompletion(pair);
    Require(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    if (is_first) SayAtWork();
  }
}

// WRITEs to memory whose pages never come.
[[noreturn]] void MissPages() {
  auto* memory = static_cast<char*>(Map(MAP_PRIVATE | MAP_ANONYMOUS, -1));
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  uffdio_register range{};
  // But the ends, which registration looks at.
  range.range = {reinterpret_cast<uint64_t>(memory) + 4096, kBytes - 8192};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  Require(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &range) == 0,
          "userfaultfd");
  Pair pair(Patient());
  Buffer from(pair.near_device, 8192, 1);
  PostWrite(pair, from, memory, Register(pair, memory), 8192);
  usleep(50'000);
  SayAtWork();
  for (;;) pause();
}

// WRITEs to a mapped file that is not in the page cache.
[[noreturn]] void UseAColdFile() {
  char path[] = "/var/tmp/roci-cold-XXXXXX";
  const int fd = mkostemp(path, O_CLOEXEC);
  Require(fd >= 0 && unlink(path) == 0 && posix_fallocate(fd, 0, kBytes) == 0, path);
  Pair pair(Patient());
  Buffer from(pair.near_device, kBytes, 1);
  void* memory = Map(MAP_SHARED, fd);
  ibv_mr* mr = Register(pair, memory);
  for (bool is_first = true;; is_first = false) {
    Require(fdatasync(fd) == 0 && madvise(memory, kBytes, MADV_PAGEOUT) == 0 &&
                posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0,
            "file");
    PostWrite(pair, from, memory, mr, kBytes);
    AwaitCompletion(pair);
    if (is_first) SayAtWork();
  }
}

struct Neighbour {
  std::string_view name;
  void (*run)();  // null: there is none
  bool is_stopped;
};
constexpr Neighbour kNeighbours[] = {
    {"none", nullptr, false},
    {"stopped", BeBusy, true},
    {"missing_pages", MissPages, false},
    {"cold_file", UseAColdFile, false},
};

// A process that is `neighbour`, until this object is destroyed.
class Process {
 public:
  explicit Process(const Neighbour& neighbour) {
    if (neighbour.run == nullptr) return;
    int ends[2];
    Require(pipe2(ends, O_CLOEXEC) == 0, "pipe2");
    const std::string name(neighbour.name);
    pid_ = fork();
    Require(pid_ >= 0, "fork");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(ends[1], STDOUT_FILENO);
      // A program of its own, which has none of this one's objects.
      execl("/proc/self/exe", "stalled_neighbour", "--be", name.c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    char said = 0;
    works_ = read(ends[0], &said, 1) == 1;
    close(ends[0]);
  }
  ~Process() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // False: this machine does not allow it.
  bool works() const { return works_; }
  void Stop() const {
    if (pid_ <= 0) return;
    kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  void Continue() const {
    if (pid_ > 0) kill(pid_, SIGCONT);
  }

 private:
  pid_t pid_ = 0;
  bool works_ = true;
};

// ---- The program that must not notice

double MicrosecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

struct Delays {
  std::vector<double> reads_us;
  double longest_call_us = 0;

  void Print(std::string_view name) {
    std::sort(reads_us.begin(), reads_us.end());
    const auto at = [&](double share) {
      return reads_us[static_cast<size_t>(share * static_cast<double>(reads_us.size() - 1))];
    };
    std::printf(
        "\"%.*s\": {\"reads\": %zu, \"median_us\": %.1f, \"p999_us\": %.1f, \"longest_us\": %.1f, "
        "\"longest_call_us\": %.1f}",
        static_cast<int>(name.size()), name.data(), reads_us.size(), at(0.5), at(0.999), at(1),
        longest_call_us);
  }
};

class Bystander {
 public:
  void Measure(Delays& delays) {
    for (int i = 0; i < kReads; ++i) delays.reads_us.push_back(Read());
    const Clock::time_point begin = Clock::now();
    ibv_mr* mr = ibv_reg_mr(pair_.near_device.pd, to_.data(), kMessageBytes, kAccess);
    Require(mr != nullptr, "ibv_reg_mr");
    const double registered_us = MicrosecondsSince(begin);
    const Clock::time_point registered = Clock::now();
    Require(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    delays.longest_call_us =
        std::max({delays.longest_call_us, registered_us, MicrosecondsSince(registered)});
  }

 private:
  double Read() {
    const Clock::time_point begin = Clock::now();
    errno = pair_.near.PostSend(IBV_WR_RDMA_READ, to_.Sge(0, kMessageBytes), IBV_SEND_SIGNALED,
                                from_.address(), from_.rkey());
    Require(errno == 0, "ibv_post_send");
    ibv_wc wc{};
    while (ibv_poll_cq(pair_.near.cq, 1, &wc) == 0) {
    }
    Require(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
    return MicrosecondsSince(begin);
  }

  Pair pair_{Patient()};
  Buffer to_{pair_.near_device, 4096, 1};
  Buffer from_{pair_.far_device, 4096, 2};
};

Delays MeasureBeside(const Neighbour& neighbour, const Process& process, Bystander& bystander,
                     int moments) {
  Delays delays;
  std::mt19937 random(1);
  for (int i = 0; i < moments; ++i) {
    usleep(static_cast<useconds_t>(random() % 2000));
    if (neighbour.is_stopped) process.Stop();
    bystander.Measure(delays);
    if (neighbour.is_stopped) process.Continue();
  }
  return delays;
}

int Run(int moments) {
  Bystander bystander;
  std::printf("{");
  const char* separator = "";
  for (const Neighbour& neighbour : kNeighbours) {
    const Process process(neighbour);
    if (!process.works()) continue;
    Delays delays = MeasureBeside(neighbour, process, bystander, moments);
    std::fputs(std::exchange(separator, ", "), stdout);
    delays.Print(neighbour.name);
  }
  std::printf("}\n");
  return 0;
}

}  // namespace
}  // namespace roci::testing

int main(int argc, char** argv) {
  const std::span arguments(argv, static_cast<size_t>(argc));
  if (argc == 3 && std::string_view(arguments[1]) == "--be") {
    for (const auto& neighbour : roci::testing::kNeighbours) {
      if (neighbour.name == arguments[2] && neighbour.run != nullptr) neighbour.run();
    }
  }
  const int moments = argc == 2 ? std::atoi(arguments[1]) : 0;
  if (moments < 1) {
    std::fputs("usage: stalled_neighbour MOMENTS\n", stderr);
    return 2;
  }
  return roci::testing::Run(moments);
}
