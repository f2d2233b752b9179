// Registration: refusals, changes, kinds of memory, and fork.
#include <pthread.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

TEST(VerbsMemory, RefusesWhatLinuxRefuses) {
  ibv_pd* pd = DeviceZero().pd;
  char data[64];
  const struct {
    const char* what;
    void* address;
    size_t length;
    int access;
    int error;
  } kCases[] = {
      {"remote write alone", data, 64, IBV_ACCESS_REMOTE_WRITE, EINVAL},
      {"remote atomic alone", data, 64, IBV_ACCESS_REMOTE_ATOMIC, EINVAL},
      {"unmapped", reinterpret_cast<void*>(4096), 4096, 0, EFAULT},
      {"wraps", data, ~size_t{0}, 0, EINVAL},
  };
  for (const auto& c : kCases) {
    errno = 0;
    EXPECT_EQ(ibv_reg_mr(pd, c.address, c.length, c.access), nullptr) << c.what;
    EXPECT_EQ(errno, c.error) << c.what;
  }
  void* page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd, page, 4096, IBV_ACCESS_LOCAL_WRITE), nullptr) << "not writable";
  EXPECT_EQ(errno, EFAULT);
  ibv_mr* mr = ibv_reg_mr(pd, page, 4096, IBV_ACCESS_REMOTE_READ);
  EXPECT_NE(mr, nullptr) << "read only memory may be read";
  if (mr != nullptr) {
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
  munmap(page, 4096);
}

// As with adapters: a key for messages without bytes. No memory needs to exist.
TEST(VerbsMemory, OfZeroLengthServesEmptyMessages) {
  Pair pair;
  char data[8] = {};
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  ibv_mr* near = ibv_reg_mr(pair.near_device.pd, data, 0, kAccess);
  ASSERT_NE(near, nullptr) << strerror(errno);
  ibv_mr* far = ibv_reg_mr(pair.far_device.pd, reinterpret_cast<void*>(4096), 0, kAccess);
  ASSERT_NE(far, nullptr) << strerror(errno);
  EXPECT_EQ(far->length, 0u);
  EXPECT_EQ(
      pair.near.PostSend(IBV_WR_RDMA_WRITE, {reinterpret_cast<uintptr_t>(data), 0, near->lkey},
                         IBV_SEND_SIGNALED, 4096, far->rkey),
      0);
  pair.near.ExpectSuccess();
  EXPECT_EQ(
      pair.near.PostSend(IBV_WR_RDMA_WRITE, {reinterpret_cast<uintptr_t>(data), 1, near->lkey},
                         IBV_SEND_SIGNALED, 4096, far->rkey),
      0);
  EXPECT_EQ(pair.near.Wait().status, IBV_WC_LOC_PROT_ERR) << "one byte is too many";
  EXPECT_EQ(ibv_dereg_mr(near), 0);
  EXPECT_EQ(ibv_dereg_mr(far), 0);
}

// Sends `length` bytes at `data` through one memory region to another on the far device and back.
void ExpectTransfers(void* data, size_t length) {
  Pair pair;
  Buffer there(pair.far_device, length, 2);
  auto* bytes = static_cast<uint8_t*>(data);
  for (size_t i = 0; i < length; ++i) bytes[i] = PatternByte(7, i);
  ibv_mr* mr = ibv_reg_mr(pair.near_device.pd, data, length, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  const ibv_sge sge = {reinterpret_cast<uintptr_t>(data), static_cast<uint32_t>(length), mr->lkey};
  EXPECT_EQ(
      pair.near.PostSend(IBV_WR_RDMA_WRITE, sge, IBV_SEND_SIGNALED, there.address(), there.rkey()),
      0);
  pair.near.ExpectSuccess();
  EXPECT_EQ(memcmp(data, there.data(), length), 0);
  there.Fill(8);
  EXPECT_EQ(
      pair.near.PostSend(IBV_WR_RDMA_READ, sge, IBV_SEND_SIGNALED, there.address(), there.rkey()),
      0);
  pair.near.ExpectSuccess();
  EXPECT_EQ(memcmp(data, there.data(), length), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(memcmp(data, there.data(), length), 0) << "kept after deregistration";
}

TEST(VerbsMemory, OfManyKindsWorks) {
  {
    SCOPED_TRACE("stack");
    uint8_t stack[3000];
    ExpectTransfers(stack, sizeof(stack));
  }
  {
    SCOPED_TRACE("heap");
    std::vector<uint8_t> heap(100001);
    ExpectTransfers(heap.data() + 1, 100000);
  }
  {
    SCOPED_TRACE("data segment");
    static uint8_t data_segment[5000] = {1};
    ExpectTransfers(data_segment, sizeof(data_segment));
  }
  {
    SCOPED_TRACE("shared anonymous");
    void* shared = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ExpectTransfers(shared, 65536);
    munmap(shared, 65536);
  }
  {
    SCOPED_TRACE("memfd");
    const int fd = memfd_create("test", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(fd, 65536), 0);
    void* file = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ExpectTransfers(file, 65536);
    munmap(file, 65536);
    close(fd);
  }
  {
    SCOPED_TRACE("two mappings side by side");
    void* both = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void* second = static_cast<uint8_t*>(both) + 32768;
    ASSERT_EQ(
        mmap(second, 32768, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        second);
    ExpectTransfers(both, 65536);
    munmap(both, 65536);
  }
}

TEST(VerbsMemory, OfTheProgramsOwnSegmentsWorks) {
  {
    SCOPED_TRACE("bss");
    static uint8_t bss[50000];
    ExpectTransfers(bss, sizeof(bss));
  }
  {
    SCOPED_TRACE("brk");
    void* grown = sbrk(1 << 20);
    ASSERT_NE(grown, reinterpret_cast<void*>(-1));
    ExpectTransfers(static_cast<uint8_t*>(grown) + 100, 1 << 19);
    // The break is not moved back, since the allocator may have extended it.
  }
  {
    SCOPED_TRACE("huge pages of the kernel's choice");
    constexpr size_t kBytes = 4 << 20;
    void* memory =
        mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, 2 * kBytes, MADV_HUGEPAGE);
    ExpectTransfers(memory, kBytes);
    munmap(memory, 2 * kBytes);
  }
  {
    SCOPED_TRACE("locked");
    void* memory = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mlock(memory, 65536);  // as far as the limit allows
    ExpectTransfers(memory, 65536);
    munmap(memory, 65536);
  }
}

TEST(VerbsMemory, OfFilesWorks) {
  const struct {
    const char* what;
    const char* folder;
    int sharing;
  } kCases[] = {
      {"private file", "/tmp", MAP_PRIVATE},
      {"shared file", "/tmp", MAP_SHARED},
      {"POSIX shared memory", "/dev/shm", MAP_SHARED},
      {"private mapping of shared memory", "/dev/shm", MAP_PRIVATE},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    std::string name = std::string(c.folder) + "/roci-test-XXXXXX";
    const int fd = mkstemp(name.data());
    ASSERT_GE(fd, 0);
    unlink(name.c_str());
    ASSERT_EQ(ftruncate(fd, 65536), 0);
    void* file = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, c.sharing, fd, 0);
    ExpectTransfers(file, 65536);
    munmap(file, 65536);
    close(fd);
  }
}

TEST(VerbsMemory, OfSystemVSharedMemoryWorks) {
  const int id = shmget(IPC_PRIVATE, 65536, IPC_CREAT | 0600);
  if (id < 0) GTEST_SKIP() << "System V shared memory is not available: " << strerror(errno);
  void* shared = shmat(id, nullptr, 0);
  shmctl(id, IPC_RMID, nullptr);
  ASSERT_NE(shared, reinterpret_cast<void*>(-1));
  ExpectTransfers(shared, 65536);
  shmdt(shared);
}

TEST(VerbsMemory, OfHugePagesWorks) {
  constexpr size_t kBytes = 2 << 20;
  for (const int sharing : {MAP_PRIVATE, MAP_SHARED}) {
    void* huge =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (huge == MAP_FAILED) GTEST_SKIP() << "no free huge pages (/proc/sys/vm/nr_hugepages)";
    ExpectTransfers(huge, kBytes);
    munmap(huge, kBytes);
  }
}

TEST(VerbsMemory, AtAnotherAddress) {
  Pair pair;
  Buffer here(pair.near_device, 8192, 1);
  std::vector<uint8_t> memory(8192);
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  for (const bool zero_based : {true, false}) {
    ibv_mr* mr =
        zero_based ? ibv_reg_mr(pair.far_device.pd, memory.data(), memory.size(),
                                access | IBV_ACCESS_ZERO_BASED)
                   : ibv_reg_mr_iova(pair.far_device.pd, memory.data(), memory.size(),
                                     0x10000 + (reinterpret_cast<uintptr_t>(memory.data()) & 4095),
                                     access);
    ASSERT_NE(mr, nullptr);
    const uint64_t base =
        zero_based ? 0 : 0x10000 + (reinterpret_cast<uintptr_t>(memory.data()) & 4095);
    EXPECT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 5000), IBV_SEND_SIGNALED,
                                 base + 100, mr->rkey),
              0);
    pair.near.ExpectSuccess();
    EXPECT_EQ(memcmp(memory.data() + 100, here.data(), 5000), 0);
    memset(memory.data(), 0, memory.size());
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
}

// Pages are translated as a whole; Linux refuses this for every device.
TEST(VerbsMemory, NotAtAnotherOffsetInThePage) {
  OpenDevice device("roci0");
  std::vector<uint8_t> memory(8192);
  const auto start = reinterpret_cast<uintptr_t>(memory.data());
  for (const int access : {0, int{IBV_ACCESS_ZERO_BASED}}) {
    errno = 0;
    EXPECT_EQ(ibv_reg_mr_iova(device.pd, memory.data(), 4096, start + 1, access), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
}

// A thread that is cancelled while it registers memory leaves no lock behind. Memory of a file is
// described by calls at which it could be cancelled.
TEST(VerbsMemory, RegistersOnAfterACancelledThread) {
  OpenDevice device("roci0");
  const int fd = memfd_create("shared", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, 4096), 0);
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(shared, MAP_FAILED);
  struct Work {
    ibv_pd* pd;
    void* memory;
    ibv_mr* region = nullptr;
  } work{device.pd, shared};
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    auto* mine = static_cast<Work*>(argument);
    pthread_cancel(pthread_self());
    mine->region = ibv_reg_mr(mine->pd, mine->memory, 4096, IBV_ACCESS_LOCAL_WRITE);
    pthread_testcancel();
    return mine;
  };
  ASSERT_EQ(pthread_create(&thread, nullptr, run, &work), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  alarm(20);
  {
    Buffer buffer(device, 4096, 1);
    EXPECT_NE(buffer.mr, nullptr);
    const pid_t child = fork();
    if (child == 0) _exit(0);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
  }
  alarm(0);
  ASSERT_NE(work.region, nullptr) << "cancelled in ibv_reg_mr";
  EXPECT_EQ(ibv_dereg_mr(work.region), 0);
  munmap(shared, 4096);
  close(fd);
}

TEST(VerbsMemory, RegionOfLengthZeroGetsWriteAccess) {
  OpenDevice device("roci0");
  uint8_t byte = 0;
  ibv_mr* region = ibv_reg_mr(device.pd, &byte, 0, 0);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(
      ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
      0);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
}

TEST(VerbsMemory, SmallSendsFromAnIova) {
  // The plugin copies small payloads and must translate addresses as the daemon does.
  Pair pair;
  Buffer there(pair.far_device, 4096, 2);
  std::vector<uint8_t> memory(4096);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = PatternByte(3, i);
  ibv_mr* mr = ibv_reg_mr(pair.near_device.pd, memory.data(), memory.size(), IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(mr, nullptr);
  const ibv_sge sge = {1000, 16, mr->lkey};
  ASSERT_EQ(
      pair.near.PostSend(IBV_WR_RDMA_WRITE, sge, IBV_SEND_SIGNALED, there.address(), there.rkey()),
      0);
  pair.near.ExpectSuccess();
  EXPECT_EQ(memcmp(there.data(), memory.data() + 1000, 16), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST(VerbsMemory, CanBeRegisteredAgain) {
  Pair pair;
  Buffer here(pair.near_device, 65536, 1);
  std::vector<uint8_t> first(65536);
  std::vector<uint8_t> second(100000);
  ibv_mr* mr = ibv_reg_mr(pair.far_device.pd, first.data(), first.size(), IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
            0);
  ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 65536), IBV_SEND_SIGNALED,
                               reinterpret_cast<uintptr_t>(first.data()), mr->rkey),
            0);
  pair.near.ExpectSuccess();
  EXPECT_EQ(memcmp(first.data(), here.data(), 65536), 0);
  ASSERT_EQ(
      ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, second.data(), second.size(), 0),
      0);
  EXPECT_EQ(mr->addr, second.data());
  ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 65536), IBV_SEND_SIGNALED,
                               reinterpret_cast<uintptr_t>(second.data()) + 30000, mr->rkey),
            0);
  pair.near.ExpectSuccess();
  EXPECT_EQ(memcmp(second.data() + 30000, here.data(), 65536), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST(VerbsMemory, IsRegisteredAndDeregisteredManyTimes) {
  std::vector<uint8_t> memory(1 << 20);
  uint32_t last_key = 0;
  for (int i = 0; i < 200; ++i) {
    ibv_mr* mr =
        ibv_reg_mr(DeviceZero().pd, memory.data() + i * 100, 50000, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    EXPECT_NE(mr->lkey, last_key);
    last_key = mr->lkey;
    ASSERT_EQ(ibv_dereg_mr(mr), 0);
  }
}

// A child inherits objects that it cannot use; the parent must not be affected.
TEST(VerbsFork, DoesNotAffectTheParent) {
  EndpointOptions options;
  options.with_channel = true;
  Pair pair(options);
  Buffer here(pair.near_device, 1 << 20, 1);
  Buffer there(pair.far_device, 1 << 20, 2);
  const pid_t child = fork();
  if (child == 0) {
    ibv_wc wc;
    int failed = 0;
    failed |= pair.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 8), IBV_SEND_SIGNALED,
                                 there.address(), there.rkey()) != EIO;
    failed |= (pair.near.PostRecv(here.Sge(0, 8)) != EIO) << 1;
    failed |= (ibv_poll_cq(pair.near.cq, 1, &wc) >= 0) << 2;
    failed |= (ibv_req_notify_cq(pair.near.cq, 0) != EIO) << 3;
    failed |= (ibv_alloc_pd(pair.near_device.context) == nullptr) << 4;
    here.data()[0] ^= 0xFF;
    failed |= (ibv_destroy_qp(pair.near.qp) != 0) << 5;
    failed |= (ibv_destroy_cq(pair.near.cq) != 0) << 6;
    failed |= (ibv_close_device(pair.near_device.context) != 0) << 7;
    _exit(failed);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 1 << 20), IBV_SEND_SIGNALED,
                               there.address(), there.rkey()),
            0);
  pair.near.ExpectSuccess();
  EXPECT_EQ(there.data()[0], PatternByte(1, 0)) << "the child's write is its own";
  EXPECT_EQ(memcmp(here.data(), there.data(), 1 << 20), 0);
}

TEST(VerbsFork, LetsTheChildOpenTheDeviceItself) {
  DeviceZero();
  const pid_t child = fork();
  if (child == 0) {
    OpenDevice own("roci0");
    Buffer buffer(own, 4096, 1);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Four threads post and poll on one pair of queues.
TEST(VerbsThreads, ShareQueuesSafely) {
  constexpr int kThreads = 4;
  constexpr uint64_t kPerThread = 2000;
  Pair pair;
  Buffer here(pair.near_device, 65536, 1);
  Buffer there(pair.far_device, 65536, 2);
  std::atomic<uint64_t> completed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      uint64_t posted = 0;
      while (posted < kPerThread || completed < kThreads * kPerThread) {
        if (posted < kPerThread) {
          const int error = pair.near.PostSend(
              IBV_WR_RDMA_WRITE, here.Sge(static_cast<size_t>(t) * 4096, 1500), IBV_SEND_SIGNALED,
              there.address() + static_cast<uint64_t>(t) * 4096, there.rkey(), posted);
          ASSERT_TRUE(error == 0 || error == ENOMEM) << error;
          posted += error == 0;
        }
        ibv_wc wc[8];
        const int n = ibv_poll_cq(pair.near.cq, 8, wc);
        ASSERT_GE(n, 0);
        for (int i = 0; i < n; ++i) ASSERT_EQ(wc[i].status, IBV_WC_SUCCESS);
        completed += static_cast<uint64_t>(n);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(completed, kThreads * kPerThread);
  for (size_t t = 0; t < kThreads; ++t) {
    EXPECT_EQ(memcmp(here.data() + t * 4096, there.data() + t * 4096, 1500), 0);
  }
}

}  // namespace
}  // namespace roci::testing
