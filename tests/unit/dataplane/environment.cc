#include "tests/unit/dataplane/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

namespace roci::testing {
namespace {

std::unique_ptr<dataplane::Dataplane> g_dataplane;

class DataplaneEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    // DPDK makes a folder there and never removes it.
    folder_ = std::filesystem::temp_directory_path() / "roci-dpdk.XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr) << folder_;
    setenv("RUNTIME_DIRECTORY", folder_.c_str(), 1);
    dataplane::DataplaneOptions options;
    options.eal.lcores = kTestLcores;
    options.eal.hugepages = dataplane::HugePages::kOff;
    auto dataplane = dataplane::Dataplane::Start(options);
    ASSERT_TRUE(dataplane.ok()) << dataplane.status();
    g_dataplane = *std::move(dataplane);
  }
  void TearDown() override {
    g_dataplane.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

 private:
  std::string folder_;
};

[[maybe_unused]] const auto* const g_environment =
    ::testing::AddGlobalTestEnvironment(new DataplaneEnvironment);

}  // namespace

dataplane::Dataplane& TestDataplane() { return *g_dataplane; }

}  // namespace roci::testing
