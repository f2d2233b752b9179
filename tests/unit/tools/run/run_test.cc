// Parts of `roci run` that need no namespace.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "tools/run/daemon_directory.h"
#include "tools/run/file.h"
#include "tools/run/find_plugin.h"
#include "tools/run/netlink_filter.h"
#include "tools/run/show_devices.h"
#include "verbs_provider/abi/rdma_netlink.h"

namespace roci::tools {
namespace {

// Exit status of a child that runs `body`.
template <class Body>
int InChild(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(NetlinkFilter, RefusesOneFamilyAlone) {
  ASSERT_TRUE(HasNetlink(NETLINK_ROUTE));
  ASSERT_TRUE(HasNetlink(NETLINK_KOBJECT_UEVENT));
  const int result = InChild([] {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 1;
    if (!RefuseNetlink(NETLINK_KOBJECT_UEVENT).ok()) return 2;
    if (HasNetlink(NETLINK_KOBJECT_UEVENT)) return 3;
    if (errno != EPROTONOSUPPORT) return 4;
    if (!HasNetlink(NETLINK_ROUTE)) return 5;
    // Another domain with the same protocol number.
    const int raw = socket(AF_UNIX, SOCK_STREAM, NETLINK_KOBJECT_UEVENT);
    if (raw >= 0 || errno != EPROTONOSUPPORT) return 6;
    if (socket(AF_UNIX, SOCK_STREAM, 0) < 0) return 7;
    // Descendants inherit it.
    return InChild([] { return HasNetlink(NETLINK_KOBJECT_UEVENT) ? 1 : 0; });
  });
  EXPECT_EQ(result, 0);
  EXPECT_TRUE(HasNetlink(NETLINK_KOBJECT_UEVENT));
}

TEST(NetlinkFilter, KnowsFamiliesThatAreNotThere) { EXPECT_FALSE(HasNetlink(4000)); }

// A temporary folder.
class Folder {
 public:
  Folder() : path_(mkdtemp(name_)) {}
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  char name_[32] = "/tmp/run_test.XXXXXX";
  std::string path_;
};

TEST(FindPlugins, TakesThoseBesideTheOneThatIsNamedAndMakesTheirPathAbsolute) {
  const Folder folder;
  EXPECT_FALSE(FindPlugins(folder / "libroci-rdmav34.so").ok());
  for (const char* name : {"libroci-rdmav65.so", "libroci-rdmav34.so", "libroci-rdmav.so",
                           "libroci-rdmav7x.so", "libother-rdmav57.so", "libroci-rdmav59.so.1"}) {
    std::ofstream(folder / name) << "x";
  }
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const auto found = FindPlugins("./libroci-rdmav34.so");
  std::filesystem::current_path(before);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->driver, folder / "libroci");
  EXPECT_EQ(found->Folder(), folder.path());
  EXPECT_EQ(found->private_abis, (std::vector<int>{34, 65}));
  EXPECT_TRUE(found->Has(65));
  EXPECT_FALSE(found->Has(57));
}

TEST(FindPlugins, RefusesOtherNames) {
  const Folder folder;
  for (const char* name : {"libroci.so", "libroci-rdmav.so", "libroci-rdmavx.so"}) {
    std::ofstream(folder / name) << "x";
    EXPECT_FALSE(FindPlugins(folder / name).ok()) << name;
  }
}

// A socket at which a daemon would answer.
class Listener {
 public:
  explicit Listener(const std::string& path) : fd_(socket(AF_UNIX, SOCK_SEQPACKET, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Listener() { close(fd_); }
  void Serve() const { EXPECT_EQ(listen(fd_, 8), 0); }

 private:
  int fd_;
};

TEST(AwaitDaemon, EndsWhenADaemonServes) {
  const Folder folder;
  const Listener sessions(folder / "rocid.sock");
  const Listener last(folder / ROCI_ABI_NETLINK_SOCKET_NAME);
  std::atomic<bool> is_complete = false;
  std::thread later([&] {
    sessions.Serve();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    is_complete = true;
    last.Serve();
  });
  const auto found = AwaitDaemon(folder.path(), 1000);
  EXPECT_TRUE(is_complete);
  later.join();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, folder.path());
}

TEST(AwaitDaemon, EndsAtItsLimit) {
  const Folder folder;
  EXPECT_TRUE(absl::IsUnavailable(AwaitDaemon(folder.path(), 0.05).status()));
  EXPECT_TRUE(absl::IsUnavailable(AwaitDaemon(folder.path(), 0).status()));
}

TEST(AwaitDaemon, DoesNotWaitForWhatIsNoDaemon) {
  const std::string too_long(200, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(AwaitDaemon("/" + too_long, 1e9).status()));
}

TEST(File, ListsAndWrites) {
  char name[] = "/tmp/run_test.XXXXXX";
  const std::string directory = mkdtemp(name);
  EXPECT_TRUE(ListDirectory(directory).empty());
  EXPECT_TRUE(ListDirectory(directory + "/none").empty());
  ASSERT_TRUE(WriteFile(directory + "/b", "text").ok());
  ASSERT_TRUE(WriteFile(directory + "/a", "").ok());
  EXPECT_EQ(ListDirectory(directory), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(std::filesystem::file_size(directory + "/b"), 4u);
  EXPECT_FALSE(WriteFile(directory + "/none/c", "").ok());
  EXPECT_FALSE(WriteFile("/dev/full", "x").ok());
  EXPECT_TRUE(IsDirectory(directory));
  EXPECT_FALSE(IsDirectory(directory + "/a"));
  EXPECT_TRUE(Exists(directory + "/a"));
  EXPECT_FALSE(Exists(directory + "/c"));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace roci::tools
