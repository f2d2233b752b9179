// Fuzzes gate 4. Input: a sequence of registrations and lookups. Every resulting segment is
// compared with a model of the registered regions.
#include <cstdint>
#include <map>
#include <vector>

#include "memory/key_table.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

namespace roci::memory {
namespace {

using fuzz::Input;

constexpr uint64_t kFileLength = 4 * 4096;
const auto* const kApp = reinterpret_cast<const AppMemory*>(0x1000);

class Machine {
 public:
  Machine(const std::shared_ptr<MappedFile>& file, Input input) : file_(file), input_(input) {}

  void Run() {
    for (int steps = 0; steps < 2000 && !input_.empty(); ++steps) {
      switch (input_.Take<uint8_t>() % 12) {
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
        case 5:
          Drop();
          break;
        case 8:
          ChangeWindows();
          break;
        case 9:
          Bind();
          break;
        case 10:
          Invalidate();
          break;
        case 11:
          LookUpWindow();
          break;
        default:
          Lookup();
      }
      CHECK(table_.size() == models_.size() + windows_.size());
    }
  }

 private:
  struct Model {
    uint32_t pd;
    Access access;
    Translation translation;
    uint32_t windows = 0;
  };
  struct Window {
    uint32_t pd;
    WindowType type;
    uint32_t key;
    // Set while the window is bound; otherwise `region` is 0.
    uint32_t region = 0;
    uint32_t qpn = 0;
    Access access = Access::kNone;
    uint64_t start = 0;   // address of its first byte, for its users
    uint64_t offset = 0;  // of that byte in the region
    uint64_t length = 0;
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
    // Usually makes the range fit; otherwise few would be accepted.
    if (!translation.extents.empty() && input_.Take<uint8_t>() % 8 != 0) {
      translation.length = va - translation.va;
    }
    return translation;
  }

  Access TakeAccess() {
    auto access = static_cast<Access>(input_.Take<uint32_t>());
    if (input_.Take<uint8_t>() % 8 != 0) access = (access & Access{0x1F}) | Access::kLocalWrite;
    return access;
  }

  uint32_t TakeKey() {
    if (models_.empty() || input_.Take<uint8_t>() % 8 == 0) {
      const auto key = input_.Take<uint32_t>();
      for (const Window& window : windows_) {
        if (window.key == key) return 0;  // windows have separate lookups
      }
      return key;
    }
    auto at = models_.begin();
    std::advance(at, input_.Take<uint8_t>() % models_.size());
    return at->first;
  }

  void Register() {
    Model model{input_.Take<uint8_t>() % 3U, TakeAccess(), TakeTranslation(), 0};
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
    const auto model = models_.find(key);
    const MemoryStatus status = table_.Deregister(key, &released);
    if (model == models_.end()) {
      CHECK(status == MemoryStatus::kBadKey);
    } else if (model->second.windows != 0) {
      CHECK(status == MemoryStatus::kInUse);
    } else {
      CHECK(status == MemoryStatus::kOk);
      models_.erase(model);
    }
  }

  void Drop() {
    const uint32_t key = TakeKey();
    ReleasedMappings released;
    const MemoryStatus status = table_.Drop(key, &released);
    CHECK(status == (models_.contains(key) ? MemoryStatus::kOk : MemoryStatus::kBadKey));
    for (Window& window : windows_) {
      if (window.region == key) window.region = 0;
    }
    models_.erase(key);
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
    CHECK(model->second.windows == 0);
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

  Window* TakeWindow() {
    if (windows_.empty()) return nullptr;
    return &windows_[input_.Take<uint8_t>() % windows_.size()];
  }

  // Usually of the window's domain.
  AccessContext TakeContext(const Window& window) {
    const auto choice = input_.Take<uint8_t>();
    return {choice % 8 == 0 ? choice % 3U : window.pd, choice / 8 % 2U};
  }

  void Unbind(Window& window) {
    if (window.region != 0) --models_.at(window.region).windows;
    window.region = 0;
  }

  void ChangeWindows() {
    if (windows_.size() < 6 && input_.Take<uint8_t>() % 4 != 0) {
      Window window{};
      window.pd = input_.Take<uint8_t>() % 3U;
      window.type = input_.Take<uint8_t>() % 2 == 0 ? WindowType::kType1 : WindowType::kType2;
      const MemoryStatus status = table_.AllocateWindow(window.pd, window.type, &window.key);
      CHECK(status == MemoryStatus::kOk || status == MemoryStatus::kTableFull);
      if (status == MemoryStatus::kOk) windows_.push_back(window);
      return;
    }
    if (input_.Take<uint8_t>() % 2 == 0) {
      const uint32_t qpn = input_.Take<uint8_t>() % 3U;
      table_.ReleaseWindowsOf(qpn);
      for (Window& window : windows_) {
        if (window.type == WindowType::kType2 && window.qpn == qpn) Unbind(window);
      }
      return;
    }
    Window* window = TakeWindow();
    if (window == nullptr) return;
    CHECK(table_.DeallocateWindow(window->key >> 8) == MemoryStatus::kOk);
    Unbind(*window);
    windows_.erase(windows_.begin() + (window - windows_.data()));
  }

  void Bind() {
    Window* window = TakeWindow();
    if (window == nullptr) return;
    const uint32_t region = TakeKey();
    const auto model = models_.find(region);
    WindowBinding binding{};
    binding.window = window->key >> 8;
    binding.new_key = (window->key & ~0xFFu) | input_.Take<uint8_t>();
    binding.region_key = region;
    binding.access = static_cast<Access>(input_.Take<uint8_t>());
    if (input_.Take<uint8_t>() % 8 != 0) binding.access = binding.access & Access{0x2F};
    binding.length = input_.Take<uint16_t>() % 512;
    binding.address = input_.Take<uint16_t>() % 512;
    if (model != models_.end()) binding.address += model->second.translation.iova;
    const AccessContext context = TakeContext(*window);
    if (table_.BindWindow(binding, context) != MemoryStatus::kOk) return;
    CHECK(window->pd == context.pd);
    const bool type2 = window->type == WindowType::kType2;
    CHECK(!type2 || (window->region == 0 && binding.length != 0));
    Unbind(*window);
    window->key = binding.new_key;
    if (binding.length == 0) return;
    CHECK(model != models_.end() && model->second.pd == window->pd);
    CHECK(Includes(model->second.access, Access::kWindowBind));
    const Access changes = Access::kRemoteWrite | Access::kRemoteAtomic;
    CHECK((binding.access & changes) == Access::kNone ||
          Includes(model->second.access, Access::kLocalWrite));
    const uint64_t offset = binding.address - model->second.translation.iova;
    CHECK(static_cast<unsigned __int128>(offset) + binding.length <=
          model->second.translation.length);
    const bool zero_based = Includes(binding.access, Access::kZeroBased);
    CHECK(!zero_based || type2);
    ++model->second.windows;
    window->region = region;
    window->qpn = context.qpn;
    window->access = binding.access & Access{0xE};
    window->start = zero_based ? 0 : binding.address;
    window->offset = offset;
    window->length = binding.length;
  }

  void Invalidate() {
    Window* window = TakeWindow();
    const uint32_t key = window == nullptr ? TakeKey() : window->key;
    const AccessContext context{input_.Take<uint8_t>() % 3U, input_.Take<uint8_t>() % 3U};
    const MemoryStatus status = table_.Invalidate(key, context);
    const bool may = window != nullptr && window->type == WindowType::kType2 &&
                     window->pd == context.pd &&
                     (window->region == 0 || window->qpn == context.qpn);
    CHECK((status == MemoryStatus::kOk) == may);
    if (may) Unbind(*window);
  }

  void LookUpWindow() {
    const Window* window = TakeWindow();
    if (window == nullptr) return;
    const AccessContext context = TakeContext(*window);
    const auto need = static_cast<Access>(input_.Take<uint8_t>() & 15);
    const uint64_t address = window->start + input_.Take<uint16_t>() % 512;
    const uint32_t length = input_.Take<uint16_t>() % 512 + 1U;
    SegmentList segments;
    const MemoryStatus status =
        table_.Resolve(window->key, context, address, length, need, segments);
    CHECK(status == table_.Check(window->key, context, address, length, need));
    const bool fits = address - window->start + length <= window->length;
    const bool may = window->region != 0 && window->pd == context.pd &&
                     (window->type == WindowType::kType1 || window->qpn == context.qpn) &&
                     need != Access::kNone && Includes(window->access, need) && fits;
    CHECK((status == MemoryStatus::kOk) == may);
    if (!may) return;
    const Translation& translation = models_.at(window->region).translation;
    uint64_t offset = window->offset + (address - window->start);
    for (const Segment& segment : segments) {
      CheckByte(translation, offset, segment, 0);
      CheckByte(translation, offset + segment.length - 1, segment, segment.length - 1);
      offset += segment.length;
    }
  }

  // The model's location of the byte at `offset` of the region.
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
  std::vector<Window> windows_;
};

}  // namespace
}  // namespace roci::memory

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto file = roci::fuzz::MakeMemoryFile(roci::memory::kFileLength);
  roci::memory::Machine(file, {data, size}).Run();
  return 0;
}
