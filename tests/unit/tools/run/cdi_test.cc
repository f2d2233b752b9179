// The Container Device Interface file of `roci cdi`.
#include "tools/run/cdi.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/status/status.h"

namespace roci::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class CdiTest : public ::testing::Test {
 public:
  CdiTest() {
    char name[] = "/tmp/roci-cdi-XXXXXX";
    directory_ = mkdtemp(name);
    for (const std::string path : {"infiniband/roci0", "infiniband/roci1", "misc/rdma_cm"}) {
      fs::create_directories(Live() + path);
    }
    Write("infiniband_verbs/abi_version", "6\n");
    Write("infiniband_verbs/uverbs0/ibdev", "roci0\n");
    Write("infiniband_verbs/uverbs1/ibdev", "roci1\n");
  }
  ~CdiTest() override { fs::remove_all(directory_); }

 protected:
  std::string Live() const { return directory_ + "/sysfs/class/"; }
  void Write(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(Live() + name).parent_path());
    std::ofstream(Live() + name) << content;
  }
  Json Generate() const {
    const absl::StatusOr<std::string> file =
        CdiFile({.runtime_dir = directory_,
                 .plugins = {.driver = "/lib/a/libroci", .private_abis = {34, 59}}});
    return file.ok() ? Json::parse(*file) : Json();
  }

  std::string directory_;
};

// Where in the container each mount of these edits is.
std::set<std::string> TargetsOf(const Json& edits) {
  std::set<std::string> targets;
  for (const Json& mount : edits.at("mounts")) {
    EXPECT_FALSE(mount.at("hostPath").get<std::string>().empty());
    EXPECT_TRUE(targets.insert(mount.at("containerPath")).second);
  }
  return targets;
}

TEST_F(CdiTest, HasAnEntryPerDeviceAndOneForAll) {
  const Json file = Generate();
  EXPECT_EQ(file.at("kind"), "rocinante/nic");
  EXPECT_EQ(file.at("cdiVersion"), "0.3.0");
  std::vector<std::string> names;
  for (const Json& device : file.at("devices")) names.push_back(device.at("name"));
  EXPECT_EQ(names, (std::vector<std::string>{"roci0", "roci1", "all"}));
}

TEST_F(CdiTest, OneDeviceShowsNothingOfTheOther) {
  const Json file = Generate();
  EXPECT_EQ(
      TargetsOf(file.at("devices")[1].at("containerEdits")),
      (std::set<std::string>{"/dev/infiniband/uverbs1", "/run/rocinante/sys/class/infiniband/roci1",
                             "/run/rocinante/sys/class/infiniband_verbs/abi_version",
                             "/run/rocinante/sys/class/infiniband_verbs/uverbs1",
                             "/run/rocinante/sys/class/misc/rdma_cm"}));
  EXPECT_EQ(TargetsOf(file.at("devices")[2].at("containerEdits")),
            (std::set<std::string>{"/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1",
                                   "/run/rocinante/sys"}));
}

// libibverbs appends the number of its private ABI and ".so" to the driver's name.
TEST_F(CdiTest, EachContainerGetsThePluginsOfAllGenerations) {
  const Json edits = Generate().at("containerEdits");
  EXPECT_EQ(
      TargetsOf(edits),
      (std::set<std::string>{directory_, "/run/rocinante/lib/libroci-rdmav34.so",
                             "/run/rocinante/lib/libroci-rdmav59.so", "/dev/infiniband/rdma_cm"}));
  const std::set<std::string> variables = edits.at("env");
  EXPECT_EQ(variables, (std::set<std::string>{"SYSFS_PATH=/run/rocinante/sys",
                                              "RDMAV_DRIVERS=/run/rocinante/lib/libroci",
                                              "ROCI_RUNTIME_DIR=" + directory_}));
}

// The runtime directory with the device tree is the daemon's: containers may not write to it, not
// even those whose root is the host's. A socket can be connected to nevertheless.
TEST_F(CdiTest, OnlyDevicesAreWritable) {
  const Json file = Generate();
  std::vector<Json> all = file.at("containerEdits").at("mounts");
  for (const Json& device : file.at("devices")) {
    for (const Json& mount : device.at("containerEdits").at("mounts")) all.push_back(mount);
  }
  for (const Json& mount : all) {
    const std::set<std::string> options = mount.at("options");
    const std::string target = mount.at("containerPath");
    EXPECT_EQ(options.contains("rw"), target.starts_with("/dev/")) << mount;
    EXPECT_NE(options.contains("rw"), options.contains("ro")) << mount;
    EXPECT_TRUE(options.contains("nosuid")) << mount;
  }
}

TEST_F(CdiTest, WithoutADeviceThereIsNoFile) {
  fs::remove_all(Live() + "infiniband_verbs");
  EXPECT_EQ(CdiFile({.runtime_dir = directory_,
                     .plugins = {.driver = "/a/libroci", .private_abis = {34}}})
                .status()
                .code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace roci::tools
