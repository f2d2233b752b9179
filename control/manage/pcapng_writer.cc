#include "control/manage/pcapng_writer.h"

#include <cstring>

namespace roci::control::pcapng {
namespace {

constexpr uint8_t kNanoseconds = 9;  // 10^-9 s

// Options.
constexpr uint16_t kSectionApplication = 4;
constexpr uint16_t kInterfaceName = 2;
constexpr uint16_t kStatisticsReceived = 4;
constexpr uint16_t kStatisticsDropped = 5;

template <class T>
void Put(T value, std::string& out) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out.append(raw, sizeof(T));
}

// Pads `out` with zeros so that its length since `start` is a multiple of 4.
void Pad(size_t start, std::string& out) { out.append(-(out.size() - start) & 3, '\0'); }

void PutOption(uint16_t code, std::string_view value, std::string& out) {
  Put(code, out);
  Put(static_cast<uint16_t>(value.size()), out);
  const size_t start = out.size();
  out.append(value);
  Pad(start, out);
}

template <class T>
void PutNumberOption(uint16_t code, T value, std::string& out) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  PutOption(code, std::string_view(raw, sizeof(T)), out);
}

void PutTime(uint64_t time_ns, std::string& out) {
  Put(static_cast<uint32_t>(time_ns >> 32), out);
  Put(static_cast<uint32_t>(time_ns), out);
}

// Starts a block; EndBlock fills in its length at both ends.
size_t BeginBlock(uint32_t type, std::string& out) {
  const size_t start = out.size();
  Put(type, out);
  Put(uint32_t{0}, out);
  return start;
}
void EndBlock(size_t start, std::string& out) {
  const auto length = static_cast<uint32_t>(out.size() - start + sizeof(uint32_t));
  Put(length, out);
  std::memcpy(out.data() + start + sizeof(uint32_t), &length, sizeof(length));
}

}  // namespace

void AppendHeader(std::string_view interface, uint32_t snap_length, std::string& out) {
  size_t block = BeginBlock(kSectionHeader, out);
  Put(kByteOrderMagic, out);
  Put(uint16_t{1}, out);  // version 1.0
  Put(uint16_t{0}, out);
  Put(~uint64_t{0}, out);  // length of the section: not known
  PutOption(kSectionApplication, "rocid", out);
  Put(uint32_t{kEndOfOptions}, out);
  EndBlock(block, out);
  block = BeginBlock(kInterfaceDescription, out);
  Put(kLinkTypeEthernet, out);
  Put(uint16_t{0}, out);
  Put(snap_length, out);
  PutOption(kInterfaceName, interface, out);
  PutNumberOption(kInterfaceTimeResolution, kNanoseconds, out);
  Put(uint32_t{kEndOfOptions}, out);
  EndBlock(block, out);
}

void AppendPacket(uint64_t time_ns, Direction direction, std::span<const std::byte> bytes,
                  uint32_t original_length, std::string& out) {
  const size_t block = BeginBlock(kEnhancedPacket, out);
  Put(uint32_t{0}, out);
  PutTime(time_ns, out);
  Put(static_cast<uint32_t>(bytes.size()), out);
  Put(original_length, out);
  const size_t start = out.size();
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Pad(start, out);
  PutNumberOption(kPacketFlags, static_cast<uint32_t>(direction), out);
  Put(uint32_t{kEndOfOptions}, out);
  EndBlock(block, out);
}

void AppendStatistics(uint64_t time_ns, uint64_t received, uint64_t dropped, std::string& out) {
  const size_t block = BeginBlock(kInterfaceStatistics, out);
  Put(uint32_t{0}, out);
  PutTime(time_ns, out);
  PutNumberOption(kStatisticsReceived, received, out);
  PutNumberOption(kStatisticsDropped, dropped, out);
  Put(uint32_t{kEndOfOptions}, out);
  EndBlock(block, out);
}

}  // namespace roci::control::pcapng
