#include "control/config/adapter_roce.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "dataplane/port/port_devargs.h"

namespace roci::control {
namespace {

namespace fs = std::filesystem;

// gid_attrs/types has a file for each entry of the GID table. Those of unused entries cannot be
// read.
bool HasRoceGid(const fs::path& rdma_port) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(rdma_port / "gid_attrs/types", error)) {
    std::ifstream file(entry.path());
    std::string type;
    if (std::getline(file, type) && type == "RoCE v2") return true;
  }
  return false;
}

bool SpeaksRoce(const fs::path& rdma_device) {
  std::error_code error;
  for (const auto& port : fs::directory_iterator(rdma_device / "ports", error)) {
    if (HasRoceGid(port.path())) return true;
  }
  return false;
}

}  // namespace

std::string KernelRoceOf(const std::string& port, const std::string& sysfs) {
  if (!dataplane::IsPciAddress(port)) return "";
  const fs::path adapter = fs::path(sysfs) / "bus/pci/devices" / dataplane::PortName(port);
  std::error_code error;
  if (fs::read_symlink(adapter / "driver", error).filename() != "mlx5_core") return "";
  for (const auto& device : fs::directory_iterator(adapter / "infiniband", error)) {
    if (SpeaksRoce(device.path())) return device.path().filename();
  }
  return "";
}

}  // namespace roci::control
