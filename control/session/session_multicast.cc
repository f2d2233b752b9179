// Session commands about multicast groups. Errors are those of Linux's ib_attach_mcast.
#include <algorithm>
#include <cstring>

#include "control/session/session.h"

namespace roci::control {
namespace {

roce::Gid GroupOf(const roci_abi_multicast_request& request) {
  roce::Gid group;
  std::memcpy(group.bytes.data(), request.gid, sizeof(request.gid));
  return group;
}

auto FindMembership(QpRecord& record, const roce::Gid& group) {
  return std::find_if(record.groups.begin(), record.groups.end(),
                      [&group](const QpRecord::Group& in) { return in.member.group() == group; });
}

}  // namespace

absl::Status Session::AttachMulticast(const Request& request, const FdsPointer&, Reply&) {
  const auto& attach = request.As<roci_abi_multicast_request>();
  QpRecord* record = qps_.Find(attach.qp);
  if (record == nullptr) return absl::NotFoundError("no such queue pair");
  const roce::Gid group = GroupOf(attach);
  if (record->type != roce::QpType::kUd) {
    return absl::InvalidArgumentError("unsupported for this type of queue pair");
  }
  // Once more is no harm and counts once.
  if (FindMembership(*record, group) != record->groups.end()) return absl::OkStatus();
  QuotaShare share(quotas_->multicast, 1);
  if (!share.ok()) return LimitReached("queue pairs of all multicast groups");
  const uint32_t most = admission_.user->MostOf(device_->limits().max_multicast_members);
  absl::StatusOr<MulticastMemberships::Membership> member = device_->multicast().Join(
      group, quotas_->multicast_groups, limits_.max_multicast_members, most);
  if (!member.ok()) return member.status();
  record->groups.reserve(record->groups.size() + 1);
  const absl::Status status =
      device_->dataplane().Do(dataplane::AttachMulticast{*record->qp, group});
  if (!status.ok()) return status;
  record->groups.push_back({std::move(share), *std::move(member)});
  return absl::OkStatus();
}

absl::Status Session::DetachMulticast(const Request& request, const FdsPointer&, Reply&) {
  const auto& detach = request.As<roci_abi_multicast_request>();
  QpRecord* record = qps_.Find(detach.qp);
  if (record == nullptr) return absl::NotFoundError("no such queue pair");
  const roce::Gid group = GroupOf(detach);
  const auto member = FindMembership(*record, group);
  if (member == record->groups.end()) {
    return absl::InvalidArgumentError("the queue pair is not in the group");
  }
  const absl::Status status =
      device_->dataplane().Do(dataplane::DetachMulticast{*record->qp, group});
  if (!status.ok()) return status;
  record->groups.erase(member);
  return absl::OkStatus();
}

}  // namespace roci::control
