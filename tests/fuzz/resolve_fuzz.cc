// Fuzzes gate 4: the input is a program of registrations and lookups; every segment that comes out
// is compared with a model of what the app registered.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "memory/key_table.h"

namespace roci::memory {
namespace {

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                  \
    }                                                                                \
  } while (false)

constexpr uint64_t kFileLength = 4 * 4096;
const auto* const kApp = reinterpret_cast<const AppMemory*>(0x1000);

std::shared_ptr<MappedFile> MakeFile() {
  const int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK(ftruncate(fd, kFileLength) == 0);
  CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  int error = 0;
  auto mapped = MappedFile::Map(fd, 0, kFileLength, true, &error);
  CHECK(mapped != nullptr);
  close(fd);
  return mapped;
}

// Takes numbers from the front of the input; zeros once it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  template <class T>
  T Take() {
    T value{};
    const size_t n = size_ < sizeof value ? size_ : sizeof value;
    std::memcpy(&value, data_, n);
    data_ += n;
    size_ -= n;
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

class Machine {
 public:
  Machine(const std::shared_ptr<MappedFile>& file, Input input) : file_(file), input_(input) {}

  void Run() {
    for (int steps = 0; steps < 2000 && !input_.empty(); ++steps) {
      switch (input_.Take<uint8_t>() % 8) {
        case 0:
        case 1:
          Register();
          break;
        case 2:
          Deregister();
          break;
        case 3:
          Reregister();
          break;
        case 4:
          UseProcessVm();
          break;
        default:
          Lookup();
      }
      CHECK(table_.size() == models_.size());
    }
  }

 private:
  struct Model {
    uint32_t pd;
    Access access;
    Translation translation;
  };

  Translation TakeTranslation() {
    Translation translation;
    translation.va = input_.Take<uint64_t>();
    translation.length = input_.Take<uint16_t>();
    translation.iova = input_.Take<uint8_t>() % 2 == 0 ? translation.va : input_.Take<uint64_t>();
    uint64_t va = translation.va;
    for (uint32_t i = input_.Take<uint8_t>() % 5; i > 0; --i) {
      Extent extent{va, input_.Take<uint16_t>(), nullptr, 0};
      if (input_.Take<uint8_t>() % 2 == 0) {
        extent.mapping = file_;
        extent.file_offset = input_.Take<uint16_t>() % kFileLength;
      }
      va += extent.length;
      translation.extents.push_back(extent);
    }
    // Mostly make it fit, else hardly any would be accepted.
    if (!translation.extents.empty() && input_.Take<uint8_t>() % 8 != 0) {
      translation.length = va - translation.va;
    }
    return translation;
  }

  Access TakeAccess() {
    auto access = static_cast<Access>(input_.Take<uint32_t>());
    if (input_.Take<uint8_t>() % 8 != 0) access = (access & Access{15}) | Access::kLocalWrite;
    return access;
  }

  uint32_t TakeKey() {
    if (models_.empty() || input_.Take<uint8_t>() % 8 == 0) return input_.Take<uint32_t>();
    auto at = models_.begin();
    std::advance(at, input_.Take<uint8_t>() % models_.size());
    return at->first;
  }

  void Register() {
    Model model{input_.Take<uint8_t>() % 3U, TakeAccess(), TakeTranslation()};
    uint32_t key = 0;
    const MemoryStatus status = table_.Register(model.pd, model.access, model.translation, &key);
    CHECK(status == MemoryStatus::kOk || status == MemoryStatus::kTableFull ||
          status == MemoryStatus::kInvalidArgument);
    if (status != MemoryStatus::kOk) return;
    CHECK(key != 0);
    CHECK(models_.emplace(key, model).second);
  }

  void Deregister() {
    const uint32_t key = TakeKey();
    ReleasedMappings released;
    const bool known = models_.erase(key) == 1;
    CHECK((table_.Deregister(key, &released) == MemoryStatus::kOk) == known);
  }

  void Reregister() {
    const uint32_t key = TakeKey();
    RegionChange change;
    const uint8_t what = input_.Take<uint8_t>();
    if ((what & 1) != 0) change.pd = input_.Take<uint8_t>() % 3U;
    if ((what & 2) != 0) change.access = TakeAccess();
    if ((what & 4) != 0) change.translation = TakeTranslation();
    ReleasedMappings released;
    const MemoryStatus status = table_.Reregister(key, change, &released);
    const auto model = models_.find(key);
    CHECK((status == MemoryStatus::kBadKey) == (model == models_.end()));
    if (status != MemoryStatus::kOk) return;
    model->second.pd = change.pd.value_or(model->second.pd);
    model->second.access = change.access.value_or(model->second.access);
    if (change.translation) model->second.translation = *change.translation;
  }

  void UseProcessVm() {
    const uint64_t va = input_.Take<uint64_t>();
    const uint64_t length = input_.Take<uint32_t>();
    ReleasedMappings released;
    table_.UseProcessVm(va, length, &released);
    for (auto& [key, model] : models_) {
      for (Extent& extent : model.translation.extents) {
        const auto first = static_cast<unsigned __int128>(extent.va);
        const auto other = static_cast<unsigned __int128>(va);
        // A range that wraps ends at the top; an empty one holds nothing.
        if (length != 0 && first < other + length && other < first + extent.length) {
          extent.mapping = nullptr;
        }
      }
    }
  }

  // Where the model says that the byte at `offset` of the region is.
  static void CheckByte(const Translation& translation, uint64_t offset, const Segment& segment,
                        uint32_t at) {
    for (const Extent& extent : translation.extents) {
      const uint64_t skip = extent.va - translation.va;
      if (offset < skip || offset - skip >= extent.length || extent.mapping == nullptr) continue;
      CHECK(segment.direct + at == extent.mapping->At(extent.file_offset) + (offset - skip));
      return;
    }
    CHECK(segment.direct == nullptr);
    CHECK(segment.remote_va + at == translation.va + offset);
  }

  void Lookup() {
    const uint32_t key = TakeKey();
    const auto model = models_.find(key);
    const AccessContext context{input_.Take<uint8_t>() % 3U, 0};
    const auto need = static_cast<Access>(input_.Take<uint8_t>() & 15);
    uint64_t address =
        input_.Take<uint8_t>() % 4 == 0 ? input_.Take<uint64_t>() : input_.Take<uint16_t>();
    if (model != models_.end()) address += model->second.translation.iova;
    const uint32_t length =
        input_.Take<uint8_t>() % 8 == 0 ? input_.Take<uint32_t>() : input_.Take<uint16_t>();
    SegmentList segments;
    const MemoryStatus status = table_.Resolve(key, context, address, length, need, segments);
    CHECK(status == table_.Check(key, context, address, length, need));
    CHECK((status == MemoryStatus::kBadKey) == (model == models_.end()));
    CHECK(segments.total_length() == (status == MemoryStatus::kOk ? length : 0));
    if (status != MemoryStatus::kOk) return;
    const Translation& translation = model->second.translation;
    CHECK(model->second.pd == context.pd);
    CHECK(Includes(model->second.access, need));
    uint64_t offset = address - translation.iova;
    CHECK(static_cast<unsigned __int128>(offset) + length <= translation.length);
    for (const Segment& segment : segments) {
      CHECK(segment.length > 0);
      CheckByte(translation, offset, segment, 0);
      CheckByte(translation, offset + segment.length - 1, segment, segment.length - 1);
      offset += segment.length;
    }
  }

  std::shared_ptr<MappedFile> file_;
  Input input_;
  KeyTable table_{kApp, 20};
  std::map<uint32_t, Model> models_;
};

}  // namespace
}  // namespace roci::memory

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto file = roci::memory::MakeFile();
  roci::memory::Machine(file, {data, size}).Run();
  return 0;
}
