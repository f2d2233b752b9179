// The limits of a device as programs see them (ibv_query_device(3)). All are enforced: one object
// too many fails with ENOMEM, a number larger than its limit with EINVAL.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/types/queue_limits.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

inline constexpr uint32_t kVendorPartId = 0x6369;
inline constexpr char kFirmwareVersion[] = "0.1.0";
// 4.096 us * 2^15, about 134 ms: the daemon may be off its processor.
inline constexpr uint32_t kAckDelay = 15;
// RC, UC, UD, RAW_PACKET, XRC_SEND and XRC_RECV, as bits of enum ibv_qp_type.
inline constexpr uint32_t kAllQpTypes = 1u << 2 | 1u << 3 | 1u << 4 | 1u << 8 | 1u << 9 | 1u << 10;

// Optional features and calls of a device, beyond queue pairs, completion queues, regions and
// address handles: a bit each of DeviceLimits::features.
enum class Feature : uint32_t {
  kAtomics = 1u << 0,
  kCqModeration = 1u << 1,
  kFlows = 1u << 2,
  kFlush = 1u << 3,  // also ATOMIC_WRITE
  kOnDemandPaging = 1u << 4,
  kPacketPacing = 1u << 5,
  kRss = 1u << 6,
  kTagMatching = 1u << 7,
  kTimestamps = 1u << 8,
  // Calls that a provider may lack.
  kAllocMw = 1u << 9,
  kAllocNullMr = 1u << 10,
  kCreateCounters = 1u << 11,
  kRegDmabufMr = 1u << 12,
  kReregMr = 1u << 13,
  kResizeCq = 1u << 14,
};

// Limits per device, over all its sessions. The configuration may lower them ([limits]), and so may
// the device's personality.
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
  uint32_t max_sge = dataplane::kMaxSges;
  uint32_t max_sge_rd = dataplane::kMaxSges;
  uint32_t max_srq_sge = dataplane::kMaxSges;
  uint32_t max_inline = dataplane::kMaxInlineBytes;
  uint32_t qp_types = kAllQpTypes;  // bit i: enum ibv_qp_type i
  uint32_t features = ~0u;          // see Feature
  uint32_t capabilities = ~0u;      // those of device_cap_flags that the device may report

  // Operations that the device lacks (abi/send_opcodes.h), and the rights that permit them to peers
  // (enum ibv_access_flags).
  uint32_t LackingOpcodes() const;
  uint32_t LackingRights() const;
  bool Has(Feature feature) const { return (features & static_cast<uint32_t>(feature)) != 0; }
  bool HasCapabilities(uint32_t flags) const { return (capabilities & flags) == flags; }
  // Independent of the reported max_mw: some drivers report windows that their provider lacks.
  bool HasWindows() const { return max_mw > 0 && Has(Feature::kAllocMw); }
  bool HasQpType(uint32_t type) const { return type < 32 && (qp_types >> type & 1) != 0; }
};

// How a device calls itself: ibv_query_device(3) and /sys/class/infiniband.
struct DeviceIdentity {
  uint32_t vendor_id = ROCI_ABI_VENDOR_ID;
  uint32_t vendor_part_id = kVendorPartId;
  uint32_t hw_ver = 0;
  uint32_t ack_delay = kAckDelay;  // local_ca_ack_delay
  std::string firmware_version = kFirmwareVersion;
  // Of sysfs. Empty: there is no such file.
  std::string hca_type = "rocinante";
  std::string board_id = "ROCI000000001";
};

// The same for every device.
inline constexpr uint64_t kMaxMrSize = uint64_t{1} << 46;
inline constexpr uint32_t kMaxCompletionChannels = 16384;  // per session
inline constexpr uint32_t kCompletionVectors = 1;
// Completion event moderation: most completions and most microseconds (ibv_modify_cq(3)).
inline constexpr uint32_t kMaxCqModeration = 65535;
// PortInfo:CapabilityMask bits as in verbs: communication management, IP based GIDs.
inline constexpr uint32_t kPortCapabilities = 1u << 16 | 1u << 26;

// IB_UVERBS_DEVICE_FLUSH_PERSISTENT, in device_cap_flags_ex: only devices that map memory have it.
inline constexpr uint64_t kCapFlushPersistent = uint64_t{1} << 39;
// IBV_DEVICE_RAW_IP_CSUM, for plugins that know the checksum flag of rings.
inline constexpr uint64_t kCapRawIpChecksum = uint64_t{1} << 26;

// IBV_DEVICE_XRC and others, of device_cap_flags.
inline constexpr uint32_t kCapSrqResize = 1u << 13;
inline constexpr uint32_t kCapMemoryWindow = 1u << 17;
inline constexpr uint32_t kCapXrc = 1u << 20;
inline constexpr uint32_t kCapMemoryWindowType2B = 1u << 24;
// device_cap_flags of a device without a personality: BAD_PKEY_CNTR, PORT_ACTIVE_EVENT,
// SYS_IMAGE_GUID, RC_RNR_NAK_GEN, MEM_MGT_EXTENSIONS and those above.
inline constexpr uint32_t kKnownCapabilities =
    1u << 1 | 1u << 10 | 1u << 11 | 1u << 12 | kCapSrqResize | kCapMemoryWindow | kCapXrc |
    1u << 21 | kCapMemoryWindowType2B | static_cast<uint32_t>(kCapRawIpChecksum);

// Fills in all fields of the answer but `head`. `node_guid` in host byte order.
void DescribeDevice(const DeviceLimits& limits, const DeviceIdentity& identity, uint64_t node_guid,
                    roci_abi_query_device_response& out);

}  // namespace roci::control
