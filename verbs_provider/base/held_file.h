// A descriptor that the plugin keeps open in a program that may close unknown descriptors and reuse
// their numbers.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

namespace roci::provider {

/// Not thread-safe. Empty at first; has no destructor, so the owner calls Close(). May change
/// errno.
class HeldFile {
 public:
  /// Takes ownership of `fd`; -1: stays empty.
  void Hold(int fd) {
    Close();
    struct stat file;
    if (fd < 0 || fstat(fd, &file) != 0) return;
    fd_ = fd;
    device_ = file.st_dev;
    inode_ = file.st_ino;
  }
  /// -1: empty, or the program has closed the descriptor. One system call.
  int fd() const {
    struct stat file;
    const bool is_held =
        fd_ >= 0 && fstat(fd_, &file) == 0 && file.st_dev == device_ && file.st_ino == inode_;
    return is_held ? fd_ : -1;
  }
  /// Closes the descriptor, unless the program has closed it.
  void Close() {
    if (fd() >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace roci::provider
