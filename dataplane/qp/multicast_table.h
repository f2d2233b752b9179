// Which UD queue pairs of one lcore are members of which multicast groups of a device.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <unordered_map>
#include <vector>

#include "roce/types.h"

namespace roci::dataplane {

class QueuePair;

// Read and changed on the lcore; it allocates only when it is changed.
class MulticastTable {
 public:
  // False: it is a member already.
  bool Add(const roce::Gid& group, QueuePair& qp);
  // False: it is none.
  bool Remove(const roce::Gid& group, const QueuePair& qp);
  // Takes it out of every group.
  void RemoveAll(const QueuePair& qp);
  // Good until the next change; empty for a group without members.
  std::span<QueuePair* const> Find(const roce::Gid& group) const;
  bool empty() const { return groups_.empty(); }

 private:
  struct Hash {
    size_t operator()(const roce::Gid& gid) const {
      constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;  // 2^64 divided by the golden ratio
      uint64_t words[2];
      std::memcpy(words, gid.bytes.data(), sizeof(words));
      return (words[0] ^ words[1]) * kMultiplier;
    }
  };
  std::unordered_map<roce::Gid, std::vector<QueuePair*>, Hash> groups_;
};

}  // namespace roci::dataplane
