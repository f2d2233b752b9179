// Files of programs mapped into the daemon: accepted files, shared mappings, and truncated files.
#include "memory/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <vector>

#include "memory/copy.h"
#include "memory/key_table.h"
#include "memory/unmapper.h"
#include "tests/unit/emulated.h"
#include "tests/unit/memory/forked_app.h"
#include "tests/unit/sanitized.h"

namespace roci::memory {
namespace {

constexpr size_t kPage = 4096;
constexpr AccessContext kContext{.pd = 1, .qpn = 0};

int NewMemfd(size_t length, unsigned seals) {
  const int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(length)), 0);
  if (seals != 0) {
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
  }
  return fd;
}

TEST(MappedFile, SealedFileNeedsNoGuard) {
  const int fd = NewMemfd(4 * kPage, F_SEAL_SHRINK | F_SEAL_GROW);
  int error = 0;
  auto mapped = MappedFile::Map(fd, kPage + 10, 20, true, &error);
  ASSERT_NE(mapped, nullptr) << error;
  EXPECT_TRUE(mapped->sealed());
  EXPECT_EQ(mapped->broken(), nullptr);
  std::memcpy(mapped->At(kPage + 10), "hello", 5);
  char bytes[5];
  ASSERT_EQ(pread(fd, bytes, 5, kPage + 10), 5);
  EXPECT_EQ(std::memcmp(bytes, "hello", 5), 0);
  // A sealed file has no pages past its end, so such a mapping does not count as sealed.
  auto past = MappedFile::Map(fd, 3 * kPage, 2 * kPage, true, &error);
  ASSERT_NE(past, nullptr) << error;
  EXPECT_FALSE(past->sealed());
  close(fd);
}

TEST(MappedFile, RefusesWhatCouldHangOrIsNotAllowed) {
  int error = 0;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(MappedFile::Map(ends[0], 0, kPage, false, &error), nullptr);
  EXPECT_EQ(error, EOPNOTSUPP);
  const int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(MappedFile::Map(zero, 0, kPage, true, &error), nullptr);
  EXPECT_EQ(error, EOPNOTSUPP);
  const int proc = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (!IsEmulated()) {  // this file is an ordinary one there
    EXPECT_EQ(MappedFile::Map(proc, 0, kPage, false, &error), nullptr);
    EXPECT_EQ(error, EOPNOTSUPP);
  }
  EXPECT_EQ(MappedFile::Map(-1, 0, kPage, false, &error), nullptr);
  EXPECT_EQ(error, EBADF);
  const int memfd = NewMemfd(kPage, 0);
  EXPECT_EQ(MappedFile::Map(memfd, 0, 0, false, &error), nullptr);
  EXPECT_EQ(error, EINVAL);
  EXPECT_EQ(MappedFile::Map(memfd, UINT64_MAX - 10, 100, false, &error), nullptr);
  EXPECT_EQ(error, EINVAL);
  EXPECT_EQ(MappedFile::Map(memfd, UINT64_MAX / 2, 100, false, &error), nullptr);
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", memfd);
  const int read_only = open(path, O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(MappedFile::Map(read_only, 0, kPage, true, &error), nullptr);
  EXPECT_EQ(error, EACCES);
  EXPECT_NE(MappedFile::Map(read_only, 0, kPage, false, &error), nullptr);
  for (const int fd : {ends[0], ends[1], zero, proc, memfd, read_only}) close(fd);
}

TEST(FileMappings, SharesWhatAnEarlierMappingCovers) {
  constexpr uint64_t kAny = UINT64_MAX;
  FileMappings mappings;
  const int fd = NewMemfd(8 * kPage, 0);
  int error = 0;
  auto whole = mappings.Map(fd, 0, 8 * kPage, true, kAny, &error);
  EXPECT_EQ(mappings.Map(fd, kPage, kPage, true, kAny, &error), whole);
  // Another descriptor of the same file.
  const int again = dup(fd);
  EXPECT_EQ(mappings.Map(again, 5, 10, true, kAny, &error), whole);
  EXPECT_NE(mappings.Map(fd, 0, kPage, false, kAny, &error), whole);
  const int other = NewMemfd(8 * kPage, 0);
  EXPECT_NE(mappings.Map(other, kPage, kPage, true, kAny, &error), whole);
  const std::weak_ptr<MappedFile> watch = whole;
  whole.reset();
  EXPECT_TRUE(watch.expired());
  for (const int each : {fd, again, other}) close(each);
}

// Writes to every page of `bytes` bytes at `at`.
void Touch(std::byte* at, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kPage) at[i] = std::byte{1};
}

std::chrono::nanoseconds TimeOf(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::steady_clock::now() - begin;
}

// The mapping is the last user of the file, so the kernel frees all pages, which takes long.
// Whether a file is released in a quarter of the time that unmapping it takes.
bool ReleasesEarly() {
  constexpr size_t kBytes = size_t{256} << 20;
  const int plain = NewMemfd(kBytes, 0);
  void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, plain, 0);
  EXPECT_NE(at, MAP_FAILED);
  Touch(static_cast<std::byte*>(at), kBytes);
  close(plain);
  const auto whole = TimeOf([&] { munmap(at, kBytes); });
  const int fd = NewMemfd(kBytes, 0);
  int error = 0;
  auto mapped = MappedFile::Map(fd, 0, kBytes, true, &error);
  EXPECT_NE(mapped, nullptr);
  Touch(mapped->At(0), kBytes);
  close(fd);
  const auto release = TimeOf([&] { mapped.reset(); });
  Unmapper::Drain();
  EXPECT_EQ(Unmapper::backlog(), 0u);
  return release < whole / 4;
}

TEST(MappedFile, TheLastReleaseDoesNotWaitForTheUnmapping) {
  // Something else may run in between.
  constexpr int kTries = 5;
  int tries = 1;
  while (!ReleasesEarly() && ++tries <= kTries) {
  }
  EXPECT_LE(tries, kTries);
}

// A mapped file that the program can truncate.
struct CutFile {
  explicit CutFile(size_t pages) {
    fd = NewMemfd(pages * kPage, 0);
    int error = 0;
    mapped = MappedFile::Map(fd, 0, pages * kPage, true, &error);
    EXPECT_NE(mapped, nullptr);
  }
  ~CutFile() { close(fd); }
  int fd;
  std::shared_ptr<MappedFile> mapped;
};

TEST(FileMappings, AreNotLongerThanIsAllowed) {
  FileMappings mappings;
  const int fd = NewMemfd(8 * kPage, 0);
  int error = 0;
  const auto whole = mappings.Map(fd, 0, 8 * kPage, true, 8 * kPage, &error);
  ASSERT_NE(whole, nullptr);
  const auto part = mappings.Map(fd, kPage, 10, true, 4 * kPage, &error);
  ASSERT_NE(part, nullptr);
  EXPECT_NE(part, whole) << "it would keep all of it";
  EXPECT_EQ(part->length(), kPage);
  EXPECT_EQ(mappings.Map(fd, 3 * kPage - 1, 2, true, kPage, &error), nullptr);
  EXPECT_EQ(error, ENOMEM);
  close(fd);
}

TEST(SigbusGuard, CutFileGivesAFaultAndNothingElse) {
  CutFile cut(4);
  CutFile healthy(1);
  const uint64_t before = SigbusGuard::faults();
  KeyTable table(nullptr, 8);
  uint32_t key = 0;
  Translation translation{.va = 0x10000, .length = 4 * kPage, .iova = 0x10000, .extents = {}};
  translation.extents.push_back({0x10000, 4 * kPage, cut.mapped, 0});
  ASSERT_EQ(table.Register(1, Access::kLocalWrite, translation, &key), MemoryStatus::kOk);

  SegmentList segments;
  ASSERT_EQ(table.Resolve(key, kContext, 0x10000, 4 * kPage, Access::kLocalWrite, segments),
            MemoryStatus::kOk);
  std::vector<std::byte> bytes(4 * kPage, std::byte{7});
  EXPECT_EQ(CopyIn(segments, bytes), MemoryStatus::kOk);
  ASSERT_EQ(ftruncate(cut.fd, kPage), 0);
  EXPECT_EQ(CopyIn(segments, bytes), MemoryStatus::kFault);
  EXPECT_EQ(CopyOut(segments, bytes), MemoryStatus::kFault);
  EXPECT_EQ(SigbusGuard::faults() - before, 3U);  // one for each missing page
  EXPECT_EQ(
      CompareAndSwap(Segment::Direct(cut.mapped->At(2 * kPage), 8, cut.mapped->broken()), 0, 1)
          .status,
      MemoryStatus::kFault);
  EXPECT_FALSE(healthy.mapped->broken()->load());
  // Later copies access the region by system calls, which report the truncation.
  segments.Clear();
  ASSERT_EQ(table.Resolve(key, kContext, 0x10000, 8, Access::kLocalWrite, segments),
            MemoryStatus::kOk);
  EXPECT_EQ(segments[0].direct, nullptr);
  EXPECT_EQ(table.Info(key)->direct_length, 0U);
}

TEST(SigbusGuard, FileCutByAnotherProcessWhileBytesAreCopied) {
  CutFile cut(64);
  ForkedApp app([&](Channel& channel) {
    for (;;) {
      channel.Receive();
      for (int i = 0; i < 20; ++i) {
        if (ftruncate(cut.fd, kPage) != 0 || ftruncate(cut.fd, 64 * kPage) != 0) _exit(2);
      }
      channel.Send(0);
    }
  });
  std::vector<std::byte> bytes(64 * kPage, std::byte{1});
  SegmentList segments;
  ASSERT_TRUE(
      segments.Append(Segment::Direct(cut.mapped->At(0), 64 * kPage, cut.mapped->broken())));
  int faults = 0;
  for (int round = 0; round < 20; ++round) {
    app.channel().Send(0);
    for (int i = 0; i < 10; ++i) {
      faults += CopyIn(segments, bytes) == MemoryStatus::kFault ? 1 : 0;
    }
    app.channel().Receive();
  }
  // The test is that the process survives. After one fault every later copy must fail, too.
  if (faults > 0) {
    EXPECT_EQ(CopyIn(segments, bytes), MemoryStatus::kFault);
  }
}

// The pool has no free huge page. The zero page that replaces the missing one must have the same
// size.
TEST(SigbusGuard, MissingHugePage) {
  constexpr size_t kHuge = 2U << 20;
  const int fd = memfd_create("t", MFD_CLOEXEC | MFD_HUGETLB | (21U << 26));
  if (fd < 0) GTEST_SKIP() << "no hugetlbfs";
  if (IsEmulated()) GTEST_SKIP() << "qemu-user does not map huge pages that do not exist";
  ASSERT_EQ(ftruncate(fd, kHuge), 0);
  void* base = mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  ASSERT_NE(base, MAP_FAILED);
  auto* range = SigbusGuard::Add(base, kHuge, kHuge);
  ASSERT_NE(range, nullptr);
  const Segment word = Segment::Direct(static_cast<std::byte*>(base) + 8000, 8, &range->broken);
  const AtomicResult result = FetchAndAdd(word, 1);
  EXPECT_EQ(result.status == MemoryStatus::kFault, range->broken.load());
  SigbusGuard::Remove(range);
  munmap(base, kHuge);
  close(fd);
}

// The forked child lacks the guarded mapping. The new mapping is larger, so that it cannot get the
// guarded addresses.
void TouchCutFile() {
  const int fd = NewMemfd(64 * kPage, 0);
  auto* at = static_cast<volatile char*>(
      mmap(nullptr, 64 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  if (ftruncate(fd, 0) == 0) at[30 * kPage] = 1;
}

TEST(SigbusGuard, OtherSigbusStillKills) {
  CutFile cut(1);  // installs the handler
  EXPECT_EXIT(TouchCutFile(), testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(raise(SIGBUS), testing::KilledBySignal(SIGBUS), "");
}

// Creates as many mappings as the kernel allows a process, then accesses a missing page.
void TouchCutFileWithoutRoomForMappings() {
  CutFile cut(8);
  if (ftruncate(cut.fd, kPage) != 0) _exit(2);
  constexpr size_t kPages = 1 << 20;
  auto* many = static_cast<char*>(
      mmap(nullptr, kPages * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (many == MAP_FAILED) _exit(3);
  size_t page = 0;
  while (page < kPages && mprotect(many + page * kPage, kPage, PROT_NONE) == 0) page += 2;
  if (page >= kPages) _exit(4);
  // A plain mapping may exceed the limit by one.
  [[maybe_unused]] void* const one_more =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  *reinterpret_cast<volatile char*>(cut.mapped->At(5 * kPage)) = 1;
  _exit(cut.mapped->broken()->load() ? 0 : 5);
}

TEST(SigbusGuard, SurvivesWhereThereIsNoRoomForMappings) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer maps memory of its own";
  uint64_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  if (limit > (1 << 18)) GTEST_SKIP() << "vm.max_map_count is " << limit;
  EXPECT_EXIT(TouchCutFileWithoutRoomForMappings(), testing::ExitedWithCode(0), "");
}

TEST(SigbusGuard, TableIsBounded) {
  std::vector<SigbusGuard::Range*> ranges;
  static char page[2 * kPage];
  while (auto* range = SigbusGuard::Add(page, kPage, kPage)) ranges.push_back(range);
  EXPECT_LE(ranges.size(), SigbusGuard::kCapacity);
  EXPECT_GT(ranges.size(), SigbusGuard::kCapacity - 16);
  const int fd = NewMemfd(kPage, 0);
  int error = 0;
  EXPECT_EQ(MappedFile::Map(fd, 0, kPage, true, &error), nullptr);
  EXPECT_EQ(error, ENOSPC);
  for (auto* range : ranges) SigbusGuard::Remove(range);
  EXPECT_NE(MappedFile::Map(fd, 0, kPage, true, &error), nullptr);
  close(fd);
}

TEST(OpenMappingOf, OpensWithTheRightsOfTheApp) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  char path[] = "/tmp/roci-memory-test-XXXXXX";
  const int owned_by_root = mkstemp(path);
  ASSERT_EQ(fchmod(owned_by_root, 0644), 0);
  ASSERT_EQ(ftruncate(owned_by_root, kPage), 0);
  constexpr uid_t kApp = 65534;
  ForkedApp app([&](Channel& channel) {
    if (setgid(kApp) != 0 || setuid(kApp) != 0) _exit(2);
    prctl(PR_SET_DUMPABLE, 1);
    void* shared = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    void* only_readable = mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 0);
    std::strcpy(static_cast<char*>(shared), "ours");
    channel.Send(reinterpret_cast<uint64_t>(shared));
    channel.Send(reinterpret_cast<uint64_t>(only_readable));
    channel.Receive();
  });
  const uint64_t shared = app.channel().Receive();
  const uint64_t only_readable = app.channel().Receive();
  int error = 0;
  const int fd = OpenMappingOf(app.pid(), kApp, kApp, shared, shared + kPage, true, &error);
  if (fd < 0 && error == EPERM) GTEST_SKIP() << "this root may not follow map_files";
  ASSERT_GE(fd, 0) << error;
  auto mapped = MappedFile::Map(fd, 0, kPage, true, &error);
  ASSERT_NE(mapped, nullptr) << error;
  EXPECT_STREQ(reinterpret_cast<char*>(mapped->At(0)), "ours");
  EXPECT_EQ(
      OpenMappingOf(app.pid(), kApp, kApp, only_readable, only_readable + kPage, true, &error), -1);
  EXPECT_EQ(error, EACCES);
  const int readable =
      OpenMappingOf(app.pid(), kApp, kApp, only_readable, only_readable + kPage, false, &error);
  EXPECT_GE(readable, 0) << error;
  EXPECT_EQ(OpenMappingOf(app.pid(), kApp, kApp, shared, shared + 2 * kPage, true, &error), -1);
  EXPECT_EQ(error, ENOENT);
  EXPECT_EQ(geteuid(), 0U);
  // The daemon has its own privileges again.
  const int shadow = open(path, O_RDWR | O_CLOEXEC);
  EXPECT_GE(shadow, 0);
  unlink(path);
  for (const int each : {fd, readable, shadow, owned_by_root}) close(each);
}

}  // namespace
}  // namespace roci::memory
