#include "control/session/session_server.h"

#include <malloc.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"
#include "control/loop/log.h"
#include "control/loop/no_memory.h"
#include "roce/work.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace roci::control {
namespace {

constexpr roce::TimeNs kResumeNs = roce::kNsPerMs;
constexpr roce::TimeNs kReleaseNs = roce::kNsPerMs;

}  // namespace

SessionServer::SessionServer(Services& services)
    : services_(services),
      incoming_(
          services.accounts, [this](UniqueFd& socket, Peer& peer) { return Open(socket, peer); },
          [this](UniqueFd socket, const absl::Status& status) {
            Refuse(std::move(socket), status);
          }) {}

absl::StatusOr<std::unique_ptr<SessionServer>> SessionServer::Create(Services& services,
                                                                     const std::string& runtime_dir,
                                                                     bool public_socket) {
  absl::StatusOr<UniqueFd> listener =
      ListenUnix(runtime_dir, abi::kSocketName, SOCK_SEQPACKET, SocketMode(public_socket));
  if (!listener.ok()) return listener.status();
  std::unique_ptr<SessionServer> server(new SessionServer(services));
  SessionServer* const self = server.get();
  services.contexts_of = [self](uid_t uid) { return self->ContextsOf(uid); };
  services.find_session = [self](uint32_t number) { return self->Find(number); };
  services.has_logged_reach = [self](uint64_t process, uint32_t number) {
    return self->HasLoggedReach(process, number);
  };
  services.resume_later = [self](uint32_t number) {
    self->paused_.push_back(number);
    self->next_resume_ = std::min(self->next_resume_, MonotonicNow() + kResumeNs);
  };
  services.continue_later = [self](uint32_t number) {
    self->continuing_.push_back({number, &self->Find(number)->user()});
  };
  for (const std::unique_ptr<Device>& device : services.devices) {
    device->SetPathsListener([self, &device = *device] { self->ShowPaths(device); });
  }
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Create(
      services.loop, *std::move(listener),
      [self](UniqueFd socket) { self->incoming_.Take(std::move(socket)); },
      [self](int socket) { self->Refuse(socket, StatusFromErrno(ENFILE, "file descriptors")); },
      [self](UniqueFd socket) { self->services_.foreign_fds.Close(std::move(socket)); });
  if (!acceptor.ok()) return acceptor.status();
  server->acceptor_ = *std::move(acceptor);
  return server;
}

void SessionServer::ShowPaths(const Device& device) const {
  for (const auto& [number, session] : sessions_) {
    if (session->device() == &device) session->shard()->ShowPaths(device.paths());
  }
}

void SessionServer::Refuse(UniqueFd socket, const absl::Status& status) {
  Refuse(socket.get(), status);
  services_.foreign_fds.Close(std::move(socket));
}

void SessionServer::Refuse(int socket, const absl::Status& status) {
  ++refused_;
  Log(LogArea::kSession, LogLevel::kWarning, "session socket: connection refused: %s",
      std::string(status.message()).c_str());
  SendRefusal(socket, status);
}

absl::StatusOr<Session::Admission> SessionServer::QuotasFor(const Peer& peer) {
  const uid_t uid = peer.uid;
  Session::Admission admission;
  admission.user = services_.users.Get(uid, peer.has_rights_of_daemon);
  Quota& sessions = admission.user->sessions;
  admission.session = QuotaShare(sessions, 1);
  if (!admission.session.ok()) {
    if (sessions.used() < sessions.limit() ||
        sessions.limit() == services_.config.limits.max_sessions) {
      return StatusFromErrno(EUSERS, "limits.max_sessions is reached");
    }
    return StatusFromErrno(EAGAIN, absl::StrCat("user ", uid, " has ", sessions.used(),
                                                " sessions, see limits.user_percent"));
  }
  admission.descriptors = QuotaShare(admission.user->descriptors, Session::kDescriptors);
  if (!admission.descriptors.ok()) {
    return StatusFromErrno(ENFILE, absl::StrCat("descriptors for a session of user ", uid));
  }
  admission.doorbells = admission.user->TakeRings(0);
  if (!admission.doorbells.ok()) return RingShare::Refusal();
  return admission;
}

absl::Status SessionServer::Open(UniqueFd& socket, Peer& peer) {
  absl::StatusOr<Session::Admission> admission = QuotasFor(peer);
  if (!admission.ok()) return admission.status();
  NoMemory();  // its first call allocates
  while (++last_number_ == 0 || sessions_.contains(last_number_) ||
         ending_.contains(last_number_)) {
  }
  const uint32_t number = last_number_;
  const roce::TimeNs deadline = hello_deadlines_.Add(number, MonotonicNow());
  admission->hello_deadline = deadline;
  auto end = [this, number] { services_.loop.Post([this, number] { End(number); }); };
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Create(
      services_, std::move(socket), std::move(peer), *std::move(admission), number, std::move(end));
  if (!session.ok()) {
    hello_deadlines_.Forget(number, deadline);
    return session.status();
  }
  sessions_.emplace(number, *std::move(session));
  return absl::OkStatus();
}

std::vector<ContextName> SessionServer::ContextsOf(uid_t uid) const {
  std::vector<ContextName> contexts;
  for (const auto& [number, session] : sessions_) {
    if (session->peer().uid != uid) continue;
    if (auto name = session->context_name()) contexts.push_back(*std::move(name));
  }
  return contexts;
}

Session* SessionServer::Find(uint32_t number) const {
  const auto it = sessions_.find(number);
  return it != sessions_.end() ? it->second.get() : nullptr;
}

bool SessionServer::HasLoggedReach(uint64_t process, uint32_t number) const {
  return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    const Session& session = *entry.second;
    return process != 0 && session.peer().process == process && session.number() != number &&
           session.has_logged_reach();
  });
}

void SessionServer::End(uint32_t number) {
  const auto it = sessions_.find(number);
  if (it == sessions_.end()) return;
  hello_deadlines_.Forget(number, it->second->hello_deadline());
  ++it->second->user().ending_sessions;
  ending_.insert(sessions_.extract(it));
  // Most sessions have few objects.
  constexpr int kPartsAtOnce = 4;
  for (int i = 0; i < kPartsAtOnce; ++i) ReleaseSome(number);
}

void SessionServer::EndAll(const Device& device) {
  for (const auto& [number, session] : sessions_) {
    if (session->device() != &device) continue;
    services_.loop.Post([this, ended = number] { End(ended); });
  }
}

void SessionServer::ReleaseSome(uint32_t number) {
  const auto it = ending_.find(number);
  if (it == ending_.end()) return;
  const std::shared_ptr<LoopShare> share = it->second->user().loop_share;
  const roce::TimeNs begin = MonotonicNow();
  const bool has_more = it->second->ReleaseSome();
  share->Charge(MonotonicNow() - begin);
  if (has_more) return;
  --it->second->user().ending_sessions;
  ending_.erase(it);
  // Return heap memory of programs with very many objects to the system. Only without sessions,
  // since it takes long.
  if (sessions_.empty() && ending_.empty()) malloc_trim(0);
}

// The next session of another user than the last, however many that one has ended.
void SessionServer::ReleaseSome() {
  if (ending_.empty()) return;
  auto next = ending_.upper_bound(last_released_);
  for (size_t left = ending_.size(); left > 0; --left) {
    if (next == ending_.end()) next = ending_.begin();
    if (&next->second->user() != last_releasing_) break;
    if (left > 1) ++next;
  }
  last_released_ = next->first;
  last_releasing_ = &next->second->user();
  ReleaseSome(last_released_);
}

void SessionServer::ResumePaused(roce::TimeNs now) {
  if (now < next_resume_) return;
  // A session that resumes may pause again: then it is appended.
  for (size_t i = 0; i < paused_.size();) {
    Session* const session = Find(paused_[i]);
    if (session == nullptr || session->Resume()) {
      paused_.erase(paused_.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  next_resume_ = paused_.empty() ? roce::kNever : now + kResumeNs;
}

// One part of one request, so that other requests are handled in between: the longest waiting one
// of another user than the last, however many sessions that one has.
void SessionServer::ContinueOne() {
  if (continuing_.empty()) return;
  const auto is_others = [this](const Continuing& each) { return each.user != last_continued_; };
  auto next = std::find_if(continuing_.begin(), continuing_.end(), is_others);
  if (next == continuing_.end()) next = continuing_.begin();
  std::rotate(next, next + 1, continuing_.end());
  const Continuing turn = continuing_.back();
  last_continued_ = turn.user;
  Session* session = Find(turn.number);
  const roce::TimeNs begin = MonotonicNow();
  const bool has_more = session != nullptr && session->Continue();
  if (session != nullptr) session->user().loop_share->Charge(MonotonicNow() - begin);
  // The request of a second try has an entry of its own, behind this one.
  if (!has_more) continuing_.erase(std::find(continuing_.begin(), continuing_.end(), turn));
}

roce::TimeNs SessionServer::NextTimeout() const {
  if (!continuing_.empty() || !ending_.empty()) return 0;
  const roce::TimeNs release = services_.dataplane.HasReleases() ? next_release_ : roce::kNever;
  return std::min({hello_deadlines_.Next(), next_resume_, release});
}

void SessionServer::HandleTimeout(roce::TimeNs now) {
  ResumePaused(now);
  ContinueOne();
  ReleaseSome();
  if (now >= next_release_) {
    services_.dataplane.ReleaseSome();
    next_release_ = now + kReleaseNs;
  }
  for (const uint32_t number : hello_deadlines_.TakeDue(now)) {
    const auto it = sessions_.find(number);
    if (it == sessions_.end() || it->second->device() != nullptr) continue;
    Log(LogArea::kSession, LogLevel::kWarning,
        "session %u of %s[%d] (uid %u) has opened no device in time; closing", number,
        it->second->program().c_str(), it->second->peer().pid, it->second->peer().uid);
    sessions_.erase(it);
  }
}

}  // namespace roci::control
