// Session command for regions in DMA buffers, which are memory of devices.
#include <cerrno>

#include "control/loop/errno_status.h"
#include "control/session/memory_status.h"
#include "control/session/session.h"

namespace roci::control {
namespace {

// Address of these regions in the key table: outside of user space. All of them have the same
// address, which is harmless.
constexpr uint64_t kDmaBufferVa = uint64_t{3} << 62;

}  // namespace

absl::Status Session::RegDmaBufferMr(const Request& request, const FdsPointer& fds, Reply& reply) {
  const auto& reg = request.As<roci_abi_reg_dma_buffer_mr_request>();
  PdRecord* pd = FindPd(reg.pd);
  if (pd == nullptr) return absl::NotFoundError("no such protection domain");
  MrRecord record;
  record.share = QuotaShare(quotas_->mrs, 1);
  if (!record.share.ok()) return LimitReached("memory regions", "limits.max_mr");
  record.mappings = admission_.user->TakeAppMappings(1, reg.length);
  if (!record.mappings.ok()) return LimitReached("mappings");
  record.descriptor = QuotaShare(admission_.user->descriptors, 1);
  if (!record.descriptor.ok()) return StatusFromErrno(ENFILE, "DMA buffer");
  record.pd = reg.pd;
  record.length = reg.length;
  const bool writable = reg.access & static_cast<uint32_t>(memory::Access::kLocalWrite);
  int error = 0;
  std::shared_ptr<memory::MappedFile> mapping = memory::MappedFile::MapDmaBuffer(
      (*fds)[0].local.get(), reg.offset, reg.length, writable, &error);
  if (mapping == nullptr) return StatusFromErrno(error, "DMA buffer");
  memory::Translation translation{
      .va = kDmaBufferVa,
      .length = reg.length,
      .iova = reg.iova,
      .extents = {{kDmaBufferVa, reg.length, std::move(mapping), reg.offset}},
      .app = app_.get()};
  const auto [status, key] =
      shard_->Do(dataplane::RegisterRegion{reg.pd, AccessOf(reg.access), std::move(translation)});
  if (status != memory::MemoryStatus::kOk) return StatusOfMemory(status);
  record.key = key;
  ++pd->users;
  auto& response = reply.As<roci_abi_reg_mr_response>();
  response.lkey = record.key;
  response.rkey = record.key;
  response.handle = *mrs_.Add(std::move(record));
  return absl::OkStatus();
}

}  // namespace roci::control
