#include "control/manage/stream_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>
#include <vector>

#include "roce/work.h"

namespace roci::control {
namespace {

constexpr roce::TimeNs kDrainEveryNs = roce::kNsPerMs;

}  // namespace

uint64_t WallOffset() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const auto wall =
      static_cast<uint64_t>(now.tv_sec) * roce::kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
  return wall - MonotonicNow();
}

void Stream::NoteSent(size_t bytes) {
  sent_ += bytes;
  if (sent_ < out_.size() / 2) return;  // so that bytes move seldom
  out_.erase(0, sent_);
  sent_ = 0;
}

StreamServer::~StreamServer() {
  while (!readers_.empty()) Close(readers_.begin()->first);
}

void StreamServer::FinishAll() {
  while (!readers_.empty()) {
    Reader& reader = readers_.begin()->second;
    if (!reader.stream->finished()) reader.stream->Finish();
    Flush(reader);
    Close(readers_.begin()->first);
  }
}

void StreamServer::Start(std::shared_ptr<Stream> stream, UniqueFd socket) {
  const uint64_t id = ++last_id_;
  const absl::StatusOr<EventLoop::Watch> watch = services_.loop.Add(
      socket.get(), EPOLLIN | EPOLLRDHUP, [this, id](uint32_t events) { Handle(id, events); });
  if (!watch.ok()) return services_.foreign_fds.Close(std::move(socket));
  readers_.emplace(id, Reader{std::move(stream), std::move(socket), *watch});
  next_drain_ = MonotonicNow();
}

roce::TimeNs StreamServer::NextTimeout() const {
  const bool any = std::any_of(readers_.begin(), readers_.end(),
                               [](const auto& each) { return !each.second.stream->finished(); });
  return any ? next_drain_ : roce::kNever;
}

void StreamServer::Handle(uint64_t id, uint32_t events) {
  Reader& reader = readers_.at(id);
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) return Close(id);
  const bool ends = (events & (EPOLLIN | EPOLLRDHUP)) != 0;
  if (ends && !reader.stream->finished()) reader.stream->Finish();
  if (!Flush(reader)) Close(id);
}

void StreamServer::HandleTimeout(roce::TimeNs now) {
  next_drain_ = now + kDrainEveryNs;
  std::vector<uint64_t> done;
  for (auto& [id, reader] : readers_) {
    if (reader.stream->finished()) continue;  // EPOLLOUT reports when its reader takes more
    reader.stream->Drain(now);
    if (!Flush(reader)) done.push_back(id);
  }
  for (const uint64_t id : done) Close(id);
}

bool StreamServer::Flush(Reader& reader) {
  Stream& stream = *reader.stream;
  while (!stream.unsent().empty()) {
    const std::string_view unsent = stream.unsent();
    const ssize_t count =
        send(reader.socket.get(), unsent.data(), unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != EAGAIN) return false;
    if (count <= 0) break;
    stream.NoteSent(static_cast<size_t>(count));
  }
  if (stream.unsent().empty()) return !stream.finished();
  // Until the stream has finished, the next timeout tries again.
  if (stream.finished()) services_.loop.Change(reader.watch, EPOLLOUT);
  return true;
}

void StreamServer::Close(uint64_t id) {
  Reader& reader = readers_.at(id);
  services_.loop.Forget(reader.watch);
  services_.foreign_fds.Close(std::move(reader.socket));
  readers_.erase(id);
}

}  // namespace roci::control
