#include "control/cm/server.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "control/cm/questions.h"
#include "control/loop/errno_status.h"
#include "control/loop/log.h"
#include "control/loop/privilege.h"

namespace roci::control::cm {
namespace {

template <class T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

template <class T>
void Put(const T& answer, roci_abi_cm_response& out) {
  static_assert(sizeof(T) <= sizeof(out.data));
  std::memcpy(out.data, &answer, sizeof(T));
  out.out_size = sizeof(T);
}

absl::StatusOr<SocketAddress> AddressOf(const void* bytes, size_t size) {
  const std::optional<SocketAddress> address =
      LoadSocketAddress({static_cast<const std::byte*>(bytes), size});
  if (!address) return absl::InvalidArgumentError("address");
  return *address;
}

// Addresses of an absent source are all zero.
bool HasFamily(const void* bytes) {
  sa_family_t family;
  std::memcpy(&family, bytes, sizeof(family));
  return family != AF_UNSPEC;
}

bool IsPrivilegedPort(const void* bytes, size_t size) {
  if (size < sizeof(sa_family_t) || !HasFamily(bytes)) return false;
  const absl::StatusOr<SocketAddress> address = AddressOf(bytes, size);
  return address.ok() && address->port != 0 && address->port < kFirstFreePort;
}

bool BindsPrivilegedPort(const Command& command) {
  switch (command.number) {
    case RDMA_USER_CM_CMD_BIND_IP: {
      const auto& in = command.As<rdma_ucm_bind_ip>();
      return IsPrivilegedPort(&in.addr, sizeof(in.addr));
    }
    case RDMA_USER_CM_CMD_BIND: {
      const auto& in = command.As<rdma_ucm_bind>();
      return IsPrivilegedPort(&in.addr, std::min<size_t>(in.addr_size, sizeof(in.addr)));
    }
    case RDMA_USER_CM_CMD_RESOLVE_IP: {
      const auto& in = command.As<rdma_ucm_resolve_ip>();
      return IsPrivilegedPort(&in.src_addr, sizeof(in.src_addr));
    }
    case RDMA_USER_CM_CMD_RESOLVE_ADDR: {
      const auto& in = command.As<rdma_ucm_resolve_addr>();
      return IsPrivilegedPort(&in.src_addr, std::min<size_t>(in.src_size, sizeof(in.src_addr)));
    }
    default:
      return false;
  }
}

template <class T>
uint32_t IdIn(const Command& command) {
  return command.As<T>().id;
}

// Nothing: the command has no identifier of the channel.
std::optional<uint32_t> IdOf(const Command& command) {
  switch (command.number) {
    case RDMA_USER_CM_CMD_DESTROY_ID:
      return IdIn<rdma_ucm_destroy_id>(command);
    case RDMA_USER_CM_CMD_BIND_IP:
      return IdIn<rdma_ucm_bind_ip>(command);
    case RDMA_USER_CM_CMD_BIND:
      return IdIn<rdma_ucm_bind>(command);
    case RDMA_USER_CM_CMD_RESOLVE_IP:
      return IdIn<rdma_ucm_resolve_ip>(command);
    case RDMA_USER_CM_CMD_RESOLVE_ADDR:
      return IdIn<rdma_ucm_resolve_addr>(command);
    case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
      return IdIn<rdma_ucm_resolve_route>(command);
    case RDMA_USER_CM_CMD_QUERY_ROUTE:
    case RDMA_USER_CM_CMD_QUERY:
      return IdIn<rdma_ucm_query>(command);
    case RDMA_USER_CM_CMD_CONNECT:
      return IdIn<rdma_ucm_connect>(command);
    case RDMA_USER_CM_CMD_LISTEN:
      return IdIn<rdma_ucm_listen>(command);
    case RDMA_USER_CM_CMD_ACCEPT:
      return IdIn<rdma_ucm_accept>(command);
    case RDMA_USER_CM_CMD_REJECT:
      return IdIn<rdma_ucm_reject>(command);
    case RDMA_USER_CM_CMD_DISCONNECT:
      return IdIn<rdma_ucm_disconnect>(command);
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
      return IdIn<rdma_ucm_init_qp_attr>(command);
    case RDMA_USER_CM_CMD_SET_OPTION:
      return IdIn<rdma_ucm_set_option>(command);
    case RDMA_USER_CM_CMD_NOTIFY:
      return IdIn<rdma_ucm_notify>(command);
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
      return IdIn<rdma_ucm_join_ip_mcast>(command);
    case RDMA_USER_CM_CMD_JOIN_MCAST:
      return IdIn<rdma_ucm_join_mcast>(command);
    default:
      return std::nullopt;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(Services& services,
                                                       const std::string& runtime_dir,
                                                       bool public_socket) {
  absl::StatusOr<UniqueFd> listener =
      ListenUnix(runtime_dir, ROCI_ABI_CM_SOCKET_NAME, SOCK_SEQPACKET, public_socket ? 0666 : 0600);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<Server> server(new Server(services));
  Server* const self = server.get();
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Create(
      services.loop, *std::move(listener),
      [self](UniqueFd socket) { self->Take(std::move(socket)); },
      [](int socket) { SendRefusal(socket, StatusFromErrno(ENFILE, "file descriptors")); },
      [self](UniqueFd socket) { self->services_.foreign_fds.Close(std::move(socket)); });
  if (!acceptor.ok()) return acceptor.status();
  server->acceptor_ = *std::move(acceptor);
  return server;
}

Server::~Server() {
  for (const auto& [number, channel] : channels_) manager_.DestroyAll(*channel);
}

void Server::Take(UniqueFd socket) {
  const absl::Status status = Open(socket);
  if (status.ok()) return;
  SendRefusal(socket.get(), status);
  services_.foreign_fds.Close(std::move(socket));
  Log(LogArea::kSession, LogLevel::kWarning, "event channel refused: %s",
      std::string(status.message()).c_str());
}

absl::Status Server::Open(UniqueFd& socket) {
  absl::StatusOr<Peer> peer = PeerOf(socket.get());
  if (!peer.ok()) return peer.status();
  Channel::Admission admission;
  admission.user = services_.users.Get(peer->uid);
  admission.channel = QuotaShare(admission.user->event_channels, 1);
  admission.descriptors = QuotaShare(admission.user->descriptors, Channel::kDescriptors);
  if (!admission.channel.ok() || !admission.descriptors.ok()) {
    return StatusFromErrno(
        ENFILE,
        absl::StrCat(admission.channel.ok() ? "descriptors for an event channel" : "event channels",
                     " of user ", peer->uid));
  }
  while (++last_number_ == 0 || channels_.contains(last_number_)) {
  }
  admission.hello_deadline = hello_deadlines_.Add(last_number_, MonotonicNow());
  const roce::TimeNs deadline = admission.hello_deadline;
  absl::StatusOr<std::unique_ptr<Channel>> channel =
      Channel::Create(services_.loop, services_.foreign_fds, services_.blocking_calls,
                      std::move(socket), *std::move(peer), std::move(admission), last_number_,
                      [this](Channel& ready) { Receive(ready); });
  if (!channel.ok()) {
    hello_deadlines_.Forget(last_number_, deadline);
    return channel.status();
  }
  channels_.emplace(last_number_, *std::move(channel));
  return absl::OkStatus();
}

void Server::HandleTimeout(roce::TimeNs now) {
  for (const uint32_t number : hello_deadlines_.TakeDue(now)) {
    const auto it = channels_.find(number);
    if (it == channels_.end() || it->second->is_open()) continue;
    Log(LogArea::kSession, LogLevel::kWarning,
        "rdma_cm channel %u of pid %d sent no OPEN in time, closing it", number,
        it->second->peer().pid);
    channels_.erase(it);
  }
}

void Server::Close(Channel& channel) {
  manager_.DestroyAll(channel);
  hello_deadlines_.Forget(channel.number(), channel.hello_deadline());
  // Deferred: the channel's own handler may be running.
  const uint32_t number = channel.number();
  services_.loop.Post([this, number] { channels_.erase(number); });
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

bool Server::AnswerOpen(Channel& channel, std::span<const std::byte> message) {
  roci_abi_cm_open_request request;
  if (message.size() != sizeof(request)) return false;
  std::memcpy(&request, message.data(), sizeof(request));
  if (request.head.command != ROCI_ABI_CM_OPEN || request.magic != ROCI_ABI_MAGIC ||
      request.major != ROCI_ABI_MAJOR || channel.is_open()) {
    return false;
  }
  roci_abi_cm_open_response response = {};
  response.head.serial = request.head.serial;
  response.channel = channel.number();
  absl::StatusOr<UniqueFd> signal = channel.OpenSignal();
  if (!signal.ok()) {
    response.head.error = ErrnoOf(signal.status());
    return SendMessage(channel.socket(), BytesOf(response), {});
  }
  response.head.fd_count = 1;
  const int fd = signal->get();
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
  roci_abi_cm_response response = {};
  Command command;
  absl::Status status = DecodeCommand(request, command);
  if (status.ok()) status = Run(channel, command, response);
  response.head.serial = request.head.serial;
  if (!status.ok()) {
    response.head.error = ErrnoOf(status);
    Log(LogArea::kSession, LogLevel::kDebug, "rdma_cm channel %u: %s: %s", channel.number(),
        command.info != nullptr ? command.info->name : "?", std::string(status.message()).c_str());
  }
  response.out_size = std::min(response.out_size, request.out_size);
  response.data_size = response.out_size;
  response.changed_id = IsQuestion(command.number) ? 0 : IdOf(command).value_or(0);
  if (status.ok()) Prefetch(channel, command, response);
  constexpr size_t kHead = offsetof(roci_abi_cm_response, data);
  return SendMessage(channel.socket(), BytesOf(response).first(kHead + response.data_size), {});
}

void Server::Prefetch(const Channel& channel, const Command& command, roci_abi_cm_response& out) {
  std::optional<uint32_t> number = IdOf(command);
  Occasion occasion = OccasionOf(command.number);
  if (command.number == RDMA_USER_CM_CMD_GET_EVENT) {
    rdma_ucm_event_resp event = {};
    std::memcpy(&event, out.data, std::min<size_t>(out.out_size, sizeof(event)));
    number = event.id;
    occasion = OccasionOfEvent(event.event);
  }
  if (occasion == Occasion::kOther || !number) return;
  if (const CmId* id = manager_.Find(channel, *number)) {
    PrefetchAnswers(manager_, *id, occasion, out);
  }
}

absl::Status Server::Run(Channel& channel, const Command& command, roci_abi_cm_response& out) {
  const std::optional<uint32_t> number = IdOf(command);
  if (!number) return RunWithoutId(channel, command, out);
  CmId* id = manager_.Find(channel, *number);
  if (id == nullptr) return absl::NotFoundError("no such identifier");
  return RunOn(*id, command, out);
}

absl::Status Server::RunWithoutId(Channel& channel, const Command& command,
                                  roci_abi_cm_response& out) {
  switch (command.number) {
    case RDMA_USER_CM_CMD_CREATE_ID: {
      const absl::StatusOr<uint32_t> number =
          manager_.Create(channel, command.As<rdma_ucm_create_id>());
      if (number.ok()) Put(rdma_ucm_create_id_resp{*number}, out);
      return number.status();
    }
    case RDMA_USER_CM_CMD_GET_EVENT:
      if (channel.events().empty()) return StatusFromErrno(EAGAIN, "no event");
      Put(manager_.TakeEvent(channel), out);
      return absl::OkStatus();
    case RDMA_USER_CM_CMD_LEAVE_MCAST: {
      const absl::StatusOr<uint32_t> reported =
          manager_.Leave(channel, command.As<rdma_ucm_destroy_id>().id);
      if (reported.ok()) Put(rdma_ucm_destroy_id_resp{*reported}, out);
      return reported.status();
    }
    case RDMA_USER_CM_CMD_MIGRATE_ID:
      return Migrate(channel, command.As<rdma_ucm_migrate_id>(), out);
    default:
      return StatusFromErrno(ENOSYS, "command");
  }
}

// Both channels must have been opened by the same process.
absl::Status Server::Migrate(Channel& channel, const rdma_ucm_migrate_id& command,
                             roci_abi_cm_response& out) {
  const auto from = channels_.find(command.fd);
  // Identifiers are counted per user, and a process may change its user: compare users too.
  if (from == channels_.end() || channel.peer().process == 0 ||
      from->second->peer().process != channel.peer().process ||
      from->second->peer().uid != channel.peer().uid) {
    return absl::InvalidArgumentError("no such channel");
  }
  CmId* id = manager_.Find(*from->second, command.id);
  if (id == nullptr) return absl::NotFoundError("no such identifier");
  Put(rdma_ucm_migrate_resp{manager_.Migrate(*id, channel)}, out);
  return absl::OkStatus();
}

absl::Status Server::RunOn(CmId& id, const Command& command, roci_abi_cm_response& out) {
  switch (command.number) {
    case RDMA_USER_CM_CMD_DESTROY_ID:
      Put(rdma_ucm_destroy_id_resp{manager_.Destroy(id)}, out);
      return absl::OkStatus();
    case RDMA_USER_CM_CMD_BIND_IP: {
      const auto& in = command.As<rdma_ucm_bind_ip>();
      const absl::StatusOr<SocketAddress> address = AddressOf(&in.addr, sizeof(in.addr));
      return address.ok() ? manager_.Bind(id, *address) : address.status();
    }
    case RDMA_USER_CM_CMD_BIND: {
      const auto& in = command.As<rdma_ucm_bind>();
      const absl::StatusOr<SocketAddress> address =
          AddressOf(&in.addr, std::min<size_t>(in.addr_size, sizeof(in.addr)));
      return address.ok() ? manager_.Bind(id, *address) : address.status();
    }
    case RDMA_USER_CM_CMD_RESOLVE_IP: {
      const auto& in = command.As<rdma_ucm_resolve_ip>();
      return Resolve(id, {&in.src_addr, sizeof(in.src_addr)}, {&in.dst_addr, sizeof(in.dst_addr)},
                     in.timeout_ms);
    }
    case RDMA_USER_CM_CMD_RESOLVE_ADDR: {
      const auto& in = command.As<rdma_ucm_resolve_addr>();
      return Resolve(id, {&in.src_addr, std::min<size_t>(in.src_size, sizeof(in.src_addr))},
                     {&in.dst_addr, std::min<size_t>(in.dst_size, sizeof(in.dst_addr))},
                     in.timeout_ms);
    }
    case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
      return manager_.ResolveRoute(id);
    case RDMA_USER_CM_CMD_QUERY_ROUTE: {
      rdma_ucm_query_route_resp route = {};
      manager_.QueryRoute(id, route);
      Put(route, out);
      return absl::OkStatus();
    }
    case RDMA_USER_CM_CMD_QUERY:
      return PutAnswer(manager_, id, QuestionIn(command), out);
    case RDMA_USER_CM_CMD_CONNECT: {
      const auto& in = command.As<rdma_ucm_connect>();
      return manager_.Connect(id, in.conn_param, in.ece);
    }
    case RDMA_USER_CM_CMD_LISTEN:
      return manager_.Listen(id, command.As<rdma_ucm_listen>().backlog);
    case RDMA_USER_CM_CMD_ACCEPT: {
      const auto& in = command.As<rdma_ucm_accept>();
      return manager_.Accept(id, in.uid, in.conn_param, in.ece);
    }
    case RDMA_USER_CM_CMD_REJECT: {
      const auto& in = command.As<rdma_ucm_reject>();
      return manager_.Reject(
          id, in.reason,
          {reinterpret_cast<const std::byte*>(in.private_data), in.private_data_len});
    }
    case RDMA_USER_CM_CMD_DISCONNECT:
      return manager_.Disconnect(id);
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
      return PutAnswer(manager_, id, QuestionIn(command), out);
    case RDMA_USER_CM_CMD_SET_OPTION: {
      const auto& in = command.As<rdma_ucm_set_option>();
      return manager_.SetOption(id, in.level, in.optname, command.extra);
    }
    case RDMA_USER_CM_CMD_NOTIFY:
      return manager_.Notify(id, command.As<rdma_ucm_notify>().event);
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST: {
      const auto& in = command.As<rdma_ucm_join_ip_mcast>();
      return Join(id, in.uid, {&in.addr, sizeof(in.addr)}, RDMA_MC_JOIN_FLAG_FULLMEMBER, out);
    }
    case RDMA_USER_CM_CMD_JOIN_MCAST: {
      const auto& in = command.As<rdma_ucm_join_mcast>();
      return Join(id, in.uid, {&in.addr, std::min<size_t>(in.addr_size, sizeof(in.addr))},
                  in.join_flags, out);
    }
    default:
      return StatusFromErrno(ENOSYS, "command");
  }
}

absl::Status Server::Resolve(CmId& id, RawAddress source, RawAddress destination,
                             uint32_t timeout_ms) {
  const absl::StatusOr<SocketAddress> to = AddressOf(destination.bytes, destination.size);
  if (!to.ok()) return to.status();
  if (source.size < sizeof(sa_family_t) || !HasFamily(source.bytes)) {
    return manager_.ResolveAddress(id, nullptr, *to, timeout_ms);
  }
  const absl::StatusOr<SocketAddress> from = AddressOf(source.bytes, source.size);
  return from.ok() ? manager_.ResolveAddress(id, &*from, *to, timeout_ms) : from.status();
}

absl::Status Server::Join(CmId& id, uint64_t uid, RawAddress group, uint32_t flags,
                          roci_abi_cm_response& out) {
  const absl::StatusOr<SocketAddress> address = AddressOf(group.bytes, group.size);
  if (!address.ok()) return address.status();
  if (flags >= RDMA_MC_JOIN_FLAG_RESERVED) return absl::InvalidArgumentError("flags");
  const absl::StatusOr<uint32_t> number =
      manager_.Join(id, uid, *address, flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
  if (number.ok()) Put(rdma_ucm_create_id_resp{*number}, out);
  return number.status();
}

}  // namespace roci::control::cm
