// Both ends on the built-in wire: data of all sizes through every kind of chunk, credits, inline
// thresholds, invalidation, and connections that are lost.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/interop/rpcrdma/raw_peer.h"
#include "tests/interop/rpcrdma/served.h"

namespace rpcrdma {
namespace {

// Around the words' length, the inline threshold, a path MTU, and the limit.
const std::vector<uint32_t> kSizes = {0,    1,     2,     3,      4,         100,
                                      1023, 3900,  4000,  4095,   4096,      4097,
                                      8191, 65535, 65536, 300001, 1'048'575, 1 << 20};

// Address family, registration, longest segment.
using Way = std::tuple<const char*, Registration, size_t>;

class Loopback : public ::testing::TestWithParam<Way> {
 protected:
  Loopback() : served_(AnyPort(std::get<0>(GetParam()))), client_(Options()), calls_(client_) {}

  ClientOptions Options() const {
    ClientOptions options = served_.ToHere();
    options.registration = std::get<1>(GetParam());
    options.segment_bytes = std::get<2>(GetParam());
    return options;
  }

  Served served_;
  Client client_;
  TestCalls calls_;
};

TEST_P(Loopback, NullCalls) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(calls_.Null()) << i;
  EXPECT_EQ(served_.counters().calls.value(), 100u);
  EXPECT_EQ(served_.counters().replies.value(), 100u);
}

TEST_P(Loopback, WriteChunks) {
  for (const uint32_t size : kSizes) {
    ASSERT_TRUE(calls_.Get(size, size + 7)) << size;
    EXPECT_EQ(calls_.request().plan().write_chunk, size > 4000) << size;
  }
  EXPECT_GT(served_.counters().write_chunk_replies.value(), 0u);
}

TEST_P(Loopback, ReadChunks) {
  for (const uint32_t size : kSizes) {
    ASSERT_TRUE(calls_.Put(size, size + 8)) << size;
    EXPECT_EQ(calls_.request().plan().read_chunk, size > 4015) << size;
  }
  EXPECT_GT(served_.counters().reads.value(), 0u);
}

TEST_P(Loopback, ReplyChunks) {
  for (const uint32_t size : kSizes) {
    ASSERT_TRUE(calls_.List(size, size + 9)) << size;
    EXPECT_EQ(calls_.request().plan().reply_chunk, size > 4030) << size;
  }
  EXPECT_GT(served_.counters().reply_chunk_replies.value(), 0u);
}

TEST_P(Loopback, DataInTheMiddleOfAReply) {
  for (const uint32_t size : kSizes) ASSERT_TRUE(calls_.GetMore(size, size + 12)) << size;
}

TEST_P(Loopback, LongCalls) {
  for (const uint32_t size : kSizes) {
    ASSERT_TRUE(calls_.Put(size, size + 10, false)) << size;
    EXPECT_EQ(calls_.request().plan().long_call, size > 4015) << size;
  }
}

TEST_P(Loopback, ReadAndWriteChunksTogether) {
  for (const uint32_t size : kSizes) ASSERT_TRUE(calls_.Echo(size, size + 11)) << size;
}

// Keys of windows end with the call: by the server's SEND with invalidate, or locally.
TEST_P(Loopback, KeysAreInvalidated) {
  ASSERT_TRUE(calls_.Echo(100'000, 1));
  const bool windows = std::get<1>(GetParam()) == Registration::kWindows;
  EXPECT_EQ(client_.counters().remote_invalidations, windows ? 1u : 0u);
  EXPECT_EQ(client_.counters().local_invalidations, windows ? 1u : 0u)
      << "the call had two keys, the server invalidates one";
  EXPECT_EQ(served_.counters().invalidations.value(), windows ? 1u : 0u);
  ASSERT_TRUE(calls_.Get(100'000, 1));
  EXPECT_EQ(client_.counters().remote_invalidations, windows ? 2u : 0u);
  EXPECT_EQ(client_.counters().local_invalidations, windows ? 1u : 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Loopback,
    ::testing::Values(Way{kServerAddress, Registration::kRegions, size_t{1} << 30},
                      Way{kServerAddress6, Registration::kRegions, size_t{1} << 30},
                      Way{kServerAddress, Registration::kWindows, size_t{1} << 30},
                      Way{kServerAddress, Registration::kRegions, 65'500},
                      Way{kServerAddress6, Registration::kWindows, 65'500}));

// ---- Many calls at a time.

class ManyCalls {
 public:
  ManyCalls(Client& client, uint32_t count, uint32_t most) : client_(client) {
    for (uint32_t i = 0; i < count; ++i) {
      calls_.push_back(std::make_unique<TestCalls>(client, most));
    }
    kinds_.resize(count, kNone);
    seeds_.resize(count);
  }

  // Sends `total` calls with as many at a time as there are requests; every third one each is a
  // GET, a PUT, a NULL. Returns how many went well.
  uint32_t Run(uint32_t total, uint32_t size) {
    total_ = total;
    size_ = size;
    begun_ = ended_ = well_ = 0;
    for (;;) {
      for (uint32_t i = 0; i < calls_.size(); ++i) Step(i);
      if (ended_ == total_) return well_;
      client_.Progress(kPatience_ms);
    }
  }

 private:
  void Step(uint32_t i) {
    ClientRequest& request = calls_[i]->request();
    if (request.status() == CallStatus::kPending) return;
    if (kinds_[i] != kNone) End(i);
    if (begun_ == total_) return;
    Prepare(i);
    if (client_.Send(request) != SendResult::kSent) return;
    kinds_[i] = static_cast<Kind>(begun_++ % 3);
  }
  void Prepare(uint32_t i) {
    const uint32_t seed = begun_;
    seeds_[i] = seed;
    if (begun_ % 3 == kGet) calls_[i]->PrepareGet(size_, seed);
    if (begun_ % 3 == kPut) calls_[i]->PreparePut(size_, seed, true);
    if (begun_ % 3 == kNull) calls_[i]->Begin(TestProcedure::kNull);
  }
  void End(uint32_t i) {
    const bool is_done = calls_[i]->request().status() == CallStatus::kDone;
    const bool is_right = kinds_[i] == kGet   ? calls_[i]->HasGot(size_, seeds_[i])
                          : kinds_[i] == kPut ? calls_[i]->HasPut()
                                              : true;
    well_ += is_done && is_right;
    ++ended_;
    kinds_[i] = kNone;
  }

  enum Kind { kGet = 0, kPut = 1, kNull = 2, kNone = 3 };
  Client& client_;
  std::vector<std::unique_ptr<TestCalls>> calls_;
  std::vector<Kind> kinds_;  // of the call that is under way, by request
  std::vector<uint32_t> seeds_;
  uint32_t total_ = 0;
  uint32_t size_ = 0;
  uint32_t begun_ = 0;
  uint32_t ended_ = 0;
  uint32_t well_ = 0;
};

TEST(Credits, AreNeverExceeded) {
  ServerOptions options = AnyPort();
  options.credits = 4;
  Served served(options);
  ClientOptions to_here = served.ToHere();
  to_here.slots = 32;
  Client client(to_here);
  ManyCalls calls(client, 32, 100);
  EXPECT_EQ(calls.Run(2000, 100), 2000u);
  EXPECT_EQ(client.credits(), 4u);
  EXPECT_GT(client.counters().waits_for_credit, 0u);
  // The client's RNR retry count is 0: one SEND without a receive would have ended the connection.
  EXPECT_EQ(client.counters().connections, 1u);
}

TEST(Credits, GrantIsWhatWasAskedFor) {
  Served served;
  ClientOptions to_here = served.ToHere();
  to_here.slots = 3;
  Client client(to_here);
  TestCalls calls(client, 100);
  EXPECT_EQ(client.credits(), 1u) << "before the first reply";
  EXPECT_TRUE(calls.Null());
  EXPECT_EQ(client.credits(), 3u);
}

// Fewer buffers and a shorter send queue than calls need: they wait, and none is lost.
TEST(Resources, CallsWaitForBuffersAndForTheSendQueue) {
  ServerOptions options = AnyPort();
  options.message_buffers = 2;
  options.max_send_entries = 12;
  Served served(options);
  ClientOptions to_here = served.ToHere();
  to_here.segment_bytes = 10'000;
  Client client(to_here);
  ManyCalls calls(client, 32, 50'000);
  EXPECT_EQ(calls.Run(600, 50'000), 600u);
  EXPECT_GT(served.counters().waits_for_buffers.value(), 0u);
  EXPECT_GT(served.counters().waits_for_send_queue.value(), 0u);
  EXPECT_EQ(client.counters().connections, 1u);
}

TEST(Resources, BatchesBeyondTheSendQueueAreRefused) {
  ServerOptions options = AnyPort();
  options.max_send_entries = 12;
  Served served(options);
  ClientOptions to_here = served.ToHere();
  to_here.segment_bytes = 1000;
  Client client(to_here);
  TestCalls calls(client);
  calls.PreparePut(20'000, 1, true);
  EXPECT_EQ(calls.Send(), CallStatus::kRemoteError);
  EXPECT_EQ(served.counters().oversized_batches.value(), 1u);
  EXPECT_TRUE(calls.Put(9'000, 2));
}

// The buffers belong to the device: connections take them in turn, and one that goes while it waits
// for one is forgotten.
TEST(Resources, ConnectionsShareTheBuffers) {
  ServerOptions options = AnyPort();
  options.message_buffers = 1;
  Served served(options);
  Client first(served.ToHere());
  Client second(served.ToHere());
  ManyCalls first_calls(first, 8, 50'000);
  ManyCalls second_calls(second, 8, 50'000);
  std::thread beside([&second_calls] { EXPECT_EQ(second_calls.Run(200, 50'000), 200u); });
  for (int i = 0; i < 10; ++i) {
    Client third(served.ToHere());
    TestCalls calls(third, 50'000);
    calls.PrepareGet(50'000, 1);
    while (third.Send(calls.request()) != SendResult::kSent) third.Progress(1000);
    third.Close();
  }
  EXPECT_EQ(first_calls.Run(200, 50'000), 200u);
  beside.join();
  EXPECT_GT(served.counters().waits_for_buffers.value(), 0u);
}

// A reply in more parts than the QP has scatter/gather elements.
TEST(Resources, RepliesArePulledUp) {
  for (const uint32_t sges : {1u, 2u, 3u}) {
    ServerOptions options = AnyPort();
    options.max_send_sges = sges;
    Served served(options);
    Client client(served.ToHere());
    TestCalls calls(client);
    EXPECT_TRUE(calls.Get(50'000, 1));
    EXPECT_TRUE(calls.GetMore(50'001, 2));
    EXPECT_EQ(served.counters().pulled_up.value(), 3 - sges);
  }
}

TEST(Resources, IdleConnectionsAreClosed) {
  ServerOptions options = AnyPort();
  options.idle_limit_s = 1;
  Served served(options);
  RawPeer idle(kServerAddress, served.port());
  EXPECT_TRUE(idle.WaitForEnd());
  EXPECT_TRUE(served.WaitForConnections(0));
  EXPECT_EQ(served.counters().closed[static_cast<size_t>(CloseReason::kIdle)].value(), 1u);
}

// The wildcard listens on all devices, each with buffers of its own.
TEST(Addresses, WildcardServesAllDevices) {
  for (const char* wildcard : {"0.0.0.0", "::"}) {
    Served served(AnyPort(wildcard));
    for (const char* address : {"10.99.0.1", "10.99.0.2", "fd72:6f63:6900::1"}) {
      const bool is_ipv6 = std::string(address).find(':') != std::string::npos;
      if (is_ipv6 && wildcard[0] == '0') continue;
      ClientOptions to_here = served.ToHere();
      to_here.address = address;
      Client client(to_here);
      TestCalls calls(client);
      EXPECT_TRUE(calls.Echo(100'000, 5)) << address;
    }
  }
}

TEST(Resources, ConnectionsBeyondTheLimitAreRejected) {
  ServerOptions options = AnyPort();
  options.max_connections = 2;
  Served served(options);
  auto first = std::make_unique<RawPeer>(kServerAddress, served.port());
  RawPeer second(kServerAddress, served.port());
  EXPECT_THROW(RawPeer(kServerAddress, served.port()), std::system_error);
  EXPECT_EQ(served.counters().refused_connections.value(), 1u);
  first.reset();
  ASSERT_TRUE(served.WaitForConnections(1));
  RawPeer third(kServerAddress, served.port());
}

// ---- Inline thresholds (RFC 8797): each end sends what the other one receives.

TEST(InlineThreshold, IsTheSmallerOne) {
  for (const auto& [server_bytes, client_bytes] :
       std::vector<std::pair<size_t, size_t>>{{1024, 4096}, {8192, 4096}, {8192, 65'536}}) {
    ServerOptions options = AnyPort();
    options.inline_bytes = server_bytes;
    Served served(options);
    ClientOptions to_here = served.ToHere();
    to_here.inline_bytes = client_bytes;
    Client client(to_here);
    TestCalls calls(client);
    ASSERT_TRUE(calls.Null());
    const auto threshold = static_cast<uint32_t>(std::min(server_bytes, client_bytes));
    EXPECT_EQ(client.send_bytes(), threshold);
    for (const uint32_t size : {threshold - 200, threshold, 2 * threshold}) {
      EXPECT_TRUE(calls.Get(size, 1)) << size;
      EXPECT_EQ(calls.request().plan().write_chunk, size >= threshold);
      EXPECT_TRUE(calls.Put(size, 2)) << size;
      EXPECT_EQ(calls.request().plan().read_chunk, size >= threshold);
    }
  }
}

// ---- Connections that are lost.

TEST(Reconnect, PendingCallsAreSentAgain) {
  Served served;
  Client client(served.ToHere());
  ManyCalls calls(client, 16, 20'000);
  for (int round = 1; round <= 5; ++round) {
    EXPECT_EQ(calls.Run(static_cast<uint32_t>(round) * 50, 20'000),
              static_cast<uint32_t>(round) * 50);
    client.Disconnect();
  }
  EXPECT_EQ(client.counters().lost_connections, 5u);
  EXPECT_TRUE(served.WaitForConnections(0));
}

// The connection goes while calls are under way; with windows, which go with their QP.
TEST(Reconnect, InTheMiddleOfCalls) {
  for (const Registration registration : {Registration::kRegions, Registration::kWindows}) {
    Served served;
    ClientOptions to_here = served.ToHere();
    to_here.registration = registration;
    to_here.first_delay_ms = 1;
    Client client(to_here);
    TestCalls calls(client);
    for (uint32_t i = 0; i < 20; ++i) {
      calls.PrepareGet(1 << 20, i);
      while (client.Send(calls.request()) != SendResult::kSent) client.Progress(1000);
      client.Disconnect();
      EXPECT_EQ(calls.request().status(), CallStatus::kPending);
      while (calls.request().status() == CallStatus::kPending) client.Progress(kPatience_ms);
      ASSERT_EQ(calls.request().status(), CallStatus::kDone);
      EXPECT_TRUE(calls.HasGot(1 << 20, i));
      EXPECT_EQ(calls.request().transmissions(), 2u);
    }
    EXPECT_EQ(client.counters().resent, 20u);
  }
}

TEST(Reconnect, ServerThatComesLater) {
  uint16_t port = 0;
  {
    Served first;
    port = first.port();
  }
  ClientOptions to_there;
  to_there.address = kServerAddress;
  to_there.port = port;
  to_there.source = kClientAddress;
  to_there.first_delay_ms = 20;
  to_there.most_delay_ms = 100;
  Client client(to_there);
  TestCalls calls(client, 1000);
  calls.Begin(TestProcedure::kNull);
  EXPECT_EQ(calls.Send(1000), CallStatus::kIdle);
  EXPECT_GE(client.counters().failed_connects, 5u);
  EXPECT_LE(client.counters().failed_connects, 20u) << "20, 40, 80, 100, 100 ... ms";
  ServerOptions options = AnyPort();
  options.port = port;
  Served second(options);
  EXPECT_TRUE(calls.Null());
}

TEST(Reconnect, SetPortIsForTheNextConnection) {
  Served first, second;
  Client client(first.ToHere());
  TestCalls calls(client, 1000);
  EXPECT_TRUE(calls.Null());
  client.SetPort(second.port());
  EXPECT_TRUE(calls.Null());
  EXPECT_EQ(second.counters().calls.value(), 0u);
  client.Disconnect();
  EXPECT_EQ(client.credits(), 1u) << "of the new connection";
  EXPECT_TRUE(calls.Null());
  EXPECT_EQ(second.counters().calls.value(), 1u);
}

TEST(Reconnect, CallThatTheServerDropsIsSentAgainUntilTheClientIsClosed) {
  Served served;
  ClientOptions to_here = served.ToHere();
  to_here.first_delay_ms = 1;
  to_here.most_delay_ms = 50;
  Client client(to_here);
  TestCalls calls(client, 1000);
  calls.Begin(TestProcedure::kDrop);
  EXPECT_EQ(calls.Send(1000), CallStatus::kPending);
  EXPECT_GE(calls.request().transmissions(), 3u);
  client.Close();
  EXPECT_EQ(calls.request().status(), CallStatus::kClosed);
  EXPECT_EQ(client.Send(calls.request()), SendResult::kFailed);
  ClientRequest* request = nullptr;
  EXPECT_EQ(client.Allocate(1, 1, 1, request), AllocationResult::kFailed);
}

TEST(Requests, SlotsAreBounded) {
  Served served;
  ClientOptions to_here = served.ToHere();
  to_here.slots = 2;
  Client client(to_here);
  ClientRequest* requests[3] = {};
  EXPECT_EQ(client.Allocate(100, 100, 100, requests[0]), AllocationResult::kAllocated);
  EXPECT_EQ(client.Allocate(100, 0, 0, requests[1]), AllocationResult::kAllocated);
  EXPECT_EQ(client.Allocate(100, 100, 100, requests[2]), AllocationResult::kLater);
  client.Free(requests[0]);
  EXPECT_EQ(client.Allocate(size_t{1} << 47, 100, 100, requests[2]), AllocationResult::kLater)
      << "more than there is";
  EXPECT_EQ(client.Allocate(100, 100, 100, requests[2]), AllocationResult::kAllocated);
}

// ---- Processes that are killed.

// The server program (RPCRDMA_NULL_SERVER) in a process of its own, on a fixed port.
class ServerProcess {
 public:
  explicit ServerProcess(uint16_t port) : pid_(fork()) {
    if (pid_ != 0) return;
    const char* program = std::getenv("RPCRDMA_NULL_SERVER");
    execl(program, program, kServerAddress, std::to_string(port).c_str(), nullptr);
    _exit(99);
  }
  ~ServerProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

 private:
  const pid_t pid_;
};

TEST(KilledPeers, ServerIsKilledAndStartedAgain) {
  ASSERT_NE(std::getenv("RPCRDMA_NULL_SERVER"), nullptr);
  constexpr uint16_t kPort = 20149;
  auto server = std::make_unique<ServerProcess>(kPort);
  ClientOptions to_there;
  to_there.address = kServerAddress;
  to_there.port = kPort;
  to_there.source = kClientAddress;
  to_there.first_delay_ms = 10;
  to_there.most_delay_ms = 200;
  Client client(to_there);
  TestCalls calls(client);
  for (uint32_t round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(calls.Echo(500'000, i));
    calls.PrepareGet(1 << 20, round);
    ASSERT_EQ(client.Send(calls.request()), SendResult::kSent);
    server.reset();
    server = std::make_unique<ServerProcess>(kPort);
    while (calls.request().status() == CallStatus::kPending) client.Progress(kPatience_ms);
    EXPECT_EQ(calls.request().status(), CallStatus::kDone);
    EXPECT_TRUE(calls.HasGot(1 << 20, round));
  }
  EXPECT_EQ(client.counters().lost_connections, 3u);
}

// A client in a child process, killed under load: nothing of it stays at the server.
TEST(KilledPeers, ClientIsKilledUnderLoad) {
  Served served;
  Client survivor(served.ToHere());
  TestCalls calls(survivor);
  ASSERT_TRUE(calls.Null());
  for (int round = 0; round < 3; ++round) {
    const std::string port = std::to_string(served.port());
    const pid_t child = fork();
    if (child == 0) {
      const char* program = std::getenv("RPCRDMA_CLIENT");
      execl(program, program, kServerAddress, port.c_str(), "60", "1048576", "16", nullptr);
      _exit(99);
    }
    EXPECT_TRUE(served.WaitForConnections(2));
    const uint64_t calls_before = served.counters().calls.value();
    EXPECT_TRUE(
        Served::WaitUntil([&] { return served.counters().calls.value() > calls_before + 20; }));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(served.WaitForConnections(1));
    EXPECT_TRUE(calls.Echo(1 << 20, 3)) << "all buffers are free again";
  }
}

}  // namespace
}  // namespace rpcrdma
