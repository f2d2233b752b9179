#include "tests/integration/stalling_programs.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/integration/fuse_file.h"
#include "tests/integration/swap_file.h"

namespace roci::testing {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBytes = 256 << 10;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr char kAtWork[] = "at work\n";
constexpr char kRefused[] = "refused: ";

void Require(bool is_good, const char* what) {
  if (is_good) return;
  std::fprintf(stderr, "stalling program: %s: %s\n", what, strerror(errno));
  std::exit(1);
}

void ReportWork() {
  std::fputs(kAtWork, stdout);
  std::fflush(stdout);
}

void ReportRefusal(const std::string& why) {
  std::printf("%s%s\n", kRefused, why.c_str());
  std::fflush(stdout);
}

char* Map(int flags, int fd) {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  Require(memory != MAP_FAILED, "mmap");
  return static_cast<char*>(memory);
}

// A connection of the program to itself, which WRITEs `bytes` to its own `memory`.
class Writer {
 public:
  Writer(char* memory, uint32_t bytes)
      : memory_(memory), bytes_(bytes), from_(pair_.near_device, bytes, 1) {}

  ibv_mr* Register() {
    mr_ = ibv_reg_mr(pair_.far_device.pd, memory_, kBytes, kAccess);
    Require(mr_ != nullptr, "ibv_reg_mr");
    return mr_;
  }
  void Post() {
    errno = pair_.near.PostSend(IBV_WR_RDMA_WRITE, from_.Sge(0, bytes_), IBV_SEND_SIGNALED,
                                reinterpret_cast<uint64_t>(memory_), mr_->rkey);
    Require(errno == 0, "ibv_post_send");
  }
  // Sleeps between polls: a busy processor would delay other programs, too.
  void AwaitCompletion() {
    ibv_wc wc{};
    while (ibv_poll_cq(pair_.near.cq, 1, &wc) == 0) usleep(20);
    Require(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
  }
  // For a WRITE that stalls forever.
  [[noreturn]] void StallForEver() {
    Register();
    Post();
    usleep(50'000);
    ibv_wc wc{};
    Require(ibv_poll_cq(pair_.near.cq, 1, &wc) == 0, "the WRITE did not stall");
    ReportWork();
    for (;;) pause();
  }

 private:
  char* const memory_;
  const uint32_t bytes_;
  Pair pair_{PatientOptions()};
  Buffer from_;
  ibv_mr* mr_ = nullptr;
};

// Swaps out all pages. The first MADV_PAGEOUT starts writing them, but they stay in the swap cache;
// once they are written and have been read, the next one releases them. False: they stay in memory.
bool SwapOut(char* memory) {
  unsigned char resident[kBytes / kPage];
  for (int tries = 0; tries < 1000; ++tries) {
    if (madvise(memory, kBytes, MADV_PAGEOUT) != 0 || mincore(memory, kBytes, resident) != 0) break;
    if (std::none_of(resident, resident + sizeof(resident), [](auto page) { return page & 1; })) {
      return true;
    }
    usleep(1000);
    for (size_t i = 0; i < kBytes; i += kPage) static_cast<volatile char*>(memory)[i];
  }
  return false;
}

}  // namespace

EndpointOptions PatientOptions() {
  EndpointOptions options;
  options.timeout = 18;  // 1.1 s
  options.retry_count = 7;
  return options;
}

void RegisterAndWrite() {
  Writer writer(Map(MAP_PRIVATE | MAP_ANONYMOUS, -1), kBytes);
  for (bool is_first = true;; is_first = false) {
    ibv_mr* mr = writer.Register();
    writer.Post();
    writer.AwaitCompletion();
    Require(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    if (is_first) ReportWork();
  }
}

void WriteToMissingPages() {
  char* memory = Map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  uffdio_register range{};
  // Excludes the first and the last page, which ibv_reg_mr reads.
  range.range = {reinterpret_cast<uint64_t>(memory) + kPage, kBytes - 2 * kPage};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &range) != 0) {
    return ReportRefusal(std::string("no userfaultfd for page faults of the kernel: ") +
                         strerror(errno));
  }
  Writer(memory, 2 * kPage).StallForEver();
}

void WriteToColdFile() {
  char path[] = "/var/tmp/roci-cold-XXXXXX";
  const int fd = mkostemp(path, O_CLOEXEC);
  Require(fd >= 0 && unlink(path) == 0 && posix_fallocate(fd, 0, kBytes) == 0, path);
  char* memory = Map(MAP_SHARED, fd);
  Writer writer(memory, kBytes);
  writer.Register();
  for (bool is_first = true;; is_first = false) {
    Require(fdatasync(fd) == 0 && madvise(memory, kBytes, MADV_PAGEOUT) == 0 &&
                posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0,
            "file");
    writer.Post();
    writer.AwaitCompletion();
    if (is_first) ReportWork();
  }
}

void WriteToSilentFuseFile() {
  if (!FuseFile::Available()) return ReportRefusal("/dev/fuse cannot be opened");
  const FuseFile file(FuseFile::Reads::kWithheld, FuseFile::Flushes::kAnswered);
  if (file.fd < 0) return ReportRefusal("no FUSE file can be mounted");
  char* memory = Map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
  // Not the first page, which ibv_reg_mr reads. A private mapping: ibv_reg_mr calls fstat on the
  // file of a shared one, which this server does not answer.
  Require(mmap(memory + kPage, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file.fd,
               0) != MAP_FAILED,
          "mmap of a FUSE file");
  Writer(memory, 2 * kPage).StallForEver();
}

void WriteToSwappedPages() {
  const SwapFile swap("/var/tmp");
  if (!swap.refusal().empty()) return ReportRefusal(swap.refusal());
  char* memory = Map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
  std::memset(memory, 1, kBytes);
  if (!SwapOut(memory)) return ReportRefusal("MADV_PAGEOUT does not swap pages out");
  Writer writer(memory, kBytes);
  writer.Register();
  for (bool is_first = true;; is_first = false) {
    Require(SwapOut(memory), "MADV_PAGEOUT");
    writer.Post();
    writer.AwaitCompletion();
    if (is_first) ReportWork();
  }
}

StallingProcess::StallingProcess(const std::vector<std::string>& arguments) {
  int ends[2];
  Require(pipe2(ends, O_CLOEXEC) == 0, "pipe2");
  std::vector<char*> argv{const_cast<char*>("stalling_program")};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  pid_ = fork();
  Require(pid_ >= 0, "fork");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(ends[1]);
  output_ = ends[0];
}

StallingProcess::~StallingProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  AwaitHelpers();
  close(output_);
}

StallingProcess::State StallingProcess::AwaitReport() {
  std::string all;
  char part[256];
  for (ssize_t got; (got = read(output_, part, sizeof(part))) > 0;) {
    all.append(part, static_cast<size_t>(got));
    if (all.find(kAtWork) != std::string::npos) return State::kAtWork;
    const size_t refused = all.find(kRefused);
    const size_t end = refused == std::string::npos ? refused : all.find('\n', refused);
    if (end == std::string::npos) continue;
    refusal_ = all.substr(refused + sizeof(kRefused) - 1, end - refused - sizeof(kRefused) + 1);
    return State::kRefused;
  }
  std::fputs(all.c_str(), stderr);
  return State::kFailed;
}

void StallingProcess::Stop() const {
  kill(pid_, SIGSTOP);
  waitpid(pid_, nullptr, WUNTRACED);
}

void StallingProcess::Continue() const { kill(pid_, SIGCONT); }

// The helpers keep the output open until they end.
void StallingProcess::AwaitHelpers() const {
  char rest[256];
  for (pollfd wait{output_, POLLIN, 0}; poll(&wait, 1, 15'000) > 0;) {
    if (read(output_, rest, sizeof(rest)) <= 0) return;
  }
  std::fputs("stalling program: a helper process does not end\n", stderr);
}

}  // namespace roci::testing
