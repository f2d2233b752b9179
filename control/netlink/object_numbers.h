// Numbers of programs' objects for RDMA netlink (cqn, pdn, mrn, srqn): small and unique in the
// daemon, while handles are those of one session.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

namespace roci::control::netlink {

enum class ObjectKind : uint8_t { kPd, kCq, kMr, kSrq };

struct ObjectKey {
  ObjectKind kind;
  uint32_t session;
  uint32_t handle;
  friend auto operator<=>(const ObjectKey&, const ObjectKey&) = default;
};

// An object gets its number when it is shown first, and keeps it. Control thread only.
class ObjectNumbers {
 public:
  // Whether an object still exists.
  using Exists = std::function<bool(const ObjectKey& key)>;
  explicit ObjectNumbers(Exists exists) : exists_(std::move(exists)) {}

  uint32_t Of(const ObjectKey& key) {
    const auto known = numbers_.find(key);
    if (known != numbers_.end()) return known->second;
    Sweep();
    while (++last_ == 0 || keys_.contains(last_)) {
    }
    keys_.emplace(last_, key);
    numbers_.emplace(key, last_);
    return last_;
  }
  // Nothing: no object was shown with this number.
  std::optional<ObjectKey> Find(ObjectKind kind, uint32_t number) const {
    const auto it = keys_.find(number);
    if (it == keys_.end() || it->second.kind != kind) return std::nullopt;
    return it->second;
  }
  size_t size() const { return numbers_.size(); }

 private:
  // Looks at two numbers for each that is given out, so that those of objects that are gone stay
  // fewer than those of others.
  void Sweep() {
    for (int i = 0; i < 2; ++i) {
      auto it = keys_.upper_bound(swept_);
      if (it == keys_.end()) {
        swept_ = 0;
        return;
      }
      swept_ = it->first;
      if (exists_(it->second)) continue;
      numbers_.erase(it->second);
      keys_.erase(it);
    }
  }

  const Exists exists_;
  uint32_t last_ = 0;
  uint32_t swept_ = 0;
  std::map<uint32_t, ObjectKey> keys_;
  std::map<ObjectKey, uint32_t> numbers_;
};

}  // namespace roci::control::netlink
