// Operations on registered memory by processes that copy, share or read it.
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "tests/interop/memory_checks.h"
#include "tests/interop/memory_row.h"

namespace interop {
namespace {

constexpr size_t kWordLength = 16;  // of a child's message

// A pipe that carries words of fixed length.
class WordPipe {
 public:
  bool Open() { return pipe(ends_.data()) == 0; }
  void Say(const std::string& word) const {
    std::array<char, kWordLength> text = {};
    word.copy(text.data(), kWordLength - 1);
    if (write(ends_[1], text.data(), kWordLength) < 0) _exit(1);
  }
  /// "" if the other side has closed the pipe.
  std::string Hear() const {
    std::array<char, kWordLength> text = {};
    return read(ends_[0], text.data(), kWordLength) > 0 ? text.data() : "";
  }
  void CloseReading() const { close(ends_[0]); }
  void CloseWriting() const { close(ends_[1]); }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

pid_t LibraryFork() { return fork(); }

// Does not run the handlers of pthread_atfork.
pid_t BareFork() { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }

int WaitFor(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// A child that reads the memory, writes it, and reads it again after all checks are done.
class Fork : public Operation {
 public:
  explicit Fork(pid_t (*forks)()) : forks_(forks) {}

  int Act(Subject& subject) override {
    if (!from_child_.Open() || !to_child_.Open()) return errno;
    child_ = forks_();
    if (child_ < 0) return errno;
    if (child_ == 0) Child(subject);
    from_child_.CloseWriting();
    subject.brought = Pattern::kChild;
    subject.Remark("child " + OrGone(from_child_.Hear()));
    from_child_.Hear();
    return 0;
  }

  void Finish(Subject& subject) override {
    if (child_ < 0) return;
    to_child_.Say("look");
    subject.Remark(OrGone(from_child_.Hear()));
    WaitFor(child_);
  }

 private:
  [[noreturn]] void Child(const Subject& subject) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    from_child_.CloseReading();
    to_child_.CloseWriting();
    const size_t offset = subject.region.part;
    from_child_.Say(Look(subject.at, offset, subject.check_length, Pattern::kBrought));
    const bool wrote =
        ProgramWrites(subject.region, subject.at, Pattern::kChild, offset, subject.check_length);
    from_child_.Say("written");
    to_child_.Hear();
    const std::string last = Look(subject.at, offset, subject.check_length, Pattern::kChild);
    if (!wrote) {
      from_child_.Say("cannot write");
    } else {
      from_child_.Say(last == "arrived" ? "apart" : "shared");
    }
    _exit(0);
  }
  static std::string OrGone(const std::string& word) { return word.empty() ? "died" : word; }

  pid_t (*forks_)();
  pid_t child_ = -1;
  WordPipe from_child_, to_child_;
};

class AdvisedFork : public Fork {
 public:
  explicit AdvisedFork(int advice) : Fork(LibraryFork), advice_(advice) {}
  int Act(Subject& subject) override {
    const int status = madvise(subject.at, subject.region.part_length, advice_);
    const int error = status == 0 ? 0 : errno;
    const int fork_error = Fork::Act(subject);
    return error != 0 ? error : fork_error;
  }

 private:
  int advice_;
};

// Runs in a child that shares the address space.
int WriteInSharedSpace(void* argument) {
  const auto& subject = *static_cast<Subject*>(argument);
  ProgramWrites(subject.region, subject.at, Pattern::kChild, subject.region.part,
                subject.check_length);
  return 0;
}

int VFork(Subject& subject) {
  subject.brought = Pattern::kChild;
  const pid_t child = vfork();  // NOLINT: this row tests vfork
  if (child == 0) {
    WriteInSharedSpace(&subject);
    _exit(0);
  }
  if (child < 0) return errno;
  WaitFor(child);
  return 0;
}

int CloneVm(Subject& subject) {
  constexpr size_t kStack = 65536;
  static std::array<uint8_t, kStack> stack;
  subject.brought = Pattern::kChild;
  const pid_t child =
      clone(WriteInSharedSpace, stack.data() + kStack, CLONE_VM | SIGCHLD, &subject);
  if (child < 0) return errno;
  WaitFor(child);
  return 0;
}

int Spawn(Subject& subject) {
  std::string program = "/bin/true";
  char* arguments[] = {program.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ);
  if (error != 0) return error;
  subject.Remark(WaitFor(child) == 0 ? "program ran" : "program failed");
  return 0;
}

// Forks a child that calls `look` on its parent's memory and reports the result, one word.
int ChildLooks(Subject& subject, std::string (*look)(const Subject& subject)) {
  WordPipe from_child;
  if (!from_child.Open()) return errno;
  const pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) {
    from_child.Say(look(subject));
    _exit(0);
  }
  from_child.CloseWriting();
  const std::string word = from_child.Hear();
  WaitFor(child);
  subject.Remark("child " + (word.empty() ? "died" : word));
  return 0;
}

std::string ReadParent(const Subject& subject) {
  std::vector<uint8_t> copy(subject.check_length);
  const iovec to = {copy.data(), copy.size()};
  const iovec from = {subject.at, copy.size()};
  const ssize_t got = process_vm_readv(getppid(), &to, 1, &from, 1, 0);
  if (got != static_cast<ssize_t>(copy.size())) return got < 0 ? strerrorname_np(errno) : "short";
  return Look(copy.data(), subject.region.part, copy.size(), Pattern::kBrought);
}

std::vector<uint8_t> Brought(const Subject& subject) {
  std::vector<uint8_t> bytes(subject.check_length);
  Fill(Pattern::kBrought, bytes.data(), subject.region.part, bytes.size());
  return bytes;
}

std::string WriteParent(const Subject& subject) {
  std::vector<uint8_t> bytes = Brought(subject);
  const iovec from = {bytes.data(), bytes.size()};
  const iovec to = {subject.at, bytes.size()};
  const ssize_t put = process_vm_writev(getppid(), &from, 1, &to, 1, 0);
  return put == static_cast<ssize_t>(bytes.size()) ? "wrote" : strerrorname_np(errno);
}

// Stops the process as a debugger does. Returns an errno, or 0.
int StopByPtrace(pid_t process) {
  if (ptrace(PTRACE_SEIZE, process, 0, 0) != 0) return errno;
  if (ptrace(PTRACE_INTERRUPT, process, 0, 0) != 0) return errno;
  WaitFor(process);
  return 0;
}

std::string PokeParent(const Subject& subject) {
  const std::vector<uint8_t> bytes = Brought(subject);
  const pid_t parent = getppid();
  int error = StopByPtrace(parent);
  for (size_t i = 0; error == 0 && i < bytes.size(); i += sizeof(long)) {
    long word = 0;
    memcpy(&word, bytes.data() + i, sizeof(word));
    if (ptrace(PTRACE_POKEDATA, parent, subject.at + i, word) != 0) error = errno;
  }
  ptrace(PTRACE_DETACH, parent, 0, 0);
  return error == 0 ? "wrote" : strerrorname_np(error);
}

std::string PeekParent(const Subject& subject) {
  constexpr size_t kPeeked = 64;
  std::array<uint8_t, kPeeked> copy = {};
  const pid_t parent = getppid();
  const int error = StopByPtrace(parent);
  if (error != 0) return strerrorname_np(error);
  for (size_t i = 0; i < kPeeked; i += sizeof(long)) {
    const long word = ptrace(PTRACE_PEEKDATA, parent, subject.at + i, 0);
    memcpy(copy.data() + i, &word, sizeof(word));
  }
  ptrace(PTRACE_DETACH, parent, 0, 0);
  return Look(copy.data(), subject.region.part, kPeeked, Pattern::kBrought);
}

}  // namespace

std::unique_ptr<Operation> AdviseAndFork(int advice) {
  return std::make_unique<AdvisedFork>(advice);
}

std::unique_ptr<Operation> MakeFork(ForkCall call) {
  return std::make_unique<Fork>(call == ForkCall::kBare ? BareFork : LibraryFork);
}

void AddProcesses(std::vector<NamedOperation>& operations) {
  auto add = [&](const char* name, std::unique_ptr<Operation> operation) {
    operations.push_back({name, std::move(operation)});
  };
  add("fork", MakeFork(ForkCall::kLibrary));
  add("fork by the bare system call", MakeFork(ForkCall::kBare));
  add("vfork", Once(VFork));
  add("clone(CLONE_VM)", Once(CloneVm));
  add("posix_spawn", Once(Spawn));
  add("process_vm_readv by a child",
      Once([](Subject& subject) { return ChildLooks(subject, ReadParent); }));
  add("process_vm_writev by a child",
      Once([](Subject& subject) { return ChildLooks(subject, WriteParent); }));
  add("ptrace by a child", Once([](Subject& subject) { return ChildLooks(subject, PeekParent); }));
  add("ptrace by a child, writing",
      Once([](Subject& subject) { return ChildLooks(subject, PokeParent); }));
}

}  // namespace interop
