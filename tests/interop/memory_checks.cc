#include "tests/interop/memory_checks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace interop {

std::string Look(const void* at, size_t offset, size_t length, Pattern brought) {
  std::vector<uint8_t> copy(length);
  const int signal = Copy(copy.data(), at, length);
  if (signal != 0) return signal == SIGBUS ? "SIGBUS" : "SIGSEGV";
  if (Holds(Pattern::kFirst, copy.data(), offset, length)) return "kept";
  if (Holds(brought, copy.data(), offset, length)) return "arrived";
  if (Holds(Pattern::kFile, copy.data(), offset, length)) return "file";
  return HoldsZeros(copy.data(), length) ? "zeros" : "lost";
}

bool ProgramWrites(const Region& region, uint8_t* at, Pattern pattern, size_t offset,
                   size_t length) {
  if (!region.writable && mprotect(at, length, PROT_READ | PROT_WRITE) != 0) return false;
  std::vector<uint8_t> bytes(length);
  Fill(pattern, bytes.data(), offset, length);
  const bool written = Copy(at, bytes.data(), length) == 0;
  if (!region.writable) mprotect(at, length, PROT_READ);
  return written;
}

std::string NameOf(int error) { return error == 0 ? "-" : strerrorname_np(error); }

int Checks::Register() {
  const Region& region = subject_.region;
  mr_ = device_.Register(region.data, region.length, region.writable);
  address_ = reinterpret_cast<uint64_t>(region.data);
  return mr_ == nullptr ? errno : 0;
}

void Checks::Deregister() {
  ibv_dereg_mr(mr_);
  mr_ = nullptr;
}

void Checks::DeviceLooksFirst() { subject_.Remark("device first: " + Combine(&Checks::ReadHalf)); }

void Checks::Run(Result& result) {
  const Region& region = subject_.region;
  first_ = result.sees = Look(subject_.at, region.part, subject_.check_length, subject_.brought);
  if (!RestIsKept()) subject_.Remark("rest lost");
  if (!registered()) return;
  ProgramWrites(region, subject_.at, Pattern::kNew, region.part, subject_.check_length);
  result.reads = Combine(&Checks::ReadHalf);
  result.writes = Combine(&Checks::WriteHalf);
}

std::string Checks::Combine(Check check) {
  const std::string first = (this->*check)(false);
  const std::string second = (this->*check)(true);
  return first == second ? first : first + "+" + second;
}

std::string Checks::ReadHalf(bool second) {
  memset(loop_.buffer(), 0xee, Half());
  const std::string error =
      second ? loop_.ReadIntoBuffer(Place(second), Half()) : loop_.Read(Place(second), Half());
  if (!error.empty()) return "error";
  if (Holds(Pattern::kNew, loop_.buffer(), Offset(second), Half())) return "new";
  const std::string there = Look(loop_.buffer(), Offset(second), Half(), subject_.brought);
  if (first_.empty()) return there;
  return there == "kept" || there == first_ ? "old" : there;
}

std::string Checks::WriteHalf(bool second) {
  Fill(Pattern::kDevice, loop_.buffer(), Offset(second), Half());
  const std::string error =
      second ? loop_.WriteFromBuffer(Place(second), Half()) : loop_.Write(Place(second), Half());
  if (!error.empty()) return "error";
  std::vector<uint8_t> copy(Half());
  const bool seen = Copy(copy.data(), subject_.at + (second ? Half() : 0), Half()) == 0 &&
                    Holds(Pattern::kDevice, copy.data(), Offset(second), Half());
  return seen ? "seen" : "not seen";
}

// Checks the bytes between those that traffic changes and the part.
bool Checks::RestIsKept() const {
  const Region& region = subject_.region;
  const size_t offset = 2 * kTrafficLength;
  const size_t length = std::min(region.part - offset, size_t{kMaxTransfer});
  return Look(region.data + offset, offset, length, Pattern::kBrought) == "kept";
}

}  // namespace interop
