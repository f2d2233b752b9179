// The multicast groups of a device and their members among the UD queue pairs of one lcore.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <unordered_map>
#include <vector>

#include "dataplane/base/on_shard.h"
#include "memory/split_mix.h"
#include "roce/types.h"

namespace roci::dataplane {

class QueuePair;

// Read and changed on the shard. Only changes allocate.
class MulticastTable {
 public:
  // False: `qp` is a member already.
  bool Add(const OnShard&, const roce::Gid& group, QueuePair& qp);
  // False: `qp` is no member.
  bool Remove(const OnShard&, const roce::Gid& group, const QueuePair& qp);
  // Removes `qp` from every group.
  void RemoveAll(const OnShard&, const QueuePair& qp);
  // Valid until the next change. Empty for a group without members.
  std::span<QueuePair* const> Find(const OnShard&, const roce::Gid& group) const;
  bool empty() const { return groups_.empty(); }

 private:
  struct Hash {
    size_t operator()(const roce::Gid& gid) const {
      uint64_t words[2];
      std::memcpy(words, gid.bytes.data(), sizeof(words));
      return (words[0] ^ words[1]) * memory::kGoldenRatio64;
    }
  };
  std::unordered_map<roce::Gid, std::vector<QueuePair*>, Hash> groups_;
};

}  // namespace roci::dataplane
