// Identifiers of librdmacm before they are connected: binding, listening, options, resolving.
#include <fcntl.h>
#include <infiniband/sa.h>
#include <linux/capability.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "tests/integration/cm_end.h"

namespace roci::testing {
namespace {

constexpr char kNobody[] = "10.99.0.77";
constexpr char kNobodyElse[] = "10.99.0.78";  // not resolved yet
constexpr char kElsewhere[] = "192.0.2.1";

TEST(CmApi, FailedResolutionLeavesNothing) {
  EventChannel channel;
  const Id id = channel.Create();
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, Address(kNobody, 1).get(), 300), 0);
  EXPECT_EQ(ErrorOf(rdma_resolve_addr(id.get(), nullptr, Address(kFar, 1).get(), 300)), EINVAL)
      << "under way";
  EXPECT_EQ(channel.Expect(RDMA_CM_EVENT_ADDR_ERROR).status, -ETIMEDOUT);
  EXPECT_EQ(id->verbs, nullptr) << "it has no device yet";
  EXPECT_EQ(ErrorOf(rdma_resolve_addr(id.get(), nullptr, Address(kElsewhere, 1).get(), 300)),
            ENETUNREACH);
  // An address of another device only.
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, Address("10.77.0.1", 7).get(), 10'000), 0)
      << strerror(errno);
  channel.Expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_NE(id->verbs, nullptr);
}

TEST(CmApi, FailedResolutionKeepsTheBinding) {
  EventChannel channel;
  const Id id = channel.Create();
  ASSERT_EQ(rdma_resolve_addr(id.get(), Address(kNear).get(), Address(kNobodyElse, 1).get(), 300),
            0);
  channel.Expect(RDMA_CM_EVENT_ADDR_ERROR);
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, Address(kFar, 1).get(), 10'000), 0)
      << strerror(errno);
  channel.Expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  char source[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &id->route.addr.src_sin.sin_addr, source, sizeof(source));
  EXPECT_STREQ(source, kNear);
}

int SetNumber(const Id& id, int name, int value) {
  return ErrorOf(rdma_set_option(id.get(), RDMA_OPTION_ID, name, &value, sizeof(value)));
}

int SetByte(const Id& id, int name, uint8_t value) {
  return ErrorOf(rdma_set_option(id.get(), RDMA_OPTION_ID, name, &value, sizeof(value)));
}

TEST(CmApi, BindingTakesTheAddress) {
  EventChannel channel;
  const Id id = channel.Create();
  ASSERT_EQ(rdma_bind_addr(id.get(), Address(kNear).get()), 0) << strerror(errno);
  EXPECT_NE(id->verbs, nullptr);
  const uint16_t port = ntohs(rdma_get_src_port(id.get()));
  EXPECT_GE(port, 32768);
  EXPECT_EQ(ErrorOf(rdma_bind_addr(id.get(), Address(kNear).get())), EINVAL) << "bound already";
  const Id second = channel.Create();
  EXPECT_EQ(ErrorOf(rdma_bind_addr(second.get(), Address(kNear, port).get())), EADDRINUSE);
  EXPECT_EQ(ErrorOf(rdma_bind_addr(second.get(), Address("0.0.0.0", port).get())), EADDRNOTAVAIL);
  for (const char* not_ours : {kElsewhere, "224.1.1.1", "10.99.0.255", "fd72::5"}) {
    EXPECT_EQ(ErrorOf(rdma_bind_addr(second.get(), Address(not_ours).get())), EADDRNOTAVAIL)
        << not_ours;
  }
  EXPECT_EQ(rdma_bind_addr(second.get(), Address(kFar, port).get()), 0)
      << "another address: " << strerror(errno);
}

TEST(CmApi, ListeningBindsAnUnboundIdentifier) {
  EventChannel channel;
  const Id id = channel.Create();
  EXPECT_EQ(rdma_listen(id.get(), 0), 0) << strerror(errno);
  EXPECT_NE(rdma_get_src_port(id.get()), 0);
  EXPECT_EQ(ErrorOf(rdma_listen(id.get(), 0)), EINVAL);
  EXPECT_EQ(ErrorOf(rdma_resolve_addr(id.get(), nullptr, Address(kFar, 1).get(), 100)), EINVAL);
}

TEST(CmApi, ReusedAddressesHaveOneListener) {
  EventChannel channel;
  const Id first = channel.Create();
  const Id second = channel.Create();
  ASSERT_EQ(rdma_bind_addr(first.get(), Address(kNear, 7301).get()), 0) << strerror(errno);
  EXPECT_EQ(SetNumber(second, RDMA_OPTION_ID_REUSEADDR, 1), 0);
  EXPECT_EQ(ErrorOf(rdma_bind_addr(second.get(), Address(kNear, 7301).get())), EADDRINUSE)
      << "both have to agree";
  EXPECT_EQ(SetNumber(first, RDMA_OPTION_ID_REUSEADDR, 1), 0) << "of one that is bound";
  EXPECT_EQ(SetNumber(first, RDMA_OPTION_ID_REUSEADDR, 0), EINVAL) << "others rely on it";
  EXPECT_EQ(rdma_bind_addr(second.get(), Address(kNear, 7301).get()), 0) << strerror(errno);
  EXPECT_EQ(ErrorOf(rdma_listen(first.get(), 0)), EADDRINUSE);
}

TEST(CmApi, ReuseMayBeSetUntilListening) {
  EventChannel channel;
  const Id active = channel.Route(kFar, 1);
  EXPECT_EQ(SetNumber(active, RDMA_OPTION_ID_REUSEADDR, 1), 0);
  EXPECT_EQ(SetNumber(active, RDMA_OPTION_ID_REUSEADDR, 0), EINVAL);
  const Id listener = channel.Listen(kFar, 7302);
  EXPECT_EQ(SetNumber(listener, RDMA_OPTION_ID_REUSEADDR, 1), EINVAL);
  EXPECT_EQ(SetNumber(listener, RDMA_OPTION_ID_AFONLY, 1), EINVAL);
}

TEST(CmApi, FamiliesShareAPortIfAsked) {
  EventChannel channel;
  const Id ipv6 = channel.Create();
  const Id ipv4 = channel.Create();
  EXPECT_EQ(SetNumber(ipv6, RDMA_OPTION_ID_AFONLY, 1), 0);
  ASSERT_EQ(rdma_bind_addr(ipv6.get(), Address("::", 7303).get()), 0) << strerror(errno);
  EXPECT_EQ(rdma_bind_addr(ipv4.get(), Address("0.0.0.0", 7303).get()), 0) << strerror(errno);
  EXPECT_EQ(rdma_listen(ipv6.get(), 0), 0);
  EXPECT_EQ(rdma_listen(ipv4.get(), 0), 0);
  // Otherwise an IPv6 listener serves both families.
  const Id both = channel.Listen("::", 7304);
  const Id neither = channel.Create();
  EXPECT_EQ(ErrorOf(rdma_bind_addr(neither.get(), Address("0.0.0.0", 7304).get())), EADDRNOTAVAIL);
}

TEST(CmApi, OptionsAreChecked) {
  EventChannel channel;
  const Id id = channel.Create();
  EXPECT_EQ(SetByte(id, RDMA_OPTION_ID_TOS, 32), 0);
  EXPECT_EQ(SetNumber(id, RDMA_OPTION_ID_TOS, 32), EINVAL) << "length";
  EXPECT_EQ(SetByte(id, RDMA_OPTION_ID_REUSEADDR, 1), EINVAL) << "length";
  EXPECT_EQ(SetByte(id, RDMA_OPTION_ID_ACK_TIMEOUT, 31), 0);
  EXPECT_EQ(SetByte(id, RDMA_OPTION_ID_ACK_TIMEOUT, 32), EINVAL);
  EXPECT_EQ(SetByte(id, 77, 1), ENOSYS);
  uint8_t value = 1;
  EXPECT_EQ(ErrorOf(rdma_set_option(id.get(), 5, RDMA_OPTION_ID_TOS, &value, 1)), ENOSYS);
  EXPECT_EQ(ErrorOf(rdma_set_option(id.get(), RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &value, 0)),
            EINVAL);
  const Id datagram = channel.Create(RDMA_PS_UDP);
  EXPECT_EQ(SetByte(datagram, RDMA_OPTION_ID_ACK_TIMEOUT, 14), EINVAL) << "has no acknowledgements";
}

TEST(CmApi, APathFromTheProgramIsARoute) {
  EventChannel channel;
  const Id id = channel.Create();
  ibv_path_data path = {};
  path.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
  const auto set_path = [&] {
    return ErrorOf(
        rdma_set_option(id.get(), RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)));
  };
  EXPECT_EQ(set_path(), EINVAL) << "to where?";
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, Address(kFar, 1).get(), 10'000), 0);
  channel.Expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(set_path(), 0) << strerror(errno);
  channel.Expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(id->route.num_paths, 1);
}

std::string Text(const in_addr& address) {
  char text[INET_ADDRSTRLEN];
  return inet_ntop(AF_INET, &address, text, sizeof(text));
}

TEST(CmApi, ResolutionErrors) {
  EventChannel channel;
  const Id id = channel.Create();
  EXPECT_EQ(ErrorOf(rdma_resolve_addr(id.get(), nullptr, Address(kElsewhere, 1).get(), 100)),
            ENETUNREACH);
  EXPECT_EQ(
      ErrorOf(rdma_resolve_addr(id.get(), nullptr, Address("fd72:6f63:6900::1", 1).get(), 100)),
      EINVAL)
      << "already bound to the other family";
  const Id mixed = channel.Create();
  EXPECT_EQ(ErrorOf(rdma_resolve_addr(mixed.get(), Address("fd72:6f63:6900::1").get(),
                                      Address(kFar, 1).get(), 100)),
            EINVAL);
  const Id foreign = channel.Create();
  EXPECT_EQ(ErrorOf(rdma_resolve_addr(foreign.get(), Address(kElsewhere).get(),
                                      Address(kFar, 1).get(), 100)),
            EADDRNOTAVAIL);
  const Id bound = channel.Create();
  ASSERT_EQ(rdma_bind_addr(bound.get(), Address(kNear).get()), 0);
  EXPECT_EQ(ErrorOf(rdma_resolve_route(bound.get(), 100)), EINVAL);
  rdma_conn_param parameters = Parameters();
  EXPECT_EQ(ErrorOf(rdma_connect(bound.get(), &parameters)), EINVAL);
  EXPECT_TRUE(channel.IsQuiet());
}

TEST(CmApi, LoopbackLeadsToTheDeviceItself) {
  EventChannel channel;
  for (const char* loopback : {"127.0.0.1", "0.0.0.0"}) {
    const Id id = channel.Create();
    ASSERT_EQ(rdma_resolve_addr(id.get(), Address(kFar).get(), Address(loopback, 1).get(), 10'000),
              0)
        << strerror(errno);
    channel.Expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(Text(id->route.addr.src_sin.sin_addr), kFar);
    EXPECT_STREQ(ibv_get_device_name(id->verbs->device), "roci1");
  }
}

TEST(CmApi, ChannelsMayBeNonblocking) {
  EventChannel channel;
  ASSERT_EQ(fcntl(channel.get()->fd, F_SETFL, O_NONBLOCK), 0);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(ErrorOf(rdma_get_cm_event(channel.get(), &event)), EAGAIN);
}

// A thread that takes several events from the channel. After the first it waits for GoOn().
class Waiter {
 public:
  explicit Waiter(const rdma_event_channel* channel, int events = 1)
      : channel_(*channel), events_(events) {
    EXPECT_EQ(pthread_create(&thread_, nullptr, Run, this), 0);
    while (!Sleeps()) sched_yield();
  }
  ~Waiter() {
    if (is_over_) return;
    pthread_cancel(thread_);
    pthread_join(thread_, nullptr);
  }
  bool HasFirst() const { return has_first_; }
  void GoOn() { may_go_on_ = true; }
  // errno; 0: the thread has all its events, or still waits.
  int Error() {
    // Waits until the thread has reached either state.
    while (!is_over_ && !Sleeps()) is_over_ = pthread_tryjoin_np(thread_, nullptr) == 0;
    const timespec soon = SoonAfterNow();
    if (!is_over_) is_over_ = pthread_timedjoin_np(thread_, nullptr, &soon) == 0;
    return is_over_ ? error_ : 0;
  }

 private:
  static timespec SoonAfterNow() {
    timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += 5'000'000;
    if (time.tv_nsec >= 1'000'000'000) time = {time.tv_sec + 1, time.tv_nsec - 1'000'000'000};
    return time;
  }
  static void* Run(void* self) {
    auto* waiter = static_cast<Waiter*>(self);
    waiter->tid_ = gettid();
    for (int i = 0; i < waiter->events_; ++i) {
      rdma_cm_event* event = nullptr;
      waiter->error_ = ErrorOf(rdma_get_cm_event(&waiter->channel_, &event));
      if (waiter->error_ != 0) break;
      rdma_ack_cm_event(event);
      waiter->has_first_ = true;
      while (i + 1 < waiter->events_ && !waiter->may_go_on_) sched_yield();
    }
    return nullptr;
  }
  bool Sleeps() const {
    const pid_t tid = tid_;
    if (tid == 0) return false;
    std::ifstream file("/proc/self/task/" + std::to_string(tid) + "/stat");
    std::string stat;
    std::getline(file, stat);
    const size_t name_end = stat.rfind(") ");
    return name_end != std::string::npos && stat[name_end + 2] == 'S';
  }

  rdma_event_channel channel_;  // a copy, since librdmacm frees the channel
  const int events_;
  pthread_t thread_ = {};
  std::atomic<pid_t> tid_{0};
  std::atomic<bool> has_first_{false};
  std::atomic<bool> may_go_on_{false};
  int error_ = 0;
  bool is_over_ = false;
};

// As with the kernel, a thread that waits on a closed descriptor keeps waiting.
TEST(CmApi, AWaitOnAClosedChannelGetsNoEvent) {
  for (int i = 0; i < 300; ++i) {
    rdma_event_channel* channel = rdma_create_event_channel();
    ASSERT_NE(channel, nullptr);
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
    Waiter waiter(channel);
    // The event arrives or is removed while the thread asks for it.
    ASSERT_EQ(rdma_resolve_addr(id, Address(kNear).get(), Address(kFar, 1).get(), 10'000), 0);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
    ASSERT_EQ(waiter.Error(), 0) << i;
  }
}

// A connection between the two devices. A separate thread of the client receives the disconnect
// event.
class ToldOfEnd {
 public:
  ToldOfEnd() : listener_(server_.Listen(kFar, 7460)), active_(client_->Route(kFar, 7460)) {
    rdma_conn_param parameters = Parameters();
    EXPECT_EQ(rdma_connect(active_.get(), &parameters), 0);
    const Id passive = server_.ExpectRequest();
    EXPECT_EQ(rdma_accept(passive.get(), &parameters), 0);
    client_->Expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
    waiter_.emplace(client_->get(), 2);
    EXPECT_EQ(rdma_disconnect(passive.get()), 0);
    server_.Expect(RDMA_CM_EVENT_DISCONNECTED);
    while (!waiter_->HasFirst()) sched_yield();
  }
  Waiter& waiter() { return *waiter_; }
  void CloseChannel() {
    active_.reset();
    client_.reset();
  }

 private:
  EventChannel server_;
  const Id listener_;
  std::unique_ptr<EventChannel> client_ = std::make_unique<EventChannel>();
  Id active_;
  std::optional<Waiter> waiter_;
};

// One thread receives the disconnect event; another closes the channel before the first thread asks
// for the next event. The first thread then waits as if it had asked before.
TEST(CmApi, AThreadAfterDisconnectWaitsThoughTheChannelIsClosed) {
  ToldOfEnd connection;
  connection.CloseChannel();
  connection.waiter().GoOn();
  EXPECT_EQ(connection.waiter().Error(), 0);
}

TEST(CmApi, AThreadAfterDisconnectMayAskBeforeTheChannelIsClosed) {
  ToldOfEnd connection;
  connection.waiter().GoOn();
  EXPECT_EQ(connection.waiter().Error(), 0);
  connection.CloseChannel();
  EXPECT_EQ(connection.waiter().Error(), 0);
}

// For the thread that closed it, a channel is not a descriptor.
TEST(CmApi, AClosedChannelIsNoDescriptorForItsThread) {
  EventChannel server;
  const Id listener = server.Listen(kFar, 7460);
  auto client = std::make_unique<EventChannel>();
  Id active = client->Route(kFar, 7460);
  rdma_conn_param parameters = Parameters();
  ASSERT_EQ(rdma_connect(active.get(), &parameters), 0);
  const Id passive = server.ExpectRequest();
  ASSERT_EQ(rdma_accept(passive.get(), &parameters), 0);
  client->Expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_EQ(rdma_disconnect(passive.get()), 0);
  client->Expect(RDMA_CM_EVENT_DISCONNECTED);
  rdma_event_channel closed = *client->get();
  active.reset();
  client.reset();
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(ErrorOf(rdma_get_cm_event(&closed, &event)), EBADF);
}

size_t CountDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// The usual way to stop a thread that waits for connections. The identifiers go with the channel.
TEST(CmApi, AChannelWhoseWaiterWasCancelledIsClosed) {
  constexpr uint16_t kPort = 7470;
  size_t before = 0;
  for (int round = 0; round < 2; ++round) {  // the first one opens what remains open
    before = CountDescriptors();
    EventChannel channel;
    Id listener = channel.Listen(kNear, kPort);
    { const Waiter waiter(channel.get()); }
    static_cast<void>(listener.release());
  }
  EXPECT_EQ(CountDescriptors(), before);
  EventChannel next;
  next.Listen(kNear, kPort);
}

// errno of binding port 80 as a user with `capabilities`; -1: setup failed.
int BindAs(uint32_t capabilities) {
  constexpr uid_t kSomebody = 65534;
  const pid_t child = fork();
  if (child == 0) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {{capabilities, capabilities, 0}, {0, 0, 0}};
    const bool is_somebody = prctl(PR_SET_KEEPCAPS, 1) == 0 &&
                             setresuid(kSomebody, kSomebody, kSomebody) == 0 &&
                             syscall(SYS_capset, &header, data) == 0 &&
                             prctl(PR_SET_DUMPABLE, 1) == 0;  // as for a program started with them
    rdma_event_channel* channel = is_somebody ? rdma_create_event_channel() : nullptr;
    rdma_cm_id* id = nullptr;
    if (channel == nullptr || rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) _exit(255);
    _exit(ErrorOf(rdma_bind_addr(id, Address("0.0.0.0", 80).get())));
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) != 255 ? WEXITSTATUS(status) : -1;
}

TEST(CmApi, PrivilegedPortsNeedTheCapability) {
  EventChannel channel;
  const Id own = channel.Create();
  EXPECT_EQ(rdma_bind_addr(own.get(), Address(kNear, 81).get()), 0)
      << "the daemon's own user: " << strerror(errno);
  if (geteuid() != 0) GTEST_SKIP() << "cannot become another user";
  // The test's daemon has a runtime folder that only root may enter.
  constexpr uint32_t kEnter = 1u << CAP_DAC_OVERRIDE;
  EXPECT_EQ(BindAs(kEnter), EACCES);
  EXPECT_EQ(BindAs(kEnter | 1u << CAP_NET_BIND_SERVICE), 0);
}

}  // namespace
}  // namespace roci::testing
