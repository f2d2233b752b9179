#include "control/device_limits.h"

#include <endian.h>

#include <cstring>

namespace roci::control {
namespace {

// enum ibv_device_cap_flags (ibv_query_device(3)).
constexpr uint64_t kCapBadPkeyCounter = 1u << 1;
constexpr uint64_t kCapPortActiveEvent = 1u << 10;
constexpr uint64_t kCapSysImageGuid = 1u << 11;
constexpr uint64_t kCapRcRnrNak = 1u << 12;

constexpr uint32_t kAtomicHca = 1;  // IBV_ATOMIC_HCA: atomic among this device's own work

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
  out.device_cap_flags = kCapBadPkeyCounter | kCapPortActiveEvent | kCapSysImageGuid | kCapRcRnrNak;
  out.hca_core_clock_khz = 1'000'000;  // timestamps are nanoseconds
  out.completion_timestamp_mask = ~uint64_t{0};
  out.vendor_id = kVendorId;
  out.vendor_part_id = kVendorPartId;
  out.max_qp = limits.max_qp;
  out.max_qp_wr = limits.max_qp_wr;
  out.max_sge = kMaxSge;
  out.max_sge_rd = kMaxSge;
  out.max_cq = limits.max_cq;
  out.max_cqe = limits.max_cqe;
  out.max_mr = limits.max_mr;
  out.max_pd = limits.max_pd;
  out.max_qp_rd_atom = limits.max_rd_atomic;
  out.max_qp_init_rd_atom = limits.max_rd_atomic;
  out.max_res_rd_atom = limits.max_rd_atomic * limits.max_qp;
  out.atomic_cap = kAtomicHca;
  out.max_ah = limits.max_ah;
  out.max_pkeys = 1;
  out.max_inline = kMaxInline;
  out.local_ca_ack_delay =
      15;  // 4.096 us * 2^15, about 134 ms: the daemon may be off its processor
  out.phys_port_cnt = 1;
  std::memcpy(out.fw_ver, kFirmwareVersion, sizeof(kFirmwareVersion));
}

}  // namespace roci::control
