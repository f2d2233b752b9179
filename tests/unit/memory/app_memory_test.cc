// process_vm access to every kind of memory an app can have, and what happens when it, or the app,
// goes away.
#include "memory/app_memory.h"

#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "tests/unit/memory/forked_app.h"

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

// The memory is made in the child, so that the test's own process does not have it.
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

class EveryKind : public testing::TestWithParam<Kind> {};

TEST_P(EveryKind, IsReadAndWritten) {
  ForkedApp app([](Channel& channel) {
    void* memory = GetParam().make();
    if (memory == MAP_FAILED) _exit(2);
    FillPattern(memory, kLength, 1);
    channel.Send(reinterpret_cast<uint64_t>(memory));
    channel.Receive();
    channel.Send(HasPattern(memory, kLength, 2));
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  auto memory = app.Open();
  std::vector<std::byte> bytes(kLength);
  ASSERT_EQ(memory->Read(va, bytes), MemoryStatus::kOk);
  EXPECT_TRUE(HasPattern(bytes.data(), kLength, 1));
  FillPattern(bytes.data(), kLength, 2);
  ASSERT_EQ(memory->Write(va, bytes), MemoryStatus::kOk);
  app.channel().Send(0);
  EXPECT_EQ(app.channel().Receive(), 1U);
}

INSTANTIATE_TEST_SUITE_P(AppMemory, EveryKind, testing::ValuesIn(kKinds),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(AppMemory, StackIsReadAndWritten) {
  ForkedApp app([](Channel& channel) {
    volatile uint64_t word = 5;
    channel.Send(reinterpret_cast<uint64_t>(&word));
    channel.Receive();
    channel.Send(word);
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  auto memory = app.Open();
  uint64_t word = 0;
  ASSERT_EQ(memory->Read(va, std::as_writable_bytes(std::span(&word, 1))), MemoryStatus::kOk);
  EXPECT_EQ(word, 5U);
  word = 6;
  ASSERT_EQ(memory->Write(va, std::as_bytes(std::span(&word, 1))), MemoryStatus::kOk);
  app.channel().Send(0);
  EXPECT_EQ(app.channel().Receive(), 6U);
}

TEST(AppMemory, ReadOnlyMemoryCannotBeWritten) {
  ForkedApp app([](Channel& channel) {
    void* at = Anonymous(MAP_PRIVATE);
    FillPattern(at, kLength, 1);
    mprotect(at, kLength, PROT_READ);
    channel.Send(reinterpret_cast<uint64_t>(at));
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  auto memory = app.Open();
  std::vector<std::byte> bytes(kLength);
  EXPECT_EQ(memory->Write(va, bytes), MemoryStatus::kFault);
  ASSERT_EQ(memory->Read(va, bytes), MemoryStatus::kOk);
  EXPECT_TRUE(HasPattern(bytes.data(), kLength, 1));
}

TEST(AppMemory, RangeThatRunsIntoAHoleFaults) {
  ForkedApp app([](Channel& channel) {
    auto* at = static_cast<char*>(Anonymous(MAP_PRIVATE));
    munmap(at + 2 * 4096, 4096);
    channel.Send(reinterpret_cast<uint64_t>(at));
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  auto memory = app.Open();
  std::vector<std::byte> bytes(kLength);
  EXPECT_EQ(memory->Read(va, bytes), MemoryStatus::kFault);
  EXPECT_EQ(memory->Write(va, bytes), MemoryStatus::kFault);
  EXPECT_EQ(memory->Read(va, std::span(bytes).first(2 * 4096)), MemoryStatus::kOk);
  EXPECT_EQ(memory->Read(0, std::span(bytes).first(8)), MemoryStatus::kFault);
  EXPECT_EQ(memory->Read(UINT64_MAX - 3, std::span(bytes).first(8)), MemoryStatus::kFault);
}

TEST(AppMemory, TransferTellsHowFarItCame) {
  ForkedApp app([](Channel& channel) {
    auto* at = static_cast<char*>(Anonymous(MAP_PRIVATE));
    munmap(at + 4096, 4096);
    channel.Send(reinterpret_cast<uint64_t>(at));
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  auto memory = app.Open();
  char bytes[300];
  const iovec local{bytes, 300};
  const iovec remote[] = {{reinterpret_cast<void*>(va), 100},
                          {reinterpret_cast<void*>(va + 4096), 100},
                          {reinterpret_cast<void*>(va + 8192), 100}};
  EXPECT_EQ(memory->Transfer(Direction::kFromApp, {&local, 1}, remote), 100U);
  EXPECT_EQ(memory->Transfer(Direction::kToApp, {&local, 1}, remote), 100U);
}

TEST(AppMemory, ProcessThatExitedFaults) {
  ForkedApp app([](Channel& channel) {
    channel.Send(reinterpret_cast<uint64_t>(g_bss));
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  auto memory = app.Open();
  EXPECT_TRUE(memory->Alive());
  app.Kill();
  EXPECT_FALSE(memory->Alive());
  std::byte bytes[8] = {};
  EXPECT_EQ(memory->Read(va, bytes), MemoryStatus::kFault);
  EXPECT_EQ(memory->Write(va, bytes), MemoryStatus::kFault);
}

// After exec the number and the pidfd are the same, the memory is another program's. /bin/sleep's
// stack gap and mappings may well cover the old address: nothing may be read from or written to it.
// The old program's end is what must be noticed.
TEST(AppMemory, ProcessThatCalledExecFaults) {
  ForkedApp app([](Channel& channel) {
    channel.Send(0);
    channel.Receive();
    execl("/bin/sleep", "sleep", "30", static_cast<char*>(nullptr));
  });
  app.channel().Receive();
  auto memory = app.Open();
  ASSERT_TRUE(memory->Alive());
  app.channel().Send(0);
  for (int tries = 0; tries < 2000 && memory->Alive(); ++tries) usleep(1000);
  EXPECT_FALSE(memory->Alive());
  // An address that certainly is mapped in the new program, and may be written: taken from its
  // maps.
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

TEST(AppMemory, OpenRefusesAPidThatIsNotThePidfds) {
  ForkedApp gone([](Channel& channel) { channel.Receive(); });
  ForkedApp other([](Channel& channel) {
    channel.Send(0);
    channel.Receive();
  });
  other.channel().Receive();
  gone.Kill();
  int error = 0;
  EXPECT_EQ(AppMemory::Open(other.pid(), gone.pidfd(), &error), nullptr);
  EXPECT_EQ(error, ESRCH);
  EXPECT_EQ(AppMemory::Open(other.pid(), 9999, &error), nullptr);
  EXPECT_EQ(error, EBADF);
}

TEST(AppMemory, IsAccessibleToItsUserUnlessItHasMoreRights) {
  if (geteuid() != 0) GTEST_SKIP() << "changes users";
  constexpr uid_t kNobody = 65534;
  ForkedApp app([](Channel& channel) {
    // As a set-id program looks from outside: the user's process, and not the user's to look into.
    channel.Send(static_cast<uint64_t>(setuid(kNobody)));
    channel.Receive();
    channel.Send(static_cast<uint64_t>(prctl(PR_SET_DUMPABLE, 1)));
    channel.Receive();
  });
  ASSERT_EQ(app.channel().Receive(), 0u);
  int error = 0;
  const auto memory = AppMemory::Open(app.pid(), app.pidfd(), &error);
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
