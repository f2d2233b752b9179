#include "tests/sim/bulk_stream.h"

#include <algorithm>
#include <vector>

#include "roce/counters.h"
#include "tests/sim/arena.h"
#include "tests/sim/pair.h"
#include "tests/sim/random.h"

namespace roci::sim {
namespace {

constexpr uint32_t kOutstanding = 32;

Connection ConnectionOf(const BulkStream& stream) {
  Connection connection;
  connection.mtu = roce::PathMtu::k4096;
  connection.timeout = BulkStream::kTimeout;
  connection.max_rd_atomic = 16;
  connection.records = kOutstanding;
  connection.limits.reorder_wait_ns = stream.reorder_wait_ns;
  connection.repeats_selectively = {stream.repeats_selectively, stream.repeats_selectively};
  return connection;
}

LinkFaults FaultsOf(const BulkStream& stream) {
  LinkFaults faults;
  faults.loss = stream.loss;
  faults.reorder = stream.reorder;
  faults.reorder_delay_ns = BulkStream::kReorderNs;
  faults.delay_ns = BulkStream::kOneWayNs;
  faults.rate_kbps = BulkStream::kRateKbps;
  return faults;
}

// The requester, node 0, always has kOutstanding messages posted.
class Bulk {
 public:
  explicit Bulk(const BulkStream& stream) : stream_(stream), random_(stream.seed) {
    for (Arena& arena : arenas_) arena.Reset(random_);
    pair_.emplace(ConnectionOf(stream), &arenas_[0], &arenas_[1]);
    pair_->SetFaults(FaultsOf(stream));
  }

  BulkResult Run() {
    BulkResult result;
    while (!result.wrong && pair_->now() < BulkStream::kRunNs) {
      Post();
      pair_->Step(random_, BulkStream::kRunNs);
      result.wrong = Check();
    }
    const uint64_t bytes = uint64_t{completed_} * BulkStream::kMessageBytes;
    result.mbps = static_cast<double>(bytes * 8) * 1000 / static_cast<double>(BulkStream::kRunNs);
    result.retransmitted = pair_->host(0).count(roce::QpCounter::kRetransmittedPackets);
    result.lost = pair_->lost(0) + (IsRead() ? pair_->lost(1) : 0);
    result.kept = pair_->host(0).count(roce::QpCounter::kKeptResponses) +
                  pair_->host(1).count(roce::QpCounter::kKeptRequests);
    return result;
  }

 private:
  bool IsRead() const { return stream_.opcode == roce::WorkOpcode::kRdmaRead; }

  void Post() {
    if (posted_ - completed_ == kOutstanding) return;
    for (; posted_ - completed_ < kOutstanding; ++posted_) {
      PostedSend post;
      const RegionName local = IsRead() ? kLanding : kSource;
      post.wqe.opcode = stream_.opcode;
      post.wqe.length = BulkStream::kMessageBytes;
      post.wqe.signaled = true;
      post.wqe.remote_va = arenas_[1].va(kTarget);
      post.wqe.rkey = roce::Key(arenas_[1].key(kTarget));
      post.sges.push_back(
          {arenas_[0].va(local), BulkStream::kMessageBytes, roce::Key(arenas_[0].key(local))});
      post.wqe.num_sge = 1;
      post.wqe.first_sge = post.sges.front();
      pair_->host(0).PostSend(std::move(post));
      if (stream_.opcode == roce::WorkOpcode::kSend) PostReceive();
    }
    pair_->Work(0, random_);
  }

  void PostReceive() {
    PostedRecv receive;
    receive.wqe.capacity = BulkStream::kMessageBytes;
    receive.wqe.num_sge = 1;
    receive.sges.push_back(
        {arenas_[1].va(kReceive), BulkStream::kMessageBytes, roce::Key(arenas_[1].key(kReceive))});
    receive.wqe.first_sge = receive.sges.front();
    pair_->host(1).PostRecv(std::move(receive));
    pair_->Work(1, random_);
  }

  std::optional<std::string> Check() {
    if (pair_->wrong()) return pair_->wrong();
    const std::vector<roce::Completion>& completions = pair_->host(0).send_completions();
    for (; completed_ < completions.size(); ++completed_) {
      if (completions[completed_].status != roce::CompletionStatus::kSuccess) {
        return "message " + std::to_string(completed_) + " failed";
      }
      if (completed_ == 0 && !BytesAreThere()) return std::string("wrong bytes");
    }
    return std::nullopt;
  }

  bool BytesAreThere() {
    const RegionName to = stream_.opcode == roce::WorkOpcode::kSend ? kReceive : kTarget;
    const auto from = IsRead() ? arenas_[1].bytes(kTarget) : arenas_[0].bytes(kSource);
    const auto there = IsRead() ? arenas_[0].bytes(kLanding) : arenas_[1].bytes(to);
    return std::equal(from.begin(), from.end(), there.begin());
  }

  const BulkStream stream_;
  Random random_;
  std::array<Arena, 2> arenas_;
  std::optional<Pair> pair_;
  uint32_t posted_ = 0;
  uint32_t completed_ = 0;
};

}  // namespace

BulkResult Run(const BulkStream& stream) { return Bulk(stream).Run(); }

}  // namespace roci::sim
