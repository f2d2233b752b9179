// The runtime directory, by which tool and plugin find the daemon.
#include "verbs_provider/abi/runtime_dir.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

namespace roci::abi {
namespace {

constexpr uid_t kUser = 61234;

void ClearEnvironment() {
  unsetenv(kRuntimeDirVariable);
  unsetenv("XDG_RUNTIME_DIR");
}

// What RuntimeDir answers to an ordinary user.
std::string AsUser(const char* option, RuntimeDirUse use) {
  int answer[2];
  EXPECT_EQ(pipe(answer), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string text =
        geteuid() != 0 || setresuid(kUser, kUser, kUser) == 0 ? RuntimeDir(option, use) : "failed";
    _exit(write(answer[1], text.data(), text.size()) < 0);
  }
  close(answer[1]);
  char text[512] = {};
  EXPECT_GE(read(answer[0], text, sizeof(text) - 1), 0);
  close(answer[0]);
  waitpid(child, nullptr, 0);
  return text;
}

std::string OwnDirectory() {
  return "/tmp/roci-" + std::to_string(geteuid() == 0 ? kUser : geteuid());
}

class ListeningSocket {
 public:
  explicit ListeningSocket(const std::string& directory) : path_(SocketPath(directory)) {
    std::filesystem::create_directories(directory);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    fd_ = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << path_;
  }
  ~ListeningSocket() {
    close(fd_);
    unlink(path_.c_str());
  }

 private:
  std::string path_;
  int fd_;
};

TEST(RuntimeDir, OptionComesFirstThenTheVariable) {
  ClearEnvironment();
  setenv(kRuntimeDirVariable, "/from/variable", 1);
  for (RuntimeDirUse use : {RuntimeDirUse::kServe, RuntimeDirUse::kConnect}) {
    EXPECT_EQ(RuntimeDir("/from/option", use), "/from/option");
    EXPECT_EQ(RuntimeDir("", use), "/from/variable");
    EXPECT_EQ(RuntimeDir(nullptr, use), "/from/variable");
    EXPECT_EQ(AsUser("/from/option", use), "/from/option");
  }
  setenv(kRuntimeDirVariable, "", 1);
  EXPECT_EQ(AsUser(nullptr, RuntimeDirUse::kServe), OwnDirectory());
  ClearEnvironment();
}

TEST(RuntimeDir, UsersHaveOneOfTheirOwn) {
  ClearEnvironment();
  EXPECT_EQ(AsUser(nullptr, RuntimeDirUse::kServe), OwnDirectory());
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(AsUser(nullptr, RuntimeDirUse::kServe), "/run/user/7/roci");
  setenv("XDG_RUNTIME_DIR", "relative", 1);
  EXPECT_EQ(AsUser(nullptr, RuntimeDirUse::kServe), OwnDirectory());
  ClearEnvironment();
  if (geteuid() == 0) {
    EXPECT_EQ(RuntimeDir(nullptr, RuntimeDirUse::kServe), kSystemRuntimeDir);
    setenv("XDG_RUNTIME_DIR", "/run/user/0", 1);
    EXPECT_EQ(RuntimeDir(nullptr, RuntimeDirUse::kConnect), kSystemRuntimeDir);
    ClearEnvironment();
  }
}

TEST(RuntimeDir, AUsersOwnDaemonIsPreferredToTheSystems) {
  ClearEnvironment();
  char name[] = "/tmp/runtime_dir_test.XXXXXX";
  const std::string xdg = mkdtemp(name);
  std::filesystem::permissions(xdg, std::filesystem::perms(0755));
  setenv("XDG_RUNTIME_DIR", xdg.c_str(), 1);
  {
    const ListeningSocket socket(xdg + "/roci");
    EXPECT_EQ(AsUser(nullptr, RuntimeDirUse::kConnect), xdg + "/roci");
  }
  // Without a daemon of the user's the answer depends on whether the system has one.
  const bool system_daemon = runtime_dir_internal::HasSocket(kSystemRuntimeDir);
  EXPECT_EQ(AsUser(nullptr, RuntimeDirUse::kConnect),
            system_daemon ? kSystemRuntimeDir : xdg + "/roci");
  ClearEnvironment();
  std::filesystem::remove_all(xdg);
}

TEST(RuntimeDir, OnlyAPrivateDirectoryInTmpIsTrusted) {
  char name[] = "/tmp/runtime_dir_test.XXXXXX";
  const std::string directory = mkdtemp(name);
  EXPECT_TRUE(runtime_dir_internal::IsPrivate(directory));
  std::filesystem::permissions(directory, std::filesystem::perms(0777));
  EXPECT_FALSE(runtime_dir_internal::IsPrivate(directory));
  std::filesystem::permissions(directory, std::filesystem::perms(0755));
  const std::string link = directory + "/link";
  std::filesystem::create_directory_symlink(directory, link);
  EXPECT_FALSE(runtime_dir_internal::IsPrivate(link));
  if (geteuid() == 0) {
    ASSERT_EQ(chown(directory.c_str(), kUser, kUser), 0);
    EXPECT_FALSE(runtime_dir_internal::IsPrivate(directory));
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace roci::abi
