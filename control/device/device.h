// The control half of an RDMA device: addresses, neighbours, limits and quotas.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "control/config/config.h"
#include "control/device/call_faults.h"
#include "control/device/multicast.h"
#include "control/device/peer_waits.h"
#include "control/device/quota.h"
#include "control/device/xrc_domains.h"
#include "control/loop/event_loop.h"
#include "control/net/addresses.h"
#include "control/net/group_reports.h"
#include "control/net/neighbours.h"
#include "dataplane/shard/device_client.h"
#include "memory/split_mix.h"
#include "roce/frame.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

class User;

// One quota for each limit of a device, or of one user on it.
struct DeviceQuotas {
  // `whole`: see Quota.
  explicit DeviceQuotas(const DeviceLimits& limits, DeviceQuotas* whole = nullptr)
      : qps(limits.max_qp, whole != nullptr ? &whole->qps : nullptr),
        cqs(limits.max_cq, whole != nullptr ? &whole->cqs : nullptr),
        mrs(limits.max_mr, whole != nullptr ? &whole->mrs : nullptr),
        mws(limits.max_mw, whole != nullptr ? &whole->mws : nullptr),
        dm_bytes(limits.max_dm_bytes, whole != nullptr ? &whole->dm_bytes : nullptr),
        pds(limits.max_pd, whole != nullptr ? &whole->pds : nullptr),
        ahs(limits.max_ah, whole != nullptr ? &whole->ahs : nullptr),
        multicast(limits.max_multicast_memberships, whole != nullptr ? &whole->multicast : nullptr),
        multicast_groups(limits.max_multicast_groups,
                         whole != nullptr ? &whole->multicast_groups : nullptr),
        multicast_joins(limits.max_multicast_joins,
                        whole != nullptr ? &whole->multicast_joins : nullptr),
        path_waits(limits.max_path_waits, whole != nullptr ? &whole->path_waits : nullptr),
        unresolved_peers(limits.max_unresolved_peers,
                         whole != nullptr ? &whole->unresolved_peers : nullptr),
        flows(limits.max_flows, whole != nullptr ? &whole->flows : nullptr),
        counters(limits.max_counters, whole != nullptr ? &whole->counters : nullptr),
        work_queues(limits.max_work_queues, whole != nullptr ? &whole->work_queues : nullptr),
        queue_tables(limits.max_queue_tables, whole != nullptr ? &whole->queue_tables : nullptr),

        srqs(limits.max_srq, whole != nullptr ? &whole->srqs : nullptr),
        xrcds(limits.max_xrcd, whole != nullptr ? &whole->xrcds : nullptr) {}
  Quota qps;
  Quota cqs;
  Quota mrs;
  Quota mws;
  Quota dm_bytes;  // charged in whole pages
  Quota pds;
  Quota ahs;
  Quota multicast;
  Quota multicast_groups;
  Quota multicast_joins;
  Quota path_waits;
  Quota unresolved_peers;
  Quota flows;
  Quota counters;
  Quota work_queues;
  Quota queue_tables;
  Quota srqs;
  Quota xrcds;
};

// Control thread only.
class Device {
 public:
  // `wire` is null for a device on a DPDK port. `loop` outlives the device.
  static absl::StatusOr<std::unique_ptr<Device>> Create(dataplane::Dataplane& dataplane,
                                                        dataplane::Wire* wire,
                                                        const DeviceConfig& config,
                                                        const DeviceLimits& limits,
                                                        EventLoop& loop);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return config_.name; }
  const DeviceConfig& config() const { return config_; }
  // Those of the configuration, lowered by the personality.
  const DeviceLimits& limits() const { return limits_; }
  const DeviceIdentity& identity() const { return config_.personality.identity; }
  DeviceQuotas& quotas() { return quotas_; }
  // A number against accidental collisions, not a secret: from the device's seed, if it has one.
  // 0: no random numbers available yet.
  uint64_t RandomNumber();
  MulticastMemberships& multicast() { return multicast_; }
  XrcDomains& xrc_domains() { return xrc_domains_; }
  CallFaults& call_faults() { return call_faults_; }
  dataplane::DeviceClient& dataplane() const { return *dataplane_; }
  const AddressTable& addresses() const { return addresses_; }
  const Neighbours& neighbours() const { return neighbours_; }
  // False: taken out (hot unplug) until it is plugged in again. Nobody can open it then, and its
  // link is down.
  bool is_plugged() const { return is_plugged_; }
  void SetPlugged(bool plugged);
  // Link down: drops resolved neighbours, which may be other adapters when the link is up again.
  void LinkLost();
  // Joins an IP multicast group: reports membership to the group's network until LeaveGroup has
  // been called as often. False: too many groups. Groups of attached queue pairs are joined without
  // this call, in the networks of all VLANs.
  bool JoinGroup(const roce::NetAddress& group);
  // No effect without a successful JoinGroup.
  void LeaveGroup(const roce::NetAddress& group);
  size_t reported_groups() const { return groups_.size(); }
  uint64_t node_guid() const { return Eui64(addresses_.mac()); }  // host byte order
  // From the MTU of the port, which may change; at least 256.
  roce::PathMtu max_path_mtu() const;
  // The speed of the link if the port knows it, else the configured rate.
  uint32_t rate_mbps() const;
  // The largest frame of raw packet queue pairs: bytes without FCS.
  uint32_t max_raw_frame() const {
    return std::min(dataplane_->mtu(), dataplane::kMaxMtuBytes) + roce::kMaxLinkHeaderBytes;
  }
  uint64_t raw_send_failures() const { return raw_send_failures_; }

  // Adds and removes addresses while programs use the device. AddAddress returns the index in the
  // GID table. Errors: see AddressTable. Packets to a removed address are dropped.
  absl::StatusOr<uint32_t> AddAddress(const InterfaceAddress& address);
  absl::Status RemoveAddress(const roce::NetAddress& address);
  // See AddressTable. Paths that were found earlier stay unchanged.
  absl::Status AddRoute(const Route& route);
  absl::Status RemoveRoute(const InterfaceAddress& network,
                           const std::optional<roce::Gid>& gateway);

  // Fills in all fields of the answer but `head`.
  void DescribePort(roci_abi_query_port_response& out) const;

  // Finds the path of an address vector (errors: see PlanPath). Returns nothing if the MAC address
  // is unknown: then `later` is called exactly once, after this call has returned, unless
  // CancelPath is called with `number` (never 0). DeadlineExceeded: the peer does not answer. The
  // wait is charged to `user`; ResourceExhausted: the user has too many of them.
  using PathDone = std::function<void(const absl::StatusOr<roce::Path>&)>;
  absl::StatusOr<std::optional<roce::Path>> FindPath(const roci_abi_ah_attr& attr, roce::Qpn local,
                                                     roce::Qpn remote,
                                                     const std::shared_ptr<User>& user,
                                                     PathDone later, uint64_t& number);
  void CancelPath(uint64_t number);
  // Changes when FindPath may give another path than before; never 0. The listener is called after
  // each change.
  uint32_t paths() const { return paths_; }
  void SetPathsListener(std::function<void()> listener) { paths_listener_ = std::move(listener); }

  // Receives packets for QP 1, the general service interface; they have passed gate 1. Null: none.
  using GsiHandler = std::function<void(const roce::Packet&)>;
  void SetGsiHandler(GsiHandler handler) { gsi_handler_ = std::move(handler); }
  // Sends a complete frame. A frame to the device's own MAC is looped back on every kind of port.
  void SendGsi(const Frame& frame);

  // For the loop's deadlines.
  roce::TimeNs NextTimeout() const {
    return std::min(neighbours_.NextTimeout(), groups_.NextTimeout());
  }
  void HandleTimeout(roce::TimeNs now);

 private:
  struct Waiting {
    roce::Path path;
    PathDone done;
    std::shared_ptr<User> user;  // outlives `wait`
    PeerWaits::Wait wait;
  };

  Device(const DeviceConfig& config, const DeviceLimits& limits, EventLoop& loop,
         std::unique_ptr<dataplane::DeviceClient> dataplane);
  absl::Status Start();
  void TellDataplaneAddresses();
  using GroupReferences = std::map<roce::NetAddress, GroupReports::Reference>;
  // `key`: one of `references`, which may have one already. False: too many groups.
  bool Join(GroupReferences& references, const roce::NetAddress& key,
            const roce::NetAddress& group);
  void Leave(GroupReferences& references, const roce::NetAddress& key);
  void JoinSolicitedNode(const InterfaceAddress& own);
  void Appear(const InterfaceAddress& own);
  void Disappear(const InterfaceAddress& own);
  // In all VLANs, or in none.
  bool JoinAttachedGroup(const roce::Gid& group);
  void LeaveAttachedGroup(const roce::Gid& group);
  void JoinAttachedGroups(uint16_t vlan);
  void LeaveAttachedGroups(uint16_t vlan);
  void HandleOther(std::span<const std::byte> frame);
  void DrainSlowPath();
  void SendFrame(const Frame& frame);
  void HandleGsi(std::span<const std::byte> frame);
  void DeliverAnswers();
  void ChangePaths();

  const DeviceConfig config_;
  const DeviceLimits limits_;
  EventLoop& loop_;
  std::unique_ptr<dataplane::DeviceClient> dataplane_;
  AddressTable addresses_;
  Neighbours neighbours_;
  GroupReports groups_;
  GroupReferences solicited_node_groups_;  // by our address
  GroupReferences attached_groups_;
  std::multimap<roce::NetAddress, GroupReports::Reference> joined_groups_;  // by JoinGroup
  DeviceQuotas quotas_;
  memory::SplitMix random_;
  MulticastMemberships multicast_;
  XrcDomains xrc_domains_;
  CallFaults call_faults_;
  EventLoop::Watch slow_path_watch_ = 0;
  PeerWaits peer_waits_;
  uint64_t last_waiting_ = 0;
  std::map<uint64_t, Waiting> waiting_;
  uint32_t paths_ = 1;
  std::function<void()> paths_listener_;
  uint64_t raw_send_failures_ = 0;
  bool is_plugged_ = true;
  GsiHandler gsi_handler_;
};

}  // namespace roci::control
