#include "control/loop/acceptor.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <cerrno>

#include "control/loop/socket.h"

namespace roci::control {
namespace {

// Connections accepted per wake-up, so that a flood does not block other events.
constexpr int kBudget = 16;
// How long the acceptor pauses if even the spare descriptor does not help, ns.
constexpr roce::TimeNs kPause = 100'000'000;

UniqueFd OpenSpare() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

bool NoConnectionWaits(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ECONNABORTED;
}

}  // namespace

Acceptor::Acceptor(EventLoop& loop, UniqueFd listener, Take take, Refuse refuse, Close close)
    : loop_(loop),
      listener_(std::move(listener)),
      take_(std::move(take)),
      refuse_(std::move(refuse)),
      close_(std::move(close)),
      spare_(OpenSpare()) {}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Create(EventLoop& loop, UniqueFd listener,
                                                           Take take, Refuse refuse, Close close) {
  std::unique_ptr<Acceptor> acceptor(new Acceptor(loop, std::move(listener), std::move(take),
                                                  std::move(refuse), std::move(close)));
  const absl::Status status = acceptor->Watch();
  if (!status.ok()) return status;
  return acceptor;
}

Acceptor::~Acceptor() {
  loop_.Forget(watch_);
  close_(std::move(listener_));
}

absl::Status Acceptor::Watch() {
  const absl::StatusOr<EventLoop::Watch> watch =
      loop_.Add(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
  if (!watch.ok()) return watch.status();
  watch_ = *watch;
  loop_.AddDeadline([this] { return resume_at_; }, [this](roce::TimeNs) { Resume(); });
  return absl::OkStatus();
}

void Acceptor::Accept() {
  for (int i = 0; i < kBudget; ++i) {
    UniqueFd socket = AcceptUnix(listener_.get());
    if (!socket.valid()) {
      if (!NoConnectionWaits(errno)) RefuseOne();
      return;
    }
    take_(std::move(socket));
  }
}

// A waiting connection that is never accepted would wake the loop forever (level-triggered).
void Acceptor::RefuseOne() {
  spare_.Reset();
  UniqueFd socket = AcceptUnix(listener_.get());
  if (socket.valid()) {
    refuse_(socket.get());
    close_(std::move(socket));
    spare_ = OpenSpare();
    return;
  }
  if (NoConnectionWaits(errno)) {
    spare_ = OpenSpare();
    return;
  }
  loop_.Change(watch_, 0);
  resume_at_ = MonotonicNow() + kPause;
}

void Acceptor::Resume() {
  resume_at_ = roce::kNever;
  if (!spare_.valid()) spare_ = OpenSpare();
  loop_.Change(watch_, EPOLLIN);
}

}  // namespace roci::control
