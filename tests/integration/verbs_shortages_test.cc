// Programs that lack descriptors or address space: a call fails with the reason, and the context
// stays as it was. Programs that close the plugin's descriptors: files that get their numbers stay
// untouched. Each test is a child with devices of its own.
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <vector>

#include "tests/integration/in_child.h"
#include "tests/integration/verbs_endpoint.h"
#include "tests/send_fds.h"

namespace roci::testing {
namespace {

// Sets the soft limit of a resource for its lifetime.
class Limit {
 public:
  Limit(__rlimit_resource resource, rlim_t value) : resource_(resource) {
    EXPECT_EQ(getrlimit(resource_, &before_), 0);
    const rlimit limit = {value, before_.rlim_max};
    EXPECT_EQ(setrlimit(resource_, &limit), 0) << strerror(errno);
  }
  ~Limit() { setrlimit(resource_, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  __rlimit_resource resource_;
  rlimit before_ = {};
};

// While it exists, this process gets no new descriptor.
class NoDescriptors {
 public:
  NoDescriptors() : limit_(RLIMIT_NOFILE, 256) {
    int fd;
    while ((fd = dup(STDERR_FILENO)) >= 0) fds_.push_back(fd);
    EXPECT_EQ(errno, EMFILE);
  }
  ~NoDescriptors() {
    for (const int fd : fds_) close(fd);
  }

 private:
  Limit limit_;
  std::vector<int> fds_;
};

constexpr size_t kSpareBytes = 1 << 20;

// While it exists, this process gets at most kSpareBytes of address space.
class NoAddressSpace {
 public:
  NoAddressSpace() : limit_(RLIMIT_AS, Used() + kSpareBytes) {}

 private:
  static rlim_t Used() {
    std::ifstream statm("/proc/self/statm");
    rlim_t pages = 0;
    statm >> pages;
    EXPECT_NE(pages, 0u);
    return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  }
  Limit limit_;
};

void ExpectWrite(Pair& pair, uint32_t seed) {
  Buffer from(pair.near_device, 4096, seed);
  Buffer to(pair.far_device, 4096, seed + 1);
  ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, from.Sge(0, from.size()), IBV_SEND_SIGNALED,
                               to.address(), to.rkey()),
            0);
  pair.near.ExpectSuccess();
  EXPECT_EQ(memcmp(from.data(), to.data(), from.size()), 0);
}

TEST(VerbsShortages, CompletionQueueKeepsItsSizeAndItsEntries) {
  InChild([] {
    constexpr int kLarge = 1 << 16;
    Pair pair;
    Buffer from(pair.near_device, 64, 1);
    Buffer to(pair.far_device, 64, 2);
    const int before = pair.near.cq->cqe;
    ASSERT_LT(before, kLarge);
    ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, from.Sge(0, 64), IBV_SEND_SIGNALED,
                                 to.address(), to.rkey(), 7),
              0);
    {
      const NoDescriptors none;
      EXPECT_EQ(ibv_resize_cq(pair.near.cq, kLarge), EMFILE);
    }
    {
      const NoAddressSpace none;
      EXPECT_EQ(ibv_resize_cq(pair.near.cq, kLarge), ENOMEM);
    }
    EXPECT_EQ(pair.near.cq->cqe, before);
    pair.near.ExpectSuccess(7);
    ExpectWrite(pair, 3);
    EXPECT_EQ(ibv_resize_cq(pair.near.cq, kLarge), 0);
    EXPECT_GE(pair.near.cq->cqe, kLarge);
    ExpectWrite(pair, 5);
  });
}

TEST(VerbsShortages, SharedReceiveQueueKeepsItsSizeAndItsEntries) {
  InChild([] {
    constexpr uint32_t kLarge = 16384;
    ibv_srq_init_attr init = {};
    init.attr.max_wr = 4;
    init.attr.max_sge = 16;
    ibv_srq* srq = ibv_create_srq(DeviceZero().pd, &init);
    ASSERT_NE(srq, nullptr) << strerror(errno);
    Buffer target(DeviceZero(), 4096, 1);
    ibv_sge sge = target.Sge(0, 64);
    ibv_recv_wr wr = {};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    ibv_srq_attr attr = {};
    attr.max_wr = kLarge;
    {
      const NoDescriptors none;
      EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EMFILE);
    }
    {
      const NoAddressSpace none;
      EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), ENOMEM);
    }
    ibv_srq_attr now = {};
    EXPECT_EQ(ibv_query_srq(srq, &now), 0);
    EXPECT_EQ(now.max_wr, init.attr.max_wr);
    for (uint32_t i = 1; i < init.attr.max_wr; ++i) {
      EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0) << i;
    }
    EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
    EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
    EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    Pair pair;
    ExpectWrite(pair, 3);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
  });
}

// Descriptors of this user in flight, more than a process with a limit of kDescriptors may pass.
class DescriptorsInFlight {
 public:
  static constexpr rlim_t kDescriptors = 64;

  DescriptorsInFlight() {
    constexpr size_t kCount = 2 * kDescriptors;
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends_), 0);
    const std::array<int, kCount> fds = {};  // all descriptor 0
    EXPECT_EQ(SendFdsWith(ends_[0], char{0}, fds), 1) << strerror(errno);
  }
  ~DescriptorsInFlight() {
    for (const int fd : ends_) close(fd);
  }
  DescriptorsInFlight(const DescriptorsInFlight&) = delete;
  DescriptorsInFlight& operator=(const DescriptorsInFlight&) = delete;

 private:
  int ends_[2];
};

// With its capabilities root may pass any number of descriptors.
void DropCapabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  ASSERT_EQ(syscall(SYS_capset, &header, none), 0) << strerror(errno);
}

TEST(VerbsShortages, RequestThatCannotBeSentFailsAlone) {
  InChild([] {
    constexpr size_t kBytes = 1 << 16;
    Pair pair;
    const int file = memfd_create("shared", MFD_CLOEXEC);  // its registration passes a descriptor
    ASSERT_EQ(ftruncate(file, kBytes), 0);
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ASSERT_NE(memory, MAP_FAILED);
    DropCapabilities();
    {
      const Limit limit(RLIMIT_NOFILE, DescriptorsInFlight::kDescriptors);
      const DescriptorsInFlight many;
      errno = 0;
      EXPECT_EQ(ibv_reg_mr(pair.near_device.pd, memory, kBytes, IBV_ACCESS_LOCAL_WRITE), nullptr);
      EXPECT_EQ(errno, ETOOMANYREFS);
    }
    ExpectWrite(pair, 1);
    ibv_mr* mr = ibv_reg_mr(pair.near_device.pd, memory, kBytes, IBV_ACCESS_LOCAL_WRITE);
    EXPECT_NE(mr, nullptr) << strerror(errno);
    EXPECT_TRUE(mr == nullptr || ibv_dereg_mr(mr) == 0);
  });
}

// Makes ioctl(2) of /proc files answer ENOTTY, as Linux before 6.11 does for PROCMAP_QUERY.
void RefuseMapsQueries() {
  constexpr uint32_t kProcIoctlType = 'f';
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),  // its lower half
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xFF00),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kProcIoctlType << 8, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), filter};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0) << strerror(errno);
}

void ExpectRegistrationWithoutDescriptors() {
  Pair pair;
  ibv_mr* mr = nullptr;
  std::vector<uint8_t> memory(1 << 20);
  {
    const NoDescriptors none;
    mr = ibv_reg_mr(pair.near_device.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    EXPECT_NE(mr, nullptr) << strerror(errno);
  }
  EXPECT_TRUE(mr == nullptr || ibv_dereg_mr(mr) == 0);
  ExpectWrite(pair, 1);
}

TEST(VerbsShortages, MemoryIsRegisteredWithoutAnotherDescriptor) {
  InChild(ExpectRegistrationWithoutDescriptors);
}

TEST(VerbsShortages, MemoryIsRegisteredWithoutAnotherDescriptorOnAnOlderKernel) {
  InChild([] {
    RefuseMapsQueries();
    ExpectRegistrationWithoutDescriptors();
  });
}

// Closes all descriptors from 3 on, as a program that becomes a server does, and opens sockets
// under their numbers. Each socket has one unread message.
class Strangers {
 public:
  Strangers() {
    const int free_number = dup(STDERR_FILENO);
    closefrom(3);
    int ends[2] = {-1, -1};
    while (ends[1] <= free_number + 16) {
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
      for (const int fd : ends) {
        EXPECT_EQ(send(fd, &kMessage, sizeof(kMessage), 0), ssize_t{sizeof(kMessage)});
        fds_.push_back(fd);
      }
    }
  }
  // Each socket still has its message, and no other.
  void ExpectUntouched() const {
    for (const int fd : fds_) {
      char bytes[4096];
      EXPECT_EQ(recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT), ssize_t{sizeof(kMessage)}) << fd;
      EXPECT_EQ(bytes[0], kMessage) << fd;
      EXPECT_EQ(recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT), -1) << fd;
      EXPECT_EQ(errno, EAGAIN) << fd;
    }
  }
  void ExpectOpen(const std::vector<int>& except) const {
    for (const int fd : fds_) {
      const bool excepted = std::find(except.begin(), except.end(), fd) != except.end();
      EXPECT_TRUE(excepted || fcntl(fd, F_GETFD) >= 0) << fd;
    }
  }

 private:
  static constexpr char kMessage = 'm';
  std::vector<int> fds_;
};

// (Objects stay: the child ends without destructors.)
TEST(VerbsClosedDescriptors, CallsTouchNoFileThatHasTheirNumbers) {
  InChild([] {
    Pair& pair = *new Pair;
    const Strangers strangers;
    ibv_port_attr port = {};
    EXPECT_EQ(ibv_query_port(pair.near_device.context, 1, &port), EIO);
    ibv_wc wc;
    EXPECT_EQ(ibv_poll_cq(pair.near.cq, 1, &wc), -EIO);
    strangers.ExpectUntouched();
  });
}

TEST(VerbsClosedDescriptors, PollingEndsInAnError) {
  InChild([] {
    Pair& pair = *new Pair;
    const Strangers strangers;
    ibv_wc wc;
    int polled;
    do {  // in time: alarm(2)
      polled = ibv_poll_cq(pair.near.cq, 1, &wc);
    } while (polled == 0);
    EXPECT_EQ(polled, -EIO);
    strangers.ExpectUntouched();
  });
}

TEST(VerbsClosedDescriptors, PostingToADaemonThatSleepsWritesToNoOtherFile) {
  InChild([] {
    Pair& pair = *new Pair;
    Buffer& from = *new Buffer(pair.near_device, 64, 1);
    usleep(300'000);  // the daemon sleeps
    const Strangers strangers;
    EXPECT_EQ(pair.near.PostSend(IBV_WR_SEND, from.Sge(0, 64)), 0);
    strangers.ExpectUntouched();
  });
}

TEST(VerbsClosedDescriptors, ClosingTheDeviceClosesNoOtherFile) {
  InChild([] {
    ibv_context* context = DeviceZero().context;
    const Strangers strangers;
    const std::vector<int> closed_by_libibverbs = {context->cmd_fd, context->async_fd};
    EXPECT_EQ(ibv_close_device(context), 0);
    strangers.ExpectOpen(closed_by_libibverbs);
  });
}

}  // namespace
}  // namespace roci::testing
