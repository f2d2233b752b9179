// Common parts of the fuzzers: a check of conditions, and a reader of the input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace roci::fuzz {

inline void Require(bool condition, const char* what, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  if (condition) [[likely]]
    return;
  std::fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
  std::abort();
}

#define CHECK(condition) ::roci::fuzz::Require(condition, #condition)

// Takes values off the front of the input; zeros when it is at its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  template <class T>
  T Take() {
    T value{};
    const size_t bytes = std::min(size_, sizeof(T));
    if (bytes != 0) std::memcpy(&value, data_, bytes);
    data_ += bytes;
    size_ -= bytes;
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace roci::fuzz
