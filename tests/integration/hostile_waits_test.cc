// A program of an ordinary user that blocks every lookup in its process: root's daemon must serve
// other programs, and end at SIGTERM.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/attacker.h"
#include "tests/integration/fuse_file.h"
#include "tests/integration/other_users.h"
#include "tests/integration/raw_session.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::testing {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr uint64_t kPageSize = 4096;
constexpr uint32_t kLocalWrite = 1;

// How the program blocks lookups in its process.
enum class Trap {
  kPage,  // the page with exec's random bytes is in a file whose server is silent
  kLock,  // the lock of its address space is held by the retry of a page fault, which
          // does not drop the lock, with a writer waiting
  kExec,  // its exec blocks, since it closes a file whose server does not answer
};

// Requests for which the daemon examines the process.
enum class Question {
  kHelloByDescriptor,
  kHelloByNumber,
  kMapping,       // a region of memory that has no descriptor
  kContext,       // a context that another process names
  kEventChannel,  // of librdmacm
};

roci_abi_hello_request HelloRequest(uint64_t features) {
  roci_abi_hello_request hello{};
  hello.magic = ROCI_ABI_MAGIC;
  hello.major = ROCI_ABI_MAJOR;
  hello.features = features;
  std::snprintf(hello.device, sizeof(hello.device), "roci0");
  return hello;
}

// A file whose server withholds reads, mounted by root as fusermount(1) does for others: the kernel
// refuses root's reads of one that an ordinary user has mounted in a namespace.
class RootsFile {
 public:
  RootsFile() {
    mounter_ = fork();
    if (mounter_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const FuseFile file(FuseFile::Reads::kWithheld);
      Line::Send(line_.ends[1], file.server);
      Line::Send(line_.ends[1], file.fd);
      for (;;) pause();
    }
    server_ = static_cast<pid_t>(Line::Receive(line_.ends[0]));
    const auto number = static_cast<int>(Line::Receive(line_.ends[0]));
    const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, mounter_, 0));
    fd_ = static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, number, 0));
    close(pidfd);
  }
  ~RootsFile() {
    if (server_ > 0) kill(server_, SIGKILL);  // first, since closing the file waits for the server
    kill(mounter_, SIGKILL);
    waitpid(mounter_, nullptr, 0);
    if (fd_ >= 0) close(fd_);
  }
  RootsFile(const RootsFile&) = delete;
  RootsFile& operator=(const RootsFile&) = delete;
  int fd() const { return fd_; }

 private:
  Line line_;
  pid_t mounter_;
  pid_t server_;
  int fd_;
};

// The blocked program, and its child, which sends the requests.
class TrappedProgram {
 public:
  // Returns in the child once its parent is blocked. `requests`: of `file`.
  TrappedProgram(Trap trap, Question question, int file, const FuseFile::Requests* requests)
      : trap_(trap), question_(question), requests_(requests) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Prepare();
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      AwaitTrap(trap);
      return;
    }
    if (trap == Trap::kExec) {
      execl("/bin/sleep", "sleep", "60", static_cast<char*>(nullptr));
      _exit(3);
    }
    // On another stack, since the page may be part of this one.
    auto* const program = new TrappedProgram(*this);
    std::thread([=, main_thread = gettid()] {
      AwaitPause(main_thread);
      trap == Trap::kPage ? TakePage(file) : program->HoldLock(file);
      if (question == Question::kEventChannel) {
        program->AwaitTrap(trap);
        program->OpenChannel();
      }
      program->ready_->store(1);
      for (;;) pause();
    }).detach();
    for (;;) pause();
  }

  void Ask() {
    switch (question_) {
      case Question::kHelloByDescriptor:
        if (trap_ == Trap::kExec) memory_ = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
        session_->Send(ROCI_ABI_HELLO, HelloRequest(ROCI_ABI_FEATURE_APP_MEMORY), {memory_});
        break;
      case Question::kHelloByNumber:
        session_->Send(ROCI_ABI_HELLO, HelloRequest(0));
        break;
      case Question::kMapping:
        session_->Send(ROCI_ABI_REG_MR, registration_);
        break;
      case Question::kContext: {
        roci_abi_attach_request attach{};
        attach.magic = ROCI_ABI_MAGIC;
        attach.major = ROCI_ABI_MAJOR;
        (new RawSession)->Send(ROCI_ABI_ATTACH, attach, {context_});
        break;
      }
      case Question::kEventChannel:
        break;
    }
  }

 private:
  void Prepare() {
    memory_ = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (question_ == Question::kEventChannel) {
      const std::string path =
          abi::RuntimeDir(nullptr, abi::RuntimeDirUse::kConnect) + "/" + ROCI_ABI_CM_SOCKET_NAME;
      std::snprintf(channel_.sun_path, sizeof(channel_.sun_path), "%s", path.c_str());
      channel_fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
      // Resolves and loads everything before the lock is held.
      const sockaddr_un nobody{.sun_family = AF_UNIX, .sun_path = "/dev/null"};
      [[maybe_unused]] const int status =
          connect(channel_fd_, reinterpret_cast<const sockaddr*>(&nobody), sizeof(nobody));
      usleep(1);
      return;
    }
    session_ = new RawSession;
    if (question_ != Question::kMapping && question_ != Question::kContext) return;
    if (session_->Hello("roci0", memory_) != 0) _exit(3);
    context_ = open("/dev/null", O_RDONLY);
    roci_abi_name_context_request name{};
    name.fd = context_;
    roci_abi_plain_response plain;
    if (session_->Call(ROCI_ABI_NAME_CONTEXT, name, plain) != 0) _exit(3);
    void* at = mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    registration_.pd = session_->AllocPd();
    registration_.access = kLocalWrite;
    registration_.start = registration_.iova = reinterpret_cast<uint64_t>(at);
    registration_.length = kPageSize;
    registration_.extent_count = 1;
    registration_.extents[0].va = registration_.start;
    registration_.extents[0].length = kPageSize;
    registration_.extents[0].kind = ROCI_ABI_EXTENT_MAP_FILES;
    registration_.extents[0].map_start = registration_.start;
    registration_.extents[0].map_end = registration_.start + kPageSize;
  }
  // Waits until `thread` is in pause(), where it does not use its stack.
  static void AwaitPause(pid_t thread) {
    char path[64], call[8] = {};
    std::snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", thread);
    const std::string wanted = std::to_string(SYS_pause) + " ";
    while (wanted.compare(0, wanted.size(), call, wanted.size()) != 0) {
      usleep(1000);
      const int file = open(path, O_RDONLY | O_CLOEXEC);
      if (file < 0 || read(file, call, sizeof(call)) < 0) _exit(3);
      close(file);
    }
  }
  static void TakePage(int file) {
    const uint64_t page = getauxval(AT_RANDOM) / kPageSize * kPageSize;
    if (mmap(reinterpret_cast<void*>(page), kPageSize, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
      _exit(3);
    }
  }
  // A new thread's stack needs the lock, so both threads exist before the page fault starts.
  void HoldLock(int file) const {
    void* at = mmap(nullptr, kPageSize, PROT_READ, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) _exit(3);
    static std::atomic<bool> begins{false};
    std::thread([at] {
      while (!begins) usleep(1000);
      char byte;
      const iovec local{&byte, 1}, remote{at, 1};
      process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    }).detach();
    std::thread([this] {
      while (requests_->reads < 2) usleep(1000);
      [[maybe_unused]] void* const mapped =
          mmap(nullptr, kPageSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }).detach();
    begins = true;
  }
  void AwaitTrap(Trap trap) const {
    if (trap == Trap::kPage) return;
    const std::atomic<uint32_t>& sign = trap == Trap::kLock ? requests_->reads : requests_->flushes;
    while (sign < (trap == Trap::kLock ? 2 : 1)) usleep(1000);
    usleep(300'000);  // until the writer waits for the lock
  }
  void OpenChannel() const {
    [[maybe_unused]] const int status =
        connect(channel_fd_, reinterpret_cast<const sockaddr*>(&channel_), sizeof(channel_));
  }

 public:
  // The parent is blocked and its preparation is done.
  void AwaitParent(Trap trap) const {
    while (trap != Trap::kExec && ready_->load() == 0) usleep(1000);
  }

 private:
  const Trap trap_;
  const Question question_;
  const FuseFile::Requests* const requests_;
  std::atomic<int>* const ready_ =
      new (mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
          std::atomic<int>(0);
  int memory_ = -1;
  int context_ = -1;
  RawSession* session_ = nullptr;  // open until the process ends
  sockaddr_un channel_{.sun_family = AF_UNIX, .sun_path = {}};
  int channel_fd_ = -1;
  roci_abi_reg_mr_request registration_{};
};

// Blocks the program and sends the requests.
class WaitingProgram {
 public:
  WaitingProgram(Trap trap, Question question)
      : roots_file_(trap == Trap::kPage ? std::make_unique<RootsFile>() : nullptr),
        attacker_(std::make_unique<Attacker>([=, this](int line) {
          std::unique_ptr<FuseFile> own;
          if (trap != Trap::kPage) {
            own = std::make_unique<FuseFile>(trap == Trap::kLock
                                                 ? FuseFile::Reads::kWithheldAfterAnError
                                                 : FuseFile::Reads::kAnswered);
          }
          const int file = own != nullptr ? own->fd : roots_file_->fd();
          Line::Send(line, file < 0 ? kNoFile : own != nullptr ? own->server : 0);
          if (file < 0) return;
          const pid_t trapped = fork();
          if (trapped == 0) {
            TrappedProgram program(trap, question, file, own != nullptr ? own->requests : nullptr);
            program.AwaitParent(trap);
            program.Ask();
            Line::Send(line, 0);
            for (;;) pause();
          }
          waitpid(trapped, nullptr, 0);
        })),
        server_(static_cast<pid_t>(attacker_->Hear())) {}
  ~WaitingProgram() { End(); }
  WaitingProgram(const WaitingProgram&) = delete;
  WaitingProgram& operator=(const WaitingProgram&) = delete;

  // False: FUSE cannot be mounted here.
  bool has_file() const { return server_ != kNoFile; }
  // Waits until the program is blocked and has sent its requests. False: it has ended, or is stuck.
  bool Asks() { return attacker_->Hear() == 0; }
  // Ends every wait as well.
  void End() {
    if (server_ > 0) kill(server_, SIGKILL);
    server_ = 0;
    roots_file_.reset();
    attacker_.reset();
  }

 private:
  static constexpr pid_t kNoFile = -1;

  std::unique_ptr<RootsFile> roots_file_;
  std::unique_ptr<Attacker> attacker_;
  pid_t server_;
};

class HostileWaitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "cannot become another user";
    if (!FuseFile::Available()) GTEST_SKIP() << "no /dev/fuse";
    LetOtherUsersIn();
  }
  // Another user's program opens the device, and its calls are answered.
  static void ExpectServed() {
    const auto begin = steady_clock::now();
    const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    for (const int by : {memory, -1}) {
      RawSession victim;
      ASSERT_EQ(victim.Hello("roci0", by), 0);
      const uint32_t pd = victim.AllocPd();
      ASSERT_NE(pd, 0u) << victim.error;
      ASSERT_NE(victim.CreateCq(16), 0u) << victim.error;
    }
    close(memory);
    RawSession channel(ROCI_ABI_CM_SOCKET_NAME);
    roci_abi_cm_open_request request{};
    request.magic = ROCI_ABI_MAGIC;
    request.major = ROCI_ABI_MAJOR;
    roci_abi_cm_open_response response;
    EXPECT_EQ(channel.Call(ROCI_ABI_CM_OPEN, request, response), 0);
    EXPECT_LT(steady_clock::now() - begin, seconds(2));
  }
  static pid_t DaemonPid() {
    const char* pid = std::getenv("ROCID_PID");
    if (pid == nullptr) std::abort();
    return std::atoi(pid);
  }
};

struct Case {
  const char* name;
  Trap trap;
  Question question;
};
constexpr Case kCases[] = {
    {"PageAtHelloByDescriptor", Trap::kPage, Question::kHelloByDescriptor},
    {"PageAtHelloByNumber", Trap::kPage, Question::kHelloByNumber},
    {"PageAtMapping", Trap::kPage, Question::kMapping},
    {"PageAtContext", Trap::kPage, Question::kContext},
    {"PageAtEventChannel", Trap::kPage, Question::kEventChannel},
    {"LockAtHelloByDescriptor", Trap::kLock, Question::kHelloByDescriptor},
    {"LockAtHelloByNumber", Trap::kLock, Question::kHelloByNumber},
    {"LockAtMapping", Trap::kLock, Question::kMapping},
    {"LockAtContext", Trap::kLock, Question::kContext},
    {"LockAtEventChannel", Trap::kLock, Question::kEventChannel},
    {"ExecAtHelloByDescriptor", Trap::kExec, Question::kHelloByDescriptor},
    {"ExecAtHelloByNumber", Trap::kExec, Question::kHelloByNumber},
    {"ExecAtMapping", Trap::kExec, Question::kMapping},
    {"ExecAtContext", Trap::kExec, Question::kContext},
};

class EachWait : public HostileWaitsTest, public ::testing::WithParamInterface<Case> {};

TEST_P(EachWait, DelaysNoOtherProgram) {
  WaitingProgram program(GetParam().trap, GetParam().question);
  if (!program.has_file()) GTEST_SKIP() << "FUSE cannot be mounted";
  ASSERT_TRUE(program.Asks()) << "the program is not blocked";
  ExpectServed();
  program.End();
  ExpectServed();
}

INSTANTIATE_TEST_SUITE_P(By, EachWait, ::testing::ValuesIn(kCases),
                         [](const auto& tested) { return tested.param.name; });

// Z: zombie.
char StateOf(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name;
  char state = 'Z';
  status >> number >> name >> state;
  return state;
}

// All waits at once that a signal can end. Runs alone.
class DaemonEnds : public HostileWaitsTest {};

TEST_F(DaemonEnds, AtSigterm) {
  std::vector<std::unique_ptr<WaitingProgram>> programs;
  for (const Case& each : kCases) {
    if (each.trap == Trap::kPage) continue;
    programs.push_back(std::make_unique<WaitingProgram>(each.trap, each.question));
    if (!programs.back()->has_file()) GTEST_SKIP() << "FUSE cannot be mounted";
    ASSERT_TRUE(programs.back()->Asks()) << each.name << ": the program is not blocked";
  }
  usleep(100'000);
  const pid_t daemon = DaemonPid();
  kill(daemon, SIGTERM);
  const auto begin = steady_clock::now();
  while (StateOf(daemon) != 'Z' && steady_clock::now() - begin < seconds(8)) usleep(10'000);
  EXPECT_LT(steady_clock::now() - begin, seconds(5));
}

}  // namespace
}  // namespace roci::testing
