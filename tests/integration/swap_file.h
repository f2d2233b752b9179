// A swap file that is in use while its owner exists.
#pragma once

#include <fcntl.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace roci::testing {

// Needs CAP_SYS_ADMIN, and a folder on a file system that supports swap files. A separate process
// turns the file on, and off again when this process has ended for any reason: only SIGKILL ends
// it, and it belongs to another session. Construct it before there are threads.
class SwapFile {
 public:
  // Check refusal() afterwards.
  explicit SwapFile(const std::string& folder) {
    int alive[2], reports[2];
    if (pipe2(alive, O_CLOEXEC) != 0 || pipe2(reports, O_CLOEXEC) != 0) std::abort();
    guard_ = fork();
    if (guard_ == 0) {
      close(alive[1]);
      close(reports[0]);
      Guard(folder, alive[0], reports[1]);
    }
    close(alive[0]);
    close(reports[1]);
    alive_ = alive[1];
    if (guard_ < 0) refusal_ = std::string("fork: ") + strerror(errno);
    char part[256];
    for (ssize_t got; (got = read(reports[0], part, sizeof(part))) > 0;) {
      refusal_.append(part, static_cast<size_t>(got));
    }
    close(reports[0]);
  }
  ~SwapFile() {
    close(alive_);
    if (guard_ > 0) waitpid(guard_, nullptr, 0);
  }
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;

  // The call that failed, and why; empty: the file is in use.
  const std::string& refusal() const { return refusal_; }

 private:
  static constexpr size_t kPage = 4096;
  static constexpr uint32_t kPages = 4096;
  // The kernel's union swap_header.
  struct Header {
    char boot_block[1024] = {};
    uint32_t version = 1;
    uint32_t last_page = kPages - 1;
    uint32_t bad_pages = 0;
    char rest[kPage - 1024 - 3 * sizeof(uint32_t) - 10] = {};
    char magic[10] = {'S', 'W', 'A', 'P', 'S', 'P', 'A', 'C', 'E', '2'};
  };
  static_assert(sizeof(Header) == kPage);

  // Closes `report`; on failure writes the reason first.
  [[noreturn]] static void Guard(const std::string& folder, int alive, int report) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    setsid();
    std::string path = folder + "/roci-swap-XXXXXX";
    const int file = mkostemp(path.data(), O_CLOEXEC);
    const char* const failed = file < 0 ? "mkostemp" : TurnOn(path, file);
    if (failed != nullptr) {
      const std::string why =
          std::string(failed) + ", a file in " + folder + ": " + strerror(errno);
      if (write(report, why.data(), why.size()) < 0) std::perror("swap file");
    }
    close(report);
    if (failed == nullptr) {
      char none;
      while (read(alive, &none, 1) < 0 && errno == EINTR) continue;
      TurnOff(path);
    }
    if (file >= 0) unlink(path.c_str());
    _exit(0);
  }
  // The call that failed; null: none.
  static const char* TurnOn(const std::string& path, int file) {
    static const Header header;
    errno = posix_fallocate(file, 0, off_t{kPages} * kPage);
    if (errno != 0) return "posix_fallocate";
    if (pwrite(file, &header, sizeof(header), 0) != sizeof(header)) return "pwrite";
    return swapon(path.c_str(), 0) == 0 ? nullptr : "swapon";
  }
  static void TurnOff(const std::string& path) {
    for (int tries = 0; tries < 100; ++tries) {
      if (swapoff(path.c_str()) == 0) return;
      usleep(100'000);
    }
    std::fprintf(stderr, "%s is still in use (%s): call swapoff and remove it\n", path.c_str(),
                 strerror(errno));
    _exit(1);
  }

  pid_t guard_ = -1;
  int alive_ = -1;  // closed when this process ends, which tells the guard to exit
  std::string refusal_;
};

}  // namespace roci::testing
