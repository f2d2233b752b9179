// The runtime directory, in which the daemon, the tool and the plugin find each other, and the
// names in it. Header-only and free of Abseil, so that all three use the same code.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "verbs_provider/abi/stand_in.h"

namespace roci::abi {

inline constexpr char kRuntimeDirVariable[] = "ROCI_RUNTIME_DIR";
inline constexpr char kSystemRuntimeDir[] = "/run/roci";
// In the runtime directory: the daemon's SOCK_SEQPACKET socket and the emulated sysfs tree.
inline constexpr char kSocketName[] = "rocid.sock";
inline constexpr char kSysfsName[] = "sysfs";

enum class RuntimeDirUse {
  kServe,    // daemon: always the caller's own directory
  kConnect,  // tool and plugin: the system's directory if the caller's own has no daemon
};

inline std::string SocketPath(const std::string& runtime_dir) {
  return runtime_dir + "/" + kSocketName;
}

inline std::string SysfsPath(const std::string& runtime_dir) {
  return runtime_dir + "/" + kSysfsName;
}

namespace runtime_dir_internal {

inline bool HasSocket(const std::string& runtime_dir) {
  struct stat st;
  return ::stat(SocketPath(runtime_dir).c_str(), &st) == 0 && S_ISSOCK(st.st_mode);
}

// False for a directory in /tmp that another user owns or may write: its socket is not trusted.
inline bool IsPrivate(const std::string& dir) {
  struct stat st;
  return ::lstat(dir.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == ::geteuid() &&
         (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace runtime_dir_internal

// The runtime directory: `option` (--runtime-dir; null or empty if not given), else
// $ROCI_RUNTIME_DIR, else /run/roci for root, else $XDG_RUNTIME_DIR/roci, else /tmp/roci-UID. The
// path is absolute unless the option or the variable is relative; the directory need not exist.
// Set-uid programs ignore the environment variables. A daemon that serves from /tmp/roci-UID
// creates the directory with mode 0755.
inline std::string RuntimeDir(const char* option, RuntimeDirUse use) {
  if (option != nullptr && *option != '\0') return option;
  const char* variable = ::secure_getenv(kRuntimeDirVariable);
  if (variable != nullptr && *variable != '\0') return variable;
  if (::geteuid() == 0) return kSystemRuntimeDir;
  const char* xdg = ::secure_getenv("XDG_RUNTIME_DIR");
  const bool has_xdg = xdg != nullptr && *xdg == '/';
  std::string own =
      has_xdg ? std::string(xdg) + "/roci" : "/tmp/roci-" + std::to_string(::geteuid());
  if (use == RuntimeDirUse::kServe) return own;
  using runtime_dir_internal::HasSocket;
  const bool usable = HasSocket(own) && (has_xdg || runtime_dir_internal::IsPrivate(own));
  return !usable && HasSocket(kSystemRuntimeDir) ? kSystemRuntimeDir : own;
}

}  // namespace roci::abi
