// Fuzzes signature regions. Input: a registration of any kind and a sequence of copies out of and
// into it. A model repeats each copy byte by byte on its own memory.
#include <cstdint>
#include <cstring>
#include <vector>

#include "memory/copy.h"
#include "memory/integrity.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

namespace roci::memory {
namespace {

using fuzz::Input;

constexpr uint64_t kMemory = 64 * 1024;
constexpr uint64_t kVa = 0x7000'0000;
constexpr uint64_t kIova = 0x1000;
constexpr AccessContext kContext{1, 2};

// A second, slow implementation of t10_dif.h.
struct Model {
  static uint16_t GuardOf(const DifDomain& domain, const std::vector<uint8_t>& data) {
    uint32_t sum = domain.seed;
    for (size_t i = 0; i < data.size(); ++i) {
      if (domain.guard == GuardKind::kChecksum) {
        sum += i % 2 == 0 ? data[i] << 8u : data[i];
        if (sum > 0xFFFF) sum -= 0xFFFF;
        continue;
      }
      sum ^= static_cast<uint32_t>(data[i]) << 8;
      for (int bit = 0; bit < 8; ++bit) sum = sum << 1 ^ ((sum & 0x8000) != 0 ? 0x18BB7 : 0);
    }
    return static_cast<uint16_t>(domain.guard == GuardKind::kCrc ? sum : ~sum);
  }

  std::vector<uint8_t> memory = std::vector<uint8_t>(kMemory);
  IntegrityAttributes attributes;
  std::vector<uint32_t> data;        // location of each byte of the runs
  std::vector<uint32_t> protection;  // empty: behind each block
  uint64_t next = UINT64_MAX;
  std::vector<uint8_t> arrived;  // received bytes of the block
  IntegrityError error;

  uint32_t wire_stride() const {
    return attributes.block_size + (attributes.wire.is_present ? 8 : 0);
  }
  bool is_interleaved() const { return attributes.memory.is_present && protection.empty(); }
  uint8_t& DataByte(uint64_t block, uint32_t at) {
    return memory[data[block * (attributes.block_size + (is_interleaved() ? 8 : 0)) + at]];
  }
  uint8_t& DifByte(uint64_t block, uint32_t at) {
    return is_interleaved() ? DataByte(block, attributes.block_size + at)
                            : memory[protection[block * 8 + at]];
  }
  static Dif ToDif(const uint8_t* at) {
    return {static_cast<uint16_t>(at[0] << 8 | at[1]), static_cast<uint16_t>(at[2] << 8 | at[3]),
            static_cast<uint32_t>(at[4]) << 24 | static_cast<uint32_t>(at[5] << 16 | at[6] << 8) |
                at[7]};
  }
  static uint8_t ByteOf(const Dif& dif, uint32_t at) {
    const uint64_t word = static_cast<uint64_t>(dif.guard) << 48 |
                          static_cast<uint64_t>(dif.application_tag) << 32 | dif.reference_tag;
    return static_cast<uint8_t>(word >> (8 * (7 - at)));
  }
  static uint32_t Reference(const DifDomain& domain, uint64_t block) {
    return domain.reference_tag + static_cast<uint32_t>(domain.reference_counts ? block : 0);
  }
  Dif Make(const DifDomain& to, uint64_t block, const std::vector<uint8_t>& bytes,
           const DifDomain& from, const Dif& dif) const {
    Dif out{GuardOf(to, bytes), to.application_tag, Reference(to, block)};
    if (!from.is_present) return out;
    if (from.guard == to.guard && from.seed == to.seed) out.guard = dif.guard;
    if (from.application_tag == to.application_tag) out.application_tag = dif.application_tag;
    if (from.reference_tag == to.reference_tag && from.reference_counts == to.reference_counts) {
      out.reference_tag = dif.reference_tag;
    }
    return out;
  }
  void Check(const DifDomain& domain, uint64_t block, const std::vector<uint8_t>& bytes,
             const Dif& dif, uint32_t key) {
    if (error.what.fault != DifFault::kNone) return;
    const bool app = dif.application_tag == 0xFFFF;
    if (domain.escape == DifEscape::kApplicationTag && app) return;
    if (domain.escape == DifEscape::kBothTags && app && dif.reference_tag == UINT32_MAX) return;
    const uint16_t guard = GuardOf(domain, bytes);
    const uint32_t reference = Reference(domain, block);
    if (attributes.checks.guard && guard != dif.guard) {
      error.what = {DifFault::kGuard, guard, dif.guard};
    } else if (attributes.checks.reference_tag && reference != dif.reference_tag) {
      error.what = {DifFault::kReferenceTag, reference, dif.reference_tag};
    } else if (attributes.checks.application_tag &&
               (domain.application_tag & domain.application_mask) !=
                   (dif.application_tag & domain.application_mask)) {
      error.what = {DifFault::kApplicationTag, domain.application_tag, dif.application_tag};
    } else {
      return;
    }
    error.offset = block * wire_stride();
    error.key = key;
  }

  std::vector<uint8_t> Out(uint64_t offset, uint32_t length, uint32_t key) {
    std::vector<uint8_t> out;
    for (; length > 0; --length, ++offset) {
      const uint64_t block = offset / wire_stride();
      const auto at = static_cast<uint32_t>(offset % wire_stride());
      std::vector<uint8_t> bytes;
      for (uint32_t i = 0; i < attributes.block_size && at + 9 >= wire_stride(); ++i) {
        bytes.push_back(DataByte(block, i));
      }
      uint8_t stored[8] = {};
      for (uint32_t i = 0; i < 8 && attributes.memory.is_present; ++i) {
        stored[i] = DifByte(block, i);
      }
      if (at < attributes.block_size) {
        out.push_back(DataByte(block, at));
      } else {
        const Dif dif = Make(attributes.wire, block, bytes, attributes.memory, ToDif(stored));
        out.push_back(ByteOf(dif, at - attributes.block_size));
      }
      if (at + 1 == wire_stride() && attributes.memory.is_present) {
        Check(attributes.memory, block, bytes, ToDif(stored), key);
      }
    }
    return out;
  }

  MemoryStatus In(uint64_t offset, const std::vector<uint8_t>& in, uint32_t key) {
    for (const uint8_t byte : in) {
      const uint64_t block = offset / wire_stride();
      const auto at = static_cast<uint32_t>(offset % wire_stride());
      if (at == 0) {
        arrived.clear();
      } else if (offset != next) {
        return MemoryStatus::kOutOfBounds;
      }
      arrived.push_back(byte);
      if (at < attributes.block_size) DataByte(block, at) = byte;
      next = ++offset;
      if (at + 1 == wire_stride()) Finish(block, key);
    }
    return MemoryStatus::kOk;
  }
  void Finish(uint64_t block, uint32_t key) {
    Dif dif;
    if (attributes.wire.is_present) dif = ToDif(&arrived[attributes.block_size]);
    arrived.resize(attributes.block_size);
    if (attributes.wire.is_present) Check(attributes.wire, block, arrived, dif, key);
    if (!attributes.memory.is_present) return;
    const Dif made = Make(attributes.memory, block, arrived, attributes.wire, dif);
    for (uint32_t i = 0; i < 8; ++i) DifByte(block, i) = ByteOf(made, i);
  }
};

class Machine {
 public:
  Machine(const std::shared_ptr<MappedFile>& file, Input input)
      : input_(input), memory_(reinterpret_cast<uint8_t*>(file->At(0))) {
    for (uint64_t i = 0; i < kMemory; ++i) {
      memory_[i] = model_.memory[i] = static_cast<uint8_t>(i * 7 >> 3);
    }
    Translation translation{kVa, kMemory, kVa, {{kVa, kMemory, file, 0}}};
    CHECK(table_.Register(1, Access::kLocalWrite, translation, &region_) == MemoryStatus::kOk);
    CHECK(table_.AllocateIntegrity(1, 8, 4, &key_) == MemoryStatus::kOk);
  }

  void Run() {
    if (!Register()) return;
    for (int steps = 0; steps < 40 && !input_.empty(); ++steps) {
      const auto what = input_.Take<uint8_t>();
      // Usually where the last copy ended.
      uint64_t offset = what % 4 == 0 ? input_.Take<uint16_t>() % bytes_ : last_ % bytes_;
      if (what % 8 == 4) offset -= offset % model_.wire_stride();
      const auto length = static_cast<uint32_t>(1 + input_.Take<uint16_t>() %
                                                        std::min<uint64_t>(bytes_ - offset, 1500));
      if ((what & 16) != 0) {
        Out(offset, length);
      } else {
        In(offset, length);
      }
      last_ = offset + length;
      if ((what & 32) != 0) CompareErrors();
    }
    CompareErrors();
    CHECK(std::memcmp(memory_, model_.memory.data(), kMemory) == 0);
  }

 private:
  DifDomain TakeDomain() {
    DifDomain domain;
    const auto bits = input_.Take<uint8_t>();
    domain.is_present = (bits & 3) != 0;
    domain.guard = (bits & 4) != 0 ? GuardKind::kChecksum : GuardKind::kCrc;
    domain.reference_counts = (bits & 8) != 0;
    domain.escape = static_cast<DifEscape>(bits / 16 % 3);
    domain.seed = (bits & 128) != 0 ? input_.Take<uint16_t>() : 0;
    domain.application_tag = input_.Take<uint8_t>() % 4;
    domain.application_mask = (bits & 64) != 0 ? input_.Take<uint16_t>() : 0xFFFF;
    domain.reference_tag = input_.Take<uint8_t>() % 4;
    return domain;
  }
  // Runs that usually add up to `total` bytes.
  std::vector<ListRun> TakeRuns(uint32_t count, uint64_t total) {
    std::vector<ListRun> runs;
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t at = input_.Take<uint16_t>();
      uint64_t length = input_.Take<uint16_t>() % 5000;
      if (i + 1 == count && input_.Take<uint8_t>() % 8 != 0) length = total;
      length = std::min(length, kMemory - at);
      runs.push_back({kVa + at, static_cast<uint32_t>(length), region_});
      total -= std::min(total, length);
    }
    return runs;
  }
  static std::vector<uint32_t> Places(const std::vector<ListRun>& runs) {
    std::vector<uint32_t> places;
    for (const ListRun& run : runs) {
      for (uint32_t i = 0; i < run.length; ++i) {
        places.push_back(static_cast<uint32_t>(run.address - kVa) + i);
      }
    }
    return places;
  }

  bool Register() {
    IntegrityAttributes& attributes = model_.attributes;
    const auto size = input_.Take<uint8_t>();
    attributes.block_size =
        size < 250 ? kIntegrityBlockSizes[size % kIntegrityBlockSizes.size()] : size;
    const auto checks = input_.Take<uint8_t>();
    attributes.checks = {(checks & 1) != 0, (checks & 2) != 0, (checks & 4) != 0};
    attributes.memory = TakeDomain();
    attributes.wire = TakeDomain();
    const uint64_t blocks = 1 + input_.Take<uint8_t>() % 6;
    const uint32_t protection_count = input_.Take<uint8_t>() % 5;
    const bool is_interleaved = attributes.memory.is_present && protection_count == 0;
    const std::vector<ListRun> data =
        TakeRuns(1 + input_.Take<uint8_t>() % 8,
                 blocks * (attributes.block_size + (is_interleaved ? 8 : 0)));
    const std::vector<ListRun> protection = TakeRuns(protection_count, blocks * 8);
    constexpr Access kRights = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead;
    const MemoryStatus status =
        table_.RegisterList({key_, kRights, kIova, data, &attributes, protection}, kContext);
    CHECK(status == MemoryStatus::kOk || status == MemoryStatus::kInvalidArgument ||
          status == MemoryStatus::kOutOfBounds);
    model_.data = Places(data);
    model_.protection = Places(protection);
    const uint64_t stride = attributes.block_size + (is_interleaved ? 8 : 0);
    const uint64_t whole = model_.data.size() / stride;
    bool is_good = IsIntegrityBlockSize(attributes.block_size) && whole != 0 &&
                   model_.data.size() % stride == 0;
    for (const ListRun& run : data) is_good = is_good && run.length != 0;
    for (const ListRun& run : protection) is_good = is_good && run.length != 0;
    if (protection_count != 0) {
      is_good = is_good && attributes.memory.is_present && model_.protection.size() == whole * 8;
    }
    CHECK(is_good == (status == MemoryStatus::kOk));
    bytes_ = whole * model_.wire_stride();
    return is_good;
  }

  void Resolve(uint64_t offset, uint32_t length, Access need, SegmentList& out) {
    CHECK(table_.Resolve(key_, kContext, kIova + offset, length, need, out) == MemoryStatus::kOk);
    CHECK(out.total_length() == length);
  }
  void Out(uint64_t offset, uint32_t length) {
    SegmentList segments;
    Resolve(offset, length, Access::kRemoteRead, segments);
    std::vector<uint8_t> out(length);
    CHECK(CopyOut(segments, std::as_writable_bytes(std::span(out))) == MemoryStatus::kOk);
    CHECK(out == model_.Out(offset, length, key_));
  }
  // Bytes as a peer with the same memory sends them, sometimes corrupted.
  void In(uint64_t offset, uint32_t length) {
    const IntegrityError before = model_.error;
    std::vector<uint8_t> in = model_.Out(offset, length, key_);
    model_.error = before;
    for (uint32_t damages = input_.Take<uint8_t>() % 4; damages > 0; --damages) {
      in[input_.Take<uint16_t>() % length] ^= input_.Take<uint8_t>();
    }
    SegmentList segments;
    Resolve(offset, length, Access::kRemoteWrite, segments);
    CHECK(CopyIn(segments, std::as_bytes(std::span(in))) == model_.In(offset, in, key_));
  }
  void CompareErrors() {
    IntegrityError error;
    CHECK(table_.TakeIntegrityError(key_ >> 8, &error) == MemoryStatus::kOk);
    CHECK(error.what.fault == model_.error.what.fault);
    CHECK(error.what.expected == model_.error.what.expected);
    CHECK(error.what.actual == model_.error.what.actual);
    CHECK(error.offset == model_.error.offset);
    CHECK(error.key == model_.error.key);
    model_.error = {};
  }

  Input input_;
  uint8_t* memory_;
  Model model_;
  KeyTable table_{nullptr, 4};
  uint32_t region_ = 0;
  uint32_t key_ = 0;
  uint64_t bytes_ = 0;
  uint64_t last_ = 0;
};

}  // namespace
}  // namespace roci::memory

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto file = roci::fuzz::MakeMemoryFile(roci::memory::kMemory);
  roci::memory::Machine(file, {data, size}).Run();
  return 0;
}
