#include "tests/interop/rpcrdma/server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "tests/interop/rpcrdma/private_data.h"
#include "tests/interop/rpcrdma/socket_address.h"

namespace rpcrdma {
namespace {

constexpr int kBacklog = 64;
constexpr int kTick_ms = 1000;
// While connections keep the thread busy, it looks for other events this often.
constexpr uint32_t kBusyRounds = 64;

uint64_t Now_ns() {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

bool IsReadable(int fd) {
  pollfd entry = {fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

}  // namespace

Server::Server(const ServerOptions& options, RpcService& service)
    : options_(options), service_(service) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  stop_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || stop_event_ < 0) ThrowErrno("epoll_create1 or eventfd");
  Watch(stop_event_);
  Listen();
}

Server::~Server() {
  peers_.clear();
  listener_.reset();
  channel_.reset();
  devices_.clear();
  close(stop_event_);
  close(epoll_);
}

void Server::Listen() {
  channel_.reset(rdma_create_event_channel());
  if (channel_ == nullptr) ThrowErrno("rdma_create_event_channel");
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel_.get(), &id, nullptr, RDMA_PS_TCP) != 0) ThrowErrno("rdma_create_id");
  listener_.reset(id);
  SocketAddress address(options_.address, options_.port);
  if (rdma_bind_addr(id, address.get()) != 0) {
    ThrowErrno("rdma_bind_addr to " + options_.address + " port " + std::to_string(options_.port));
  }
  if (rdma_listen(id, kBacklog) != 0) ThrowErrno("rdma_listen");
  Watch(channel_->fd);
}

uint16_t Server::port() const { return ntohs(rdma_get_src_port(listener_.get())); }

void Server::Watch(int fd) const {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) ThrowErrno("epoll_ctl");
}

void Server::Stop() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_event_, &one, sizeof(one));
}

void Server::Run() {
  uint64_t busy_until_ns = 0;
  for (uint32_t round = 0; !stopped_; ++round) {
    if (PollConnections()) {
      busy_until_ns = Now_ns() + uint64_t{options_.spin_us} * 1000;
      if (round % kBusyRounds != 0) continue;
      stopped_ = IsReadable(stop_event_);
      HandleCmEvents();
      CloseIdle();
    } else if (options_.spin_us == 0 || Now_ns() >= busy_until_ns) {
      Sleep();
    }
  }
  for (Peer& peer : peers_) peer.connection->Close(CloseReason::kServerStopped);
  DestroyClosed();
}

bool Server::PollConnections() {
  bool found = false;
  bool closed = false;
  for (Peer& peer : peers_) {
    found |= peer.connection->Poll();
    closed |= peer.connection->is_closed();
  }
  if (closed) DestroyClosed();
  return found;
}

// Waits for the next event, unless completions came since the last poll.
void Server::Sleep() {
  for (Peer& peer : peers_) peer.connection->Arm();
  if (PollConnections()) return;
  epoll_event events[8];
  const int count = epoll_wait(epoll_, events, 8, kTick_ms);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    if (fd == stop_event_) stopped_ = true;
    if (fd == channel_->fd) HandleCmEvents();
    for (auto& [context, device] : devices_) {
      if (fd == device->channel()->fd) HandleCompletionEvents(*device);
    }
  }
  CloseIdle();
}

void Server::HandleCompletionEvents(ServerDevice& device) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(device.channel(), &cq, &context) == 0) {
    ibv_ack_cq_events(cq, 1);
    static_cast<ServerConnection*>(context)->NoteEvent();
  }
}

void Server::HandleCmEvents() {
  while (IsReadable(channel_->fd)) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_.get(), &event) != 0) return;
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
      HandleRequest(*event);
    } else {
      // Whatever else befalls a connection, but for its establishment, ends it.
      for (Peer& peer : peers_) {
        if (peer.connection->id() == event->id && event->event != RDMA_CM_EVENT_ESTABLISHED) {
          peer.connection->Close(CloseReason::kPeerDisconnected);
        }
      }
    }
    rdma_ack_cm_event(event);
    DestroyClosed();
  }
}

void Server::HandleRequest(const rdma_cm_event& event) {
  Owned<rdma_cm_id> id(event.id);
  if (peers_.size() >= options_.max_connections) {
    counters_.refused_connections.Add();
    rdma_reject(id.get(), nullptr, 0);
    return;
  }
  Accept(std::move(id), event);
}

void Server::Accept(Owned<rdma_cm_id> id, const rdma_cm_event& event) {
  rdma_cm_id* const raw = id.get();
  const rdma_conn_param& request = event.param.conn;
  const std::span<const std::byte> data(static_cast<const std::byte*>(request.private_data),
                                        request.private_data_len);
  try {
    Peer peer;
    peer.connection = std::make_unique<ServerConnection>(DeviceOf(raw->verbs), std::move(id),
                                                         options_, service_, counters_);
    peer.connection->Accept(request, DecodePrivateData(data));
    peer.idle_since_ns = peer.stalled_since_ns = Now_ns();
    peers_.push_back(std::move(peer));
    counters_.connections.Add();
    open_connections_ = peers_.size();
  } catch (const std::system_error&) {
    // The identifier is destroyed, which rejects the request.
    counters_.refused_connections.Add();
  }
}

ServerDevice& Server::DeviceOf(ibv_context* context) {
  const auto found = devices_.find(context);
  if (found != devices_.end()) return *found->second;
  auto device =
      std::make_unique<ServerDevice>(context, options_.message_buffers, options_.message_bytes);
  Watch(device->channel()->fd);
  return *devices_.emplace(context, std::move(device)).first->second;
}

void Server::CloseIdle() {
  const uint64_t now_ns = Now_ns();
  const auto is_over = [now_ns](uint64_t since_ns, uint32_t limit_s) {
    return now_ns - since_ns > uint64_t{limit_s} * 1'000'000'000;
  };
  for (Peer& peer : peers_) {
    ServerConnection& connection = *peer.connection;
    if (peer.seen_received != connection.received()) peer.idle_since_ns = now_ns;
    if (peer.seen_completed != connection.completed() || !connection.has_posted()) {
      peer.stalled_since_ns = now_ns;
    }
    peer.seen_received = connection.received();
    peer.seen_completed = connection.completed();
    if (is_over(peer.idle_since_ns, options_.idle_limit_s)) connection.Close(CloseReason::kIdle);
    if (is_over(peer.stalled_since_ns, options_.stall_limit_s)) {
      connection.Close(CloseReason::kStalled);
    }
  }
  DestroyClosed();
}

void Server::DestroyClosed() {
  std::erase_if(peers_, [](const Peer& peer) { return peer.connection->is_closed(); });
  open_connections_ = peers_.size();
}

}  // namespace rpcrdma
