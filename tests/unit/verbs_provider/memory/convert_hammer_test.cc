// Conversion and restoring while threads, the kernel, another process and signal handlers write to
// the memory.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/unit/verbs_provider/memory/convert_testing.h"
#include "verbs_provider/memory/convert.h"

namespace roci::provider {
namespace {

constexpr auto kHammerTime = std::chrono::milliseconds(1500);

// Converts and restores until the time is up; returns how often.
int ConvertRepeatedly(char* at, uint64_t length, const std::function<void()>& between) {
  const auto end = Clock::now() + kHammerTime;
  int rounds = 0;
  for (; Clock::now() < end; ++rounds) {
    Registration registration(at, length);
    EXPECT_TRUE(registration.AllConverted());
    between();
    registration.Release();
    between();
  }
  return rounds;
}

uint32_t NextRandom(uint32_t x) { return x * 1664525U + 1013904223U; }

TEST_F(Convert, HammerPlainIncrementsOfTwoThreads) {
  constexpr uint64_t kLength = 4U << 20;
  constexpr uint32_t kWords = kLength / sizeof(uint32_t);
  char* at = Anonymous(kLength);
  auto* words = reinterpret_cast<volatile uint32_t*>(at);
  std::vector<uint32_t> expected(kWords);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 2; ++t) {  // each thread writes every second word
    threads.emplace_back([&, t] {
      for (uint32_t x = t; !stop.load(std::memory_order_relaxed);) {
        x = NextRandom(x);
        const uint32_t i = ((x >> 4) % (kWords / 2)) * 2 + t;
        words[i] = words[i] + 1;
        ++expected[i];
      }
    });
  }
  const int rounds = ConvertRepeatedly(at, kLength, [] { usleep(500); });
  stop = true;
  for (auto& thread : threads) thread.join();
  uint32_t lost = 0;
  for (uint32_t i = 0; i < kWords; ++i) lost += words[i] != expected[i];
  EXPECT_EQ(lost, 0U) << "after " << rounds << " rounds";
  std::printf("%d rounds\n", rounds);
  munmap(at, kLength);
}

TEST_F(Convert, HammerAtomicsKernelWritesAndAnotherProcess) {
  constexpr uint64_t kLength = 2U << 20;
  constexpr uint32_t kWords = kLength / sizeof(uint32_t);
  char* at = Anonymous(kLength);
  auto* words = reinterpret_cast<volatile uint32_t*>(at);
  struct Shared {
    std::atomic<bool> go;
    std::atomic<bool> stop;
    uint64_t failed;
    uint32_t expected[kWords];
  };
  auto* shared = reinterpret_cast<Shared*>(Anonymous(sizeof(Shared), MAP_SHARED));
  const pid_t parent = getpid();
  // The daemon writes words 3 mod 4, by process_vm.
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    shared->go = true;
    for (uint32_t x = 5; !shared->stop;) {
      x = NextRandom(x);
      const uint32_t i = ((x >> 4) % (kWords / 4)) * 4 + 3;
      uint32_t value = 0;
      const iovec local = {&value, sizeof value};
      const iovec remote = {at + i * sizeof value, sizeof value};
      if (process_vm_readv(parent, &local, 1, &remote, 1, 0) != sizeof value) {
        ++shared->failed;
        continue;
      }
      ++value;
      if (process_vm_writev(parent, &local, 1, &remote, 1, 0) != sizeof value) {
        ++shared->failed;
        continue;
      }
      shared->expected[i] = value;
    }
    _exit(0);
  }
  while (!shared->go) usleep(100);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> added{0};
  std::atomic<uint64_t> kernel_failed{0};
  std::vector<uint32_t> kernel_expected(kWords);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 2; ++t) {  // words 0 mod 4, both threads
    threads.emplace_back([&, t] {
      uint64_t count = 0;
      for (uint32_t x = t; !stop.load(std::memory_order_relaxed); ++count) {
        x = NextRandom(x);
        __atomic_fetch_add(&words[((x >> 4) % (kWords / 4)) * 4], 1, __ATOMIC_RELAXED);
      }
      added += count;
    });
  }
  threads.emplace_back([&] {  // words 1 mod 4, written by the kernel
    const int source = memfd_create("s", MFD_CLOEXEC);
    for (uint32_t x = 99; !stop.load(std::memory_order_relaxed);) {
      x = NextRandom(x);
      const uint32_t i = ((x >> 4) % (kWords / 4)) * 4 + 1;
      const uint32_t value = kernel_expected[i] + 1;
      if (pwrite(source, &value, sizeof value, 0) != sizeof value) std::abort();
      if (pread(source, at + i * sizeof value, sizeof value, 0) == sizeof value) {
        kernel_expected[i] = value;
      } else {
        ++kernel_failed;
      }
    }
    close(source);
  });
  const int rounds = ConvertRepeatedly(at, kLength, [] { usleep(500); });
  stop = true;
  shared->stop = true;
  for (auto& thread : threads) thread.join();
  waitpid(child, nullptr, 0);
  uint64_t sum = 0;
  uint32_t lost = 0;
  for (uint32_t i = 0; i < kWords; i += 4) {
    sum += words[i];
    lost += words[i + 1] != kernel_expected[i + 1];
    lost += words[i + 3] != shared->expected[i + 3];
  }
  EXPECT_EQ(sum, added.load());
  EXPECT_EQ(lost, 0U);
  EXPECT_EQ(kernel_failed.load(), 0U);
  EXPECT_EQ(shared->failed, 0U);
  std::printf("%d rounds\n", rounds);
  munmap(at, kLength);
  munmap(shared, sizeof(Shared));
}

volatile sig_atomic_t g_signals = 0;
volatile char* g_signal_memory = nullptr;

TEST_F(Convert, SignalHandlersMayTouchTheMemory) {
  constexpr uint64_t kLength = 1U << 20;
  char* at = Anonymous(kLength);
  Fill(at, kLength, 1);
  at[kPage] = 0;
  g_signal_memory = at;
  g_signals = 0;
  struct sigaction action = {};
  struct sigaction before;
  action.sa_handler = [](int) {
    g_signals = g_signals + 1;
    g_signal_memory[kPage] = static_cast<char>(g_signal_memory[kPage] + 1);
  };
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  itimerval timer = {{0, 150}, {0, 150}};
  setitimer(ITIMER_REAL, &timer, nullptr);
  const int rounds = ConvertRepeatedly(at, kLength, [] {});
  timer = {};
  setitimer(ITIMER_REAL, &timer, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_GT(rounds, 0);
  EXPECT_GT(g_signals, 0);
  EXPECT_EQ(at[kPage], static_cast<char>(g_signals));
  munmap(at, kLength);
}

// Other threads call malloc and free in the same heap pages.
TEST_F(Convert, HammerTheHeap) {
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread thread([&] {
    std::vector<std::unique_ptr<char[]>> blocks(200);
    for (uint32_t x = 1; !stop.load(std::memory_order_relaxed);) {
      x = NextRandom(x);
      auto& block = blocks[(x >> 8) % blocks.size()];
      if (block != nullptr) {
        wrong += !Holds(block.get(), 900, static_cast<unsigned>((x >> 8) % blocks.size()));
        block.reset();
      } else {
        block.reset(new char[900]);
        Fill(block.get(), 900, static_cast<unsigned>((x >> 8) % blocks.size()));
      }
    }
  });
  std::vector<std::unique_ptr<char[]>> buffers;
  buffers.reserve(20);
  for (int i = 0; i < 20; ++i) buffers.emplace_back(new char[20000]);
  const auto end = Clock::now() + kHammerTime;
  for (size_t round = 0; Clock::now() < end; ++round) {
    char* buffer = buffers[round % buffers.size()].get();
    Fill(buffer, 20000, static_cast<unsigned>(round));
    Registration registration(buffer, 20000);
    wrong += registration.error != 0 || !Holds(buffer, 20000, static_cast<unsigned>(round));
    buffers[(round + 7) % buffers.size()].reset(new char[20000]);
  }
  stop = true;
  thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace roci::provider
