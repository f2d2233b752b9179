// A descriptor that the plugin keeps in somebody else's program, which may close what it does not
// know and use the number again.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

namespace roci::provider {

/// Not thread-safe. Holds nothing at first; LetGo() is the owner's to call. errno is not kept.
class HeldFile {
 public:
  /// Takes `fd` over; -1: nothing.
  void Hold(int fd) {
    LetGo();
    struct stat file;
    if (fd < 0 || fstat(fd, &file) != 0) return;
    fd_ = fd;
    device_ = file.st_dev;
    inode_ = file.st_ino;
  }
  /// -1: it holds nothing, or the program has closed it. One system call.
  int fd() const {
    struct stat file;
    const bool is_held =
        fd_ >= 0 && fstat(fd_, &file) == 0 && file.st_dev == device_ && file.st_ino == inode_;
    return is_held ? fd_ : -1;
  }
  void LetGo() {
    if (fd() >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace roci::provider
