// Sessions that share a context: those of processes that imported its descriptor or inherited it by
// fork. Each session has its own range of handles, by which the others find it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

namespace roci::control {

class Session;

// Reference count of an object that several sessions share. There is one total for all sessions;
// the destructor subtracts the references of its own session.
class RefCount {
 public:
  RefCount() : total_(std::make_shared<uint32_t>(0)) {}
  RefCount(RefCount&& other) noexcept : total_(std::move(other.total_)), own_(other.own_) {
    other.own_ = 0;
  }
  RefCount& operator=(RefCount&&) = delete;
  ~RefCount() {
    if (total_ != nullptr) *total_ -= own_;
  }
  // A count with the same total, for another session.
  RefCount Share() const { return RefCount(total_); }

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
  explicit RefCount(std::shared_ptr<uint32_t> total) : total_(std::move(total)) {}
  std::shared_ptr<uint32_t> total_;
  uint32_t own_ = 0;
};

// Control thread only. Each member holds a reference to the group, and leaves the group before it
// is destroyed.
class ContextGroup {
 public:
  // The session that opened the device has the first range, 1 .. kFirst - 1; the others follow.
  static constexpr uint32_t kFirst = 1u << 24;
  static constexpr uint32_t kRange = 1u << 20;
  static constexpr uint32_t kMaxMembers = (UINT32_MAX - kFirst) / kRange;

  explicit ContextGroup(Session* opener) { members_.emplace(0, opener); }
  ContextGroup(const ContextGroup&) = delete;
  ContextGroup& operator=(const ContextGroup&) = delete;

  // Returns the base of the new member's range; 0: too many members. Bases are reused as late as
  // possible, so that stale handles are detected.
  uint32_t Join(Session* session);
  void Leave(const Session* session);
  // The member whose range contains `handle`; null: it has left.
  Session* OwnerOf(uint32_t handle) const;

 private:
  static uint32_t BaseOf(uint32_t handle) {
    return handle < kFirst ? 0 : handle - (handle - kFirst) % kRange;
  }
  std::map<uint32_t, Session*> members_;  // by base
  uint32_t last_ = 0;
};

}  // namespace roci::control
