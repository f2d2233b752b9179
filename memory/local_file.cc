// Recognises local files without a call that a file system server answers.
#include "memory/local_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

namespace roci::memory {
namespace {

// Local file systems. Not every version of linux/magic.h has these; the values are kernel ABI.
constexpr uint64_t kXfsMagic = 0x58465342;
// Not overlayfs: its lower layer may be a FUSE file system.
constexpr struct {
  uint64_t magic;
  const char* name;
} kLocalFileSystems[] = {
    {TMPFS_MAGIC, "tmpfs"},       {TMPFS_MAGIC, "devtmpfs"},      {RAMFS_MAGIC, "ramfs"},
    {EXT4_SUPER_MAGIC, "ext4"},   {HUGETLBFS_MAGIC, "hugetlbfs"}, {kXfsMagic, "xfs"},
    {BTRFS_SUPER_MAGIC, "btrfs"}, {F2FS_SUPER_MAGIC, "f2fs"},
};

bool IsLocalMagic(uint64_t type) {
  return std::any_of(std::begin(kLocalFileSystems), std::end(kLocalFileSystems),
                     [type](const auto& each) { return each.magic == type; });
}

bool IsLocalName(std::string_view type) {
  return std::any_of(std::begin(kLocalFileSystems), std::end(kLocalFileSystems),
                     [type](const auto& each) { return type == each.name; });
}

// File systems in memory.
bool IsVolatile(uint64_t type) {
  return type == TMPFS_MAGIC || type == RAMFS_MAGIC || type == HUGETLBFS_MAGIC;
}

dev_t DeviceOfMemfd(unsigned flags) {
  const int fd = memfd_create("device", MFD_CLOEXEC | flags);
  struct stat file {};
  const bool known = fd >= 0 && fstat(fd, &file) == 0;
  if (fd >= 0) close(fd);
  return known ? file.st_dev : 0;
}

// Files of the kernel's internal mounts: memfds, System V segments, shared anonymous memory.
bool IsKernelMemory(dev_t device) {
  constexpr unsigned kSizeShift = 26;  // MFD_HUGE_SHIFT: by the logarithm, 2 MiB and 1 GiB
  static const dev_t devices[] = {DeviceOfMemfd(0), DeviceOfMemfd(MFD_HUGETLB | 21U << kSizeShift),
                                  DeviceOfMemfd(MFD_HUGETLB | 30U << kSizeShift)};
  return device != 0 &&
         std::find(std::begin(devices), std::end(devices), device) != std::end(devices);
}

// The mounts of local file systems in this process's namespace. Thread-safe.
class LocalMounts {
 public:
  // Never destroyed: other threads may use it until the process ends.
  static LocalMounts& Get() {
    static LocalMounts& mounts = *new LocalMounts;
    return mounts;
  }

  // Subvolumes of btrfs have their own device numbers, so the number of the mount counts as well.
  bool Has(uint64_t mount, dev_t device) {
    const std::lock_guard guard(mutex_);
    if (HasChanged()) Read();
    return std::any_of(mounts_.begin(), mounts_.end(), [&](const Mount& each) {
      return each.number == mount || each.device == device;
    });
  }

 private:
  struct Mount {
    uint64_t number;
    dev_t device;
  };

  // The file is polled, since reading it takes milliseconds where there are many mounts. A child
  // process opens its own.
  bool HasChanged() {
    if (file_ == nullptr || owner_ != getpid()) {
      file_ = std::fopen("/proc/self/mountinfo", "re");
      owner_ = getpid();
      return true;
    }
    pollfd changed{fileno(file_), POLLPRI, 0};
    return poll(&changed, 1, 0) > 0 && (changed.revents & (POLLPRI | POLLERR)) != 0;
  }

  void Read() {
    constexpr int kMostLines = 10'000;
    mounts_.clear();
    if (file_ == nullptr) return;
    std::rewind(file_);
    std::vector<char> line(16384);
    for (int i = 0; i < kMostLines; ++i) {
      if (std::fgets(line.data(), static_cast<int>(line.size()), file_) == nullptr) break;
      Add(line.data());
    }
  }

  void Add(const char* line) {
    unsigned long long number = 0;
    unsigned major_number = 0, minor_number = 0;
    if (std::sscanf(line, "%llu %*u %u:%u", &number, &major_number, &minor_number) != 3) return;
    const char* type = std::strstr(line, " - ");
    if (type == nullptr) return;
    type += 3;
    if (!IsLocalName(std::string_view(type, std::strcspn(type, " \n")))) return;
    mounts_.push_back({number, makedev(major_number, minor_number)});
  }

  std::mutex mutex_;
  FILE* file_ = nullptr;
  pid_t owner_ = 0;
  std::vector<Mount> mounts_;
};

bool IsLocal(int fd) {
  struct statx file {};
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &file) != 0 ||
      !S_ISREG(file.stx_mode)) {
    return false;
  }
  if (fcntl(fd, F_GET_SEALS) >= 0) return true;
  const dev_t device = makedev(file.stx_dev_major, file.stx_dev_minor);
  const uint64_t mount = file.stx_mask & STATX_MNT_ID ? file.stx_mnt_id : UINT64_MAX;
  return IsKernelMemory(device) || LocalMounts::Get().Has(mount, device);
}

}  // namespace

std::optional<LocalFile> InspectLocalFile(int fd) {
  struct statfs fs;
  if (!IsLocal(fd) || fstatfs(fd, &fs) != 0) return std::nullopt;
  const auto type = static_cast<uint64_t>(fs.f_type) & 0xFFFFFFFFU;
  if (!IsLocalMagic(type)) return std::nullopt;
  const auto page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return LocalFile{type == HUGETLBFS_MAGIC ? static_cast<size_t>(fs.f_bsize) : page_size,
                   !IsVolatile(type)};
}

// The name of a DMA buffer can be another file's, but no other file has an exporter in its fdinfo.
// The name comes first, because fdinfo of other files may wait: that of an epoll descriptor takes a
// lock that a program can hold.
bool IsDmaBuffer(int fd) {
  constexpr std::string_view kName = "/dmabuf:";
  char path[40];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  char name[kName.size()];
  const ssize_t length = readlink(path, name, sizeof(name));
  if (length < 0 || std::string_view(name, static_cast<size_t>(length)) != kName) return false;
  std::snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
  const int info = open(path, O_RDONLY | O_CLOEXEC);
  if (info < 0) return false;
  char text[1024];
  const ssize_t size = read(info, text, sizeof(text));
  close(info);
  return size > 0 && std::string_view(text, static_cast<size_t>(size)).find("\nexp_name:") !=
                         std::string_view::npos;
}

}  // namespace roci::memory
