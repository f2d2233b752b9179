#include "control/netlink/netlink_decoder.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "control/netlink/datagram.h"

namespace roci::control::netlink {
namespace {

constexpr uint16_t kType = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_QP_GET);
constexpr uint16_t kDump = NLM_F_REQUEST | NLM_F_ACK | NLM_F_DUMP;

nlmsghdr Head(uint32_t sequence) {
  nlmsghdr head{};
  head.nlmsg_seq = sequence;
  return head;
}

// A request for the queue pairs of device 3, port 1.
void AddRequest(Datagram& out, uint32_t sequence, uint16_t flags = kDump, uint16_t type = kType) {
  const auto begin = out.Begin(Head(sequence), type, flags, 0);
  out.PutU8(RDMA_NLDEV_ATTR_DEV_DIM, 7);  // no command uses it
  out.PutU32(RDMA_NLDEV_ATTR_DEV_INDEX, 3);
  out.PutU32(RDMA_NLDEV_ATTR_PORT_INDEX, 1);
  out.End(begin);
}

TEST(NetlinkDecoder, TakesTheAttributesOfARequest) {
  Datagram datagram;
  AddRequest(datagram, 41);
  const Decoded decoded = DecodeNext(datagram.bytes());
  ASSERT_EQ(decoded.found, Found::kRequest);
  EXPECT_EQ(decoded.size, datagram.bytes().size());
  EXPECT_EQ(decoded.request.head.nlmsg_seq, 41u);
  EXPECT_EQ(decoded.request.command, RDMA_NLDEV_CMD_RES_QP_GET);
  EXPECT_TRUE(decoded.request.is_dump);
  EXPECT_EQ(decoded.request.device, 3u);
  EXPECT_EQ(decoded.request.port, 1u);
  EXPECT_EQ(decoded.request.qpn, std::nullopt);
  EXPECT_TRUE(WantsAck(decoded.request.head));
}

TEST(NetlinkDecoder, TakesEveryMessageOfADatagram) {
  Datagram datagram;
  AddRequest(datagram, 1);
  AddRequest(datagram, 2, NLM_F_REQUEST);
  std::span<const std::byte> rest = datagram.bytes();
  for (const uint32_t sequence : {1u, 2u}) {
    const Decoded decoded = DecodeNext(rest);
    ASSERT_EQ(decoded.found, Found::kRequest);
    EXPECT_EQ(decoded.request.head.nlmsg_seq, sequence);
    EXPECT_EQ(decoded.request.is_dump, sequence == 1);
    rest = rest.subspan(decoded.size);
  }
  EXPECT_EQ(DecodeNext(rest).found, Found::kEnd);
  EXPECT_EQ(DecodeNext(rest).size, 0u);
}

TEST(NetlinkDecoder, EndsWhereAMessageIsShorterThanItsHeaderSays) {
  Datagram datagram;
  AddRequest(datagram, 1);
  for (size_t size = 0; size < datagram.bytes().size(); ++size) {
    const Decoded decoded = DecodeNext(datagram.bytes().first(size));
    EXPECT_EQ(decoded.found, Found::kEnd) << size;
    EXPECT_EQ(decoded.size, size);
  }
  std::vector<std::byte> bytes(datagram.bytes().begin(), datagram.bytes().end());
  for (const uint32_t length : {0u, 15u, 0xffffffffu, 0x80000000u}) {
    std::memcpy(bytes.data(), &length, sizeof(length));
    EXPECT_EQ(DecodeNext(bytes).found, Found::kEnd) << length;
  }
}

TEST(NetlinkDecoder, IgnoresWhatIsNoRequest) {
  Datagram answer, control;
  AddRequest(answer, 1, NLM_F_MULTI);
  AddRequest(control, 1, kDump, NLMSG_DONE);
  EXPECT_EQ(DecodeNext(answer.bytes()).found, Found::kIgnored);
  EXPECT_EQ(DecodeNext(control.bytes()).found, Found::kIgnored);
}

TEST(NetlinkDecoder, RefusesOtherClientsOfRdmaNetlink) {
  Datagram datagram;
  AddRequest(datagram, 9, kDump, RDMA_NL_GET_TYPE(RDMA_NL_LS, 1));
  const Decoded decoded = DecodeNext(datagram.bytes());
  EXPECT_EQ(decoded.found, Found::kRefused);
  EXPECT_EQ(decoded.error, EINVAL);
  EXPECT_EQ(decoded.request.head.nlmsg_seq, 9u);
}

TEST(NetlinkDecoder, RefusesValuesOfTheWrongSize) {
  Datagram number, text, empty;
  auto begin = number.Begin(Head(1), kType, kDump, 0);
  number.PutU8(RDMA_NLDEV_ATTR_DEV_INDEX, 1);
  number.End(begin);
  begin = text.Begin(Head(1), kType, kDump, 0);
  text.PutText(RDMA_NLDEV_ATTR_CHARDEV_TYPE, std::string(200, 'x'));
  text.End(begin);
  begin = empty.Begin(Head(1), kType, kDump, 0);
  empty.PutBytes(RDMA_NLDEV_ATTR_CHARDEV_TYPE, {});
  empty.End(begin);
  for (const Datagram* datagram : {&number, &text, &empty}) {
    const Decoded decoded = DecodeNext(datagram->bytes());
    EXPECT_EQ(decoded.found, Found::kRefused);
    EXPECT_EQ(decoded.error, EINVAL);
  }
}

TEST(NetlinkDecoder, TakesTextUpToItsFirstZero) {
  Datagram datagram;
  const auto begin = datagram.Begin(Head(1), kType, NLM_F_REQUEST, 0);
  datagram.PutText(RDMA_NLDEV_ATTR_CHARDEV_TYPE, std::string_view("uverbs\0more", 11));
  datagram.End(begin);
  EXPECT_EQ(DecodeNext(datagram.bytes()).request.chardev, "uverbs");
}

TEST(Datagram, LeavesOutWhatDoesNotFit) {
  Datagram datagram;
  const auto begin = datagram.Begin(Head(1), kType, 0, 5);
  const std::vector<std::byte> value(1000, std::byte{1});
  int entries = 0;
  for (;; ++entries) {
    const auto entry = datagram.Open(RDMA_NLDEV_ATTR_RES_QP_ENTRY);
    datagram.PutBytes(RDMA_NLDEV_ATTR_RES_RAW, value);
    datagram.Close(entry);
    if (datagram.ok()) continue;
    datagram.Return(entry);
    break;
  }
  datagram.End(begin);
  EXPECT_EQ(entries, 4);
  EXPECT_TRUE(datagram.ok());
  nlmsghdr head;
  std::memcpy(&head, datagram.bytes().data(), sizeof(head));
  EXPECT_EQ(head.nlmsg_len, datagram.bytes().size());
  EXPECT_EQ(head.nlmsg_len, NLMSG_HDRLEN + 4 * (2 * NLA_HDRLEN + 1000));
  EXPECT_EQ(head.nlmsg_pid, 5u);
}

}  // namespace
}  // namespace roci::control::netlink
