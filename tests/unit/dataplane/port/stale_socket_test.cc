// RemoveStaleSocket() removes a socket file that no process has open, and no other file.
#include "dataplane/port/stale_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "dataplane/base/shared_memory.h"

namespace roci::dataplane {
namespace {

class StaleSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "stale.XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  static Fd Bound(const std::string& path, int type) {
    Fd fd(socket(AF_UNIX, type, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    if (type != SOCK_DGRAM) {
      EXPECT_EQ(listen(fd.get(), 1), 0);
    }
    return fd;
  }

  std::string folder_;
};

TEST_F(StaleSocketTest, RemovesASocketThatNoProcessHasOpen) {
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM}) {
    Bound(Path("dead"), type).Reset();
    EXPECT_TRUE(RemoveStaleSocket(Path("dead")));
    EXPECT_FALSE(std::filesystem::exists(Path("dead")));
  }
}

TEST_F(StaleSocketTest, KeepsASocketThatAProcessHasOpen) {
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM}) {
    const std::string path = Path("alive" + std::to_string(type));
    const Fd owner = Bound(path, type);
    EXPECT_FALSE(RemoveStaleSocket(path));
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_EQ(IsListenedAt(path), type != SOCK_DGRAM);
  }
  Bound(Path("dead"), SOCK_STREAM).Reset();
  for (const char* name : {"dead", "nothing", ""}) EXPECT_FALSE(IsListenedAt(Path(name)));
}

TEST_F(StaleSocketTest, KeepsFilesThatAreNoSockets) {
  std::ofstream(Path("file")) << "precious";
  std::filesystem::create_directory(Path("folder"));
  Bound(Path("dead"), SOCK_STREAM).Reset();
  std::filesystem::create_symlink(Path("dead"), Path("link"));
  for (const char* name : {"file", "folder", "link"}) {
    EXPECT_FALSE(RemoveStaleSocket(Path(name)));
    EXPECT_TRUE(std::filesystem::exists(Path(name))) << name;
  }
  EXPECT_FALSE(RemoveStaleSocket(Path("nothing")));
  EXPECT_FALSE(RemoveStaleSocket(""));
  EXPECT_FALSE(RemoveStaleSocket(Path(std::string(200, 'x'))));
}

}  // namespace
}  // namespace roci::dataplane
