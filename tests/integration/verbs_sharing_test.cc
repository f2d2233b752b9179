// A context in several processes: children that continue to use inherited objects, and processes
// that were passed a command descriptor (ibv_import_device, ibv_import_pd, ibv_import_mr,
// ibv_import_dm). Checks all bytes.
#include <malloc.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "tests/integration/in_child.h"
#include "tests/integration/verbs_datagram.h"
#include "tests/integration/verbs_endpoint.h"
#include "tests/send_fds.h"

namespace roci::testing {
namespace {

// Writes all of `from` to `address` by `rkey` over a connection of the device with itself.
void WriteBetween(OpenDevice& device, Buffer& from, uint64_t address, uint32_t rkey,
                  ibv_wc_status status = IBV_WC_SUCCESS) {
  Endpoint one(device), two(device);
  ASSERT_EQ(one.Connect(two), 0) << strerror(errno);
  ASSERT_EQ(two.Connect(one), 0) << strerror(errno);
  ASSERT_EQ(
      one.PostSend(IBV_WR_RDMA_WRITE, from.Sge(0, from.size()), IBV_SEND_SIGNALED, address, rkey),
      0);
  EXPECT_EQ(one.Wait().status, status);
}

TEST(VerbsFork, ChildContinuesToUseTheContext) {
  OpenDevice device("roci0");
  Buffer mine(device, 5000, 1);
  InChild([&] {
    ibv_pd* pd = ibv_alloc_pd(device.context);
    ASSERT_NE(pd, nullptr) << strerror(errno);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    ibv_device_attr attr = {};
    EXPECT_EQ(ibv_query_device(device.context, &attr), 0);
    Buffer theirs(device, 5000, 2);  // in the domain that was inherited
    WriteBetween(device, theirs, mine.address(), mine.rkey());
    EXPECT_EQ(mine.data()[0], PatternByte(1, 0)) << "the child's copy is another page";
  });
  for (size_t i = 0; i < mine.size(); ++i) ASSERT_EQ(mine.data()[i], PatternByte(2, i)) << i;
}

TEST(VerbsFork, ChildsObjectsAreFreedWithIt) {
  OpenDevice device("roci0");
  for (int round = 0; round < 20; ++round) {
    InChild([&] {
      auto* left = new Buffer(device, 100, 2);
      EXPECT_NE(left->mr, nullptr);
    });
  }
  EXPECT_EQ(ibv_dealloc_pd(device.pd), 0) << "no longer in use";
  device.pd = ibv_alloc_pd(device.context);
}

TEST(VerbsFork, ChildDoesNotDestroyObjectsOfItsParent) {
  OpenDevice device("roci0");
  Buffer mine(device, 100, 1);
  ibv_alloc_dm_attr dm_attr = {};
  dm_attr.length = 64;
  ibv_dm* dm = ibv_alloc_dm(device.context, &dm_attr);
  ASSERT_NE(dm, nullptr);
  Endpoint endpoint(device);
  InChild([&] {
    Buffer theirs(device, 100, 2);  // the child is known to the daemon
    EXPECT_EQ(endpoint.PostRecv(theirs.Sge(0, 8)), EIO) << "the ring belongs to the parent";
    EXPECT_EQ(ibv_dereg_mr(mine.mr), 0);
    EXPECT_EQ(ibv_free_dm(dm), 0);
    EXPECT_EQ(ibv_destroy_qp(endpoint.qp), 0);
  });
  WriteBetween(device, mine, mine.address(), mine.rkey());
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST(VerbsFork, GrandchildContinuesToUseTheContext) {
  OpenDevice device("roci0");
  Buffer mine(device, 300, 1);
  InChild([&] {
    Buffer childs(device, 300, 2);
    InChild([&] {
      Buffer theirs(device, 300, 3);
      WriteBetween(device, theirs, mine.address(), mine.rkey());
      WriteBetween(device, theirs, childs.address(), childs.rkey());
    });
    for (size_t i = 0; i < 300; ++i) ASSERT_EQ(childs.data()[i], PatternByte(3, i)) << i;
  });
  for (size_t i = 0; i < 300; ++i) ASSERT_EQ(mine.data()[i], PatternByte(3, i)) << i;
}

// Naming an object of one context in another is an error, e.g. for a child whose parent has ended.
TEST(VerbsFork, ContextsOfTheirOwnGiveHandlesOfTheirOwn) {
  OpenDevice one("roci0"), two("roci0");
  EXPECT_NE(one.pd->handle, two.pd->handle);
  Buffer of_one(one, 100, 1), of_two(two, 100, 2);
  EXPECT_NE(of_one.mr->handle, of_two.mr->handle);
}

// The context that opened the device is closed; the one imported from it continues. Other processes
// still find the session by its descriptor.
TEST(VerbsFork, ChildOfAnImportedContextThatOutlivesItsOriginal) {
  OpenDevice device("roci0");
  ibv_context* imported = ibv_import_device(dup(device.context->cmd_fd));
  ASSERT_NE(imported, nullptr) << strerror(errno);
  EXPECT_EQ(ibv_dealloc_pd(device.pd), 0);
  EXPECT_EQ(ibv_close_device(device.context), 0);
  device.context = imported;
  device.pd = ibv_alloc_pd(imported);
  ASSERT_NE(device.pd, nullptr) << strerror(errno);
  Buffer mine(device, 5000, 1);
  InChild([&] {
    Buffer theirs(device, 5000, 2);  // in the domain that was inherited
    WriteBetween(device, theirs, mine.address(), mine.rkey());
  });
  for (size_t i = 0; i < mine.size(); ++i) ASSERT_EQ(mine.data()[i], PatternByte(2, i)) << i;
}

// A number of an address handle means something to its own session only.
TEST(VerbsFork, ChildCannotSendByAnInheritedAddressHandle) {
  OpenDevice device("roci0");
  const GidChoice gid = FindGid(device, true);
  DatagramEndpoint parents(device);
  ibv_ah* inherited = parents.CreateAh(gid.gid, gid.index);
  ASSERT_NE(inherited, nullptr) << strerror(errno);
  InChild([&] {
    DatagramEndpoint childs(device);
    ibv_ah* own = childs.CreateAh(gid.gid, gid.index);
    ASSERT_NE(own, nullptr) << strerror(errno);
    EXPECT_EQ(childs.PostSend(inherited, childs.qp->qp_num, {}), EINVAL);
    EXPECT_EQ(childs.PostSend(own, childs.qp->qp_num, {}), 0);
    EXPECT_EQ(childs.Wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_destroy_ah(own), 0);
  });
  EXPECT_EQ(ibv_destroy_ah(inherited), 0);
}

// The first one before the child has a session of its own.
TEST(VerbsFork, ChildDeregistersInheritedRegionsInAnyOrder) {
  OpenDevice device("roci0");
  std::vector<uint8_t> memory(3 * 4096);
  ibv_mr* regions[3];
  for (int i = 0; i < 3; ++i) {
    regions[i] = ibv_reg_mr(device.pd, memory.data() + 4096 * i, 4096, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(regions[i], nullptr);
  }
  InChild([&] {
    const size_t bytes = malloc_usable_size(regions[1]);
    EXPECT_EQ(ibv_dereg_mr(regions[1]), 0);
    // The next block of this size is the one that was freed.
    std::vector<std::unique_ptr<uint8_t[]>> blocks;
    for (int i = 0; i < 8; ++i) {
      blocks.push_back(std::make_unique<uint8_t[]>(bytes));
      memset(blocks.back().get(), 0x5A, bytes);
    }
    ibv_port_attr port = {};
    EXPECT_EQ(ibv_query_port(device.context, 1, &port), 0);  // opens the session
    EXPECT_EQ(ibv_dereg_mr(regions[2]), 0);
    EXPECT_EQ(ibv_dereg_mr(regions[0]), 0);
    for (const auto& block : blocks) {
      for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(block[i], 0x5A) << "written after it was freed";
    }
  });
  for (ibv_mr* region : regions) EXPECT_EQ(ibv_dereg_mr(region), 0);
}

// A program that closes all its descriptors and opens files under their numbers.
TEST(VerbsFork, ChildsFilesAreNotReplaced) {
  OpenDevice device("roci0");
  InChild([&] {
    const int numbers[] = {device.context->async_fd, device.context->cmd_fd};
    for (const int fd : numbers) close(fd);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    for (const int fd : numbers) ASSERT_EQ(dup2(ends[0], fd), fd);
    struct stat before, after;
    ASSERT_EQ(fstat(device.context->async_fd, &before), 0);
    ibv_port_attr port = {};
    ibv_query_port(device.context, 1, &port);  // opens the session, if it can
    ASSERT_EQ(fstat(device.context->async_fd, &after), 0);
    EXPECT_EQ(after.st_ino, before.st_ino);
  });
}

// Data that the owner of a context sends to another process.
struct Handles {
  uint32_t pd, mr, dm;
  uint64_t address;
  uint32_t rkey;
};
constexpr size_t kBytes = 4096 + 77;
constexpr size_t kDmBytes = 256;

bool SendHandles(int socket, const Handles& handles, int fd) {
  return SendFdsWith(socket, handles, {&fd, 1}) == sizeof(handles);
}

int ReceiveHandles(int socket, Handles* handles) {
  iovec part = {handles, sizeof(*handles)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  int fd = -1;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == sizeof(*handles) &&
      CMSG_FIRSTHDR(&message) != nullptr) {
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
  }
  return fd;
}

// In another process: opens a device, shares its objects, and verifies the received data.
int Owner(int socket) {
  alarm(kPatience_ms / 1000 * 6);
  OpenDevice device("roci1");
  Buffer buffer(device, kBytes, 1);
  ibv_alloc_dm_attr attr = {};
  attr.length = kDmBytes;
  ibv_dm* dm = ibv_alloc_dm(device.context, &attr);
  if (dm == nullptr) return 2;
  uint8_t pattern[kDmBytes];
  for (size_t i = 0; i < kDmBytes; ++i) pattern[i] = PatternByte(4, i);
  if (ibv_memcpy_to_dm(dm, 0, pattern, kDmBytes) != 0) return 3;
  const Handles handles = {device.pd->handle, buffer.mr->handle, dm->handle, buffer.address(),
                           buffer.rkey()};
  char byte;
  if (!SendHandles(socket, handles, device.context->cmd_fd)) return 4;
  if (read(socket, &byte, 1) != 1) return 5;  // the other has written
  for (size_t i = 0; i < kBytes; ++i) {
    if (buffer.data()[i] != PatternByte(2, i)) return 6;
  }
  if (ibv_dealloc_pd(device.pd) != EBUSY) return 7;
  _exit(0);  // without destroying anything
}

class VerbsImported : public ::testing::Test {
 protected:
  void SetUp() override {
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    fflush(nullptr);
    owner_ = fork();
    if (owner_ == 0) {
      close(sockets[0]);
      _exit(Owner(sockets[1]));
    }
    close(sockets[1]);
    socket_ = sockets[0];
    const int fd = ReceiveHandles(socket_, &handles_);
    ASSERT_GE(fd, 0);
    context_ = ibv_import_device(fd);
    ASSERT_NE(context_, nullptr) << strerror(errno);
    EXPECT_STREQ(ibv_get_device_name(context_->device), "roci1");
    pd_ = ibv_import_pd(context_, handles_.pd);
    ASSERT_NE(pd_, nullptr) << strerror(errno);
    std::swap(device_.context, context_);
    std::swap(device_.pd, pd_);
  }
  void TearDown() override {
    std::swap(device_.context, context_);
    std::swap(device_.pd, pd_);
    if (pd_ != nullptr) ibv_unimport_pd(pd_);
    if (context_ != nullptr) {
      EXPECT_EQ(ibv_close_device(context_), 0);
    }
    EndOwner();
    close(socket_);
  }
  int EndOwner() {
    if (owner_ <= 0) return 0;
    int status = 0;
    if (write(socket_, "x", 1) != 1) kill(owner_, SIGKILL);
    waitpid(owner_, &status, 0);
    owner_ = 0;
    return status;
  }

  OpenDevice device_{"roci1"};  // its pointers are replaced by imported objects
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  Handles handles_ = {};
  pid_t owner_ = 0;
  int socket_ = -1;
};

TEST_F(VerbsImported, ObjectsOfAnotherProcess) {
  ibv_mr* mr = ibv_import_mr(device_.pd, handles_.mr);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  EXPECT_EQ(mr->rkey, handles_.rkey);
  EXPECT_EQ(mr->length, kBytes);
  {
    Buffer mine(device_, kBytes, 3);
    Endpoint one(device_), two(device_);
    ASSERT_EQ(one.Connect(two), 0);
    ASSERT_EQ(two.Connect(one), 0);
    const ibv_sge theirs = {handles_.address, kBytes, mr->lkey};
    ASSERT_EQ(
        one.PostSend(IBV_WR_RDMA_WRITE, theirs, IBV_SEND_SIGNALED, mine.address(), mine.rkey()), 0);
    one.ExpectSuccess();
    for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(mine.data()[i], PatternByte(1, i)) << i;
    mine.Fill(2);
    ASSERT_EQ(one.PostSend(IBV_WR_RDMA_WRITE, mine.Sge(0, kBytes), IBV_SEND_SIGNALED,
                           handles_.address, mr->rkey),
              0);
    one.ExpectSuccess();
    EXPECT_EQ(EndOwner(), 0) << "it verified the bytes, and its domain is in use";
    // The owner's objects are freed with it; the others still work.
    Endpoint three(device_), four(device_);
    ASSERT_EQ(three.Connect(four), 0);
    ASSERT_EQ(four.Connect(three), 0);
    ASSERT_EQ(three.PostSend(IBV_WR_RDMA_WRITE, mine.Sge(0, 8), IBV_SEND_SIGNALED,
                             mine.address() + 64, mine.rkey()),
              0);
    three.ExpectSuccess();
    ASSERT_EQ(three.PostSend(IBV_WR_RDMA_WRITE, mine.Sge(0, 8), IBV_SEND_SIGNALED, handles_.address,
                             mr->rkey),
              0);
    EXPECT_EQ(three.Wait().status, IBV_WC_REM_ACCESS_ERR);
  }
  ibv_unimport_mr(mr);
}

TEST_F(VerbsImported, DeviceMemory) {
  ibv_dm* dm = ibv_import_dm(device_.context, handles_.dm);
  ASSERT_NE(dm, nullptr) << strerror(errno);
  uint8_t bytes[kDmBytes];
  EXPECT_EQ(ibv_memcpy_from_dm(bytes, dm, 0, kDmBytes), 0);
  for (size_t i = 0; i < kDmBytes; ++i) ASSERT_EQ(bytes[i], PatternByte(4, i)) << i;
  ibv_mr* mr =
      ibv_reg_dm_mr(device_.pd, dm, 0, kDmBytes,
                    IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  Buffer mine(device_, kDmBytes, 5);
  WriteBetween(device_, mine, 0, mr->rkey);
  EXPECT_EQ(ibv_memcpy_from_dm(bytes, dm, 0, kDmBytes), 0);
  EXPECT_EQ(memcmp(bytes, mine.data(), kDmBytes), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ibv_unimport_dm(dm);
}

TEST_F(VerbsImported, UnknownHandles) {
  errno = 0;
  EXPECT_EQ(ibv_import_pd(device_.context, 0xABCDEF), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_import_mr(device_.pd, 0xABCDEF), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_import_dm(device_.context, 0xABCDEF), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace roci::testing
