// Enhanced connection establishment through librdmacm: each end learns the other's offer.
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "gtest/gtest.h"

namespace roci::testing {
namespace {

constexpr int kLimitMs = 20'000;
constexpr uint32_t kVendor = 0x123456;

sockaddr_in At(const char* address, uint16_t port) {
  sockaddr_in out = {};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, address, &out.sin_addr), 1);
  return out;
}

class CmEce : public ::testing::Test {
 protected:
  struct EndId {
    void operator()(rdma_cm_id* id) const { rdma_destroy_id(id); }
  };
  struct EndChannel {
    void operator()(rdma_event_channel* channel) const { rdma_destroy_event_channel(channel); }
  };
  using Id = std::unique_ptr<rdma_cm_id, EndId>;
  using Channel = std::unique_ptr<rdma_event_channel, EndChannel>;

  static Id MakeId(const Channel& channel) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(channel.get(), &id, nullptr, RDMA_PS_TCP), 0) << strerror(errno);
    return Id(id);
  }

  // The identifier of the next event, which must be `wanted`.
  static rdma_cm_id* Await(const Channel& channel, rdma_cm_event_type wanted, int status = 0) {
    pollfd waiting = {channel->fd, POLLIN, 0};
    if (poll(&waiting, 1, kLimitMs) != 1) {
      ADD_FAILURE() << "no " << rdma_event_str(wanted);
      return nullptr;
    }
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel.get(), &event) != 0) {
      ADD_FAILURE() << strerror(errno);
      return nullptr;
    }
    EXPECT_EQ(event->event, wanted) << rdma_event_str(event->event);
    EXPECT_EQ(event->status, status);
    rdma_cm_id* id = event->id;
    rdma_ack_cm_event(event);
    return id;
  }

  static ibv_ece RemoteOf(rdma_cm_id* id) {
    ibv_ece out = {};
    EXPECT_EQ(rdma_get_remote_ece(id, &out), 0) << strerror(errno);
    return out;
  }

  static void Offer(rdma_cm_id* id, uint32_t options) {
    ibv_ece offer = {};
    offer.vendor_id = kVendor;
    offer.options = options;
    EXPECT_EQ(rdma_set_local_ece(id, &offer), 0) << strerror(errno);
  }

  // A client's request with `options` of ECE, and the server's identifier for it.
  void Request(uint32_t options) {
    sockaddr_in place = At("10.99.0.2", 0);
    ASSERT_EQ(rdma_bind_addr(listener_.get(), reinterpret_cast<sockaddr*>(&place)), 0);
    ASSERT_EQ(rdma_listen(listener_.get(), 1), 0);
    place.sin_port = rdma_get_src_port(listener_.get());
    ASSERT_EQ(
        rdma_resolve_addr(client_.get(), nullptr, reinterpret_cast<sockaddr*>(&place), kLimitMs),
        0);
    Await(client_channel_, RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(rdma_resolve_route(client_.get(), kLimitMs), 0);
    Await(client_channel_, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (options != 0) Offer(client_.get(), options);
    rdma_conn_param param = {};
    param.qp_num = 0x77;
    ASSERT_EQ(rdma_connect(client_.get(), &param), 0) << strerror(errno);
    server_.reset(Await(server_channel_, RDMA_CM_EVENT_CONNECT_REQUEST));
  }

  Channel server_channel_{rdma_create_event_channel()};
  Channel client_channel_{rdma_create_event_channel()};
  Id listener_ = MakeId(server_channel_);
  Id client_ = MakeId(client_channel_);
  Id server_;
};

TEST_F(CmEce, BothEndsLearnOfTheOther) {
  ASSERT_NO_FATAL_FAILURE(Request(0xABCD1234));
  ASSERT_NE(server_, nullptr);
  EXPECT_EQ(RemoteOf(server_.get()).vendor_id, kVendor);
  EXPECT_EQ(RemoteOf(server_.get()).options, 0xABCD1234u);
  Offer(server_.get(), 0x1234);
  rdma_conn_param param = {};
  param.qp_num = 0x88;
  ASSERT_EQ(rdma_accept(server_.get(), &param), 0) << strerror(errno);
  Await(client_channel_, RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(RemoteOf(client_.get()).vendor_id, kVendor);
  EXPECT_EQ(RemoteOf(client_.get()).options, 0x1234u);
}

TEST_F(CmEce, WithoutAnOfferTheOtherEndOffersNothing) {
  ASSERT_NO_FATAL_FAILURE(Request(0));
  ASSERT_NE(server_, nullptr);
  EXPECT_EQ(RemoteOf(server_.get()).vendor_id, 0u);
  EXPECT_EQ(RemoteOf(server_.get()).options, 0u);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_accept(server_.get(), &param), 0) << strerror(errno);
  Await(client_channel_, RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(RemoteOf(client_.get()).vendor_id, 0u);
}

TEST_F(CmEce, AnOfferCanBeRejected) {
  ASSERT_NO_FATAL_FAILURE(Request(1));
  ASSERT_NE(server_, nullptr);
  ASSERT_EQ(rdma_reject_ece(server_.get(), nullptr, 0), 0) << strerror(errno);
  constexpr int kVendorOptionNotSupported = 35;  // IBTA vol 1, 12.6.7.2
  Await(client_channel_, RDMA_CM_EVENT_REJECTED, kVendorOptionNotSupported);
}

}  // namespace
}  // namespace roci::testing
