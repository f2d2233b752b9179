// Tag matching as programs use it: matches, their data, rendezvous, unexpected messages and their
// number, limits and errors (ibv_post_srq_ops(3); rdma-core, Documentation/tag_matching.md).
#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/tm_types.h>
#include <sched.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

constexpr uint32_t kHeader = sizeof(ibv_tmh);
constexpr uint32_t kRendezvous = sizeof(ibv_tmh) + sizeof(ibv_rvh);
constexpr uint32_t kSlot = 16384;

struct TagCompletion {
  uint64_t wr_id = ~uint64_t{0};
  int status = -1;  // no completion
  int opcode = -1;
  unsigned flags = 0;
  uint32_t bytes = 0;
  uint32_t qpn = 0;
  ibv_wc_tm_info info = {};
};

// A sender on the first device; a queue pair with tag matching on the second.
class TagTest : public ::testing::Test {
 protected:
  void Make(uint32_t max_tags = 8, uint32_t max_ops = 16, EndpointOptions options = {}) {
    ibv_cq_init_attr_ex cq_init = {};
    cq_init.cqe = 4096;
    cq_init.wc_flags = static_cast<uint64_t>(IBV_WC_STANDARD_FLAGS) | IBV_WC_EX_WITH_TM_INFO;
    cq_ = ibv_create_cq_ex(DeviceOne().context, &cq_init);
    ASSERT_NE(cq_, nullptr);
    srq_ = MakeSrq(max_tags, max_ops);
    ASSERT_NE(srq_, nullptr) << strerror(errno);
    options.rnr_retry = 7;
    near_ = std::make_unique<Endpoint>(DeviceZero(), options);
    options.srq = srq_;
    options.max_send_wr = 0;
    far_ = std::make_unique<Endpoint>(DeviceOne(), options);
    ASSERT_EQ(near_->Connect(*far_), 0);
    ASSERT_EQ(far_->Connect(*near_), 0);
  }

 public:
  ~TagTest() override {
    near_.reset();
    far_.reset();
    if (srq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(srq_), 0);
    }
    if (cq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq_)), 0);
    }
  }

 protected:
  ibv_srq* MakeSrq(uint32_t max_tags, uint32_t max_ops) {
    ibv_srq_init_attr_ex init = {};
    init.attr = {64, 1, 0};
    init.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    init.srq_type = IBV_SRQT_TM;
    init.pd = DeviceOne().pd;
    init.cq = ibv_cq_ex_to_cq(cq_);
    init.tm_cap = {max_tags, max_ops};
    return ibv_create_srq_ex(DeviceOne().context, &init);
  }

  TagCompletion Wait(int patience_ms = kPatience_ms) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
    TagCompletion out;
    do {
      ibv_poll_cq_attr attr = {};
      if (ibv_start_poll(cq_, &attr) != 0) {
        sched_yield();
        continue;
      }
      out.wr_id = cq_->wr_id;
      out.status = cq_->status;
      out.opcode = ibv_wc_read_opcode(cq_);
      out.flags = ibv_wc_read_wc_flags(cq_);
      out.bytes = ibv_wc_read_byte_len(cq_);
      out.qpn = ibv_wc_read_qp_num(cq_);
      ibv_wc_read_tm_info(cq_, &out.info);
      ibv_end_poll(cq_);
      return out;
    } while (std::chrono::steady_clock::now() < end);
    return out;
  }
  void Expect(int opcode, uint64_t wr_id, unsigned flags, int status = IBV_WC_SUCCESS) {
    const TagCompletion got = Wait();
    EXPECT_EQ(got.status, status);
    EXPECT_EQ(got.opcode, opcode);
    EXPECT_EQ(got.wr_id, wr_id);
    EXPECT_EQ(got.flags, flags);
  }

  int Add(uint64_t tag, uint64_t wr_id, std::vector<ibv_sge> sges, uint64_t mask = ~uint64_t{0},
          int flags = IBV_OPS_SIGNALED, uint32_t count = 0) {
    ibv_ops_wr wr = {};
    wr.wr_id = wr_id + 1000;
    wr.opcode = IBV_WR_TAG_ADD;
    wr.flags = flags;
    wr.tm.unexpected_cnt = count;
    wr.tm.add = {wr_id, sges.data(), static_cast<int>(sges.size()), tag, mask};
    ibv_ops_wr* bad = nullptr;
    const int error = ibv_post_srq_ops(srq_, &wr, &bad);
    handle_ = wr.tm.handle;
    return error;
  }
  void AddAndWait(uint64_t tag, uint64_t wr_id, const std::vector<ibv_sge>& sges) {
    ASSERT_EQ(Add(tag, wr_id, sges), 0);
    Expect(IBV_WC_TM_ADD, wr_id + 1000, 0);
  }
  int Operate(ibv_ops_wr_opcode opcode, uint64_t wr_id, uint32_t handle, uint32_t count,
              int flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC) {
    ibv_ops_wr wr = {};
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.flags = flags;
    wr.tm.handle = handle;
    wr.tm.unexpected_cnt = count;
    ibv_ops_wr* bad = nullptr;
    return ibv_post_srq_ops(srq_, &wr, &bad);
  }
  int PostUntagged(ibv_sge sge, uint64_t wr_id) {
    ibv_recv_wr wr = {};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq_, &wr, &bad);
  }

  static void PutHeader(uint8_t* to, ibv_tmh_op op, uint64_t tag, uint32_t context = 0) {
    const ibv_tmh header = {static_cast<uint8_t>(op), {}, htobe32(context), htobe64(tag)};
    std::memcpy(to, &header, sizeof(header));
  }
  void PutRendezvous(uint64_t tag, const Buffer& data, uint32_t length) {
    PutHeader(source_.data(), IBV_TMH_RNDV, tag, 7);
    const ibv_rvh where = {htobe64(data.address()), htobe32(data.rkey()), htobe32(length)};
    std::memcpy(source_.data() + kHeader, &where, sizeof(where));
  }
  // A message of the first `length` bytes of the source.
  void Send(size_t length) {
    ASSERT_EQ(near_->PostSend(IBV_WR_SEND, source_.Sge(0, length)), 0);
    near_->ExpectSuccess();
  }
  void SendEager(uint64_t tag, uint32_t length, uint32_t seed, uint32_t context = 0) {
    source_.Fill(seed);
    PutHeader(source_.data(), IBV_TMH_EAGER, tag, context);
    Send(kHeader + length);
  }
  void ExpectData(size_t at, uint32_t from, uint32_t length, uint32_t seed) {
    for (uint32_t i = 0; i < length; ++i) {
      ASSERT_EQ(target_.data()[at + i], PatternByte(seed, from + i)) << "byte " << i;
    }
  }

  ibv_cq_ex* cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  std::unique_ptr<Endpoint> near_, far_;
  Buffer source_{DeviceZero(), 8 * kSlot, 1};
  Buffer target_{DeviceOne(), 64 * kSlot, 2};
  uint32_t handle_ = 0;
};

TEST_F(TagTest, EagerMessagesMatchTheirBuffersInAnyOrder) {
  Make();
  for (uint64_t tag = 1; tag <= 4; ++tag) {
    AddAndWait(tag, tag, {target_.Sge(tag * kSlot, 500)});
  }
  for (uint64_t tag = 4; tag >= 1; --tag) {
    SendEager(tag, 100 + static_cast<uint32_t>(tag), static_cast<uint32_t>(tag), 0xABC);
    const TagCompletion got = Wait();
    EXPECT_EQ(got.status, IBV_WC_SUCCESS);
    EXPECT_EQ(got.opcode, IBV_WC_TM_RECV);
    EXPECT_EQ(got.flags, unsigned{IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID});
    EXPECT_EQ(got.wr_id, tag);
    EXPECT_EQ(got.bytes, 100 + tag);
    EXPECT_EQ(got.qpn, far_->qp->qp_num);
    EXPECT_EQ(got.info.tag, tag);
    EXPECT_EQ(got.info.priv, 0xABCU);
    ExpectData(tag * kSlot, kHeader, got.bytes, static_cast<uint32_t>(tag));
    EXPECT_EQ(target_.data()[tag * kSlot + got.bytes], PatternByte(2, tag * kSlot + got.bytes));
  }
}

TEST_F(TagTest, TagsOf64BitsAndMasks) {
  Make();
  constexpr uint64_t kTag = 0xF00D'0000'0000'1234;
  ASSERT_EQ(Add(0xF00D'0000'0000'0000, 1, {target_.Sge(0, 100)}, 0xFFFF'0000'0000'0000), 0);
  ASSERT_EQ(Add(kTag, 2, {target_.Sge(kSlot, 100)}), 0);
  Expect(IBV_WC_TM_ADD, 1001, 0);
  Expect(IBV_WC_TM_ADD, 1002, 0);
  SendEager(kTag, 10, 3);
  TagCompletion got = Wait();
  EXPECT_EQ(got.wr_id, 1U);  // the older one
  EXPECT_EQ(got.info.tag, kTag);
  SendEager(kTag, 10, 4);
  EXPECT_EQ(Wait().wr_id, 2U);
}

TEST_F(TagTest, LongMessagesReportTheMatchFirst) {
  EndpointOptions options;
  options.mtu = IBV_MTU_256;
  Make(8, 16, options);
  AddAndWait(5, 1, {target_.Sge(0, 300), target_.Sge(kSlot, 5000)});
  SendEager(5, 3000, 9);
  TagCompletion got = Wait();
  EXPECT_EQ(got.flags, unsigned{IBV_WC_TM_MATCH});
  EXPECT_EQ(got.info.tag, 5U);
  EXPECT_EQ(got.wr_id, 1U);
  got = Wait();
  EXPECT_EQ(got.opcode, IBV_WC_TM_RECV);
  EXPECT_EQ(got.flags, unsigned{IBV_WC_TM_DATA_VALID});
  EXPECT_EQ(got.wr_id, 1U);
  EXPECT_EQ(got.bytes, 3000U);
  ExpectData(0, kHeader, 300, 9);
  ExpectData(kSlot, kHeader + 300, 2700, 9);
}

TEST_F(TagTest, EmptyAndUnregisteredMessages) {
  Make();
  AddAndWait(1, 1, {});
  SendEager(1, 0, 3);
  const TagCompletion got = Wait();
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(got.bytes, 0U);
}

TEST_F(TagTest, UntaggedAndShortMessagesUseOrdinaryReceives) {
  Make();
  AddAndWait(0, 1, {target_.Sge(0, 500)});
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(PostUntagged(target_.Sge((i + 1) * kSlot, 500), 50 + i), 0);
  }
  source_.Fill(6);
  PutHeader(source_.data(), IBV_TMH_NO_TAG, 0);
  Send(40);
  Expect(IBV_WC_TM_NO_TAG, 50, 0);
  ExpectData(kSlot + kHeader, kHeader, 40 - kHeader, 6);
  Send(1);
  Expect(IBV_WC_TM_NO_TAG, 51, 0);
  PutHeader(source_.data(), IBV_TMH_EAGER, 0);
  Send(kHeader - 1);  // no header at all
  Expect(IBV_WC_TM_NO_TAG, 52, 0);
  PutHeader(source_.data(), IBV_TMH_FIN, 0);
  Send(kRendezvous);
  Expect(IBV_WC_TM_NO_TAG, 53, 0);
  // None of them counts as unexpected: a new buffer is matched at once.
  AddAndWait(9, 2, {target_.Sge(0, 500)});
  SendEager(9, 10, 1);
  EXPECT_EQ(Wait().wr_id, 2U);
}

TEST_F(TagTest, UnexpectedMessagesHoldNewBuffersUntilTheyAreCounted) {
  Make();
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(PostUntagged(target_.Sge((i + 1) * kSlot, 500), 50 + i), 0);
  }
  AddAndWait(1, 1, {target_.Sge(0, 500)});
  SendEager(2, 30, 3);
  TagCompletion got = Wait();
  EXPECT_EQ(got.opcode, IBV_WC_TM_RECV);
  EXPECT_EQ(got.flags, 0U);
  EXPECT_EQ(got.wr_id, 50U);
  EXPECT_EQ(got.bytes, kHeader + 30);
  EXPECT_EQ(got.info.tag, 0U);
  ExpectData(kSlot + kHeader, kHeader, 30, 3);

  ASSERT_EQ(Add(2, 2, {target_.Sge(8 * kSlot, 500)}), 0);
  Expect(IBV_WC_TM_ADD, 1002, IBV_WC_TM_SYNC_REQ);
  SendEager(2, 30, 4);  // would overtake the first one
  Expect(IBV_WC_TM_RECV, 51, 0);
  SendEager(1, 30, 4);  // arrived before
  Expect(IBV_WC_TM_RECV, 1, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
  ASSERT_EQ(Operate(IBV_WR_TAG_SYNC, 70, 0, 1), 0);
  Expect(IBV_WC_TM_SYNC, 70, IBV_WC_TM_SYNC_REQ);
  ASSERT_EQ(Operate(IBV_WR_TAG_SYNC, 71, 0, 2), 0);
  Expect(IBV_WC_TM_SYNC, 71, 0);
  SendEager(2, 30, 5);
  Expect(IBV_WC_TM_RECV, 2, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
  ExpectData(8 * kSlot, kHeader, 30, 5);

  // An ADD may update the count as well.
  SendEager(3, 30, 6);
  Expect(IBV_WC_TM_RECV, 52, 0);
  ASSERT_EQ(Add(3, 3, {target_.Sge(0, 500)}, ~uint64_t{0}, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, 3),
            0);
  Expect(IBV_WC_TM_ADD, 1003, 0);
  SendEager(3, 30, 7);
  Expect(IBV_WC_TM_RECV, 3, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
}

TEST_F(TagTest, DeletedBuffersAreNotMatchedAndConsumedOnesCannotBeDeleted) {
  Make();
  ASSERT_EQ(PostUntagged(target_.Sge(0, 500), 50), 0);
  AddAndWait(1, 1, {target_.Sge(kSlot, 500)});
  const uint32_t deleted = handle_;
  AddAndWait(1, 2, {target_.Sge(2 * kSlot, 500)});
  const uint32_t kept = handle_;
  ASSERT_EQ(Operate(IBV_WR_TAG_DEL, 80, deleted, 0), 0);
  Expect(IBV_WC_TM_DEL, 80, 0);
  SendEager(1, 30, 4);
  Expect(IBV_WC_TM_RECV, 2, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
  ASSERT_EQ(Operate(IBV_WR_TAG_DEL, 81, kept, 0), 0);
  Expect(IBV_WC_TM_DEL, 81, 0, IBV_WC_TM_ERR);
  ASSERT_EQ(Operate(IBV_WR_TAG_DEL, 82, deleted, 0, 0), 0);  // completes although not signaled
  Expect(IBV_WC_TM_DEL, 82, 0, IBV_WC_TM_ERR);
  SendEager(1, 30, 5);
  Expect(IBV_WC_TM_RECV, 50, 0);
}

TEST_F(TagTest, RendezvousReadsTheDataAndNotifiesTheSender) {
  Make();
  Buffer data(DeviceZero(), 3 * kSlot, 33);
  Buffer finished(DeviceZero(), 64, 0);
  AddAndWait(6, 1, {target_.Sge(0, 1000), target_.Sge(kSlot, 4 * kSlot)});
  ASSERT_EQ(near_->PostRecv(finished.Sge(0, 64), 90), 0);
  PutRendezvous(6, data, 3 * kSlot - 5);
  Send(64);
  TagCompletion got = Wait();
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(got.opcode, IBV_WC_TM_RECV);
  EXPECT_EQ(got.flags, unsigned{IBV_WC_TM_MATCH});
  EXPECT_EQ(got.info.tag, 6U);
  EXPECT_EQ(got.info.priv, 7U);
  got = Wait();
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(got.flags, unsigned{IBV_WC_TM_DATA_VALID});
  EXPECT_EQ(got.wr_id, 1U);
  EXPECT_EQ(got.bytes, 3 * kSlot - 5);
  ExpectData(0, 0, 1000, 33);
  ExpectData(kSlot, 1000, 3 * kSlot - 1005, 33);
  const ibv_wc note = near_->Wait();
  EXPECT_EQ(note.status, IBV_WC_SUCCESS);
  EXPECT_EQ(note.wr_id, 90U);
  EXPECT_EQ(note.byte_len, kRendezvous);
  EXPECT_EQ(finished.data()[0], IBV_TMH_FIN);
  EXPECT_EQ(std::memcmp(finished.data() + 1, source_.data() + 1, kRendezvous - 1), 0);
}

TEST_F(TagTest, ManyRendezvousAtOnceCompleteInOrder) {
  constexpr uint32_t kCount = 40;  // more than a queue pair holds
  Make(kCount, kCount);
  Buffer data(DeviceZero(), 8192, 21);
  Buffer finished(DeviceZero(), 64, 0);
  for (uint32_t i = 0; i < kCount; ++i) {
    AddAndWait(i, i, {target_.Sge(size_t{i} * kSlot, 8192)});
    ASSERT_EQ(near_->PostRecv(finished.Sge(0, 64), 500 + i), 0);
  }
  for (uint32_t i = 0; i < kCount; ++i) {
    PutRendezvous(i, data, 8192);
    uint8_t* request = source_.data() + size_t{i + 1} * 64;
    std::memcpy(request, source_.data(), 64);
    ASSERT_EQ(near_->PostSend(IBV_WR_SEND, source_.Sge(size_t{i + 1} * 64, 64), 0), 0);
  }
  uint32_t matched = 0;
  std::vector<uint64_t> done;
  while (done.size() < kCount) {
    const TagCompletion got = Wait();
    ASSERT_EQ(got.status, IBV_WC_SUCCESS);
    if (got.flags == IBV_WC_TM_MATCH) ++matched;
    if (got.flags == IBV_WC_TM_DATA_VALID) done.push_back(got.wr_id);
  }
  EXPECT_EQ(matched, kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(done[i], i);
    ExpectData(size_t{i} * kSlot, 0, 8192, 21);
    EXPECT_EQ(near_->Wait().opcode, IBV_WC_RECV);
  }
}

TEST_F(TagTest, RendezvousThatDoesNotFitIsLeftToTheProgram) {
  Make();
  Buffer data(DeviceZero(), 4096, 33);
  AddAndWait(6, 1, {target_.Sge(0, 100)});
  PutRendezvous(6, data, 101);
  Send(64);
  Expect(IBV_WC_TM_RECV, 1, IBV_WC_TM_MATCH, IBV_WC_TM_RNDV_INCOMPLETE);
  EXPECT_EQ(std::memcmp(target_.data(), source_.data(), kRendezvous), 0);
  EXPECT_EQ(target_.data()[kRendezvous], PatternByte(2, kRendezvous));
}

TEST_F(TagTest, UnexpectedRendezvousIsReceivedCompletely) {
  Make();
  Buffer data(DeviceZero(), 4096, 33);
  ASSERT_EQ(PostUntagged(target_.Sge(0, 500), 50), 0);
  ASSERT_EQ(PostUntagged(target_.Sge(kSlot, 500), 51), 0);
  source_.Fill(3);
  PutRendezvous(6, data, 100);
  Send(64);
  Expect(IBV_WC_TM_RECV, 50, 0);
  EXPECT_EQ(std::memcmp(target_.data(), source_.data(), 64), 0);
  // A request that exceeds the maximum length is not matched.
  ASSERT_EQ(Add(6, 1, {target_.Sge(2 * kSlot, 500)}, ~uint64_t{0}, IBV_OPS_TM_SYNC, 1), 0);
  Send(65);
  Expect(IBV_WC_TM_RECV, 51, 0);
}

TEST_F(TagTest, AReadThatFailsFailsTheBuffer) {
  Make();
  Buffer data(DeviceZero(), 4096, 33, IBV_ACCESS_LOCAL_WRITE);  // no remote read
  AddAndWait(6, 1, {target_.Sge(0, 4096)});
  AddAndWait(7, 2, {target_.Sge(kSlot, 4096)});
  PutRendezvous(6, data, 4096);
  // The peer's queue pair fails, maybe before the message is acknowledged.
  ASSERT_EQ(near_->PostSend(IBV_WR_SEND, source_.Sge(0, 64)), 0);
  Expect(IBV_WC_TM_RECV, 1, IBV_WC_TM_MATCH);
  const TagCompletion got = Wait();
  EXPECT_EQ(got.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(got.wr_id, 1U);
  EXPECT_EQ(got.flags, 0U);
  EXPECT_EQ(Wait(50).status, -1);  // the other buffer is still in the list
}

TEST_F(TagTest, AMessageThatIsTooLongFailsItsBufferAndQueuePair) {
  Make();
  AddAndWait(1, 1, {target_.Sge(0, 100)});
  source_.Fill(1);
  PutHeader(source_.data(), IBV_TMH_EAGER, 1);
  ASSERT_EQ(near_->PostSend(IBV_WR_SEND, source_.Sge(0, kHeader + 101)), 0);
  const TagCompletion got = Wait();
  EXPECT_EQ(got.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(got.wr_id, 1U);
  EXPECT_EQ(near_->Wait().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(TagTest, WithoutAReceiveTheSenderWaits) {
  Make();
  source_.Fill(1);
  PutHeader(source_.data(), IBV_TMH_EAGER, 1);
  ASSERT_EQ(near_->PostSend(IBV_WR_SEND, source_.Sge(0, 64)), 0);
  EXPECT_EQ(Wait(50).status, -1);
  AddAndWait(1, 1, {target_.Sge(0, 100)});  // a waiting message is not unexpected
  Expect(IBV_WC_TM_RECV, 1, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
  near_->ExpectSuccess();
}

TEST_F(TagTest, LimitsAndErrors) {
  ibv_device_attr_ex attr = {};
  ASSERT_EQ(ibv_query_device_ex(DeviceOne().context, nullptr, &attr), 0);
  const ibv_tm_caps caps = attr.tm_caps;
  EXPECT_EQ(caps.flags, uint32_t{IBV_TM_CAP_RC});
  EXPECT_GE(caps.max_rndv_hdr_size, kRendezvous);
  Make(caps.max_num_tags, caps.max_ops);
  errno = 0;
  EXPECT_EQ(MakeSrq(caps.max_num_tags + 1, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(MakeSrq(1, caps.max_ops + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(MakeSrq(0, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);

  std::vector<ibv_sge> sges(caps.max_sge + 1, target_.Sge(0, 8));
  EXPECT_EQ(Add(1, 1, sges), EINVAL);
  sges.pop_back();
  std::vector<uint32_t> handles;
  for (uint32_t i = 0; i < caps.max_num_tags; ++i) {
    ASSERT_EQ(Add(i, i, sges), 0) << i;
    handles.push_back(handle_);
    Expect(IBV_WC_TM_ADD, 1000 + i, 0);
  }
  EXPECT_EQ(Add(1, 1, sges), ENOMEM);
  ASSERT_EQ(Operate(IBV_WR_TAG_DEL, 5, handles[17], 0), 0);
  Expect(IBV_WC_TM_DEL, 5, 0);
  EXPECT_EQ(Add(1, 1, sges), 0);
  Expect(IBV_WC_TM_ADD, 1001, 0);

  EXPECT_EQ(Operate(IBV_WR_TAG_SYNC, 1, 0, 0, 8), EINVAL);
  EXPECT_EQ(Operate(static_cast<ibv_ops_wr_opcode>(3), 1, 0, 0), EINVAL);
  EXPECT_EQ(ibv_destroy_srq(srq_), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq_)), EBUSY);

  // A list of operations longer than the ring, with one doorbell: handled in parts.
  std::vector<ibv_ops_wr> chain(caps.max_ops + 1);
  for (size_t i = 0; i < chain.size(); ++i) {
    chain[i].opcode = IBV_WR_TAG_SYNC;
    chain[i].next = i + 1 < chain.size() ? &chain[i + 1] : nullptr;
  }
  chain[caps.max_ops - 1].wr_id = 77;
  chain[caps.max_ops - 1].flags = IBV_OPS_SIGNALED;
  ibv_ops_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_ops(srq_, chain.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &chain.back());
  Expect(IBV_WC_TM_SYNC, 77, 0);

  // An RC queue pair without a send queue.
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq_);
  init.srq = srq_;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = 1;
  EXPECT_EQ(ibv_create_qp(DeviceOne().pd, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
  init.cap.max_send_wr = 0;
  init.qp_type = IBV_QPT_UC;
  EXPECT_EQ(ibv_create_qp(DeviceOne().pd, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(TagTest, OperationsOnAQueueWithoutTags) {
  ibv_srq_init_attr init = {};
  init.attr = {1, 1, 0};
  ibv_srq* basic = ibv_create_srq(DeviceOne().pd, &init);
  ASSERT_NE(basic, nullptr);
  ibv_ops_wr wr = {};
  ibv_ops_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_ops(basic, &wr, &bad), EOPNOTSUPP);
  EXPECT_EQ(bad, &wr);
  EXPECT_EQ(ibv_destroy_srq(basic), 0);
}

TEST_F(TagTest, ResetFlushesStartedRendezvous) {
  EndpointOptions options;
  options.timeout = 0;
  Make(8, 16, options);
  Buffer data(DeviceZero(), 4096, 33);
  AddAndWait(6, 1, {target_.Sge(0, 4096)});
  // The peer's queue pair is destroyed before the READ arrives.
  PutRendezvous(6, data, 4096);
  ASSERT_EQ(near_->PostSend(IBV_WR_SEND, source_.Sge(0, 64), 0), 0);
  Expect(IBV_WC_TM_RECV, 1, IBV_WC_TM_MATCH);
  ASSERT_EQ(far_->ToState(IBV_QPS_RESET), 0);
  const TagCompletion got = Wait();
  EXPECT_EQ(got.wr_id, 1U);
  EXPECT_TRUE(got.status == IBV_WC_SUCCESS || got.status == IBV_WC_WR_FLUSH_ERR) << got.status;
  AddAndWait(6, 2, {target_.Sge(0, 4096)});
}

// Random traffic, compared with tag matching in software: a list of buffers and a list of
// unexpected messages.
TEST_F(TagTest, RandomTrafficMatchesAsInSoftware) {
  Make(16, 64);
  std::mt19937 random(5);
  struct Posted {
    uint64_t wr_id, tag, mask;
  };
  std::vector<Posted> posted;
  uint32_t unexpected = 0;
  uint64_t next = 0;
  for (uint64_t i = 0; i < 32; ++i) ASSERT_EQ(PostUntagged(target_.Sge(0, 500), 1), 0);
  for (int step = 0; step < 1500; ++step) {
    if (posted.size() < 16 && random() % 2 == 0) {
      const uint64_t mask = random() % 4 == 0 ? 0x6 : 0x7;
      const Posted entry{++next, random() % 8 & mask, mask};
      ASSERT_EQ(Add(entry.tag, entry.wr_id, {target_.Sge(kSlot, 500)}, mask,
                    IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, unexpected),
                0);
      Expect(IBV_WC_TM_ADD, entry.wr_id + 1000, 0);
      posted.push_back(entry);
      continue;
    }
    const uint64_t tag = random() % 8;
    const auto bytes = 1 + random() % 400;
    SendEager(tag, static_cast<uint32_t>(bytes), static_cast<uint32_t>(step));
    const TagCompletion got = Wait();
    ASSERT_EQ(got.status, IBV_WC_SUCCESS);
    size_t i = 0;
    while (i < posted.size() && (tag & posted[i].mask) != posted[i].tag) ++i;
    if (i == posted.size()) {
      ++unexpected;
      ASSERT_EQ(got.flags, 0U) << "step " << step;
      ASSERT_EQ(PostUntagged(target_.Sge(0, 500), 1), 0);
    } else {
      ASSERT_EQ(got.wr_id, posted[i].wr_id) << "step " << step;
      posted.erase(posted.begin() + static_cast<ptrdiff_t>(i));
      ExpectData(kSlot, kHeader, static_cast<uint32_t>(bytes), static_cast<uint32_t>(step));
    }
  }
  EXPECT_GT(unexpected, 50U);
}

}  // namespace
}  // namespace roci::testing
