#include "dataplane/rings/work_queue.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "verbs_provider/abi/rings.h"
#include "verbs_provider/abi/send_opcodes.h"

namespace roci::dataplane {
namespace {

using roce::CompletionStatus;
using roce::FetchResult;
using roce::QpType;
using roce::WorkOpcode;

constexpr uint32_t kCapacity = 8;
constexpr uint32_t kStride = 128;
constexpr uint8_t kMaxSge = 4;
constexpr uint32_t kMaxInline = 48;

class SendQueueTest : public ::testing::Test {
 protected:
  explicit SendQueueTest(QpType type = QpType::kRc)
      : slots_(kCapacity * kStride),
        queue_(&header_, slots_.data(), kCapacity, kStride, kMaxSge, kMaxInline, type) {}

  roci_abi_send_wqe& Slot(uint32_t index) {
    return *reinterpret_cast<roci_abi_send_wqe*>(slots_.data() + (index % kCapacity) * kStride);
  }
  roci_abi_sge* Sges(uint32_t index) { return reinterpret_cast<roci_abi_sge*>(&Slot(index) + 1); }
  roci_abi_send_wqe& Post(uint8_t opcode, std::vector<roci_abi_sge> sges, uint8_t flags = 0) {
    const uint32_t index = header_.producer++;
    Slot(index) = {};
    Slot(index).opcode = opcode;
    Slot(index).flags = flags;
    Slot(index).wr_id = 1000 + index;
    Slot(index).num_sge = static_cast<uint8_t>(sges.size());
    std::copy(sges.begin(), sges.end(), Sges(index));
    return Slot(index);
  }
  FetchResult Fetch() { return queue_.Fetch(wqe_, status_); }

  roci_abi_queue header_{};
  alignas(64) std::vector<std::byte> slots_;
  SendQueue queue_;
  roce::SendWqe wqe_{};
  CompletionStatus status_ = CompletionStatus::kSuccess;
};

class RawSendQueueTest : public SendQueueTest {
 protected:
  RawSendQueueTest() : SendQueueTest(QpType::kRawPacket) {}
};

TEST_F(RawSendQueueTest, ChecksumsAreAFlagOfRawPackets) {
  Post(ROCI_ABI_WR_SEND, {{0, 60, 1}}, ROCI_ABI_SEND_IP_CHECKSUM);
  Post(ROCI_ABI_WR_SEND, {{0, 60, 1}});
  Post(ROCI_ABI_WR_SEND, {{0, 60, 1}}, 1 << 5);
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_TRUE(wqe_.fill_checksums);
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_FALSE(wqe_.fill_checksums);
  EXPECT_EQ(Fetch(), FetchResult::kBad);
}

TEST_F(SendQueueTest, ChecksumsAreNoFlagOfOthers) {
  Post(ROCI_ABI_WR_SEND, {}, ROCI_ABI_SEND_IP_CHECKSUM);
  EXPECT_EQ(Fetch(), FetchResult::kBad);
  EXPECT_EQ(status_, CompletionStatus::kLocalQpOperationError);
}

TEST_F(SendQueueTest, ContinuesAtTheRestartIndex) {
  Post(ROCI_ABI_WR_SEND, {});
  Post(ROCI_ABI_WR_SEND, {});
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  header_.start = kCapacity;
  header_.restarts = 1;
  EXPECT_FALSE(queue_.HasPosted()) << "nothing is published yet";
  EXPECT_EQ(Fetch(), FetchResult::kEmpty);
  header_.producer = kCapacity;
  Post(ROCI_ABI_WR_SEND, {}).wr_id = 77;
  EXPECT_TRUE(queue_.HasPosted());
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(wqe_.wr_id, 77u);
  EXPECT_EQ(wqe_.slot, kCapacity);
  EXPECT_EQ(queue_.taken(), 3u);
  EXPECT_EQ(Fetch(), FetchResult::kEmpty);
  Post(ROCI_ABI_WR_SEND, {}).wr_id = 78;
  ASSERT_EQ(Fetch(), FetchResult::kOk) << "the same start is not taken twice";
  EXPECT_EQ(wqe_.slot, kCapacity + 1);
  EXPECT_FALSE(queue_.broken());
}

TEST_F(SendQueueTest, RestartsOfAnyValueOnlySkipEntries) {
  for (uint32_t start = 0xFFFFFFF0; start != 64; ++start) {
    for (uint32_t producer = 0xFFFFFFF0; producer != 64; ++producer) {
      header_ = {};
      SendQueue queue(&header_, slots_.data(), kCapacity, kStride, kMaxSge, kMaxInline,
                      QpType::kRc);
      header_.producer = producer;
      header_.start = start;
      header_.restarts = 1;
      uint32_t fetched = 0;
      while (queue.Fetch(wqe_, status_) != FetchResult::kEmpty) ++fetched;
      EXPECT_LE(fetched, kCapacity);
      const uint32_t left = start <= producer ? producer - start : producer;
      EXPECT_EQ(queue.broken(), left > kCapacity) << start << ' ' << producer;
      EXPECT_EQ(fetched, left > kCapacity ? 0 : left) << start << ' ' << producer;
    }
  }
}

TEST_F(SendQueueTest, ResetClearsRestarts) {
  header_.start = 4;
  header_.restarts = 9;
  header_.producer = 2;
  queue_.Reset();
  Post(ROCI_ABI_WR_SEND, {});
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(wqe_.slot, 0u);
}

TEST_F(SendQueueTest, TakesEntriesInOrder) {
  EXPECT_EQ(Fetch(), FetchResult::kEmpty);
  Post(ROCI_ABI_WR_RDMA_WRITE, {{0x1000, 64, 7}}, ROCI_ABI_SEND_SIGNALED).remote_va = 0x99;
  Post(ROCI_ABI_WR_SEND, {{0x1000, 10, 7}, {0x2000, 20, 8}}, ROCI_ABI_SEND_FENCE);
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(wqe_.wr_id, 1000u);
  EXPECT_EQ(wqe_.slot, 0u);
  EXPECT_EQ(wqe_.opcode, WorkOpcode::kRdmaWrite);
  EXPECT_EQ(wqe_.length, 64u);
  EXPECT_EQ(wqe_.remote_va, 0x99u);
  EXPECT_EQ(wqe_.first_sge.va, 0x1000u);
  EXPECT_TRUE(wqe_.signaled);
  EXPECT_FALSE(wqe_.fence);
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(wqe_.slot, 1u);
  EXPECT_EQ(wqe_.length, 30u);
  EXPECT_EQ(queue_.ReadSge(wqe_, 1).va, 0x2000u);
  EXPECT_TRUE(wqe_.fence);
  EXPECT_EQ(Fetch(), FetchResult::kEmpty);
  EXPECT_EQ(queue_.taken(), 2u);
}

TEST_F(SendQueueTest, IndicesWrap) {
  for (int i = 0; i < 100; ++i) {
    Post(ROCI_ABI_WR_SEND, {{0x1000, static_cast<uint32_t>(i), 7}});
    ASSERT_EQ(Fetch(), FetchResult::kOk);
    EXPECT_EQ(wqe_.length, static_cast<uint32_t>(i));
    EXPECT_EQ(wqe_.slot, static_cast<uint32_t>(i));
  }
}

TEST_F(SendQueueTest, MoreThanTheRingHoldsBreaksTheQueueUntilReset) {
  header_.producer = kCapacity + 1;
  EXPECT_EQ(Fetch(), FetchResult::kEmpty);
  EXPECT_TRUE(queue_.broken());
  header_.producer = 1;
  EXPECT_EQ(Fetch(), FetchResult::kEmpty);
  EXPECT_FALSE(queue_.HasPosted());
  queue_.Reset();
  EXPECT_FALSE(queue_.broken());
  EXPECT_EQ(header_.producer, 0u);
  Post(ROCI_ABI_WR_SEND, {{0, 1, 1}});
  EXPECT_EQ(Fetch(), FetchResult::kOk);
}

TEST_F(SendQueueTest, AcceptsAFullRing) {
  for (uint32_t i = 0; i < kCapacity; ++i) Post(ROCI_ABI_WR_SEND, {{0, 1, 1}});
  for (uint32_t i = 0; i < kCapacity; ++i) EXPECT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(Fetch(), FetchResult::kEmpty);
}

TEST_F(SendQueueTest, DecodesABind) {
  roci_abi_send_wqe& entry = Post(ROCI_ABI_WR_BIND_MW, {});
  entry.remote_va = 0x1234;
  entry.u.bind = {
      .length = uint64_t{1} << 40, .window = 7, .access = 6, .region_key = 0x501, .new_key = 0x702};
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(wqe_.opcode, roce::WorkOpcode::kBindMw);
  EXPECT_EQ(wqe_.bind.start, 0x1234u);
  EXPECT_EQ(wqe_.bind.length, uint64_t{1} << 40);
  EXPECT_EQ(wqe_.bind.window, 7u);
  EXPECT_EQ(wqe_.bind.access, 6u);
  EXPECT_EQ(wqe_.bind.region_key, 0x501u);
  EXPECT_EQ(wqe_.bind.new_key, 0x702u);
  EXPECT_EQ(wqe_.length, 0u);
}

TEST_F(SendQueueTest, DecodesTheRegistrationOfAList) {
  roci_abi_send_wqe& entry = Post(ROCI_ABI_WR_REG_LIST, {});
  entry.remote_va = 0x1234;
  entry.u.list = {.runs = 3, .list = 7, .access = 6, .reserved = 0, .new_key = 0x702};
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(wqe_.opcode, roce::WorkOpcode::kRegisterList);
  EXPECT_EQ(wqe_.list.iova, 0x1234u);
  EXPECT_EQ(wqe_.list.runs, 3u);
  EXPECT_EQ(wqe_.list.list, 7u);
  EXPECT_EQ(wqe_.list.access, 6u);
  EXPECT_EQ(wqe_.list.new_key, 0x702u);
}

TEST_F(SendQueueTest, DecodesAFlush) {
  roci_abi_send_wqe& entry = Post(ROCI_ABI_WR_FLUSH, {});
  entry.remote_va = 0x1234;
  entry.rkey = 0x501;
  entry.u.flush = {.length = uint64_t{1} << 31, .type = 3, .level = 1, .reserved = 0};
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(wqe_.opcode, roce::WorkOpcode::kFlush);
  EXPECT_EQ(wqe_.remote_va, 0x1234u);
  EXPECT_EQ(wqe_.rkey, roce::Key(0x501));
  EXPECT_EQ(wqe_.length, 1u << 31);
  EXPECT_EQ(wqe_.flush.placement_type, 3);
  EXPECT_EQ(wqe_.flush.selectivity_level, 1);
}

TEST_F(SendQueueTest, AnAtomicMayScatterItsEightBytes) {
  Post(ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD, {{0, 3, 1}, {8, 4, 1}, {16, 1, 1}});
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(wqe_.length, 8u);
  EXPECT_EQ(wqe_.num_sge, 3);
}

TEST_F(SendQueueTest, RefusesWithAReason) {
  struct Case {
    const char* what;
    CompletionStatus status;
    std::function<void()> post;
  };
  const auto bad = CompletionStatus::kLocalQpOperationError;
  const auto length = CompletionStatus::kLocalLengthError;
  const Case cases[] = {
      {"opcode 200", bad, [&] { Post(200, {}); }},
      {"local invalidate with data", length,
       [&] {
         Post(ROCI_ABI_WR_LOCAL_INV, {{0, 4, 1}});
       }},
      {"inline bind", length, [&] { Post(ROCI_ABI_WR_BIND_MW, {}, ROCI_ABI_SEND_INLINE); }},
      {"atomic write of 4", length,
       [&] { Post(ROCI_ABI_WR_ATOMIC_WRITE, {}, ROCI_ABI_SEND_INLINE).inline_length = 4; }},
      {"atomic write of 16", length,
       [&] {
         Post(ROCI_ABI_WR_ATOMIC_WRITE, {{0, 8, 1}, {0, 8, 1}});
       }},
      {"flush with data", length,
       [&] {
         Post(ROCI_ABI_WR_FLUSH, {{0, 4, 1}});
       }},
      {"flush of too much", length,
       [&] { Post(ROCI_ABI_WR_FLUSH, {}).u.flush.length = (uint64_t{1} << 31) + 1; }},
      {"flush of a type that no header holds", bad,
       [&] { Post(ROCI_ABI_WR_FLUSH, {}).u.flush.type = 16; }},
      {"flush of a level that no header holds", bad,
       [&] { Post(ROCI_ABI_WR_FLUSH, {}).u.flush.level = 4; }},
      {"flag", bad, [&] { Post(ROCI_ABI_WR_SEND, {}, 0x10); }},
      {"elements", bad, [&] { Post(ROCI_ABI_WR_SEND, {}).num_sge = kMaxSge + 1; }},
      {"too long", length,
       [&] {
         Post(ROCI_ABI_WR_SEND, {{0, 1u << 31, 1}, {0, 1, 1}});
       }},
      {"too long for 32 bits", length,
       [&] {
         Post(ROCI_ABI_WR_SEND, {{0, 0xFFFFFFFF, 1}, {0, 0xFFFFFFFF, 1}, {0, 3, 1}});
       }},
      {"atomic of 4", length,
       [&] {
         Post(ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD, {{0, 4, 1}});
       }},
      {"inline too long", length,
       [&] { Post(ROCI_ABI_WR_SEND, {}, ROCI_ABI_SEND_INLINE).inline_length = kMaxInline + 1; }},
      {"inline read", length, [&] { Post(ROCI_ABI_WR_RDMA_READ, {}, ROCI_ABI_SEND_INLINE); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    c.post();
    EXPECT_EQ(Fetch(), FetchResult::kBad);
    EXPECT_EQ(status_, c.status);
    EXPECT_EQ(wqe_.wr_id, 1000 + wqe_.slot);
  }
}

TEST_F(SendQueueTest, AcceptsTheLongestMessage) {
  Post(ROCI_ABI_WR_RDMA_WRITE, {{0, 1u << 31, 1}});
  EXPECT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(wqe_.length, 1u << 31);
}

TEST_F(SendQueueTest, InlineDataIsFoundInTheSlot) {
  Post(ROCI_ABI_WR_SEND, {});
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  roci_abi_send_wqe& slot = Post(ROCI_ABI_WR_SEND, {}, ROCI_ABI_SEND_INLINE);
  slot.inline_length = 5;
  std::memcpy(&slot + 1, "hello", 5);
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_TRUE(wqe_.is_inline);
  EXPECT_EQ(wqe_.length, 5u);
  EXPECT_EQ(std::memcmp(queue_.InlineData(wqe_), "hello", 5), 0);
}

TEST_F(SendQueueTest, ArmingIsVisibleToTheApp) {
  Post(ROCI_ABI_WR_SEND, {});
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  queue_.SetArmed(true);
  EXPECT_EQ(header_.armed, 1u);
  EXPECT_EQ(header_.consumer, 1u);
  EXPECT_FALSE(queue_.HasNew());
  Post(ROCI_ABI_WR_SEND, {});
  EXPECT_TRUE(queue_.HasNew());
  EXPECT_FALSE(queue_.HasNew());
  EXPECT_TRUE(queue_.HasPosted());
}

TEST(SendQueueOpcodes, FailIfTheDeviceLacksThem) {
  roci_abi_queue header{};
  std::vector<std::byte> slots(kStride);
  SendQueue queue(&header, slots.data(), 1, kStride, kMaxSge, kMaxInline, QpType::kRc,
                  abi::kAtomicOpcodes);
  roci_abi_send_wqe entry{};
  entry.opcode = ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD;
  std::memcpy(slots.data(), &entry, sizeof(entry));
  header.producer = 1;
  roce::SendWqe wqe{};
  CompletionStatus status{};
  EXPECT_EQ(queue.Fetch(wqe, status), FetchResult::kBad);
  EXPECT_EQ(status, CompletionStatus::kLocalQpOperationError);
}

// IBTA vol 1, 10.8.2: the operations of each transport.
TEST(SendQueueOpcodes, AreThoseOfTheQpType) {
  constexpr uint8_t kFirst = ROCI_ABI_WR_RDMA_WRITE;
  const std::set<uint8_t> datagrams = {ROCI_ABI_WR_SEND, ROCI_ABI_WR_SEND_WITH_IMM};
  std::set<uint8_t> unreliable = datagrams;
  unreliable.insert({kFirst, ROCI_ABI_WR_RDMA_WRITE_WITH_IMM, ROCI_ABI_WR_LOCAL_INV,
                     ROCI_ABI_WR_BIND_MW, ROCI_ABI_WR_REG_LIST});
  std::set<uint8_t> reliable = unreliable;
  reliable.insert({ROCI_ABI_WR_RDMA_READ, ROCI_ABI_WR_ATOMIC_CMP_AND_SWP,
                   ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD, ROCI_ABI_WR_SEND_WITH_INV, ROCI_ABI_WR_FLUSH,
                   ROCI_ABI_WR_ATOMIC_WRITE});
  const std::map<QpType, std::set<uint8_t>> served = {
      {QpType::kRc, reliable},   {QpType::kXrcSend, reliable},
      {QpType::kUc, unreliable}, {QpType::kUd, datagrams},
      {QpType::kXrcRecv, {}},    {QpType::kRawPacket, {ROCI_ABI_WR_SEND}}};
  for (const auto& [type, opcodes] : served) {
    for (uint32_t opcode = 0; opcode < 256; ++opcode) {
      roci_abi_queue header{};
      std::vector<std::byte> slots(kStride);
      SendQueue queue(&header, slots.data(), 1, kStride, kMaxSge, kMaxInline, type);
      roci_abi_send_wqe entry{};
      entry.opcode = static_cast<uint8_t>(opcode);
      std::memcpy(slots.data(), &entry, sizeof(entry));
      header.producer = 1;
      roce::SendWqe wqe{};
      CompletionStatus status{};
      ASSERT_NE(queue.Fetch(wqe, status), FetchResult::kEmpty);
      // Atomics without data have an invalid length, which is a different error.
      EXPECT_EQ(status != CompletionStatus::kLocalQpOperationError,
                opcodes.contains(static_cast<uint8_t>(opcode)))
          << static_cast<int>(type) << ' ' << opcode;
    }
  }
}

class UdSendQueueTest : public SendQueueTest {
 protected:
  UdSendQueueTest() : SendQueueTest(QpType::kUd) {}
};

TEST_F(UdSendQueueTest, OnlySendsAndTheirDestination) {
  Post(ROCI_ABI_WR_RDMA_WRITE, {});
  EXPECT_EQ(Fetch(), FetchResult::kBad);
  roci_abi_send_wqe& slot = Post(ROCI_ABI_WR_SEND, {{0, 8, 1}});
  slot.u.ud = {5, 0x123456, 0x80010000, {}};
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(wqe_.datagram.address_handle, 5u);
  EXPECT_EQ(wqe_.datagram.remote_qpn, 0x123456u);
  EXPECT_EQ(wqe_.datagram.remote_qkey, 0x80010000u);
}

constexpr uint32_t kTracedQpn = 18;

// The records of posts to a queue of the queue pair kTracedQpn.
class PostTrace {
 public:
  explicit PostTrace(WorkQueue& queue, uint32_t traced = kTracedQpn)
      : settings_{{roce::Qpn(traced)}} {
    lane_.UseClock(&now_);
    queue.UseTrace(&used_, kTracedQpn);
  }
  std::vector<TracePost> Taken() {
    std::vector<TraceRecord> records;
    ring_.Take(UINT64_MAX, records);
    std::vector<TracePost> posts;
    for (const TraceRecord& record : records) {
      EXPECT_EQ(record.kind, TraceKind::kPost);
      EXPECT_EQ(record.qpn, kTracedQpn);
      posts.push_back(record.post);
    }
    return posts;
  }
  void Use(bool on) { used_ = on ? &lane_ : nullptr; }

 private:
  uint64_t now_ = 1;
  TraceRing ring_;
  TraceSettings settings_;
  LaneTrace lane_{ring_, settings_, 0, 0};
  LaneTrace* used_ = &lane_;
};

TEST_F(SendQueueTest, TracesEachPostOnceAsTheProgramWroteIt) {
  PostTrace trace(queue_);
  Post(ROCI_ABI_WR_SEND, {{1, 100, 1}, {2, 20, 2}}, ROCI_ABI_SEND_SIGNALED);
  roci_abi_send_wqe& small = Post(ROCI_ABI_WR_RDMA_WRITE, {}, ROCI_ABI_SEND_INLINE);
  small.inline_length = 8;
  small.remote_va = 0x77;
  small.rkey = 0x88;
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_TRUE(queue_.HasNew() || queue_.HasPosted());
  std::vector<TracePost> posts = trace.Taken();
  ASSERT_EQ(posts.size(), 2u);
  EXPECT_EQ(posts[0].wr_id, 1000u);
  EXPECT_EQ(posts[0].length, 120u);
  EXPECT_EQ(posts[0].num_sge, 2u);
  EXPECT_EQ(posts[0].flags, ROCI_ABI_SEND_SIGNALED);
  EXPECT_EQ(posts[1].opcode, ROCI_ABI_WR_RDMA_WRITE);
  EXPECT_EQ(posts[1].length, 8u);
  EXPECT_EQ(posts[1].remote_va, 0x77u);
  EXPECT_EQ(posts[1].rkey, 0x88u);
  // One that nobody could take is shown, too, and read within its slot.
  Post(0x7E, {}).num_sge = 255;
  EXPECT_TRUE(queue_.HasNew());
  posts = trace.Taken();
  ASSERT_EQ(posts.size(), 1u);
  EXPECT_EQ(posts[0].opcode, 0x7E);
  trace.Use(false);
  Post(ROCI_ABI_WR_SEND, {});
  EXPECT_TRUE(queue_.HasNew());
  EXPECT_TRUE(trace.Taken().empty());
}

TEST_F(SendQueueTest, TracesPostsBehindTheRestartIndexOnly) {
  PostTrace trace(queue_);
  Post(ROCI_ABI_WR_SEND, {});
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  header_.start = kCapacity;
  header_.restarts = 1;
  header_.producer = kCapacity;
  Post(ROCI_ABI_WR_SEND, {}).wr_id = 77;
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  const std::vector<TracePost> posts = trace.Taken();
  ASSERT_EQ(posts.size(), 2u);
  EXPECT_EQ(posts[1].wr_id, 77u);
}

TEST_F(SendQueueTest, TracesNoPostsOfOtherQueuePairs) {
  PostTrace trace(queue_, /*traced=*/kTracedQpn + 1);
  Post(ROCI_ABI_WR_SEND, {});
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_TRUE(trace.Taken().empty());
}

TEST(RecvQueueTest, TracesPosts) {
  roci_abi_queue header{};
  std::vector<std::byte> slots(4 * 64);
  RecvQueue queue(&header, slots.data(), 4, 64, 3);
  PostTrace trace(queue);
  const roci_abi_recv_wqe head{77, 200, 0};
  const roci_abi_sge sges[] = {{1, 0xFFFFFFFF, 1}, {2, 0xFFFFFFFF, 2}, {3, 3, 3}};
  std::memcpy(slots.data(), &head, sizeof(head));
  std::memcpy(slots.data() + sizeof(head), sges, sizeof(sges));
  header.producer = 1;
  EXPECT_TRUE(queue.HasPosted());
  const std::vector<TracePost> posts = trace.Taken();
  ASSERT_EQ(posts.size(), 1u);
  EXPECT_EQ(posts[0].opcode, TracePost::kReceive);
  EXPECT_EQ(posts[0].wr_id, 77u);
  EXPECT_EQ(posts[0].length, 2 * uint64_t{0xFFFFFFFF} + 3) << "at most max_sge elements";
}

TEST(RecvQueueTest, AddsUpTheLengthsOfElements) {
  roci_abi_queue header{};
  std::vector<std::byte> slots(4 * 64);
  RecvQueue queue(&header, slots.data(), 4, 64, 3);
  const roci_abi_recv_wqe head{77, 3, 0};
  const roci_abi_sge sges[] = {{1, 0xFFFFFFFF, 1}, {2, 0xFFFFFFFF, 2}, {3, 3, 3}};
  std::memcpy(slots.data(), &head, sizeof(head));
  std::memcpy(slots.data() + sizeof(head), sges, sizeof(sges));
  header.producer = 1;
  roce::RecvWqe wqe{};
  CompletionStatus status{};
  ASSERT_EQ(queue.Fetch(wqe, status), FetchResult::kOk);
  EXPECT_EQ(wqe.wr_id, 77u);
  EXPECT_EQ(wqe.capacity, 2 * uint64_t{0xFFFFFFFF} + 3);
  EXPECT_EQ(queue.ReadSge(wqe, 2).va, 3u);
  EXPECT_EQ(queue.Fetch(wqe, status), FetchResult::kEmpty);
  const roci_abi_recv_wqe bad{78, 4, 0};
  std::memcpy(slots.data() + 64, &bad, sizeof(bad));
  header.producer = 2;
  EXPECT_EQ(queue.Fetch(wqe, status), FetchResult::kBad);
  EXPECT_EQ(wqe.wr_id, 78u);
}

TEST(RecvQueueTest, CountsPostedEntriesWithFewReadingsOfTheIndex) {
  constexpr uint32_t kEntries = 16;
  roci_abi_queue header{};
  std::vector<std::byte> slots(kEntries * 64);
  RecvQueue queue(&header, slots.data(), kEntries, 64, 3);
  EXPECT_EQ(queue.CountPosted(), 0u);
  header.producer = 1;
  EXPECT_EQ(queue.CountPosted(), 1u);
  header.producer = kEntries;
  EXPECT_EQ(queue.CountPosted(), kEntries);
  roce::RecvWqe wqe{};
  CompletionStatus status{};
  // Posts are seen when a quarter has been taken.
  for (uint32_t taken = 1; taken <= kEntries / 4; ++taken) {
    ASSERT_EQ(queue.Fetch(wqe, status), FetchResult::kOk);
    header.producer = kEntries + taken;
    EXPECT_EQ(queue.CountPosted(), taken == kEntries / 4 ? kEntries : kEntries - taken);
  }
  // 0 only if there are none.
  for (uint32_t left = kEntries; left != 0; --left) {
    EXPECT_EQ(queue.CountPosted(), left);
    ASSERT_EQ(queue.Fetch(wqe, status), FetchResult::kOk);
  }
  EXPECT_EQ(queue.CountPosted(), 0u);
  EXPECT_EQ(queue.Fetch(wqe, status), FetchResult::kEmpty);
}

TEST(RecvQueueTest, CountsNothingWithAnImpossibleIndex) {
  roci_abi_queue header{};
  std::vector<std::byte> slots(size_t{4} * 64);
  RecvQueue queue(&header, slots.data(), 4, 64, 3);
  header.producer = 5;
  EXPECT_EQ(queue.CountPosted(), 0u);
  EXPECT_TRUE(queue.broken());
  // Indices that were left out and then an impossible one.
  queue.Reset();
  header.restarts = 1;
  header.start = 100;
  header.producer = 105;
  EXPECT_EQ(queue.CountPosted(), 0u);
  EXPECT_EQ(queue.CountPosted(), 0u);
}

TEST(RecvQueueTest, WithoutCapacityIsAlwaysEmpty) {
  roci_abi_queue header{};
  header.producer = 3;
  RecvQueue queue(&header, nullptr, 0, 64, 1);
  roce::RecvWqe wqe{};
  CompletionStatus status{};
  EXPECT_EQ(queue.Fetch(wqe, status), FetchResult::kEmpty);
  EXPECT_FALSE(queue.broken());
}

}  // namespace
}  // namespace roci::dataplane
