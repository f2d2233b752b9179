// The queue of retired mappings and its thread.
#include "memory/unmapper.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "memory/dma_buffer.h"

namespace roci::memory {
namespace {

// munmap blocks mmap of all threads of the process, so a part at a time, which takes a few
// milliseconds. A multiple of every page size.
constexpr size_t kPart = size_t{1} << 30;
constexpr size_t kSmallPart = size_t{16} << 20;

void Unmap(const RetiredMapping& mapping) {
  size_t next = kSmallPart;
  for (size_t done = 0; done < mapping.length;) {
    const size_t left = mapping.length - done;
    const size_t part = std::min(left, next);
    const auto begin = std::chrono::steady_clock::now();
    // Pages of 1 GiB can only be unmapped whole.
    if (munmap(mapping.base + done, part) == 0) {
      done += part;
      // A long file with holes is unmapped fast.
      const auto time = std::chrono::steady_clock::now() - begin;
      next = time < std::chrono::milliseconds(1) ? next * 2 : kSmallPart;
      continue;
    }
    munmap(mapping.base + done, std::min(left, kPart));
    done += std::min(left, kPart);
  }
  if (mapping.dma_buffer >= 0) EndDmaBufferAccess(mapping.dma_buffer);
}

class Queue {
 public:
  // Never destroyed: its thread may run until the process ends.
  static Queue& Get() {
    static Queue& queue = *new Queue;
    return queue;
  }

  void Add(RetiredMapping* mapping) {
    {
      const std::lock_guard guard(mutex_);
      if (HasThread()) {
        *tail_ = mapping;
        tail_ = &mapping->next;
        ++backlog_;
        bytes_ += mapping->length;
        changed_.notify_all();
        return;
      }
    }
    Unmap(*std::unique_ptr<RetiredMapping>(mapping));
  }
  uint32_t backlog() {
    const std::lock_guard guard(mutex_);
    return backlog_;
  }
  uint64_t bytes() {
    const std::lock_guard guard(mutex_);
    return bytes_;
  }
  void Drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return backlog_ == 0; });
  }

 private:
  bool HasThread() {
    if (has_thread_) return true;
    try {
      std::thread([this] { Run(); }).detach();
      has_thread_ = true;
    } catch (const std::system_error&) {
      // The next Retire tries again.
    }
    return has_thread_;
  }
  [[noreturn]] void Run() {
    // Do not inherit the priority of the thread that started this one.
    const sched_param ordinary = {};
    sched_setscheduler(0, SCHED_OTHER, &ordinary);
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return head_ != nullptr; });
      const std::unique_ptr<RetiredMapping> mapping(head_);
      head_ = mapping->next;
      if (head_ == nullptr) tail_ = &head_;
      lock.unlock();
      Unmap(*mapping);
      lock.lock();
      --backlog_;
      bytes_ -= mapping->length;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  RetiredMapping* head_ = nullptr;
  RetiredMapping** tail_ = &head_;
  uint32_t backlog_ = 0;
  uint64_t bytes_ = 0;
  bool has_thread_ = false;
};

}  // namespace

void Unmapper::Retire(RetiredMapping* mapping) { Queue::Get().Add(mapping); }
uint32_t Unmapper::backlog() { return Queue::Get().backlog(); }
uint64_t Unmapper::backlog_bytes() { return Queue::Get().bytes(); }
void Unmapper::Drain() { Queue::Get().Drain(); }

}  // namespace roci::memory
