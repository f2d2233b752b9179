// Every kind of descriptor, passed with every kind of message. If the daemon accepts one as memory,
// the region is used while the file changes.
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/messages.h"

namespace roci::testing::hostile {
namespace {

constexpr size_t kFileBytes = 16 * kPage;

// -1: not available.
using Open = std::function<int()>;

int Memfd(unsigned flags, int seals, off_t size = kFileBytes) {
  const int fd = memfd_create("hostile", MFD_CLOEXEC | flags);
  if (fd < 0 || ftruncate(fd, size) != 0) return -1;
  if (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) != 0) return -1;
  return fd;
}

// A file in `folder`, without a name.
int DeletedFile(const char* folder, int flags) {
  char path[64];
  std::snprintf(path, sizeof(path), "%s/h.XXXXXX", folder);
  const int made = mkstemp(path);
  if (made < 0 || ftruncate(made, kFileBytes) != 0) return -1;
  const int fd = open(path, flags | O_CLOEXEC);
  close(made);
  unlink(path);
  return fd;
}

int PipeEnd(int which) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  close(ends[1 - which]);
  return ends[which];
}

int SocketOf(int family, int type) {
  if (family != AF_UNIX) return socket(family, type | SOCK_CLOEXEC, 0);
  int ends[2];
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  close(ends[1]);
  return ends[0];
}

int EpollOfItself() {
  const int fd = epoll_create1(EPOLL_CLOEXEC);
  const int inner = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  epoll_ctl(fd, EPOLL_CTL_ADD, inner, &event);
  close(inner);
  return fd;
}

int Terminal() {
  const int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  return fd >= 0 && grantpt(fd) == 0 && unlockpt(fd) == 0 ? fd : -1;
}

int SignalFd() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  return signalfd(-1, &set, SFD_CLOEXEC);
}

int Ring() {
  io_uring_params params{};
  return static_cast<int>(syscall(SYS_io_uring_setup, 4, &params));
}

int Opened(const char* path, int flags) { return open(path, flags | O_CLOEXEC); }

// Descriptors passed by the daemon, in a session that lives as long as the process.
int DaemonsOwn(int which) {
  static Speaker speaker;
  switch (which) {
    case 0:
      return dup(speaker.rig.wake_fd);
    case 1:
      return dup(speaker.rig.async_fd);
    case 2:
      return dup(speaker.rig.fd());
    case 3:
      speaker.rig.MakeCq(16);
      return dup(speaker.rig.fds()[0]);
    case 4:
      speaker.rig.MakeQp();
      return dup(speaker.rig.fds()[0]);
    default:
      return -1;
  }
}

// Each command with one descriptor, and with the maximum number.
void PassWithEach(Speaker& speaker, int fd) {
  for (const MessageKind& kind : MessageKinds()) {
    const bool takes = kind.command == ROCI_ABI_REG_MR || kind.command == ROCI_ABI_REREG_MR ||
                       kind.command == ROCI_ABI_OPEN_XRCD ||
                       kind.command == ROCI_ABI_REG_DMA_BUFFER_MR;
    for (const size_t count : {size_t{1}, size_t{16}}) {
      const int error = speaker.Ask(speaker.Valid(kind), std::vector<int>(count, fd));
      EXPECT_GE(error, 0) << kind.name << ": no answer";
      const bool is_refused = takes || error != 0;
      EXPECT_TRUE(is_refused) << kind.name << " with " << count << " descriptors";
    }
  }
}

void OpenDomainOf(Speaker& speaker, int fd) {
  roci_abi_open_xrcd_request request{};
  request.has_file = 1;
  roci_abi_handle_response response;
  for (const uint32_t flags : {ROCI_ABI_XRCD_CREATE, ROCI_ABI_XRCD_CREATE, 0u,
                               ROCI_ABI_XRCD_CREATE | ROCI_ABI_XRCD_EXCLUSIVE}) {
    request.flags = flags;
    EXPECT_GE(speaker.rig.Call(ROCI_ABI_OPEN_XRCD, request, response, {fd}), 0);
  }
}

void AttachTo(int fd) {
  RawSession session;
  roci_abi_attach_request request{};
  request.magic = ROCI_ABI_MAGIC;
  request.major = ROCI_ABI_MAJOR;
  roci_abi_attach_response response;
  EXPECT_NE(session.Call(ROCI_ABI_ATTACH, request, response, {fd}), 0);
}

// READs from and WRITEs to the registered memory.
void Use(RigPair& pair, const Region& region) {
  for (const uint8_t opcode : {ROCI_ABI_WR_RDMA_WRITE, ROCI_ABI_WR_RDMA_READ, ROCI_ABI_WR_SEND,
                               ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD}) {
    const bool is_atomic = opcode == ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD;
    pair.near.Post(pair.near_qp, pair.ValidWqe(opcode),
                   {region.Sge(is_atomic ? 8 : 2 * kPage, kPage / 2)});
  }
  for (const auto end = Clock::now() + Milliseconds(10); Clock::now() < end;) {
    while (pair.near.cq.Poll() || pair.far.cq.Poll()) {
    }
  }
  pair.Reconnect();
}

void RegisterAndUse(int fd) {
  RigPair pair;
  static std::byte memory[kFileBytes];
  Region region;
  for (const uint32_t access : {kAllAccess, 0u}) {
    for (const uint64_t offset : {uint64_t{0}, uint64_t{kPage}, uint64_t{100}, kFileBytes * 4,
                                  uint64_t{1} << 40, uint64_t{1} << 62}) {
      if (pair.near.Register(memory, 4 * kPage, region, access, fd, offset) != 0) continue;
      Use(pair, region);
      [[maybe_unused]] int failed = ftruncate(fd, static_cast<off_t>(kPage));
      Use(pair, region);
      failed = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kFileBytes);
      Use(pair, region);
      failed = ftruncate(fd, 0);
      Use(pair, region);
      failed = ftruncate(fd, kFileBytes);
      Use(pair, region);
      EXPECT_EQ(pair.near.OnHandle(ROCI_ABI_DEREG_MR, region.handle), 0);
    }
  }
}

// A file that another user may only read must not be written: root's daemon has more rights.
void ReadOnlyFileIsNotWritten(Scene&) {
  const int fd = Opened("/etc/passwd", O_RDONLY);
  if (fd < 0) Lacks("/etc/passwd");
  char before[kPage] = {}, after[kPage] = {};
  ASSERT_GT(pread(fd, before, sizeof(before), 0), 0);
  void* at = mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(at, MAP_FAILED);
  RigPair pair;
  Region region;
  for (const uint32_t kind :
       {ROCI_ABI_EXTENT_FD, ROCI_ABI_EXTENT_MAP_FILES, ROCI_ABI_EXTENT_PROCESS_VM}) {
    roci_abi_reg_mr_request request{};
    request.pd = pair.near.pd;
    request.access = kAllAccess;
    request.start = request.iova = reinterpret_cast<uint64_t>(at);
    request.length = kPage;
    request.extent_count = 1;
    request.fd_count = kind == ROCI_ABI_EXTENT_FD ? 1 : 0;
    request.extents[0] = {request.start, kPage, 0, request.start, request.start + kPage, kind, 0};
    roci_abi_reg_mr_response response;
    const std::vector<int> fds(request.fd_count, fd);
    if (pair.near.Call(ROCI_ABI_REG_MR, request, response, fds) != 0) continue;
    region = {static_cast<std::byte*>(at), kPage, response.handle, response.lkey};
    pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_READ), {region.Sge(64)});
    usleep(20'000);
    pair.Reconnect();
  }
  ASSERT_GT(pread(fd, after, sizeof(after), 0), 0);
  EXPECT_EQ(std::memcmp(before, after, sizeof(before)), 0) << "/etc/passwd was written";
}

// Linux does not pass io_uring descriptors.
bool CanBePassed(int fd) {
  RawSession session;
  roci_abi_plain_request request{};
  return session.Send(ROCI_ABI_ALLOC_PD, request, {fd});
}

auto Passed(const std::string& what, const Open& open_one) {
  return [=](Scene&) {
    const int fd = open_one();
    if (fd < 0 || !CanBePassed(fd)) Lacks(what);
    {
      Speaker speaker;
      PassWithEach(speaker, fd);
    }
    Speaker speaker;
    OpenDomainOf(speaker, fd);
    AttachTo(fd);
    RegisterAndUse(fd);
    close(fd);
  };
}

// More descriptors than a message may have: it is refused, and none stays open.
void TooManyDescriptors(Scene&) {
  const int fd = Memfd(0, 0);
  Speaker speaker;
  for (const size_t count : {17, 32, 64}) {
    for (const MessageKind& kind : MessageKinds()) {
      EXPECT_EQ(speaker.Ask(speaker.Valid(kind), std::vector<int>(count, fd)), EINVAL) << kind.name;
    }
  }
}

void NoneWhereWanted(Scene&) {
  Speaker speaker;
  roci_abi_reg_mr_request request{};
  request.pd = speaker.rig.pd;
  request.access = kAllAccess;
  request.start = request.iova = speaker.rig.region.va();
  request.length = kPage;
  request.extent_count = 1;
  request.extents[0] = {request.start, kPage, 0, 0, 0, ROCI_ABI_EXTENT_FD, 0};
  roci_abi_reg_mr_response response;
  EXPECT_NE(speaker.rig.Call(ROCI_ABI_REG_MR, request, response), 0);
  request.fd_count = 1;
  EXPECT_NE(speaker.rig.Call(ROCI_ABI_REG_MR, request, response), 0);
  roci_abi_open_xrcd_request open{};
  open.has_file = 1;
  open.flags = ROCI_ABI_XRCD_CREATE;
  roci_abi_handle_response opened;
  EXPECT_NE(speaker.rig.Call(ROCI_ABI_OPEN_XRCD, open, opened), 0);
  RawSession session;
  roci_abi_attach_request attach{};
  attach.magic = ROCI_ABI_MAGIC;
  attach.major = ROCI_ABI_MAJOR;
  roci_abi_attach_response attached;
  EXPECT_NE(session.Call(ROCI_ABI_ATTACH, attach, attached), 0);
}

// Sockets that are in flight over each other, which only the kernel's garbage collector frees.
void SocketsInEachOther(Scene& scene) {
  while (scene.Goes()) {
    RawSession session;
    ASSERT_EQ(session.Hello(), 0);
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    for (const int fd : {ends[0], ends[1], session.fd()}) {
      roci_abi_plain_request request{};
      session.Send(ROCI_ABI_ALLOC_PD, request, {fd, ends[0]});
    }
    close(ends[0]);
    close(ends[1]);
  }
}

// Descriptors wait with messages that are never read.
void DescriptorsInFlight(Scene& scene) {
  Speaker speaker;
  fcntl(speaker.rig.fd(), F_SETFL, O_NONBLOCK);
  const int fd = Memfd(0, 0);
  const std::vector<std::byte> message = speaker.Valid(MessageKinds()[0]);
  while (scene.Goes()) {
    for (int i = 0; i < 100; ++i) speaker.rig.SendBytes(message, std::vector<int>(16, fd));
  }
}

}  // namespace

void AddDescriptorAttacks(Attacks& out) {
  const auto add = [&](const char* name, std::function<void(Scene&)> run, bool in_sample = false) {
    out.push_back({"Descriptors", name, std::move(run), in_sample});
  };
  const auto pass = [&](const char* name, const Open& open_one, bool in_sample = false) {
    add(name, Passed(name, open_one), in_sample);
  };
  pass("PipeToRead", [] { return PipeEnd(0); });
  pass("PipeToWrite", [] { return PipeEnd(1); });
  pass("StreamSocket", [] { return SocketOf(AF_UNIX, SOCK_STREAM); });
  pass("PacketSocket", [] { return SocketOf(AF_UNIX, SOCK_SEQPACKET); });
  pass("TcpSocket", [] { return SocketOf(AF_INET, SOCK_STREAM); });
  pass("UdpSocket", [] { return SocketOf(AF_INET6, SOCK_DGRAM); });
  pass(
      "Memfd", [] { return Memfd(0, 0); }, true);
  pass(
      "MemfdSealed", [] { return Memfd(MFD_ALLOW_SEALING, F_SEAL_SHRINK | F_SEAL_GROW); }, true);
  pass("MemfdSealedAgainstWrites", [] { return Memfd(MFD_ALLOW_SEALING, F_SEAL_WRITE); });
  pass("MemfdSealedAgainstFutureWrites",
       [] { return Memfd(MFD_ALLOW_SEALING, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK); });
  pass("MemfdEmpty", [] { return Memfd(0, 0, 0); });
  pass(
      "MemfdSealedTooShort", [] { return Memfd(MFD_ALLOW_SEALING, F_SEAL_SHRINK, 100); }, true);
  pass("MemfdHuge", [] { return Memfd(MFD_HUGETLB, 0, 4 << 20); });
  pass("SecretMemory", [] { return static_cast<int>(syscall(447, 0)); });
  pass("Directory", [] { return Opened("/tmp", O_RDONLY | O_DIRECTORY); });
  pass(
      "PathOnly", [] { return Opened("/tmp", O_PATH); }, true);
  pass("Epoll", EpollOfItself);
  pass("Timer", [] { return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC); });
  pass("Signals", SignalFd);
  pass("Inotify", [] { return inotify_init1(IN_CLOEXEC); });
  pass("Eventfd", [] { return eventfd(0, EFD_CLOEXEC); });
  pass("DevNull", [] { return Opened("/dev/null", O_RDWR); });
  pass(
      "DevZero", [] { return Opened("/dev/zero", O_RDWR); }, true);
  pass("DevFull", [] { return Opened("/dev/full", O_RDWR); });
  pass("DevRandom", [] { return Opened("/dev/urandom", O_RDONLY); });
  pass("Terminal", Terminal);
  pass("Userfaultfd",
       [] { return static_cast<int>(syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY | O_CLOEXEC)); });
  pass("Pidfd", [] { return static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)); });
  pass("IoUring", Ring);
  pass("OwnMemory", [] { return Opened("/proc/self/mem", O_RDWR); });
  pass("OwnMappings", [] { return Opened("/proc/self/maps", O_RDONLY); });
  pass("OwnPages", [] { return Opened("/proc/self/pagemap", O_RDONLY); });
  pass("OwnNamespace", [] { return Opened("/proc/self/ns/net", O_RDONLY); });
  pass("SysFile", [] { return Opened("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY); });
  pass("WriteOnly", [] { return DeletedFile("/tmp", O_WRONLY); });
  pass("AppendOnly", [] { return DeletedFile("/tmp", O_RDWR | O_APPEND); });
  pass("ReadOnly", [] { return DeletedFile("/tmp", O_RDONLY); });
  pass(
      "Deleted", [] { return DeletedFile("/tmp", O_RDWR); }, true);
  pass("DeletedInMemory", [] { return DeletedFile("/dev/shm", O_RDWR); });
  pass("Executable", [] { return Opened("/proc/self/exe", O_RDONLY); });
  pass(
      "DaemonsWakeup", [] { return DaemonsOwn(0); }, true);
  pass("DaemonsEventSocket", [] { return DaemonsOwn(1); });
  pass("DaemonsSocket", [] { return DaemonsOwn(2); });
  pass(
      "DaemonsCompletionQueue", [] { return DaemonsOwn(3); }, true);
  pass("DaemonsQueuePair", [] { return DaemonsOwn(4); });
  add("TooMany", TooManyDescriptors, true);
  add("NoneWhereWanted", NoneWhereWanted, true);
  add("SocketsInEachOther", SocketsInEachOther);
  add("InFlight", DescriptorsInFlight);
  add("ReadOnlyFileIsNotWritten", ReadOnlyFileIsNotWritten, true);
}

}  // namespace roci::testing::hostile
