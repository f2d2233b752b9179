#include "dataplane/base/frame_pool.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kLcoreCache = RTE_MEMPOOL_CACHE_MAX_SIZE;
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr uint64_t kBytesPerMib = uint64_t{1} << 20;

// Populates the whole pool from anonymous memory, in transparent huge pages if possible.
absl::Status PopulateFromAnonymousMemory(rte_mempool* pool, uint32_t frames) {
  const size_t object = pool->header_size + pool->elt_size + pool->trailer_size;
  // One more object than asked for: alignment at the borders of chunks costs some memory.
  const size_t length =
      (object * (frames + 1) + 2 * kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return absl::ErrnoToStatus(errno, "memory for frames");
  madvise(memory, length, MADV_HUGEPAGE);  // best effort: normal pages work too
  const int objects = rte_mempool_populate_iova(
      pool, static_cast<char*>(memory), reinterpret_cast<rte_iova_t>(memory), length,
      [](rte_mempool_memhdr* chunk, void* opaque) { munmap(opaque, chunk->len); }, memory);
  if (objects < static_cast<int>(frames)) {
    return absl::ResourceExhaustedError(absl::StrCat("frame pool: ", rte_strerror(-objects)));
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t FramePool::HeapMib(uint32_t frames, uint16_t buffer_bytes) {
  const uint64_t object = uint64_t{buffer_bytes} + sizeof(rte_mbuf) + sizeof(rte_mempool_objhdr) +
                          2 * RTE_CACHE_LINE_SIZE;
  return static_cast<uint32_t>(frames * object / kBytesPerMib) + 1;
}

absl::StatusOr<std::unique_ptr<FramePool>> FramePool::Create(uint32_t frames, uint16_t buffer_bytes,
                                                             FrameMemory memory) {
  static std::atomic<uint32_t> serial{0};
  const std::string name = absl::StrCat("roci_frames", serial.fetch_add(1));
  std::unique_ptr<FramePool> pool(new FramePool);
  pool->pool_ =
      rte_mempool_create_empty(name.c_str(), frames, uint32_t{sizeof(rte_mbuf)} + buffer_bytes,
                               kLcoreCache, sizeof(rte_pktmbuf_pool_private), SOCKET_ID_ANY, 0);
  if (pool->pool_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("frame pool: ", rte_strerror(rte_errno), " (see `roci doctor`)"));
  }
  if (rte_mempool_set_ops_byname(pool->pool_, "ring_mp_mc", nullptr) != 0) {
    return absl::InternalError("DPDK's ring mempool driver is not there");
  }
  rte_pktmbuf_pool_init(pool->pool_, nullptr);
  if (memory == FrameMemory::kDevices || rte_eal_has_hugepages()) {
    const int objects = rte_mempool_populate_default(pool->pool_);
    if (objects < 0) {
      return absl::ResourceExhaustedError(absl::StrCat("frame pool: ", rte_strerror(-objects)));
    }
  } else if (absl::Status status = PopulateFromAnonymousMemory(pool->pool_, frames); !status.ok()) {
    return status;
  }
  rte_mempool_obj_iter(pool->pool_, rte_pktmbuf_init, nullptr);
  pool->capacity_ = pool->pool_->populated_size;
  return pool;
}

FramePool::~FramePool() { rte_mempool_free(pool_); }

uint32_t FramePool::in_use() const { return rte_mempool_in_use_count(pool_); }

}  // namespace roci::dataplane
