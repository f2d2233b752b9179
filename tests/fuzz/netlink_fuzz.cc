// Fuzzes gate 3 for RDMA netlink: the bytes of one datagram.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "control/netlink/netlink_decoder.h"
#include "tests/fuzz/fuzz.h"
#include "verbs_provider/abi/rdma_netlink.h"

namespace roci::control::netlink {
namespace {

void CheckDecoded(const Decoded& decoded, std::span<const std::byte> rest) {
  CHECK(decoded.size <= rest.size());
  const nlmsghdr& head = decoded.request.head;
  CHECK((decoded.error != 0) == (decoded.found == Found::kRefused));
  if (decoded.found == Found::kEnd) return CHECK(decoded.size == rest.size());
  CHECK(head.nlmsg_len >= sizeof(head) && head.nlmsg_len <= decoded.size);
  CHECK(decoded.size < head.nlmsg_len + size_t{NLMSG_ALIGNTO});
  if (decoded.found == Found::kIgnored) return;
  CHECK((head.nlmsg_flags & NLM_F_REQUEST) != 0 && head.nlmsg_type >= NLMSG_MIN_TYPE);
  if (decoded.found != Found::kRequest) return;
  CHECK(RDMA_NL_GET_CLIENT(head.nlmsg_type) == RDMA_NL_NLDEV);
  CHECK(!decoded.request.chardev || decoded.request.chardev->find('\0') == std::string::npos);
}

}  // namespace
}  // namespace roci::control::netlink

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace netlink = roci::control::netlink;
  size = std::min<size_t>(size, ROCI_ABI_NETLINK_DATAGRAM_MAX);
  // A copy of exactly this size: a read behind it is found.
  const auto* const begin = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> datagram(begin, begin + size);
  std::span<const std::byte> rest = datagram;
  while (!rest.empty()) {
    const netlink::Decoded decoded = netlink::DecodeNext(rest);
    netlink::CheckDecoded(decoded, rest);
    CHECK(decoded.size != 0);
    rest = rest.subspan(decoded.size);
  }
  return 0;
}
