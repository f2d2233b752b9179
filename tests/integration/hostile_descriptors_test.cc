// Descriptors whose close blocks, passed to root's daemon by a program of an ordinary user in every
// possible way: the daemon must serve other programs, and end at SIGTERM.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/integration/attacker.h"
#include "tests/integration/fuse_file.h"
#include "tests/integration/other_users.h"
#include "tests/integration/raw_session.h"
#include "tests/send_fds.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kPage = 4096;
constexpr uint32_t kLocalWrite = 1;

// A TCP socket with unsent data: its last close waits for it. `reader` reads nothing.
struct LingeringSocket {
  LingeringSocket() {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, any, size) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, any, &size) != 0 || connect(fd, any, size) != 0) {
      _exit(3);
    }
    reader = accept(listener, nullptr, nullptr);
    close(listener);
    const linger patience = {1, 3600};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &patience, sizeof(patience));
    static const char bytes[65536] = {};
    while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
    }
  }
  int fd;
  int reader;
};

// A descriptor that an attacker passes.
struct BlockingFd {
  int fd = -1;
  pid_t server = 0;    // kill it before the processes that have `fd`
  bool in_use = true;  // the attacker keeps its own copy
};
using Forge = BlockingFd (*)();

BlockingFd ForgeSocket() { return {.fd = LingeringSocket().fd, .server = 0, .in_use = false}; }
BlockingFd ForgeFuseFile() {
  const FuseFile file;
  return {.fd = file.fd, .server = file.server};
}

// One message of a Unix socket.
bool SendWith(int socket, const void* bytes, size_t size, const std::vector<int>& fds) {
  const std::span part(static_cast<const std::byte*>(bytes), size);
  return SendFds(socket, part, fds, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(size);
}

int Connect(const char* name, int type) {
  const std::string path = abi::RuntimeDir(nullptr, abi::RuntimeDirUse::kConnect) + "/" + name;
  const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) _exit(3);
  return fd;
}

template <class Request>
Request Headed(uint32_t command, Request request = {}) {
  request.head.command = command;
  request.head.size = sizeof(Request);
  request.head.serial = 1;
  return request;
}

roci_abi_reg_mr_request RegistrationOf(uint32_t pd, void* at, uint32_t kind) {
  roci_abi_reg_mr_request request{};
  request.pd = pd;
  request.access = kLocalWrite;
  request.start = request.iova = reinterpret_cast<uint64_t>(at);
  request.length = kPage;
  request.extent_count = 1;
  request.fd_count = kind == ROCI_ABI_EXTENT_FD ? 1 : 0;
  request.extents[0].va = request.start;
  request.extents[0].length = kPage;
  request.extents[0].kind = kind;
  request.extents[0].map_start = request.start;
  request.extents[0].map_end = request.start + kPage;
  return request;
}

alignas(kPage) char g_page[kPage];

// A message to be sent `times` times, with `copies` of a descriptor.
struct Shot {
  template <class Request>
  static Shot Of(int socket, const Request& request) {
    const auto* bytes = reinterpret_cast<const char*>(&request);
    return {.socket = socket, .bytes = std::string(bytes, sizeof(request))};
  }
  void Fire(int fd) const {
    for (int i = 0; i < times; ++i) {
      SendWith(socket, bytes.data(), bytes.size(), std::vector<int>(copies, fd));
    }
    for (const int end : closes) close(end);
  }
  int socket;
  std::string bytes;
  size_t copies = 1;
  int times = 1;
  std::vector<int> closes = {};  // at once
};

// A session that stays open until the process ends.
RawSession& NewSession() {
  auto* session = new RawSession;
  if (session->Hello() != 0) _exit(3);
  return *session;
}

Shot WithHello(int) {
  roci_abi_hello_request hello{};
  hello.magic = ROCI_ABI_MAGIC;
  hello.major = ROCI_ABI_MAJOR;
  std::snprintf(hello.device, sizeof(hello.device), "roci0");
  return Shot::Of(Connect(abi::kSocketName, SOCK_SEQPACKET), Headed(ROCI_ABI_HELLO, hello));
}

Shot WithRegistration(int) {
  RawSession& session = NewSession();
  return Shot::Of(session.fd(), Headed(ROCI_ABI_REG_MR, RegistrationOf(session.AllocPd(), g_page,
                                                                       ROCI_ABI_EXTENT_FD)));
}

Shot WithPlainCommand(int) {
  return Shot::Of(NewSession().fd(), Headed<roci_abi_plain_request>(ROCI_ABI_ALLOC_PD));
}

Shot WithDomain(int) {
  roci_abi_open_xrcd_request request{};
  request.has_file = 1;
  request.flags = ROCI_ABI_XRCD_CREATE;
  // The domain keeps the file as long as the session lasts.
  Shot shot = Shot::Of(NewSession().fd(), Headed(ROCI_ABI_OPEN_XRCD, request));
  shot.closes = {shot.socket};
  return shot;
}

Shot WithTooMany(int) {
  Shot shot = WithPlainCommand(0);
  shot.copies = 253;
  return shot;
}

Shot WithEmptyMessage(int) { return {.socket = NewSession().fd(), .bytes = {}}; }

// The daemon cannot send the first answer, and stops reading.
Shot LeftUnread(int) {
  Shot shot = WithPlainCommand(0);
  shot.times = 5;
  shot.closes = {shot.socket};
  return shot;
}

Shot OnChannel(int) {
  return {.socket = Connect(ROCI_ABI_CM_SOCKET_NAME, SOCK_SEQPACKET), .bytes = "x"};
}

// Sent to the event socket, which the daemon never reads.
Shot OnSignalOfChannel(int) {
  auto& channel = *new RawSession(ROCI_ABI_CM_SOCKET_NAME);
  roci_abi_cm_open_request request{};
  request.magic = ROCI_ABI_MAGIC;
  request.major = ROCI_ABI_MAJOR;
  roci_abi_cm_open_response response;
  if (channel.Call(ROCI_ABI_CM_OPEN, request, response) != 0) _exit(3);
  const int signal = channel.fds().at(0);
  return {.socket = signal, .bytes = "x", .closes = {signal, channel.fd()}};
}

// Beside a registration of memory where the file is mapped.
Shot Mapped(int fd) {
  void* at = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  RawSession& session = NewSession();
  const uint32_t pd = session.AllocPd();
  const auto request =
      RegistrationOf(pd, at == MAP_FAILED ? g_page : at, ROCI_ABI_EXTENT_MAP_FILES);
  return Shot::Of(session.fd(), Headed(ROCI_ABI_REG_MR, request));
}

struct Way {
  const char* name;
  Shot (*prepare)(int fd);
};
constexpr Way kWays[] = {{"HELLO", WithHello},
                         {"REG_MR", WithRegistration},
                         {"ALLOC_PD", WithPlainCommand},
                         {"OPEN_XRCD", WithDomain},
                         {"253 descriptors", WithTooMany},
                         {"an empty message", WithEmptyMessage},
                         {"unread messages", LeftUnread},
                         {"an event channel", OnChannel},
                         {"an event channel's signal", OnSignalOfChannel},
                         {"a mapping", Mapped}};

// An attacker that passes the descriptor in one way while the daemon is stopped, so that the
// daemon's copies are the last.
class FdAttack {
 public:
  FdAttack(Forge forge, const Way& way)
      : attacker_([=](int line) {
          const BlockingFd blocking = forge();
          const Shot shot = blocking.fd >= 0 ? way.prepare(blocking.fd) : Shot{};
          Line::Send(line, blocking.fd >= 0 ? blocking.server : -1);
          Line::Receive(line);
          shot.Fire(blocking.fd);
          if (!blocking.in_use) close(blocking.fd);
          Line::Send(line, 0);
          Line::Receive(line);
        }),
        server_(static_cast<pid_t>(attacker_.Hear())) {}
  ~FdAttack() {
    if (server_ > 0) kill(server_, SIGKILL);
  }
  FdAttack(const FdAttack&) = delete;
  FdAttack& operator=(const FdAttack&) = delete;
  // False: the machine does not support such descriptors.
  bool armed() const { return server_ >= 0; }
  void Fire() {
    kill(DaemonPid(), SIGSTOP);
    attacker_.Say(0);
    EXPECT_EQ(attacker_.Hear(), 0);
    kill(DaemonPid(), SIGCONT);
  }
  static pid_t DaemonPid() {
    const char* pid = std::getenv("ROCID_PID");
    if (pid == nullptr) std::abort();
    return std::atoi(pid);
  }

 private:
  Attacker attacker_;
  const pid_t server_;  // must end before the attacker
};

// Z: zombie.
char StateOf(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name;
  char state = 'Z';
  status >> number >> name >> state;
  return state;
}

class HostileDescriptorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "cannot become another user";
    LetOtherUsersIn();
  }
  // Another user's calls are answered at once. A busy machine may delay a few.
  static void ExpectServed(const char* when) {
    constexpr int kCalls = 100, kSlow = 2;
    RawSession victim;
    ASSERT_EQ(victim.Hello(), 0) << when;
    int slow = 0;
    for (int i = 0; i < kCalls; ++i) {
      const auto begin = steady_clock::now();
      const uint32_t pd = victim.AllocPd();
      ASSERT_NE(pd, 0u) << when << ": " << victim.error;
      ASSERT_EQ(victim.OnHandle(ROCI_ABI_DEALLOC_PD, pd), 0) << when;
      slow += steady_clock::now() - begin > milliseconds(100);  // two calls
    }
    EXPECT_LE(slow, kSlow) << when;
  }
};

class EachWay : public HostileDescriptorsTest, public ::testing::WithParamInterface<Way> {};

TEST_P(EachWay, ALingeringSocketDelaysNoOtherProgram) {
  FdAttack attack(ForgeSocket, GetParam());
  attack.Fire();
  ExpectServed("with the socket");
}

TEST_P(EachWay, AFileOfASilentServerDelaysNoOtherProgram) {
  if (!FuseFile::Available()) GTEST_SKIP() << "no /dev/fuse";
  FdAttack attack(ForgeFuseFile, GetParam());
  if (!attack.armed()) GTEST_SKIP() << "an ordinary user cannot mount FUSE";
  attack.Fire();
  ExpectServed("with the file");
}

INSTANTIATE_TEST_SUITE_P(Ways, EachWay, ::testing::ValuesIn(kWays), [](const auto& way) {
  std::string name = way.param.name;
  std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
  return name;
});

// Management clients cannot block the daemon by mistake either.
TEST_F(HostileDescriptorsTest, ManagementDelaysNoOtherProgram) {
  const LingeringSocket socket;
  const int manage = Connect("manage.sock", SOCK_STREAM);
  kill(FdAttack::DaemonPid(), SIGSTOP);
  SendWith(manage, "{\"command\":\"show\"}\n", 19, {socket.fd});
  close(socket.fd);
  kill(FdAttack::DaemonPid(), SIGCONT);
  ExpectServed("management");
  close(manage);
  ExpectServed("management that ends");
  close(socket.reader);
}

// Descriptors that wait to be closed count towards the user's limit.
TEST_F(HostileDescriptorsTest, OneUsersDescriptorsAreLimited) {
  Attacker attacker([](int line) {
    RawSession session;
    if (session.Hello() != 0) _exit(3);
    const LingeringSocket first;
    roci_abi_handle_response response;
    const auto request = Headed<roci_abi_plain_request>(ROCI_ABI_ALLOC_PD);
    Line::Send(line, 0);
    Line::Receive(line);
    SendWith(session.fd(), &request, sizeof(request), {first.fd});
    close(first.fd);
    Line::Send(line, 0);
    session.ReceiveBytes(std::as_writable_bytes(std::span(&response, 1)));
    const int null = open("/dev/null", O_RDONLY);
    int error = EINVAL, tries = 0;
    for (; error == EINVAL && tries < 10'000; ++tries) {
      SendWith(session.fd(), &request, sizeof(request), std::vector<int>(253, null));
      if (session.ReceiveBytes(std::as_writable_bytes(std::span(&response, 1))) <= 0) _exit(3);
      error = static_cast<int>(response.head.error);
    }
    Line::Send(line, error);
    Line::Receive(line);
    close(first.reader);  // resets the connection, which ends the close
    for (tries = 0; error == ENFILE && tries < 100; ++tries) {
      usleep(10'000);
      SendWith(session.fd(), &request, sizeof(request), {null});
      session.ReceiveBytes(std::as_writable_bytes(std::span(&response, 1)));
      error = static_cast<int>(response.head.error);
    }
    Line::Send(line, error);
    Line::Receive(line);
  });
  EXPECT_EQ(attacker.Hear(), 0);
  kill(FdAttack::DaemonPid(), SIGSTOP);
  attacker.Say(0);
  EXPECT_EQ(attacker.Hear(), 0);
  kill(FdAttack::DaemonPid(), SIGCONT);
  EXPECT_EQ(attacker.Hear(), ENFILE);
  ExpectServed("a user at its bound");
  attacker.Say(0);
  EXPECT_EQ(attacker.Hear(), EINVAL) << "below the limit again";
}

// All descriptors at once. Runs alone.
class DaemonEnds : public HostileDescriptorsTest {};

TEST_F(DaemonEnds, AtSigterm) {
  std::vector<std::unique_ptr<FdAttack>> attacks;
  for (const Forge forge : {ForgeSocket, ForgeFuseFile}) {
    for (const Way& way : kWays) {
      attacks.push_back(std::make_unique<FdAttack>(forge, way));
      if (attacks.back()->armed()) attacks.back()->Fire();
    }
  }
  const pid_t daemon = FdAttack::DaemonPid();
  kill(daemon, SIGTERM);
  const auto begin = steady_clock::now();
  while (StateOf(daemon) != 'Z' && steady_clock::now() - begin < std::chrono::seconds(8)) {
    usleep(10'000);
  }
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace roci::testing
