// Access by system calls to every kind of program memory, also after it is unmapped or the program
// has ended.
#include "memory/app_memory.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/unit/emulated.h"
#include "tests/unit/memory/forked_app.h"
#include "tests/unit/sanitized.h"

namespace roci::memory {
namespace {

constexpr size_t kLength = 3 * 4096;
char g_bss[8 * 4096];
char g_data[4 * 4096] = {1};

void* Anonymous(int flags, int prot = PROT_READ | PROT_WRITE) {
  return mmap(nullptr, kLength, prot, flags | MAP_ANONYMOUS, -1, 0);
}

void* Memfd(int flags) {
  const int fd = memfd_create("t", MFD_CLOEXEC);
  if (ftruncate(fd, kLength) != 0) return MAP_FAILED;
  return mmap(nullptr, kLength, PROT_READ | PROT_WRITE, flags, fd, 0);
}

void* TmpFile(int flags) {
  char path[] = "/tmp/roci-memory-test-XXXXXX";
  const int fd = mkstemp(path);
  unlink(path);
  if (ftruncate(fd, kLength) != 0) return MAP_FAILED;
  return mmap(nullptr, kLength, PROT_READ | PROT_WRITE, flags, fd, 0);
}

void* SysV() {
  const int id = shmget(IPC_PRIVATE, kLength, IPC_CREAT | 0600);
  void* at = shmat(id, nullptr, 0);
  shmctl(id, IPC_RMID, nullptr);
  return at;
}

// The child creates the memory, so that the test's own process does not have it.
struct Kind {
  const char* name;
  void* (*make)();
};
const Kind kKinds[] = {
    {"private_anonymous", [] { return Anonymous(MAP_PRIVATE); }},
    {"shared_anonymous", [] { return Anonymous(MAP_SHARED); }},
    {"malloc", [] { return std::malloc(kLength); }},
    {"bss", [] { return static_cast<void*>(g_bss + 100); }},
    {"data", [] { return static_cast<void*>(g_data + 100); }},
    {"memfd_shared", [] { return Memfd(MAP_SHARED); }},
    {"memfd_private", [] { return Memfd(MAP_PRIVATE); }},
    {"file_shared", [] { return TmpFile(MAP_SHARED); }},
    {"file_private", [] { return TmpFile(MAP_PRIVATE); }},
    {"sysv", [] { return SysV(); }},
};

const Reach kReaches[] = {Reach::kAddressSpace, Reach::kProcess};
const char* NameOf(Reach reach) { return reach == Reach::kProcess ? "process" : "address_space"; }

class EveryKind : public testing::TestWithParam<std::tuple<Kind, Reach>> {};

TEST_P(EveryKind, IsReadAndWritten) {
  ForkedApp app([](Channel& channel) {
    void* memory = std::get<Kind>(GetParam()).make();
    if (memory == MAP_FAILED) _exit(2);
    FillPattern(memory, kLength, 1);
    channel.Send(reinterpret_cast<uint64_t>(memory));
    channel.Receive();
    channel.Send(HasPattern(memory, kLength, 2));
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  auto memory = app.Open(std::get<Reach>(GetParam()));
  std::vector<std::byte> bytes(kLength);
  ASSERT_EQ(memory->Read(va, bytes), MemoryStatus::kOk);
  EXPECT_TRUE(HasPattern(bytes.data(), kLength, 1));
  FillPattern(bytes.data(), kLength, 2);
  ASSERT_EQ(memory->Write(va, bytes), MemoryStatus::kOk);
  app.channel().Send(0);
  EXPECT_EQ(app.channel().Receive(), 1U);
}

INSTANTIATE_TEST_SUITE_P(AppMemory, EveryKind,
                         testing::Combine(testing::ValuesIn(kKinds), testing::ValuesIn(kReaches)),
                         [](const auto& tested) {
                           return std::string(std::get<Kind>(tested.param).name) + "_by_" +
                                  NameOf(std::get<Reach>(tested.param));
                         });

class AppMemoryTest : public testing::TestWithParam<Reach> {};
INSTANTIATE_TEST_SUITE_P(By, AppMemoryTest, testing::ValuesIn(kReaches),
                         [](const auto& tested) { return NameOf(tested.param); });

TEST_P(AppMemoryTest, StackIsReadAndWritten) {
  ForkedApp app([](Channel& channel) {
    volatile uint64_t word = 5;
    channel.Send(reinterpret_cast<uint64_t>(&word));
    channel.Receive();
    channel.Send(word);
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  auto memory = app.Open(GetParam());
  uint64_t word = 0;
  ASSERT_EQ(memory->Read(va, std::as_writable_bytes(std::span(&word, 1))), MemoryStatus::kOk);
  EXPECT_EQ(word, 5U);
  word = 6;
  ASSERT_EQ(memory->Write(va, std::as_bytes(std::span(&word, 1))), MemoryStatus::kOk);
  app.channel().Send(0);
  EXPECT_EQ(app.channel().Receive(), 6U);
}

TEST_P(AppMemoryTest, ReadOnlyMemoryCannotBeWritten) {
  ForkedApp app([](Channel& channel) {
    void* at = Anonymous(MAP_PRIVATE);
    FillPattern(at, kLength, 1);
    mprotect(at, kLength, PROT_READ);
    channel.Send(reinterpret_cast<uint64_t>(at));
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  auto memory = app.Open(GetParam());
  std::vector<std::byte> bytes(kLength);
  if (GetParam() == Reach::kAddressSpace) {
    GTEST_SKIP() << "whether /proc/PID/mem writes it is a setting of the kernel's";
  }
  if (IsEmulated()) GTEST_SKIP() << "qemu-user has no process_vm_writev";
  EXPECT_EQ(memory->Write(va, bytes), MemoryStatus::kFault);
  ASSERT_EQ(memory->Read(va, bytes), MemoryStatus::kOk);
  EXPECT_TRUE(HasPattern(bytes.data(), kLength, 1));
}

// Two lists whose runs begin and end at different offsets, and more runs than one system call
// accepts.
TEST_P(AppMemoryTest, ListsNeedNotHaveTheSameRuns) {
  constexpr size_t kRuns = 200;
  ForkedApp app([](Channel& channel) {
    FillPattern(g_bss, sizeof(g_bss), 3);
    channel.Send(reinterpret_cast<uint64_t>(g_bss));
    channel.Receive();
    channel.Send(HasPattern(g_bss, sizeof(g_bss), 4));
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  auto memory = app.Open(GetParam());
  std::vector<std::byte> bytes(sizeof(g_bss));
  std::vector<iovec> local, remote;
  for (size_t at = 0, i = 0; at < bytes.size(); ++i) {
    const size_t length = std::min(bytes.size() - at, i + 1 < kRuns ? i % 7 * 31 : bytes.size());
    local.push_back({&bytes[at], length});
    at += length;
  }
  constexpr size_t kRemoteRun = 16'000;
  for (size_t at = 0; at < bytes.size(); at += kRemoteRun) {
    remote.push_back({reinterpret_cast<void*>(va + at), std::min(bytes.size() - at, kRemoteRun)});
  }
  EXPECT_EQ(memory->Transfer(Direction::kFromApp, local, remote), bytes.size());
  EXPECT_TRUE(HasPattern(bytes.data(), bytes.size(), 3));
  FillPattern(bytes.data(), bytes.size(), 4);
  EXPECT_EQ(memory->Transfer(Direction::kToApp, local, remote), bytes.size());
  app.channel().Send(0);
  EXPECT_EQ(app.channel().Receive(), 1U);
}

TEST_P(AppMemoryTest, RangeThatRunsIntoAHoleFaults) {
  ForkedApp app([](Channel& channel) {
    auto* at = static_cast<char*>(Anonymous(MAP_PRIVATE));
    munmap(at + 2 * 4096, 4096);
    channel.Send(reinterpret_cast<uint64_t>(at));
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  auto memory = app.Open(GetParam());
  std::vector<std::byte> bytes(kLength);
  EXPECT_EQ(memory->Read(va, bytes), MemoryStatus::kFault);
  EXPECT_EQ(memory->Write(va, bytes), MemoryStatus::kFault);
  EXPECT_EQ(memory->Read(va, std::span(bytes).first(2 * 4096)), MemoryStatus::kOk);
  EXPECT_EQ(memory->Read(0, std::span(bytes).first(8)), MemoryStatus::kFault);
  EXPECT_EQ(memory->Read(UINT64_MAX - 3, std::span(bytes).first(8)), MemoryStatus::kFault);
}

TEST_P(AppMemoryTest, TransferReturnsTheBytesCopied) {
  ForkedApp app([](Channel& channel) {
    auto* at = static_cast<char*>(Anonymous(MAP_PRIVATE));
    munmap(at + 4096, 4096);
    channel.Send(reinterpret_cast<uint64_t>(at));
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  auto memory = app.Open(GetParam());
  char bytes[300];
  const iovec local{bytes, 300};
  const iovec remote[] = {{reinterpret_cast<void*>(va), 100},
                          {reinterpret_cast<void*>(va + 4096), 100},
                          {reinterpret_cast<void*>(va + 8192), 100}};
  EXPECT_EQ(memory->Transfer(Direction::kFromApp, {&local, 1}, remote), 100U);
  EXPECT_EQ(memory->Transfer(Direction::kToApp, {&local, 1}, remote), 100U);
}

TEST_P(AppMemoryTest, ProcessThatExitedFaults) {
  ForkedApp app([](Channel& channel) {
    channel.Send(reinterpret_cast<uint64_t>(g_bss));
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  auto memory = app.Open(GetParam());
  EXPECT_TRUE(memory->Alive());
  app.Kill();
  EXPECT_FALSE(memory->Alive());
  std::byte bytes[8] = {};
  EXPECT_EQ(memory->Read(va, bytes), MemoryStatus::kFault);
  EXPECT_EQ(memory->Write(va, bytes), MemoryStatus::kFault);
}

// After exec the process ID and the pidfd are unchanged, but the memory belongs to another program.
// Mappings of /bin/sleep may cover the old address: it must be neither read nor written. The daemon
// must detect that the old program has ended.
TEST_P(AppMemoryTest, ProcessThatCalledExecFaults) {
  ForkedApp app([](Channel& channel) {
    channel.Send(0);
    channel.Receive();
    execl("/bin/sleep", "sleep", "30", static_cast<char*>(nullptr));
  });
  app.channel().Receive();
  auto memory = app.Open(GetParam());
  ASSERT_TRUE(memory->Alive());
  app.channel().Send(0);
  for (int tries = 0; tries < 2000 && memory->Alive(); ++tries) usleep(1000);
  EXPECT_FALSE(memory->Alive());
  // An address that is mapped and writable in the new program, from its maps.
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/maps", app.pid());
  FILE* maps = fopen(path, "r");
  unsigned long begin = 0;
  char rights[8] = {};
  while (rights[0] != 'r' || rights[1] != 'w') {
    ASSERT_EQ(fscanf(maps, "%lx-%*x %4s%*[^\n]", &begin, rights), 2);
  }
  fclose(maps);
  std::byte bytes[8] = {};
  EXPECT_EQ(memory->Read(begin, bytes), MemoryStatus::kFault);
  EXPECT_EQ(memory->Write(begin, bytes), MemoryStatus::kFault);
}

// After the main thread has ended, the address space remains, but the process ID no longer gives
// access to it.
TEST_P(AppMemoryTest, ProcessWhoseMainThreadHasEndedIsAccessible) {
  if (kSanitized) GTEST_SKIP() << "ThreadSanitizer forbids threads after a fork with threads";
  ForkedApp app([](Channel& channel) {
    FillPattern(g_bss, sizeof(g_bss), 1);
    channel.Send(reinterpret_cast<uint64_t>(g_bss));
    channel.Receive();
    std::thread([&channel] {
      while (access("/proc/self/exe", F_OK) == 0) usleep(1000);
      channel.Send(0);
      channel.Receive();
      _exit(0);
    }).detach();
    syscall(SYS_exit, 0);
  });
  const uint64_t at = app.channel().Receive();
  const auto memory = app.Open(GetParam());
  ASSERT_NE(memory, nullptr);
  app.channel().Send(0);
  app.channel().Receive();
  std::byte bytes[600];
  EXPECT_EQ(memory->Read(at, bytes), MemoryStatus::kOk);
  EXPECT_EQ(memory->Write(at, bytes), MemoryStatus::kOk);
  EXPECT_FALSE(memory->IsGone());
}

// A process that shares its memory with another one (CLONE_VM) calls exec: the memory is still in
// use, but no longer belongs to the process.
TEST_P(AppMemoryTest, ProcessThatSharedItsMemoryAndCalledExecIsNotAccessed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer does not know of processes that share memory";
  if (IsEmulated()) GTEST_SKIP() << "qemu-user has no processes that share memory";
  static int go[2];
  ForkedApp app([](Channel& channel) {
    if (pipe(go) != 0) _exit(2);
    FillPattern(g_bss, sizeof(g_bss), 1);
    alignas(16) static char stack[64 * 1024];
    const auto run = [](void*) {
      char byte;
      if (read(go[0], &byte, 1) != 1) _exit(2);
      execl("/bin/sleep", "sleep", "30", static_cast<char*>(nullptr));
      return 1;
    };
    const int child = clone(run, stack + sizeof(stack), CLONE_VM | SIGCHLD, nullptr);
    channel.Send(static_cast<uint64_t>(child));
    channel.Send(reinterpret_cast<uint64_t>(g_bss));
    channel.Receive();
    if (write(go[1], "x", 1) != 1) _exit(2);
    channel.Receive();
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  });
  const auto child = static_cast<pid_t>(app.channel().Receive());
  const uint64_t va = app.channel().Receive();
  ASSERT_GT(child, 0);
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  int error = 0;
  const auto memory = AppMemory::Open(child, pidfd, GetParam(), &error);
  ASSERT_NE(memory, nullptr) << "errno " << error;
  ASSERT_TRUE(memory->Alive());
  app.channel().Send(0);
  for (int tries = 0; tries < 2000 && memory->Alive(); ++tries) usleep(1000);
  EXPECT_FALSE(memory->Alive());
  if (GetParam() == Reach::kAddressSpace) {
    std::vector<std::byte> bytes(kLength);
    ASSERT_EQ(memory->Read(va, bytes), MemoryStatus::kOk) << "it is the other process's still";
    EXPECT_TRUE(HasPattern(bytes.data(), kLength, 1));
  }
  close(pidfd);
  app.channel().Send(0);
}

TEST_P(AppMemoryTest, OpenRefusesAPidThatIsNotThePidfds) {
  ForkedApp gone([](Channel& channel) { channel.Receive(); });
  ForkedApp other([](Channel& channel) {
    channel.Send(0);
    channel.Receive();
  });
  other.channel().Receive();
  gone.Kill();
  int error = 0;
  EXPECT_EQ(AppMemory::Open(other.pid(), gone.pidfd(), GetParam(), &error), nullptr);
  EXPECT_EQ(error, ESRCH);
  EXPECT_EQ(AppMemory::Open(other.pid(), 9999, GetParam(), &error), nullptr);
  EXPECT_EQ(error, EBADF);
}

// Opens /proc/self/mem in the program, as the plugin does, and sends the descriptor to the test.
int PassMemory(Channel& channel) {
  const int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  channel.SendWithFd(reinterpret_cast<uint64_t>(g_bss), fd);
  return fd;
}

TEST_P(AppMemoryTest, TakesADescriptorThatTheProgramPasses) {
  ForkedApp app([](Channel& channel) {
    PassMemory(channel);
    channel.Receive();
    execl("/bin/sleep", "sleep", "30", static_cast<char*>(nullptr));
  });
  int fd = -1;
  const uint64_t va = app.channel().Receive(&fd);
  const int second = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  int error = 0;
  const auto known = AppMemory::Adopt(fd, app.pid(), app.pidfd(), GetParam(), &error);
  ASSERT_NE(known, nullptr) << "errno " << error;
  const auto unknown = AppMemory::Adopt(second, 0, -1, GetParam(), &error);
  ASSERT_NE(unknown, nullptr) << "errno " << error;
  EXPECT_TRUE(known->has_process());
  EXPECT_FALSE(unknown->has_process());
  for (const AppMemory* memory : {known.get(), unknown.get()}) {
    std::byte bytes[8] = {};
    EXPECT_TRUE(memory->Alive());
    EXPECT_EQ(memory->Write(va, bytes), MemoryStatus::kOk);
    EXPECT_EQ(memory->Read(va, bytes), MemoryStatus::kOk);
  }
  EXPECT_FALSE(unknown->AccessibleTo(geteuid())) << "nothing is known of its process";
  app.channel().Send(0);
  for (int tries = 0; tries < 2000 && unknown->Alive(); ++tries) usleep(1000);
  std::byte bytes[8] = {};
  for (const AppMemory* memory : {known.get(), unknown.get()}) {
    EXPECT_FALSE(memory->Alive());
    EXPECT_EQ(memory->Read(va, bytes), MemoryStatus::kFault);
  }
}

TEST_P(AppMemoryTest, RefusesADescriptorOfAnotherProgram) {
  ForkedApp app([](Channel& channel) {
    PassMemory(channel);
    channel.Receive();
  });
  // It calls exec, because nothing visible from outside distinguishes forked processes.
  ForkedApp other([](Channel& channel) {
    channel.Send(0);
    channel.Receive();
    execl("/bin/sleep", "sleep", "30", static_cast<char*>(nullptr));
  });
  int fd = -1;
  app.channel().Receive(&fd);
  other.channel().Receive();
  int error = 0;
  const auto before = other.Open();
  other.channel().Send(0);
  for (int tries = 0; tries < 2000 && before->Alive(); ++tries) usleep(1000);
  EXPECT_EQ(AppMemory::Adopt(fd, other.pid(), other.pidfd(), GetParam(), &error), nullptr);
  EXPECT_EQ(error, EPERM);
  app.Kill();
  EXPECT_EQ(AppMemory::Adopt(fd, app.pid(), app.pidfd(), GetParam(), &error), nullptr);
  EXPECT_EQ(error, ESRCH);
  EXPECT_NE(fcntl(fd, F_GETFD), -1) << "it is the caller's still";
  close(fd);
}

TEST_P(AppMemoryTest, IsAccessibleToItsUserUnlessItHasMoreRights) {
  if (geteuid() != 0) GTEST_SKIP() << "changes users";
  constexpr uid_t kNobody = 65534;
  ForkedApp app([](Channel& channel) {
    // Imitates a set-user-ID program: the process has the user's ID, but the user has no access to
    // it.
    channel.Send(static_cast<uint64_t>(setuid(kNobody)));
    channel.Receive();
    channel.Send(static_cast<uint64_t>(prctl(PR_SET_DUMPABLE, 1)));
    channel.Receive();
  });
  ASSERT_EQ(app.channel().Receive(), 0u);
  int error = 0;
  const auto memory = AppMemory::Open(app.pid(), app.pidfd(), GetParam(), &error);
  ASSERT_NE(memory, nullptr);
  EXPECT_FALSE(memory->AccessibleTo(kNobody));
  app.channel().Send(0);
  ASSERT_EQ(app.channel().Receive(), 0u);
  EXPECT_TRUE(memory->AccessibleTo(kNobody));
  EXPECT_FALSE(memory->AccessibleTo(kNobody - 1));
  app.Kill();
  EXPECT_FALSE(memory->AccessibleTo(kNobody));
}

}  // namespace
}  // namespace roci::memory
