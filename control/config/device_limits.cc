#include "control/config/device_limits.h"

#include <endian.h>

#include <cstring>

#include "memory/types.h"
#include "roce/qp_attributes.h"
#include "roce/toeplitz.h"
#include "verbs_provider/abi/send_opcodes.h"
#include "verbs_provider/abi/tag_matching.h"

namespace roci::control {
namespace {

// Of device_cap_flags_ex (IB_UVERBS_DEVICE_FLUSH_GLOBAL, IB_UVERBS_DEVICE_FLUSH_PERSISTENT,
// IB_UVERBS_DEVICE_ATOMIC_WRITE).
constexpr uint64_t kCapFlushGlobal = uint64_t{1} << 38;
constexpr uint64_t kCapAtomicWrite = uint64_t{1} << 40;

constexpr uint32_t kAtomicHca = 1;  // IBV_ATOMIC_HCA: atomic among the operations of one device

constexpr uint32_t kToeplitz = 1;  // IBV_RX_HASH_FUNC_TOEPLITZ

constexpr uint32_t TypeBit(roce::QpType type) { return 1u << static_cast<uint32_t>(type); }

// The groups of attributes that a device without the feature reports as 0.
void DescribeFeatures(const DeviceLimits& limits, roci_abi_query_device_response& out) {
  if (limits.Has(Feature::kFlush)) {
    out.device_cap_flags_ex |= kCapFlushGlobal | kCapFlushPersistent | kCapAtomicWrite;
  }
  if (limits.Has(Feature::kTimestamps)) {
    out.hca_core_clock_khz = 1'000'000;  // timestamps are nanoseconds
    out.completion_timestamp_mask = ~uint64_t{0};
  }
  if (limits.Has(Feature::kAtomics)) out.atomic_cap = kAtomicHca;
  if (limits.Has(Feature::kRss)) {
    out.rss_fields = roce::kHashFields;
    out.rss_functions = kToeplitz;
    out.rss_qp_types = TypeBit(roce::QpType::kRawPacket);
    out.max_queue_tables = limits.max_queue_tables;
    out.max_queue_table_size = 1u << ROCI_ABI_MAX_QUEUE_TABLE_LOG;
    out.max_work_queues = limits.max_work_queues;
  }
  if (limits.Has(Feature::kPacketPacing)) {
    out.min_rate_kbps = roce::kMinRateKbps;
    out.max_rate_kbps = roce::kMaxRateKbps;
    out.rate_qp_types = abi::kSendingQpTypes & limits.qp_types;
  }
  if (limits.Has(Feature::kTagMatching)) {
    out.max_tags = ROCI_ABI_MAX_TAGS;
    out.max_tag_ops = ROCI_ABI_MAX_TAG_OPS;
    out.max_tag_sge = ROCI_ABI_MAX_TAG_SGE;
    out.max_rndv_header = ROCI_ABI_MAX_RNDV_HEADER;
  }
  if (limits.Has(Feature::kCqModeration)) {
    out.max_cq_count = kMaxCqModeration;
    out.max_cq_period = kMaxCqModeration;
  }
  if (!limits.Has(Feature::kOnDemandPaging)) out.flags |= ROCI_ABI_DEVICE_NO_ON_DEMAND_PAGING;
}

}  // namespace

uint32_t DeviceLimits::LackingOpcodes() const {
  return (Has(Feature::kAtomics) ? 0 : abi::kAtomicOpcodes) |
         (Has(Feature::kFlush) ? 0 : abi::kFlushOpcodes) | (HasWindows() ? 0 : abi::kWindowOpcodes);
}

uint32_t DeviceLimits::LackingRights() const {
  using memory::Access;
  return (Has(Feature::kAtomics) ? 0 : static_cast<uint32_t>(Access::kRemoteAtomic)) |
         (Has(Feature::kFlush)
              ? 0
              : static_cast<uint32_t>(Access::kFlushGlobal | Access::kFlushPersistent));
}

void DescribeDevice(const DeviceLimits& limits, const DeviceIdentity& identity, uint64_t node_guid,
                    roci_abi_query_device_response& out) {
  const roci_abi_response head = out.head;
  std::memset(&out, 0, sizeof(out));
  out.head = head;
  out.node_guid = htobe64(node_guid);
  out.sys_image_guid = htobe64(node_guid);
  out.max_mr_size = kMaxMrSize;
  out.page_size_cap = 0xFFFFF000;  // every power of two from 4 KiB on
  out.device_cap_flags = kKnownCapabilities & limits.capabilities;
  out.device_cap_flags_ex = out.device_cap_flags;
  out.vendor_id = identity.vendor_id;
  out.vendor_part_id = identity.vendor_part_id;
  out.hw_ver = identity.hw_ver;
  out.max_qp = limits.max_qp;
  out.max_qp_wr = limits.max_qp_wr;
  out.max_sge = limits.max_sge;
  out.max_sge_rd = limits.max_sge_rd;
  out.max_cq = limits.max_cq;
  out.max_cqe = limits.max_cqe;
  out.max_mr = limits.max_mr;
  out.max_mw = limits.max_mw;
  out.max_dm_size = limits.max_dm_bytes;
  out.max_pd = limits.max_pd;
  out.max_qp_rd_atom = limits.max_rd_atomic;
  out.max_qp_init_rd_atom = limits.max_rd_atomic;
  out.max_res_rd_atom = limits.max_rd_atomic * limits.max_qp;
  out.max_ah = limits.max_ah;
  out.max_mcast_grp = limits.max_multicast_groups;
  out.max_mcast_qp_attach = limits.max_multicast_members;
  out.max_total_mcast_qp_attach = limits.max_multicast_memberships;
  out.max_srq = limits.max_srq;
  out.max_srq_wr = limits.max_srq > 0 ? limits.max_srq_wr : 0;
  out.max_srq_sge = limits.max_srq > 0 ? limits.max_srq_sge : 0;
  out.max_pkeys = 1;
  out.max_inline = limits.max_inline;
  out.local_ca_ack_delay = static_cast<uint8_t>(identity.ack_delay);
  out.phys_port_cnt = 1;
  // The answer is zeroed, so the text ends.
  identity.firmware_version.copy(out.fw_ver, sizeof(out.fw_ver) - 1);
  DescribeFeatures(limits, out);
}

}  // namespace roci::control
