#include "control/cm/identifiers.h"

#include <utility>

#include "absl/cleanup/cleanup.h"

namespace roci::control::cm {

CmId* Identifiers::Get(uint64_t number) const {
  const auto it = ids_.find(static_cast<uint32_t>(number));
  return it == ids_.end() ? nullptr : it->second.get();
}

CmId* Identifiers::Find(const Channel& channel, uint32_t number) const {
  CmId* id = Get(number);
  return id != nullptr && id->channel == &channel && id->listener == 0 ? id : nullptr;
}

CmId* Identifiers::Add(Channel& channel) {
  QuotaShare share(channel.shared_user()->identifiers, 1);
  if (!share.ok()) return nullptr;
  do {
    ++last_number_;
    if (last_number_ > SharedQuotas::kMaxIdentifiers) last_number_ = 1;
  } while (ids_.contains(last_number_));
  channel.ids().insert(last_number_);
  absl::Cleanup undo = [&] { channel.ids().erase(last_number_); };
  auto id = std::make_unique<CmId>();
  id->share = std::move(share);
  id->number = last_number_;
  id->channel = &channel;
  id->psn = static_cast<uint32_t>(random_.Next()) & roce::kMask24;
  CmId* const added = ids_.emplace(last_number_, std::move(id)).first->second.get();
  std::move(undo).Cancel();
  return added;
}

void Identifiers::Remove(CmId& id) {
  id.channel->ids().erase(id.number);
  ids_.erase(id.number);
}

// The channels of a process may have two users: a process can lose capabilities between them.
void Identifiers::Move(CmId& id, Channel& to) {
  to.ids().insert(id.number);
  id.channel->ids().erase(id.number);
  const User* const before = std::exchange(id.channel, &to)->user();
  if (before != to.user()) id.share = QuotaShare::Forced(to.shared_user()->identifiers, 1);
}

}  // namespace roci::control::cm
