#include "control/net/link_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "control/loop/errno_status.h"

namespace roci::control {
namespace {

// Messages read per wake-up; the rest follows after other events.
constexpr int kBudget = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<LinkWatch>> LinkWatch::Create(EventLoop& loop,
                                                             std::function<void()> changed) {
  UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  if (!fd.valid()) return StatusFromErrno(errno, "netlink socket");
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return StatusFromErrno(errno, "bind");
  }
  std::unique_ptr<LinkWatch> watch(new LinkWatch(loop, std::move(fd), std::move(changed)));
  const absl::StatusOr<EventLoop::Watch> added =
      loop.Add(watch->socket_.get(), EPOLLIN, [watch = watch.get()](uint32_t) { watch->Drain(); });
  if (!added.ok()) return added.status();
  watch->watch_ = *added;
  return watch;
}

LinkWatch::~LinkWatch() {
  if (watch_ != 0) loop_.Forget(watch_);
}

// Discards the messages; lost ones (ENOBUFS) do not matter. `changed_` reads the state of the
// network devices itself.
void LinkWatch::Drain() {
  std::array<char, 64> unused;
  for (int i = 0; i < kBudget; ++i) {
    const ssize_t got = recv(socket_.get(), unused.data(), unused.size(), MSG_TRUNC);
    if (got < 0 && errno != ENOBUFS && errno != EINTR) break;
  }
  changed_();
}

}  // namespace roci::control
