#include "control/netlink/netlink_decoder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace roci::control::netlink {
namespace {

constexpr size_t kMaxTextBytes = 128;  // of names of the kernel's policy

struct NumberAttribute {
  uint16_t type;
  std::optional<uint32_t> Request::*member;
};
constexpr NumberAttribute kNumbers[] = {
    {RDMA_NLDEV_ATTR_DEV_INDEX, &Request::device},
    {RDMA_NLDEV_ATTR_PORT_INDEX, &Request::port},
    {RDMA_NLDEV_ATTR_RES_LQPN, &Request::qpn},
    {RDMA_NLDEV_ATTR_RES_CQN, &Request::cqn},
    {RDMA_NLDEV_ATTR_RES_MRN, &Request::mrn},
    {RDMA_NLDEV_ATTR_RES_PDN, &Request::pdn},
    {RDMA_NLDEV_ATTR_RES_CM_IDN, &Request::cm_id},
    {RDMA_NLDEV_ATTR_RES_CTXN, &Request::context},
    {RDMA_NLDEV_ATTR_RES_SRQN, &Request::srqn},
    {RDMA_NLDEV_ATTR_STAT_MODE, &Request::stat_mode},
    {RDMA_NLDEV_ATTR_STAT_RES, &Request::stat_resource},
    {RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK, &Request::stat_mask},
    {RDMA_NLDEV_ATTR_STAT_COUNTER_ID, &Request::counter},
};

// False: the value is too short or too long for its type.
bool TakeAttribute(uint16_t type, std::span<const std::byte> value, Request& out) {
  const auto* const number = std::find_if(std::begin(kNumbers), std::end(kNumbers),
                                          [type](const auto& row) { return row.type == type; });
  if (number != std::end(kNumbers)) {
    uint32_t taken = 0;
    if (value.size() < sizeof(taken)) return false;
    std::memcpy(&taken, value.data(), sizeof(taken));
    out.*(number->member) = taken;
  } else if (type == RDMA_NLDEV_ATTR_CHARDEV_TYPE) {
    if (value.empty() || value.size() > kMaxTextBytes || value.back() != std::byte{0}) return false;
    const auto* const text = reinterpret_cast<const char*>(value.data());
    out.chardev = std::string(text, strnlen(text, value.size()));
  }
  return true;
}

// An errno, or 0. Bytes behind the last attribute that are too few for another one are ignored.
int TakeAttributes(std::span<const std::byte> bytes, Request& out) {
  nlattr attribute;
  while (bytes.size() >= sizeof(attribute)) {
    std::memcpy(&attribute, bytes.data(), sizeof(attribute));
    if (attribute.nla_len < sizeof(attribute) || attribute.nla_len > bytes.size()) return 0;
    const std::span<const std::byte> value = bytes.first(attribute.nla_len).subspan(NLA_HDRLEN);
    if (!TakeAttribute(attribute.nla_type & NLA_TYPE_MASK, value, out)) return EINVAL;
    bytes = bytes.subspan(std::min<size_t>(NLA_ALIGN(attribute.nla_len), bytes.size()));
  }
  return 0;
}

}  // namespace

Decoded DecodeNext(std::span<const std::byte> datagram) {
  Decoded out;
  out.size = datagram.size();
  nlmsghdr& head = out.request.head;
  if (datagram.size() < sizeof(head)) return out;
  std::memcpy(&head, datagram.data(), sizeof(head));
  if (head.nlmsg_len < sizeof(head) || head.nlmsg_len > datagram.size()) return out;
  out.size = std::min<size_t>(NLMSG_ALIGN(size_t{head.nlmsg_len}), datagram.size());
  out.found = Found::kIgnored;
  if ((head.nlmsg_flags & NLM_F_REQUEST) == 0 || head.nlmsg_type < NLMSG_MIN_TYPE) return out;
  out.found = Found::kRefused;
  out.error = EINVAL;
  if (RDMA_NL_GET_CLIENT(head.nlmsg_type) != RDMA_NL_NLDEV) return out;
  out.request.command = RDMA_NL_GET_OP(head.nlmsg_type);
  out.request.is_dump = (head.nlmsg_flags & NLM_F_DUMP) != 0;
  out.error = TakeAttributes(datagram.first(head.nlmsg_len).subspan(NLMSG_HDRLEN), out.request);
  if (out.error == 0) out.found = Found::kRequest;
  return out;
}

}  // namespace roci::control::netlink
