#include "control/session_decoder.h"

#include <cerrno>
#include <iterator>

#include "control/device_limits.h"
#include "control/errno_status.h"
#include "memory/types.h"

namespace roci::control {
namespace {

absl::Status Invalid(const char* why) { return absl::InvalidArgumentError(why); }

absl::Status CheckHello(const void* request, uint32_t) {
  const auto& hello = *static_cast<const roci_abi_hello_request*>(request);
  if (hello.magic != ROCI_ABI_MAGIC) return StatusFromErrno(EPROTO, "magic");
  if (hello.major != ROCI_ABI_MAJOR) return StatusFromErrno(EPROTONOSUPPORT, "major version");
  if (std::memchr(hello.device, 0, sizeof(hello.device)) == nullptr) {
    return Invalid("the device name does not end");
  }
  return absl::OkStatus();
}

bool Wraps(uint64_t start, uint64_t length) { return start + length < start; }

absl::Status CheckRange(uint64_t start, uint64_t length) {
  if (length == 0 || length > kMaxMrSize) return Invalid("length");
  if (Wraps(start, length)) return Invalid("the range wraps");
  return absl::OkStatus();
}

absl::Status CheckExtent(const roci_abi_extent& extent, uint32_t fd_count) {
  if (extent.length == 0) return Invalid("empty extent");
  switch (extent.kind) {
    case ROCI_ABI_EXTENT_PROCESS_VM:
      return absl::OkStatus();
    case ROCI_ABI_EXTENT_FD:
      if (extent.fd_index >= fd_count) return Invalid("descriptor number of an extent");
      break;
    case ROCI_ABI_EXTENT_MAP_FILES:
      if (extent.map_start > extent.va || extent.map_end < extent.va + extent.length) {
        return Invalid("an extent sticks out of its mapping");
      }
      break;
    default:
      return Invalid("kind of an extent");
  }
  constexpr uint64_t kMaxFileOffset = uint64_t{1} << 62;
  if (extent.file_offset > kMaxFileOffset) return Invalid("file offset of an extent");
  return absl::OkStatus();
}

absl::Status CheckExtents(std::span<const roci_abi_extent> extents, uint64_t start, uint64_t length,
                          uint32_t fd_count) {
  uint64_t next = start;
  for (const roci_abi_extent& extent : extents) {
    if (extent.va != next) return Invalid("extents leave a hole or overlap");
    if (extent.length > start + length - next) return Invalid("extents stick out of the region");
    const absl::Status status = CheckExtent(extent, fd_count);
    if (!status.ok()) return status;
    next += extent.length;
  }
  return next == start + length ? absl::OkStatus() : Invalid("extents do not cover the region");
}

absl::Status CheckTranslation(const roci_abi_extent (&extents)[ROCI_ABI_MAX_EXTENTS],
                              uint32_t extent_count, uint64_t start, uint64_t length, uint64_t iova,
                              uint32_t fd_count) {
  if (extent_count < 1 || extent_count > ROCI_ABI_MAX_EXTENTS) return Invalid("extent count");
  const absl::Status status = CheckRange(start, length);
  if (!status.ok()) return status;
  if (Wraps(iova, length)) return Invalid("the range wraps");
  return CheckExtents(std::span(extents, extent_count), start, length, fd_count);
}

absl::Status CheckAccess(uint32_t access) {
  access &= ~kOptionalAccess;
  if (access & ~memory::kAccessMask) return Invalid("access flags");
  constexpr auto kNotOffered = static_cast<uint32_t>(
      memory::Access::kOnDemand | memory::Access::kFlushGlobal | memory::Access::kFlushPersistent);
  if (access & kNotOffered) return absl::UnimplementedError("access flags");
  constexpr uint32_t kRemoteWriters =
      static_cast<uint32_t>(memory::Access::kRemoteWrite | memory::Access::kRemoteAtomic);
  // IBTA vol 1, 10.6.3.1.
  if ((access & kRemoteWriters) && !(access & static_cast<uint32_t>(memory::Access::kLocalWrite))) {
    return Invalid("remote write without local write");
  }
  return absl::OkStatus();
}

absl::Status CheckRegMr(const void* request, uint32_t fd_count) {
  const auto& reg = *static_cast<const roci_abi_reg_mr_request*>(request);
  if (reg.fd_count != fd_count) return Invalid("descriptor count");
  const absl::Status status = CheckAccess(reg.access);
  if (!status.ok()) return status;
  return CheckTranslation(reg.extents, reg.extent_count, reg.start, reg.length, reg.iova, fd_count);
}

absl::Status CheckReregMr(const void* request, uint32_t fd_count) {
  const auto& rereg = *static_cast<const roci_abi_rereg_mr_request*>(request);
  if (rereg.fd_count != fd_count) return Invalid("descriptor count");
  if (rereg.flags == 0 || (rereg.flags & ~kReregAll)) return Invalid("flags");
  if (rereg.flags & kReregAccess) {
    const absl::Status status = CheckAccess(rereg.access);
    if (!status.ok()) return status;
  }
  if (rereg.flags & kReregTranslation) {
    return CheckTranslation(rereg.extents, rereg.extent_count, rereg.start, rereg.length,
                            rereg.iova, fd_count);
  }
  return rereg.extent_count == 0 && fd_count == 0 ? absl::OkStatus() : Invalid("extent count");
}

absl::Status CheckUnshareRange(const void* request, uint32_t) {
  const auto& unshare = *static_cast<const roci_abi_unshare_range_request*>(request);
  return CheckRange(unshare.start, unshare.length);
}

absl::Status CheckCreateCq(const void* request, uint32_t) {
  const auto& create = *static_cast<const roci_abi_create_cq_request*>(request);
  return create.entries >= 1 ? absl::OkStatus() : Invalid("entries");
}

absl::Status CheckResizeCq(const void* request, uint32_t) {
  const auto& resize = *static_cast<const roci_abi_resize_cq_request*>(request);
  return resize.entries >= 1 ? absl::OkStatus() : Invalid("entries");
}

template <class RequestType, class ResponseType>
constexpr CommandInfo Command(const char* name,
                              absl::Status (*check)(const void*, uint32_t) = nullptr,
                              bool takes_fds = false) {
  static_assert(offsetof(RequestType, head) == 0 && offsetof(ResponseType, head) == 0);
  static_assert(sizeof(RequestType) <= kMaxRequestBytes);
  return {name, sizeof(RequestType), sizeof(ResponseType), check, takes_fds};
}

using HandleRequest = roci_abi_handle_request;
using Plain = roci_abi_plain_response;

// By roci_abi_command, in its order.
constexpr CommandInfo kCommands[] = {
    {nullptr, 0, 0, nullptr, false},
    Command<roci_abi_hello_request, roci_abi_hello_response>("HELLO", CheckHello),
    Command<roci_abi_query_device_request, roci_abi_query_device_response>("QUERY_DEVICE"),
    Command<roci_abi_query_port_request, roci_abi_query_port_response>("QUERY_PORT"),
    Command<roci_abi_plain_request, roci_abi_handle_response>("ALLOC_PD"),
    Command<HandleRequest, Plain>("DEALLOC_PD"),
    Command<roci_abi_reg_mr_request, roci_abi_reg_mr_response>("REG_MR", CheckRegMr, true),
    Command<roci_abi_rereg_mr_request, roci_abi_reg_mr_response>("REREG_MR", CheckReregMr, true),
    Command<HandleRequest, Plain>("DEREG_MR"),
    Command<roci_abi_unshare_range_request, Plain>("UNSHARE_RANGE", CheckUnshareRange),
    Command<roci_abi_plain_request, roci_abi_handle_response>("CREATE_COMP_CHANNEL"),
    Command<HandleRequest, Plain>("DESTROY_COMP_CHANNEL"),
    Command<roci_abi_create_cq_request, roci_abi_create_cq_response>("CREATE_CQ", CheckCreateCq),
    Command<roci_abi_resize_cq_request, roci_abi_resize_cq_response>("RESIZE_CQ", CheckResizeCq),
    Command<HandleRequest, roci_abi_destroy_response>("DESTROY_CQ"),
    Command<roci_abi_create_qp_request, roci_abi_create_qp_response>("CREATE_QP"),
    Command<roci_abi_modify_qp_request, roci_abi_modify_qp_response>("MODIFY_QP"),
    Command<roci_abi_query_qp_request, roci_abi_query_qp_response>("QUERY_QP"),
    Command<HandleRequest, roci_abi_destroy_response>("DESTROY_QP"),
    Command<roci_abi_create_ah_request, roci_abi_handle_response>("CREATE_AH"),
    Command<HandleRequest, Plain>("DESTROY_AH"),
};
static_assert(std::size(kCommands) == ROCI_ABI_COMMAND_COUNT);

}  // namespace

const CommandInfo* FindCommand(uint32_t command) {
  return command >= 1 && command < ROCI_ABI_COMMAND_COUNT ? &kCommands[command] : nullptr;
}

absl::Status DecodeRequest(std::span<const std::byte> message, uint32_t fd_count, Request& out) {
  out.info = nullptr;
  out.head = {};
  if (message.size() < sizeof(out.head)) return Invalid("shorter than a head");
  std::memcpy(&out.head, message.data(), sizeof(out.head));
  const CommandInfo* info = FindCommand(out.head.command);
  if (info == nullptr) return absl::UnimplementedError("unknown command");
  out.info = info;
  if (message.size() != info->request_size || out.head.size != info->request_size) {
    return Invalid("size of the message");
  }
  if (fd_count > kMaxRequestFds || (fd_count > 0 && !info->takes_fds)) {
    return Invalid("descriptors");
  }
  std::memcpy(out.bytes.data(), message.data(), message.size());
  return info->check != nullptr ? info->check(out.bytes.data(), fd_count) : absl::OkStatus();
}

}  // namespace roci::control
