// Replies to calls that must not run twice: a client that has lost its connection sends them again
// (RFC 1813, 4.5).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "tests/interop/rpcrdma/nfs/siphash.h"

namespace rpcrdma {

// Not thread-safe.
class ReplyCache {
 public:
  static constexpr size_t kMaxReplies = 1024;
  static constexpr std::chrono::seconds kLifetime{120};
  using Clock = std::chrono::steady_clock;
  using Bytes = std::vector<std::byte>;

  explicit ReplyCache(const SipKey& key) : key_(key) {}
  // The reply to the same call: the same bytes, from the transaction identifier on.
  const Bytes* Find(std::span<const std::byte> call, Clock::time_point now);
  void Keep(std::span<const std::byte> call, const Bytes& reply, Clock::time_point now);

 private:
  struct Row {
    uint64_t hash;
    Clock::time_point expires;
  };

  const SipKey key_;
  std::deque<Row> rows_;  // the oldest first
  std::map<uint64_t, Bytes> replies_;
};

}  // namespace rpcrdma
