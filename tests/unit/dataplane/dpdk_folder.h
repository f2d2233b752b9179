// The folder that DPDK makes for its runtime files and never removes.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace roci::testing {

// Before DPDK starts. Removes the folder at its end.
class DpdkFolder {
 public:
  DpdkFolder() : path_(std::filesystem::temp_directory_path() / "roci-dpdk.XXXXXX") {
    if (mkdtemp(path_.data()) != nullptr) setenv("RUNTIME_DIRECTORY", path_.c_str(), 1);
  }
  ~DpdkFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  DpdkFolder(const DpdkFolder&) = delete;
  DpdkFolder& operator=(const DpdkFolder&) = delete;

 private:
  std::string path_;
};

}  // namespace roci::testing
