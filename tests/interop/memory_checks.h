// Checks of what program and device see of registered memory, with results as in the table.
#pragma once

#include <string>

#include "tests/interop/memory_device.h"
#include "tests/interop/memory_row.h"

namespace interop {

/// What `length` bytes of the region say: "kept", "zeros", "arrived", "file", "lost", or a signal's
/// name.
std::string Look(const void* at, size_t offset, size_t length, Pattern brought);
/// The program's write; false where it raised a signal.
bool ProgramWrites(const Region& region, uint8_t* at, Pattern pattern, size_t offset,
                   size_t length);

/// An errno's name; "-" for 0.
std::string NameOf(int error);

/// The registration of a subject's region, and the checks of its part.
class Checks {
 public:
  Checks(const MemoryDevice& device, Subject& subject)
      : device_(device), loop_(device), subject_(subject) {}

  /// The errno, or 0.
  int Register();
  void Deregister();
  bool registered() const { return mr_ != nullptr; }
  Remote Start() const { return {address_, mr_}; }

  /// Says in the remark what an RDMA READ brings, before the program has looked.
  void DeviceLooksFirst();
  /// Fills the columns for program, READ and WRITE.
  void Run(Result& result);

 private:
  using Check = std::string (Checks::*)(bool second);

  // The first half of what is checked is the responder's memory, the second one the requester's.
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
  std::string first_;  // what the program saw
};

}  // namespace interop
