// Session commands for protection domains and memory regions.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"
#include "control/loop/log.h"
#include "control/loop/no_memory.h"
#include "control/session/memory_status.h"
#include "control/session/session.h"
#include "memory/process_memory.h"

namespace roci::control {
namespace {

// Charges the mappings. MakeTranslation() creates only as many as the quota permits.
AppShare ShareOf(User& user, const memory::Translation& translation) {
  uint64_t count = 0, bytes = 0;
  for (const memory::Extent& extent : translation.extents) {
    if (extent.mapping == nullptr) continue;
    ++count;
    bytes += extent.mapping->length();
  }
  AppShare share = user.TakeAppMappings(count, bytes);
  assert(share.ok());
  return share;
}

NotMapped ReasonOfError(int error) {
  switch (error) {
    case EOPNOTSUPP:
      return NotMapped::kFileSystem;
    case ENOMEM:
    case ENOSPC:
      return NotMapped::kLimit;
    case EPERM:
      return NotMapped::kNoPrivilege;
    default:
      return NotMapped::kFailed;
  }
}

}  // namespace

absl::Status Session::AllocPd(const Request&, const FdsPointer&, Reply& reply) {
  PdRecord record;
  record.share = QuotaShare(quotas_->pds, 1);
  if (!record.share.ok()) return LimitReached("protection domains", "limits.max_pd");
  const absl::StatusOr<uint32_t> handle = pds_.Add(std::move(record));
  if (!handle.ok()) return handle.status();
  reply.As<roci_abi_handle_response>().handle = *handle;
  return absl::OkStatus();
}

absl::Status Session::DeallocPd(const Request& request, const FdsPointer&, Reply&) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const PdRecord* pd = pds_.Find(handle);
  if (pd == nullptr) return absl::NotFoundError("no such protection domain");
  // A shared domain of another session only counts objects of this session.
  const uint32_t users =
      AnothersHandle(handle) != nullptr ? pd->ref_count.own() : pd->ref_count.total();
  if (users > 0) return absl::FailedPreconditionError("the protection domain is in use");
  pds_.Remove(handle);
  return absl::OkStatus();
}

std::shared_ptr<memory::MappedFile> Session::MapExtent(const roci_abi_extent& extent, size_t number,
                                                       bool writable, uint64_t longest,
                                                       const FdsPointer& fds, NotMapped* why) {
  if (!admission_.user->MayMap()) {
    *why = NotMapped::kLimit;
    return nullptr;
  }
  const bool by_fd = extent.kind == ROCI_ABI_EXTENT_FD;
  const UniqueFd& file = by_fd ? (*fds)[extent.fd_index].local : findings_.mapped[number];
  // A passed file without a descriptor here: calls on it could block.
  int error = by_fd ? EOPNOTSUPP : findings_.mapped_errors[number];
  std::shared_ptr<memory::MappedFile> mapping;
  if (file.valid()) {
    mapping = file_mappings_.Map(file.get(), extent.file_offset, extent.length, writable, longest,
                                 &error);
  }
  if (mapping == nullptr) {
    *why = !by_fd && !app_->has_process() ? NotMapped::kNotVisible : ReasonOfError(error);
    Log(LogArea::kSession, LogLevel::kDebug,
        "session %u: region of %llu bytes cannot be mapped (%s); the daemon uses system calls",
        number_, static_cast<unsigned long long>(extent.length),
        std::string(StatusFromErrno(error == 0 ? ESRCH : error, "map").message()).c_str());
    return nullptr;
  }
  mapping->ChargeTo(admission_.user->retired);
  if (admission_.user->copy_use->has_blocked()) *why = NotMapped::kHasBlocked;
  if (mapping->on_disk()) *why = NotMapped::kOnDisk;
  return mapping;
}

ReachFacts Session::reach_facts() const {
  // Opened, since access(2) does not apply all rules that may forbid it (cgroups, LSMs).
  const UniqueFd userfaultfd(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  // Nothing is known of the rights of a process that is not visible.
  const bool is_visible = app_->has_process();
  return {.is_own_user = is_visible ? IsDaemonsOwnUser() : peer_.uid == geteuid(),
          .is_visible = is_visible,
          .is_confined = !memory::ProcessVmWorks(),
          .converts = services_.config.memory.policy == ROCI_ABI_MEMORY_MAP,
          .has_userfaultfd = userfaultfd.valid(),
          .has_blocked = admission_.user->copy_use->has_blocked()};
}

void Session::LogReach(NotMapped why) {
  if (why == NotMapped::kMapped || has_logged_reach_) return;
  // The memory is registered already, so a failed allocation must not fail the request. The next
  // registration tries again.
  OrRefuse([&] {
    if (!services_.has_logged_reach(peer_.process, number_)) {
      const ReachFacts facts = reach_facts();
      Log(LogArea::kSession, LogLevel::kNotice,
          "%s[%d] (uid %u): registered memory is accessed %s. Reason: %s. Faster: %s (`roci "
          "doctor` "
          "shows what this machine lacks)",
          program_.c_str(), peer_.pid, peer_.uid, DescribeWay(why, facts), ReasonOf(why),
          FasterWith(why, facts).c_str());
    }
    has_logged_reach_ = true;
    return absl::OkStatus();
  }).IgnoreError();
}

bool Session::WantsWritableMappings(uint32_t access) {
  constexpr auto kWriters =
      static_cast<uint32_t>(memory::Access::kLocalWrite | memory::Access::kFlushPersistent);
  return (access & kWriters) != 0;
}

absl::Status Session::MakeTranslation(std::span<const roci_abi_extent> extents, uint64_t start,
                                      uint64_t length, uint64_t iova, uint32_t access,
                                      const FdsPointer& fds, memory::Translation& out,
                                      NotMapped& why) {
  // The plugin has checked that the memory exists. A check here could be blocked by the program
  // (userfaultfd(2), FUSE).
  out.app = app_.get();
  out.va = start;
  out.length = length;
  out.iova = iova;
  const bool map = services_.config.memory.policy != ROCI_ABI_MEMORY_PROCESS_VM;
  const bool durable = access & static_cast<uint32_t>(memory::Access::kFlushPersistent);
  const bool on_demand = access & static_cast<uint32_t>(memory::Access::kOnDemand);
  const bool writable = WantsWritableMappings(access);
  if (durable && !map) return absl::UnimplementedError("persistent flush needs mapped memory");
  if (durable && !services_.dataplane.PrepareDurable()) {
    return absl::ResourceExhaustedError("no more threads that wait for disks");
  }
  uint64_t mappings_left = admission_.user->app_mappings.left();
  uint64_t bytes_left = admission_.user->app_bytes.left();
  for (size_t i = 0; i < extents.size(); ++i) {
    const roci_abi_extent& extent = extents[i];
    memory::Extent& target = out.extents.emplace_back();
    target.va = extent.va;
    target.length = extent.length;
    target.file_offset = extent.file_offset;
    NotMapped reason = NotMapped::kMapped;
    if (!map) {
      reason = NotMapped::kPolicy;
    } else if (extent.kind == ROCI_ABI_EXTENT_PROCESS_VM) {
      reason = on_demand ? NotMapped::kOnDemand : NotMapped::kPrivate;
    } else if (mappings_left == 0) {
      reason = NotMapped::kLimit;
    } else {
      target.mapping = MapExtent(extent, i, writable, bytes_left, fds, &reason);
    }
    why = std::max(why, reason);
    if (target.mapping == nullptr) continue;
    --mappings_left;
    bytes_left -= target.mapping->length();
  }
  return absl::OkStatus();
}

absl::Status Session::RegMr(const Request& request, const FdsPointer& fds, Reply& reply) {
  const auto& reg = request.As<roci_abi_reg_mr_request>();
  PdRecord* pd = FindPd(reg.pd);
  if (pd == nullptr) return absl::NotFoundError("no such protection domain");
  MrRecord record;
  record.share = QuotaShare(quotas_->mrs, 1);
  if (!record.share.ok()) return LimitReached("memory regions", "limits.max_mr");
  memory::Translation translation;
  absl::Status status =
      MakeTranslation(std::span(reg.extents).first(reg.extent_count), reg.start, reg.length,
                      reg.iova, reg.access, fds, translation, record.not_mapped);
  if (!status.ok()) return status;
  record.mappings = ShareOf(*admission_.user, translation);
  record.pd = reg.pd;
  record.start = reg.start;
  record.length = reg.length;
  const auto [registered, key] =
      shard_->Do(dataplane::RegisterRegion{reg.pd, AccessOf(reg.access), std::move(translation)});
  if (registered != memory::MemoryStatus::kOk) return StatusOfMemory(registered);
  record.key = key;
  auto& response = reply.As<roci_abi_reg_mr_response>();
  response.lkey = record.key;
  response.rkey = record.key;
  ++pd->ref_count;
  const NotMapped not_mapped = record.not_mapped;
  response.handle = *mrs_.Add(std::move(record));
  LogReach(not_mapped);
  return absl::OkStatus();
}

// The new access rights if the request changes them; otherwise rights that need writable mappings,
// since the region keeps its old rights.
uint32_t Session::AccessIn(const roci_abi_rereg_mr_request& rereg) {
  return rereg.flags & kReregAccess ? rereg.access
                                    : static_cast<uint32_t>(memory::Access::kLocalWrite);
}

absl::Status Session::ReregMr(const Request& request, const FdsPointer& fds, Reply& reply) {
  const auto& rereg = request.As<roci_abi_rereg_mr_request>();
  MrRecord* mr = mrs_.Find(rereg.handle);
  if (mr == nullptr) return absl::NotFoundError("no such memory region");
  memory::RegionChange change;
  PdRecord* new_pd = nullptr;
  if (rereg.flags & kReregPd) {
    new_pd = FindPd(rereg.pd);
    if (new_pd == nullptr) return absl::NotFoundError("no such protection domain");
    change.pd = rereg.pd;
  }
  if (rereg.flags & kReregAccess) change.access = AccessOf(rereg.access);
  AppShare mappings;
  NotMapped not_mapped = NotMapped::kMapped;
  if (rereg.flags & kReregTranslation) {
    const uint32_t access = AccessIn(rereg);
    const absl::Status status = MakeTranslation(std::span(rereg.extents).first(rereg.extent_count),
                                                rereg.start, rereg.length, rereg.iova, access, fds,
                                                change.translation.emplace(), not_mapped);
    if (!status.ok()) return status;
    mappings = ShareOf(*admission_.user, *change.translation);
  }
  const uint32_t key = mr->key;
  const absl::Status status =
      StatusOfMemory(shard_->Do(dataplane::ChangeRegion{key, std::move(change)}));
  if (!status.ok()) return status;
  if (new_pd != nullptr) {
    --pds_.Find(mr->pd)->ref_count;
    ++new_pd->ref_count;
    mr->pd = rereg.pd;
  }
  if (rereg.flags & kReregTranslation) {
    mr->mappings = std::move(mappings);
    mr->start = rereg.start;
    mr->length = rereg.length;
    mr->not_mapped = not_mapped;
    LogReach(not_mapped);
  }
  auto& response = reply.As<roci_abi_reg_mr_response>();
  response.handle = rereg.handle;
  response.lkey = key;
  response.rkey = key;
  return absl::OkStatus();
}

absl::Status Session::DeregMr(const Request& request, const FdsPointer&, Reply&) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const MrRecord* mr = mrs_.Find(handle);
  if (mr == nullptr) return absl::NotFoundError("no such memory region");
  const absl::Status status = StatusOfMemory(shard_->Do(dataplane::DeregisterRegion{mr->key}));
  if (!status.ok()) return status;
  --pds_.Find(mr->pd)->ref_count;
  if (mr->dm != 0) --dms_.Find(mr->dm)->ref_count;
  mrs_.Remove(handle);
  return absl::OkStatus();
}

absl::Status Session::UnshareRange(const Request& request, const FdsPointer&, Reply&) {
  const auto& unshare = request.As<roci_abi_unshare_range_request>();
  shard_->Do(dataplane::UnshareRange{unshare.start, unshare.length, app_.get()});
  return absl::OkStatus();
}

}  // namespace roci::control
