// A file descriptor with an owner.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>

namespace rpcrdma {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  explicit operator bool() const { return number_ >= 0; }
  int get() const { return number_; }
  // Gives the descriptor away.
  int Release() { return std::exchange(number_, -1); }
  // A path of the file itself, for calls that take no O_PATH descriptor.
  std::string ProcPath() const { return "/proc/self/fd/" + std::to_string(number_); }

 private:
  int number_ = -1;
};

}  // namespace rpcrdma
