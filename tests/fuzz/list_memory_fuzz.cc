// Fuzzes gates 2 and 4 for list regions: a program that writes any bytes into the memory of its
// lists, and requests that name them. Input: a sequence of registrations and lookups, each compared
// with a model of the lists and regions.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include "dataplane/rings/list_memory.h"
#include "memory/key_table.h"
#include "tests/fuzz/fuzz.h"
#include "tests/on_shard.h"
#include "verbs_provider/abi/rings.h"

namespace roci::dataplane {
namespace {

using fuzz::Input;
using memory::Access;
using memory::AccessContext;
using memory::KeyTable;
using memory::ListRun;
using memory::MemoryStatus;

const OnShard& kShard = OnShardInTests::Token();
const auto* const kApp = reinterpret_cast<const memory::AppMemory*>(0x1000);
constexpr Access kRights{0xF};
constexpr Access kWriters = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteAtomic;

// True one time in eight.
bool Rarely(Input& input) { return input.Take<uint8_t>() % 8 == 0; }

class Machine {
 public:
  explicit Machine(Input input) : input_(input) {}

  void Run() {
    for (int steps = 0; steps < 2000 && !input_.empty(); ++steps) {
      switch (input_.Take<uint8_t>() % 12) {
        case 0:
          AddRegion();
          break;
        case 1:
          ChangeRegion();
          break;
        case 2:
          AddList();
          break;
        case 3:
          DropList();
          break;
        case 4:
          Poke();
          break;
        case 5:
          Invalidate();
          break;
        case 6:
        case 7:
        case 8:
          Register();
          break;
        default:
          LookUp();
      }
      CHECK(table_.size() == regions_.size() + lists_.size());
    }
  }

 private:
  struct Region {
    uint32_t pd;
    Access access;
    uint64_t va;
    uint64_t iova;
    uint64_t length;
  };
  struct List {
    uint32_t pd;
    uint32_t max_runs;
    Fd app;  // as the program has the memory
    uint32_t key;
    bool is_registered = false;
    Access access = Access::kNone;
    uint64_t iova = 0;
    std::vector<ListRun> runs;
    uint64_t length = 0;
  };

  template <class T>
  typename std::map<uint32_t, T>::iterator Any(std::map<uint32_t, T>& from) {
    if (from.empty()) return from.end();
    return std::next(from.begin(), input_.Take<uint8_t>() % from.size());
  }
  uint32_t TakePd() { return Rarely(input_) ? 2 : 1; }
  Access TakeAccess() {
    if (Rarely(input_)) return static_cast<Access>(input_.Take<uint32_t>());
    return (static_cast<Access>(input_.Take<uint8_t>()) & kRights) | Access::kLocalWrite;
  }

  Region TakeRegion() {
    Region region{};
    region.pd = TakePd();
    region.access = Rarely(input_) ? Access::kNone : Access::kLocalWrite;
    region.va = 0x10000 * (input_.Take<uint8_t>() + 1u);
    region.iova = input_.Take<uint8_t>() % 2 == 0 ? region.va : input_.Take<uint32_t>();
    region.length = input_.Take<uint16_t>();
    return region;
  }
  void AddRegion() {
    const Region region = TakeRegion();
    uint32_t key = 0;
    const MemoryStatus status = table_.Register(region.pd, region.access,
                                                {region.va, region.length, region.iova, {}}, &key);
    if (status == MemoryStatus::kOk) regions_.emplace(key, region);
  }
  // Lists that name the region must detect the change.
  void ChangeRegion() {
    const auto found = Any(regions_);
    if (found == regions_.end()) return;
    memory::ReleasedMappings released;
    if (input_.Take<uint8_t>() % 2 == 0) {
      CHECK(table_.Deregister(found->first, &released) == MemoryStatus::kOk);
      regions_.erase(found);
      return;
    }
    const Region region = TakeRegion();
    memory::RegionChange change;
    change.pd = region.pd;
    change.access = region.access;
    change.translation = memory::Translation{region.va, region.length, region.iova, {}};
    const MemoryStatus status = table_.Reregister(found->first, change, &released);
    if (status == MemoryStatus::kOk) found->second = region;
  }

  void AddList() {
    List list{};
    list.pd = TakePd();
    list.max_runs = input_.Take<uint8_t>() % 8 + 1u;
    if (table_.AllocateList(list.pd, list.max_runs, &list.key) != MemoryStatus::kOk) return;
    const ListRoom room{.max_runs = list.max_runs};
    auto memory = ListMemory::Create(room);
    CHECK(memory.ok());
    list.app = (*memory)->TakeFd();
    const uint32_t number = list.key >> 8;
    memory_.Add(kShard, number, *std::move(memory), room);
    CHECK(lists_.emplace(number, std::move(list)).second);
  }
  void DropList() {
    const auto found = Any(lists_);
    if (found == lists_.end()) return;
    CHECK(memory_.Remove(kShard, found->first) != nullptr);
    CHECK(memory_.Remove(kShard, found->first) == nullptr);
    CHECK(table_.FreeList(found->first) == MemoryStatus::kOk);
    lists_.erase(found);
  }

  // The program writes a run, usually of an existing region.
  void Poke() {
    const auto list = Any(lists_);
    if (list == lists_.end()) return;
    roci_abi_sge run{};
    const auto region = Any(regions_);
    if (region == regions_.end() || Rarely(input_)) {
      run = {input_.Take<uint64_t>(), input_.Take<uint32_t>(), input_.Take<uint32_t>()};
    } else {
      run.va = region->second.iova + input_.Take<uint8_t>();
      run.length = input_.Take<uint8_t>();
      run.lkey = region->first;
      if (Rarely(input_) && !lists_.empty()) run.lkey = Any(lists_)->second.key;
    }
    const off_t at =
        static_cast<off_t>(input_.Take<uint8_t>() % list->second.max_runs * sizeof(roci_abi_sge));
    CHECK(pwrite(list->second.app.get(), &run, sizeof(run), at) == sizeof(run));
  }

  const Region* RegionFor(const ListRun& run, uint32_t pd, bool writes) const {
    const auto found = regions_.find(run.lkey);
    if (found == regions_.end()) return nullptr;
    const Region& region = found->second;
    const uint64_t offset = run.address - region.iova;
    const bool may = region.pd == pd && (!writes || Includes(region.access, Access::kLocalWrite)) &&
                     offset < region.length && run.length <= region.length - offset;
    return may ? &region : nullptr;
  }

  // Reads the list as a registration would; false if it must be refused.
  bool Expect(const List& list, const roce::SendWqe& wqe, const AccessContext& context,
              std::vector<ListRun>* runs, uint64_t* length) const {
    const auto access = static_cast<Access>(wqe.list.access);
    const bool changes = (access & (Access::kRemoteWrite | Access::kRemoteAtomic)) != Access::kNone;
    if (list.is_registered || list.pd != context.pd || wqe.list.runs == 0 ||
        wqe.list.runs > list.max_runs || !Includes(kRights, access) ||
        (changes && !Includes(access, Access::kLocalWrite))) {
      return false;
    }
    for (uint64_t i = 0; i < wqe.list.runs; ++i) {
      roci_abi_sge sge;
      const off_t at = static_cast<off_t>(i * sizeof(sge));
      CHECK(pread(list.app.get(), &sge, sizeof(sge), at) == sizeof(sge));
      const ListRun run{sge.va, sge.length, sge.lkey};
      if (run.length == 0 ||
          RegionFor(run, list.pd, (access & kWriters) != Access::kNone) == nullptr) {
        return false;
      }
      runs->push_back(run);
      *length += run.length;
    }
    return wqe.list.iova + (*length - 1) >= wqe.list.iova;
  }

  void Register() {
    roce::SendWqe wqe{};
    const auto found = Any(lists_);
    wqe.list.list =
        found == lists_.end() || Rarely(input_) ? input_.Take<uint32_t>() : found->first;
    wqe.list.new_key = wqe.list.list << 8 | input_.Take<uint8_t>();
    if (Rarely(input_)) wqe.list.new_key = input_.Take<uint32_t>();
    wqe.list.runs = Rarely(input_) ? input_.Take<uint64_t>() : input_.Take<uint8_t>() % 4;
    wqe.list.access = static_cast<uint32_t>(TakeAccess());
    wqe.list.iova =
        Rarely(input_) ? ~uint64_t{0} - input_.Take<uint8_t>() : input_.Take<uint32_t>();
    const AccessContext context{TakePd(), 17};
    const MemoryStatus status = memory_.Register(kShard, table_, wqe, context);

    const auto list = lists_.find(wqe.list.list);
    if (list == lists_.end() || wqe.list.new_key >> 8 != wqe.list.list) {
      CHECK(status == MemoryStatus::kBadKey);
      return;
    }
    std::vector<ListRun> runs;
    uint64_t length = 0;
    const bool may = Expect(list->second, wqe, context, &runs, &length);
    CHECK((status == MemoryStatus::kOk) == may);
    if (!may) return;
    List& now = list->second;
    now.is_registered = true;
    now.key = wqe.list.new_key;
    now.access = static_cast<Access>(wqe.list.access);
    now.iova = wqe.list.iova;
    now.runs = std::move(runs);
    now.length = length;
  }

  void Invalidate() {
    const auto found = Any(lists_);
    if (found == lists_.end()) return;
    const AccessContext context{TakePd(), 17};
    const uint32_t key = Rarely(input_) ? input_.Take<uint32_t>() : found->second.key;
    const bool may =
        found->second.is_registered && key == found->second.key && found->second.pd == context.pd;
    const MemoryStatus status = table_.Invalidate(key, context);
    if (key != found->second.key && status == MemoryStatus::kOk) {
      return Forget(lists_.at(key >> 8));  // the key of another list
    }
    CHECK((status == MemoryStatus::kOk) == may);
    if (may) Forget(found->second);
  }
  static void Forget(List& list) {
    list.is_registered = false;
    list.runs.clear();
    list.access = Access::kNone;
    list.iova = list.length = 0;
  }

  void LookUp() {
    const auto found = Any(lists_);
    if (found == lists_.end()) return;
    const List& list = found->second;
    const AccessContext context{TakePd(), 17};
    const auto need = static_cast<Access>(input_.Take<uint8_t>() & 15);
    const uint64_t skip = input_.Take<uint16_t>() % 1024;
    const uint32_t length =
        Rarely(input_) ? input_.Take<uint32_t>() | 1 : input_.Take<uint8_t>() + 1u;
    memory::SegmentList segments;
    const MemoryStatus status =
        table_.Resolve(list.key, context, list.iova + skip, length, need, segments);
    const bool grants = list.is_registered && list.pd == context.pd &&
                        Includes(list.access, need) && skip < list.length &&
                        length <= list.length - skip;
    CHECK(segments.total_length() == (status == MemoryStatus::kOk ? length : 0));
    if (!grants) {
      CHECK(status != MemoryStatus::kOk);
      return;
    }
    std::vector<memory::Segment> wanted;
    const bool may = Pieces(list, skip, length, (need & kWriters) != Access::kNone, &wanted);
    CHECK((status == MemoryStatus::kOk) == may);
    if (!may) return;
    CHECK(segments.size() == wanted.size());
    for (uint32_t i = 0; i < segments.size(); ++i) {
      CHECK(segments[i].direct == nullptr && segments[i].app == kApp);
      CHECK(segments[i].remote_va == wanted[i].remote_va);
      CHECK(segments[i].length == wanted[i].length);
    }
  }

  // Current segments of those bytes of the list. False: a region was deregistered or replaced.
  bool Pieces(const List& list, uint64_t skip, uint64_t length, bool writes,
              std::vector<memory::Segment>* out) const {
    uint64_t begin = 0;
    for (const ListRun& run : list.runs) {
      const uint64_t first = std::max(begin, skip);
      const uint64_t last = std::min(begin + run.length, skip + length);
      if (first < last) {
        const Region* region = RegionFor(run, list.pd, writes);
        if (region == nullptr) return false;
        out->push_back(memory::Segment::Remote(
            kApp, region->va + (run.address - region->iova) + (first - begin),
            static_cast<uint32_t>(last - first)));
      }
      begin += run.length;
    }
    return true;
  }

  Input input_;
  KeyTable table_{kApp, 16};
  ListMemory memory_;
  std::map<uint32_t, Region> regions_;  // by key
  std::map<uint32_t, List> lists_;      // by number
};

}  // namespace
}  // namespace roci::dataplane

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  roci::dataplane::Machine({data, size}).Run();
  return 0;
}
