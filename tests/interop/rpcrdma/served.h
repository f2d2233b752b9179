// A server of the test program on a thread of its own, and calls to it, for tests among the devices
// of a daemon with its default configuration.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "tests/interop/rpcrdma/client.h"
#include "tests/interop/rpcrdma/rpc_message.h"
#include "tests/interop/rpcrdma/server.h"
#include "tests/interop/rpcrdma/test_service.h"

namespace rpcrdma {

inline constexpr char kServerAddress[] = "10.99.0.2";
inline constexpr char kServerAddress6[] = "fd72:6f63:6900::2";
// Of the other device: without it, the route to a device's own address stays on that device.
inline constexpr char kClientAddress[] = "10.99.0.1";
inline constexpr char kClientAddress6[] = "fd72:6f63:6900::1";
inline constexpr int kPatience_ms = 60'000;

inline ServerOptions AnyPort(const std::string& address = kServerAddress) {
  ServerOptions options;
  options.address = address;
  options.port = 0;
  return options;
}

class Served {
 public:
  explicit Served(const ServerOptions& options = AnyPort())
      : address_(options.address), server_(options, service_), thread_([this] { server_.Run(); }) {}
  ~Served() {
    server_.Stop();
    thread_.join();
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  uint16_t port() const { return server_.port(); }
  const ServerCounters& counters() const { return server_.counters(); }
  ClientOptions ToHere() const {
    ClientOptions options;
    options.address = address_;
    options.port = port();
    if (address_ == kServerAddress) options.source = kClientAddress;
    if (address_ == kServerAddress6) options.source = kClientAddress6;
    return options;
  }
  uint64_t open_connections() const { return server_.open_connections(); }
  bool WaitForConnections(uint64_t count) const {
    return WaitUntil([this, count] { return server_.open_connections() == count; });
  }
  template <class Condition>
  static bool WaitUntil(const Condition& condition) {
    for (int i = 0; i < kPatience_ms / 10 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return condition();
  }

 private:
  const std::string address_;
  TestService service_;
  Server server_;
  std::thread thread_;
};

// One call of the test program at a time, from one request with room for `most` bytes of data.
class TestCalls {
 public:
  explicit TestCalls(Client& client, uint32_t most = kMostTestBytes) : client_(client) {
    EXPECT_EQ(client.Allocate(most + 64, most, most + 64, request_), AllocationResult::kAllocated);
  }
  ~TestCalls() { client_.Free(request_); }
  TestCalls(const TestCalls&) = delete;
  TestCalls& operator=(const TestCalls&) = delete;

  ClientRequest& request() { return *request_; }

  // The calls return whether all went well, and check all data.
  bool Null() {
    Begin(TestProcedure::kNull);
    return Run() && request_->reply().size() == kRpcReplyBytes;
  }
  bool Get(uint32_t length, uint32_t seed) {
    PrepareGet(length, seed);
    return Run() && HasGot(length, seed);
  }
  // The data is in the middle of the reply.
  bool GetMore(uint32_t length, uint32_t seed) {
    PrepareGet(length, seed, TestProcedure::kGetMore);
    request_->shape.most_reply_bytes += 4;
    if (!Run()) return false;
    const std::span<const std::byte> reply = request_->reply();
    const size_t inline_bytes = request_->plan().write_chunk ? 0 : PaddedLength(length);
    return reply.size() == kRpcReplyBytes + 8 + inline_bytes &&
           LoadWord(reply.last(4).data()) == seed &&
           (inline_bytes > 0 || length == 0 || HasPattern(request_->data(), seed));
  }
  // `direct`: the data may be a Read chunk.
  bool Put(uint32_t length, uint32_t seed, bool direct = true) {
    PreparePut(length, seed, direct);
    return Run() && HasPut();
  }
  bool List(uint32_t length, uint32_t seed) {
    Begin(TestProcedure::kList);
    Append(length);
    Append(seed);
    request_->shape.most_reply_bytes = kRpcReplyBytes + 4 + PaddedLength(length);
    return Run() && IsOpaque(request_->reply().subspan(kRpcReplyBytes), length, seed);
  }
  bool Echo(uint32_t length, uint32_t seed) {
    Begin(TestProcedure::kEcho);
    AppendData(length, seed, true);
    request_->shape.data_room = length;
    request_->shape.most_reply_bytes = kRpcReplyBytes + 4;
    return Run() && HasGot(length, seed);
  }

  // The parts of a call that is sent asynchronously.
  void PrepareGet(uint32_t length, uint32_t seed, TestProcedure procedure = TestProcedure::kGet) {
    Begin(procedure);
    Append(length);
    Append(seed);
    request_->shape.data_room = length;
    request_->shape.most_reply_bytes = kRpcReplyBytes + 4;
  }
  bool HasGot(uint32_t length, uint32_t seed) {
    const auto results = request_->reply().subspan(kRpcReplyBytes);
    if (!request_->plan().write_chunk) return IsOpaque(results, length, seed);
    return results.size() == 4 && LoadWord(results.data()) == length &&
           request_->data().size() == length && HasPattern(request_->data(), seed);
  }
  void PreparePut(uint32_t length, uint32_t seed, bool direct) {
    Begin(TestProcedure::kPut);
    Append(seed);
    AppendData(length, seed, direct);
    request_->shape.most_reply_bytes = kRpcReplyBytes + 4;
  }
  bool HasPut() const {
    return request_->reply().size() == kRpcReplyBytes + 4 &&
           LoadWord(request_->reply().data() + kRpcReplyBytes) == 1;
  }
  void Begin(TestProcedure procedure) {
    request_->shape = CallShape();
    request_->shape.most_reply_bytes = kRpcReplyBytes;
    for (const std::byte byte :
         EncodeRpcCall({0, kTestProgram, kTestVersion, static_cast<uint32_t>(procedure)})) {
      request_->call()[request_->shape.message_bytes++] = byte;
    }
  }
  // Sends what was prepared, and waits.
  CallStatus Send(int timeout_ms = kPatience_ms) { return client_.Call(*request_, timeout_ms); }

 private:
  bool Run() { return Send() == CallStatus::kDone && IsSuccess(); }
  bool IsSuccess() const {
    XdrReader reader(request_->reply());
    uint32_t xid = 0;
    AcceptStatus status = AcceptStatus::kSystemError;
    return DecodeRpcReply(reader, xid, status) && status == AcceptStatus::kSuccess;
  }
  static bool IsOpaque(std::span<const std::byte> bytes, uint32_t length, uint32_t seed) {
    return bytes.size() == 4 + PaddedLength(length) && LoadWord(bytes.data()) == length &&
           HasPattern(bytes.subspan(4, length), seed);
  }
  void Append(uint32_t word) {
    StoreWord(request_->call().data() + request_->shape.message_bytes, word);
    request_->shape.message_bytes += 4;
  }
  void AppendData(uint32_t length, uint32_t seed, bool direct) {
    Append(length);
    FillPattern(request_->call().subspan(request_->shape.message_bytes, length), seed);
    if (direct) request_->shape.bulk = {request_->shape.message_bytes, length};
    request_->shape.message_bytes += PaddedLength(length);
  }

  Client& client_;
  ClientRequest* request_ = nullptr;
};

}  // namespace rpcrdma
