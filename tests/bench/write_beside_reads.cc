// Measures how long an 8-byte WRITE takes while the peer of the same queue pair reads without end:
// an ordinary libibverbs program. Run by tools/bench under `roci run`.
//
// write_beside_reads WRITES READS
//   WRITES: how many WRITEs, one after the other; READS: 64 MiB READs of the peer that are
//   outstanding meanwhile, at most 16
//   Prints the median, the 99th percentile and the longest time in microseconds, and the bytes read
//   by READs that ended meanwhile, as JSON.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kReadBytes = 64 << 20;
constexpr uint32_t kMostReads = 16;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

void Require(bool is_good, const char* what) {
  if (is_good) return;
  std::fprintf(stderr, "write_beside_reads: %s: %s\n", what, strerror(errno));
  std::exit(1);
}

// Memory that lcores may access, so that copy threads are not used.
ibv_mr* Shared(OpenDevice& device) {
  void* memory =
      mmap(nullptr, kReadBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Require(memory != MAP_FAILED, "mmap");
  memset(memory, 1, kReadBytes);
  ibv_mr* mr = ibv_reg_mr(device.pd, memory, kReadBytes, kAccess);
  Require(mr != nullptr, "ibv_reg_mr");
  return mr;
}

uint64_t AddressOf(const ibv_mr* mr) { return reinterpret_cast<uintptr_t>(mr->addr); }

class Measurement {
 public:
  explicit Measurement(uint32_t reads)
      : near_(Shared(ends_.near_device)), far_(Shared(ends_.far_device)) {
    for (uint32_t i = 0; i < reads; ++i) PostRead();
  }

  // Returns the time of one WRITE in microseconds.
  double Write() {
    const Clock::time_point begin = Clock::now();
    Require(ends_.near.PostSend(IBV_WR_RDMA_WRITE, {AddressOf(near_), 8, near_->lkey},
                                IBV_SEND_SIGNALED, AddressOf(far_), far_->rkey) == 0,
            "ibv_post_send");
    ibv_wc wc{};
    while (ibv_poll_cq(ends_.near.cq, 1, &wc) == 0) {
    }
    Require(wc.status == IBV_WC_SUCCESS, "a WRITE failed");
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }
  // Replaces READs that have ended.
  void KeepReading() {
    ibv_wc wc{};
    while (ibv_poll_cq(ends_.far.cq, 1, &wc) == 1) {
      Require(wc.status == IBV_WC_SUCCESS, "a READ failed");
      ++finished_;
      PostRead();
    }
  }
  uint64_t finished() const { return finished_; }

 private:
  void PostRead() {
    Require(ends_.far.PostSend(IBV_WR_RDMA_READ, {AddressOf(far_), kReadBytes, far_->lkey},
                               IBV_SEND_SIGNALED, AddressOf(near_), near_->rkey) == 0,
            "ibv_post_send");
  }

  Pair ends_{{.max_rd_atomic = kMostReads, .mtu = IBV_MTU_4096}};
  ibv_mr* near_;
  ibv_mr* far_;
  uint64_t finished_ = 0;
};

int Main(int writes, uint32_t reads) {
  Measurement measurement(reads);
  std::vector<double> took;
  for (int i = 0; i < writes; ++i) {
    took.push_back(measurement.Write());
    measurement.KeepReading();
  }
  std::sort(took.begin(), took.end());
  std::printf(R"({"median_us": %.3f, "p99_us": %.3f, "longest_us": %.3f, "bytes_read": %lu})"
              "\n",
              took[took.size() / 2], took[took.size() * 99 / 100], took.back(),
              measurement.finished() * kReadBytes);
  // The program exits with READs outstanding, and the daemon frees its objects.
  std::fflush(stdout);
  std::_Exit(0);
}

}  // namespace
}  // namespace roci::testing

int main(int argc, char** argv) {
  const int writes = argc > 2 ? std::atoi(argv[1]) : 0;
  const int reads = argc > 2 ? std::atoi(argv[2]) : -1;
  if (writes < 1 || reads < 0 || reads > static_cast<int>(roci::testing::kMostReads)) {
    std::fprintf(stderr, "Usage: write_beside_reads WRITES READS (READS: 0 to 16)\n");
    return 2;
  }
  return roci::testing::Main(writes, static_cast<uint32_t>(reads));
}
