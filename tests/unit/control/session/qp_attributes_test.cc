// Attributes of queue pairs in the ABI and in the transport core.
#include "control/session/qp_attributes.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "control/loop/errno_status.h"

namespace roci::control {
namespace {

TEST(QpAttributesTest, RoundTrip) {
  roci_abi_qp_attr attr{};
  attr.state = 3;
  attr.cur_state = 2;
  attr.path_mtu = 5;
  attr.qkey = 0x11111111;
  attr.rq_psn = 0xABCDEF;
  attr.sq_psn = 0x123456;
  attr.dest_qpn = 0xFFFFFE;
  attr.access_flags = 0xE;
  attr.max_rd_atomic = 3;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 12;
  attr.port = 1;
  attr.timeout = 14;
  attr.retry_count = 7;
  attr.rnr_retry = 6;
  const uint32_t mask = roce::kAttrState | roce::kAttrCurState | roce::kAttrPathMtu |
                        roce::kAttrDestQpn | roce::kAttrRqPsn | roce::kAttrSqPsn;
  roce::QpAttributes attributes;
  ASSERT_TRUE(AttributesFromAbi(attr, mask, attributes).ok());
  roci_abi_qp_attr back{};
  AttributesToAbi(attributes, back);
  EXPECT_EQ(std::memcmp(&attr, &back, sizeof(attr)), 0);
}

TEST(QpAttributesTest, Refusals) {
  const auto error = [](uint32_t mask, auto&& set) {
    roci_abi_qp_attr attr{};
    set(attr);
    roce::QpAttributes out;
    return ErrnoOf(AttributesFromAbi(attr, mask, out));
  };
  EXPECT_EQ(error(roce::kAttrState, [](auto& a) { a.state = 7; }), EINVAL);
  EXPECT_EQ(error(0, [](auto& a) { a.state = 7; }), 0) << "not named by the mask";
  EXPECT_EQ(error(roce::kAttrCurState, [](auto& a) { a.cur_state = ~0u; }), EINVAL);
  EXPECT_EQ(error(roce::kAttrPathMtu, [](auto& a) { a.path_mtu = 0; }), EINVAL);
  EXPECT_EQ(error(roce::kAttrPathMtu, [](auto& a) { a.path_mtu = 6; }), EINVAL);
  EXPECT_EQ(error(roce::kAttrDestQpn, [](auto& a) { a.dest_qpn = 1u << 24; }), EINVAL);
  EXPECT_EQ(error(1u << 21, [](auto&) {}), EINVAL);
  EXPECT_EQ(error(roce::kAttrCapabilities, [](auto&) {}), EOPNOTSUPP);
}

TEST(QpAttributesTest, TypesOffered) {
  EXPECT_TRUE(IsOfferedQpType(2));
  EXPECT_TRUE(IsOfferedQpType(3));
  EXPECT_TRUE(IsOfferedQpType(4));
  EXPECT_TRUE(IsOfferedQpType(8));
  EXPECT_TRUE(IsOfferedQpType(9));
  EXPECT_TRUE(IsOfferedQpType(10));
  for (const uint32_t type : {0u, 1u, 5u, 11u, 255u, 258u, ~0u}) {
    EXPECT_FALSE(IsOfferedQpType(type)) << type;
  }
}

}  // namespace
}  // namespace roci::control
