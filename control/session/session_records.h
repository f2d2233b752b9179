// Records of a session's objects: quotas that they occupy, their part in the dataplane, and their
// reference counts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "control/device/multicast.h"
#include "control/device/quota.h"
#include "control/device/xrc_domains.h"
#include "control/loop/unique_fd.h"
#include "control/session/context_group.h"
#include "control/session/memory_reach.h"
#include "dataplane/shard/commands.h"
#include "dataplane/shard/device_commands.h"
#include "dataplane/types/flow_rule.h"
#include "dataplane/types/target_opening.h"
#include "memory/mapped_file.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

class Device;

struct PdRecord {
  QuotaShare share;
  RefCount ref_count;  // regions, queue pairs, address handles
};
struct MrRecord {
  QuotaShare share;
  AppShare mappings;
  QuotaShare descriptor;  // of a DMA buffer
  uint32_t pd = 0;
  uint32_t key = 0;
  uint64_t start = 0;
  uint64_t length = 0;
  uint32_t dm = 0;                            // handle of the device memory that it is in; 0: none
  NotMapped not_mapped = NotMapped::kMapped;  // when it was registered
};
// Device memory: a memfd that the daemon and the program map.
struct DmRecord {
  QuotaShare share;
  RingShare mapping_share = {};
  QuotaShare descriptor;
  std::shared_ptr<UniqueFd> fd;  // for sessions that import the memory
  std::shared_ptr<memory::MappedFile> mapping;
  uint64_t length = 0;
  RefCount ref_count;  // regions
};
struct ListRecord {
  QuotaShare share;
  RingShare memory;
  uint32_t pd = 0;
};
struct MwRecord {
  QuotaShare share;
  uint32_t pd = 0;
};
struct ChannelRecord {
  static constexpr uint64_t kDescriptors = 1;  // in the daemon
  QuotaShare descriptors;
  std::shared_ptr<dataplane::EventSocket> socket;
  uint32_t ref_count = 0;  // completion queues
};
struct CqRecord {
  QuotaShare share;
  RingShare memory;
  dataplane::CompletionQueue* cq = nullptr;
  uint64_t user_handle = 0;
  uint32_t channel = 0;  // 0: none
};
struct SrqRecord {
  QuotaShare share;
  RingShare memory;
  dataplane::SharedReceiveQueue* srq = nullptr;
  uint32_t number = 0;  // XRC only
  roci_abi_srq_layout layout = {};
  bool has_tags = false;
  uint64_t user_handle = 0;
  uint32_t max_wr = 0;  // as last asked for; there may be more slots
  uint32_t pd = 0;
  uint32_t xrcd = 0;  // 0: none
  uint32_t cq = 0;    // XRC and tag matching only
};
struct XrcdRecord {
  QuotaShare share;
  std::shared_ptr<XrcDomain> domain;
  uint32_t ref_count = 0;  // shared receive queues, and open receiving queue pairs
};
struct QpRecord {
  // A receiving XRC queue pair is charged to its domain, and here only this handle for it.
  QuotaShare share;
  RingShare memory;
  dataplane::QueuePair* qp = nullptr;
  roce::Qpn qpn;
  roce::QpType type = roce::QpType::kRc;
  dataplane::QueueLayout layout = {};
  uint64_t user_handle = 0;
  uint32_t pd = 0;
  uint32_t send_cq = 0;
  uint32_t recv_cq = 0;  // 0: none
  uint32_t srq = 0;      // 0: none
  // A receiving XRC queue pair: the domain, and what this session has of it.
  uint32_t xrcd = 0;
  std::shared_ptr<XrcDomain> domain;
  std::unique_ptr<dataplane::TargetOpening> opening;
  bool sq_sig_all = false;
  std::optional<roci_abi_ah_attr> address;  // as the program gave it
  struct Group {
    QuotaShare share;
    MulticastMemberships::Membership member;
  };
  std::vector<Group> groups;
  bool is_work_queue = false;
  uint32_t queue_table = 0;  // of an RSS queue pair, else 0
  uint32_t ref_count = 0;    // flow rules; of a work queue: places in tables
};
struct CountersRecord {
  QuotaShare share;
  std::unique_ptr<dataplane::FlowCounters> values;
  uint32_t ref_count = 0;  // flow rules
};
// An installed flow rule; it is removed from the device when this goes.
class InstalledFlow {
 public:
  InstalledFlow() = default;
  InstalledFlow(Device& device, dataplane::FlowId id) : device_(&device), id_(id) {}
  InstalledFlow(InstalledFlow&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), id_(other.id_) {}
  InstalledFlow& operator=(InstalledFlow&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~InstalledFlow();
  dataplane::FlowId id() const { return id_; }

 private:
  Device* device_ = nullptr;  // null: none
  dataplane::FlowId id_{};
};
struct FlowRecord {
  QuotaShare share;
  InstalledFlow rule;
  uint32_t qp = 0;
  uint32_t counters = 0;  // 0: none
};
// An indirection table of work queues.
struct QueueTableRecord {
  QuotaShare share;
  std::vector<uint32_t> queues;
  uint32_t ref_count = 0;  // RSS queue pairs
};
struct AhRecord {
  QuotaShare share;
  uint32_t pd = 0;
};

}  // namespace roci::control
