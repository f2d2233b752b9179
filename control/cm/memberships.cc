#include "control/cm/memberships.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "control/cm/channel.h"
#include "control/cm/queue_pair_attributes.h"
#include "control/loop/errno_status.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::control::cm {
namespace {

// GID index of the source address for messages to `group`: the identifier's own address, or one of
// the group's family in the same VLAN; the link-local address only if there is no other.
std::optional<uint32_t> SenderTo(const CmId& id, const roce::Gid& group) {
  const AddressTable& addresses = id.port->device.addresses();
  if (id.source.gid.IsIpv4() == group.IsIpv4()) {
    return addresses.IndexOf({id.source.gid, id.vlan}).value_or(id.gid_index);
  }
  std::optional<uint32_t> found;
  for (uint32_t i = 0; i < addresses.size(); ++i) {
    const InterfaceAddress& own = *addresses.At(i);
    if (addresses.IsFree(i) || own.vlan != id.vlan || own.gid.IsIpv4() != group.IsIpv4()) continue;
    const bool is_link_local = own.gid == addresses.At(0)->gid;
    if (!found || !is_link_local) found = i;
    if (!is_link_local) break;
  }
  return found;
}

}  // namespace

absl::StatusOr<uint32_t> Memberships::Join(CmId& id, uint64_t uid, const SocketAddress& group,
                                           bool send_only) {
  if (id.qp_type != kQpUd) return Invalid("multicast needs a datagram identifier");
  if (id.port == nullptr ||
      (id.state != IdState::kBound && id.state != IdState::kAddressResolved)) {
    return Invalid("no device is chosen");
  }
  if (!group.gid.IsMulticast()) return Invalid("not a multicast address");
  if (id.memberships.size() >= kMaxOfOne || id.channel->is_full()) {
    return absl::ResourceExhaustedError("too many groups");
  }
  const std::optional<uint32_t> sender = SenderTo(id, group.gid);
  if (!sender) return StatusFromErrno(EADDRNOTAVAIL, "no address of the group's family");
  const roce::NetAddress joined{group.gid, id.vlan};
  Device& device = id.port->device;
  const std::shared_ptr<User>& user = id.channel->shared_user();
  DeviceQuotas& quotas = user->QuotasOf(device.limits(), device.quotas());
  UserShare share(user, quotas.multicast_joins, 1);
  if (!share.ok()) return LimitReached("multicast memberships of identifiers");
  // A send-only member receives nothing, so the group is not joined on the network.
  if (!send_only && !device.JoinGroup(joined)) {
    return absl::ResourceExhaustedError("too many groups");
  }
  do {
    ++last_number_;
  } while (last_number_ == 0 || owners_.contains(last_number_));
  id.memberships.push_back({last_number_, uid, joined, send_only, 0, std::move(share)});
  owners_[last_number_] = id.number;
  rdma_ucm_event_resp out = {};
  out.uid = uid;
  out.id = id.number;
  out.event = ROCI_ABI_CM_EVENT_MULTICAST_JOIN;
  out.param.ud.qp_num = roce::kMulticastQpn.value();
  out.param.ud.qkey = id.used_qkey();
  out.param.ud.ah_attr = AddressHandle(id, group.gid, *sender);
  id.channel->Push({id.number, last_number_, out});
  return last_number_;
}

void Memberships::LeaveAll(CmId& id) {
  for (const Membership& member : id.memberships) {
    owners_.erase(member.number);
    if (!member.send_only) id.port->device.LeaveGroup(member.group);
  }
  id.memberships.clear();
}

absl::StatusOr<uint32_t> Memberships::Leave(const Channel& channel, uint32_t number) {
  const auto it = owners_.find(number);
  if (it == owners_.end()) return absl::NotFoundError("no such membership");
  CmId& id = *ids_.Get(it->second);
  if (id.channel != &channel) return Invalid("the membership belongs to another channel");
  const auto member = std::find_if(id.memberships.begin(), id.memberships.end(),
                                   [&](const Membership& m) { return m.number == number; });
  const uint32_t reported = member->events_reported;
  id.channel->RemoveMembershipEvents(number);
  if (!member->send_only) id.port->device.LeaveGroup(member->group);
  id.memberships.erase(member);
  owners_.erase(it);
  return reported;
}

}  // namespace roci::control::cm
