// Measures how programs share few processors with the daemon: each thread posts an 8-byte RDMA
// WRITE and polls for its completion. Run by tools/bench and the integration tests under `roci
// run`.
//
// polling_threads THREADS SECONDS [BUSY_LOOPS]
//   BUSY_LOOPS: number of additional processes that only compute (0)
//   Prints the completions of all threads and of the thread with the fewest, and the longest wait
//   for one, as JSON.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kMessageBytes = 8;

// Processes that compute until this object is destroyed.
class BusyLoops {
 public:
  explicit BusyLoops(int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t pid = fork();
      if (pid == 0) Compute();
      if (pid > 0) pids_.push_back(pid);
    }
  }
  ~BusyLoops() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  BusyLoops(const BusyLoops&) = delete;
  BusyLoops& operator=(const BusyLoops&) = delete;

 private:
  [[noreturn]] static void Compute() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile uint64_t i = 0;;) i = i + 1;
  }

  std::vector<pid_t> pids_;
};

// Other processes cannot access the program's memory while a descheduled thread holds the lock of
// the address space, as a thread does while it creates another.
EndpointOptions Patient() {
  EndpointOptions options;
  options.timeout = 18;  // 1.1 s
  options.retry_count = 7;
  return options;
}

// A connected queue pair and the memory of both ends.
struct Connection {
  Connection()
      : pair(Patient()),
        source(pair.near_device, kMessageBytes, 1),
        target(pair.far_device, kMessageBytes, 2) {}
  Pair pair;
  Buffer source;
  Buffer target;
};

// Results of one thread.
struct Outcome {
  uint64_t completions = 0;
  Clock::duration longest_wait{};
  bool failed = false;
};

// False, with a message on stderr: the request failed, or nothing completed before `give_up`.
bool WriteOnce(Connection& connection, Clock::time_point give_up) {
  Endpoint& end = connection.pair.near;
  if (const int error =
          end.PostSend(IBV_WR_RDMA_WRITE, connection.source.Sge(0, kMessageBytes),
                       IBV_SEND_SIGNALED, connection.target.address(), connection.target.rkey());
      error != 0) {
    std::fprintf(stderr, "ibv_post_send: %s\n", strerror(error));
    return false;
  }
  ibv_wc wc{};
  int polled;
  do {
    polled = ibv_poll_cq(end.cq, 1, &wc);
  } while (polled == 0 && Clock::now() < give_up);
  if (polled == 1 && wc.status == IBV_WC_SUCCESS) return true;
  std::fprintf(stderr, "no completion: ibv_poll_cq: %d, status: %s\n", polled,
               polled == 1 ? ibv_wc_status_str(wc.status) : "none");
  return false;
}

Outcome Run(Connection& connection, Clock::time_point end) {
  constexpr auto kPatience = std::chrono::seconds(30);
  Outcome outcome;
  for (Clock::time_point now = Clock::now(); now < end;) {
    if (!WriteOnce(connection, end + kPatience)) {
      outcome.failed = true;
      break;
    }
    const Clock::time_point begin = std::exchange(now, Clock::now());
    outcome.longest_wait = std::max(outcome.longest_wait, now - begin);
    ++outcome.completions;
  }
  return outcome;
}

std::vector<Outcome> RunAll(size_t threads, double seconds) {
  std::vector<std::unique_ptr<Connection>> connections(threads);
  for (auto& connection : connections) connection = std::make_unique<Connection>();
  std::vector<Outcome> outcomes(threads);
  std::vector<std::thread> running;
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(seconds));
  for (size_t i = 0; i < threads; ++i) {
    running.emplace_back([&, i] { outcomes[i] = Run(*connections[i], end); });
  }
  for (std::thread& thread : running) thread.join();
  return outcomes;
}

int Report(const std::vector<Outcome>& outcomes, double seconds) {
  uint64_t completions = 0;
  uint64_t least = UINT64_MAX;
  Clock::duration longest{};
  bool failed = false;
  for (const Outcome& outcome : outcomes) {
    completions += outcome.completions;
    least = std::min(least, outcome.completions);
    longest = std::max(longest, outcome.longest_wait);
    failed |= outcome.failed;
  }
  std::printf(
      "{\"threads\": %zu, \"seconds\": %g, \"completions\": %llu, \"least_completions\": %llu, "
      "\"longest_wait_ms\": %.3f, \"failed\": %s}\n",
      outcomes.size(), seconds, static_cast<unsigned long long>(completions),
      static_cast<unsigned long long>(least),
      std::chrono::duration<double, std::milli>(longest).count(), failed ? "true" : "false");
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace roci::testing

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 0;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0;
  const int busy_loops = argc > 3 ? std::atoi(argv[3]) : 0;
  if (threads < 1 || threads > 1024 || !(seconds > 0) || busy_loops < 0) {
    std::fputs("usage: polling_threads THREADS SECONDS [BUSY_LOOPS]\n", stderr);
    return 2;
  }
  const roci::testing::BusyLoops busy(busy_loops);
  return roci::testing::Report(roci::testing::RunAll(static_cast<size_t>(threads), seconds),
                               seconds);
}
