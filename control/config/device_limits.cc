#include "control/config/device_limits.h"

#include <endian.h>

#include <cstring>

#include "roce/qp_attributes.h"
#include "roce/toeplitz.h"
#include "verbs_provider/abi/send_opcodes.h"
#include "verbs_provider/abi/tag_matching.h"

namespace roci::control {
namespace {

// enum ibv_device_cap_flags (ibv_query_device(3)).
constexpr uint64_t kCapBadPkeyCounter = 1u << 1;
constexpr uint64_t kCapPortActiveEvent = 1u << 10;
constexpr uint64_t kCapSysImageGuid = 1u << 11;
constexpr uint64_t kCapRcRnrNak = 1u << 12;
constexpr uint64_t kCapSrqResize = 1u << 13;
constexpr uint64_t kCapMemoryWindow = 1u << 17;
constexpr uint64_t kCapXrc = 1u << 20;
constexpr uint64_t kCapMemoryManagement = 1u << 21;  // IBV_DEVICE_MEM_MGT_EXTENSIONS
constexpr uint64_t kCapMemoryWindowType2B = 1u << 24;
// Of device_cap_flags_ex (IB_UVERBS_DEVICE_FLUSH_GLOBAL, IB_UVERBS_DEVICE_FLUSH_PERSISTENT,
// IB_UVERBS_DEVICE_ATOMIC_WRITE).
constexpr uint64_t kCapFlushGlobal = uint64_t{1} << 38;
constexpr uint64_t kCapAtomicWrite = uint64_t{1} << 40;

constexpr uint32_t kAtomicHca = 1;  // IBV_ATOMIC_HCA: atomic among the operations of one device

constexpr uint32_t kToeplitz = 1;  // IBV_RX_HASH_FUNC_TOEPLITZ

constexpr uint32_t TypeBit(roce::QpType type) { return 1u << static_cast<uint32_t>(type); }

}  // namespace

void DescribeDevice(const DeviceLimits& limits, uint64_t node_guid,
                    roci_abi_query_device_response& out) {
  const roci_abi_response head = out.head;
  std::memset(&out, 0, sizeof(out));
  out.head = head;
  out.node_guid = htobe64(node_guid);
  out.sys_image_guid = htobe64(node_guid);
  out.max_mr_size = kMaxMrSize;
  out.page_size_cap = 0xFFFFF000;  // every power of two from 4 KiB on
  out.device_cap_flags = kCapBadPkeyCounter | kCapPortActiveEvent | kCapSysImageGuid |
                         kCapRcRnrNak | kCapSrqResize | kCapMemoryWindow | kCapXrc |
                         kCapMemoryManagement | kCapMemoryWindowType2B | kCapRawIpChecksum;
  out.device_cap_flags_ex =
      out.device_cap_flags | kCapFlushGlobal | kCapFlushPersistent | kCapAtomicWrite;
  out.hca_core_clock_khz = 1'000'000;  // timestamps are nanoseconds
  out.completion_timestamp_mask = ~uint64_t{0};
  out.vendor_id = ROCI_ABI_VENDOR_ID;
  out.vendor_part_id = kVendorPartId;
  out.max_qp = limits.max_qp;
  out.max_qp_wr = limits.max_qp_wr;
  out.max_sge = dataplane::kMaxSges;
  out.max_sge_rd = dataplane::kMaxSges;
  out.max_cq = limits.max_cq;
  out.max_cqe = limits.max_cqe;
  out.max_mr = limits.max_mr;
  out.max_mw = limits.max_mw;
  out.max_dm_size = limits.max_dm_bytes;
  out.max_pd = limits.max_pd;
  out.max_qp_rd_atom = limits.max_rd_atomic;
  out.max_qp_init_rd_atom = limits.max_rd_atomic;
  out.max_res_rd_atom = limits.max_rd_atomic * limits.max_qp;
  out.atomic_cap = kAtomicHca;
  out.max_ah = limits.max_ah;
  out.max_mcast_grp = limits.max_multicast_groups;
  out.max_mcast_qp_attach = limits.max_multicast_members;
  out.max_total_mcast_qp_attach = limits.max_multicast_memberships;
  out.rss_fields = roce::kHashFields;
  out.rss_functions = kToeplitz;
  out.rss_qp_types = TypeBit(roce::QpType::kRawPacket);
  out.max_queue_tables = limits.max_queue_tables;
  out.max_queue_table_size = 1u << ROCI_ABI_MAX_QUEUE_TABLE_LOG;
  out.max_work_queues = limits.max_work_queues;
  out.min_rate_kbps = roce::kMinRateKbps;
  out.max_rate_kbps = roce::kMaxRateKbps;
  out.rate_qp_types = abi::kSendingQpTypes;
  out.max_tags = ROCI_ABI_MAX_TAGS;
  out.max_tag_ops = ROCI_ABI_MAX_TAG_OPS;
  out.max_tag_sge = ROCI_ABI_MAX_TAG_SGE;
  out.max_rndv_header = ROCI_ABI_MAX_RNDV_HEADER;
  out.max_srq = limits.max_srq;
  out.max_srq_wr = limits.max_srq_wr;
  out.max_srq_sge = dataplane::kMaxSges;
  out.max_pkeys = 1;
  out.max_cq_count = kMaxCqModeration;
  out.max_cq_period = kMaxCqModeration;
  out.max_inline = dataplane::kMaxInlineBytes;
  out.local_ca_ack_delay =
      15;  // 4.096 us * 2^15, about 134 ms: the daemon may be off its processor
  out.phys_port_cnt = 1;
  std::memcpy(out.fw_ver, kFirmwareVersion, sizeof(kFirmwareVersion));
}

}  // namespace roci::control
