// The queue of retired mappings and its thread.
#include "memory/unmapper.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "memory/dma_buffer.h"

namespace roci::memory {
namespace {

// munmap blocks mmap of all threads of the process, so a part at a time, which takes a few
// milliseconds. Holes of a file are unmapped fast, so their parts are larger; not too large, since
// behind a hole may be pages. All are multiples of the page sizes below 1 GiB.
constexpr size_t kSmallPart = size_t{16} << 20;
constexpr size_t kLargePart = size_t{256} << 20;
constexpr size_t kHugePage = size_t{1} << 30;

}  // namespace

class UnmapperQueue {
 public:
  // Never destroyed: its thread may run until the process ends.
  static UnmapperQueue& Get() {
    static UnmapperQueue& queue = *new UnmapperQueue;
    return queue;
  }

  void Add(RetiredMapping* mapping) {
    if (mapping->use == nullptr) mapping->use = nobody_;
    {
      const std::lock_guard guard(mutex_);
      if (HasThread()) {
        RetiredUse& use = *mapping->use;
        if (use.first == nullptr) Append(use);
        *use.end = mapping;
        use.end = &mapping->next;
        ++use.mappings;
        use.bytes += mapping->length;
        ++backlog_;
        bytes_ += mapping->length;
        changed_.notify_all();
        return;
      }
    }
    const std::unique_ptr<RetiredMapping> owned(mapping);
    while (!UnmapPart(*owned)) {
    }
    if (owned->dma_buffer >= 0) EndDmaBufferAccess(owned->dma_buffer);
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
  // True: all of it is unmapped.
  static bool UnmapPart(RetiredMapping& mapping) {
    const size_t left = mapping.length - mapping.done;
    size_t part = std::min(left, std::max(mapping.next_part, kSmallPart));
    const auto begin = std::chrono::steady_clock::now();
    if (munmap(mapping.base + mapping.done, part) != 0) {
      // Pages of 1 GiB can only be unmapped whole.
      part = std::min(left, kHugePage);
      munmap(mapping.base + mapping.done, part);
    }
    const bool is_fast = std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(1);
    mapping.next_part = is_fast ? std::min(2 * part, kLargePart) : kSmallPart;
    mapping.done += part;
    return mapping.done == mapping.length;
  }

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
  void Append(RetiredUse& use) {
    use.next = nullptr;
    *last_ = &use;
    last_ = &use.next;
  }
  // Takes the user whose turn it is out of the list.
  RetiredUse& TakeFirst() {
    RetiredUse& use = *first_;
    first_ = use.next;
    if (first_ == nullptr) last_ = &first_;
    return use;
  }
  // Takes the user's first mapping, which is unmapped, out of the lists.
  void Finish(RetiredUse& use, RetiredMapping& mapping) {
    use.first = mapping.next;
    if (use.first == nullptr) use.end = &use.first;
    if (mapping.dma_buffer < 0) --use.mappings;
    use.bytes -= mapping.length;
    --backlog_;
    bytes_ -= mapping.length;
    changed_.notify_all();
  }
  // Passes an unmapped DMA buffer to the thread of its user. Null: the thread has it. Otherwise no
  // thread can be started.
  std::unique_ptr<RetiredMapping> PassBuffer(std::unique_ptr<RetiredMapping> mapping) {
    RetiredUse& use = *mapping->use;
    if (!use.has_thread) {
      try {
        std::thread([this, owned = mapping->use] { EndBuffers(*owned); }).detach();
        use.has_thread = true;
      } catch (const std::system_error&) {
        return mapping;
      } catch (const std::bad_alloc&) {
        return mapping;
      }
    }
    mapping->next = use.first_buffer;
    use.first_buffer = mapping.release();
    return nullptr;
  }
  void EndBuffers(RetiredUse& use) {
    std::unique_lock lock(mutex_);
    while (use.first_buffer != nullptr) {
      std::unique_ptr<RetiredMapping> mapping(use.first_buffer);
      use.first_buffer = mapping->next;
      lock.unlock();
      EndDmaBufferAccess(mapping->dma_buffer);
      --use.mappings;
      mapping.reset();
      lock.lock();
    }
    use.has_thread = false;
  }
  [[noreturn]] void Run() {
    // Do not inherit the priority of the thread that started this one.
    const sched_param ordinary = {};
    sched_setscheduler(0, SCHED_OTHER, &ordinary);
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return first_ != nullptr; });
      RetiredUse& use = TakeFirst();
      std::unique_ptr<RetiredMapping> mapping(use.first);
      lock.unlock();
      const bool is_unmapped = UnmapPart(*mapping);
      lock.lock();
      if (is_unmapped) {
        Finish(use, *mapping);
      } else {
        static_cast<void>(mapping.release());  // still the user's first
      }
      if (use.first != nullptr) Append(use);
      const bool is_buffer = mapping != nullptr && mapping->dma_buffer >= 0;
      if (is_buffer) mapping = PassBuffer(std::move(mapping));
      // The last mapping of a user may own its `use`.
      lock.unlock();
      if (is_buffer && mapping != nullptr) {
        EndDmaBufferAccess(mapping->dma_buffer);
        --mapping->use->mappings;
      }
      mapping.reset();
      lock.lock();
    }
  }

  const std::shared_ptr<RetiredUse> nobody_ = std::make_shared<RetiredUse>();
  std::mutex mutex_;
  std::condition_variable changed_;
  RetiredUse* first_ = nullptr;  // users with retired mappings, in the order of their turns
  RetiredUse** last_ = &first_;
  uint32_t backlog_ = 0;
  uint64_t bytes_ = 0;
  bool has_thread_ = false;
};

void Unmapper::Retire(RetiredMapping* mapping) { UnmapperQueue::Get().Add(mapping); }
uint32_t Unmapper::backlog() { return UnmapperQueue::Get().backlog(); }
uint64_t Unmapper::backlog_bytes() { return UnmapperQueue::Get().bytes(); }
void Unmapper::Drain() { UnmapperQueue::Get().Drain(); }

}  // namespace roci::memory
