#include "tools/decode/capture_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "control/manage/pcapng_writer.h"
#include "roce/work.h"

namespace roci::tools {
namespace {

namespace pcapng = control::pcapng;

constexpr uint32_t kMagicMicroseconds = 0xA1B2C3D4;
constexpr uint32_t kMagicNanoseconds = 0xA1B23C4D;
constexpr uint32_t kMagicModified = 0xA1B2CD34;  // of Alexey Kuznetsov's patches: microseconds

// Block types and options of pcapng (draft-ietf-opsawg-pcapng, 4) that the daemon does not write.
constexpr uint32_t kPacketBlock = 2;  // obsolete
constexpr uint32_t kSimplePacket = 3;
constexpr uint16_t kOptionTimeOffset = 14;
constexpr uint16_t kDroppedByInterface = 5, kDroppedByHost = 7;

constexpr auto kNsPerSecond = static_cast<uint32_t>(roce::kNsPerSecond);
constexpr uint32_t kBlockOverhead = 12;  // type, length, length again

// First bytes of other file formats, read as little-endian, and how to convert them.
struct OtherFile {
  uint32_t magic;
  uint32_t mask;
  const char* what;
};
constexpr OtherFile kOtherFiles[] = {
    {0x00008B1F, 0x0000FFFF, "compressed with gzip: zcat FILE | roci decode -"},
    {0xFD2FB528, 0xFFFFFFFF, "compressed with zstd: zstdcat FILE | roci decode -"},
    {0x184D2204, 0xFFFFFFFF, "compressed with lz4: lz4cat FILE | roci decode -"},
    {0x587A37FD, 0xFFFFFFFF, "compressed with xz: xzcat FILE | roci decode -"},
    {0x00685A42, 0x00FFFFFF, "compressed with bzip2: bzcat FILE | roci decode -"},
};

const char* WhyNoCapture(uint32_t magic) {
  for (const OtherFile& other : kOtherFiles) {
    if ((magic & other.mask) == other.magic) return other.what;
  }
  return "neither pcap nor pcapng (convert other formats with editcap -F pcapng)";
}

uint64_t PowerOf10(unsigned exponent) {
  uint64_t power = 1;
  while (exponent-- > 0) power *= 10;
  return power;
}

struct Time {
  uint64_t seconds;
  uint32_t nanoseconds;
};

// `resolution`: 2^-n with the highest bit set, else 10^-n (if_tsresol).
Time Scale(uint64_t units, uint8_t resolution) {
  const unsigned n = resolution & 0x7F;
  if ((resolution & 0x80) != 0) {
    const auto nanoseconds =
        static_cast<unsigned __int128>(units) * kNsPerSecond >> n;  // below 2^94
    return {static_cast<uint64_t>(nanoseconds / kNsPerSecond),
            static_cast<uint32_t>(nanoseconds % kNsPerSecond)};
  }
  if (n > 28) return {0, 0};  // 2^64 units are less than a nanosecond
  if (n > 19) return {0, static_cast<uint32_t>(units / PowerOf10(n - 9) % kNsPerSecond)};
  const uint64_t unit = PowerOf10(n);
  const uint64_t rest = units % unit;
  return {units / unit,
          static_cast<uint32_t>(n <= 9 ? rest * PowerOf10(9 - n) : rest / PowerOf10(n - 9))};
}

template <class T>
T Load(const std::byte* p, bool swapped) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  if (!swapped) return value;
  if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
}

size_t PaddedTo4(size_t length) { return (length + 3) & ~size_t{3}; }

}  // namespace

uint16_t CaptureReader::U16(size_t at) const { return Load<uint16_t>(&buffer_[at], swapped_); }
uint32_t CaptureReader::U32(size_t at) const { return Load<uint32_t>(&buffer_[at], swapped_); }
uint64_t CaptureReader::U64(size_t at) const { return Load<uint64_t>(&buffer_[at], swapped_); }

size_t CaptureReader::Take(std::byte* p, size_t n) {
  if (ahead_.empty()) return read_(p, n);
  size_t got = 0;
  while (got < n) {
    if (ahead_at_ == ahead_end_) {
      ahead_at_ = 0;
      ahead_end_ = read_(ahead_.data(), ahead_.size());
      if (ahead_end_ == 0) break;
    }
    const size_t piece = std::min(n - got, ahead_end_ - ahead_at_);
    std::memcpy(p + got, &ahead_[ahead_at_], piece);
    ahead_at_ += piece;
    got += piece;
  }
  return got;
}

// Reads in pieces, so that a false length allocates no memory.
bool CaptureReader::Fill(size_t n) {
  constexpr size_t kPiece = 65536;
  while (n > 0) {
    const size_t piece = std::min(n, kPiece);
    const size_t at = buffer_.size();
    buffer_.resize(at + piece);
    const size_t got = Take(buffer_.data() + at, piece);
    buffer_.resize(at + got);
    if (got < piece) return false;
    n -= piece;
  }
  return true;
}

CaptureReader::Outcome CaptureReader::Damaged(const std::string& why) {
  error_ = why;
  return Outcome::kDamaged;
}

CaptureReader::Outcome CaptureReader::Next(CaptureRecord& record) {
  if (last_ != Outcome::kRecord) return last_;
  if (format_ == Format::kUnknown) last_ = Open();
  while (last_ == Outcome::kRecord) {
    const uint64_t before = records_;
    last_ = format_ == Format::kPcap ? NextPcap(record) : NextBlock(record);
    if (records_ != before) break;
  }
  record.number = records_;
  return last_;
}

CaptureReader::Outcome CaptureReader::Open() {
  buffer_.clear();
  const bool complete = Fill(4);
  const uint32_t magic = complete ? U32(0) : 0;
  if (magic == pcapng::kSectionHeader) {
    format_ = Format::kPcapng;
    uint32_t length = 0;
    return ReadSectionHeader(length) ? Outcome::kRecord : Outcome::kDamaged;
  }
  return OpenPcap(magic);
}

CaptureReader::Outcome CaptureReader::OpenPcap(uint32_t magic) {
  for (const bool swapped : {false, true}) {
    const uint32_t value = swapped ? __builtin_bswap32(magic) : magic;
    if (value != kMagicMicroseconds && value != kMagicNanoseconds && value != kMagicModified) {
      continue;
    }
    format_ = Format::kPcap;
    swapped_ = swapped;
    nanoseconds_ = value == kMagicNanoseconds;
    is_modified_ = value == kMagicModified;
    buffer_.clear();
    if (!Fill(20)) return Damaged("the file ends within its header");
    // The upper bits describe a frame check sequence, which is decoded as bytes after the packet.
    interfaces_.push_back({.link_type = U32(16) & 0xFFFF, .snap_length = U32(12)});
    return Outcome::kRecord;
  }
  error_ = WhyNoCapture(magic);
  return Outcome::kNotACapture;
}

CaptureReader::Outcome CaptureReader::NextPcap(CaptureRecord& record) {
  // The modified header continues with the interface index, protocol and type of the packet.
  constexpr size_t kHeader = 16, kModifiedHeader = 24, kPacketType = 22;
  constexpr std::byte kOutgoing{4};
  buffer_.clear();
  if (!Fill(is_modified_ ? kModifiedHeader : kHeader)) {
    return buffer_.empty() ? Outcome::kEnd : Damaged("the file ends within a record's header");
  }
  const uint32_t captured = U32(8);
  const uint32_t fraction = U32(4);
  record = {.link_type = interfaces_[0].link_type,
            .has_time = true,
            .seconds = U32(0),
            .nanoseconds = nanoseconds_ ? fraction % kNsPerSecond : fraction % 1'000'000 * 1000,
            .original_length = U32(12),
            .bytes = {}};
  if (is_modified_) {
    record.interface = U32(kHeader);
    record.direction = buffer_[kPacketType] == kOutgoing ? Direction::kOut : Direction::kIn;
  }
  if (captured > kMaxRecordBytes) {
    return Damaged(absl::StrCat("a record of ", captured, " bytes"));
  }
  buffer_.clear();
  if (!Fill(captured)) return Damaged("the file ends within a record");
  record.bytes = buffer_;
  ++records_;
  return Outcome::kRecord;
}

// Reads the section header after the block type. Leaves the body in buffer_.
bool CaptureReader::ReadSectionHeader(uint32_t& total_length) {
  buffer_.clear();
  if (!Fill(8)) return Damaged("the file ends within a section's header"), false;
  swapped_ = false;
  if (U32(4) != pcapng::kByteOrderMagic) {
    swapped_ = true;
    if (U32(4) != pcapng::kByteOrderMagic)
      return Damaged("a section without byte order magic"), false;
  }
  total_length = U32(0);
  if (total_length < kBlockOverhead + 16 || total_length % 4 != 0 ||
      total_length > kMaxRecordBytes) {
    return Damaged(absl::StrCat("a section header of ", total_length, " bytes")), false;
  }
  if (!Fill(total_length - kBlockOverhead)) {
    return Damaged("the file ends within a section's header"), false;
  }
  if (U16(8) != 1) return Damaged(absl::StrCat("pcapng of version ", U16(8))), false;
  interfaces_.clear();
  return true;
}

CaptureReader::Outcome CaptureReader::NextBlock(CaptureRecord& record) {
  buffer_.clear();
  if (!Fill(4)) return buffer_.empty() ? Outcome::kEnd : Damaged("the file ends within a block");
  const uint32_t type = U32(0);
  uint32_t length = 0;
  if (type == pcapng::kSectionHeader) {
    return ReadSectionHeader(length) ? Outcome::kRecord : Outcome::kDamaged;
  }
  buffer_.clear();
  if (!Fill(4)) return Damaged("the file ends within a block");
  length = U32(0);
  if (length < kBlockOverhead || length % 4 != 0 || length > kMaxRecordBytes) {
    return Damaged(absl::StrCat("a block of ", length, " bytes"));
  }
  buffer_.clear();
  if (!Fill(length - 8)) return Damaged("the file ends within a block");
  if (U32(buffer_.size() - 4) != length) return Damaged("a block with two lengths");
  buffer_.resize(buffer_.size() - 4);
  if (HandleBlock(type, record)) ++records_;
  return error_.empty() ? Outcome::kRecord : Outcome::kDamaged;
}

bool CaptureReader::HandleBlock(uint32_t type, CaptureRecord& record) {
  switch (type) {
    case pcapng::kInterfaceDescription:
      AddInterface();
      return false;
    case pcapng::kEnhancedPacket:
      return EnhancedPacket(record, /*is_old=*/false);
    case kPacketBlock:
      return EnhancedPacket(record, /*is_old=*/true);
    case kSimplePacket:
      return SimplePacket(record);
    case pcapng::kInterfaceStatistics:
      AddStatistics();
      return false;
    default:
      return false;
  }
}

bool CaptureReader::OptionsAreWhole(size_t at) const {
  while (buffer_.size() >= at + 4) {
    if (U16(at) == pcapng::kEndOfOptions) return true;
    at += 4 + PaddedTo4(U16(at + 2));
  }
  return at == buffer_.size();
}

std::span<const std::byte> CaptureReader::Option(size_t at, uint16_t code) const {
  while (buffer_.size() >= at + 4) {
    const uint16_t found = U16(at);
    const size_t length = U16(at + 2);
    if (found == pcapng::kEndOfOptions || length > buffer_.size() - at - 4) break;
    if (found == code) return std::span(buffer_).subspan(at + 4, length);
    at += 4 + PaddedTo4(length);
  }
  return {};
}

void CaptureReader::AddInterface() {
  if (buffer_.size() < 8) {
    Damaged("an interface description that is too short");
    return;
  }
  if (!OptionsAreWhole(8)) {
    Damaged("an interface description whose options are longer than it is");
    return;
  }
  if (interfaces_.size() == kMaxInterfaces) {
    Damaged("too many interfaces");
    return;
  }
  Interface added{.link_type = U16(0), .snap_length = U32(4)};
  if (const auto value = Option(8, pcapng::kInterfaceTimeResolution); value.size() == 1) {
    added.resolution = std::to_integer<uint8_t>(value[0]);
  }
  if (const auto value = Option(8, kOptionTimeOffset); value.size() == 8) {
    added.offset_s = Load<int64_t>(value.data(), swapped_);
  }
  interfaces_.push_back(added);
}

bool CaptureReader::EnhancedPacket(CaptureRecord& record, bool is_old) {
  constexpr size_t kHead = 20;
  if (buffer_.size() < kHead) return Damaged("a packet block that is too short"), false;
  const uint32_t interface = is_old ? U16(0) : U32(0);
  const uint32_t captured = U32(12);
  if (interface >= interfaces_.size()) {
    return Damaged(absl::StrCat("a packet of interface ", interface, ", which is not described")),
           false;
  }
  if (captured > buffer_.size() - kHead) {
    return Damaged("a packet that is longer than its block"), false;
  }
  const size_t options = kHead + PaddedTo4(captured);
  if (!OptionsAreWhole(options)) {
    return Damaged("a packet block whose options are longer than it is"), false;
  }
  const Interface& on = interfaces_[interface];
  const Time time = Scale((uint64_t{U32(4)} << 32) | U32(8), on.resolution);
  record = {.interface = interface,
            .link_type = on.link_type,
            .has_time = true,
            .seconds = static_cast<int64_t>(time.seconds + static_cast<uint64_t>(on.offset_s)),
            .nanoseconds = time.nanoseconds,
            .original_length = U32(16),
            .bytes = std::span(buffer_).subspan(kHead, captured)};
  const auto flags = Option(options, pcapng::kPacketFlags);
  if (flags.size() == 4) {
    const uint32_t direction = Load<uint32_t>(flags.data(), swapped_) & 3;
    if (direction != 3) record.direction = static_cast<Direction>(direction);
  }
  return true;
}

bool CaptureReader::SimplePacket(CaptureRecord& record) {
  if (buffer_.size() < 4) return Damaged("a packet block that is too short"), false;
  if (interfaces_.empty()) return Damaged("a packet without an interface"), false;
  const Interface& on = interfaces_[0];
  size_t captured = U32(0);
  if (on.snap_length != 0) captured = std::min<size_t>(captured, on.snap_length);
  if (captured > buffer_.size() - 4)
    return Damaged("a packet that is longer than its block"), false;
  record = {.link_type = on.link_type,
            .original_length = U32(0),
            .bytes = std::span(buffer_).subspan(4, captured)};
  return true;
}

// Damaged statistics say nothing; the frames are what matters.
void CaptureReader::AddStatistics() {
  constexpr size_t kOptions = 12;
  for (const uint16_t code : {kDroppedByInterface, kDroppedByHost}) {
    const auto value = Option(kOptions, code);
    if (value.size() != sizeof(uint64_t)) continue;
    const auto dropped = Load<uint64_t>(value.data(), swapped_);
    dropped_ += std::min(dropped, UINT64_MAX - dropped_);
  }
}

}  // namespace roci::tools
