#include "tests/unit/dataplane/environment.h"

#include <gtest/gtest.h>

#include <memory>

#include "dataplane/shard/shard_access.h"
#include "tests/unit/dataplane/dpdk_folder.h"

namespace roci::testing {
namespace {

std::unique_ptr<dataplane::Dataplane> g_dataplane;

class DataplaneEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    dataplane::DataplaneOptions options;
    options.eal.lcores = kTestLcores;
    options.eal.hugepages = dataplane::HugePages::kOff;
    auto dataplane = dataplane::Dataplane::Start(options);
    ASSERT_TRUE(dataplane.ok()) << dataplane.status();
    g_dataplane = *std::move(dataplane);
  }
  void TearDown() override { g_dataplane.reset(); }

 private:
  DpdkFolder folder_;
};

[[maybe_unused]] const auto* const g_environment =
    ::testing::AddGlobalTestEnvironment(new DataplaneEnvironment);

}  // namespace

dataplane::Dataplane& TestDataplane() { return *g_dataplane; }

dataplane::Lcore& TestLcore(uint32_t index) {
  return dataplane::ShardAccess::LcoreOf(*g_dataplane, index);
}

}  // namespace roci::testing
