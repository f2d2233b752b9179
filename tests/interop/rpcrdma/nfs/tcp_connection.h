// One TCP connection of a client: calls in, replies out, in order.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "tests/interop/rpcrdma/nfs/descriptor.h"
#include "tests/interop/rpcrdma/nfs/record_reader.h"
#include "tests/interop/rpcrdma/rpc_service.h"

namespace rpcrdma {

class TcpConnection {
 public:
  using Clock = std::chrono::steady_clock;
  // A client may take that long for a call that it has begun, or to take its replies.
  static constexpr std::chrono::seconds kStallLimit{60};
  // Replies that wait for the client; with more, no further calls are read.
  static constexpr size_t kMaxOutputBytes = 4 << 20;

  enum class End { kNone, kPeerClosed, kFailed, kMalformed, kDropped, kStalled };

  // `socket` is non-blocking.
  explicit TcpConnection(Descriptor socket, Clock::time_point now);

  int socket() const { return socket_.get(); }
  // The events to wait for (poll(2)).
  short Events() const;
  // Reads, answers and writes as far as possible without waiting.
  End Handle(RpcService* service, Clock::time_point now);
  // kStalled if the client has taken too long.
  End CheckStall(Clock::time_point now) const;

 private:
  End Receive();
  End AnswerInput(RpcService* service);
  End Send();
  size_t waiting() const { return output_.size() - sent_; }

  Descriptor socket_;
  RecordReader reader_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> input_;  // the part of buffer_ that is not read yet
  std::vector<std::byte> output_;
  size_t sent_ = 0;  // of output_
  Clock::time_point progress_;
};

}  // namespace rpcrdma
