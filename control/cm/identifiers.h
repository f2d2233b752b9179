// The identifiers of all event channels, by number. Control thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "control/cm/channel.h"
#include "control/cm/cm_id.h"
#include "memory/split_mix.h"

namespace roci::control::cm {

class Identifiers {
 public:
  // `random`: for the initial PSNs.
  explicit Identifiers(memory::SplitMix& random) : random_(random) {}
  Identifiers(const Identifiers&) = delete;
  Identifiers& operator=(const Identifiers&) = delete;

  const std::map<uint32_t, std::unique_ptr<CmId>>& all() const { return ids_; }
  // Null: no such identifier.
  CmId* Get(uint64_t number) const;
  // Null: no such identifier on this channel, or a request that the program has not fetched yet.
  CmId* Find(const Channel& channel, uint32_t number) const;

  // Null: the channel's user may have no more identifiers.
  CmId* Add(Channel& channel);
  // Destroys `id`, which holds nothing any more.
  void Remove(CmId& id);
  void Move(CmId& id, Channel& to);

 private:
  memory::SplitMix& random_;
  std::map<uint32_t, std::unique_ptr<CmId>> ids_;
  uint32_t last_number_ = 0;
};

}  // namespace roci::control::cm
