// Interception of the calls of two libraries that replace libibverbs and librdmacm.
#include "verbs_provider/intercept/intercept.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/unit/verbs_provider/intercept/fake_paths.h"
#include "tests/unit/verbs_provider/intercept/fake_verbs.h"
#include "verbs_provider/intercept/got_patch.h"

namespace roci::provider {
namespace {

int g_next_fd = -1;  // what the handlers return: a descriptor or a negative errno
void* g_asked = nullptr;
std::atomic<int> g_lost = 0;
std::vector<std::pair<int, FdKind>> g_closing;
std::string g_cm_written;

int HandOut(void* owner) {
  g_asked = owner;
  return g_next_fd;
}

int OpenCm(int) {
  const int fd = open("/dev/full", O_RDWR | O_CLOEXEC);
  RegisterFd(fd, FdKind::kRdmaCm, &g_cm_written);
  return g_next_fd == -EACCES ? -EACCES : fd;
}

ssize_t WriteCm(void* owner, int, const void* data, size_t size) {
  if (size == 0) return -EBADMSG;
  static_cast<std::string*>(owner)->assign(static_cast<const char*>(data), size);
  return static_cast<ssize_t>(size);
}

void CloseCm(void*, int) { g_cm_written = "closed"; }

class InterceptTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    InterceptHandlers handlers;
    handlers.create_completion_channel = HandOut;
    handlers.allocate_async_fd = HandOut;
    handlers.lost = [](void*) { ++g_lost; };
    handlers.closing = [](void*, int fd, FdKind kind) { g_closing.emplace_back(fd, kind); };
    installed_ = InstallInterceptionInto("libfake-verbs.so", handlers);
    cm_ = dlopen(kFakeCmPath, RTLD_LAZY);
    RdmaCmHandlers cm_handlers;
    cm_handlers.open = OpenCm;
    cm_handlers.write = WriteCm;
    cm_handlers.close = CloseCm;
    cm_installed_ = InstallRdmaCmInterceptionInto("libfake-cm.so", cm_handlers);
  }

  void SetUp() override {
    ASSERT_TRUE(installed_);
    command_ = open("/dev/full", O_RDWR | O_CLOEXEC);
    ASSERT_TRUE(RegisterFd(command_, FdKind::kCommand, this));
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair_), 0);
    g_next_fd = -1;
    g_asked = nullptr;
    g_lost = 0;
    g_closing.clear();
  }

  void TearDown() override {
    for (int fd : {command_, pair_[0]}) {
      ForgetFd(fd);
      close(fd);
    }
    if (pair_[1] >= 0) close(pair_[1]);
  }

  void HangUp() {
    close(pair_[1]);
    pair_[1] = -1;
  }

  template <class Function>
  static Function* Cm(const char* name) {
    return reinterpret_cast<Function*>(dlsym(cm_, name));
  }

  static bool installed_;
  static bool cm_installed_;
  static void* cm_;
  int command_ = -1;
  int pair_[2] = {-1, -1};
};

bool InterceptTest::installed_ = false;
bool InterceptTest::cm_installed_ = false;
void* InterceptTest::cm_ = nullptr;

struct CompChannelCommand {
  ib_uverbs_cmd_hdr header = {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, 4, 1};
  ib_uverbs_create_comp_channel body = {};
};

TEST_F(InterceptTest, LeavesForeignDescriptorsAlone) {
  char text[3] = {};
  EXPECT_EQ(fake_write(pair_[1], "abc", 3), 3);
  EXPECT_EQ(fake_read(pair_[0], text, 3), 3);
  EXPECT_EQ(std::memcmp(text, "abc", 3), 0);
  int waiting = -1;
  EXPECT_EQ(fake_ioctl(pair_[0], FIONREAD, &waiting), 0);
  EXPECT_EQ(waiting, 0);
  HangUp();
  EXPECT_EQ(fake_read(pair_[0], text, 3), 0);
  EXPECT_EQ(fake_read(-1, text, 3), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(g_lost, 0);
  EXPECT_EQ(fake_close(dup(pair_[0])), 0);
  EXPECT_TRUE(g_closing.empty());
}

TEST_F(InterceptTest, LeavesOtherLibrariesAlone) {
  CompChannelCommand command;
  ib_uverbs_create_comp_channel_resp response = {};
  command.body.response = reinterpret_cast<uintptr_t>(&response);
  g_next_fd = 77;
  EXPECT_EQ(write(command_, &command, sizeof(command)), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(g_asked, nullptr);
}

TEST_F(InterceptTest, CreatesACompletionChannel) {
  CompChannelCommand command;
  ib_uverbs_create_comp_channel_resp response = {};
  command.body.response = reinterpret_cast<uintptr_t>(&response);
  g_next_fd = 77;
  EXPECT_EQ(fake_write(command_, &command, sizeof(command)), static_cast<ssize_t>(sizeof(command)));
  EXPECT_EQ(response.fd, 77u);
  EXPECT_EQ(g_asked, this);
  g_next_fd = -EMFILE;
  EXPECT_EQ(fake_write(command_, &command, sizeof(command)), -1);
  EXPECT_EQ(errno, EMFILE);
}

TEST_F(InterceptTest, ChecksTheLengthsOfCommands) {
  CompChannelCommand command;
  ib_uverbs_create_comp_channel_resp response = {};
  command.body.response = reinterpret_cast<uintptr_t>(&response);
  g_next_fd = 77;
  for (size_t size : {size_t{0}, size_t{7}, size_t{8}, size_t{15}}) {
    EXPECT_EQ(fake_write(command_, &command, size), -1) << size;
    EXPECT_EQ(errno, EINVAL) << size;
  }
  command.header.in_words = 5;
  EXPECT_EQ(fake_write(command_, &command, sizeof(command)), -1);
  EXPECT_EQ(errno, EINVAL);
  command.header.in_words = 4;
  command.header.out_words = 0;
  EXPECT_EQ(fake_write(command_, &command, sizeof(command)), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(response.fd, 0u);
  EXPECT_EQ(g_asked, nullptr);
}

TEST_F(InterceptTest, RefusesEveryOtherCommand) {
  for (uint32_t number = 0; number < 64; ++number) {
    if (number == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL) continue;
    CompChannelCommand command;
    command.header.command = number;
    EXPECT_EQ(fake_write(command_, &command, sizeof(command)), -1) << number;
    EXPECT_EQ(errno, EOPNOTSUPP) << number;
  }
}

TEST_F(InterceptTest, AllocatesAnAsyncFdAndRefusesOtherIoctls) {
  alignas(8) std::byte memory[sizeof(ib_uverbs_ioctl_hdr) + sizeof(ib_uverbs_attr)] = {};
  auto& command = *reinterpret_cast<ib_uverbs_ioctl_hdr*>(memory);
  command.length = sizeof(memory);
  command.object_id = UVERBS_OBJECT_ASYNC_EVENT;
  command.method_id = UVERBS_METHOD_ASYNC_EVENT_ALLOC;
  command.num_attrs = 1;
  command.attrs[0].attr_id = UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE;
  g_next_fd = 78;
  EXPECT_EQ(fake_ioctl(command_, RDMA_VERBS_IOCTL, &command), 0);
  EXPECT_EQ(command.attrs[0].data_s64, 78);
  EXPECT_EQ(g_asked, this);
  command.attrs[0].attr_id = 99;
  EXPECT_EQ(fake_ioctl(command_, RDMA_VERBS_IOCTL, &command), -1);
  EXPECT_EQ(errno, EINVAL);
  command.object_id = UVERBS_OBJECT_DEVICE;
  EXPECT_EQ(fake_ioctl(command_, RDMA_VERBS_IOCTL, &command), -1);
  EXPECT_EQ(errno, ENOTTY);
}

TEST_F(InterceptTest, ReportsALostDaemonOnce) {
  ASSERT_TRUE(RegisterFd(pair_[0], FdKind::kAsyncEvents, this));
  ASSERT_EQ(fcntl(pair_[0], F_SETFL, O_NONBLOCK), 0);
  ib_uverbs_async_event_desc sent = {};
  sent.event_type = IBV_EVENT_PORT_ACTIVE;
  ASSERT_EQ(write(pair_[1], &sent, sizeof(sent)), static_cast<ssize_t>(sizeof(sent)));
  HangUp();
  ib_uverbs_async_event_desc event = {};
  EXPECT_EQ(fake_read(pair_[0], &event, sizeof(event)), 16);
  EXPECT_EQ(event.event_type, static_cast<uint32_t>(IBV_EVENT_PORT_ACTIVE));
  EXPECT_EQ(g_lost, 0);
  EXPECT_EQ(fake_read(pair_[0], &event, sizeof(event)), 16);
  EXPECT_EQ(event.event_type, static_cast<uint32_t>(IBV_EVENT_DEVICE_FATAL));
  EXPECT_EQ(event.element, 0u);
  EXPECT_EQ(g_lost, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(fake_read(pair_[0], &event, sizeof(event)), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
  pollfd polled = {pair_[0], POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, 0), 0);
  EXPECT_EQ(fcntl(pair_[0], F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(g_lost, 1);
}

TEST_F(InterceptTest, ReportsALostDaemonAfterAReset) {
  ASSERT_TRUE(RegisterFd(pair_[0], FdKind::kAsyncEvents, this));
  ASSERT_EQ(write(pair_[0], "x", 1), 1);  // unread by the other end when it closes
  HangUp();
  ib_uverbs_async_event_desc event = {};
  EXPECT_EQ(fake_read(pair_[0], &event, sizeof(event)), 16);
  EXPECT_EQ(event.event_type, static_cast<uint32_t>(IBV_EVENT_DEVICE_FATAL));
}

TEST_F(InterceptTest, ReportsALostDaemonToOneOfManyReaders) {
  ASSERT_TRUE(RegisterFd(pair_[0], FdKind::kAsyncEvents, this));
  std::atomic<int> told = 0;
  std::atomic<int> gone = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      ib_uverbs_async_event_desc event = {};
      if (fake_read(pair_[0], &event, sizeof(event)) == 16) ++told;
      ++gone;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  HangUp();
  for (int i = 0; i < 2000 && told == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(told, 1);
  EXPECT_EQ(g_lost, 1);
  // Wakes the blocked readers: `fd` is an eventfd now. One reader may read the sum of two writes.
  const uint64_t one = 1;
  while (gone < 4) {
    EXPECT_EQ(write(pair_[0], &one, sizeof(one)), 8);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(told, 1);
}

TEST_F(InterceptTest, FailsACompletionChannelWhoseDaemonIsGone) {
  ASSERT_TRUE(RegisterFd(pair_[0], FdKind::kCompletionChannel, this));
  HangUp();
  uint64_t event;
  EXPECT_EQ(fake_read(pair_[0], &event, sizeof(event)), -1);
  EXPECT_EQ(errno, EIO);
}

TEST_F(InterceptTest, PassesCallsOnIfTheNumberIsAnotherFile) {
  ASSERT_TRUE(RegisterFd(pair_[0], FdKind::kAsyncEvents, this));
  const int empty = open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(dup2(empty, pair_[0]), pair_[0]);
  char text[16];
  EXPECT_EQ(fake_read(pair_[0], text, sizeof(text)), 0);
  EXPECT_EQ(g_lost, 0);
  ASSERT_EQ(dup2(empty, command_), command_);
  CompChannelCommand command;
  EXPECT_EQ(fake_write(command_, &command, sizeof(command)), 16);  // /dev/null accepts every write
  EXPECT_EQ(LookUpFd(command_), FdKind::kNone);
  close(empty);
}

TEST_F(InterceptTest, ReportsAClose) {
  const int copy = dup(pair_[0]);
  ASSERT_TRUE(RegisterFd(copy, FdKind::kCompletionChannel, this));
  EXPECT_EQ(fake_close(copy), 0);
  EXPECT_EQ(LookUpFd(copy), FdKind::kNone);
  ASSERT_EQ(g_closing.size(), 1u);
  EXPECT_EQ(g_closing[0], std::make_pair(copy, FdKind::kCompletionChannel));
  EXPECT_EQ(fcntl(copy, F_GETFD), -1);
}

TEST_F(InterceptTest, OpensThePlaceholderForNodesOfTheTreeAtSysfsPath) {
  char name[] = "/tmp/intercept_test.XXXXXX";
  const std::string tree = mkdtemp(name);
  std::filesystem::create_directories(tree + "/class/infiniband_verbs/uverbs4242");
  std::filesystem::create_directories(tree + "/class/infiniband_verbs/uverbs4243");
  std::ofstream(tree + "/class/infiniband_verbs/uverbs4242/roci_socket") << "x\n";
  struct stat st;
  EXPECT_EQ(fake_open("/dev/infiniband/uverbs4242", O_RDWR), -1);
  setenv("SYSFS_PATH", tree.c_str(), 1);
  ASSERT_EQ(fake_stat("/dev/infiniband/uverbs4242", &st), 0);
  EXPECT_TRUE(S_ISCHR(st.st_mode));
  EXPECT_EQ(st.st_rdev, makedev(1, 7));
  const int fd = fake_open("/dev/infiniband/uverbs4242", O_RDWR);
  EXPECT_GE(fd, 0);
  close(fd);
  for (const char* path : {"/dev/infiniband/uverbs4243", "/dev/infiniband/", "/nowhere"}) {
    EXPECT_EQ(fake_open(path, O_RDWR), -1) << path;
    EXPECT_EQ(errno, ENOENT) << path;
    EXPECT_EQ(fake_stat(path, &st), -1) << path;
  }
  unsetenv("SYSFS_PATH");
  std::filesystem::remove_all(tree);
}

TEST_F(InterceptTest, ServesTheConnectionManagersDevice) {
  ASSERT_TRUE(cm_installed_);
  const int fd = Cm<decltype(fake_open)>("fake_open")("/dev/infiniband/rdma_cm", O_RDWR);
  ASSERT_GE(fd, 0);
  struct stat st;
  ASSERT_EQ(Cm<decltype(fake_fstat)>("fake_fstat")(fd, &st), 0);
  EXPECT_TRUE(S_ISCHR(st.st_mode));
  EXPECT_EQ(st.st_rdev, makedev(1, 7));
  const auto write_cm = Cm<decltype(fake_write)>("fake_write");
  EXPECT_EQ(write_cm(fd, "hello", 5), 5);
  EXPECT_EQ(g_cm_written, "hello");
  EXPECT_EQ(write_cm(fd, "", 0), -1);
  EXPECT_EQ(errno, EBADMSG);
  EXPECT_EQ(write_cm(pair_[1], "abc", 3), 3);
  EXPECT_EQ(Cm<decltype(fake_close)>("fake_close")(fd), 0);
  EXPECT_EQ(g_cm_written, "closed");
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
  g_next_fd = -EACCES;
  EXPECT_EQ(Cm<decltype(fake_open)>("fake_open")("/dev/infiniband/rdma_cm", O_RDWR), -1);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(Cm<decltype(fake_open)>("fake_open")("/nowhere", O_RDWR), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(PatchLibrary, FindsNoLibraryThatIsNotLoaded) {
  void* original = nullptr;
  SlotPatch patch = {"read", nullptr, &original};
  EXPECT_FALSE(PatchLibrary("libno-such.so", &patch, 1));
  EXPECT_FALSE(patch.found);
}

TEST(PatchLibrary, PatchesCallsAndPointers) {
  // Only this test loads "libfake-lazy.so", so nothing else has patched or bound it.
  void* library = dlopen(kFakeLazyPath, RTLD_LAZY);
  ASSERT_NE(library, nullptr) << dlerror();
  static int (*original)(int) = nullptr;
  static int calls = 0;
  int (*replacement)(int) = [](int fd) {
    ++calls;
    return original(fd);
  };
  SlotPatch patches[] = {
      {"close", reinterpret_cast<void*>(replacement), reinterpret_cast<void**>(&original)},
      {"no_such_function", reinterpret_cast<void*>(replacement), nullptr}};
  ASSERT_TRUE(PatchLibrary("libfake-lazy.so", patches, 2));
  EXPECT_TRUE(patches[0].found);
  EXPECT_FALSE(patches[1].found);
  const auto fake = reinterpret_cast<int (*)(int)>(dlsym(library, "fake_close"));
  for (int i = 0; i < 2; ++i) {  // lazy binding must not overwrite the patch
    const int fd = dup(0);
    EXPECT_EQ(fake(fd), 0);
    EXPECT_EQ(fcntl(fd, F_GETFD), -1);
  }
  EXPECT_EQ(calls, 2);
  const auto pointer = reinterpret_cast<int (*(*)())(int)>(dlsym(library, "fake_close_pointer"))();
  EXPECT_EQ(pointer, replacement);
}

}  // namespace
}  // namespace roci::provider
