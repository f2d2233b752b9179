// Faults of verbs calls (control/device/call_faults.h): a request fails, is delayed, or answers
// with smaller limits.
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"
#include "control/session/session.h"

namespace roci::control {

bool Session::ApplyFaults(absl::Status& status, const FdsPointer& fds) {
  // A repeated request is the same call of the program.
  if (!status.ok() || request_.head.wait != 0) return false;
  const uint32_t command = request_.head.command;
  Device* device = device_;
  if (command == ROCI_ABI_HELLO) {
    device = services_.FindDevice(request_.As<roci_abi_hello_request>().device);
  }
  if (device == nullptr) return false;
  const roce::TimeNs now = MonotonicNow();
  CallFaults::Fate fate =
      device->call_faults().Apply(command, program_, now, static_cast<uint32_t>(peer_.pid));
  if (fate.error != 0) {
    status = StatusFromErrno(fate.error, absl::StrCat("fault ", fate.fault));
    injected_error_ = fate.error;
  }
  injected_limits_ = std::move(fate.limits);
  if (fate.delay_ns == 0) return false;
  constexpr roce::TimeNs kBeforeDeadlineNs = roce::kNsPerSecond;
  roce::TimeNs until = now + fate.delay_ns;
  if (device_ == nullptr) {
    until = std::min(until, std::max(now, admission_.hello_deadline - kBeforeDeadlineNs));
  }
  delayed_ = {status, fds, until};
  deferred_ = true;
  Pause();
  return true;
}

bool Session::ContinueDelayed() {
  if (MonotonicNow() < delayed_->until) return false;
  const bool refuses = MustWait();
  if (refuses && !HasWaitedTooLong()) return false;
  const DelayedRequest request = *std::move(delayed_);
  delayed_.reset();
  deferred_ = false;
  paused_ = false;
  services_.loop.Change(socket_watch_, EPOLLIN);
  AnswerOrEnd([&] { BeginRequest(refuses ? WaitedTooLong() : request.status, request.fds); });
  return true;
}

}  // namespace roci::control
