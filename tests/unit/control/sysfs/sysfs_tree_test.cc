// The sysfs tree on disk: devices appear complete, changed files are rewritten, all are removed.
#include "control/sysfs/sysfs_tree.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace roci::control {
namespace {

namespace stdfs = std::filesystem;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class SysfsTreeTest : public testing::Test {
 public:
  SysfsTreeTest() {
    char name[] = "/dev/shm/sysfs_tree_test.XXXXXX";
    directory_ = ::mkdtemp(name);
    stdfs::create_directories(Kernel("class/net/eth7"));
    stdfs::create_directories(Kernel("devices/system/cpu"));
    std::ofstream(Kernel("devices/system/cpu/online")) << "0-1\n";
  }
  ~SysfsTreeTest() override { stdfs::remove_all(directory_); }

 protected:
  std::string Kernel(const std::string& path) const { return directory_ + "/kernel/" + path; }
  std::string Root(const std::string& path = "") const { return directory_ + "/sysfs/" + path; }
  std::string Device(const std::string& path) const {
    return Root("class/infiniband/roci0/" + path);
  }

  std::unique_ptr<SysfsTree> Create(bool rdma_cm = false) {
    auto tree = SysfsTree::Create({.root = directory_ + "/sysfs",
                                   .socket_path = "/run/x/rocid.sock",
                                   .advertise_rdma_cm = rdma_cm,
                                   .kernel_sysfs = directory_ + "/kernel"});
    EXPECT_TRUE(tree.ok()) << tree.status();
    return tree.ok() ? *std::move(tree) : nullptr;
  }

  static DeviceDescription Describe(const std::string& name) {
    DeviceDescription device;
    device.name = name;
    device.state = SysfsPortState::kActive;
    device.gids.resize(2);
    device.gids[0].gid.bytes[0] = 0xfe;
    device.gids[1].gid.bytes[15] = 1;
    return device;
  }

  static ino_t Inode(const std::string& path) {
    struct stat st = {};
    EXPECT_EQ(::lstat(path.c_str(), &st), 0) << path;
    return st.st_ino;
  }

  std::string directory_;
};

TEST_F(SysfsTreeTest, ShowsADeviceWithAllItsLinks) {
  const auto tree = Create();
  const auto number = tree->AddDevice(Describe("roci0"));
  ASSERT_TRUE(number.ok()) << number.status();
  EXPECT_EQ(*number, 0);
  const std::string verbs = Root("class/infiniband_verbs/");
  EXPECT_EQ(Read(verbs + "abi_version"), "6\n");
  EXPECT_EQ(Read(verbs + "uverbs0/ibdev"), "roci0\n");
  EXPECT_EQ(Read(verbs + "uverbs0/dev"), "1:7\n");
  EXPECT_EQ(Read(verbs + "uverbs0/roci_socket"), "/run/x/rocid.sock\n");
  EXPECT_EQ(Read(verbs + "uverbs0/device/numa_node"), "-1\n");
  EXPECT_EQ(Read(Device("roci_socket")), "/run/x/rocid.sock\n");
  EXPECT_EQ(Read(Device("device/infiniband_verbs/uverbs0/ibdev")), "roci0\n");
  EXPECT_EQ(Read(Device("device/infiniband/roci0/node_type")), "1: CA\n");
  EXPECT_EQ(Read(Device("device/local_cpus")), "00000003\n");
  EXPECT_EQ(Read(Device("ports/1/state")), "4: ACTIVE\n");
}

TEST_F(SysfsTreeTest, IsReadableByAllWithAnyUmask) {
  const mode_t before = ::umask(0077);
  const auto tree = Create();
  ASSERT_TRUE(tree->AddDevice(Describe("roci0")).ok());
  ::umask(before);
  for (const auto& entry : stdfs::recursive_directory_iterator(Root("class"))) {
    if (entry.is_symlink()) continue;
    const auto expected = entry.is_directory() ? stdfs::perms(0755) : stdfs::perms(0644);
    EXPECT_EQ(entry.status().permissions(), expected) << entry.path();
  }
}

TEST_F(SysfsTreeTest, ShowsNoFolderOfInterfacesWhereThereIsNone) {
  const auto tree = Create();
  DeviceDescription device = Describe("roci0");
  device.netdev = "";
  ASSERT_TRUE(tree->AddDevice(device).ok());
  EXPECT_TRUE(stdfs::exists(Device("device/infiniband")));
  EXPECT_FALSE(stdfs::exists(Device("device/net")));
}

TEST_F(SysfsTreeTest, LinksAnInterfaceOfTheKernelAndMakesUpOthers) {
  const auto tree = Create();
  DeviceDescription device = Describe("roci0");
  device.netdev = "eth7";
  ASSERT_TRUE(tree->AddDevice(device).ok());
  EXPECT_EQ(stdfs::read_symlink(Device("device/net/eth7")), Kernel("class/net/eth7"));
  device = Describe("roci1");
  device.netdev = "none0";
  ASSERT_TRUE(tree->AddDevice(device).ok());
  const std::string netdev = Root("class/infiniband/roci1/device/net/none0/");
  EXPECT_EQ(Read(netdev + "operstate"), "up\n");
  ASSERT_TRUE(tree->SetPort("roci1", {SysfsPortState::kDown, 100'000, 1400}).ok());
  EXPECT_EQ(Read(netdev + "operstate"), "down\n");
  EXPECT_EQ(Read(netdev + "mtu"), "1400\n");
  EXPECT_FALSE(stdfs::exists(Kernel("class/net/eth7/operstate")));
  ASSERT_TRUE(tree->SetPort("roci0", {SysfsPortState::kDown, 100'000, 1500}).ok());
  EXPECT_FALSE(stdfs::exists(Kernel("class/net/eth7/operstate")));
}

TEST_F(SysfsTreeTest, LeavesTheKernelsNumbersAndNamesAlone) {
  stdfs::create_directories(Kernel("class/infiniband_verbs/uverbs0"));
  stdfs::create_directories(Kernel("class/infiniband_verbs/uverbs2"));
  stdfs::create_directories(Kernel("class/infiniband/mlx"));
  // A device of another daemon, in whose mount namespace this one runs.
  stdfs::create_directories(Kernel("class/infiniband_verbs/uverbs1"));
  std::ofstream(Kernel("class/infiniband_verbs/uverbs1/roci_socket")) << "x\n";
  const auto tree = Create();
  EXPECT_EQ(*tree->AddDevice(Describe("roci0")), 1);
  EXPECT_EQ(*tree->AddDevice(Describe("roci1")), 3);
  EXPECT_EQ(tree->AddDevice(Describe("mlx")).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(tree->AddDevice(Describe("roci0")).status().code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(tree->RemoveDevice("roci0").ok());
  EXPECT_EQ(*tree->AddDevice(Describe("roci2")), 1);
}

TEST_F(SysfsTreeTest, RewritesOnlyChangedFiles) {
  const auto tree = Create();
  ASSERT_TRUE(tree->AddDevice(Describe("roci0")).ok());
  const ino_t sent = Inode(Device("ports/1/hw_counters/sent_pkts"));
  const ino_t received = Inode(Device("ports/1/hw_counters/rcvd_pkts"));
  const CounterValue values[] = {{"sent_pkts", 18446744073709551615u}, {"rcvd_pkts", 0}};
  ASSERT_TRUE(tree->SetCounters("roci0", CounterGroup::kHardware, values).ok());
  EXPECT_EQ(Read(Device("ports/1/hw_counters/sent_pkts")), "18446744073709551615\n");
  EXPECT_NE(Inode(Device("ports/1/hw_counters/sent_pkts")), sent);
  EXPECT_EQ(Inode(Device("ports/1/hw_counters/rcvd_pkts")), received);
  // A shorter value leaves nothing of the longer one.
  ASSERT_TRUE(tree->SetCounters("roci0", CounterGroup::kHardware, {{"sent_pkts", 7}}).ok());
  EXPECT_EQ(Read(Device("ports/1/hw_counters/sent_pkts")), "7\n");
}

TEST_F(SysfsTreeTest, NamesUnknownCountersAndSetsTheOthers) {
  const auto tree = Create();
  ASSERT_TRUE(tree->AddDevice(Describe("roci0")).ok());
  const CounterValue values[] = {{"no_such", 1}, {"port_xmit_data", 5}};
  EXPECT_EQ(tree->SetCounters("roci0", CounterGroup::kPort, values).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Read(Device("ports/1/counters/port_xmit_data")), "5\n");
  EXPECT_FALSE(stdfs::exists(Device("ports/1/counters/no_such")));
  EXPECT_EQ(tree->SetCounters("roci9", CounterGroup::kPort, {}).code(),
            absl::StatusCode::kNotFound);
}

TEST_F(SysfsTreeTest, GrowsAndShrinksTheGidTable) {
  const auto tree = Create();
  ASSERT_TRUE(tree->AddDevice(Describe("roci0")).ok());
  const ino_t first = Inode(Device("ports/1/gids/0"));
  std::vector<GidDescription> gids = Describe("roci0").gids;
  gids.resize(3);
  gids[2].gid.bytes[15] = 0x33;
  ASSERT_TRUE(tree->SetGids("roci0", gids).ok());
  EXPECT_EQ(Read(Device("ports/1/gids/2")), "0000:0000:0000:0000:0000:0000:0000:0033\n");
  EXPECT_EQ(Inode(Device("ports/1/gids/0")), first);
  gids.resize(1);
  ASSERT_TRUE(tree->SetGids("roci0", gids).ok());
  for (const char* table : {"gids/", "gid_attrs/types/", "gid_attrs/ndevs/"}) {
    EXPECT_TRUE(stdfs::exists(Device("ports/1/" + std::string(table) + "0")));
    EXPECT_FALSE(stdfs::exists(Device("ports/1/" + std::string(table) + "1")));
  }
  ASSERT_TRUE(tree->SetGids("roci0", Describe("roci0").gids).ok());
  EXPECT_TRUE(stdfs::exists(Device("ports/1/gids/1")));
  gids[0].netdev = "../x";
  EXPECT_FALSE(tree->SetGids("roci0", gids).ok());
  EXPECT_TRUE(stdfs::exists(Device("ports/1/gids/1")));
}

TEST_F(SysfsTreeTest, KeepsTheDirectorysTimeByWhichLibibverbsKnowsADevice) {
  const auto tree = Create();
  ASSERT_TRUE(tree->AddDevice(Describe("roci0")).ok());
  const auto before = stdfs::last_write_time(Device(""));
  ASSERT_TRUE(tree->SetNodeDescription("roci0", "new words").ok());
  ASSERT_TRUE(tree->SetPort("roci0", {SysfsPortState::kInit, 25'000, 1500}).ok());
  ASSERT_TRUE(tree->SetCounters("roci0", CounterGroup::kPort, {{"port_rcv_data", 1}}).ok());
  EXPECT_EQ(Read(Device("node_desc")), "new words\n");
  EXPECT_EQ(Read(Device("ports/1/rate")), "25 Gb/sec (1X EDR)\n");
  EXPECT_EQ(stdfs::last_write_time(Device("")), before);
  EXPECT_FALSE(tree->SetNodeDescription("roci0", "two\nlines").ok());
}

TEST_F(SysfsTreeTest, AdvertisesTheConnectionManagerOnlyWhenAsked) {
  auto tree = Create();
  EXPECT_FALSE(stdfs::exists(Root("class/misc")));
  tree.reset();
  tree = Create(true);
  EXPECT_EQ(Read(Root("class/misc/rdma_cm/abi_version")), "4\n");
  EXPECT_EQ(Read(Root("class/misc/rdma_cm/dev")), "1:7\n");
  tree.reset();
  EXPECT_FALSE(stdfs::exists(Root("class/misc")));
}

TEST_F(SysfsTreeTest, ReplacesFilesOfACrashedDaemonAndKeepsTheMountedDirectories) {
  stdfs::create_directories(Root("class/infiniband/old0/ports"));
  stdfs::create_directories(Root("class/infiniband_verbs/uverbs5"));
  stdfs::create_directories(Root(".staging/half"));
  const ino_t devices = Inode(Root("class/infiniband"));
  const ino_t verbs = Inode(Root("class/infiniband_verbs"));
  auto tree = Create();
  EXPECT_FALSE(stdfs::exists(Root("class/infiniband/old0")));
  EXPECT_FALSE(stdfs::exists(Root("class/infiniband_verbs/uverbs5")));
  EXPECT_TRUE(stdfs::is_empty(Root(".staging")) || !stdfs::exists(Root(".staging/half")));
  ASSERT_TRUE(tree->AddDevice(Describe("roci0")).ok());
  tree.reset();
  EXPECT_TRUE(stdfs::is_empty(Root("class/infiniband")));
  EXPECT_TRUE(stdfs::is_empty(Root("class/infiniband_verbs")));
  EXPECT_FALSE(stdfs::exists(Root(".staging")));
  EXPECT_EQ(Inode(Root("class/infiniband")), devices);
  EXPECT_EQ(Inode(Root("class/infiniband_verbs")), verbs);
}

TEST_F(SysfsTreeTest, DoesNotFollowLinksWhenItRemoves) {
  stdfs::create_directories(directory_ + "/precious");
  std::ofstream(directory_ + "/precious/file") << "x";
  stdfs::create_directories(Root("class/infiniband"));
  stdfs::create_directory_symlink(directory_ + "/precious", Root("class/infiniband/roci0"));
  Create();
  EXPECT_TRUE(stdfs::exists(directory_ + "/precious/file"));
}

TEST_F(SysfsTreeTest, SaysWhatToDoIfItCannotWrite) {
  std::ofstream(directory_ + "/sysfs") << "a file";
  const auto tree = SysfsTree::Create({.root = directory_ + "/sysfs", .socket_path = "/x"});
  ASSERT_FALSE(tree.ok());
  EXPECT_NE(std::string(tree.status().message()).find("--runtime-dir"), std::string::npos);
}

TEST_F(SysfsTreeTest, ReadersNeverSeeHalfAValue) {
  const auto tree = Create();
  ASSERT_TRUE(tree->AddDevice(Describe("roci0")).ok());
  const std::string path = Device("ports/1/counters/port_xmit_data");
  constexpr uint64_t kLong = 11111111111111111111u;
  constexpr uint64_t kShort = 2222;
  std::atomic<bool> stop = false;
  std::atomic<int> torn = 0;
  std::atomic<int> reads = 0;
  std::thread reader([&] {
    while (!stop) {
      const std::string text = Read(path);
      ++reads;
      if (text != "0\n" && text != "2222\n" && text != "11111111111111111111\n") ++torn;
    }
  });
  for (int i = 0; i < 3'000 || reads < 1'000; ++i) {
    ASSERT_TRUE(tree->SetCounters("roci0", CounterGroup::kPort,
                                  {{"port_xmit_data", i % 2 == 0 ? kLong : kShort}})
                    .ok());
  }
  stop = true;
  reader.join();
  EXPECT_EQ(torn, 0) << "of " << reads;
}

}  // namespace
}  // namespace roci::control
