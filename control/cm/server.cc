#include "control/cm/server.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "control/cm/injected_error.h"
#include "control/cm/questions.h"
#include "control/loop/errno_status.h"
#include "control/loop/log.h"
#include "control/loop/no_memory.h"
#include "control/loop/privilege.h"
#include "control/loop/protocol_version.h"
#include "verbs_provider/abi/cm_commands.h"

namespace roci::control::cm {
namespace {

template <class T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

bool IsPrivilegedPort(AddressBytes bytes) {
  if (!HasFamily(bytes)) return false;
  const std::optional<SocketAddress> address = LoadSocketAddress(bytes);
  return address && address->port != 0 && address->port < kFirstFreePort;
}

bool BindsPrivilegedPort(const Command& command) {
  switch (command.number) {
#define ROCI_ROW(name, subject, type, answer, handler) \
  case RDMA_USER_CM_CMD_##name:                        \
    return IsPrivilegedPort(LocalAddressIn(command.As<type>()));
    ROCI_CM_COMMANDS(ROCI_ROW)  // NOLINT(bugprone-branch-clone)
#undef ROCI_ROW
    default:
      return false;
  }
}

// Whether a command and a handler have one name: "BIND_IP", "BindIp".
constexpr bool IsHandlerName(std::string_view command, std::string_view handler) {
  size_t at = 0;
  for (const char c : command) {
    if (c == '_') continue;
    if (at == handler.size()) return false;
    const char given = handler[at++];
    if ((given >= 'a' && given <= 'z' ? given - 'a' + 'A' : given) != c) return false;
  }
  return at == handler.size();
}

// The subject of a command, by the parameters of its handler.
template <class In, class... Out>
constexpr roci_abi_cm_subject SubjectOf(absl::Status (Server::*)(Channel&, const In&, Out...)) {
  return ROCI_ABI_CM_ON_CHANNEL;
}
template <class In, class... Out>
constexpr roci_abi_cm_subject SubjectOf(absl::Status (Server::*)(CmId&, const In&, Out...)) {
  return ROCI_ABI_CM_ON_ID;
}
template <class In, class Answer>
constexpr roci_abi_cm_subject SubjectOf(absl::Status (Server::*)(CmId&, const In&,
                                                                 QueryAnswer<Answer>)) {
  return ROCI_ABI_CM_QUERY_ID;
}

}  // namespace

Server::Server(Services& services)
    : services_(services),
      incoming_(
          services.accounts, [this](UniqueFd& socket, Peer& peer) { return Open(socket, peer); },
          [this](UniqueFd socket, const absl::Status& status) {
            Refuse(std::move(socket), status);
          }),
      manager_(services) {}

absl::StatusOr<std::unique_ptr<Server>> Server::Create(Services& services,
                                                       const std::string& runtime_dir,
                                                       bool public_socket) {
  absl::StatusOr<UniqueFd> listener =
      ListenUnix(runtime_dir, ROCI_ABI_CM_SOCKET_NAME, SOCK_SEQPACKET, SocketMode(public_socket));
  if (!listener.ok()) return listener.status();
  std::unique_ptr<Server> server(new Server(services));
  Server* const self = server.get();
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Create(
      services.loop, *std::move(listener),
      [self](UniqueFd socket) { self->incoming_.Take(std::move(socket)); },
      [](int socket) { SendRefusal(socket, StatusFromErrno(ENFILE, "file descriptors")); },
      [self](UniqueFd socket) { self->services_.foreign_fds.Close(std::move(socket)); });
  if (!acceptor.ok()) return acceptor.status();
  server->acceptor_ = *std::move(acceptor);
  return server;
}

Server::~Server() {
  ending_.merge(channels_);
  for (const auto& [number, channel] : ending_) {
    while (manager_.DestroySome(*channel)) {
    }
  }
}

void Server::Refuse(UniqueFd socket, const absl::Status& status) {
  SendRefusal(socket.get(), status);
  services_.foreign_fds.Close(std::move(socket));
  Log(LogArea::kSession, LogLevel::kWarning, "event channel refused: %s",
      std::string(status.message()).c_str());
}

absl::Status Server::Open(UniqueFd& socket, Peer& peer) {
  Channel::Admission admission;
  admission.user = services_.users.Get(peer.uid, peer.has_rights_of_daemon);
  admission.channel = QuotaShare(admission.user->event_channels, 1);
  admission.descriptors = QuotaShare(admission.user->descriptors, Channel::kDescriptors);
  if (!admission.channel.ok() || !admission.descriptors.ok()) {
    return StatusFromErrno(
        ENFILE,
        absl::StrCat(admission.channel.ok() ? "descriptors for an event channel" : "event channels",
                     " of user ", peer.uid));
  }
  while (++last_number_ == 0 || channels_.contains(last_number_) ||
         ending_.contains(last_number_)) {
  }
  admission.hello_deadline = hello_deadlines_.Add(last_number_, MonotonicNow());
  const roce::TimeNs deadline = admission.hello_deadline;
  absl::StatusOr<std::unique_ptr<Channel>> channel =
      Channel::Create(services_.loop, services_.foreign_fds, services_.blocking_calls,
                      std::move(socket), std::move(peer), std::move(admission), last_number_,
                      [this](Channel& ready) { Receive(ready); });
  if (!channel.ok()) {
    hello_deadlines_.Forget(last_number_, deadline);
    return channel.status();
  }
  channels_.emplace(last_number_, *std::move(channel));
  return absl::OkStatus();
}

void Server::HandleTimeout(roce::TimeNs now) {
  EndSome();
  for (const uint32_t number : hello_deadlines_.TakeDue(now)) {
    const auto it = channels_.find(number);
    if (it == channels_.end() || it->second->is_open()) continue;
    Log(LogArea::kSession, LogLevel::kWarning,
        "rdma_cm channel %u of pid %d sent no OPEN in time, closing it", number,
        it->second->peer().pid);
    channels_.erase(it);
  }
}

// Destroys the channel later: its own handler may be running.
void Server::Close(Channel& channel) {
  hello_deadlines_.Forget(channel.number(), channel.hello_deadline());
  channel.Disconnect();
  ending_.insert(channels_.extract(channel.number()));
  // Most have few identifiers, whose ports are then free for the next request.
  manager_.DestroySome(channel);
}

// A part of one channel in each iteration of the loop, in turn.
void Server::EndSome() {
  if (ending_.empty()) return;
  auto it = ending_.upper_bound(last_ended_);
  if (it == ending_.end()) it = ending_.begin();
  last_ended_ = it->first;
  if (!manager_.DestroySome(*it->second)) ending_.erase(it);
}

// Handles one message per wake-up: a program waits for its answer before the next command, and a
// flood on one channel does not delay the others.
void Server::Receive(Channel& channel) {
  // Nothing is read: it can only be that the program is gone.
  if (channel.is_waiting()) return Close(channel);
  std::array<std::byte, sizeof(roci_abi_cm_request)> buffer;
  size_t size = 0;
  switch (ReceiveMessage(channel.socket(), buffer, size)) {
    case ReceiveResult::kNothing:
      return;
    case ReceiveResult::kClosed:
    case ReceiveResult::kDescriptors:  // no command carries descriptors
      return Close(channel);
    case ReceiveResult::kMessage:
      break;
  }
  const std::span<const std::byte> message(buffer.data(), std::min(size, buffer.size()));
  const bool fits = size <= buffer.size();
  const bool answered =
      fits && (size == sizeof(roci_abi_cm_request) ? AnswerCommand(channel, message)
                                                   : AnswerOpen(channel, message));
  if (!answered) Close(channel);
}

namespace {

absl::Status OpenSignal(Channel& channel, uint16_t major, UniqueFd& signal) {
  if (absl::Status status = CheckProtocolVersion(major); !status.ok()) return status;
  absl::StatusOr<UniqueFd> opened = channel.OpenSignal();
  if (!opened.ok()) return opened.status();
  signal = *std::move(opened);
  return absl::OkStatus();
}

}  // namespace

bool Server::AnswerOpen(Channel& channel, std::span<const std::byte> message) {
  roci_abi_cm_open_request request;
  if (message.size() != sizeof(request)) return false;
  std::memcpy(&request, message.data(), sizeof(request));
  if (request.head.command != ROCI_ABI_CM_OPEN || request.magic != ROCI_ABI_MAGIC ||
      channel.is_open()) {
    return false;
  }
  roci_abi_cm_open_response response = {};
  response.head.serial = request.head.serial;
  response.channel = channel.number();
  UniqueFd signal;
  const absl::Status status = OpenSignal(channel, request.major, signal);
  if (!status.ok()) {
    Log(LogArea::kSession, LogLevel::kWarning, "rdma_cm channel %u of pid %d: %s", channel.number(),
        channel.peer().pid, std::string(status.message()).c_str());
    response.head.error = ErrnoOf(status);
    return SendMessage(channel.socket(), BytesOf(response), {});
  }
  response.head.fd_count = 1;
  const int fd = signal.get();
  return SendMessage(channel.socket(), BytesOf(response), std::span<const int>(&fd, 1));
}

bool Server::AnswerCommand(Channel& channel, std::span<const std::byte> message) {
  roci_abi_cm_request request;
  std::memcpy(&request, message.data(), sizeof(request));
  if (request.head.command != ROCI_ABI_CM_COMMAND || !channel.is_open()) return false;
  Command command;
  if (DecodeCommand(request, command).ok() && BindsPrivilegedPort(command)) {
    Channel* const asking = &channel;
    auto kept = std::make_shared<const roci_abi_cm_request>(request);
    const bool waits = channel.LookUpPrivilege([this, asking, kept] {
      const bool answered = FinishCommand(*asking, *kept);
      asking->ForgetPrivilege();
      if (!answered) Close(*asking);
    });
    if (waits) return true;
  }
  return FinishCommand(channel, request);
}

bool Server::FinishCommand(Channel& channel, const roci_abi_cm_request& request) {
  CommandReply reply;
  roci_abi_cm_response& response = reply.response;
  Command command;
  absl::Status status = DecodeCommand(request, command);
  if (status.ok()) status = Run(channel, command, reply);
  response.head.serial = request.head.serial;
  if (!status.ok()) {
    response.head.error = ErrnoOf(status);
    Log(LogArea::kSession, LogLevel::kDebug, "rdma_cm channel %u: %s: %s", channel.number(),
        command.info != nullptr ? command.info->name : "?", std::string(status.message()).c_str());
  }
  response.out_size = std::min(response.out_size, request.out_size);
  response.data_size = response.out_size;
  const bool is_query = command.info != nullptr && command.info->is_query;
  response.changed_id = is_query ? 0 : command.id().value_or(0);
  if (status.ok()) Prefetch(channel, command, reply);
  response.bytes_withdrawn = channel.WithdrawnBytes();
  if (status.ok() && command.number == RDMA_USER_CM_CMD_MIGRATE_ID) {
    const auto from = channels_.find(command.As<rdma_ucm_migrate_id>().fd);
    if (from != channels_.end()) response.bytes_withdrawn_from = from->second->WithdrawnBytes();
  }
  constexpr size_t kHead = offsetof(roci_abi_cm_response, data);
  return SendMessage(channel.socket(), BytesOf(response).first(kHead + response.data_size), {});
}

void Server::Prefetch(const Channel& channel, const Command& command, CommandReply& reply) {
  const std::optional<rdma_ucm_event_resp>& event = reply.event;
  const Occasion occasion = event ? OccasionOfEvent(event->event) : OccasionOf(command.number);
  const std::optional<uint32_t> number = event ? event->id : command.id();
  if (occasion == Occasion::kOther || !number) return;
  if (const CmId* id = manager_.ids().Find(channel, *number)) {
    PrefetchAnswers(*id, occasion, reply.response);
  }
}

absl::Status Server::Run(Channel& channel, const Command& command, CommandReply& out) {
  CmId* id = nullptr;
  if (const std::optional<uint32_t> number = command.id()) {
    id = manager_.ids().Find(channel, *number);
    if (id == nullptr) return absl::NotFoundError("no such identifier");
    if (const int error = InjectedErrorOfAnswer(*id, command.number)) {
      return StatusFromErrno(error, "fault");
    }
  }
  switch (command.number) {
#define ROCI_ROW(name, subject, type, answer, handler)                   \
  case RDMA_USER_CM_CMD_##name:                                          \
    static_assert(IsHandlerName(#name, #handler));                       \
    static_assert(SubjectOf(&Server::handler) == ROCI_ABI_CM_##subject); \
    return Call<type, answer>(&Server::handler, channel, id, command, out);
    ROCI_CM_COMMANDS(ROCI_ROW)
#undef ROCI_ROW
    default:
      return StatusFromErrno(ENOSYS,
                             "unknown command");  // unreachable: the decoder refuses the command
  }
}

template <class Object>
Object& Server::SubjectIn(Channel& channel, CmId* id) {
  if constexpr (std::is_same_v<Object, Channel>) {
    return channel;
  } else {
    return *id;
  }
}

template <class In, class Answer, class Object>
absl::Status Server::Call(Handler<Object, In, Answer&> handler, Channel& channel, CmId* id,
                          const Command& command, CommandReply& out) {
  static_assert(sizeof(Answer) <= sizeof(out.response.data));
  Answer answer = {};
  const absl::Status status =
      (this->*handler)(SubjectIn<Object>(channel, id), command.As<In>(), answer);
  if (!status.ok()) return status;
  std::memcpy(out.response.data, &answer, sizeof(answer));
  out.response.out_size = sizeof(answer);
  if constexpr (std::is_same_v<Answer, rdma_ucm_event_resp>) out.event = answer;
  return status;
}

template <class In, class Answer, class Object>
requires std::is_void_v<Answer> absl::Status Server::Call(Handler<Object, In> handler,
                                                          Channel& channel, CmId* id,
                                                          const Command& command, CommandReply&) {
  return (this->*handler)(SubjectIn<Object>(channel, id), command.As<In>());
}

template <class In, class Answer, class Object>
requires std::is_void_v<Answer> absl::Status Server::Call(
    Handler<Object, In, std::span<const std::byte>> handler, Channel& channel, CmId* id,
    const Command& command, CommandReply&) {
  return (this->*handler)(SubjectIn<Object>(channel, id), command.As<In>(), command.extra);
}

template <class In, class Answer>
absl::Status Server::Call(Handler<CmId, In, QueryAnswer<Answer>> handler, Channel&, CmId* id,
                          const Command& command, CommandReply& out) {
  return (this->*handler)(*id, command.As<In>(), {out.response});
}

}  // namespace roci::control::cm
