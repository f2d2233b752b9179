// Gate 3 for RDMA netlink: takes requests out of a datagram of a program and checks them. Pure.
#pragma once

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace roci::control::netlink {

// A request of RDMA_NL_NLDEV. Attributes that no command uses are left out.
struct Request {
  nlmsghdr head{};
  uint16_t command = 0;  // rdma_nldev_command
  bool is_dump = false;
  std::optional<uint32_t> device;  // RDMA_NLDEV_ATTR_DEV_INDEX
  std::optional<uint32_t> port;
  std::optional<uint32_t> qpn;
  std::optional<uint32_t> cqn;
  std::optional<uint32_t> mrn;
  std::optional<uint32_t> pdn;
  std::optional<uint32_t> cm_id;
  std::optional<uint32_t> context;
  std::optional<uint32_t> srqn;
  std::optional<uint32_t> stat_mode;
  std::optional<uint32_t> stat_resource;
  std::optional<uint32_t> stat_mask;
  std::optional<uint32_t> counter;
  std::optional<std::string> chardev;  // RDMA_NLDEV_ATTR_CHARDEV_TYPE
};

enum class Found : uint8_t {
  kRequest,
  kIgnored,  // a message that asks for nothing
  kRefused,  // with `error`
  kEnd,      // no further message: what is left of the datagram is shorter than its header says
};
struct Decoded {
  Found found = Found::kEnd;
  Request request;  // its `head` is filled in unless kEnd
  int error = 0;    // kRefused: a positive errno
  size_t size = 0;  // bytes of the message and its padding, at most those of `datagram`
};

// Decodes the first message of `datagram`, which no program can change any more.
Decoded DecodeNext(std::span<const std::byte> datagram);

// Whether the program wants NLMSG_ERROR with error 0 after success.
inline bool WantsAck(const nlmsghdr& head) { return (head.nlmsg_flags & NLM_F_ACK) != 0; }

}  // namespace roci::control::netlink
