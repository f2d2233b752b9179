// The limits of a device as programs see them (ibv_query_device(3)). All are enforced: one object
// too many fails with ENOMEM, a number larger than its limit with EINVAL.
#pragma once

#include <cstdint>

#include "dataplane/types/queue_limits.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

// Limits per device, over all its sessions. The configuration may lower them ([limits]).
struct DeviceLimits {
  uint32_t max_qp = 16384;
  uint32_t max_cq = 16384;
  uint32_t max_mr = 65536;
  uint32_t max_mw = 65536;
  uint32_t max_dm_bytes = 16 << 20;  // of device memory
  uint32_t max_pd = 16384;
  uint32_t max_ah = 65536;
  uint32_t max_srq = 4096;
  uint32_t max_xrcd = 4096;  // open handles of XRC domains; verbs do not report this limit
  uint32_t max_srq_wr = dataplane::kMaxQueueEntries;
  uint32_t max_qp_wr = dataplane::kMaxQueueEntries;
  uint32_t max_cqe = dataplane::kMaxCompletionEntries;
  uint32_t max_rd_atomic = 16;  // READs and atomics under way per QP, each direction
  // Not configurable.
  uint32_t max_multicast_memberships = 8192;  // queue pairs in all groups
  uint32_t max_multicast_groups = 1024;       // a group that two users have joined counts twice
  uint32_t max_multicast_members = 256;       // queue pairs in one group
  uint32_t max_multicast_joins = 8192;        // memberships of librdmacm's identifiers
  uint32_t max_path_waits = 16384;            // paths whose next hop is being resolved
  uint32_t max_unresolved_peers = 2048;       // these next hops; one of two users counts twice
  uint32_t max_flows = 16384;
  uint32_t max_counters = 16384;
  uint32_t max_work_queues = 4096;
  uint32_t max_queue_tables = 1024;
};

// The same for every device.
inline constexpr uint64_t kMaxMrSize = uint64_t{1} << 46;
inline constexpr uint32_t kMaxCompletionChannels = 16384;  // per session
inline constexpr uint32_t kCompletionVectors = 1;
// Completion event moderation: most completions and most microseconds (ibv_modify_cq(3)).
inline constexpr uint32_t kMaxCqModeration = 65535;
inline constexpr uint32_t kVendorPartId = 0x6369;
inline constexpr char kFirmwareVersion[] = "0.1.0";
// PortInfo:CapabilityMask bits as in verbs: communication management, IP based GIDs.
inline constexpr uint32_t kPortCapabilities = 1u << 16 | 1u << 26;

// IB_UVERBS_DEVICE_FLUSH_PERSISTENT, in device_cap_flags_ex: only devices that map memory have it.
inline constexpr uint64_t kCapFlushPersistent = uint64_t{1} << 39;
// IBV_DEVICE_RAW_IP_CSUM, for plugins that know the checksum flag of rings.
inline constexpr uint64_t kCapRawIpChecksum = uint64_t{1} << 26;

// Fills in all fields of the answer but `head`. `node_guid` in host byte order.
void DescribeDevice(const DeviceLimits& limits, uint64_t node_guid,
                    roci_abi_query_device_response& out);

}  // namespace roci::control
