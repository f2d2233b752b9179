#include "dataplane/rings/list_memory.h"

#include <algorithm>

#include "dataplane/rings/receive_entry.h"
#include "memory/t10_dif.h"

namespace roci::dataplane {

namespace {

bool TakeDomain(const roci_abi_signature_domain& domain, memory::DifDomain& out) {
  constexpr uint32_t kEscapes = ROCI_ABI_SIGNATURE_APP_ESCAPE | ROCI_ABI_SIGNATURE_APP_REF_ESCAPE;
  if (domain.is_present == 0) return true;
  if (domain.is_present != 1 || domain.guard > ROCI_ABI_SIGNATURE_CHECKSUM ||
      (domain.flags & ~(ROCI_ABI_SIGNATURE_REF_COUNTS | kEscapes)) != 0 ||
      (domain.flags & kEscapes) == kEscapes) {
    return false;
  }
  out.is_present = true;
  out.guard = domain.guard == ROCI_ABI_SIGNATURE_CRC ? memory::GuardKind::kCrc
                                                     : memory::GuardKind::kChecksum;
  if ((domain.flags & ROCI_ABI_SIGNATURE_APP_ESCAPE) != 0) {
    out.escape = memory::DifEscape::kApplicationTag;
  } else if ((domain.flags & ROCI_ABI_SIGNATURE_APP_REF_ESCAPE) != 0) {
    out.escape = memory::DifEscape::kBothTags;
  }
  out.reference_counts = (domain.flags & ROCI_ABI_SIGNATURE_REF_COUNTS) != 0;
  out.seed = domain.seed;
  out.application_tag = domain.app_tag;
  out.application_mask = domain.app_tag_mask;
  out.reference_tag = domain.ref_tag;
  return true;
}

bool TakeSignature(const roci_abi_signature& signature, memory::IntegrityAttributes& out) {
  constexpr uint32_t kChecks = ROCI_ABI_SIGNATURE_CHECK_GUARD | ROCI_ABI_SIGNATURE_CHECK_APP_TAG |
                               ROCI_ABI_SIGNATURE_CHECK_REF_TAG;
  const auto takes = [&](uint32_t field, bool& check) {
    check = (signature.checks & field) == field;
    return check || (signature.checks & field) == 0;  // whole fields only
  };
  out.block_size = signature.block_size;
  return (signature.checks & ~kChecks) == 0 &&
         takes(ROCI_ABI_SIGNATURE_CHECK_GUARD, out.checks.guard) &&
         takes(ROCI_ABI_SIGNATURE_CHECK_APP_TAG, out.checks.application_tag) &&
         takes(ROCI_ABI_SIGNATURE_CHECK_REF_TAG, out.checks.reference_tag) &&
         TakeDomain(signature.memory, out.memory) && TakeDomain(signature.wire, out.wire);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemory>> ListMemory::Create(const ListRoom& room) {
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create("roci-list", room.Bytes());
  if (!memory.ok()) return memory.status();
  return std::make_unique<SharedMemory>(*std::move(memory));
}

void ListMemory::Add(const OnShard&, uint32_t number, std::unique_ptr<SharedMemory> memory,
                     const ListRoom& room) {
  lists_[number] = {std::move(memory), room};
  copy_.resize(std::max<size_t>(copy_.size(), room.all_runs()));
}

std::unique_ptr<SharedMemory> ListMemory::Remove(const OnShard&, uint32_t number) {
  const auto found = lists_.find(number);
  if (found == lists_.end()) return nullptr;
  std::unique_ptr<SharedMemory> memory = std::move(found->second.memory);
  lists_.erase(found);
  return memory;
}

void ListMemory::CopyRuns(const std::byte* from, size_t count, size_t to) {
  for (size_t i = 0; i < count; ++i) {
    roci_abi_sge run;
    CopyOnce(run, from + i * sizeof(run));
    copy_[to + i] = {run.va, run.length, run.lkey};
  }
}

memory::MemoryStatus ListMemory::Register(const OnShard&, memory::KeyTable& keys,
                                          const roce::SendWqe& wqe,
                                          const memory::AccessContext& context) {
  const roce::ListWork& work = wqe.list;
  const auto found = lists_.find(work.list);
  if (found == lists_.end() || memory::IndexOfKey(work.new_key) != work.list)
    return memory::MemoryStatus::kBadKey;
  const ListRoom& room = found->second.room;
  if (work.runs > room.max_runs) return memory::MemoryStatus::kInvalidArgument;
  const auto count = static_cast<size_t>(work.runs);
  const std::byte* at = found->second.memory->data();
  memory::IntegrityAttributes attributes;
  size_t protection = 0;
  if (room.has_signature) {
    roci_abi_signature signature;
    CopyOnce(signature, at);
    at += sizeof(signature);
    protection = signature.protection_runs;
    if (protection > room.max_protection_runs || !TakeSignature(signature, attributes)) {
      return memory::MemoryStatus::kInvalidArgument;
    }
    CopyRuns(at + size_t{room.max_runs} * sizeof(roci_abi_sge), protection, count);
  }
  CopyRuns(at, count, 0);
  return keys.RegisterList({.new_key = work.new_key,
                            .access = static_cast<memory::Access>(work.access),
                            .iova = work.iova,
                            .runs = {copy_.data(), count},
                            .integrity = room.has_signature ? &attributes : nullptr,
                            .protection = {copy_.data() + count, protection}},
                           context);
}

}  // namespace roci::dataplane
