// A file of a FUSE server that stops answering, mounted by root (fuse_file.h has one for ordinary
// users).
#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>

namespace roci::testing {

// When the file is open, the server answers nothing but FLUSH.
class SilentFile {
 public:
  explicit SilentFile(const std::filesystem::path& path) : path_(path) {
    std::ofstream(path).flush();
    const int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    const std::string options =
        "fd=" + std::to_string(device) + ",rootmode=100600,user_id=0,group_id=0,allow_other";
    if (device < 0 || mount("roci", path.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str())) {
      close(device);
      return;
    }
    server_ = fork();
    if (server_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      Serve(device);
    }
    close(device);
    fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
    *silent_ = true;
  }
  ~SilentFile() {
    if (server_ > 0) {
      kill(server_, SIGKILL);  // ends the connection and the requests that wait for it
      waitpid(server_, nullptr, 0);
      umount2(path_.c_str(), MNT_DETACH);
    }
    if (fd_ >= 0) close(fd_);
    munmap(const_cast<bool*>(silent_), kBytes);
  }
  int fd() const { return fd_; }

 private:
  static constexpr size_t kBytes = 4096;

  void Serve(int device) {
    alignas(8) static char request[1 << 17];
    for (;;) {
      if (read(device, request, sizeof(request)) <= 0) _exit(0);
      Answer(device, *reinterpret_cast<const fuse_in_header*>(request));
    }
  }
  void Answer(int device, const fuse_in_header& in) {
    struct {
      fuse_out_header head;
      union {
        fuse_init_out init;
        fuse_attr_out attr;
        fuse_open_out open;
      };
    } out{};
    size_t size = sizeof(out.head);
    if (in.opcode == FUSE_INIT) {
      out.init.major = FUSE_KERNEL_VERSION;
      out.init.minor = FUSE_KERNEL_MINOR_VERSION;
      out.init.max_write = kBytes;
      size += sizeof(out.init);
    } else if (in.opcode == FUSE_GETATTR && !*silent_) {
      out.attr.attr.ino = 1;
      out.attr.attr.mode = S_IFREG | 0600;
      out.attr.attr.nlink = 1;
      size += sizeof(out.attr);
    } else if (in.opcode == FUSE_OPEN) {
      size += sizeof(out.open);
    } else if (*silent_ && in.opcode != FUSE_FLUSH) {
      return;
    } else {
      out.head.error = -ENOSYS;
    }
    out.head.unique = in.unique;
    out.head.len = static_cast<uint32_t>(size);
    if (write(device, &out, size) < 0) _exit(0);
  }

  const std::filesystem::path path_;
  pid_t server_ = 0;
  int fd_ = -1;
  volatile bool* const silent_ = new (mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0)) volatile bool(false);
};

}  // namespace roci::testing
