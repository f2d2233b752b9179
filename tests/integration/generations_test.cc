// A plugin serves programs of its generation of libibverbs: opens a device and moves data through
// the operation table, called as libibverbs would. For the generations of which no Debian release
// has programs (generations_in_chroot_test.py has the others).
//
// Usage: generations PLUGIN FAKE_LIBIBVERBS RELEASE [gtest arguments], under `roci run`
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/generations/fake_libibverbs.h"
#include "tests/unit/verbs_provider/generations/history.h"
#include "verbs_provider/base/provider_api.h"

namespace {

namespace history = roci::provider::history;

const char* g_plugin;
const char* g_library;
int g_release;

// Names of the operation table's rows, in order.
std::vector<std::string> Rows() {
  std::set<std::string> names;
  const auto add = [&names](std::string_view text) {
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) names.insert(word);
  };
  add(history::kOperationsOf36);
  for (const history::Release& change : history::kReleases) {
    if (change.first <= g_release) add(change.new_operations);
  }
  return {names.begin(), names.end()};
}

// The library and the plugin, loaded once: neither can be unloaded.
const FakeLibibverbs& Library() {
  static FakeLibibverbs* const library = [] {
    void* handle = dlopen(g_library, RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr || dlopen(g_plugin, RTLD_NOW) == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::abort();
    }
    return static_cast<FakeLibibverbs*>(dlsym(handle, "fake_libibverbs"));
  }();
  return *library;
}

const verbs_device_ops& Driver() { return *static_cast<const verbs_device_ops*>(Library().driver); }

class Generation : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(Library().registrations, 1);
    std::strcpy(sysfs_.ibdev_name, "roci0");
    std::strcpy(sysfs_.ibdev_path, "/sys/class/infiniband/roci0");
    ASSERT_TRUE(Driver().match_device(&sysfs_));
    device_ = Driver().alloc_device(&sysfs_);
    ASSERT_NE(device_, nullptr);
    std::strcpy(device_->device.name, "roci0");
    device_->sysfs = &sysfs_;
    const int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    verbs_context_ = Driver().alloc_context(&device_->device, fd, nullptr);
    ASSERT_NE(verbs_context_, nullptr) << std::strerror(errno);
    context_ = reinterpret_cast<ibv_context*>(reinterpret_cast<char*>(verbs_context_) +
                                              Library().context_offset);
  }

  void TearDown() override {
    if (verbs_context_ != nullptr) {
      Call<void>("free_context", context_);
      EXPECT_EQ(Library().uninitialised, verbs_context_);
    }
    if (device_ != nullptr) Driver().uninit_device(device_);
  }

  // The plugin's function in the row `name`; null if there is none.
  static void* Operation(const std::string& name) {
    const std::vector<std::string> rows = Rows();
    const auto row = std::find(rows.begin(), rows.end(), name);
    if (row == rows.end()) std::abort();
    return Library().operations[row - rows.begin()];
  }

  // Calls an operation, whose arguments must have the exact types.
  template <class Result, class... Arguments>
  static Result Call(const std::string& name, Arguments... arguments) {
    return reinterpret_cast<Result (*)(Arguments...)>(Operation(name))(arguments...);
  }

  verbs_sysfs_dev sysfs_ = {};
  verbs_device* device_ = nullptr;
  verbs_context* verbs_context_ = nullptr;
  ibv_context* context_ = nullptr;
};

TEST_F(Generation, FillsInTheContextWhereLibibverbsHasIt) {
  EXPECT_EQ(Library().allocated, verbs_context_);
  EXPECT_EQ(Library().operations_of, verbs_context_);
  EXPECT_EQ(context_->device, &device_->device);
  EXPECT_GE(context_->async_fd, 0);
  EXPECT_GT(context_->num_comp_vectors, 0);
}

TEST_F(Generation, LeavesOperationsThatItDoesNotServeToLibibverbs) {
  const std::vector<std::string> rows = Rows();
  for (const char* name :
       {"async_event", "cq_event", "create_flow_action_esp", "destroy_flow_action",
        "modify_flow_action_esp", "query_qp_data_in_order"}) {
    EXPECT_EQ(Operation(name), nullptr) << name;
  }
  const auto served = std::count_if(
      rows.begin(), rows.end(), [](const std::string& name) { return Operation(name) != nullptr; });
  EXPECT_EQ(served, 70);
}

TEST_F(Generation, AnswersQueries) {
  ibv_device_attr_ex attributes = {};
  const ibv_query_device_ex_input* no_input = nullptr;
  ASSERT_EQ(Call<int>("query_device_ex", context_, no_input, &attributes, sizeof(attributes)), 0);
  EXPECT_GT(attributes.orig_attr.max_qp, 0);
  EXPECT_EQ(attributes.phys_port_cnt_ex, 1u);
  ibv_port_attr port = {};
  ASSERT_EQ(Call<int>("query_port", context_, uint8_t{1}, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
}

// Beside a libibverbs whose layouts may be others.
TEST(UnknownGeneration, IsLeftAlone) { EXPECT_EQ(Library().registrations, 0); }

// A queue pair that is connected to itself.
class Connected : public Generation {
 protected:
  void SetUp() override {
    Generation::SetUp();
    if (HasFatalFailure()) return;
    pd_ = Call<ibv_pd*>("alloc_pd", context_);
    ASSERT_NE(pd_, nullptr);
    pd_->context = context_;
    ibv_comp_channel* no_channel = nullptr;
    cq_ = Call<ibv_cq*>("create_cq", context_, 16, no_channel, 0);
    ASSERT_NE(cq_, nullptr);
    cq_->context = context_;
    mr_ = Call<ibv_mr*>("reg_mr", pd_, static_cast<void*>(memory_.data()), memory_.size(),
                        reinterpret_cast<uint64_t>(memory_.data()), kAccess);
    ASSERT_NE(mr_, nullptr);
    ibv_qp_init_attr_ex wanted = {};
    wanted.send_cq = wanted.recv_cq = cq_;
    wanted.cap = {.max_send_wr = 4,
                  .max_recv_wr = 4,
                  .max_send_sge = 1,
                  .max_recv_sge = 1,
                  .max_inline_data = 0};
    wanted.qp_type = IBV_QPT_RC;
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wanted.pd = pd_;
    wanted.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    qp_ = Call<ibv_qp*>("create_qp_ex", context_, &wanted);
    ASSERT_NE(qp_, nullptr) << std::strerror(errno);
    Connect();
  }

  void TearDown() override {
    if (qp_ != nullptr) {
      EXPECT_EQ(Call<int>("destroy_qp", qp_), 0);
    }
    if (mr_ != nullptr) {
      EXPECT_EQ(Call<int>("dereg_mr", reinterpret_cast<verbs_mr*>(mr_)), 0);
    }
    if (cq_ != nullptr) {
      EXPECT_EQ(Call<int>("destroy_cq", cq_), 0);
    }
    if (pd_ != nullptr) {
      EXPECT_EQ(Call<int>("dealloc_pd", pd_), 0);
    }
    Generation::TearDown();
  }

  void Modify(ibv_qp_attr attributes, int mask) {
    ASSERT_EQ(Call<int>("modify_qp", qp_, &attributes, mask), 0) << attributes.qp_state;
  }

  void Connect() {
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags = kAccess;
    Modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = qp_->qp_num;
    attributes.max_dest_rd_atomic = 1;
    attributes.min_rnr_timer = 12;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.grh.sgid_index = 1;
    attributes.ah_attr.grh.hop_limit = 4;
    ReadGid(&attributes.ah_attr.grh.dgid);
    Modify(attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 14;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = 7;
    attributes.max_rd_atomic = 1;
    Modify(attributes, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }

  static void ReadGid(ibv_gid* gid) {
    FILE* file = std::fopen("/sys/class/infiniband/roci0/ports/1/gids/1", "r");
    ASSERT_NE(file, nullptr);
    for (int i = 0; i < 16; i += 2) {
      unsigned word = 0;
      ASSERT_EQ(std::fscanf(file, i == 0 ? "%4x" : ":%4x", &word), 1);
      gid->raw[i] = static_cast<uint8_t>(word >> 8);
      gid->raw[i + 1] = static_cast<uint8_t>(word);
    }
    std::fclose(file);
  }

  // Where ibv_qp_to_qp_ex() of each release looks for VERBS_QP_EX.
  uint32_t QueuePairFlags() const {
    const size_t calls = g_release >= 45 ? 2 : g_release >= 44 ? 1 : 0;
    uint32_t flags = 0;
    std::memcpy(
        &flags,
        reinterpret_cast<char*>(qp_) + offsetof(ibv_qp_ex, wr_abort) + sizeof(void*) * (1 + calls),
        sizeof(flags));
    return flags;
  }

  void Poll() {
    ibv_wc completion = {};
    int count = 0;
    while (count == 0) count = Call<int>("poll_cq", cq_, 1, &completion);
    ASSERT_EQ(count, 1);
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  }

  static constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  std::array<char, 8192> memory_ = {};
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

TEST_F(Connected, WritesByPostSend) {
  std::strcpy(memory_.data(), "written");
  ibv_sge from = {reinterpret_cast<uint64_t>(memory_.data()), 8, mr_->lkey};
  ibv_send_wr request = {};
  request.sg_list = &from;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(memory_.data() + 4096);
  request.wr.rdma.rkey = mr_->rkey;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(Call<int>("post_send", qp_, &request, &bad), 0);
  Poll();
  EXPECT_STREQ(memory_.data() + 4096, "written");
}

TEST_F(Connected, WritesByTheExtendedCalls) {
  ASSERT_EQ(QueuePairFlags() & VERBS_QP_EX, VERBS_QP_EX);
  std::strcpy(memory_.data(), "extended");
  auto* extended = reinterpret_cast<ibv_qp_ex*>(qp_);
  ibv_wr_start(extended);
  extended->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(extended, mr_->rkey, reinterpret_cast<uint64_t>(memory_.data() + 4096));
  ibv_wr_set_sge(extended, mr_->lkey, reinterpret_cast<uint64_t>(memory_.data()), 9);
  ASSERT_EQ(ibv_wr_complete(extended), 0);
  Poll();
  EXPECT_STREQ(memory_.data() + 4096, "extended");
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 4) return 2;
  g_plugin = argv[1];
  g_library = argv[2];
  g_release = std::atoi(argv[3]);
  return RUN_ALL_TESTS();
}
