// Fuzzes gate 3 with control messages. The first byte of the input is the number of descriptors. An
// accepted message is checked against the gate's contract.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "control/config/device_limits.h"
#include "control/loop/errno_status.h"
#include "control/session/session_decoder.h"
#include "roce/qp_attributes.h"
#include "tests/fuzz/fuzz.h"
#include "verbs_provider/abi/list_mr.h"

namespace roci::control {
namespace {

void CheckRegion(std::span<const roci_abi_extent> extents, uint64_t start, uint64_t length,
                 uint64_t iova, uint32_t fd_count) {
  CHECK(length > 0 && length <= kMaxMrSize);
  CHECK(start + length > start && iova + length > iova);
  uint64_t covered = 0;
  for (const roci_abi_extent& extent : extents) {
    CHECK(extent.length > 0);
    CHECK(extent.va == start + covered);
    covered += extent.length;
    CHECK(covered <= length);
    CHECK(extent.kind <= ROCI_ABI_EXTENT_MAP_FILES);
    if (extent.kind == ROCI_ABI_EXTENT_FD) CHECK(extent.fd_index < fd_count);
    if (extent.kind == ROCI_ABI_EXTENT_MAP_FILES) {
      CHECK(extent.map_start <= extent.va && extent.va + extent.length <= extent.map_end);
    }
    if (extent.kind != ROCI_ABI_EXTENT_PROCESS_VM) {
      CHECK(extent.file_offset + extent.length > extent.file_offset);
    }
  }
  CHECK(covered == length);
}

void CheckRequest(const Request& request, size_t size, uint32_t fd_count) {
  CHECK(request.info == FindCommand(request.head.command));
  CHECK(request.info != nullptr && request.info->request_size == size);
  CHECK(request.head.size == size);
  CHECK(fd_count == 0 || request.info->takes_fds);
  switch (request.head.command) {
    case ROCI_ABI_HELLO: {
      const auto& hello = request.As<roci_abi_hello_request>();
      CHECK(strnlen(hello.device, sizeof(hello.device)) < sizeof(hello.device));
      break;
    }
    case ROCI_ABI_REG_MR: {
      const auto& reg = request.As<roci_abi_reg_mr_request>();
      CHECK(reg.fd_count == fd_count && reg.extent_count <= ROCI_ABI_MAX_EXTENTS);
      if (reg.length == 0) {
        CHECK(reg.extent_count == 0 && fd_count == 0);
        break;
      }
      CheckRegion(std::span(reg.extents).first(reg.extent_count), reg.start, reg.length, reg.iova,
                  fd_count);
      break;
    }
    case ROCI_ABI_REREG_MR: {
      const auto& rereg = request.As<roci_abi_rereg_mr_request>();
      CHECK(rereg.fd_count == fd_count && rereg.extent_count <= ROCI_ABI_MAX_EXTENTS);
      if (!(rereg.flags & kReregTranslation)) break;
      CheckRegion(std::span(rereg.extents).first(rereg.extent_count), rereg.start, rereg.length,
                  rereg.iova, fd_count);
      break;
    }
    case ROCI_ABI_CREATE_QP: {
      const auto& create = request.As<roci_abi_create_qp_request>();
      if (create.qp_type == static_cast<uint32_t>(roce::QpType::kXrcRecv)) break;
      CHECK(std::max(create.max_send_wr, create.max_recv_wr) <= dataplane::kMaxQueueEntries);
      CHECK(std::max(create.max_send_sge, create.max_recv_sge) <= dataplane::kMaxSges);
      CHECK(create.max_inline <= dataplane::kMaxInlineBytes);
      break;
    }
    case ROCI_ABI_CREATE_CQ: {
      const uint32_t entries = request.As<roci_abi_create_cq_request>().entries;
      CHECK(entries >= 1 && entries <= dataplane::kMaxCompletionEntries);
      break;
    }
    case ROCI_ABI_CREATE_SRQ: {
      const auto& create = request.As<roci_abi_create_srq_request>();
      CHECK(create.max_wr >= 1 && create.max_wr <= dataplane::kMaxQueueEntries);
      CHECK(create.max_sge <= dataplane::kMaxSges);
      break;
    }
    case ROCI_ABI_ALLOC_SIGNATURE_MR: {
      const auto& alloc = request.As<roci_abi_alloc_signature_mr_request>();
      CHECK(alloc.max_runs >= 1 && alloc.max_runs <= ROCI_ABI_MAX_LIST_RUNS);
      CHECK(alloc.max_protection_runs <= ROCI_ABI_MAX_LIST_RUNS);
      break;
    }
    default:
      break;
  }
}

}  // namespace
}  // namespace roci::control

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using roci::control::CheckRequest;
  using roci::control::DecodeRequest;
  using roci::control::ErrnoOf;
  using roci::control::Request;
  if (size == 0) return 0;
  const uint32_t fd_count = data[0];
  // A copy of exact size, so that a sanitizer sees reads past the end.
  const std::vector<uint8_t> message(data + 1, data + size);
  Request request;
  const absl::Status status =
      DecodeRequest(std::as_bytes(std::span(message)), fd_count, {}, request);
  if (status.ok()) {
    CheckRequest(request, message.size(), fd_count);
  } else {
    CHECK(ErrnoOf(status) > 0);
  }
  return 0;
}
