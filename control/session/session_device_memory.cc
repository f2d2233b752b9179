// Session commands for memory that is not the program's: device memory, and the null region.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "control/loop/errno_status.h"
#include "control/session/memory_status.h"
#include "control/session/session.h"
#include "dataplane/base/shared_memory.h"
#include "memory/page.h"

namespace roci::control {
namespace {

// Address of device memory regions in the key table: outside of user space.
constexpr uint64_t kDeviceMemoryVa = uint64_t{1} << 63;

absl::StatusOr<UniqueFd> MakeMemory(uint64_t length) {
  UniqueFd fd(memfd_create("roci-dm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ftruncate(fd.get(), static_cast<off_t>(length)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return StatusFromErrno(errno, "device memory");
  }
  dataplane::KeepPages(fd.get());
  return fd;
}

void Answer(uint32_t handle, uint32_t key, Reply& reply) {
  auto& response = reply.As<roci_abi_reg_mr_response>();
  response.handle = handle;
  response.lkey = key;
  response.rkey = key;
}

}  // namespace

absl::Status Session::AllocNullMr(const Request& request, const FdsPointer&, Reply& reply) {
  const uint32_t handle = request.As<roci_abi_alloc_null_mr_request>().pd;
  PdRecord* pd = FindPd(handle);
  if (pd == nullptr) return absl::NotFoundError("no such protection domain");
  MrRecord record;
  record.share = QuotaShare(quotas_->mrs, 1);
  if (!record.share.ok()) return LimitReached("memory regions", "limits.max_mr");
  record.pd = handle;
  const auto [status, key] = shard_->Do(dataplane::RegisterNull{handle});
  if (status != memory::MemoryStatus::kOk) return StatusOfMemory(status);
  ++pd->ref_count;
  record.key = key;
  Answer(*mrs_.Add(std::move(record)), key, reply);
  return absl::OkStatus();
}

absl::Status Session::AllocDm(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& alloc = request.As<roci_abi_alloc_dm_request>();
  if (alloc.length == 0 || alloc.length > device_->limits().max_dm_bytes ||
      alloc.log_align > memory::kPageShift) {
    return absl::InvalidArgumentError("invalid length or alignment of device memory");
  }
  const uint64_t bytes =
      (alloc.length + memory::kPageBytes - 1) / memory::kPageBytes * memory::kPageBytes;
  DmRecord record;
  record.share = QuotaShare(quotas_->dm_bytes, bytes);
  if (!record.share.ok()) return LimitReached("device memory", "limits.max_dm_bytes");
  record.mapping_share = admission_.user->TakeRings(0);
  if (!record.mapping_share.ok()) return RingShare::Refusal();
  record.descriptor = QuotaShare(admission_.user->descriptors, 1);
  if (!record.descriptor.ok()) return StatusFromErrno(ENFILE, "device memory");
  absl::StatusOr<UniqueFd> fd = MakeMemory(bytes);
  if (!fd.ok()) return fd.status();
  int error = 0;
  record.mapping = memory::MappedFile::Map(fd->get(), 0, bytes, true, &error);
  if (record.mapping == nullptr) return StatusFromErrno(error, "device memory");
  record.mapping->ChargeTo(admission_.user->retired);
  record.length = alloc.length;
  record.fd = std::make_shared<UniqueFd>(*std::move(fd));
  reply.fds = {record.fd->get()};
  auto& response = reply.As<roci_abi_alloc_dm_response>();
  response.handle = *dms_.Add(std::move(record));
  response.memory_size = bytes;
  return absl::OkStatus();
}

absl::Status Session::FreeDm(const Request& request, const FdsPointer&, Reply&) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const DmRecord* record = dms_.Find(handle);
  if (record == nullptr) return absl::NotFoundError("no such device memory");
  const uint32_t users =
      AnothersHandle(handle) != nullptr ? record->ref_count.own() : record->ref_count.total();
  if (users > 0) return absl::FailedPreconditionError("the device memory is in use");
  dms_.Remove(handle);
  return absl::OkStatus();
}

absl::Status Session::RegDmMr(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& reg = request.As<roci_abi_reg_dm_mr_request>();
  PdRecord* pd = FindPd(reg.pd);
  DmRecord* dm = FindDm(reg.dm);
  if (pd == nullptr || dm == nullptr) {
    return absl::NotFoundError("no such protection domain or device memory");
  }
  if (reg.offset > dm->length || reg.length > dm->length - reg.offset) {
    return absl::InvalidArgumentError("the range exceeds the device memory");
  }
  MrRecord record;
  record.share = QuotaShare(quotas_->mrs, 1);
  if (!record.share.ok()) return LimitReached("memory regions", "limits.max_mr");
  record.pd = reg.pd;
  record.dm = reg.dm;
  record.length = reg.length;
  const uint64_t va = kDeviceMemoryVa + reg.offset;
  memory::Translation translation{
      .va = va, .length = reg.length, .iova = 0, .extents = {}, .app = app_.get()};
  if (reg.length != 0) translation.extents = {{va, reg.length, dm->mapping, reg.offset}};
  const auto [status, key] =
      shard_->Do(dataplane::RegisterRegion{reg.pd, AccessOf(reg.access), std::move(translation)});
  if (status != memory::MemoryStatus::kOk) return StatusOfMemory(status);
  ++pd->ref_count;
  ++dm->ref_count;
  record.key = key;
  Answer(*mrs_.Add(std::move(record)), key, reply);
  return absl::OkStatus();
}

}  // namespace roci::control
