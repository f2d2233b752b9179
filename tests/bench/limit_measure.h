// The measurements of machine_limit, and their common parts.
#pragma once

#include <sys/mman.h>
#include <time.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace roci::bench {

inline constexpr uint32_t kMaxBurst = 32;
inline constexpr size_t kFrameSlot = 4096 + 512;  // bytes from frame to frame
inline constexpr size_t kPayloadAt = 256;         // of the payload in a frame's slot

inline double Now() {  // seconds
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Memory as a program gets it by default: anonymous pages, written once. Exits on failure.
class Memory {
 public:
  explicit Memory(size_t bytes);
  ~Memory() { munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

// A ring of frame numbers, one producer and one consumer on the same core.
class Wire {
 public:
  void Push(uint32_t frame) { slots_[head_++ % slots_.size()] = frame; }
  uint32_t Pop() { return slots_[tail_++ % slots_.size()]; }

 private:
  std::array<uint32_t, 256> slots_{};
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
};

// Exits with a message: a limit measured with invalid frames is meaningless.
[[noreturn]] void Die(const char* why);

struct LargeResult {
  double gbps = 0;       // gigabits of payload per second
  std::string best_way;  // burst and copy method of the best result
};
// The best of all methods to move 4096-byte packets between two halves of `working_set` bytes, each
// measured for `seconds`.
LargeResult LargeLimit(size_t working_set, double seconds);

// Millions of 64-byte WRITE messages a second.
double SmallLimit(double seconds);

// Microseconds from the post of an 8-byte READ by a thread on one core until that thread sees its
// completion; a thread on another core makes and checks request and response. Zero if the machine
// has one core.
struct LatencyResult {
  double typical_us = 0;
  double p99_us = 0;
};
LatencyResult LatencyLimit(uint32_t reads);

}  // namespace roci::bench
