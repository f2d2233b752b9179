// Checks what program and device see of registered memory. Results are cells of the table.
#pragma once

#include <string>

#include "tests/interop/memory_device.h"
#include "tests/interop/memory_row.h"

namespace interop {

/// Describes `length` bytes of the region: "kept", "zeros", "arrived", "file", "lost", or the name
/// of the signal that reading them raised.
std::string Look(const void* at, size_t offset, size_t length, Pattern brought);
/// Writes as the program does. False: the write raised a signal.
bool ProgramWrites(const Region& region, uint8_t* at, Pattern pattern, size_t offset,
                   size_t length);

/// The name of an errno; "-" for 0.
std::string NameOf(int error);

/// Registers a subject's region and checks its part.
class Checks {
 public:
  Checks(const MemoryDevice& device, Subject& subject)
      : device_(device), loop_(device), subject_(subject) {}

  /// Returns an errno, or 0.
  int Register();
  void Deregister();
  bool registered() const { return mr_ != nullptr; }
  Remote Start() const { return {address_, mr_}; }

  /// Adds to the remark what an RDMA READ returns before the program has read the memory.
  void DeviceLooksFirst();
  /// Fills the columns `sees`, `reads` and `writes`.
  void Run(Result& result);

 private:
  using Check = std::string (Checks::*)(bool second);

  // The first half of the checked bytes is the responder's memory, the second the requester's.
  std::string Combine(Check check);
  std::string ReadHalf(bool second);
  std::string WriteHalf(bool second);
  bool RestIsKept() const;
  uint32_t Half() const { return static_cast<uint32_t>(subject_.check_length / 2); }
  size_t Offset(bool second) const { return subject_.region.part + (second ? Half() : 0); }
  Remote Place(bool second) const { return {address_ + Offset(second), mr_}; }

  const MemoryDevice& device_;
  Loop loop_;
  Subject& subject_;
  ibv_mr* mr_ = nullptr;
  uint64_t address_ = 0;
  std::string first_;  // what the program saw first
};

}  // namespace interop
