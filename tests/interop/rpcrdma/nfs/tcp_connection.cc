// Calls and replies on a socket.
#include "tests/interop/rpcrdma/nfs/tcp_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace rpcrdma {
namespace {

constexpr size_t kInputBytes = 256 << 10;

bool MustWait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

TcpConnection::TcpConnection(Descriptor socket, Clock::time_point now)
    : socket_(std::move(socket)), buffer_(kInputBytes), progress_(now) {}

short TcpConnection::Events() const {
  const bool reads = input_.empty() && waiting() <= kMaxOutputBytes;
  return static_cast<short>((waiting() > 0 ? POLLOUT : 0) | (reads ? POLLIN : 0));
}

TcpConnection::End TcpConnection::Handle(RpcService* service, Clock::time_point now) {
  progress_ = now;
  for (bool may_receive = true;;) {
    if (const End end = Send(); end != End::kNone) return end;
    if (waiting() > kMaxOutputBytes) return End::kNone;
    if (input_.empty()) {
      if (!std::exchange(may_receive, false)) return End::kNone;
      if (const End end = Receive(); end != End::kNone) return end;
    }
    if (const End end = AnswerInput(service); end != End::kNone) return end;
  }
}

TcpConnection::End TcpConnection::CheckStall(Clock::time_point now) const {
  const bool must_progress = reader_.InRecord() || waiting() > 0;
  return must_progress && now - progress_ > kStallLimit ? End::kStalled : End::kNone;
}

TcpConnection::End TcpConnection::Receive() {
  const ssize_t got = recv(socket(), buffer_.data(), buffer_.size(), 0);
  if (got == 0) return End::kPeerClosed;
  if (got < 0) return MustWait() ? End::kNone : End::kFailed;
  input_ = std::span(buffer_).first(static_cast<size_t>(got));
  return End::kNone;
}

TcpConnection::End TcpConnection::AnswerInput(RpcService* service) {
  while (!input_.empty() && waiting() <= kMaxOutputBytes) {
    const auto result = reader_.Read(&input_);
    if (result == RecordReader::Result::kMalformed) return End::kMalformed;
    if (result == RecordReader::Result::kMore) break;
    const RpcReply reply = service->Answer(reader_.Take());
    if (reply.drop) return End::kDropped;
    const auto mark = MarkOf(reply.message.size());
    output_.insert(output_.end(), mark.begin(), mark.end());
    output_.insert(output_.end(), reply.message.begin(), reply.message.end());
  }
  return End::kNone;
}

TcpConnection::End TcpConnection::Send() {
  while (waiting() > 0) {
    const ssize_t put = send(socket(), output_.data() + sent_, waiting(), MSG_NOSIGNAL);
    if (put < 0) return MustWait() ? End::kNone : End::kFailed;
    sent_ += static_cast<size_t>(put);
  }
  output_.clear();
  sent_ = 0;
  return End::kNone;
}

}  // namespace rpcrdma
