#include "control/config/adapter_roce.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace roci::control {
namespace {

namespace fs = std::filesystem;

// A sysfs with one adapter.
class AdapterRoce : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "roci-sysfs-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    types_ = Adapter() / "infiniband/mlx5_0/ports/1/gid_attrs/types";
    fs::create_directories(types_);
    UseDriver("mlx5_core");
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path Adapter() const { return root_ / "bus/pci/devices/0000:03:00.0"; }
  void UseDriver(const std::string& name) const {
    fs::remove(Adapter() / "driver");
    fs::create_directory_symlink("../../drivers/" + name, Adapter() / "driver");
  }
  void AddGid(int index, const std::string& type) const {
    std::ofstream(types_ / std::to_string(index)) << type << "\n";
  }
  std::string Found(const std::string& port) const { return KernelRoceOf(port, root_.string()); }

  fs::path root_;
  fs::path types_;
};

TEST_F(AdapterRoce, IsFoundByTheGidTable) {
  AddGid(0, "IB/RoCE v1");
  EXPECT_EQ(Found("0000:03:00.0"), "");
  AddGid(1, "RoCE v2");
  EXPECT_EQ(Found("0000:03:00.0"), "mlx5_0");
  EXPECT_EQ(Found("03:00.0,dv_flow_en=1"), "mlx5_0");
}

TEST_F(AdapterRoce, MattersOnlyWhereTheKernelDriverStays) {
  AddGid(1, "RoCE v2");
  UseDriver("vfio-pci");
  EXPECT_EQ(Found("0000:03:00.0"), "");
}

TEST_F(AdapterRoce, IsUnknownOfOtherPorts) {
  AddGid(1, "RoCE v2");
  EXPECT_EQ(Found("0000:03:00.1"), "");
  EXPECT_EQ(Found("net_af_packet0,iface=eth0"), "");
  EXPECT_EQ(Found(""), "");
}

TEST_F(AdapterRoce, IsOffWithoutAnRdmaDevice) {
  fs::remove_all(Adapter() / "infiniband");
  EXPECT_EQ(Found("0000:03:00.0"), "");
}

}  // namespace
}  // namespace roci::control
