// Session command for regions in DMA buffers, which are memory of devices.
#include <fcntl.h>

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

// The driver of the buffer's device may take any time for the CPU access to begin.
Session::Lookup Session::MapDmaBuffer(const Request& request, const FdsPointer& fds) const {
  const auto& reg = request.As<roci_abi_reg_dma_buffer_mr_request>();
  if (!admission_.user->MayMap()) return {};
  auto buffer = std::make_shared<MappedDmaBuffer>();
  buffer->user = admission_.user;
  buffer->mappings = admission_.user->TakeAppMappings(1, reg.length);
  buffer->descriptor = QuotaShare(admission_.user->descriptors, 1);
  if (!buffer->mappings.ok() || !buffer->descriptor.ok()) return {};
  const bool writable = reg.access & static_cast<uint32_t>(memory::Access::kLocalWrite);
  auto fd = std::make_shared<UniqueFd>(fcntl((*fds)[0].local.get(), F_DUPFD_CLOEXEC, 0));
  return {.find =
              [=, offset = reg.offset, length = reg.length,
               retired = admission_.user->retired](Findings& out) {
                buffer->mapping = memory::MappedFile::MapDmaBuffer(fd->get(), offset, length,
                                                                   writable, &buffer->error);
                if (buffer->mapping != nullptr) buffer->mapping->ChargeTo(retired);
                out.dma_buffer = std::make_unique<MappedDmaBuffer>(std::move(*buffer));
              },
          .descriptors = 2};
}

absl::Status Session::RegDmaBufferMr(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& reg = request.As<roci_abi_reg_dma_buffer_mr_request>();
  PdRecord* pd = FindPd(reg.pd);
  if (pd == nullptr) return absl::NotFoundError("no such protection domain");
  MrRecord record;
  record.share = QuotaShare(quotas_->mrs, 1);
  if (!record.share.ok()) return LimitReached("memory regions", "limits.max_mr");
  if (findings_.dma_buffer == nullptr) {
    return LimitReached("mappings or descriptors");
  }
  MappedDmaBuffer& buffer = *findings_.dma_buffer;
  if (buffer.mapping == nullptr) return StatusFromErrno(buffer.error, "DMA buffer");
  record.mappings = std::move(buffer.mappings);
  record.descriptor = std::move(buffer.descriptor);
  record.pd = reg.pd;
  record.length = reg.length;
  memory::Translation translation{
      .va = kDmaBufferVa,
      .length = reg.length,
      .iova = reg.iova,
      .extents = {{kDmaBufferVa, reg.length, std::move(buffer.mapping), reg.offset}},
      .app = app_.get()};
  const auto [status, key] =
      shard_->Do(dataplane::RegisterRegion{reg.pd, AccessOf(reg.access), std::move(translation)});
  if (status != memory::MemoryStatus::kOk) return StatusOfMemory(status);
  record.key = key;
  ++pd->ref_count;
  auto& response = reply.As<roci_abi_reg_mr_response>();
  response.lkey = record.key;
  response.rkey = record.key;
  response.handle = *mrs_.Add(std::move(record));
  return absl::OkStatus();
}

}  // namespace roci::control
