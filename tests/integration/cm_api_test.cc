// Identifiers of librdmacm before they are connected: binding, listening, options, resolving.
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <cstring>

#include "gtest/gtest.h"
#include "tests/integration/cm_end.h"

namespace roci::testing {
namespace {

constexpr char kNobody[] = "10.99.0.77";
constexpr char kElsewhere[] = "192.0.2.1";

TEST(CmApi, FailedResolutionLeavesNothing) {
  EventChannel channel;
  const Id id = channel.Create();
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, Address(kNobody, 1), 300), 0);
  EXPECT_EQ(ErrorOf(rdma_resolve_addr(id.get(), nullptr, Address(kFar, 1), 300)), EINVAL)
      << "under way";
  EXPECT_EQ(channel.Expect(RDMA_CM_EVENT_ADDR_ERROR).status, -ETIMEDOUT);
  EXPECT_EQ(id->verbs, nullptr) << "it has no device yet";
  EXPECT_EQ(ErrorOf(rdma_resolve_addr(id.get(), nullptr, Address(kElsewhere, 1), 300)),
            ENETUNREACH);
  // Another device's alone.
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, Address("10.77.0.1", 7), 10'000), 0)
      << strerror(errno);
  channel.Expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_NE(id->verbs, nullptr);
}

TEST(CmApi, FailedResolutionKeepsTheBinding) {
  EventChannel channel;
  const Id id = channel.Create();
  ASSERT_EQ(rdma_resolve_addr(id.get(), Address(kNear), Address(kNobody, 1), 300), 0);
  channel.Expect(RDMA_CM_EVENT_ADDR_ERROR);
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, Address(kFar, 1), 10'000), 0) << strerror(errno);
  channel.Expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  char source[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &id->route.addr.src_sin.sin_addr, source, sizeof(source));
  EXPECT_STREQ(source, kNear);
}

}  // namespace
}  // namespace roci::testing
