// A queue in which users take turns: the many requests of one user delay another user's by one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

namespace roci::control {

// Requests of one user stay in order. Not thread-safe.
template <class Request>
class TurnQueue {
 public:
  bool empty() const { return queues_.empty(); }
  // If this throws, nothing is queued.
  void Push(uint64_t user, Request request) {
    const auto [queue, is_new] = queues_.try_emplace(user);
    try {
      queue->second.push_back(std::move(request));
    } catch (...) {
      if (is_new) queues_.erase(queue);
      throw;
    }
  }
  // The next request: of the user behind the one whose request was popped last. Not empty.
  Request& Front() { return Next()->second.front(); }
  void Pop() {
    const auto queue = Next();
    last_ = queue->first;
    queue->second.pop_front();
    if (queue->second.empty()) queues_.erase(queue);
  }
  template <class Visit>
  void ForEach(Visit&& visit) {
    for (auto& [user, queue] : queues_) {
      for (Request& request : queue) visit(request);
    }
  }

 private:
  auto Next() {
    const auto after = queues_.upper_bound(last_);
    return after != queues_.end() ? after : queues_.begin();
  }

  std::map<uint64_t, std::deque<Request>> queues_;  // none of them is empty
  uint64_t last_ = 0;
};

}  // namespace roci::control
