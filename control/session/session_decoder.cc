#include "control/session/session_decoder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include "control/loop/errno_status.h"
#include "control/loop/protocol_version.h"
#include "control/session/qp_attributes.h"
#include "control/session/session_commands.h"
#include "memory/types.h"
#include "roce/flow_key.h"
#include "roce/toeplitz.h"
#include "verbs_provider/abi/list_mr.h"
#include "verbs_provider/abi/tag_matching.h"

namespace roci::control {
namespace {

// Number of descriptors for access to the program's memory.
uint32_t MemoryFdsOf(uint64_t features) {
  constexpr uint64_t kEither = ROCI_ABI_FEATURE_APP_MEMORY | ROCI_ABI_FEATURE_MEMORY_PROOF;
  return (features & kEither) != 0 ? 1 : 0;
}

absl::Status CheckHello(const void* request, uint32_t fd_count, const DeviceLimits&) {
  const auto& hello = *static_cast<const roci_abi_hello_request*>(request);
  if (hello.magic != ROCI_ABI_MAGIC) return StatusFromErrno(EPROTO, "magic");
  if (absl::Status version = CheckProtocolVersion(hello.major); !version.ok()) return version;
  if (std::memchr(hello.device, 0, sizeof(hello.device)) == nullptr) {
    return Invalid("the device name is not terminated");
  }
  return fd_count == MemoryFdsOf(hello.features) ? absl::OkStatus()
                                                 : Invalid("wrong number of descriptors");
}

absl::Status CheckAttach(const void* request, uint32_t fd_count, const DeviceLimits&) {
  const auto& attach = *static_cast<const roci_abi_attach_request*>(request);
  if (attach.magic != ROCI_ABI_MAGIC) return Invalid("wrong magic number");
  if (absl::Status version = CheckProtocolVersion(attach.major); !version.ok()) return version;
  return fd_count == 1 + MemoryFdsOf(attach.features) ? absl::OkStatus()
                                                      : Invalid("wrong number of descriptors");
}

// The version in a HELLO or ATTACH of another size, which is another version's.
absl::Status CheckVersionOf(std::span<const std::byte> message, uint32_t command) {
  static_assert(offsetof(roci_abi_hello_request, major) ==
                offsetof(roci_abi_attach_request, major));
  roci_abi_hello_request hello = {};
  const size_t size = std::min(message.size(), offsetof(roci_abi_hello_request, features));
  std::memcpy(&hello, message.data(), size);
  const bool opens = command == ROCI_ABI_HELLO || command == ROCI_ABI_ATTACH;
  return opens && hello.magic == ROCI_ABI_MAGIC ? CheckProtocolVersion(hello.major)
                                                : absl::OkStatus();
}

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

absl::Status CheckRegMr(const void* request, uint32_t fd_count, const DeviceLimits& limits) {
  const auto& reg = *static_cast<const roci_abi_reg_mr_request*>(request);
  if (reg.fd_count != fd_count) return Invalid("wrong number of descriptors");
  const absl::Status status = CheckAccess(reg.access);
  if (!status.ok()) return status;
  if (reg.length == 0) {
    return reg.extent_count == 0 && fd_count == 0 ? absl::OkStatus()
                                                  : Invalid("an empty region has no extents");
  }
  if (reg.access & static_cast<uint32_t>(memory::Access::kOnDemand)) {
    return limits.Has(Feature::kOnDemandPaging)
               ? CheckOnDemand(reg)
               : absl::UnimplementedError("the device has no on-demand paging");
  }
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

absl::Status CheckEntries(uint32_t entries, uint32_t most) {
  return entries >= 1 && entries <= most ? absl::OkStatus() : Invalid("invalid number of entries");
}

absl::Status CheckCreateCq(const void* request, uint32_t, const DeviceLimits& limits) {
  const auto& create = *static_cast<const roci_abi_create_cq_request*>(request);
  if (create.flags & ~ROCI_ABI_CQ_IGNORE_OVERRUN)
    return absl::UnimplementedError("unsupported flags");
  if (create.comp_vector >= kCompletionVectors) return Invalid("no such completion vector");
  return CheckEntries(create.entries, limits.max_cqe);
}

absl::Status CheckModifyCq(const void* request, uint32_t, const DeviceLimits&) {
  const auto& modify = *static_cast<const roci_abi_modify_cq_request*>(request);
  return modify.count <= kMaxCqModeration && modify.period_us <= kMaxCqModeration
             ? absl::OkStatus()
             : Invalid("invalid moderation");
}

absl::Status CheckResizeCq(const void* request, uint32_t, const DeviceLimits& limits) {
  return CheckEntries(static_cast<const roci_abi_resize_cq_request*>(request)->entries,
                      limits.max_cqe);
}

absl::Status CheckQpFlags(const roci_abi_create_qp_request& create) {
  constexpr uint32_t kOffered = ROCI_ABI_QP_BLOCK_SELF_MULTICAST | ROCI_ABI_QP_WORK_QUEUE;
  if (create.flags & ~kOffered) return absl::UnimplementedError("unsupported creation flags");
  const bool is_datagram = create.qp_type == static_cast<uint32_t>(roce::QpType::kUd);
  if ((create.flags & ROCI_ABI_QP_BLOCK_SELF_MULTICAST) && !is_datagram) {
    return Invalid("invalid creation flags");
  }
  const bool is_raw = create.qp_type == static_cast<uint32_t>(roce::QpType::kRawPacket);
  if ((create.flags & ROCI_ABI_QP_WORK_QUEUE) && (!is_raw || create.max_send_wr != 0)) {
    return Invalid("a work queue cannot have a send queue");
  }
  return absl::OkStatus();
}

absl::Status CheckCreateQp(const void* request, uint32_t, const DeviceLimits& limits) {
  const auto& create = *static_cast<const roci_abi_create_qp_request*>(request);
  if (!IsOfferedQpType(create.qp_type) || !limits.HasQpType(create.qp_type))
    return absl::UnimplementedError("unsupported type of queue pair");
  const absl::Status status = CheckQpFlags(create);
  if (!status.ok()) return status;
  // XRC_RECV has no queues, and the numbers have no meaning.
  if (create.qp_type == static_cast<uint32_t>(roce::QpType::kXrcRecv)) return absl::OkStatus();
  if (create.max_send_wr > limits.max_qp_wr || create.max_recv_wr > limits.max_qp_wr ||
      create.max_send_sge > limits.max_sge || create.max_recv_sge > limits.max_sge ||
      create.max_inline > limits.max_inline) {
    return Invalid("a value exceeds the limits of the device");
  }
  return absl::OkStatus();
}

absl::Status CheckCreateFlow(const void* request, uint32_t, const DeviceLimits&) {
  const auto& create = *static_cast<const roci_abi_create_flow_request*>(request);
  constexpr uint32_t kSniffer = 3;  // the last of enum ibv_flow_attr_type
  constexpr uint32_t kActions = ROCI_ABI_FLOW_DROP | ROCI_ABI_FLOW_COUNT | ROCI_ABI_FLOW_PASS_ON;
  if (create.type > kSniffer) return Invalid("unknown type of flow rule");
  if (create.actions & ~kActions) return Invalid("unknown action of a flow rule");
  if ((create.mask.layers | create.value.layers) & ~roce::kFlowLayers)
    return Invalid("invalid layers");
  for (const uint8_t byte : create.mask.reserved) {
    if (byte != 0) return Invalid("unsupported mask of a flow rule");
  }
  // Only plain rules have a match, or pass frames on.
  const bool is_plain = create.type == 0;
  const roci_abi_flow_key nothing{};
  if (!is_plain && (std::memcmp(&create.mask, &nothing, sizeof(nothing)) != 0 ||
                    (create.actions & ROCI_ABI_FLOW_PASS_ON))) {
    return Invalid("a default or sniffer rule must not have a match");
  }
  return absl::OkStatus();
}

absl::Status CheckQueueTable(const void* request, uint32_t, const DeviceLimits&) {
  const auto& create = *static_cast<const roci_abi_create_queue_table_request*>(request);
  return create.log_size <= ROCI_ABI_MAX_QUEUE_TABLE_LOG ? absl::OkStatus()
                                                         : Invalid("the table is too large");
}

absl::Status CheckCreateRssQp(const void* request, uint32_t, const DeviceLimits&) {
  const auto& create = *static_cast<const roci_abi_create_rss_qp_request*>(request);
  return (create.fields & ~roce::kHashFields) == 0
             ? absl::OkStatus()
             : absl::UnimplementedError("unsupported hash fields");
}

absl::Status CheckSrqSize(uint32_t max_wr, uint32_t max_sge, const DeviceLimits& limits) {
  return max_wr >= 1 && max_wr <= limits.max_srq_wr && max_sge <= limits.max_srq_sge
             ? absl::OkStatus()
             : Invalid("the size is 0 or exceeds the limits of the device");
}

absl::Status CheckCreateSrq(const void* request, uint32_t, const DeviceLimits& limits) {
  const auto& create = *static_cast<const roci_abi_create_srq_request*>(request);
  if (create.type > ROCI_ABI_SRQ_XRC)
    return absl::UnimplementedError("unsupported type of receive queue");
  return CheckSrqSize(create.max_wr, create.max_sge, limits);
}

absl::Status CheckCreateTagSrq(const void* request, uint32_t, const DeviceLimits& limits) {
  const auto& create = *static_cast<const roci_abi_create_tag_srq_request*>(request);
  if (create.max_tags < 1 || create.max_tags > ROCI_ABI_MAX_TAGS || create.max_ops < 1 ||
      create.max_ops > ROCI_ABI_MAX_TAG_OPS) {
    return Invalid("invalid number of tags or operations");
  }
  return CheckSrqSize(create.max_wr, create.max_sge, limits);
}

absl::Status CheckReturnEvents(const void* request, uint32_t, const DeviceLimits&) {
  const auto& events = *static_cast<const roci_abi_return_events_request*>(request);
  const bool is_async = events.channel == ROCI_ABI_NO_HANDLE;
  const uint32_t allowed = is_async ? ROCI_ABI_RETURN_HOLD : 0;
  return events.count <= ROCI_ABI_MAX_RETURNED_EVENTS && (events.flags & ~allowed) == 0
             ? absl::OkStatus()
             : Invalid("invalid number of events or unknown flags");
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

absl::Status CheckModifySrq(const void* request, uint32_t, const DeviceLimits& limits) {
  const auto& modify = *static_cast<const roci_abi_modify_srq_request*>(request);
  if (modify.mask & ~(ROCI_ABI_SRQ_MAX_WR | ROCI_ABI_SRQ_LIMIT))
    return Invalid("unknown attributes in the mask");
  if ((modify.mask & ROCI_ABI_SRQ_MAX_WR) == 0) return absl::OkStatus();
  if (!limits.HasCapabilities(kCapSrqResize)) {
    return absl::UnimplementedError("the device does not resize shared receive queues");
  }
  return CheckSrqSize(modify.max_wr, 0, limits);
}

absl::Status CheckOpenXrcd(const void* request, uint32_t fd_count, const DeviceLimits&) {
  const auto& open = *static_cast<const roci_abi_open_xrcd_request*>(request);
  if (open.has_file > 1 || open.has_file != fd_count) return Invalid("wrong number of descriptors");
  return (open.flags & ~(ROCI_ABI_XRCD_CREATE | ROCI_ABI_XRCD_EXCLUSIVE)) == 0
             ? absl::OkStatus()
             : Invalid("unknown flags");
}

template <class RequestType, class ResponseType>
constexpr SessionCommandInfo Command(const char* name, bool takes_fds,
                                     absl::Status (*check)(const void*, uint32_t,
                                                           const DeviceLimits&)) {
  static_assert(offsetof(RequestType, head) == 0 && offsetof(ResponseType, head) == 0);
  static_assert(sizeof(RequestType) <= kMaxRequestBytes);
  return {name, sizeof(RequestType), sizeof(ResponseType), check, takes_fds};
}

constexpr size_t kCommandRows = [] {
  size_t rows = 0;
#define ROCI_ROW(...) ++rows;
  ROCI_SESSION_COMMANDS(ROCI_ROW)
#undef ROCI_ROW
  return rows;
}();

// Indexed by roci_abi_command. Unassigned numbers have no name.
constexpr std::array<SessionCommandInfo, ROCI_ABI_COMMAND_COUNT> kCommands = [] {
  std::array<SessionCommandInfo, ROCI_ABI_COMMAND_COUNT> table{};
#define ROCI_ROW(name, request, response, takes_fds, check, handler)                              \
  table[ROCI_ABI_##name] = Command<roci_abi_##request##_request, roci_abi_##response##_response>( \
      #name, takes_fds, check);
  ROCI_SESSION_COMMANDS(ROCI_ROW)
#undef ROCI_ROW
  return table;
}();
static_assert(kCommandRows == ROCI_ABI_COMMAND_COUNT - 1);
static_assert(std::ranges::count(kCommands, nullptr, &SessionCommandInfo::name) == 1,
              "0 is no command");

// Whether the device has what the command is for. Those that it lacks are refused as by an adapter
// without them.
bool IsOffered(uint32_t command, const DeviceLimits& limits) {
  switch (command) {
    case ROCI_ABI_ALLOC_MW:
      return limits.max_mw > 0;
    case ROCI_ABI_ALLOC_DM:
      return limits.max_dm_bytes > 0;
    case ROCI_ABI_ATTACH_MULTICAST:
      return limits.max_multicast_groups > 0;
    case ROCI_ABI_CREATE_SRQ:
      return limits.max_srq > 0;
    case ROCI_ABI_CREATE_TAG_SRQ:
      return limits.Has(Feature::kTagMatching);
    case ROCI_ABI_CREATE_FLOW:
      return limits.Has(Feature::kFlows);
    case ROCI_ABI_CREATE_QUEUE_TABLE:
    case ROCI_ABI_CREATE_RSS_QP:
      return limits.Has(Feature::kRss);
    case ROCI_ABI_OPEN_XRCD:
      return limits.HasCapabilities(kCapXrc);
    case ROCI_ABI_MODIFY_CQ:
      return limits.Has(Feature::kCqModeration);
    default:
      return true;
  }
}

}  // namespace

const SessionCommandInfo* FindCommand(uint32_t command) {
  return command >= 1 && command < ROCI_ABI_COMMAND_COUNT ? &kCommands[command] : nullptr;
}

absl::Status DecodeRequest(std::span<const std::byte> message, uint32_t fd_count,
                           const DeviceLimits& limits, Request& out) {
  out.info = nullptr;
  out.head = {};
  if (message.size() < sizeof(out.head)) return Invalid("the message is shorter than a head");
  std::memcpy(&out.head, message.data(), sizeof(out.head));
  const SessionCommandInfo* info = FindCommand(out.head.command);
  if (info == nullptr) return absl::UnimplementedError("unknown command");
  out.info = info;
  if (message.size() != info->request_size || out.head.size != info->request_size) {
    if (absl::Status version = CheckVersionOf(message, out.head.command); !version.ok()) {
      return version;
    }
    return Invalid("wrong size of the message");
  }
  if (fd_count > kMaxRequestFds || (fd_count > 0 && !info->takes_fds)) {
    return Invalid("wrong number of descriptors");
  }
  std::memcpy(out.bytes.data(), message.data(), message.size());
  if (!IsOffered(out.head.command, limits))
    return absl::UnimplementedError("the device has no such objects");
  return info->check != nullptr ? info->check(out.bytes.data(), fd_count, limits)
                                : absl::OkStatus();
}

}  // namespace roci::control
