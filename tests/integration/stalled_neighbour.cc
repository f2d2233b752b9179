// Measures how programs whose memory stalls accesses delay another program: how long its 8-byte
// READs and its control calls take. Run by tools/bench under `roci run`.
//
// stalled_neighbour MOMENTS
//   MOMENTS: measurements of each kind, with kReads READs and one ibv_reg_mr and ibv_dereg_mr each
//   Prints, for each kind of neighbour, the 99.9th percentile of the READs and the longest READ and
//   call, as JSON; the reason, if the machine refuses the kind; an empty object if the neighbour
//   has failed.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/integration/stalling_programs.h"
#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kMessageBytes = 8;
constexpr int kReads = 20;  // per measurement
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

void Require(bool is_good, const char* what) {
  if (is_good) return;
  std::fprintf(stderr, "stalled_neighbour: %s: %s\n", what, strerror(errno));
  std::exit(1);
}

struct Neighbour {
  std::string_view name;
  void (*run)();  // null: no neighbour
  bool is_stopped;
};
constexpr Neighbour kNeighbours[] = {
    {"none", nullptr, false},
    {"stopped", RegisterAndWrite, true},
    {"missing_pages", WriteToMissingPages, false},
    {"fuse_file", WriteToSilentFuseFile, false},
    {"cold_file", WriteToColdFile, false},
    {"swapped_pages", WriteToSwappedPages, false},
};

double MicrosecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

struct Delays {
  std::vector<double> reads_us;
  double longest_call_us = 0;

  void Print() {
    std::sort(reads_us.begin(), reads_us.end());
    const auto at = [&](double share) {
      return reads_us[static_cast<size_t>(share * static_cast<double>(reads_us.size() - 1))];
    };
    std::printf(
        "{\"reads\": %zu, \"median_us\": %.1f, \"p999_us\": %.1f, \"longest_us\": %.1f, "
        "\"longest_call_us\": %.1f}",
        reads_us.size(), at(0.5), at(0.999), at(1), longest_call_us);
  }
};

class Bystander {
 public:
  void Measure(Delays& delays) {
    for (int i = 0; i < kReads; ++i) delays.reads_us.push_back(Read());
    const Clock::time_point begin = Clock::now();
    ibv_mr* mr = ibv_reg_mr(pair_.near_device.pd, to_.data(), kMessageBytes, kAccess);
    Require(mr != nullptr, "ibv_reg_mr");
    const double registered_us = MicrosecondsSince(begin);
    const Clock::time_point registered = Clock::now();
    Require(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    delays.longest_call_us =
        std::max({delays.longest_call_us, registered_us, MicrosecondsSince(registered)});
  }

 private:
  double Read() {
    const Clock::time_point begin = Clock::now();
    errno = pair_.near.PostSend(IBV_WR_RDMA_READ, to_.Sge(0, kMessageBytes), IBV_SEND_SIGNALED,
                                from_.address(), from_.rkey());
    Require(errno == 0, "ibv_post_send");
    ibv_wc wc{};
    while (ibv_poll_cq(pair_.near.cq, 1, &wc) == 0) {
    }
    Require(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
    return MicrosecondsSince(begin);
  }

  Pair pair_{PatientOptions()};
  Buffer to_{pair_.near_device, 4096, 1};
  Buffer from_{pair_.far_device, 4096, 2};
};

Delays MeasureBeside(const StallingProcess* process, bool is_stopped, Bystander& bystander,
                     int moments) {
  Delays delays;
  std::mt19937 random(1);
  for (int i = 0; i < moments; ++i) {
    usleep(static_cast<useconds_t>(random() % 2000));
    if (is_stopped) process->Stop();
    bystander.Measure(delays);
    if (is_stopped) process->Continue();
  }
  return delays;
}

void MeasureOne(const Neighbour& neighbour, Bystander& bystander, int moments) {
  std::printf("\"%.*s\": ", static_cast<int>(neighbour.name.size()), neighbour.name.data());
  if (neighbour.run == nullptr) {
    MeasureBeside(nullptr, false, bystander, moments).Print();
    return;
  }
  StallingProcess process({"--be", std::string(neighbour.name)});
  switch (process.AwaitReport()) {
    case StallingProcess::State::kAtWork:
      MeasureBeside(&process, neighbour.is_stopped, bystander, moments).Print();
      return;
    case StallingProcess::State::kRefused:
      std::printf("{\"refused\": \"%s\"}", process.refusal().c_str());
      return;
    case StallingProcess::State::kFailed:
      std::printf("{}");
  }
}

int Run(int moments) {
  Bystander bystander;
  const char* separator = "{";
  for (const Neighbour& neighbour : kNeighbours) {
    std::fputs(std::exchange(separator, ", "), stdout);
    MeasureOne(neighbour, bystander, moments);
    std::fflush(stdout);
  }
  std::printf("}\n");
  return 0;
}

}  // namespace
}  // namespace roci::testing

int main(int argc, char** argv) {
  const std::span arguments(argv, static_cast<size_t>(argc));
  if (argc == 3 && std::string_view(arguments[1]) == "--be") {
    for (const auto& neighbour : roci::testing::kNeighbours) {
      if (neighbour.name == arguments[2] && neighbour.run != nullptr) neighbour.run();
    }
    return 0;
  }
  const int moments = argc == 2 ? std::atoi(arguments[1]) : 0;
  if (moments < 1) {
    std::fputs("usage: stalled_neighbour MOMENTS\n", stderr);
    return 2;
  }
  return roci::testing::Run(moments);
}
