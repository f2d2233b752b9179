// Replies by the hash of their calls.
#include "tests/interop/rpcrdma/nfs/reply_cache.h"

namespace rpcrdma {

const ReplyCache::Bytes* ReplyCache::Find(std::span<const std::byte> call, Clock::time_point now) {
  while (!rows_.empty() && (rows_.front().expires <= now || rows_.size() > kMaxReplies)) {
    replies_.erase(rows_.front().hash);
    rows_.pop_front();
  }
  const auto found = replies_.find(SipHash(key_, call));
  return found == replies_.end() ? nullptr : &found->second;
}

void ReplyCache::Keep(std::span<const std::byte> call, const Bytes& reply, Clock::time_point now) {
  const uint64_t hash = SipHash(key_, call);
  if (!replies_.emplace(hash, reply).second) return;
  rows_.push_back({hash, now + kLifetime});
}

}  // namespace rpcrdma
