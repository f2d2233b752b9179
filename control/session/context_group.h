// Sessions that share a context: those of processes that were handed its descriptor, or inherited
// it by fork. Each has the handles of a range of its own, and finds the others' by their ranges.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

namespace roci::control {

class Session;

// How many objects use something that a session has, and that other sessions may have a share in:
// there is one count for all, of which each share gives its own part back when it goes.
class UserCount {
 public:
  UserCount() : total_(std::make_shared<uint32_t>(0)) {}
  UserCount(UserCount&& other) noexcept : total_(std::move(other.total_)), own_(other.own_) {
    other.own_ = 0;
  }
  UserCount& operator=(UserCount&&) = delete;
  ~UserCount() {
    if (total_ != nullptr) *total_ -= own_;
  }
  // Another share in what is counted here.
  UserCount Share() const { return UserCount(total_); }

  void operator++() {
    ++own_;
    ++*total_;
  }
  void operator--() {
    --own_;
    --*total_;
  }
  uint32_t own() const { return own_; }
  uint32_t total() const { return *total_; }

 private:
  explicit UserCount(std::shared_ptr<uint32_t> total) : total_(std::move(total)) {}
  std::shared_ptr<uint32_t> total_;
  uint32_t own_ = 0;
};

// Control thread only; a session holds it as long as it lives, and leaves it before it goes.
class ContextGroup {
 public:
  // The session that opened the device has the first range, 1 .. kFirst - 1; the others follow.
  static constexpr uint32_t kFirst = 1u << 24;
  static constexpr uint32_t kRange = 1u << 20;
  static constexpr uint32_t kMaxMembers = (UINT32_MAX - kFirst) / kRange;

  explicit ContextGroup(Session* opener) { members_.emplace(0, opener); }
  ContextGroup(const ContextGroup&) = delete;
  ContextGroup& operator=(const ContextGroup&) = delete;

  // The range that the new member has, by its base; 0 if there are too many. Ranges go round, so
  // that a stale handle is noticed.
  uint32_t Join(Session* session);
  void Leave(const Session* session);
  // The member that gave out `handle`; null if it is gone.
  Session* OwnerOf(uint32_t handle) const;

 private:
  static uint32_t BaseOf(uint32_t handle) {
    return handle < kFirst ? 0 : handle - (handle - kFirst) % kRange;
  }
  std::map<uint32_t, Session*> members_;  // by base
  uint32_t last_ = 0;
};

}  // namespace roci::control
