// Shared receive queues of a simulated program, by number: several queue pairs use each one, in the
// order of posting.
#pragma once

#include <cassert>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "roce/work.h"

namespace roci::sim {

struct PostedRecv {
  roce::RecvWqe wqe{};
  std::vector<roce::Sge> sges;
};

class SharedQueues {
 public:
  void Add(uint32_t number) { queues_.try_emplace(number); }
  bool Has(uint32_t number) const { return queues_.contains(number); }

  // Assigns the slot number of `post`. Slot numbers are never reused.
  void Post(uint32_t number, PostedRecv post) {
    Queue& queue = queues_.at(number);
    post.wqe.slot = static_cast<uint32_t>(queue.posts.size());
    queue.posts.push_back(std::move(post));
  }
  roce::FetchResult Fetch(uint32_t number, roce::RecvWqe& out) {
    Queue& queue = queues_.at(number);
    if (queue.taken == queue.posts.size()) return roce::FetchResult::kEmpty;
    out = queue.posts[queue.taken++].wqe;
    return roce::FetchResult::kOk;
  }
  const PostedRecv& At(uint32_t number, uint32_t slot) const {
    return queues_.at(number).posts.at(slot);
  }
  // Notes a completion of that slot. Returns what is wrong with it, if anything.
  std::optional<std::string> Complete(uint32_t number, uint32_t slot) {
    Queue& queue = queues_.at(number);
    if (slot >= queue.taken) return "a receive completes that nobody took";
    queue.completed.resize(queue.posts.size());
    if (queue.completed[slot]) return "a receive completes twice";
    queue.completed[slot] = true;
    ++queue.completions;
    return std::nullopt;
  }
  // Whether every fetched receive has completed.
  bool AllCompleted() const {
    for (const auto& [number, queue] : queues_) {
      if (queue.completions != queue.taken) return false;
    }
    return true;
  }

 private:
  struct Queue {
    std::vector<PostedRecv> posts;
    std::vector<bool> completed;
    size_t taken = 0;
    size_t completions = 0;
  };
  std::map<uint32_t, Queue> queues_;
};

}  // namespace roci::sim
