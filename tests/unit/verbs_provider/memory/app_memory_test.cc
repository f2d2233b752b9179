// The description of every kind of memory that a program can have, and the reader of its mappings.
#include "verbs_provider/memory/app_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "verbs_provider/memory/maps_reader.h"

namespace roci::provider {
namespace {

constexpr uint64_t kPage = 4096;
constexpr int kReadWrite = PROT_READ | PROT_WRITE;
char g_data[3 * kPage] = {1};

bool Parse(const std::string& text, MapsLine* line) {
  return ParseMapsLine(text.data(), text.size(), line);
}

TEST(MapsLine, ReadsEveryField) {
  MapsLine line;
  ASSERT_TRUE(
      Parse("7f0000001000-7f0000003000 rw-s 0000a000 fd:1f 4711       /dev/shm/a b", &line));
  EXPECT_EQ(line.begin, 0x7f0000001000U);
  EXPECT_EQ(line.end, 0x7f0000003000U);
  EXPECT_EQ(line.offset, 0xa000U);
  EXPECT_EQ(line.device, makedev(0xfd, 0x1f));
  EXPECT_EQ(line.inode, 4711U);
  EXPECT_TRUE(line.readable && line.writable && line.shared && !line.executable);
  EXPECT_STREQ(line.path, "/dev/shm/a b");
  ASSERT_TRUE(Parse("1000-2000 --xp 00000000 00:00 0", &line));
  EXPECT_TRUE(!line.readable && !line.writable && !line.shared && line.executable);
  EXPECT_STREQ(line.path, "");
  ASSERT_TRUE(Parse("1000-2000 r--p 00000000 00:00 0 " + std::string(5000, 'x'), &line));
  EXPECT_EQ(std::strlen(line.path), sizeof line.path - 1);
}

TEST(MapsLine, RefusesMalformedLines) {
  MapsLine line;
  for (const char* text :
       {"", "1000", "1000-", "1000-2000", "1000-2000 rw-p", "1000-2000 rw-p 0 00:00",
        "2000-1000 rw-p 0 00:00 0", "1000-1000 rw-p 0 00:00 0", "x-2000 rw-p 0 00:00 0",
        "1000-2000 rw-p 0 00 0", "1000 2000 rw-p 0 00:00 0"}) {
    EXPECT_FALSE(Parse(text, &line)) << text;
  }
}

TEST(MapsReader, ReturnsEveryMapping) {
  // More than one buffer of lines: every second page of a range.
  constexpr uint64_t kPages = 400;
  auto* at = static_cast<char*>(
      mmap(nullptr, kPages * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (uint64_t i = 0; i < kPages; i += 2) mprotect(at + i * kPage, kPage, kReadWrite);
  const auto base = reinterpret_cast<uint64_t>(at);
  uint64_t next = base;
  MapsReader reader;
  MapsLine line;
  while (reader.Next(&line)) {
    if (line.end <= base || line.begin >= base + kPages * kPage) continue;
    ASSERT_EQ(std::max(line.begin, base), next);
    const bool first = (next - base) / kPage % 2 == 0;
    ASSERT_EQ(line.writable, first);
    next = std::min(line.end, base + kPages * kPage);
  }
  EXPECT_EQ(next, base + kPages * kPage);
  munmap(at, kPages * kPage);
}

TEST(MapsReader, BeginsAtAnAddress) {
  auto* at =
      static_cast<char*>(mmap(nullptr, 4 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(at + kPage, kPage, PROT_READ);
  mprotect(at + 2 * kPage, kPage, kReadWrite);
  const auto base = reinterpret_cast<uint64_t>(at);
  // PROCMAP_QUERY and the text return the same lines.
  for (const uint64_t from : {base + kPage, base + kPage + 1, base + 2 * kPage - 1}) {
    MapsReader text;
    MapsReader reader(from);
    MapsLine expected, line;
    while (text.Next(&expected) && expected.end <= from) {
    }
    ASSERT_TRUE(reader.Next(&line));
    EXPECT_EQ(line.begin, base + kPage);
    do {
      EXPECT_EQ(line.begin, expected.begin);
      EXPECT_EQ(line.end, expected.end);
      EXPECT_EQ(line.offset, expected.offset) << expected.path;
      EXPECT_EQ(line.device, expected.device) << expected.path;
      EXPECT_EQ(line.inode, expected.inode);
      EXPECT_EQ(line.readable, expected.readable);
      EXPECT_EQ(line.writable, expected.writable);
      EXPECT_EQ(line.executable, expected.executable);
      EXPECT_EQ(line.shared, expected.shared);
      EXPECT_STREQ(line.path, expected.path);
    } while (text.Next(&expected) && std::strcmp(expected.path, "[stack]") != 0 &&
             std::strcmp(expected.path, "[vvar]") != 0 && reader.Next(&line));
  }
  munmap(at, 4 * kPage);
}

TEST(MapsReader, SurvivesAPathLongerThanItsBuffer) {
  // A path near PATH_MAX whose backslashes and newlines are printed as four characters each.
  std::string folder = "/tmp/roci-maps-test-" + std::to_string(getpid());
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  std::vector<std::string> folders = {folder};
  for (int i = 0; i < 14; ++i) {
    folders.push_back(folders.back() + "/" + std::string(250, '\n'));
    ASSERT_EQ(mkdir(folders.back().c_str(), 0700), 0);
  }
  const std::string path = folders.back() + "/f";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, kPage), 0);
  void* at = mmap(nullptr, kPage, kReadWrite, MAP_SHARED, fd, 0);
  bool seen = false;
  bool stack = false;
  {
    MapsReader reader;
    MapsLine line;
    while (reader.Next(&line)) {
      seen = seen || (line.begin == reinterpret_cast<uint64_t>(at) && line.shared);
      stack = stack || std::strcmp(line.path, "[stack]") == 0;
    }
  }
  EXPECT_TRUE(seen);
  EXPECT_TRUE(stack);  // the mapping after the long line
  munmap(at, kPage);
  close(fd);
  unlink(path.c_str());
  for (; !folders.empty(); folders.pop_back()) rmdir(folders.back().c_str());
}

// Mapped memory and its file, if any. The destructor unmaps and closes them.
class Memory {
 public:
  Memory(uint64_t length, int protection, int flags, int fd = -1, off_t offset = 0)
      : length_(length), at_(mmap(nullptr, length, protection, flags, fd, offset)) {
    EXPECT_NE(at_, MAP_FAILED) << errno;
  }
  ~Memory() { munmap(at_, length_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  uint64_t va() const { return reinterpret_cast<uint64_t>(at_); }
  char* bytes() const { return static_cast<char*>(at_); }

 private:
  uint64_t length_;
  void* at_;
};

// Maps the file's page `file_page` at `at`.
void MapPage(char* at, int fd, uint64_t file_page = 0, int protection = kReadWrite) {
  ASSERT_EQ(mmap(at, kPage, protection, MAP_SHARED | MAP_FIXED, fd,
                 static_cast<off_t>(file_page * kPage)),
            at);
}

class Described {
 public:
  Described(uint64_t va, uint64_t length, bool writable = true, bool on_demand = false,
            const KnownFile* known = nullptr)
      : error(DescribeMemory(va, length, writable, on_demand, known, &list)) {
    uint64_t next = va;
    for (uint32_t i = 0; error == 0 && i < list.count; ++i) {
      EXPECT_EQ(list.items[i].va, next);
      EXPECT_GT(list.items[i].length, 0U);
      next += list.items[i].length;
    }
    if (error == 0) {
      EXPECT_EQ(next, va + length);
    }
  }
  ~Described() { CloseExtents(&list); }
  const MemoryExtent& operator[](uint32_t i) const { return list.items[i]; }
  ExtentKind kind() const { return list.items[0].kind; }

  MemoryExtents list;
  int error;
};

int Memfd(uint64_t length) {
  const int fd = memfd_create("t", MFD_CLOEXEC);
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(length)), 0);
  return fd;
}

bool SameFile(int a, int b) {
  struct stat one;
  struct stat two;
  return fstat(a, &one) == 0 && fstat(b, &two) == 0 && one.st_dev == two.st_dev &&
         one.st_ino == two.st_ino;
}

TEST(DescribeMemory, PrivateMemoryGoesThroughProcessVm) {
  Memory anonymous(4 * kPage, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS);
  char stack[100];
  std::unique_ptr<char[]> heap(new char[10000]);
  const int fd = Memfd(kPage);
  Memory private_file(kPage, kReadWrite, MAP_PRIVATE, fd);
  for (const auto& [va, length] : std::initializer_list<std::pair<uint64_t, uint64_t>>{
           {anonymous.va() + 5, 3 * kPage},
           {reinterpret_cast<uint64_t>(stack), 100},
           {reinterpret_cast<uint64_t>(heap.get()), 10000},
           {reinterpret_cast<uint64_t>(g_data), sizeof g_data},
           {private_file.va(), kPage}}) {
    const Described described(va, length);
    ASSERT_EQ(described.error, 0);
    EXPECT_EQ(described.list.count, 1U);
    EXPECT_EQ(described.kind(), ExtentKind::kProcessVm);
    EXPECT_EQ(described[0].fd, -1);
    EXPECT_EQ(described.list.file_backed,
              va == private_file.va() || va == reinterpret_cast<uint64_t>(g_data));
  }
  close(fd);
}

TEST(DescribeMemory, SharedFileByTheAppsDescriptor) {
  const int fd = Memfd(8 * kPage);
  Memory memory(4 * kPage, kReadWrite, MAP_SHARED, fd, 2 * kPage);
  const Described described(memory.va() + kPage + 7, 100);
  ASSERT_EQ(described.error, 0);
  ASSERT_EQ(described.list.count, 1U);
  EXPECT_EQ(described.kind(), ExtentKind::kFile);
  EXPECT_EQ(described[0].file_offset, 3 * kPage + 7);
  EXPECT_TRUE(described[0].writable);
  EXPECT_TRUE(SameFile(described[0].fd, fd));
  EXPECT_TRUE(described.list.file_backed);
  close(fd);
}

TEST(DescribeMemory, DescriptorMustAllowWhatTheMappingAllows) {
  const int fd = Memfd(kPage);
  Memory memory(kPage, kReadWrite, MAP_SHARED, fd);
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const int read_only = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int path_only = open(path.c_str(), O_PATH | O_CLOEXEC);
  close(fd);
  const Described described(memory.va(), kPage);
  EXPECT_EQ(described.kind(), ExtentKind::kMapFiles);
  Memory readable(kPage, PROT_READ, MAP_SHARED, read_only);
  const Described read_described(readable.va(), kPage, false);
  EXPECT_EQ(read_described.kind(), ExtentKind::kFile);
  EXPECT_FALSE(read_described[0].writable);
  close(read_only);
  close(path_only);
}

TEST(DescribeMemory, SharedFileByItsPath) {
  char path[] = "/tmp/roci-describe-XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_EQ(ftruncate(fd, kPage), 0);
  Memory memory(kPage, kReadWrite, MAP_SHARED, fd);
  struct stat file;
  ASSERT_EQ(fstat(fd, &file), 0);
  close(fd);
  {
    const Described described(memory.va(), kPage);
    ASSERT_EQ(described.error, 0);
    // Some file systems (overlayfs) show another device in maps; then the path is not used.
    if (described.kind() == ExtentKind::kFile) {
      struct stat opened;
      ASSERT_EQ(fstat(described[0].fd, &opened), 0);
      EXPECT_EQ(opened.st_ino, file.st_ino);
    } else {
      EXPECT_EQ(described.kind(), ExtentKind::kMapFiles);
    }
  }
  // Another file with the same path is not used.
  unlink(path);
  const int other = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const Described described(memory.va(), kPage);
  EXPECT_EQ(described.kind(), ExtentKind::kMapFiles);
  EXPECT_EQ(described[0].vma_begin, memory.va());
  EXPECT_EQ(described[0].vma_end, memory.va() + kPage);
  close(other);
  unlink(path);
}

TEST(DescribeMemory, SharedMemoryWithoutADescriptor) {
  Memory anonymous(4 * kPage, kReadWrite, MAP_SHARED | MAP_ANONYMOUS);
  const Described described(anonymous.va() + kPage, kPage);
  EXPECT_EQ(described.kind(), ExtentKind::kMapFiles);
  EXPECT_EQ(described[0].vma_begin, anonymous.va());
  EXPECT_EQ(described[0].file_offset, kPage);
  const int id = shmget(IPC_PRIVATE, kPage, IPC_CREAT | 0600);
  void* at = shmat(id, nullptr, 0);
  const Described system_v(reinterpret_cast<uint64_t>(at), kPage);
  EXPECT_EQ(system_v.kind(), ExtentKind::kMapFiles);
  shmdt(at);
  shmctl(id, IPC_RMID, nullptr);
}

TEST(DescribeMemory, FaultsAsRegistrationOnLinuxDoes) {
  Memory memory(4 * kPage, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS);
  mprotect(memory.bytes() + 2 * kPage, kPage, PROT_NONE);
  mprotect(memory.bytes() + 3 * kPage, kPage, PROT_READ);
  EXPECT_EQ(Described(memory.va(), 2 * kPage).error, 0);
  EXPECT_EQ(Described(memory.va(), 2 * kPage + 1).error, EFAULT);
  EXPECT_EQ(Described(memory.va() + 3 * kPage, kPage).error, EFAULT);
  EXPECT_EQ(Described(memory.va() + 3 * kPage, kPage, false).error, 0);
  munmap(memory.bytes() + kPage, kPage);
  EXPECT_EQ(Described(memory.va(), kPage + 1).error, EFAULT);
  EXPECT_EQ(Described(memory.va() + kPage, 1).error, EFAULT);
  EXPECT_EQ(Described(memory.va() + 2 * kPage - 1, 1).error, EFAULT);
  EXPECT_EQ(Described(0, 1).error, EFAULT);
  EXPECT_EQ(Described(8, UINT64_MAX - 8).error, EFAULT);
  EXPECT_EQ(Described(8, UINT64_MAX).error, EINVAL);
  EXPECT_EQ(Described(8, 0).error, EINVAL);
  // On-demand regions may have holes.
  const Described on_demand(memory.va(), 4 * kPage, true, true);
  EXPECT_EQ(on_demand.error, 0);
  EXPECT_EQ(on_demand.kind(), ExtentKind::kProcessVm);
}

TEST(DescribeMemory, FailureClosesTheOpenedDescriptors) {
  const int fd = Memfd(kPage);
  Memory memory(2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS);
  MapPage(memory.bytes(), fd);
  const int next_before = dup(fd);
  close(next_before);
  EXPECT_EQ(Described(memory.va(), 2 * kPage).error, EFAULT);
  EXPECT_EQ(Described(memory.va(), kPage).error, 0);
  const int next_after = dup(fd);
  EXPECT_EQ(next_after, next_before);
  close(next_after);
  close(fd);
}

TEST(DescribeMemory, NeighboursMerge) {
  const int fd = Memfd(4 * kPage);
  Memory memory(6 * kPage, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS);
  // Two private mappings with different protection, then one file in order, then the same file out
  // of order.
  mprotect(memory.bytes(), kPage, kReadWrite | PROT_EXEC);
  MapPage(memory.bytes() + 2 * kPage, fd, 0);
  MapPage(memory.bytes() + 3 * kPage, fd, 1, kReadWrite | PROT_EXEC);
  MapPage(memory.bytes() + 4 * kPage, fd, 0);
  MapPage(memory.bytes() + 5 * kPage, fd, 3);
  const Described described(memory.va(), 6 * kPage);
  ASSERT_EQ(described.list.count, 4U);
  EXPECT_EQ(described[0].length, 2 * kPage);
  EXPECT_EQ(described[1].length, 2 * kPage);
  EXPECT_EQ(described[1].file_offset, 0U);
  EXPECT_EQ(described[2].file_offset, 0U);
  EXPECT_EQ(described[3].file_offset, 3 * kPage);
  // One descriptor serves all of them.
  EXPECT_EQ(described[2].fd, described[1].fd);
  EXPECT_FALSE(described[2].close_fd);
  close(fd);
}

TEST(DescribeMemory, TheLastExtentCoversTheRest) {
  constexpr uint64_t kPages = 41;
  Memory memory(kPages * kPage, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS);
  std::vector<int> fds;
  for (uint64_t i = 0; i < kPages; i += 2) {
    fds.push_back(Memfd(kPage));
    MapPage(memory.bytes() + i * kPage, fds.back());
  }
  const Described described(memory.va(), kPages * kPage);
  ASSERT_EQ(described.list.count, MemoryExtents::kCapacity);
  EXPECT_EQ(described[14].kind, ExtentKind::kFile);
  EXPECT_EQ(described[15].kind, ExtentKind::kProcessVm);
  EXPECT_EQ(described[15].length, (kPages - 15) * kPage);
  // Also if the last extent was a file.
  const Described odd(memory.va() + kPage, (kPages - 1) * kPage);
  ASSERT_EQ(odd.list.count, MemoryExtents::kCapacity);
  EXPECT_EQ(odd[15].kind, ExtentKind::kProcessVm);
  EXPECT_EQ(odd[15].fd, -1);
  for (const int fd : fds) close(fd);
}

TEST(DescribeMemory, KnownFileKeepsItsDescriptor) {
  const int fd = Memfd(kPage);
  Memory memory(kPage, kReadWrite, MAP_SHARED, fd);
  struct stat file;
  ASSERT_EQ(fstat(fd, &file), 0);
  const KnownFile known = {file.st_dev, file.st_ino, fd};
  const Described described(memory.va(), kPage, true, false, &known);
  EXPECT_EQ(described.kind(), ExtentKind::kConverted);
  EXPECT_EQ(described[0].fd, fd);
  EXPECT_FALSE(described[0].close_fd);
  EXPECT_FALSE(described.list.file_backed);
  close(fd);
}

TEST(DescribeMemory, KeepsErrno) {
  Memory memory(kPage, kReadWrite, MAP_SHARED | MAP_ANONYMOUS);
  errno = 1234;
  const Described described(memory.va(), kPage);
  AllowAccessBy(getppid());
  EXPECT_EQ(errno, 1234);
}

}  // namespace
}  // namespace roci::provider
