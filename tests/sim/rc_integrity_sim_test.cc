// Signature regions at both ends of faulty links: with any loss, duplication and retransmission
// both memories equal the model, and each end that checks a damaged guard reports it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "memory/t10_dif.h"
#include "tests/sim/pair.h"
#include "tests/sim/seeded_runs.h"

namespace roci::sim {
namespace {

using memory::DifDomain;
using memory::DifFault;
using memory::IntegrityAttributes;
using memory::MemoryStatus;
using roce::WorkOpcode;

constexpr uint32_t kRounds = 6;
constexpr uint64_t kDataBytes = 48 * 1024;
constexpr uint64_t kProtectionStart = 56 * 1024;
constexpr uint64_t kAddress = 0x40000;

using Bytes = std::vector<std::byte>;

DifDomain RandomDomain(Random& random) {
  DifDomain domain;
  domain.is_present = random.Chance(700);
  domain.guard = random.Chance(500) ? memory::GuardKind::kCrc : memory::GuardKind::kChecksum;
  domain.seed = random.Chance(500) ? 0xFFFF : 0;
  domain.application_tag = random.Chance(500) ? 0x1111 : 0x2222;
  domain.reference_tag = random.Chance(500) ? 77 : 0xFFFFFFF0;
  domain.reference_counts = random.Chance(500);
  return domain;
}

// The protection information of block `number` in `domain`.
memory::DifImage Protection(const DifDomain& domain, std::span<const std::byte> data,
                            uint64_t number) {
  return memory::EncodeDif(memory::MakeDif(domain, number, memory::GuardOf(domain, data)));
}

// The signature region of one node for one transfer.
class Side {
 public:
  Side(Random& random, Arena& arena, RegionName region, const IntegrityAttributes& attributes,
       uint32_t blocks)
      : arena_(arena), region_(region), attributes_(attributes), blocks_(blocks) {
    is_separate_ = attributes.memory.is_present && random.Chance(500);
    stride_ = attributes.block_size + (attributes.memory.is_present && !is_separate_ ? 8 : 0);
    EXPECT_EQ(arena.keys().AllocateIntegrity(Arena::kPd, 4, 4, &key_), MemoryStatus::kOk);
    std::vector<memory::ListRun> data = Split(random, 0, uint64_t{stride_} * blocks);
    std::vector<memory::ListRun> protection;
    if (is_separate_) protection = Split(random, kProtectionStart, uint64_t{8} * blocks);
    const memory::Access rights = region == kSource
                                      ? memory::Access::kNone
                                      : memory::Access::kLocalWrite | memory::Access::kRemoteWrite |
                                            memory::Access::kRemoteRead;
    EXPECT_EQ(arena.keys().RegisterList({key_, rights, kAddress, data, &attributes_, protection},
                                        {Arena::kPd, 0}),
              MemoryStatus::kOk);
  }
  ~Side() { EXPECT_EQ(arena_.keys().FreeList(key_ >> 8), MemoryStatus::kOk); }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  uint32_t key() const { return key_; }
  uint32_t wire_bytes() const { return blocks_ * wire_stride(); }
  uint32_t wire_stride() const {
    return attributes_.block_size + (attributes_.wire.is_present ? 8 : 0);
  }
  std::span<std::byte> Data(uint32_t block) {
    return arena_.bytes(region_).subspan(uint64_t{block} * stride_, attributes_.block_size);
  }
  std::span<std::byte> StoredProtection(uint32_t block) {
    const uint64_t at = is_separate_ ? kProtectionStart + uint64_t{8} * block
                                     : uint64_t{block} * stride_ + attributes_.block_size;
    return arena_.bytes(region_).subspan(at, 8);
  }
  void Protect() {
    for (uint32_t i = 0; i < blocks_ && attributes_.memory.is_present; ++i) {
      const memory::DifImage image = Protection(attributes_.memory, Data(i), i);
      std::copy(image.begin(), image.end(), StoredProtection(i).begin());
    }
  }
  memory::IntegrityError TakeError() {
    memory::IntegrityError error;
    EXPECT_EQ(arena_.keys().TakeIntegrityError(key_ >> 8, &error), MemoryStatus::kOk);
    return error;
  }

 private:
  // Splits the range into at most four runs.
  std::vector<memory::ListRun> Split(Random& random, uint64_t from, uint64_t bytes) {
    std::vector<memory::ListRun> runs;
    while (bytes != 0) {
      const uint64_t piece = runs.size() == 3 ? bytes : random.Between(1, bytes);
      runs.push_back(
          {arena_.va(region_) + from, static_cast<uint32_t>(piece), arena_.key(region_)});
      from += piece;
      bytes -= piece;
    }
    return runs;
  }

  Arena& arena_;
  RegionName region_;
  IntegrityAttributes attributes_;
  uint32_t blocks_;
  bool is_separate_ = false;
  uint32_t stride_ = 0;
  uint32_t key_ = 0;
};

class Transfers {
 public:
  Transfers(Random& random, Pair& pair) : random_(random), pair_(pair) {}

  // Posts one transfer, waits for its completion and checks the result.
  void Run() {
    const uint32_t block = memory::kIntegrityBlockSizes[random_.Below(5)];
    const auto blocks = static_cast<uint32_t>(random_.Between(1, kDataBytes / (block + 8)));
    const DifDomain wire = RandomDomain(random_);
    const IntegrityAttributes from_attributes{
        RandomDomain(random_), wire, {true, true, true}, block};
    const IntegrityAttributes to_attributes{RandomDomain(random_), wire, {true, true, true}, block};
    const auto operation = static_cast<uint32_t>(random_.Below(3));
    const bool is_read = operation == 0;
    Side from(random_, pair_.arena(is_read ? 1 : 0), is_read ? kTarget : kSource, from_attributes,
              blocks);
    Side to(random_, pair_.arena(is_read ? 0 : 1),
            is_read          ? kLanding
            : operation == 1 ? kTarget
                             : kReceive,
            to_attributes, blocks);
    from.Protect();
    const auto damaged = static_cast<uint32_t>(random_.Below(blocks));
    const bool is_damaged = from_attributes.memory.is_present && random_.Chance(300);
    if (is_damaged) from.StoredProtection(damaged)[0] ^= std::byte{0x10};
    if (operation == 2) PostRecv(to);
    const Side& near = is_read ? to : from;
    const size_t posted = pair_.host(0).sends().size();
    Post(operation, near, is_read ? from : to);
    if (random_.Chance(500)) PostInvalidate(near);
    Drive(pair_.host(0).sends().size() - posted);
    if (testing::Test::HasFailure()) return;

    const bool is_passed =
        wire.is_present && memory::GuardIsCopied(from_attributes.memory, wire) && is_damaged;
    const bool is_kept = is_passed && memory::GuardIsCopied(wire, to_attributes.memory);
    for (uint32_t i = 0; i < blocks; ++i) {
      ASSERT_TRUE(std::equal(from.Data(i).begin(), from.Data(i).end(), to.Data(i).begin())) << i;
      if (!to_attributes.memory.is_present) continue;
      memory::DifImage expected = Protection(to_attributes.memory, from.Data(i), i);
      if (is_kept && i == damaged) expected[0] ^= std::byte{0x10};
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), to.StoredProtection(i).begin()))
          << i;
    }
    ExpectError(from, is_damaged, damaged);
    ExpectError(to, is_passed, damaged);
  }

 private:
  static void ExpectError(Side& side, bool is_expected, uint32_t block) {
    const memory::IntegrityError error = side.TakeError();
    ASSERT_EQ(error.what.fault, is_expected ? DifFault::kGuard : DifFault::kNone);
    if (!is_expected) return;
    EXPECT_EQ(error.offset, uint64_t{block} * side.wire_stride());
    EXPECT_EQ(error.key, side.key());
    EXPECT_EQ(error.what.expected ^ error.what.actual, 0x1000U);
  }

  void PostRecv(const Side& side) {
    PostedRecv post;
    post.sges = {roce::Sge{kAddress, side.wire_bytes(), roce::Key(side.key())}};
    post.wqe.first_sge = post.sges.front();
    post.wqe.num_sge = 1;
    post.wqe.capacity = side.wire_bytes();
    pair_.host(1).PostRecv(std::move(post));
  }

  void Post(uint32_t operation, const Side& near, const Side& far) {
    PostedSend post;
    post.wqe.opcode = operation == 0   ? WorkOpcode::kRdmaRead
                      : operation == 1 ? WorkOpcode::kRdmaWrite
                                       : WorkOpcode::kSend;
    post.wqe.signaled = true;
    post.wqe.remote_va = kAddress;
    post.wqe.rkey = roce::Key(far.key());
    post.sges = {roce::Sge{kAddress, near.wire_bytes(), roce::Key(near.key())}};
    post.wqe.first_sge = post.sges.front();
    post.wqe.num_sge = 1;
    post.wqe.length = near.wire_bytes();
    pair_.host(0).PostSend(std::move(post));
  }

  // The invalidate waits for the request before it, which still needs the key.
  void PostInvalidate(const Side& near) {
    PostedSend post;
    post.wqe.opcode = WorkOpcode::kLocalInvalidate;
    post.wqe.signaled = true;
    post.wqe.invalidate_key = near.key();
    pair_.host(0).PostSend(std::move(post));
  }

  // Runs the simulation until `requests` more requests have completed.
  void Drive(size_t requests) {
    const auto& completions = pair_.host(0).send_completions();
    const size_t end = completions.size() + requests;
    pair_.Work(0, random_);
    for (int steps = 0; completions.size() < end; ++steps) {
      if (pair_.now() > 500'000'000) pair_.SetFaults(LinkFaults{});
      ASSERT_TRUE(steps < 200000 && pair_.Step(random_, roce::kNever)) << "stopped early";
    }
    for (size_t i = end - requests; i < end; ++i) {
      EXPECT_EQ(completions[i].status, roce::CompletionStatus::kSuccess);
    }
    // A duplicate of the READ may still be in flight. Answering it needs the key, so wait for it.
    for (int steps = 0; steps < 100000 && pair_.Step(random_, roce::kNever); ++steps) {
    }
  }

  Random& random_;
  Pair& pair_;
};

TEST(RcIntegrity, SurvivesFaultsOfTheNetwork) {
  Arena arenas[2];
  const Seeds seeds(1500);
  const uint64_t end = seeds.first + seeds.count;
  for (uint64_t seed = seeds.first; seed != end && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    for (Arena& arena : arenas) arena.Reset(random);
    Connection connection;
    connection.mtu = static_cast<roce::PathMtu>(random.Between(1, 5));
    Pair pair(connection, &arenas[0], &arenas[1]);
    LinkFaults faults;
    faults.loss = static_cast<uint32_t>(random.Below(40));
    faults.duplicate = static_cast<uint32_t>(random.Below(60));
    faults.reorder = static_cast<uint32_t>(random.Below(60));
    faults.reorder_delay_ns = 20000;
    pair.SetFaults(faults);
    Transfers transfers(random, pair);
    for (uint32_t round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
      transfers.Run();
    }
    EXPECT_EQ(pair.wrong().value_or(""), "");
    for (Arena& arena : arenas) EXPECT_TRUE(arena.GuardsIntact());
  }
}

}  // namespace
}  // namespace roci::sim
