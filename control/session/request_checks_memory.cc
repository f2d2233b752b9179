// Checks of requests for memory: regions, windows, device memory, lists.
#include <span>

#include "control/loop/errno_status.h"
#include "control/session/request_checks.h"
#include "control/session/session_decoder.h"
#include "memory/types.h"
#include "verbs_provider/abi/list_mr.h"

namespace roci::control {
namespace {

bool Wraps(uint64_t start, uint64_t length) { return start + length < start; }

absl::Status CheckRange(uint64_t start, uint64_t length) {
  if (length == 0 || length > kMaxMrSize) return Invalid("invalid length");
  if (Wraps(start, length)) return Invalid("the range wraps");
  return absl::OkStatus();
}

absl::Status CheckExtent(const roci_abi_extent& extent, uint32_t fd_count) {
  if (extent.length == 0) return Invalid("empty extent");
  switch (extent.kind) {
    case ROCI_ABI_EXTENT_PROCESS_VM:
      return absl::OkStatus();
    case ROCI_ABI_EXTENT_FD:
      if (extent.fd_index >= fd_count) return Invalid("an extent has no such descriptor");
      break;
    case ROCI_ABI_EXTENT_MAP_FILES:
      if (extent.map_start > extent.va || extent.map_end < extent.va + extent.length) {
        return Invalid("an extent exceeds its mapping");
      }
      break;
    default:
      return Invalid("unknown kind of extent");
  }
  constexpr uint64_t kMaxFileOffset = uint64_t{1} << 62;
  if (extent.file_offset > kMaxFileOffset)
    return Invalid("the file offset of an extent is too large");
  return absl::OkStatus();
}

absl::Status CheckExtents(std::span<const roci_abi_extent> extents, uint64_t start, uint64_t length,
                          uint32_t fd_count) {
  uint64_t next = start;
  for (const roci_abi_extent& extent : extents) {
    if (extent.va != next) return Invalid("the extents have a gap or overlap");
    if (extent.length > start + length - next) return Invalid("the extents exceed the region");
    const absl::Status status = CheckExtent(extent, fd_count);
    if (!status.ok()) return status;
    next += extent.length;
  }
  return next == start + length ? absl::OkStatus() : Invalid("extents do not cover the region");
}

absl::Status CheckTranslation(const roci_abi_extent (&extents)[ROCI_ABI_MAX_EXTENTS],
                              uint32_t extent_count, uint64_t start, uint64_t length, uint64_t iova,
                              uint32_t fd_count) {
  if (extent_count < 1 || extent_count > ROCI_ABI_MAX_EXTENTS)
    return Invalid("wrong number of extents");
  const absl::Status status = CheckRange(start, length);
  if (!status.ok()) return status;
  if (Wraps(iova, length)) return Invalid("the range wraps");
  return CheckExtents(std::span(extents, extent_count), start, length, fd_count);
}

absl::Status CheckAccess(uint32_t access) {
  access &= ~kOptionalAccess;
  if (access & ~memory::kAccessMask) return Invalid("unsupported access flags");
  constexpr uint32_t kRemoteWriters =
      static_cast<uint32_t>(memory::Access::kRemoteWrite | memory::Access::kRemoteAtomic);
  // IBTA vol 1, 10.6.3.1.
  if ((access & kRemoteWriters) && !(access & static_cast<uint32_t>(memory::Access::kLocalWrite))) {
    return Invalid("remote write without local write");
  }
  return absl::OkStatus();
}

// An on-demand region has no extents, and may span the whole address space.
absl::Status CheckOnDemand(const roci_abi_reg_mr_request& reg) {
  const uint64_t last = reg.length - 1;
  if (reg.start + last < reg.start || reg.iova + last < reg.iova) {
    return Invalid("the range wraps");
  }
  const roci_abi_extent& extent = reg.extents[0];
  return reg.extent_count == 1 && extent.kind == ROCI_ABI_EXTENT_PROCESS_VM &&
                 extent.va == reg.start && extent.length == reg.length && reg.fd_count == 0
             ? absl::OkStatus()
             : Invalid("an on-demand region has no extents");
}

}  // namespace

absl::Status CheckRegMr(const void* request, uint32_t fd_count, const DeviceLimits& limits) {
  const auto& reg = *static_cast<const roci_abi_reg_mr_request*>(request);
  if (reg.fd_count != fd_count) return Invalid("wrong number of descriptors");
  const absl::Status status = CheckAccess(reg.access);
  if (!status.ok()) return status;
  const bool is_on_demand = (reg.access & static_cast<uint32_t>(memory::Access::kOnDemand)) != 0;
  if (is_on_demand && !limits.Has(Feature::kOnDemandPaging)) {
    return absl::UnimplementedError("the device does not support on-demand paging");
  }
  if (reg.length == 0) {
    return reg.extent_count == 0 && fd_count == 0 ? absl::OkStatus()
                                                  : Invalid("an empty region has no extents");
  }
  if (is_on_demand) return CheckOnDemand(reg);
  return CheckTranslation(reg.extents, reg.extent_count, reg.start, reg.length, reg.iova, fd_count);
}

absl::Status CheckRegDmMr(const void* request, uint32_t, const DeviceLimits&) {
  const uint32_t access = static_cast<const roci_abi_reg_dm_mr_request*>(request)->access;
  constexpr auto kAllowed = static_cast<uint32_t>(
      memory::Access::kLocalWrite | memory::Access::kRemoteWrite | memory::Access::kRemoteRead |
      memory::Access::kRemoteAtomic | memory::Access::kZeroBased);
  // As in the kernel: device memory has no address.
  if (!(access & static_cast<uint32_t>(memory::Access::kZeroBased))) {
    return Invalid("regions of device memory must be zero-based");
  }
  if (access & ~(kAllowed | kOptionalAccess)) return Invalid("unsupported access flags");
  return CheckAccess(access);
}

absl::Status CheckRegDmaBufferMr(const void* request, uint32_t fd_count, const DeviceLimits&) {
  const auto& reg = *static_cast<const roci_abi_reg_dma_buffer_mr_request*>(request);
  if (fd_count != 1) return Invalid("wrong number of descriptors");
  // As in the kernel.
  constexpr auto kAllowed =
      static_cast<uint32_t>(memory::Access::kLocalWrite | memory::Access::kRemoteWrite |
                            memory::Access::kRemoteRead | memory::Access::kRemoteAtomic);
  if (reg.access & ~(kAllowed | kOptionalAccess)) return Invalid("unsupported access flags");
  const absl::Status status = CheckAccess(reg.access);
  if (!status.ok()) return status;
  if (Wraps(reg.iova, reg.length)) return Invalid("the range wraps");
  return CheckRange(reg.offset, reg.length);
}

absl::Status CheckReregMr(const void* request, uint32_t fd_count, const DeviceLimits&) {
  const auto& rereg = *static_cast<const roci_abi_rereg_mr_request*>(request);
  if (rereg.fd_count != fd_count) return Invalid("wrong number of descriptors");
  if (rereg.flags == 0 || (rereg.flags & ~kReregAll)) return Invalid("unknown flags");
  if (rereg.flags & kReregAccess) {
    const absl::Status status = CheckAccess(rereg.access);
    if (!status.ok()) return status;
    if (rereg.access & static_cast<uint32_t>(memory::Access::kOnDemand)) {
      return absl::UnimplementedError("a region cannot become an on-demand region");
    }
  }
  if (rereg.flags & kReregTranslation) {
    return CheckTranslation(rereg.extents, rereg.extent_count, rereg.start, rereg.length,
                            rereg.iova, fd_count);
  }
  return rereg.extent_count == 0 && fd_count == 0 ? absl::OkStatus()
                                                  : Invalid("wrong number of extents");
}

absl::Status CheckUnshareRange(const void* request, uint32_t, const DeviceLimits&) {
  const auto& unshare = *static_cast<const roci_abi_unshare_range_request*>(request);
  // The range may span all memory of a program, far more than a region.
  if (unshare.length == 0 || Wraps(unshare.start, unshare.length)) return Invalid("invalid range");
  return absl::OkStatus();
}

absl::Status CheckAllocMw(const void* request, uint32_t, const DeviceLimits& limits) {
  const uint32_t type = static_cast<const roci_abi_alloc_mw_request*>(request)->type;
  if (type == static_cast<uint32_t>(memory::WindowType::kType2) &&
      !limits.HasCapabilities(kCapMemoryWindowType2B)) {
    return absl::UnimplementedError("the device has no windows of type 2");
  }
  return type == static_cast<uint32_t>(memory::WindowType::kType1) ||
                 type == static_cast<uint32_t>(memory::WindowType::kType2)
             ? absl::OkStatus()
             : Invalid("unknown type of memory window");
}

absl::Status CheckAllocListMr(const void* request, uint32_t, const DeviceLimits&) {
  const uint32_t runs = static_cast<const roci_abi_alloc_list_mr_request*>(request)->max_runs;
  return runs >= 1 && runs <= ROCI_ABI_MAX_LIST_RUNS ? absl::OkStatus()
                                                     : Invalid("invalid number of runs of a list");
}

absl::Status CheckAllocSignatureMr(const void* request, uint32_t, const DeviceLimits&) {
  const auto& alloc = *static_cast<const roci_abi_alloc_signature_mr_request*>(request);
  return alloc.max_runs >= 1 && alloc.max_runs <= ROCI_ABI_MAX_LIST_RUNS &&
                 alloc.max_protection_runs <= ROCI_ABI_MAX_LIST_RUNS
             ? absl::OkStatus()
             : Invalid("invalid number of runs of a signature region");
}

}  // namespace roci::control
