// Attacks of an ordinary user's program on root's daemon and on other users' programs, with its own
// implementation of the session protocol.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "memory/sigbus_guard.h"
#include "tests/integration/attacker.h"
#include "tests/integration/other_users.h"
#include "tests/integration/raw_session.h"
#include "tests/integration/silent_file.h"
#include "tools/show/manage_client.h"
#include "verbs_provider/abi/list_mr.h"

namespace roci::testing {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint32_t kRawPacket = 8;
constexpr uint32_t kLocalWrite = 1;

class HostileUserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "cannot become another user";
    folder_ = LetOtherUsersIn();
  }
  // Another user's program finds the daemon unaffected.
  static void ExpectServed() {
    RawSession victim;
    ASSERT_EQ(victim.Hello(), 0);
    const uint32_t pd = victim.AllocPd();
    ASSERT_NE(pd, 0u) << victim.error;
    const uint32_t cq = victim.CreateCq(16);
    ASSERT_NE(cq, 0u) << victim.error;
    roci_abi_create_qp_response qp;
    EXPECT_EQ(victim.CreateQp(RawSession::QpRequest(pd, cq), qp), 0);
    static char memory[kPage];
    EXPECT_EQ(Register(victim, pd, reinterpret_cast<uint64_t>(memory), kPage), 0);
  }
  // Registers memory, with `fd` as the file that holds it; returns the errno.
  static int Register(RawSession& session, uint32_t pd, uint64_t start, uint64_t length,
                      int fd = -1) {
    roci_abi_reg_mr_request request{};
    request.pd = pd;
    request.access = kLocalWrite;
    request.start = request.iova = start;
    request.length = length;
    request.extent_count = 1;
    request.fd_count = fd >= 0 ? 1 : 0;
    request.extents[0].va = start;
    request.extents[0].length = length;
    request.extents[0].kind = fd >= 0 ? ROCI_ABI_EXTENT_FD : ROCI_ABI_EXTENT_PROCESS_VM;
    roci_abi_reg_mr_response response;
    return fd >= 0 ? session.Call(ROCI_ABI_REG_MR, request, response, {fd})
                   : session.Call(ROCI_ABI_REG_MR, request, response);
  }

  std::filesystem::path folder_;
};

// An address of private writable memory of process `pid`: its heap or stack.
uint64_t WritableAddressOf(int64_t pid) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/maps", static_cast<int>(pid));
  FILE* maps = std::fopen(path, "r");
  if (maps == nullptr) return 0;
  unsigned long begin = 0, end = 0;
  char rights[8] = {};
  uint64_t found = 0;
  while (std::fscanf(maps, "%lx-%lx %4s%*[^\n]", &begin, &end, rights) == 3) {
    if (rights[0] == 'r' && rights[1] == 'w') found = begin;
  }
  std::fclose(maps);
  return found;
}

bool RunsAsRoot(int64_t pid) {
  struct stat process {};
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d", static_cast<int>(pid));
  return stat(path, &process) == 0 && process.st_uid == 0;
}

uint64_t DaemonAddressSpaceKib() {
  const char* pid = std::getenv("ROCID_PID");
  std::ifstream stream("/proc/" + std::string(pid != nullptr ? pid : "self") + "/status");
  for (std::string word; stream >> word;) {
    uint64_t kib = 0;
    if (word == "VmSize:" && stream >> kib) return kib;
  }
  return 0;
}

std::string NameOf(int64_t pid) {
  std::ifstream stream("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(stream, name);
  return name;
}

alignas(16) char g_stack[256 * 1024];

// The session's process has executed another program with more rights, while its former address
// space is still in use by the process that created it.
TEST_F(HostileUserTest, ASetUserIdProgramIsNotAccessibleToItsFormerSession) {
  const std::filesystem::path program = folder_ / "sleep";
  struct statvfs file_system {};
  ASSERT_EQ(statvfs(folder_.c_str(), &file_system), 0);
  if (file_system.f_flag & ST_NOSUID) GTEST_SKIP() << folder_ << " has no set-user-ID programs";
  std::filesystem::copy_file("/bin/sleep", program);
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  Attacker attacker([&](int line) {
    static int line_of_child;
    static std::unique_ptr<RawSession> session;
    static const char* path;
    line_of_child = line;
    path = program.c_str();
    const auto become = [](void*) {
      session = std::make_unique<RawSession>();
      Line::Send(line_of_child, session->Hello());
      Line::Receive(line_of_child);
      execl(path, "sleep", "60", static_cast<char*>(nullptr));
      _exit(3);
      return 0;
    };
    const int child =
        clone(become, g_stack + sizeof(g_stack), CLONE_VM | CLONE_FILES | SIGCHLD, nullptr);
    // The child keeps the line open until exec.
    while (NameOf(child) != "sleep") usleep(1000);
    Line::Send(line, child);
    const auto address = static_cast<uint64_t>(Line::Receive(line));
    const uint32_t pd = session->AllocPd();
    const uint32_t cq = session->CreateCq(16);
    Line::Send(line, pd == 0 || cq == 0 ? -session->error : 0);
    Line::Send(line, HostileUserTest::Register(*session, pd, address, 8));
    roci_abi_create_qp_response qp;
    Line::Send(line, session->CreateQp(RawSession::QpRequest(pd, cq, kRawPacket), qp));
    Line::Receive(line);
  });
  ASSERT_EQ(attacker.Hear(), 0) << "HELLO";
  attacker.Say(0);
  const int64_t child = attacker.Hear();
  ASSERT_GT(child, 0);
  for (int tries = 0; tries < 6000 && !RunsAsRoot(child); ++tries) usleep(10'000);
  ASSERT_TRUE(RunsAsRoot(child));
  const uint64_t address = WritableAddressOf(child);
  ASSERT_NE(address, 0u);
  attacker.Say(static_cast<int64_t>(address));
  EXPECT_EQ(attacker.Hear(), 0);
  // A region of the old address space (By/AppMemoryTest tests that nothing else is accessible).
  EXPECT_EQ(attacker.Hear(), 0);
  EXPECT_EQ(attacker.Hear(), EPERM) << "the rights of the other program";
  attacker.Say(0);
  kill(static_cast<pid_t>(child), SIGKILL);
  ExpectServed();
}

int HelloWith(int memory) {
  RawSession session;
  return session.Hello("roci0", memory);
}

void KeepCapabilities(uint32_t mask) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {{mask, mask, 0}, {0, 0, 0}};
  if (syscall(SYS_capset, &header, data) != 0) _exit(3);
}

// The errno of HELLO, or of the daemon's refusal of the connection.
int AskForSession(RawSession& session) {
  roci_abi_hello_request request{};
  request.magic = ROCI_ABI_MAGIC;
  request.major = ROCI_ABI_MAJOR;
  std::snprintf(request.device, sizeof(request.device), "roci0");
  session.Send(ROCI_ABI_HELLO, request);
  roci_abi_hello_response response{};
  const ssize_t size = session.ReceiveBytes(std::as_writable_bytes(std::span(&response, 1)));
  return size < static_cast<ssize_t>(sizeof(response.head)) ? EPIPE : response.head.error;
}

// As the root of a container.
struct RootOfContainer {
  explicit RootOfContainer(uint32_t capabilities)
      : process(
            [capabilities](int line) {
              KeepCapabilities(capabilities);
              RawSession session;
              Line::Send(line, session.Hello());
              const uint32_t pd = session.AllocPd();
              const uint32_t cq = session.CreateCq(16);
              roci_abi_create_qp_response qp;
              Line::Send(line, session.CreateQp(RawSession::QpRequest(pd, cq, kRawPacket), qp));
              constexpr uint32_t kUd = 4, kState = 1, kPkeyIndex = 1 << 4, kPort = 1 << 5;
              constexpr uint32_t kQkey = 1 << 6;
              Line::Send(line, session.CreateQp(RawSession::QpRequest(pd, cq, kUd), qp));
              roci_abi_qp_attr attr{};
              attr.state = 1;
              attr.port = 1;
              attr.qkey = 0x80000001;
              Line::Send(line,
                         session.Modify(qp.handle, kState | kPkeyIndex | kPort | kQkey, attr));
              RawSession manage("manage.sock", SOCK_STREAM);
              const char request[] = "{\"command\":\"show\",\"what\":\"apps\"}\n";
              char byte;
              const bool is_sent = send(manage.fd(), request, sizeof(request) - 1, MSG_NOSIGNAL) ==
                                   sizeof(request) - 1;
              Line::Send(line, is_sent && recv(manage.fd(), &byte, 1, 0) == 1 ? 0 : EACCES);
              const rlimit descriptors{4096, 4096};
              setrlimit(RLIMIT_NOFILE, &descriptors);
              std::vector<std::unique_ptr<RawSession>> sessions;
              int error = 0;
              while (error == 0 && sessions.size() < 2000) {
                sessions.push_back(std::make_unique<RawSession>());
                error = AskForSession(*sessions.back());
              }
              Line::Send(line, static_cast<int64_t>(sessions.size()));
              Line::Receive(line);
            },
            0) {}
  Attacker process;
};

// The container's root is not the root of the machine, even if both have the number 0.
TEST_F(HostileUserTest, RootWithoutCapabilitiesIsAnOrdinaryUser) {
  RootOfContainer root(0);
  ASSERT_EQ(root.process.Hear(), 0) << "HELLO";
  EXPECT_EQ(root.process.Hear(), EPERM) << "raw packets";
  EXPECT_EQ(root.process.Hear(), 0) << "UD";
  EXPECT_EQ(root.process.Hear(), EPERM) << "privileged Q_Key";
  EXPECT_EQ(root.process.Hear(), EACCES) << "management";
  const int64_t sessions = root.process.Hear();
  EXPECT_GT(sessions, 100);
  EXPECT_LE(sessions, 512) << "half of the sessions, as other users";
  ExpectServed();
}

TEST_F(HostileUserTest, RootHasWhatItsCapabilitiesGive) {
  RootOfContainer root(1u << CAP_NET_RAW);
  ASSERT_EQ(root.process.Hear(), 0) << "HELLO";
  EXPECT_EQ(root.process.Hear(), 0) << "raw packets";
  EXPECT_EQ(root.process.Hear(), 0) << "UD";
  EXPECT_EQ(root.process.Hear(), 0) << "privileged Q_Key";
  EXPECT_EQ(root.process.Hear(), EACCES) << "management";
}

TEST_F(HostileUserTest, DescriptorsOtherThanMemoryAreRefused) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(HelloWith(ends[0]), EBADF) << "a pipe";
  EXPECT_EQ(HelloWith(ends[1]), EBADF) << "a pipe";
  const int memfd = memfd_create("memory", MFD_CLOEXEC);
  EXPECT_EQ(HelloWith(memfd), EBADF) << "a file in memory";
  for (const char* path : {"/dev/zero", "/proc/self/comm", "/proc/self/attr/current"}) {
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
      EXPECT_EQ(HelloWith(fd), EBADF) << path;
    }
    close(fd);
  }
  const int readable = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(HelloWith(readable), EBADF) << "memory for reading only";
  const int path_only = open("/proc/self/mem", O_PATH | O_CLOEXEC);
  EXPECT_EQ(HelloWith(path_only), EBADF) << "a path";
  const int own = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(HelloWith(own), 0) << "memory";
  for (const int fd : {ends[0], ends[1], memfd, readable, path_only, own}) close(fd);
  ExpectServed();
}

// As in Linux. Users who may search a folder can open its files with O_PATH, also files that only
// other users may read.
TEST_F(HostileUserTest, APathDescriptorGivesNoAccessToAnXrcDomain) {
  RawSession session;
  ASSERT_EQ(session.Hello(), 0);
  roci_abi_open_xrcd_request request{};
  request.has_file = 1;
  request.flags = ROCI_ABI_XRCD_CREATE;
  roci_abi_handle_response response;
  const std::filesystem::path name = folder_ / "domain";
  std::ofstream(name).flush();
  const int path_only = open(name.c_str(), O_PATH | O_CLOEXEC);
  const int opened = open(name.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(session.Call(ROCI_ABI_OPEN_XRCD, request, response, {path_only}), EBADF);
  EXPECT_EQ(session.Call(ROCI_ABI_OPEN_XRCD, request, response, {opened}), 0);
  EXPECT_EQ(session.Call(ROCI_ABI_OPEN_XRCD, request, response, {path_only}), EBADF);
  close(path_only);
  close(opened);
}

// A kernel setting (0600, in procfs) with the name of a memory file.
TEST_F(HostileUserTest, AnotherProcfsFileIsRefusedAsMemory) {
  const std::filesystem::path name = folder_ / "mem";
  std::ofstream(name).flush();
  const char* setting = "/proc/sys/kernel/cad_pid";
  if (mount(setting, name.c_str(), nullptr, MS_BIND, nullptr) != 0) GTEST_SKIP() << "no setting";
  const int fd = open(name.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_GT(HelloWith(fd), 0);
  close(fd);
  umount2(name.c_str(), MNT_DETACH);
}

TEST_F(HostileUserTest, TheMemoryOfAnotherProgramIsRefused) {
  const pid_t other = fork();
  if (other == 0) {
    execl("/bin/sleep", "sleep", "60", static_cast<char*>(nullptr));
    _exit(3);
  }
  while (NameOf(other) != "sleep") usleep(1000);
  const std::string path = "/proc/" + std::to_string(other) + "/mem";
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(HelloWith(fd), EPERM);
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  EXPECT_EQ(HelloWith(fd), ESRCH) << "memory of an ended process";
  close(fd);
  ExpectServed();
}

constexpr rlim_t kWatchers = 10'000;

// Returns events to the daemon, which sends them again; 10,000 epoll instances watch the socket.
// Says the number of events that came.
void WakeThousandsByEvents(int line) {
  constexpr int64_t kEvents = 100;
  RawSession session;
  if (session.Hello() != 0) return Line::Send(line, -1);
  const int events = dup(session.fds()[2]);
  const timeval patience{30, 0};
  setsockopt(events, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  epoll_event wanted{.events = EPOLLIN, .data = {}};
  for (rlim_t i = 0; i < kWatchers; ++i) {
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, events, &wanted) != 0) {
      return Line::Send(line, -2);
    }
  }
  roci_abi_return_events_request request{};
  request.channel = ROCI_ABI_NO_HANDLE;
  request.count = 1;
  int64_t came = 0;
  for (; came < kEvents; ++came) {
    roci_abi_plain_response response;
    if (session.Call(ROCI_ABI_RETURN_EVENTS, request, response) != 0) break;
    roci_abi_async_event event;
    if (read(events, &event, sizeof(event)) != ssize_t{sizeof(event)}) break;
  }
  Line::Send(line, came);
  Line::Receive(line);
}

// Events whose writing took long, on lcores.
uint64_t SlowEvents() {
  const auto lcores = tools::AskDaemon("", {{"command", "show"}, {"what", "lcores"}});
  EXPECT_TRUE(lcores.ok()) << lcores.status();
  uint64_t slow = 0;
  for (const nlohmann::json& lcore : *lcores) slow += lcore.value("events_slow", uint64_t{0});
  return slow;
}

TEST_F(HostileUserTest, EventsThatWakeThousandsDelayOthersOnce) {
  constexpr rlim_t kOthers = 500;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const rlimit before = files;
  files.rlim_cur = std::max(files.rlim_cur, kWatchers + kOthers);
  files.rlim_max = std::max(files.rlim_max, kWatchers + kOthers);
  if (setrlimit(RLIMIT_NOFILE, &files) != 0) GTEST_SKIP() << "too few descriptors are permitted";
  const uint64_t slow = SlowEvents();
  for (int sessions = 0; sessions < 2; ++sessions) {
    Attacker attacker(WakeThousandsByEvents);
    EXPECT_EQ(attacker.Hear(), 100);
    attacker.Say(0);
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(SlowEvents() - slow, 1U) << "of 200 events";
  ExpectServed();
}

TEST_F(HostileUserTest, AFileOfASilentServerDelaysNoOtherProgram) {
  const SilentFile file(folder_ / "silent");
  if (file.fd() < 0) GTEST_SKIP() << "FUSE is not available";
  EXPECT_EQ(HelloWith(file.fd()), EBADF);
  ExpectServed();
}

// Sparse files may have any length, and use virtual addresses of the daemon: from the longest down
// to a page, four of each, and for each one page more that shares its mapping.
TEST_F(HostileUserTest, LongFilesLeaveAddressesToOthers) {
  constexpr int kLongest = 45, kShortest = 12;
  Attacker attacker([](int line) {
    RawSession session;
    const int error = session.Hello();
    const uint32_t pd = session.AllocPd();
    void* at = mmap(nullptr, uint64_t{1} << kLongest, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (error != 0 || at == MAP_FAILED) _exit(3);
    const auto va = reinterpret_cast<uint64_t>(at);
    int64_t registered = 0;
    for (int bits = kLongest; bits >= kShortest; --bits) {
      for (int i = 0; i < 4; ++i) {
        const uint64_t length = uint64_t{1} << bits;
        const int fd = memfd_create("long", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (ftruncate(fd, static_cast<off_t>(length)) != 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
          _exit(3);
        }
        registered += HostileUserTest::Register(session, pd, va, length, fd) == 0;
        registered += HostileUserTest::Register(session, pd, va, kPage, fd) == 0;
        close(fd);
      }
    }
    Line::Send(line, registered);
    Line::Receive(line);
  });
  EXPECT_GT(attacker.Hear(), 0);
  EXPECT_LT(DaemonAddressSpaceKib(), uint64_t{40} << 30) << "40 TiB";
  ExpectServed();
  const int fd = memfd_create("short", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, kPage), 0);
  void* at = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  RawSession victim;
  ASSERT_EQ(victim.Hello(), 0);
  EXPECT_EQ(Register(victim, victim.AllocPd(), reinterpret_cast<uint64_t>(at), kPage, fd), 0);
  munmap(at, kPage);
  close(fd);
}

// The daemon's mapping of a file that may shrink needs a place in the table of
// memory/sigbus_guard.h.
class GuardPlacesTest : public HostileUserTest {
 protected:
  static constexpr uint64_t kPlaces = memory::SigbusGuard::kCapacity;

  static uint64_t Taken() {
    const char* pid = std::getenv("ROCID_PID");
    std::ifstream maps("/proc/" + std::string(pid != nullptr ? pid : "self") + "/maps");
    uint64_t count = 0;
    for (std::string line; std::getline(maps, line);) {
      count += line.find("memfd:shrinkable") != std::string::npos ? 1 : 0;
    }
    return count;
  }
  // Sessions and mappings are freed shortly after their programs end.
  static bool AreAllFree() {
    for (int tries = 0; tries < 600 && Taken() != 0; ++tries) usleep(50'000);
    return Taken() == 0;
  }
  // A session that has opened its device. What an earlier test of the user has used is freed in
  // parts, and until then the daemon may refuse connections. Not deleted.
  static RawSession& ConnectWhenFree() {
    for (int tries = 0; tries < 600; ++tries) {
      auto* session = new RawSession();
      if (session->Hello() == 0) return *session;
      delete session;
      usleep(50'000);
    }
    _exit(3);
  }
  static int MakeFile() {
    const int fd = memfd_create("shrinkable", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, kPage) != 0) _exit(3);
    return fd;
  }
  static int RegisterFile(RawSession& session, uint32_t pd, int fd) {
    static char memory[kPage];
    return Register(session, pd, reinterpret_cast<uint64_t>(memory), kPage, fd);
  }
  // Registers `files` files; then, if `until_refused`, the last one again until that is refused.
  // Reports the error, and keeps the regions.
  static void Take(int line, uint64_t files, bool until_refused) {
    RawSession& session = ConnectWhenFree();
    const uint32_t pd = session.AllocPd();
    int error = 0;
    int fd = -1;
    for (uint64_t made = 0; error == 0 && (made < files || until_refused); ++made) {
      if (made < files) {
        if (fd >= 0) close(fd);
        fd = MakeFile();
      }
      error = RegisterFile(session, pd, fd);
      if (error != 0 && made <= files) error = -error;
    }
    Line::Send(line, error);
    Line::Receive(line);
  }
};

// A user beyond the quota of mappings gets regions that are not mapped, up to the quota of regions.
TEST_F(GuardPlacesTest, TwoUsersLeaveSomeToOthers) {
  {
    Attacker first([](int line) { Take(line, kPlaces + 1, true); });
    EXPECT_EQ(first.Hear(), ENOMEM);
    EXPECT_EQ(Taken(), kPlaces / 2) << "limits.user_percent";
    Attacker second([](int line) { Take(line, kPlaces + 1, false); }, kNobody - 1);
    EXPECT_EQ(second.Hear(), 0);
    EXPECT_EQ(Taken(), kPlaces - kPlaces / 16) << "the reserve";
    ExpectServed();
    RawSession victim;
    ASSERT_EQ(victim.Hello(), 0);
    const int fd = MakeFile();
    EXPECT_EQ(RegisterFile(victim, victim.AllocPd(), fd), 0);
    EXPECT_EQ(Taken(), kPlaces - kPlaces / 16 + 1);
    close(fd);
  }
  EXPECT_TRUE(AreAllFree());
  Attacker again([](int line) { Take(line, kPlaces / 2 + 1, false); });
  EXPECT_EQ(again.Hear(), 0);
  EXPECT_EQ(Taken(), kPlaces / 2) << "same number as before";
}

// Each uses one or two mappings of the daemon; the kernel allows about 65,000.
TEST_F(HostileUserTest, ListRegionsLeaveMappingsToOthers) {
  Attacker attacker([](int line) {
    // Both before the regions: a user without mappings gets no further connection, and the daemon
    // closes connections that open no device soon.
    RawSession sessions[2];
    if (sessions[0].Hello("roci0") != 0 || sessions[1].Hello("roci1") != 0) _exit(3);
    int64_t made = 0;
    for (RawSession& session : sessions) {
      roci_abi_alloc_list_mr_request request{};
      request.pd = session.AllocPd();
      request.max_runs = 1;
      roci_abi_alloc_list_mr_response response;
      while (session.Call(ROCI_ABI_ALLOC_LIST_MR, request, response) == 0) ++made;
      if (session.fd() < 0) break;
    }
    Line::Send(line, made);
    Line::Receive(line);
  });
  EXPECT_GT(attacker.Hear(), 1000);
  ExpectServed();
}

}  // namespace
}  // namespace roci::testing
