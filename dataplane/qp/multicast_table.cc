#include "dataplane/qp/multicast_table.h"

#include <algorithm>
#include <iterator>

namespace roci::dataplane {

bool MulticastTable::Add(const OnShard&, const roce::Gid& group, QueuePair& qp) {
  std::vector<QueuePair*>& members = groups_[group];
  if (std::find(members.begin(), members.end(), &qp) != members.end()) return false;
  members.push_back(&qp);
  return true;
}

bool MulticastTable::Remove(const OnShard&, const roce::Gid& group, const QueuePair& qp) {
  const auto it = groups_.find(group);
  if (it == groups_.end() || std::erase(it->second, &qp) == 0) return false;
  if (it->second.empty()) groups_.erase(it);
  return true;
}

void MulticastTable::RemoveAll(const OnShard&, const QueuePair& qp) {
  for (auto it = groups_.begin(); it != groups_.end();) {
    std::erase(it->second, &qp);
    it = it->second.empty() ? groups_.erase(it) : std::next(it);
  }
}

std::span<QueuePair* const> MulticastTable::Find(const OnShard&, const roce::Gid& group) const {
  const auto it = groups_.find(group);
  return it == groups_.end() ? std::span<QueuePair* const>() : it->second;
}

}  // namespace roci::dataplane
