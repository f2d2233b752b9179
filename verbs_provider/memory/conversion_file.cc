#include "verbs_provider/memory/conversion_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace roci::provider {
namespace {

// With a finite RLIMIT_FSIZE, SIGXFSZ would end the program.
bool FileSizeUnlimited() {
  rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

bool MakeFile() {
  const int fd = memfd_create("roci-app-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return false;
  struct stat file;
  if (ftruncate(fd, static_cast<off_t>(kMigrationFileSize)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
      fstat(fd, &file) != 0) {
    close(fd);
    return false;
  }
  g_conversion.file = fd;
  g_conversion.file_device = file.st_dev;
  g_conversion.file_inode = file.st_ino;
  return true;
}

bool HaveFile() { return FileSizeUnlimited() && (ConversionFileIsOurs() || MakeFile()); }

// Migrates scratch pages to the file and back and checks their content after each step.
bool TryOut() {
  constexpr uint64_t kLength = 4 * kPageSize;
  void* memory = mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto* bytes = static_cast<volatile char*>(memory);
  const auto begin = reinterpret_cast<uint64_t>(memory);
  const MigrationFiles files = ConversionFiles();
  bytes[1] = 1;
  bytes[2 * kPageSize] = 2;
  uint64_t done = 0;
  char seen = 0;
  const auto intact = [&] {
    return bytes[1] == 1 && bytes[2 * kPageSize] == 2 && bytes[kPageSize] == 0;
  };
  bool works =
      MigrateToFile(begin, begin + kLength, PROT_READ | PROT_WRITE, files, &done) == 0 &&
      intact() && pread(files.file, &seen, 1, static_cast<off_t>(begin + 2 * kPageSize)) == 1 &&
      seen == 2 &&
      MigrateToPrivate(begin, begin + kLength, begin, PROT_READ | PROT_WRITE, files, &done) == 0 &&
      intact();
  munmap(memory, kLength);
  DropFilePages(begin, begin + kLength, files);
  return works;
}

}  // namespace

MigrationFiles ConversionFiles() { return {g_conversion.device, g_conversion.file}; }

bool ConversionFileIsOurs() {
  struct stat file;
  return g_conversion.file >= 0 && fstat(g_conversion.file, &file) == 0 &&
         file.st_dev == g_conversion.file_device && file.st_ino == g_conversion.file_inode;
}

bool IsConverted(const MapsLine& line) {
  return g_conversion.file >= 0 && line.shared && line.inode == g_conversion.file_inode &&
         line.device == g_conversion.file_device;
}

PageRange FilePagesOf(const MapsLine& line) {
  return {line.offset, line.offset + (line.end - line.begin)};
}

bool CanConvertLocked() {
  if (!HaveFile()) return false;
  if (g_conversion.ability == ConvertAbility::kUnknown) {
    // Opened even if userfaultfd(2) is permitted: the program may drop privileges later and must
    // still be able to restore converted memory.
    if (g_conversion.device < 0) g_conversion.device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    const bool can = sysconf(_SC_PAGESIZE) == static_cast<long>(kPageSize) && TryOut();
    g_conversion.ability = can ? ConvertAbility::kYes : ConvertAbility::kNo;
  }
  return g_conversion.ability == ConvertAbility::kYes;
}

}  // namespace roci::provider
