// A file of a FUSE file system in new namespaces of this process. Once the file is open, its server
// stops answering, except for reads and flushes if requested.
#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace roci::testing {

class FuseFile {
 public:
  enum class Reads {
    kAnswered,
    kWithheld,
    kWithheldAfterAnError,  // the first fails
  };
  enum class Flushes {
    // Closing a descriptor of the file blocks until the process `server` is killed.
    kWithheld,
    kAnswered,  // the server ends with this process
  };
  // Requests that the server has received. Shared with processes that are forked later.
  struct Requests {
    std::atomic<uint32_t> reads{0};
    std::atomic<uint32_t> flushes{0};
  };

  static bool Available() { return access("/dev/fuse", R_OK | W_OK) == 0; }
  // Check `fd` afterwards: -1 if the system does not allow it. An ordinary user's process
  // with one thread.
  explicit FuseFile(Reads reads = Reads::kAnswered, Flushes flushes = Flushes::kWithheld)
      : requests(new (mmap(nullptr, sizeof(Requests), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Requests),
        reads_(reads),
        flushes_(flushes) {
    char folder[] = "/tmp/roci_fuse.XXXXXX";
    if (mkdtemp(folder) == nullptr) return;
    if (EnterNamespaces()) fd = MountAndOpen(folder);
    rmdir(folder);
  }

  int fd = -1;
  pid_t server = 0;
  Requests* const requests;

 private:
  static bool WriteFile(const char* path, const char* text) {
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    const bool done = file >= 0 && write(file, text, std::strlen(text)) > 0;
    if (file >= 0) close(file);
    return done;
  }
  static bool EnterNamespaces() {
    char users[32], groups[32];
    std::snprintf(users, sizeof(users), "0 %u 1", getuid());
    std::snprintf(groups, sizeof(groups), "0 %u 1", getgid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && WriteFile("/proc/self/setgroups", "deny") &&
           WriteFile("/proc/self/uid_map", users) && WriteFile("/proc/self/gid_map", groups);
  }
  // The open file outlives its path.
  int MountAndOpen(const char* folder) {
    const int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    char options[128];
    std::snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
                  fuse);
    if (fuse < 0 || mount("fuse", folder, "fuse", MS_NOSUID | MS_NODEV, options) != 0) return -1;
    server = fork();
    if (server == 0) Serve(fuse);
    close(fuse);
    char path[64];
    std::snprintf(path, sizeof(path), "%s/file", folder);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    umount2(folder, MNT_DETACH);
    return file;
  }
  static void AnswerError(int fuse, uint64_t unique, int error) {
    fuse_out_header head{};
    head.len = sizeof(head);
    head.unique = unique;
    head.error = -error;
    if (write(fuse, &head, sizeof(head)) < 0) std::perror("fuse");
  }
  template <class Body>
  static void Answer(int fuse, uint64_t unique, const Body& body) {
    char bytes[sizeof(fuse_out_header) + sizeof(Body)];
    fuse_out_header head{};
    head.len = sizeof(bytes);
    head.unique = unique;
    std::memcpy(bytes, &head, sizeof(head));
    std::memcpy(bytes + sizeof(head), &body, sizeof(body));
    if (write(fuse, bytes, sizeof(bytes)) < 0) std::perror("fuse");
  }
  static fuse_attr AttributesOf(uint64_t node) {
    fuse_attr attributes{};
    attributes.ino = node;
    attributes.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0777 : S_IFREG | 0666;
    attributes.size = 4096;
    attributes.nlink = 1;
    return attributes;
  }
  // A read that is withheld is not answered.
  void AnswerRead(int fuse, uint64_t unique) const {
    const bool is_first = ++requests->reads == 1;
    if (reads_ == Reads::kAnswered) {
      char page[4096] = {};
      Answer(fuse, unique, page);
    } else if (reads_ == Reads::kWithheldAfterAnError && is_first) {
      AnswerError(fuse, unique, EIO);
    }
  }
  void AnswerFlush(int fuse, uint64_t unique) const {
    ++requests->flushes;
    if (flushes_ == Flushes::kAnswered) AnswerError(fuse, unique, 0);
  }
  [[noreturn]] void Serve(int fuse) const {
    prctl(PR_SET_PDEATHSIG, flushes_ == Flushes::kAnswered ? SIGKILL : 0);
    static char request[1 << 20];
    bool is_open = false;
    for (;;) {
      if (read(fuse, request, sizeof(request)) < static_cast<ssize_t>(sizeof(fuse_in_header))) {
        _exit(0);
      }
      fuse_in_header head;
      std::memcpy(&head, request, sizeof(head));
      if (head.opcode == FUSE_INIT) {
        fuse_init_out init{};
        init.major = FUSE_KERNEL_VERSION;
        init.minor = FUSE_KERNEL_MINOR_VERSION;
        init.max_write = 4096;
        Answer(fuse, head.unique, init);
      } else if (head.opcode == FUSE_READ) {
        AnswerRead(fuse, head.unique);
      } else if (is_open) {
        if (head.opcode == FUSE_FLUSH) AnswerFlush(fuse, head.unique);
      } else if (head.opcode == FUSE_LOOKUP) {
        fuse_entry_out entry{};
        entry.nodeid = 2;
        entry.entry_valid = 1000;
        entry.attr = AttributesOf(2);
        Answer(fuse, head.unique, entry);
      } else if (head.opcode == FUSE_GETATTR) {
        fuse_attr_out attributes{};
        attributes.attr = AttributesOf(head.nodeid);
        Answer(fuse, head.unique, attributes);
      } else if (head.opcode == FUSE_OPEN) {
        is_open = true;
        Answer(fuse, head.unique, fuse_open_out{});
      }
    }
  }

  const Reads reads_;
  const Flushes flushes_;
};

}  // namespace roci::testing
