// FLUSH through rocidv.h: between two devices and from a device to itself, for memory that can be
// made durable and memory that cannot.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/verbs_endpoint.h"
#include "tools/show/manage_client.h"
#include "verbs_provider/include/infiniband/rocidv.h"

namespace roci::testing {
namespace {

// From newer headers.
constexpr int kAccessFlushGlobal = 1 << 8;
constexpr int kAccessFlushPersistent = 1 << 9;
constexpr int kWcFlush = 8;
constexpr int kDurable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                         kAccessFlushGlobal | kAccessFlushPersistent;
constexpr size_t kPage = 4096;

// A new file without a name on a disk: in the working folder or /var/tmp. -1: neither is on one.
int DiskFile(size_t bytes) {
  constexpr uint64_t kMemoryOnly[] = {0x01021994 /* tmpfs */, 0x858458f6 /* ramfs */,
                                      0x794c7630 /* overlayfs: never mapped */};
  for (const char* folder : {".", "/var/tmp"}) {
    std::string name = std::string(folder) + "/roci-flush-XXXXXX";
    const int fd = mkostemp(name.data(), O_CLOEXEC);
    if (fd < 0) continue;
    unlink(name.c_str());
    struct statfs fs;
    const bool fits = fstatfs(fd, &fs) == 0 &&
                      std::none_of(std::begin(kMemoryOnly), std::end(kMemoryOnly), [&](uint64_t m) {
                        return m == static_cast<uint64_t>(fs.f_type);
                      });
    if (fits && ftruncate(fd, static_cast<off_t>(bytes)) == 0) return fd;
    close(fd);
  }
  return -1;
}

// A mapped file and a region over it. `mr` is null if registration failed (errno).
struct FileRegion {
  FileRegion(OpenDevice& device, int file, size_t size, int access, int flags = MAP_SHARED,
             int protection = PROT_READ | PROT_WRITE)
      : fd(file), bytes(size) {
    void* at = mmap(nullptr, bytes, protection, flags, fd, 0);
    EXPECT_NE(at, MAP_FAILED) << strerror(errno);
    data = static_cast<uint8_t*>(at);
    errno = 0;
    mr = ibv_reg_mr(device.pd, data, bytes, access);
    error = errno;
  }
  ~FileRegion() {
    if (mr != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(mr), 0);
    }
    munmap(data, bytes);
    if (fd >= 0) close(fd);
  }
  uint64_t address() const { return reinterpret_cast<uintptr_t>(data); }

  int fd;
  size_t bytes;
  uint8_t* data;
  ibv_mr* mr;
  int error;
};

// Number of syncs since the daemon started.
uint64_t Syncs() {
  const auto lcores = tools::AskDaemon("", {{"command", "show"}, {"what", "lcores"}});
  EXPECT_TRUE(lcores.ok()) << lcores.status();
  uint64_t syncs = 0;
  for (const nlohmann::json& lcore : *lcores) {
    syncs += lcore.value("durable_syncs", uint64_t{0});
    EXPECT_EQ(lcore.value("durable_failures", uint64_t{1}), 0U);
  }
  return syncs;
}

EndpointOptions Patient() {
  EndpointOptions options;
  options.timeout = 20;  // 4.3 s: for a shared disk
  options.retry_count = 7;
  return options;
}

void AllowFlush(Endpoint& endpoint) {
  ibv_qp_attr attr = {};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                         IBV_ACCESS_REMOTE_ATOMIC | kAccessFlushGlobal | kAccessFlushPersistent;
  EXPECT_EQ(ibv_modify_qp(endpoint.qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
}

struct Ends {
  Ends(OpenDevice& here, OpenDevice& there) : near(here, Patient()), far(there, Patient()) {
    EXPECT_EQ(near.Connect(far), 0);
    EXPECT_EQ(far.Connect(near), 0);
    AllowFlush(near);
    AllowFlush(far);
  }
  Endpoint near, far;
};

int Flush(Endpoint& endpoint, uint32_t rkey, uint64_t address, size_t length,
          uint32_t type = ROCIDV_FLUSH_PERSISTENT, uint32_t level = ROCIDV_FLUSH_RANGE,
          uint64_t wr_id = 5) {
  return rocidv_post_flush(endpoint.qp, rkey, address, length, type, level, wr_id,
                           IBV_SEND_SIGNALED);
}

void ExpectFlushed(Endpoint& endpoint, uint64_t wr_id = 5) {
  const ibv_wc wc = endpoint.Wait();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
  EXPECT_EQ(static_cast<int>(wc.opcode), kWcFlush);
  EXPECT_EQ(wc.wr_id, wr_id);
}

class VerbsFlush : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const int fd = DiskFile(64 * kPage);
    if (fd < 0) GTEST_SKIP() << "neither the working folder nor /var/tmp is on a disk";
    file_ = std::make_unique<FileRegion>(there(), fd, 64 * kPage, kDurable);
    ASSERT_NE(file_->mr, nullptr) << strerror(file_->error);
  }
  OpenDevice& there() { return GetParam() ? DeviceZero() : DeviceOne(); }

  Buffer here_{DeviceZero(), 64 * kPage, 3};
  Ends ends_{DeviceZero(), there()};
  std::unique_ptr<FileRegion> file_;
};

INSTANTIATE_TEST_SUITE_P(To, VerbsFlush, ::testing::Bool(),
                         [](const auto& to) { return to.param ? "Itself" : "AnotherDevice"; });

TEST_P(VerbsFlush, WritesAreInTheFile) {
  rocidv_device_attr attr = {};
  ASSERT_EQ(rocidv_query_device(DeviceZero().context, &attr, sizeof(attr)), 0);
  EXPECT_EQ(attr.flush_types, unsigned{ROCIDV_FLUSH_GLOBAL | ROCIDV_FLUSH_PERSISTENT});
  const uint64_t before = Syncs();
  for (uint32_t round = 0; round < 8; ++round) {
    const size_t offset = round * 5000 + 1;
    ASSERT_EQ(ends_.near.PostSend(IBV_WR_RDMA_WRITE, here_.Sge(offset, 4000), 0,
                                  file_->address() + offset, file_->mr->rkey),
              0);
    ASSERT_EQ(Flush(ends_.near, file_->mr->rkey, file_->address() + offset, 4000), 0);
    ExpectFlushed(ends_.near);
    std::vector<uint8_t> read(4000);
    ASSERT_EQ(pread(file_->fd, read.data(), read.size(), static_cast<off_t>(offset)), 4000);
    EXPECT_EQ(memcmp(read.data(), here_.data() + offset, read.size()), 0);
  }
  EXPECT_EQ(Syncs() - before, 8U) << "one for each";
}

TEST_P(VerbsFlush, TypesAndLevels) {
  const uint64_t before = Syncs();
  const uint32_t rkey = file_->mr->rkey;
  ASSERT_EQ(Flush(ends_.near, rkey, file_->address(), 100, ROCIDV_FLUSH_GLOBAL), 0);
  ExpectFlushed(ends_.near);
  EXPECT_EQ(Syncs(), before) << "visibility needs no sync";
  ASSERT_EQ(Flush(ends_.near, rkey, 0, 0, ROCIDV_FLUSH_PERSISTENT, ROCIDV_FLUSH_WHOLE_REGION), 0);
  ExpectFlushed(ends_.near);
  ASSERT_EQ(Flush(ends_.near, rkey, file_->address() + 63 * kPage, kPage,
                  ROCIDV_FLUSH_PERSISTENT | ROCIDV_FLUSH_GLOBAL),
            0);
  ExpectFlushed(ends_.near);
  EXPECT_EQ(Syncs() - before, 2U);
  ASSERT_EQ(Flush(ends_.near, rkey, file_->address(), 0), 0);
  ExpectFlushed(ends_.near);
  EXPECT_EQ(Syncs() - before, 2U) << "no bytes";
}

// Requests may be outstanding together, and complete in order.
TEST_P(VerbsFlush, CompletesInOrderWithOtherRequests) {
  constexpr uint32_t kRounds = 8;
  for (uint32_t i = 0; i < kRounds; ++i) {
    const size_t offset = i * 2 * kPage;
    ASSERT_EQ(
        ends_.near.PostSend(IBV_WR_RDMA_WRITE, here_.Sge(offset, 2 * kPage), IBV_SEND_SIGNALED,
                            file_->address() + offset, file_->mr->rkey, 3 * i),
        0);
    ASSERT_EQ(Flush(ends_.near, file_->mr->rkey, file_->address() + offset, 2 * kPage,
                    ROCIDV_FLUSH_PERSISTENT, ROCIDV_FLUSH_RANGE, 3 * i + 1),
              0);
    ASSERT_EQ(
        ends_.near.PostSend(IBV_WR_RDMA_READ, here_.Sge(60 * kPage, 2 * kPage), IBV_SEND_SIGNALED,
                            file_->address() + offset, file_->mr->rkey, 3 * i + 2),
        0);
  }
  for (uint64_t i = 0; i < uint64_t{3} * kRounds; ++i) {
    const ibv_wc wc = ends_.near.Wait();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    EXPECT_EQ(wc.wr_id, i);
  }
  EXPECT_EQ(memcmp(file_->data, here_.data(), kRounds * 2 * kPage), 0);
}

// More syncs than the daemon runs for one program at a time.
TEST_P(VerbsFlush, ManyQueuePairsTakeTurns) {
  std::vector<std::unique_ptr<Ends>> all;
  for (int i = 0; i < 12; ++i) all.push_back(std::make_unique<Ends>(DeviceZero(), there()));
  const uint64_t before = Syncs();
  for (int round = 0; round < 4; ++round) {
    for (auto& ends : all) {
      ASSERT_EQ(Flush(ends->near, file_->mr->rkey, file_->address(), 64 * kPage), 0);
    }
    for (auto& ends : all) ExpectFlushed(ends->near);
  }
  EXPECT_EQ(Syncs() - before, 48U);
}

// Queue pairs and regions may be destroyed while their syncs run.
TEST_P(VerbsFlush, ObjectsMayBeDestroyedDuringSyncs) {
  for (int round = 0; round < 20; ++round) {
    Ends ends(DeviceZero(), there());
    ibv_mr* mr = ibv_reg_mr(there().pd, file_->data, file_->bytes, kDurable);
    ASSERT_NE(mr, nullptr);
    ASSERT_EQ(ends.near.PostSend(IBV_WR_RDMA_WRITE, here_.Sge(0, 16 * kPage), 0, file_->address(),
                                 mr->rkey),
              0);
    ASSERT_EQ(Flush(ends.near, mr->rkey, file_->address(), 16 * kPage), 0);
    if (round % 4 == 1) usleep(300);
    if (round % 4 == 2) {
      // Prevents a retransmission from reaching the far queue pair between two of its new states.
      EXPECT_EQ(ends.near.ToState(IBV_QPS_ERR), 0);
      EXPECT_EQ(ends.far.ToState(IBV_QPS_RESET), 0);
      EXPECT_EQ(ends.far.Connect(ends.near), 0);
    }
    if (round % 4 == 3) {
      EXPECT_EQ(ends.far.ToState(IBV_QPS_ERR), 0);
    }
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
  ASSERT_EQ(Flush(ends_.near, file_->mr->rkey, file_->address(), 16 * kPage), 0);
  ExpectFlushed(ends_.near);
}

TEST_P(VerbsFlush, ExtendedQueuePairsSupportIt) {
  Endpoint near(DeviceZero(), Patient());
  Endpoint far(there(), Patient());
  ASSERT_EQ(ibv_destroy_qp(near.qp), 0);
  ibv_qp_init_attr_ex init = {};
  init.send_cq = init.recv_cq = near.cq;
  init.cap = near.cap;
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = DeviceZero().pd;
  init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  near.qp = ibv_create_qp_ex(DeviceZero().context, &init);
  ASSERT_NE(near.qp, nullptr);
  ASSERT_EQ(near.Connect(far), 0);
  ASSERT_EQ(far.Connect(near), 0);
  AllowFlush(far);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(near.qp);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = 0;
  ibv_wr_rdma_write(qp, file_->mr->rkey, file_->address());
  ibv_wr_set_sge(qp, here_.lkey(), here_.address(), 3 * kPage);
  qp->wr_id = 5;
  qp->wr_flags = IBV_SEND_SIGNALED;
  rocidv_wr_flush(qp, file_->mr->rkey, file_->address(), 3 * kPage, ROCIDV_FLUSH_PERSISTENT,
                  ROCIDV_FLUSH_RANGE);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  ExpectFlushed(near);
  EXPECT_EQ(memcmp(file_->data, here_.data(), 3 * kPage), 0);
  ibv_wr_start(qp);
  rocidv_wr_flush(qp, file_->mr->rkey, file_->address(), 1, 0, ROCIDV_FLUSH_RANGE);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
}

TEST_P(VerbsFlush, BadRequestsAreNotPosted) {
  const uint32_t rkey = file_->mr->rkey;
  EXPECT_EQ(Flush(ends_.near, rkey, file_->address(), 1, 0), EINVAL);
  EXPECT_EQ(Flush(ends_.near, rkey, file_->address(), 1, 4), EINVAL);
  EXPECT_EQ(Flush(ends_.near, rkey, file_->address(), 1, 1, 2), EINVAL);
  EXPECT_EQ(Flush(ends_.near, rkey, file_->address(), (size_t{1} << 31) + 1), EINVAL);
  EndpointOptions unreliable;
  unreliable.type = IBV_QPT_UC;
  Endpoint uc(DeviceZero(), unreliable);
  EXPECT_EQ(Flush(uc, rkey, file_->address(), 1), EINVAL);
  EXPECT_TRUE(ends_.near.IsQuiet(20));
}

TEST_P(VerbsFlush, NeedsThePeersPermission) {
  {
    Ends ends(DeviceZero(), there());
    ASSERT_EQ(Flush(ends.near, file_->mr->rkey, file_->address() + 64 * kPage, 1), 0);
    EXPECT_EQ(ends.near.Wait().status, IBV_WC_REM_ACCESS_ERR);
  }
  {
    Ends ends(DeviceZero(), there());
    Buffer buffer(there(), kPage, 1);
    ASSERT_EQ(Flush(ends.near, buffer.rkey(), buffer.address(), 1), 0);
    EXPECT_EQ(ends.near.Wait().status, IBV_WC_REM_ACCESS_ERR);
  }
  Endpoint near(DeviceZero(), Patient());
  Endpoint far(there(), Patient());
  ASSERT_EQ(near.Connect(far), 0);
  ASSERT_EQ(far.Connect(near), 0);
  ASSERT_EQ(Flush(near, file_->mr->rkey, file_->address(), 1), 0);
  EXPECT_EQ(near.Wait().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST(VerbsFlushMemory, OnlyMappedFilesOfDisksAreDurable) {
  OpenDevice& device = DeviceZero();
  const int memory = memfd_create("flush", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(memory, kPage), 0);
  EXPECT_EQ(FileRegion(device, memory, kPage, kDurable).error, EINVAL) << "memfd";
  EXPECT_EQ(FileRegion(device, -1, kPage, kDurable, MAP_PRIVATE | MAP_ANONYMOUS).error, EINVAL);
  EXPECT_EQ(FileRegion(device, -1, kPage, kDurable, MAP_SHARED | MAP_ANONYMOUS).error, EINVAL);
  const int fd = DiskFile(4 * kPage);
  if (fd < 0) GTEST_SKIP() << "neither the working folder nor /var/tmp is on a disk";
  EXPECT_EQ(FileRegion(device, dup(fd), kPage, kDurable, MAP_PRIVATE).error, EINVAL) << "private";
  EXPECT_EQ(FileRegion(device, dup(fd), kPage, kAccessFlushPersistent, MAP_SHARED, PROT_READ).error,
            EFAULT)
      << "not writable";
  EXPECT_EQ(FileRegion(device, dup(fd), kPage, kDurable | IBV_ACCESS_ON_DEMAND).error, EINVAL);
  // Partly.
  const int other = memfd_create("flush", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(other, kPage), 0);
  FileRegion region(device, fd, 4 * kPage, kDurable);
  ASSERT_NE(region.mr, nullptr) << strerror(region.error);
  ASSERT_NE(
      mmap(region.data + kPage, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, other, 0),
      MAP_FAILED);
  close(other);
  EXPECT_EQ(ibv_reg_mr(device.pd, region.data, 4 * kPage, kDurable), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(VerbsFlushMemory, RightMayBeReregistered) {
  OpenDevice& device = DeviceZero();
  const int fd = DiskFile(kPage);
  if (fd < 0) GTEST_SKIP() << "neither the working folder nor /var/tmp is on a disk";
  FileRegion region(device, fd, kPage, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(region.mr, nullptr);
  const auto change = [&](ibv_mr* mr, int access) {
    errno = 0;
    const int failed = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, access);
    return failed == 0 ? 0 : errno;
  };
  EXPECT_EQ(change(region.mr, kDurable), 0);
  Ends ends(device, device);
  ASSERT_EQ(Flush(ends.near, region.mr->rkey, region.address(), kPage), 0);
  ExpectFlushed(ends.near);
  EXPECT_EQ(change(region.mr, IBV_ACCESS_LOCAL_WRITE), 0);
  ASSERT_EQ(Flush(ends.near, region.mr->rkey, region.address(), kPage), 0);
  EXPECT_EQ(ends.near.Wait().status, IBV_WC_REM_ACCESS_ERR);
  Buffer ordinary(device, kPage, 1);
  EXPECT_EQ(change(ordinary.mr, kDurable), EINVAL);
}

}  // namespace
}  // namespace roci::testing
