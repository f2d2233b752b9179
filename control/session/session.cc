#include "control/session/session.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"
#include "control/loop/log.h"
#include "control/loop/no_memory.h"
#include "control/loop/program_name.h"
#include "control/session/session_commands.h"
#include "roce/work.h"
#include "verbs_provider/abi/answer_limit.h"

namespace roci::control {

Session::Handler Session::HandlerOf(uint32_t command) {
  // Indexed by roci_abi_command. The decoder refuses other numbers.
  static constexpr auto kHandlers = [] {
    std::array<Handler, ROCI_ABI_COMMAND_COUNT> table{};
#define ROCI_ROW(name, request, response, takes_fds, check, offered, handler) \
  table[ROCI_ABI_##name] = &Session::handler;
    ROCI_SESSION_COMMANDS(ROCI_ROW)
#undef ROCI_ROW
    return table;
  }();
  return kHandlers[command];
}

absl::StatusOr<std::unique_ptr<Session>> Session::Create(Services& services, UniqueFd socket,
                                                         Peer peer, Admission admission,
                                                         uint32_t number,
                                                         std::function<void()> end) {
  std::unique_ptr<Session> session(new Session(services, std::move(socket), std::move(peer),
                                               std::move(admission), number, std::move(end)));
  const absl::Status status = session->Watch();
  if (!status.ok()) return status;
  return session;
}

Session::Session(Services& services, UniqueFd socket, Peer peer, Admission admission,
                 uint32_t number, std::function<void()> end)
    : services_(services),
      admission_(std::move(admission)),
      number_(number),
      end_(std::move(end)),
      socket_(std::move(socket)),
      peer_(std::move(peer)),
      program_(ProgramName(peer_.pid)) {}

Session::~Session() {
  while (ReleaseSome()) {
  }
}

void Session::Disconnect() {
  disconnected_ = true;
  if (waiting_path_ != 0) device_->CancelPath(waiting_path_);
  services_.blocking_calls.Forget(blocking_call_);
  services_.foreign_fds.Forget(broker_ticket_);
  services_.loop.Forget(socket_watch_);
  services_.loop.Forget(exit_watch_);
  services_.foreign_fds.Close(std::move(socket_), admission_.user);
  if (device_ == nullptr) return;
  if (group_ != nullptr) group_->Leave(this);
  Log(LogArea::kSession, LogLevel::kInfo, "session %u of %s[%d] on %s ends with %zu QPs, %zu MRs",
      number_, program_.c_str(), peer_.pid, device_->name().c_str(), qps_.size(), mrs_.size());
}

namespace {

// Objects that one call of ReleaseSome releases: those whose release takes a call on an lcore, and
// records.
constexpr size_t kObjectsInPart = 32;
constexpr size_t kRecordsInPart = 512;

}  // namespace

bool Session::ReleaseSome() {
  if (!disconnected_) {
    Disconnect();
    return true;
  }
  if (CancelSomePaths()) return true;
  if (shard_ != nullptr && group_ != nullptr && DropSomeKeys()) return true;
  if (flows_.RemoveSome(kObjectsInPart) || CloseSomeTargets()) return true;
  if (shard_ != nullptr && shard_->RemoveSome()) return true;
  shard_.reset();
  // From the last to the first: queue pairs before what they refer to.
  return qps_.RemoveSome(kObjectsInPart) || ahs_.RemoveSome(kRecordsInPart) ||
         srqs_.RemoveSome(kRecordsInPart) || cqs_.RemoveSome(kRecordsInPart) ||
         lists_.RemoveSome(kRecordsInPart) || mws_.RemoveSome(kRecordsInPart) ||
         mrs_.RemoveSome(kRecordsInPart) || channels_.RemoveSome(kRecordsInPart);
}

bool Session::CancelSomePaths() {
  for (size_t left = kObjectsInPart; left > 0; --left) {
    const uint64_t path = path_waits_.TakeAny();
    if (path == 0) return false;
    device_->CancelPath(path);
  }
  return true;
}

// Other sessions of the context may continue to use them.
bool Session::CloseSomeTargets() {
  size_t left = kObjectsInPart;
  for (auto it = qps_.From(next_target_); it != qps_.end(); ++it) {
    next_target_ = it->first + 1;
    QpRecord& record = *qps_.Find(it->first);
    if (record.domain == nullptr) continue;
    CloseTarget(record);
    if (--left == 0) return true;
  }
  return false;
}

absl::Status Session::Watch() {
  absl::StatusOr<EventLoop::Watch> watch = services_.loop.Add(
      socket_.get(), EPOLLIN,
      [this](uint32_t events) { AnswerOrEnd([&] { HandleSocket(events); }); },
      admission_.user->loop_share);
  if (!watch.ok()) return watch.status();
  socket_watch_ = *watch;
  if (!peer_.pidfd.valid()) return absl::OkStatus();
  // A child of the program may have inherited the socket and keep it open after the program's end.
  watch = services_.loop.Add(peer_.pidfd.get(), EPOLLIN, [this](uint32_t) { end_(); });
  if (!watch.ok()) return watch.status();
  exit_watch_ = *watch;
  return absl::OkStatus();
}

void Session::HandleSocket(uint32_t events) {
  if (deferred_ || paused_ || broker_ticket_ != 0) {
    // Reading is disabled: the event can only be the end of the program.
    if (events & (EPOLLHUP | EPOLLERR)) end_();
    return;
  }
  // Limits, so that requests of one program do not delay the others.
  constexpr int kMostInARow = 8;
  constexpr roce::TimeNs kLongestRowNs = 500'000;
  const roce::TimeNs end = MonotonicNow() + kLongestRowNs;
  for (int i = 0; i < kMostInARow && HandleNext(i == 0) && MonotonicNow() < end; ++i) {
  }
}

// A program that registers memory or sets up connections often sends its next request within
// microseconds of the answer: faster than epoll reports it, and much faster than a wake-up.
bool Session::HandleNext(bool is_first) {
  constexpr roce::TimeNs kSpinNs = 8'000;
  if (MustWait()) {
    if (is_first) Pause();  // a request waits
    return false;
  }
  if (!is_first && !spins_.Allows()) return false;
  std::array<std::byte, kMaxRequestBytes> buffer;
  size_t size = 0;
  auto result = ReceiveMessage(socket_.get(), buffer, size);
  if (!is_first) {
    const roce::TimeNs end = MonotonicNow() + kSpinNs;
    while (result == ReceiveResult::kNothing && MonotonicNow() < end) {
      result = ReceiveMessage(socket_.get(), buffer, size);
    }
    spins_.Note(result != ReceiveResult::kNothing);
  }
  if (result == ReceiveResult::kNothing) return false;
  if (result == ReceiveResult::kClosed || !CheckSize(size)) {
    end_();
    return false;
  }
  const std::span<const std::byte> message = std::span(buffer).first(size);
  if (result == ReceiveResult::kDescriptors) {
    ReceiveDescriptors(message);
    return false;
  }
  HandleMessage(message, nullptr);
  return !deferred_ && !paused_;
}

// A request may concern memory for which a copy waits, or make large queues faster than they are
// unmapped. A program finds the quotas that an ended program of its user has used.
bool Session::MustWait() const {
  if (admission_.user->MustAwaitRings()) return true;
  return shard_ != nullptr ? shard_->IsStalled() : admission_.user->ending_sessions != 0;
}

void Session::Pause() {
  paused_ = true;
  paused_at_ = MonotonicNow();
  services_.loop.Change(socket_watch_, 0);
  services_.resume_later(number_);
}

bool Session::Resume() {
  if (delayed_.has_value()) return ContinueDelayed();
  bool refuses = false;
  if (held_answer_.has_value()) {
    if (shard_->HasUnfinishedCopies() && MonotonicNow() < held_answer_->deadline) return false;
  } else if (MustWait()) {
    refuses = HasWaitedTooLong();
    if (!refuses) return false;
  }
  paused_ = false;
  services_.loop.Change(socket_watch_, EPOLLIN);
  if (refuses) AnswerOrEnd([&] { RefuseNext(); });
  if (!held_answer_.has_value() || refuses) return true;
  HeldAnswer held = *std::move(held_answer_);
  held_answer_.reset();
  AnswerOrEnd([&] { Send(request_, held.status, held.reply); });
  return true;
}

// Long before the plugin takes the daemon for dead. An answer may be held for a second more.
bool Session::HasWaitedTooLong() const {
  constexpr roce::TimeNs kLongestNs = 20 * roce::kNsPerSecond;
  static_assert(kLongestNs + 5 * roce::kNsPerSecond < ROCI_ABI_ANSWER_LIMIT_S * roce::kNsPerSecond);
  return MonotonicNow() >= paused_at_ + kLongestNs;
}

absl::Status Session::WaitedTooLong() {
  return StatusFromErrno(EAGAIN, "memory that does not come, or queues that are still mapped");
}

void Session::RefuseNext() {
  std::array<std::byte, kMaxRequestBytes> buffer;
  size_t size = 0;
  const ReceiveResult result = ReceiveMessage(socket_.get(), buffer, size);
  if (result == ReceiveResult::kNothing) return;
  if (result == ReceiveResult::kClosed || !CheckSize(size)) return end_();
  const std::span<const std::byte> message = std::span(buffer).first(size);
  if (result == ReceiveResult::kDescriptors) {
    services_.loop.Change(socket_watch_, 0);
    return RefuseDescriptors(message, WaitedTooLong());
  }
  absl::Status status = DecodeRequest(message, 0, limits_, request_);
  // The program has received the events, and the request concerns no memory.
  if (request_.head.command == ROCI_ABI_RETURN_EVENTS) return HandleMessage(message, nullptr);
  if (status.ok()) status = WaitedTooLong();
  Reply reply;
  Send(request_, status, reply);
}

// No command is longer than the buffer; a message shorter than a head cannot be answered.
bool Session::CheckSize(size_t size) const {
  if (size >= sizeof(roci_abi_request) && size <= kMaxRequestBytes) return true;
  Log(LogArea::kSession, LogLevel::kInfo, "session %u of %s[%d]: message of %zu bytes; closing",
      number_, program_.c_str(), peer_.pid, size);
  return false;
}

void Session::ReceiveDescriptors(std::span<const std::byte> message) {
  services_.loop.Change(socket_watch_, 0);
  broker_ticket_ = services_.foreign_fds.Receive(
      socket_.get(), admission_.user,
      [this](const ForeignMessage* received) { HandleDescriptors(received); });
  if (broker_ticket_ == 0) RefuseDescriptors(message, TooManyDescriptors());
}

void Session::HandleDescriptors(const ForeignMessage* message) {
  broker_ticket_ = 0;
  services_.loop.Change(socket_watch_, EPOLLIN);
  if (message != nullptr) {
    const roce::TimeNs begin = MonotonicNow();
    HandleMessage(message->bytes, message->files);
    return admission_.user->loop_share->Charge(MonotonicNow() - begin);
  }
  // The broker is full.
  std::array<std::byte, kMaxRequestBytes> buffer;
  size_t size = 0;
  const ReceiveResult result = ReceiveMessage(socket_.get(), buffer, size);
  if (result != ReceiveResult::kDescriptors || !CheckSize(size)) return end_();
  services_.loop.Change(socket_watch_, 0);
  AnswerOrEnd([&] { RefuseDescriptors(std::span(buffer).first(size), TooManyDescriptors()); });
}

absl::Status Session::TooManyDescriptors() {
  return StatusFromErrno(ENFILE, "descriptors that are not closed yet");
}

// The answer does not wait until the descriptors of this message are closed.
void Session::RefuseDescriptors(std::span<const std::byte> message, const absl::Status& reason) {
  Reply reply;
  DecodeRequest(message, 0, limits_, request_).IgnoreError();  // for its head
  broker_ticket_ = services_.foreign_fds.Drop(socket_.get(), admission_.user, [this] {
    broker_ticket_ = 0;
    services_.loop.Change(socket_watch_, EPOLLIN);
  });
  Send(request_, reason, reply);
}

void Session::HandleMessage(std::span<const std::byte> message, const FdsPointer& fds) {
  AnswerOrEnd([&] { AnswerMessage(message, fds); });
}

void Session::AnswerMessage(std::span<const std::byte> message, const FdsPointer& fds) {
  request_began_ = MonotonicNow();
  const uint32_t fd_count = fds != nullptr ? fds->message_count() : 0;
  absl::Status status =
      OrRefuse([&] { return DecodeRequest(message, fd_count, limits_, request_); });
  if (!ApplyFaults(status, fds)) BeginRequest(status, fds);
}

// `status`: of a request that is refused already, if not OK.
void Session::BeginRequest(absl::Status status, const FdsPointer& fds) {
  if (!status.ok()) {
    Reply reply;
    return SendOrHold(status, reply);
  }
  bool waits = false;
  status = OrRefuse([&] {
    const absl::StatusOr<bool> started = StartLookup(fds);
    waits = started.value_or(false);
    return started.status();
  });
  if (!waits) AnswerRequest(status, fds, FindingsUse::kNone);
}

void Session::AnswerRequest(absl::Status status, const FdsPointer& fds, FindingsUse findings) {
  Reply reply;
  if (status.ok()) status = OrRefuse([&] { return Dispatch(request_, fds, reply); });
  const bool may_retry = absl::IsResourceExhausted(status) &&
                         admission_.user->ending_sessions != 0 && findings == FindingsUse::kNone;
  if (may_retry && OrRefuse([&] { return RetryLater(fds); }).ok()) return;
  if (status.ok() && reply.deferred) {
    deferred_ = true;
    services_.loop.Change(socket_watch_, 0);
    return;
  }
  SendOrHold(status, reply);
}

absl::Status Session::RetryLater(const FdsPointer& fds) {
  services_.continue_later(number_);
  retry_ = fds;
  deferred_ = true;
  services_.loop.Change(socket_watch_, 0);
  return absl::OkStatus();
}

// ibv_dereg_mr, ibv_destroy_qp and a change to RESET must not return before the device's last
// access to the memory. HandleNext() delays requests that arrive while a copy is stalled. This
// function delays the answer, at most kLongestNs, of a request that was being handled when a copy
// stalled.
void Session::SendOrHold(const absl::Status& status, Reply& reply) {
  constexpr roce::TimeNs kLongestNs = roce::kNsPerSecond;
  if (shard_ == nullptr || !shard_->HasUnfinishedCopies()) {
    return Send(request_, status, reply);
  }
  held_answer_ = {status, std::move(reply), MonotonicNow() + kLongestNs};
  Pause();
}

absl::Status Session::Dispatch(const Request& request, const FdsPointer& fds, Reply& reply) {
  const uint32_t command = request.head.command;
  const bool opens = command == ROCI_ABI_HELLO || command == ROCI_ABI_ATTACH;
  if (opens != (device_ == nullptr)) {
    return absl::InvalidArgumentError(opens ? "the session has opened a device already"
                                            : "the first command must be HELLO");
  }
  // A handler adds its record last; that must not fail.
  ForEachTable([](auto& table) { table.MakeRoom(); });
  const absl::Status status = (this->*HandlerOf(command))(request, fds, reply);
  return absl::IsNotFound(status) && DestroysAnothers(request) ? absl::OkStatus() : status;
}

namespace {

// Tells a refused plugin this daemon's version.
void NameVersion(const Request& request, Reply& reply) {
  if (request.head.command != ROCI_ABI_HELLO && request.head.command != ROCI_ABI_ATTACH) return;
  auto& response = reply.As<roci_abi_hello_response>();
  response.magic = ROCI_ABI_MAGIC;
  response.major = ROCI_ABI_MAJOR;
}

}  // namespace

void Session::Send(const Request& request, const absl::Status& status, Reply& reply) {
  const uint32_t wait = reply.wait;  // not 0: the program will repeat the request
  if (!status.ok() && wait == 0) {
    Log(LogArea::kSession, LogLevel::kInfo, "session %u of %s[%d]: %s refused: %s", number_,
        program_.c_str(), peer_.pid, request.info != nullptr ? request.info->name : "command",
        std::string(status.message()).c_str());
  }
  if (!status.ok()) reply = Reply{};
  const auto lowered = std::exchange(injected_limits_, {});
  if (status.ok()) LowerLimits(lowered, request.head.command, reply.bytes);
  auto& head = reply.As<roci_abi_response>();
  head.serial = request.head.serial;
  head.wait = wait;
  const int error = ErrnoOf(status);
  head.error = error == EMFILE ? ENFILE : error;  // the daemon's table is full, not the program's
  if (injected_error_ != 0) head.error = std::exchange(injected_error_, 0);
  head.fd_count = static_cast<uint32_t>(reply.fds.size());
  if (error == EPROTONOSUPPORT) NameVersion(request, reply);
  const size_t size =
      request.info != nullptr ? request.info->response_size : sizeof(roci_abi_response);
  // There is one request at a time: a program that does not read its answer is broken or hostile.
  if (!SendMessage(socket_.get(), std::span(reply.bytes).first(size), reply.fds)) end_();
  if (request.info == nullptr || request_began_ == 0 || wait != 0) return;
  services_.call_times.Note(request.head.command, MonotonicNow() - request_began_, !status.ok());
  request_began_ = 0;
}

absl::Status Session::RunInParts(Part part, Reply& reply) {
  const absl::StatusOr<bool> has_more = part(reply);
  if (!has_more.ok() || !*has_more) return has_more.status();
  services_.continue_later(number_);
  next_part_ = std::move(part);
  reply.deferred = true;
  return absl::OkStatus();
}

bool Session::Continue() {
  if (retry_.has_value()) {
    if (admission_.user->ending_sessions != 0) return true;
    const FdsPointer fds = *std::move(retry_);
    retry_.reset();
    deferred_ = false;
    services_.loop.Change(socket_watch_, EPOLLIN);
    AnswerOrEnd([&] { AnswerRequest(absl::OkStatus(), fds, FindingsUse::kNone); });
    return false;
  }
  bool has_more = false;
  AnswerOrEnd([&] {
    Reply reply;
    const absl::Status status = OrRefuse([&] {
      const absl::StatusOr<bool> result = next_part_(reply);
      has_more = result.value_or(false);
      return result.status();
    });
    if (has_more) return;
    next_part_ = nullptr;
    FinishDeferred(status, reply);
  });
  return has_more;
}

void Session::FinishDeferred(const absl::Status& status, Reply& reply) {
  deferred_ = false;
  waiting_path_ = 0;
  services_.loop.Change(socket_watch_, EPOLLIN);
  SendOrHold(status, reply);
}

}  // namespace roci::control
