// Creates a private mount namespace and mounts in it.
#include "tools/run/mount_namespace.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "control/loop/unique_fd.h"
#include "tools/run/file.h"

namespace roci::tools {
namespace {

absl::Status DropFromBoundingSet(const std::vector<int>& capabilities) {
  for (int capability : capabilities) {
    if (::prctl(PR_CAPBSET_DROP, capability) != 0) {
      return absl::ErrnoToStatus(errno, "cannot limit capabilities");
    }
  }
  return absl::OkStatus();
}

// A new user namespace starts with all capabilities; these have to be dropped again.
std::vector<int> CapabilitiesOutsideBoundingSet() {
  std::vector<int> outside;
  for (int capability = 0; capability <= CAP_LAST_CAP; ++capability) {
    if (::prctl(PR_CAPBSET_READ, capability) == 0) outside.push_back(capability);
  }
  return outside;
}

absl::Status MapToSelf(const char* map, unsigned id) {
  return WriteFile(map, absl::StrCat(id, " ", id, " 1\n"));
}

absl::Status MakeMountsOurOwn() {
  // Not MS_PRIVATE: later mounts of the administrator must appear here.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) {
    return absl::ErrnoToStatus(errno, "mounting is refused");
  }
  return absl::OkStatus();
}

absl::Status EnterUserNamespace() {
  const uid_t uid = ::geteuid();
  const gid_t gid = ::getegid();
  const std::vector<int> never_had = CapabilitiesOutsideBoundingSet();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    return absl::ErrnoToStatus(errno, "user namespaces are refused");
  }
  // Without privileges in the parent namespace, a group can be mapped only after setgroups is
  // denied.
  absl::Status status = WriteFile("/proc/self/setgroups", "deny");
  if (status.ok()) status = MapToSelf("/proc/self/uid_map", uid);
  if (status.ok()) status = MapToSelf("/proc/self/gid_map", gid);
  if (status.ok()) status = DropFromBoundingSet(never_had);
  if (status.ok()) status = MakeMountsOurOwn();
  return status;
}

// A process cannot leave a user namespace, and some systems permit user namespaces but no mounts in
// them, so a child process tries first.
absl::Status TryUserNamespace() {
  int result[2];
  if (::pipe2(result, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  const control::UniqueFd reader(result[0]);
  control::UniqueFd writer(result[1]);
  const pid_t child = ::fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "cannot fork");
  if (child == 0) {
    const std::string problem(EnterUserNamespace().message());
    const bool told = ::write(result[1], problem.data(), problem.size()) >= 0;
    ::_exit(problem.empty() && told ? 0 : 1);
  }
  writer.Reset();
  char problem[256];
  const ssize_t length = ::read(reader.get(), problem, sizeof(problem));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      std::string(problem, static_cast<size_t>(std::max<ssize_t>(length, 0))));
}

// Mounts entry `name` of the open directory `from`, with all mounts below it, at `target`.
bool MountEntry(int from, const std::string& name, const std::string& target) {
  // (glibc has open_tree() and move_mount() since 2.36.)
  const control::UniqueFd tree(static_cast<int>(::syscall(
      SYS_open_tree, from, name.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)));
  return tree.valid() && ::syscall(SYS_move_mount, tree.get(), "", AT_FDCWD, target.c_str(),
                                   MOVE_MOUNT_F_EMPTY_PATH) == 0;
}

bool CopyLink(int from, const std::string& name, const std::string& target) {
  char link[PATH_MAX];
  const ssize_t length = ::readlinkat(from, name.c_str(), link, sizeof(link) - 1);
  if (length < 0) return false;
  link[length] = '\0';
  return ::symlink(link, target.c_str()) == 0;
}

// Mounts or copies an entry of the covered directory `original` (a descriptor, since it has no path
// any more) at `target`. False: failed.
bool ShowAgain(int original, const std::string& name, const std::string& target) {
  struct stat st;
  if (::fstatat(original, name.c_str(), &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0) {
    return false;
  }
  if (S_ISLNK(st.st_mode)) return CopyLink(original, name, target);
  const bool is_directory = S_ISDIR(st.st_mode);
  const bool made = is_directory ? ::mkdir(target.c_str(), 0755) == 0 : WriteFile(target, "").ok();
  if (!made) return false;
  if (MountEntry(original, name, target)) return true;
  if (is_directory) {
    ::rmdir(target.c_str());
  } else {
    ::unlink(target.c_str());
  }
  return false;
}

}  // namespace

absl::Status EnterPrivateMountNamespace() {
  if (::unshare(CLONE_NEWNS) == 0) return MakeMountsOurOwn();
  absl::Status status = TryUserNamespace();
  return status.ok() ? EnterUserNamespace() : status;
}

absl::Status MirrorDirectory(const std::string& directory,
                             const std::function<bool(const std::string& name)>& keep) {
  const std::vector<std::string> names = ListDirectory(directory);
  const control::UniqueFd original(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!original.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", directory));
  std::vector<std::string> kept;
  std::copy_if(names.begin(), names.end(), std::back_inserter(kept), keep);
  if (::mount("roci", directory.c_str(), "tmpfs", MS_NOSUID, "mode=0755") != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot mount over ", directory));
  }
  for (const std::string& name : kept) {
    ShowAgain(original.get(), name, absl::StrCat(directory, "/", name));
  }
  return absl::OkStatus();
}

absl::Status EnsureDirectories(const std::string& parent, const std::vector<std::string>& names) {
  const auto missing = [&parent](const std::string& name) {
    return !IsDirectory(absl::StrCat(parent, "/", name));
  };
  if (std::none_of(names.begin(), names.end(), missing)) return absl::OkStatus();
  absl::Status status = MirrorDirectory(parent, [](const std::string&) { return true; });
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(parent, "/", name);
    if (status.ok() && missing(name) && ::mkdir(path.c_str(), 0755) != 0) {
      status = absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", path));
    }
  }
  return status;
}

absl::Status BindMount(const std::string& source, const std::string& target) {
  if (::mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot show ", source, " at ", target));
}

}  // namespace roci::tools
