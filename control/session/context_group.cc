#include "control/session/context_group.h"

namespace roci::control {

uint32_t ContextGroup::Join(Session* session) {
  if (members_.size() >= kMaxMembers) return 0;
  uint32_t base = 0;
  do {
    last_ = last_ == kMaxMembers ? 1 : last_ + 1;
    base = kFirst + (last_ - 1) * kRange;
  } while (members_.contains(base));
  members_.emplace(base, session);
  return base;
}

void ContextGroup::Leave(const Session* session) {
  std::erase_if(members_, [session](const auto& member) { return member.second == session; });
}

Session* ContextGroup::OwnerOf(uint32_t handle) const {
  const auto it = members_.find(BaseOf(handle));
  return it == members_.end() ? nullptr : it->second;
}

}  // namespace roci::control
