// The daemon's answers to sessions with invalid requests; it must have nothing of them left at the
// end.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "tests/integration/raw_session.h"
#include "tests/integration/show_device.h"

namespace roci::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kInitMask = 1 << 0 | 1 << 3 | 1 << 4 | 1 << 5;
constexpr uint32_t kRtrMask = 1 << 0 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20;

// Sessions are freed shortly after their sockets close.
void ExpectNothingInUse(const std::string& name) {
  nlohmann::json device;
  for (int i = 0; i < 3000; ++i) {
    device = ShowDevice(name);
    if (device["sessions"] == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (const char* kind : {"qps", "cqs", "mrs", "pds", "ahs"}) {
    EXPECT_EQ(device[kind]["used"], 0) << kind;
  }
}

size_t DaemonFds() {
  const char* pid = std::getenv("ROCID_PID");
  if (pid == nullptr) return 0;
  const std::filesystem::directory_iterator fds(std::string("/proc/") + pid + "/fd");
  return static_cast<size_t>(std::distance(begin(fds), end(fds)));
}

// The daemon closes received descriptors after its answer; other sessions may end in between.
void ExpectNoMoreDaemonFds(size_t before) {
  for (int i = 0; i < 6000 && DaemonFds() > before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(DaemonFds(), before);
}

roci_abi_qp_attr InitAttr() {
  roci_abi_qp_attr attr{};
  attr.state = 1;
  attr.port = 1;
  return attr;
}

// Address vector of 10.99.0.`host`, GID index 1.
roci_abi_qp_attr RtrAttr(uint8_t host) {
  roci_abi_qp_attr attr{};
  attr.state = 2;
  attr.path_mtu = 3;
  attr.dest_qpn = 5;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah.is_global = 1;
  attr.ah.port = 1;
  attr.ah.sgid_index = 1;
  const uint8_t gid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 99, 0, host};
  std::memcpy(attr.ah.dgid, gid, sizeof(gid));
  return attr;
}

class SessionTest : public ::testing::Test {
 protected:
  void TearDown() override {
    session_.Close();
    ExpectNothingInUse("roci0");
  }
  // A queue pair in INIT.
  uint32_t MakeQp() {
    EXPECT_EQ(session_.Hello(), 0);
    pd_ = session_.AllocPd();
    cq_ = session_.CreateCq(16);
    roci_abi_create_qp_response qp;
    EXPECT_EQ(session_.CreateQp(RawSession::QpRequest(pd_, cq_), qp), 0);
    EXPECT_EQ(session_.Modify(qp.handle, kInitMask, InitAttr()), 0);
    return qp.handle;
  }

  RawSession session_;
  uint32_t pd_ = 0;
  uint32_t cq_ = 0;
};

TEST_F(SessionTest, HelloMustComeFirstAndOnce) {
  EXPECT_EQ(session_.AllocPd(), 0u);
  EXPECT_EQ(session_.error, EINVAL);
  EXPECT_EQ(session_.Hello("no-such-device"), ENODEV);
  EXPECT_EQ(session_.Hello(), 0);
  EXPECT_EQ(session_.Hello(), EINVAL);
  EXPECT_NE(session_.AllocPd(), 0u);
}

TEST_F(SessionTest, OtherVersionsGetNoSession) {
  roci_abi_hello_request request{};
  request.magic = ROCI_ABI_MAGIC;
  request.major = ROCI_ABI_MAJOR + 1;
  std::strcpy(request.device, "roci0");
  roci_abi_hello_response response;
  EXPECT_EQ(session_.Call(ROCI_ABI_HELLO, request, response), EPROTONOSUPPORT);
}

TEST_F(SessionTest, MessagesOfWrongSizeAreRefused) {
  ASSERT_EQ(session_.Hello(), 0);
  roci_abi_plain_request head{};
  head.head.command = ROCI_ABI_CREATE_QP;
  head.head.size = sizeof(head);
  head.head.serial = 9;
  ASSERT_TRUE(session_.SendBytes(std::as_bytes(std::span(&head, 1))));
  std::array<std::byte, 4096> answer;
  ASSERT_GE(session_.ReceiveBytes(answer), static_cast<ssize_t>(sizeof(roci_abi_response)));
  roci_abi_response response;
  std::memcpy(&response, answer.data(), sizeof(response));
  EXPECT_EQ(response.error, EINVAL);
  EXPECT_EQ(response.serial, 9u);
}

TEST_F(SessionTest, MessagesWithoutAHeadEndTheSession) {
  const std::array<std::byte, 7> bytes{};
  ASSERT_TRUE(session_.SendBytes(bytes));
  std::array<std::byte, 64> answer;
  EXPECT_EQ(session_.ReceiveBytes(answer), 0);
}

TEST_F(SessionTest, GiantMessagesEndTheSession) {
  const std::vector<std::byte> bytes(100'000);
  ASSERT_TRUE(session_.SendBytes(bytes));
  std::array<std::byte, 64> answer;
  EXPECT_EQ(session_.ReceiveBytes(answer), 0);
}

TEST_F(SessionTest, UnknownCommandIsNotSupported) {
  ASSERT_EQ(session_.Hello(), 0);
  roci_abi_plain_response response;
  EXPECT_EQ(session_.Call(4711, roci_abi_plain_request{}, response), EOPNOTSUPP);
}

TEST_F(SessionTest, UnwantedDescriptorsAreClosed) {
  ASSERT_EQ(session_.Hello(), 0);
  const size_t before = DaemonFds();
  const std::vector<int> fds(10, 0);
  roci_abi_handle_response response;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(session_.Call(ROCI_ABI_ALLOC_PD, roci_abi_plain_request{}, response, fds), EINVAL);
  }
  ExpectNoMoreDaemonFds(before);
}

TEST_F(SessionTest, HandlesThatDoNotExist) {
  ASSERT_EQ(session_.Hello(), 0);
  for (const uint32_t command :
       {ROCI_ABI_DEALLOC_PD, ROCI_ABI_DEREG_MR, ROCI_ABI_DESTROY_COMP_CHANNEL, ROCI_ABI_DESTROY_CQ,
        ROCI_ABI_DESTROY_QP, ROCI_ABI_DESTROY_AH, ROCI_ABI_DESTROY_FLOW, ROCI_ABI_DESTROY_COUNTERS,
        ROCI_ABI_DESTROY_QUEUE_TABLE}) {
    for (const uint32_t handle : {0u, 1u, 65536u, ~0u}) {
      EXPECT_EQ(session_.OnHandle(command, handle), ENOENT) << command << " " << handle;
    }
  }
}

TEST_F(SessionTest, MulticastOfQueuePairsThatDoNotExist) {
  ASSERT_EQ(session_.Hello(), 0);
  roci_abi_plain_response response;
  roci_abi_multicast_request request{};
  request.gid[0] = 0xFF;
  for (const uint32_t command : {ROCI_ABI_ATTACH_MULTICAST, ROCI_ABI_DETACH_MULTICAST}) {
    for (const uint32_t handle : {0u, 65536u, ~0u}) {
      request.qp = handle;
      EXPECT_EQ(session_.Call(command, request, response), ENOENT);
    }
  }
}

TEST_F(SessionTest, HandlesOfOtherSessionsDoNotExist) {
  ASSERT_EQ(session_.Hello(), 0);
  RawSession other;
  ASSERT_EQ(other.Hello(), 0);
  const uint32_t pd = other.AllocPd();
  EXPECT_EQ(session_.OnHandle(ROCI_ABI_DEALLOC_PD, pd), ENOENT);
  EXPECT_EQ(other.OnHandle(ROCI_ABI_DEALLOC_PD, pd), 0);
}

TEST_F(SessionTest, ObjectsInUseAreBusy) {
  const uint32_t qp = MakeQp();
  EXPECT_EQ(session_.OnHandle(ROCI_ABI_DEALLOC_PD, pd_), EBUSY);
  EXPECT_EQ(session_.OnHandle(ROCI_ABI_DESTROY_CQ, cq_), EBUSY);
  const uint32_t channel = session_.CreateChannel();
  const uint32_t cq = session_.CreateCq(1, channel);
  EXPECT_EQ(session_.OnHandle(ROCI_ABI_DESTROY_COMP_CHANNEL, channel), EBUSY);
  EXPECT_EQ(session_.OnHandle(ROCI_ABI_DESTROY_CQ, cq), 0);
  EXPECT_EQ(session_.OnHandle(ROCI_ABI_DESTROY_COMP_CHANNEL, channel), 0);
  EXPECT_EQ(session_.OnHandle(ROCI_ABI_DESTROY_QP, qp), 0);
  EXPECT_EQ(session_.OnHandle(ROCI_ABI_DESTROY_CQ, cq_), 0);
  EXPECT_EQ(session_.OnHandle(ROCI_ABI_DEALLOC_PD, pd_), 0);
}

TEST_F(SessionTest, FeaturesThatAreNotOfferedAreNotSupported) {
  MakeQp();
  roci_abi_create_qp_response qp;
  for (const uint32_t type : {0u, 11u, 255u, 0x102u}) {
    EXPECT_EQ(session_.CreateQp(RawSession::QpRequest(pd_, cq_, type), qp), EOPNOTSUPP) << type;
  }
  roci_abi_create_srq_request srq{};
  srq.pd = pd_;
  srq.max_wr = 1;
  srq.type = 2;  // tag matching
  roci_abi_create_srq_response created;
  EXPECT_EQ(session_.Call(ROCI_ABI_CREATE_SRQ, srq, created), EOPNOTSUPP);
}

TEST_F(SessionTest, MoreThanTheDeviceHasIsInvalid) {
  ASSERT_EQ(session_.Hello(), 0);
  roci_abi_query_device_response device;
  ASSERT_EQ(session_.Call(ROCI_ABI_QUERY_DEVICE, roci_abi_query_device_request{}, device), 0);
  pd_ = session_.AllocPd();
  EXPECT_EQ(session_.CreateCq(device.max_cqe + 1), 0u);
  EXPECT_EQ(session_.error, EINVAL);
  EXPECT_EQ(session_.CreateCq(~0u), 0u);
  EXPECT_EQ(session_.error, EINVAL);
  cq_ = session_.CreateCq(device.max_cqe);
  EXPECT_NE(cq_, 0u);
  roci_abi_create_qp_response qp;
  const auto refused = [&](auto&& change) {
    auto request = RawSession::QpRequest(pd_, cq_);
    change(request);
    return session_.CreateQp(request, qp);
  };
  EXPECT_EQ(refused([&](auto& r) { r.max_send_wr = device.max_qp_wr + 1; }), EINVAL);
  EXPECT_EQ(refused([&](auto& r) { r.max_recv_wr = ~0u; }), EINVAL);
  EXPECT_EQ(refused([&](auto& r) { r.max_send_sge = device.max_sge + 1; }), EINVAL);
  EXPECT_EQ(refused([&](auto& r) { r.max_recv_sge = ~0u; }), EINVAL);
  EXPECT_EQ(refused([&](auto& r) { r.max_inline = device.max_inline + 1; }), EINVAL);
  EXPECT_EQ(refused([&](auto& r) {
              r.max_send_wr = device.max_qp_wr;
              r.max_recv_wr = device.max_qp_wr;
              r.max_send_sge = device.max_sge;
              r.max_recv_sge = device.max_sge;
              r.max_inline = device.max_inline;
            }),
            0);
  EXPECT_GE(qp.max_send_wr, device.max_qp_wr);
  EXPECT_GE(qp.max_inline, device.max_inline);
}

TEST_F(SessionTest, RegionsWithoutMemory) {
  ASSERT_EQ(session_.Hello(), 0);
  roci_abi_reg_mr_request request{};
  request.pd = session_.AllocPd();
  request.access = 1;
  request.start = 0x1000;  // never mapped
  request.length = 4096;
  request.iova = request.start;
  request.extent_count = 1;
  request.extents[0].va = request.start;
  request.extents[0].length = request.length;
  roci_abi_reg_mr_response response;
  // The plugin checks that memory exists (VerbsMemory.RefusesWhatLinuxRefuses). The daemon does
  // not, since a page fault of the program could take any time. Access to such a region is an
  // error.
  EXPECT_EQ(session_.Call(ROCI_ABI_REG_MR, request, response), 0);
  request.pd = 999;
  EXPECT_EQ(session_.Call(ROCI_ABI_REG_MR, request, response), ENOENT);
}

// A descriptor that does not match its extent must not be mapped or stay open.
TEST_F(SessionTest, DescriptorsOfRegionsAreChecked) {
  ASSERT_EQ(session_.Hello(), 0);
  const size_t before = DaemonFds();
  alignas(4096) static char memory[8192];
  roci_abi_reg_mr_request request{};
  request.pd = session_.AllocPd();
  request.access = 1;
  request.start = reinterpret_cast<uint64_t>(memory);
  request.length = sizeof(memory);
  request.iova = request.start;
  request.extent_count = 1;
  request.fd_count = 1;
  request.extents[0].va = request.start;
  request.extents[0].length = request.length;
  request.extents[0].kind = ROCI_ABI_EXTENT_FD;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int small = memfd_create("small", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(small, 4096), 0);
  for (const int fd : {ends[0], small, session_.fd()}) {
    roci_abi_reg_mr_response response;
    // The region is valid, only the descriptor is not: the daemon accesses it without a mapping.
    EXPECT_EQ(session_.Call(ROCI_ABI_REG_MR, request, response, {fd}), 0);
    EXPECT_EQ(session_.OnHandle(ROCI_ABI_DEREG_MR, response.handle), 0);
  }
  ExpectNoMoreDaemonFds(before);
  close(ends[0]);
  close(ends[1]);
  close(small);
}

TEST_F(SessionTest, AddressVectorsWithoutAPath) {
  const uint32_t qp = MakeQp();
  const auto refused = [&](auto&& change) {
    roci_abi_qp_attr attr = RtrAttr(2);
    change(attr);
    return session_.Modify(qp, kRtrMask, attr);
  };
  EXPECT_EQ(refused([](auto& a) { a.ah.sgid_index = 0; }), EINVAL) << "families differ";
  EXPECT_EQ(refused([](auto& a) { a.ah.sgid_index = 200; }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.ah.is_global = 0; }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.ah.port = 2; }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { std::memset(a.ah.dgid, 0, 16); }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.ah.dgid[13] = 1; }), ENETUNREACH) << "10.1.0.2: no gateway";
  EXPECT_EQ(refused([](auto& a) { a.path_mtu = 6; }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.max_dest_rd_atomic = 200; }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.ece_options = ROCI_ABI_ECE_SELECTIVE_REPEAT; }), EINVAL)
      << "the device goes back N";
  EXPECT_EQ(session_.Modify(qp, kRtrMask, RtrAttr(2)), 0) << "still in INIT after the refusals";
  EXPECT_EQ(session_.Modify(qp, 1 << 25, RtrAttr(2)), EINVAL) << "a rate limit before RTS";
  EXPECT_EQ(session_.Modify(qp + 1, kRtrMask, RtrAttr(2)), ENOENT);
}

// Resolving a missing peer takes seconds: its session waits, other sessions do not.
TEST_F(SessionTest, SilentPeersTimeOutAloneAndInTime) {
  const uint32_t qp = MakeQp();
  roci_abi_modify_qp_request request{};
  request.handle = qp;
  request.mask = kRtrMask;
  request.attr = RtrAttr(77);
  const auto start = Clock::now();
  session_.CloseFds();
  ASSERT_TRUE(session_.Send(ROCI_ABI_MODIFY_QP, request));
  RawSession other;
  ASSERT_EQ(other.Hello(), 0);
  ASSERT_NE(other.AllocPd(), 0u);
  pollfd answer{session_.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&answer, 1, 0), 0) << "other sessions had to wait";
  roci_abi_modify_qp_response response{};
  EXPECT_EQ(session_.Receive(response), ETIMEDOUT);
  EXPECT_GT(Clock::now() - start, std::chrono::seconds(1));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(60));
  EXPECT_EQ(session_.Modify(qp, kRtrMask, RtrAttr(2)), 0) << "nothing has changed";
}

// A session whose program repeats requests (ROCI_ABI_FEATURE_PATH_WAITS).
class PathWaitsTest : public SessionTest {
 protected:
  void SetUp() override {
    roci_abi_hello_request request{};
    request.features = ROCI_ABI_FEATURE_PATH_WAITS;
    request.magic = ROCI_ABI_MAGIC;
    request.major = ROCI_ABI_MAJOR;
    std::strcpy(request.device, "roci0");
    roci_abi_hello_response response;
    ASSERT_EQ(session_.Call(ROCI_ABI_HELLO, request, response), 0);
    EXPECT_NE(response.features & ROCI_ABI_FEATURE_PATH_WAITS, 0u);
    pd_ = session_.AllocPd();
  }
  // The errno of an address handle, and in wait_ the number to repeat the request with.
  int CreateAh(const roci_abi_ah_attr& attr, uint32_t wait = 0) {
    roci_abi_create_ah_request request{};
    request.head.wait = wait;
    request.pd = pd_;
    request.attr = attr;
    roci_abi_handle_response response;
    const int error = session_.Call(ROCI_ABI_CREATE_AH, request, response);
    wait_ = response.head.wait;
    return error;
  }
  // The errno of the last answer to a request that is repeated.
  int CreateAhAtLast(const roci_abi_ah_attr& attr, uint32_t wait) {
    int error = CreateAh(attr, wait);
    while (error == EINPROGRESS && wait_ == wait) {
      usleep(1000);
      error = CreateAh(attr, wait);
    }
    return error;
  }
  static uint64_t AddressHandles() { return ShowDevice("roci0")["ahs"]["used"]; }

  uint32_t wait_ = 0;
};

TEST_F(PathWaitsTest, TheSessionIsServedMeanwhile) {
  const auto start = Clock::now();
  EXPECT_EQ(CreateAh(RtrAttr(61).ah), EINPROGRESS);
  const uint32_t wait = wait_;
  EXPECT_NE(wait, 0u);
  EXPECT_NE(session_.AllocPd(), 0u);
  EXPECT_EQ(CreateAh(RtrAttr(2).ah), 0) << "another peer";
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
  EXPECT_EQ(CreateAhAtLast(RtrAttr(61).ah, wait), ETIMEDOUT);
  EXPECT_GT(Clock::now() - start, std::chrono::seconds(1));
  EXPECT_EQ(AddressHandles(), 1u);
}

TEST_F(PathWaitsTest, AFailureIsReportedToItsAskerOnce) {
  EXPECT_EQ(CreateAh(RtrAttr(62).ah), EINPROGRESS);
  const uint32_t first = wait_;
  EXPECT_EQ(CreateAh(RtrAttr(62).ah), EINPROGRESS);
  const uint32_t second = wait_;
  EXPECT_NE(first, second);
  EXPECT_EQ(CreateAhAtLast(RtrAttr(62).ah, first), ETIMEDOUT);
  EXPECT_EQ(CreateAhAtLast(RtrAttr(62).ah, second), ETIMEDOUT);
  EXPECT_EQ(CreateAh(RtrAttr(62).ah, first), EINPROGRESS) << "a new wait";
  EXPECT_NE(wait_, first);
}

TEST_F(PathWaitsTest, NumbersThatNobodyHasGivenBeginAWait) {
  EXPECT_EQ(CreateAh(RtrAttr(63).ah, 4711), EINPROGRESS);
  EXPECT_NE(wait_, 4711u);
  EXPECT_EQ(CreateAh(RtrAttr(2).ah, ~0u), 0);
}

// The address of roci1 with which no other test of this program speaks.
TEST_F(PathWaitsTest, APeerThatAnswersGivesOneAddressHandle) {
  roci_abi_ah_attr attr = RtrAttr(2).ah;
  attr.sgid_index = 2;
  const uint8_t gid[] = {0xFD, 0x72, 0x6F, 0x63, 0x69, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  std::memcpy(attr.dgid, gid, sizeof(gid));
  ASSERT_EQ(CreateAh(attr), EINPROGRESS);
  EXPECT_EQ(CreateAhAtLast(attr, wait_), 0);
  EXPECT_EQ(AddressHandles(), 1u);
}

TEST_F(PathWaitsTest, ATransitionIsMadeOnce) {
  cq_ = session_.CreateCq(16);
  roci_abi_create_qp_response qp;
  ASSERT_EQ(session_.CreateQp(RawSession::QpRequest(pd_, cq_), qp), 0);
  ASSERT_EQ(session_.Modify(qp.handle, kInitMask, InitAttr()), 0);
  roci_abi_modify_qp_request request{};
  request.handle = qp.handle;
  request.mask = kRtrMask;
  request.attr = RtrAttr(64);
  roci_abi_modify_qp_response response;
  ASSERT_EQ(session_.Call(ROCI_ABI_MODIFY_QP, request, response), EINPROGRESS);
  ASSERT_EQ(session_.Modify(qp.handle, kRtrMask, RtrAttr(2)), 0) << "by another thread";
  request.head.wait = response.head.wait;
  EXPECT_EQ(session_.Call(ROCI_ABI_MODIFY_QP, request, response), EINVAL) << "RTR to RTR";
}

TEST_F(SessionTest, ProgramsMayEndWhileTheyWaitForAPeer) {
  const uint32_t qp = MakeQp();
  roci_abi_modify_qp_request request{};
  request.handle = qp;
  request.mask = kRtrMask;
  request.attr = RtrAttr(78);
  ASSERT_TRUE(session_.Send(ROCI_ABI_MODIFY_QP, request));
  session_.Close();
  ExpectNothingInUse("roci0");
}

// A request that takes long is handled in parts, between which requests of others are.
TEST_F(SessionTest, OthersAreServedWhileALargeQueueIsResized) {
  constexpr uint32_t kEntries = 1u << 20;
  constexpr int kTries = 50;
  RawSession other;
  ASSERT_EQ(other.Hello(), 0);
  RawSession session;
  ASSERT_EQ(session.Hello(), 0);
  const uint32_t cq = session.CreateCq(kEntries);
  ASSERT_NE(cq, 0u);
  roci_abi_resize_cq_request resize{};
  resize.handle = cq;
  resize.entries = kEntries;
  resize.consumer = 0 - kEntries;  // as if the ring were full
  bool is_served = false;
  for (int i = 0; i < kTries && !is_served; ++i) {
    session.CloseFds();
    ASSERT_TRUE(session.Send(ROCI_ABI_RESIZE_CQ, resize));
    ASSERT_NE(other.AllocPd(), 0u);
    pollfd answer{session.fd(), POLLIN, 0};
    is_served = poll(&answer, 1, 0) == 0;
    roci_abi_resize_cq_response resized{};
    ASSERT_EQ(session.Receive(resized, 60'000), 0);
    resize.consumer = 0;  // the daemon counts anew: the ring is full
  }
  EXPECT_TRUE(is_served);
}

// A program that ends releases its objects in parts. Meanwhile nobody of its user is refused for
// lack of what they take.
TEST_F(SessionTest, LimitsHoldNothingOfProgramsThatEnd) {
  RawSession other;
  ASSERT_EQ(other.Hello(), 0);
  const uint32_t pd = other.AllocPd();
  const uint32_t cq = other.CreateCq(16);
  ASSERT_NE(pd, 0u);
  ASSERT_NE(cq, 0u);
  RawSession ending;
  ASSERT_EQ(ending.Hello(), 0);
  const auto request = RawSession::QpRequest(ending.AllocPd(), ending.CreateCq(16));
  roci_abi_create_qp_response created;
  int error = 0;
  while (error == 0) error = ending.CreateQp(request, created);
  ASSERT_EQ(error, ENOMEM);
  ASSERT_EQ(other.CreateQp(RawSession::QpRequest(pd, cq), created), ENOMEM);
  ending.Close();
  EXPECT_EQ(other.CreateQp(RawSession::QpRequest(pd, cq), created), 0);
}

// What the user of the only program has of `resource` (`roci show apps`).
uint64_t UsedByUser(const char* resource) {
  const auto apps = tools::AskDaemon("", {{"command", "show"}, {"what", "apps"}});
  EXPECT_TRUE(apps.ok()) << apps.status();
  return (*apps)[0]["user"][resource]["used"];
}

// An XRC domain belongs to no program, but each of its objects and handles counts to a user.
TEST_F(SessionTest, XrcReceiversQueuesAndHandlesCountToTheirUser) {
  ASSERT_EQ(session_.Hello(), 0);
  roci_abi_open_xrcd_request open{};
  open.flags = ROCI_ABI_XRCD_CREATE;
  roci_abi_handle_response domain;
  ASSERT_EQ(session_.Call(ROCI_ABI_OPEN_XRCD, open, domain), 0);
  const uint32_t cq = session_.CreateCq(16);
  auto grows = [before = uint64_t{0}, mappings = uint64_t{0}]() mutable {
    const uint64_t bytes_before = std::exchange(before, UsedByUser("queue_bytes"));
    const uint64_t mappings_before = std::exchange(mappings, UsedByUser("queue_mappings"));
    return std::pair(before - bytes_before, mappings - mappings_before);
  };
  grows();
  roci_abi_create_srq_request queue{};
  queue.pd = session_.AllocPd();
  queue.type = ROCI_ABI_SRQ_XRC;
  queue.xrcd = domain.handle;
  queue.cq = cq;
  queue.max_wr = 1000;
  queue.max_sge = 4;
  roci_abi_create_srq_response created_queue;
  ASSERT_EQ(session_.Call(ROCI_ABI_CREATE_SRQ, queue, created_queue), 0);
  EXPECT_EQ(grows(), std::pair(uint64_t{created_queue.layout.memory_size}, uint64_t{1}));
  const auto request = RawSession::QpRequest(domain.handle, cq, IBV_QPT_XRC_RECV);
  roci_abi_create_qp_response created;
  ASSERT_EQ(session_.CreateQp(request, created), 0);
  const auto [receiver_bytes, receiver_mappings] = grows();
  EXPECT_GT(receiver_bytes, 0u);
  EXPECT_EQ(receiver_mappings, 1u);
  roci_abi_open_qp_request again{};
  again.xrcd = domain.handle;
  again.qpn = created.qpn;
  again.qp_type = IBV_QPT_XRC_RECV;
  roci_abi_open_qp_response opened;
  ASSERT_EQ(session_.Call(ROCI_ABI_OPEN_QP, again, opened), 0);
  const auto [handle_bytes, handle_mappings] = grows();
  EXPECT_GT(handle_bytes, 0u) << "the daemon keeps a record of each handle";
  EXPECT_EQ(handle_mappings, 0u);
  for (const uint32_t handle : {opened.handle, created.handle}) {
    EXPECT_EQ(session_.OnHandle(ROCI_ABI_DESTROY_QP, handle), 0);
  }
  EXPECT_EQ(grows(), std::pair(0 - receiver_bytes - handle_bytes, uint64_t{0} - 1));
}

TEST_F(SessionTest, LimitIsExactOverSessions) {
  ASSERT_EQ(session_.Hello(), 0);
  RawSession other;
  ASSERT_EQ(other.Hello(), 0);
  roci_abi_query_device_response device;
  ASSERT_EQ(session_.Call(ROCI_ABI_QUERY_DEVICE, roci_abi_query_device_request{}, device), 0);
  uint32_t made = 0;
  uint32_t last = 0;
  for (RawSession* session = &session_; made <= device.max_pd;) {
    const uint32_t pd = session->AllocPd();
    if (pd == 0) break;
    last = pd;
    ++made;
    session = made < device.max_pd / 2 ? &session_ : &other;
  }
  EXPECT_EQ(made, device.max_pd);
  EXPECT_EQ(other.AllocPd(), 0u);
  EXPECT_EQ(other.error, ENOMEM);
  EXPECT_EQ(other.OnHandle(ROCI_ABI_DEALLOC_PD, last), 0);
  EXPECT_NE(session_.AllocPd(), 0u) << "objects freed by one session are available to the other";
}

}  // namespace
}  // namespace roci::testing
