// Conversion to a memfd and back, sharing, limits, and fork.
#include "verbs_provider/memory/convert.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/verbs_provider/memory/convert_testing.h"

namespace roci::provider {
namespace {

alignas(kPage) char g_bss[4 * kPage];
char g_data[4 * kPage] = {1};

// The daemon's access to an extent. Reads and writes the file, because a mapping in this process
// would count as the program's.
class DaemonView {
 public:
  explicit DaemonView(const MemoryExtent& extent)
      : fd_(fcntl(extent.fd, F_DUPFD_CLOEXEC, 0)),
        offset_(extent.file_offset),
        length_(extent.length) {
    EXPECT_GE(fd_, 0);
  }
  ~DaemonView() { close(fd_); }
  DaemonView(const DaemonView&) = delete;
  DaemonView& operator=(const DaemonView&) = delete;
  std::vector<char> Read() const {
    std::vector<char> bytes(length_);
    EXPECT_EQ(pread(fd_, bytes.data(), length_, static_cast<off_t>(offset_)),
              static_cast<ssize_t>(length_));
    return bytes;
  }
  void Write(uint64_t at, char byte) const {
    EXPECT_EQ(pwrite(fd_, &byte, 1, static_cast<off_t>(offset_ + at)), 1);
  }

 private:
  int fd_;
  uint64_t offset_;
  uint64_t length_;
};

// Runs `body` in a forked child; its result is the exit code, which must be 0.
void InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(20);
    _exit(body());
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Convert, ConvertsAndRestores) {
  constexpr uint64_t kLength = 5U << 20;  // several pieces, the last one short
  char* at = Anonymous(kLength);
  Fill(at, kLength, 1);
  struct stat file;
  {
    Registration registration(at, kLength);
    ASSERT_TRUE(registration.AllConverted());
    ASSERT_EQ(registration.extents.count, 1U);
    EXPECT_FALSE(registration.extents.file_backed);
    EXPECT_TRUE(Holds(at, kLength, 1));
    const DaemonView view(registration.extents.items[0]);
    EXPECT_TRUE(Holds(view.Read().data(), kLength, 1));
    view.Write(kLength - 1, 98);
    EXPECT_EQ(at[kLength - 1], 98);
    Fill(at, kLength, 2);
    EXPECT_TRUE(Holds(view.Read().data(), kLength, 2));
    const int fd = registration.extents.items[0].fd;
    const int seals = fcntl(fd, F_GET_SEALS);
    EXPECT_EQ(seals, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    ASSERT_EQ(fstat(fd, &file), 0);
    EXPECT_GE(static_cast<uint64_t>(file.st_blocks) * 512, kLength);
    registration.Release();
    ASSERT_EQ(fstat(fd, &file), 0);
    EXPECT_EQ(file.st_blocks, 0);
  }
  EXPECT_TRUE(IsPrivate(at));
  EXPECT_TRUE(Holds(at, kLength, 2));
  munmap(at, kLength);
}

TEST_F(Convert, ConvertsEveryConvertibleKind) {
  std::unique_ptr<char[]> heap(new char[70000]);
  char* large = static_cast<char*>(std::malloc(1 << 20));
  auto* brk = static_cast<char*>(sbrk(3 * kPage));
  struct Case {
    char* at;
    uint64_t length;
  };
  for (const Case& each : {Case{heap.get(), 70000}, Case{large, 1 << 20}, Case{brk, 3 * kPage},
                           Case{g_bss, sizeof g_bss}, Case{g_bss + 100, kPage}}) {
    Fill(each.at, each.length, 3);
    Registration registration(each.at, each.length);
    ASSERT_TRUE(registration.AllConverted());
    const DaemonView view(registration.extents.items[0]);
    EXPECT_TRUE(Holds(view.Read().data(), each.length, 3));
    view.Write(each.length - 1, 77);
    EXPECT_EQ(each.at[each.length - 1], 77);
    registration.Release();
    EXPECT_EQ(each.at[each.length - 1], 77);
    EXPECT_TRUE(IsPrivate(each.at));
  }
  std::free(large);
}

TEST_F(Convert, DoesNotConvertOtherKinds) {
  char stack[2 * kPage];
  stack[0] = 1;
  char* shared = Anonymous(kPage, MAP_SHARED);
  const Registration on_stack(stack, sizeof stack);
  const Registration data(g_data, sizeof g_data);
  const Registration on_shared(shared, kPage);
  EXPECT_TRUE(on_stack.NoneConverted());
  EXPECT_TRUE(data.NoneConverted());
  EXPECT_TRUE(on_shared.NoneConverted());
  const Registration storage(&errno, kPage);  // the page of thread-local storage
  EXPECT_FALSE(storage.AllConverted());
  munmap(shared, kPage);
}

TEST_F(Convert, StacksOfOtherThreadsStayPrivate) {
  std::atomic<char*> buffer{nullptr};
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    char stack[2 * kPage] = {5};
    buffer = stack;
    while (!stop) std::this_thread::yield();
  });
  while (buffer == nullptr) std::this_thread::yield();
  {
    const Registration registration(buffer, 2 * kPage, ConvertPolicy::kConvert);
    EXPECT_TRUE(registration.NoneConverted());
  }
  stop = true;
  thread.join();
}

TEST_F(Convert, PolicyDecides) {
  char* at = Anonymous(4 * kPage);
  Fill(at, 4 * kPage, 1);
  EXPECT_TRUE(Registration(at, 4 * kPage, ConvertPolicy::kProcessVm).NoneConverted());
  EXPECT_TRUE(Registration(at, 4 * kPage, ConvertPolicy::kMapFiles).NoneConverted());
  EXPECT_TRUE(Registration(at + 50, 100, ConvertPolicy::kConvert).AllConverted());
  const int fd = memfd_create("t", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, kPage), 0);
  void* file = mmap(nullptr, kPage, kReadWrite, MAP_SHARED, fd, 0);
  {
    const Registration registration(file, kPage, ConvertPolicy::kProcessVm);
    ASSERT_EQ(registration.extents.count, 1U);
    EXPECT_EQ(registration.extents.items[0].kind, ExtentKind::kProcessVm);
    EXPECT_TRUE(registration.extents.file_backed);
    // A registration with kProcessVm of converted memory uses process_vm.
    const Registration converted(at, 4 * kPage);
    const Registration plain(at, 4 * kPage, ConvertPolicy::kProcessVm);
    EXPECT_TRUE(converted.AllConverted());
    EXPECT_TRUE(plain.NoneConverted());
    EXPECT_TRUE(Registration(at, 8).AllConverted());
  }
  EXPECT_TRUE(IsPrivate(at));
  munmap(file, kPage);
  munmap(at, 4 * kPage);
  close(fd);
}

TEST_F(Convert, ProtectionIsKept) {
  char* at = Anonymous(3 * kPage);
  Fill(at, 3 * kPage, 1);
  mprotect(at + kPage, kPage, PROT_READ);
  {
    Registration registration(at, 3 * kPage, ConvertPolicy::kConvert, false);
    ASSERT_EQ(registration.error, 0);
    EXPECT_TRUE(LineOf(at).shared && LineOf(at).writable);
    EXPECT_TRUE(LineOf(at + kPage).shared);
    EXPECT_FALSE(LineOf(at + kPage).writable);
    EXPECT_TRUE(LineOf(at + 2 * kPage).writable);
    EXPECT_EQ(Registration(at, 3 * kPage).error, EFAULT);
  }
  EXPECT_TRUE(IsPrivate(at + kPage));
  EXPECT_FALSE(LineOf(at + kPage).writable);
  EXPECT_TRUE(Holds(at, 3 * kPage, 1));
  munmap(at, 3 * kPage);
}

TEST_F(Convert, FailureConvertsNothing) {
  char* at = Anonymous(3 * kPage);
  munmap(at + 2 * kPage, kPage);
  EXPECT_EQ(Registration(at, 3 * kPage).error, EFAULT);
  EXPECT_TRUE(IsPrivate(at));
  munmap(at, 2 * kPage);
}

TEST_F(Convert, UntouchedMemoryCostsNothing) {
  constexpr uint64_t kLength = 256U << 20;
  char* at = Anonymous(kLength);
  madvise(at, kLength, MADV_NOHUGEPAGE);
  at[kLength / 2] = 5;
  {
    const Registration registration(at, kLength);
    ASSERT_TRUE(registration.AllConverted());
    struct stat file;
    ASSERT_EQ(fstat(registration.extents.items[0].fd, &file), 0);
    EXPECT_LE(file.st_blocks * 512, static_cast<blkcnt_t>(4 * kPage));
    EXPECT_EQ(at[kLength / 2], 5);
    EXPECT_EQ(at[0], 0);
  }
  EXPECT_EQ(at[kLength / 2], 5);
  munmap(at, kLength);
}

TEST_F(Convert, OverlappingRegistrationsShare) {
  char* at = Anonymous(8 * kPage);
  Fill(at, 8 * kPage, 1);
  auto first = std::make_unique<Registration>(at, 4 * kPage);
  auto second = std::make_unique<Registration>(at + 2 * kPage, 4 * kPage);
  auto same = std::make_unique<Registration>(at + 10, 3 * kPage);
  ASSERT_TRUE(first->AllConverted() && second->AllConverted() && same->AllConverted());
  EXPECT_EQ(ConversionCount(), 3U);
  first.reset();
  EXPECT_FALSE(IsPrivate(at));
  EXPECT_FALSE(IsPrivate(at + 3 * kPage));
  same.reset();
  EXPECT_TRUE(IsPrivate(at));
  EXPECT_TRUE(IsPrivate(at + kPage));
  EXPECT_FALSE(IsPrivate(at + 2 * kPage));
  EXPECT_FALSE(IsPrivate(at + 5 * kPage));
  const DaemonView view(second->extents.items[0]);
  EXPECT_EQ(std::memcmp(view.Read().data(), at + 2 * kPage, 4 * kPage), 0);
  second.reset();
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(IsPrivate(at + i * static_cast<int>(kPage)));
  EXPECT_TRUE(Holds(at, 8 * kPage, 1));
  munmap(at, 8 * kPage);
}

// The first key shows the file's pages, which the second registration must not reuse.
TEST_F(Convert, ReusedAddressesAreNotShownByTheOldKey) {
  char* at = Anonymous(4 * kPage);
  Fill(at, 4 * kPage, 1);
  auto stale = std::make_unique<Registration>(at, 4 * kPage);
  ASSERT_TRUE(stale->AllConverted());
  // The program unmaps registered memory and gets the same address again.
  munmap(at, 4 * kPage);
  ASSERT_EQ(mmap(at, 4 * kPage, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), at);
  at[kPage] = 7;
  auto fresh = std::make_unique<Registration>(at, 4 * kPage);
  EXPECT_TRUE(fresh->NoneConverted());
  char shown[4 * kPage];
  const MemoryExtent& extent = stale->extents.items[0];
  ASSERT_EQ(pread(extent.fd, shown, sizeof shown, static_cast<off_t>(extent.file_offset)),
            ssize_t{sizeof shown});
  EXPECT_TRUE(Holds(shown, sizeof shown, 1));
  stale.reset();
  EXPECT_TRUE(IsPrivate(at));
  EXPECT_EQ(at[0], 0);
  EXPECT_EQ(at[kPage], 7);
  // No registration has the pages any more.
  fresh = std::make_unique<Registration>(at, 4 * kPage);
  EXPECT_TRUE(fresh->AllConverted());
  EXPECT_EQ(at[kPage], 7);
  EXPECT_EQ(at[2 * kPage], 0);
  munmap(at, 4 * kPage);
}

TEST_F(Convert, MemoryUnmappedWhileRegisteredIsFreed) {
  char* at = Anonymous(4 * kPage);
  Fill(at, 4 * kPage, 1);
  Registration registration(at, 4 * kPage);
  const int fd = dup(registration.extents.items[0].fd);
  munmap(at, 4 * kPage);
  registration.Release();
  struct stat file;
  ASSERT_EQ(fstat(fd, &file), 0);
  EXPECT_EQ(file.st_blocks, 0);
  EXPECT_EQ(LineOf(at).end, 0U);
  close(fd);
}

TEST_F(Convert, MemoryMovedWhileRegisteredKeepsItsBytes) {
  char* at = Anonymous(4 * kPage);
  Fill(at, 4 * kPage, 1);
  auto stale = std::make_unique<Registration>(at, 4 * kPage);
  char* target = Anonymous(4 * kPage);
  auto* moved =
      static_cast<char*>(mremap(at, 4 * kPage, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, target));
  ASSERT_EQ(moved, target);
  ASSERT_EQ(mmap(at, 4 * kPage, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), at);
  Fill(at, 4 * kPage, 2);
  // The file's pages for this address are in use at the new address.
  const Registration fresh(at, 4 * kPage);
  EXPECT_TRUE(fresh.NoneConverted());
  EXPECT_TRUE(Holds(moved, 4 * kPage, 1));
  stale.reset();
  EXPECT_TRUE(IsPrivate(moved));
  EXPECT_TRUE(Holds(moved, 4 * kPage, 1));
  EXPECT_TRUE(Holds(at, 4 * kPage, 2));
  munmap(at, 4 * kPage);
  munmap(moved, 4 * kPage);
}

// mremap moves only one mapping, and the number of mappings of a process is limited.
TEST_F(Convert, LargeMemoryIsOneMappingAgain) {
  constexpr size_t kLength = 9 << 20;
  char* at = Anonymous(kLength);
  Fill(at, kLength / 2, 1);
  { const Registration registration(at, kLength); }
  const MapsLine line = LineOf(at);
  EXPECT_LE(line.begin, reinterpret_cast<uint64_t>(at));
  EXPECT_GE(line.end, reinterpret_cast<uint64_t>(at) + kLength);
  void* moved = mremap(at, kLength, 2 * kLength, MREMAP_MAYMOVE);
  ASSERT_NE(moved, MAP_FAILED) << strerror(errno);
  EXPECT_TRUE(Holds(static_cast<char*>(moved), kLength / 2, 1));
  EXPECT_EQ(static_cast<char*>(moved)[kLength - 1], 0);
  munmap(moved, 2 * kLength);
}

TEST_F(Convert, TheNumberOfConversionsIsBounded) {
  char* at = Anonymous(2 * kPage);
  std::vector<std::unique_ptr<Registration>> all;
  for (uint32_t i = 0; i < kMaxConversions; ++i) {
    all.push_back(std::make_unique<Registration>(at, kPage));
    ASSERT_TRUE(all.back()->AllConverted());
  }
  EXPECT_TRUE(Registration(at, kPage).NoneConverted());
  EXPECT_TRUE(Registration(at + kPage, kPage).NoneConverted());
  all.pop_back();
  EXPECT_TRUE(Registration(at, kPage).AllConverted());
  all.clear();
  EXPECT_TRUE(IsPrivate(at));
  munmap(at, 2 * kPage);
}

TEST_F(Convert, FileSizeLimitMeansNoConversion) {
  InChild([] {
    const rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    char* at = Anonymous(4 * kPage);
    return Registration(at, 4 * kPage).NoneConverted() ? 0 : 1;
  });
}

TEST_F(Convert, ProgramThatClosesAllDescriptors) {
  InChild([] {
    char* at = Anonymous(4 * kPage);
    Fill(at, 4 * kPage, 1);
    Registration before(at, 4 * kPage);
    if (!before.AllConverted()) return 1;
    for (int fd = 3; fd < 1000; ++fd) close(fd);
    // A descriptor of the program gets the number.
    const int number = open("/dev/null", O_RDWR | O_CLOEXEC);
    char* other = Anonymous(4 * kPage);
    Fill(other, 4 * kPage, 2);
    Registration after(other, 4 * kPage);
    before.Release();
    if (fcntl(number, F_GETFD) < 0) return 2;
    if (after.error != 0 || !Holds(at, 4 * kPage, 1) || !Holds(other, 4 * kPage, 2)) return 3;
    after.Release();
    return Holds(other, 4 * kPage, 2) && IsPrivate(other) ? 0 : 4;
  });
}

TEST(ConvertRights, ProgramThatDropsPrivileges) {
  ASSERT_EQ(InitConvert({Told, &g_told}), 0);
  if (geteuid() != 0 || !CanConvert()) GTEST_SKIP() << "needs root and userfaultfd";
  InChild([] {
    char* at = Anonymous(4 * kPage);
    Fill(at, 4 * kPage, 1);
    Registration registration(at, 4 * kPage);
    if (!registration.AllConverted()) return 1;
    if (setgid(65534) != 0 || setuid(65534) != 0) return 2;
    prctl(PR_SET_DUMPABLE, 1);
    registration.Release();
    if (!Holds(at, 4 * kPage, 1)) return 3;
    // Restores the memory with the descriptor of /dev/userfaultfd, if there is one.
    return access("/dev/userfaultfd", F_OK) != 0 || IsPrivate(at) ? 0 : 4;
  });
}

TEST(ConvertRights, ThroughADescriptorOfTheDaemon) {
  const int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (device < 0 || geteuid() != 0) GTEST_SKIP() << "needs root and /dev/userfaultfd";
  // In a new program, because this one has cached whether it can convert. Its libraries are found
  // from the folder in which it begins: other users may not enter those above.
  const std::string folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const pid_t child = fork();
  if (child == 0) {
    if (chdir(folder.c_str()) != 0 || setenv("LD_LIBRARY_PATH", ".", 1) != 0) _exit(3);
    unsetenv("TSAN_OPTIONS");  // it names a file there
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    setenv("ROCI_TEST_DEVICE", std::to_string(fcntl(device, F_DUPFD, 100)).c_str(), 1);
    execl("/proc/self/exe", "convert", "--gtest_also_run_disabled_tests",
          "--gtest_filter=ConvertRights.DISABLED_InAnUnprivilegedProgram", "--gtest_brief=1",
          nullptr);
    _exit(2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  close(device);
}

// Started by the test above.
TEST(ConvertRights, DISABLED_InAnUnprivilegedProgram) {
  ASSERT_EQ(InitConvert({Told, &g_told}), 0);
  char* at = Anonymous(4 * kPage);
  Fill(at, 4 * kPage, 1);
  if (!CanConvert()) {
    EXPECT_TRUE(Registration(at, 4 * kPage).NoneConverted());
  }
  SetUserfaultfdDevice(std::atoi(std::getenv("ROCI_TEST_DEVICE")));
  ASSERT_TRUE(CanConvert());
  {
    const Registration registration(at, 4 * kPage);
    EXPECT_TRUE(registration.AllConverted());
    EXPECT_TRUE(Holds(at, 4 * kPage, 1));
  }
  EXPECT_TRUE(IsPrivate(at));
  EXPECT_TRUE(Holds(at, 4 * kPage, 1));
}

// ---- Fork

TEST_F(Convert, ForkSeparatesParentAndChild) {
  constexpr uint64_t kLength = 3U << 20;
  char* at = Anonymous(kLength);
  Fill(at, kLength, 1);
  Registration registration(at, kLength);
  ASSERT_TRUE(registration.AllConverted());
  // When the hook is called, the memory is still shared with the daemon.
  auto view = std::make_unique<DaemonView>(registration.extents.items[0]);
  g_when_told = [&] {
    EXPECT_FALSE(IsPrivate(at));
    view->Write(5, 55);
    view.reset();
  };
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    if (read(ends[0], &byte, 1) != 1) _exit(9);
    if (at[5] != 55 || at[kPage] == 9)
      _exit(1);  // the child must see the memory at the fork, not the parent's later write
    at[2 * kPage] = 8;
    if (ConversionCount() != 0 || !IsPrivate(at)) _exit(2);
    // The child can convert memory itself.
    const Registration own(at, kLength);
    _exit(own.AllConverted() && at[2 * kPage] == 8 ? 0 : 3);
  }
  at[kPage] = 9;
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_NE(at[2 * kPage], 8);
  EXPECT_EQ(at[5], 55);
  ASSERT_EQ(g_told.size(), 1U);
  EXPECT_EQ(g_told[0], std::make_pair(Va(at), kLength));
  EXPECT_TRUE(IsPrivate(at));
  EXPECT_EQ(ConversionCount(), 0U);
  // The old registration uses process_vm; releasing it does not restore memory. A new registration
  // converts again.
  g_when_told = nullptr;
  Registration again(at, kLength);
  EXPECT_TRUE(again.AllConverted());
  registration.Release();
  EXPECT_FALSE(IsPrivate(at));
  again.Release();
  EXPECT_TRUE(IsPrivate(at));
  close(ends[0]);
  close(ends[1]);
  munmap(at, kLength);
}

TEST_F(Convert, ForkWithoutConversionsDoesNotCallTheHook) {
  InChild([] { return 0; });
  EXPECT_TRUE(g_told.empty());
}

TEST_F(Convert, ForkWithManyRangesReportsAllOfThem) {
  constexpr uint64_t kRanges = 100;
  char* at = Anonymous(2 * kRanges * kPage);
  std::vector<std::unique_ptr<Registration>> all;
  for (uint64_t i = 0; i < kRanges; ++i) {
    at[2 * i * kPage] = static_cast<char>(i);
    all.push_back(std::make_unique<Registration>(at + 2 * i * kPage, kPage));
    ASSERT_TRUE(all.back()->AllConverted());
  }
  InChild([] { return 0; });
  EXPECT_LE(g_told.size(), 64U);
  for (uint64_t i = 0; i < kRanges; ++i) {
    const uint64_t va = Va(at + 2 * i * kPage);
    EXPECT_TRUE(std::any_of(g_told.begin(), g_told.end(), [&](const auto& range) {
      return range.first <= va && va + kPage <= range.first + range.second;
    }));
    EXPECT_EQ(at[2 * i * kPage], static_cast<char>(i));
    EXPECT_TRUE(IsPrivate(at + 2 * i * kPage));
  }
  all.clear();
  munmap(at, 2 * kRanges * kPage);
}

TEST_F(Convert, ForksWhileOtherThreadsRegister) {
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      char* at = Anonymous(64 * kPage);
      Fill(at, 64 * kPage, t);
      while (!stop) {
        Registration registration(at, 64 * kPage);
        wrong += registration.error != 0 || !Holds(at, 64 * kPage, t);
      }
      munmap(at, 64 * kPage);
    });
  }
  const auto end = Clock::now() + std::chrono::milliseconds(700);
  int forks = 0;
  while (Clock::now() < end && !HasFatalFailure()) {
    InChild([] { return 0; });
    ++forks;
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(forks, 0);
}

TEST_F(Convert, Costs) {
  for (const uint64_t length : {kPage, uint64_t{1} << 20, uint64_t{64} << 20}) {
    char* at = Anonymous(length);
    std::memset(at, 1, length);
    const auto start = Clock::now();
    Registration registration(at, length);
    const auto converted = Clock::now();
    registration.Release();
    const auto back = Clock::now();
    const auto us = [](auto d) { return std::chrono::duration<double, std::micro>(d).count(); };
    std::printf("%llu KiB: there %.0f us, back %.0f us\n",
                static_cast<unsigned long long>(length / 1024), us(converted - start),
                us(back - converted));
    EXPECT_EQ(at[length - 1], 1);
    munmap(at, length);
  }
}

}  // namespace
}  // namespace roci::provider
