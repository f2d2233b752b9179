// Reads captures: pcap (micro- and nanoseconds, either byte order, and Kuznetsov's with longer
// record headers) and pcapng (several sections, interfaces and byte orders). Checks every field of
// the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "control/manage/pcapng_writer.h"

namespace roci::tools {

// Supported LINKTYPE_ values (https://www.tcpdump.org/linktypes.html).
inline constexpr uint32_t kLinkTypeNull = 0;
inline constexpr uint32_t kLinkTypeEthernet = control::pcapng::kLinkTypeEthernet;
inline constexpr uint32_t kLinkTypeOldRaw = 12;  // DLT_RAW of most systems
inline constexpr uint32_t kLinkTypeOpenBsdRaw = 14;
inline constexpr uint32_t kLinkTypeRaw = 101;
inline constexpr uint32_t kLinkTypeLoop = 108;
inline constexpr uint32_t kLinkTypeLinuxSll = 113;
inline constexpr uint32_t kLinkTypeIpv4 = 228;
inline constexpr uint32_t kLinkTypeIpv6 = 229;
inline constexpr uint32_t kLinkTypeLinuxSll2 = 276;

enum class Direction : uint8_t { kUnknown = 0, kIn = 1, kOut = 2 };

struct CaptureRecord {
  uint64_t number = 0;     // counts the file's packets from 1
  uint32_t interface = 0;  // within its section; the system's index in Kuznetsov's files
  uint32_t link_type = 0;
  bool has_time = false;  // simple packet blocks have none
  int64_t seconds = 0;    // since 1970, or before
  uint32_t nanoseconds = 0;
  Direction direction = Direction::kUnknown;
  uint32_t original_length = 0;      // on the wire
  std::span<const std::byte> bytes;  // captured bytes; valid until the next call of Next
};

// Not thread-safe. Uses memory for one record, and 16 bytes per interface.
class CaptureReader {
 public:
  // Longer records and blocks, and more interfaces in a section, count as damage.
  static constexpr uint32_t kMaxRecordBytes = 16 << 20;
  static constexpr size_t kMaxInterfaces = 65536;

  // Reads the next n bytes of the input to p. Returns the number of bytes; fewer only at the end.
  using Read = std::function<size_t(std::byte* p, size_t n)>;
  // `ahead`: bytes to read at once. 0 if the capture may still grow: each record is then read
  // alone.
  explicit CaptureReader(Read read, size_t ahead = 0) : read_(std::move(read)), ahead_(ahead) {}

  enum class Outcome : uint8_t {
    kRecord,
    kEnd,
    kDamaged,      // the rest cannot be read; see error()
    kNotACapture,  // not a supported capture file; see error()
  };
  // Any result but kRecord is final: later calls return it again.
  Outcome Next(CaptureRecord& record);
  const std::string& error() const { return error_; }
  // Frames that the capture lacks by its own account (statistics of pcapng, as far as read).
  uint64_t dropped() const { return dropped_; }

 private:
  enum class Format : uint8_t { kUnknown, kPcap, kPcapng };
  struct Interface {
    uint32_t link_type = 0;
    uint32_t snap_length = 0;
    int64_t offset_s = 0;
    uint8_t resolution = 6;  // if_tsresol as in the file
  };

  Outcome Open();
  Outcome OpenPcap(uint32_t magic);
  Outcome NextPcap(CaptureRecord& record);
  Outcome NextBlock(CaptureRecord& record);
  // True: `record` holds a packet. False: the block was of another kind, or damaged.
  bool HandleBlock(uint32_t type, CaptureRecord& record);
  bool ReadSectionHeader(uint32_t& total_length);
  void AddInterface();
  bool EnhancedPacket(CaptureRecord& record, bool is_old);
  bool SimplePacket(CaptureRecord& record);
  void AddStatistics();
  Outcome Damaged(const std::string& why);

  // As `read_`, through `ahead_`.
  size_t Take(std::byte* p, size_t n);
  // Reads n more bytes into buffer_; false at the end of the input.
  bool Fill(size_t n);
  uint16_t U16(size_t at) const;
  uint32_t U32(size_t at) const;
  uint64_t U64(size_t at) const;
  // Whether the options in [at, end of the buffer) are complete.
  bool OptionsAreWhole(size_t at) const;
  // Value of the option in [at, end of the buffer); empty: absent.
  std::span<const std::byte> Option(size_t at, uint16_t code) const;

  Read read_;
  std::vector<std::byte> ahead_;  // [ahead_at_, ahead_end_) was read and not used
  size_t ahead_at_ = 0, ahead_end_ = 0;
  std::string error_;
  Format format_ = Format::kUnknown;
  Outcome last_ = Outcome::kRecord;
  bool swapped_ = false;
  bool nanoseconds_ = false;
  bool is_modified_ = false;  // Kuznetsov's
  uint64_t records_ = 0;
  uint64_t dropped_ = 0;
  std::vector<Interface> interfaces_;
  std::vector<std::byte> buffer_;  // the record, or the body of the block
};

}  // namespace roci::tools
