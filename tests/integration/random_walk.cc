// Usage: random_walk SEED PROCESSES THREADS SECONDS
//
// PROCESSES processes with THREADS threads each take random walks over the verbs API (walker.h),
// with seeds derived from SEED. Exit status 0 if no walk found an error.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/integration/walker.h"

namespace {

int Walk(uint64_t seed, uint64_t threads, double seconds) {
  std::atomic<uint64_t> steps{0};
  std::atomic<uint64_t> completions{0};
  std::atomic<uint64_t> shared{0};
  std::atomic<uint64_t> windows{0};
  std::atomic<uint64_t> extended{0};
  std::vector<std::thread> running;
  for (uint64_t i = 0; i < threads; ++i) {
    running.emplace_back([&steps, &completions, &shared, &windows, &extended, seconds, seed, i] {
      roci::testing::Walker walker(seed + i);
      walker.Run(seconds);
      steps += walker.steps();
      completions += walker.completions();
      shared += walker.shared();
      windows += walker.windows();
      extended += walker.extended();
    });
  }
  for (std::thread& thread : running) thread.join();
  printf(
      "seeds %lu to %lu: %lu steps, %lu completions (%lu of shared receives, %lu of windows), %lu "
      "extended calls\n",
      seed, seed + threads - 1, steps.load(), completions.load(), shared.load(), windows.load(),
      extended.load());
  return completions > 0 && extended > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "Usage: random_walk SEED PROCESSES THREADS SECONDS\n");
    return 2;
  }
  const uint64_t seed = strtoull(argv[1], nullptr, 10);
  const uint64_t processes = strtoull(argv[2], nullptr, 10);
  const uint64_t threads = strtoull(argv[3], nullptr, 10);
  const double seconds = strtod(argv[4], nullptr);
  std::vector<pid_t> children;
  for (uint64_t i = 0; i < processes; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const int status = Walk(seed + i * threads, threads, seconds);
      fflush(nullptr);
      return status;
    }
    children.push_back(child);
  }
  int result = EXIT_SUCCESS;
  for (const pid_t child : children) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
        WEXITSTATUS(status) != EXIT_SUCCESS) {
      fprintf(stderr, "random walk: a process ended with wait status %#x\n", status);
      result = EXIT_FAILURE;
    }
  }
  return result;
}
