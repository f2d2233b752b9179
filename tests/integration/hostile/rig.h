// A session without the plugin, with its rings mapped: an attacker can have traffic and write any
// bytes into the rings.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/integration/raw_session.h"
#include "verbs_provider/abi/list_mr.h"
#include "verbs_provider/abi/tag_matching.h"

namespace roci::testing::hostile {

inline constexpr uint64_t kPage = 4096;
inline constexpr uint32_t kNone = ~0u;  // handle

// Shared memory of the daemon. The destructor unmaps it.
class Mapping {
 public:
  Mapping() = default;
  // Null if `fd` cannot be mapped.
  Mapping(int fd, size_t size);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* At(size_t offset) const {
    return reinterpret_cast<T*>(data_ + offset);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

struct MappedCq {
  uint32_t handle = 0;
  uint32_t capacity = 0;
  uint32_t next = 0;  // index of the next entry
  Mapping memory;
  roci_abi_cq* header() const { return memory.At<roci_abi_cq>(0); }
  roci_abi_cqe* entries() const { return memory.At<roci_abi_cqe>(sizeof(roci_abi_cq)); }
  // True if there was an entry.
  bool Poll(roci_abi_cqe* out = nullptr);
};

struct MappedQp {
  roci_abi_create_qp_response info = {};
  uint32_t type = 0;
  uint32_t sent = 0;
  uint32_t received = 0;
  Mapping memory;
  roci_abi_queue* send_queue() const { return memory.At<roci_abi_queue>(info.send_queue_offset); }
  roci_abi_queue* recv_queue() const { return memory.At<roci_abi_queue>(info.recv_queue_offset); }
  std::byte* SendSlot(uint32_t index) const;
  std::byte* RecvSlot(uint32_t index) const;
};

struct MappedSrq {
  uint32_t handle = 0;
  uint32_t number = 0;
  uint32_t doorbell = 0;  // of tag operations
  roci_abi_srq_layout layout = {};
  roci_abi_create_tag_srq_response tag_layout = {};
  uint32_t posted = 0;
  Mapping memory;
  Mapping ops;  // tag matching only
  roci_abi_srq* header() const { return memory.At<roci_abi_srq>(0); }
  uint32_t* ring() const { return memory.At<uint32_t>(layout.ring_offset); }
  std::byte* Slot(uint32_t slot) const {
    return memory.data() + layout.slots_offset + size_t{slot} * layout.stride;
  }
};

struct QpOptions {
  uint32_t type = IBV_QPT_RC;
  uint32_t srq = kNone;
  uint32_t xrcd = 0;
  uint32_t wr = 16;
  uint32_t sge = 2;
};

// Registered private memory, or a mapped file if there is a descriptor.
struct Region {
  std::byte* data = nullptr;
  size_t size = 0;
  uint32_t handle = 0;
  uint32_t key = 0;
  uint64_t va() const { return reinterpret_cast<uint64_t>(data); }
  roci_abi_sge Sge(uint32_t length, uint64_t offset = 0) const {
    return {va() + offset, length, key};
  }
};

inline constexpr uint32_t kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// An open device with a protection domain, a completion queue and a region. The process ends with a
// failure where it cannot have them.
class Rig : public RawSession {
 public:
  explicit Rig(const char* device = "roci0", uint32_t cq_entries = 64);

  MappedCq MakeCq(uint32_t entries, uint32_t channel = kNone);
  MappedQp MakeQp(const QpOptions& options = {}) { return MakeQp(options, cq.handle); }
  MappedQp MakeQp(const QpOptions& options, uint32_t cq_handle);
  MappedSrq MakeSrq(uint32_t entries, uint32_t type = ROCI_ABI_SRQ_BASIC, uint32_t xrcd = 0);
  MappedSrq MakeTagSrq(uint32_t entries, uint32_t tags, uint32_t ops);
  // The errno. With `fd` the region is its pages from `offset` on; `data` is an address in any
  // case.
  int Register(std::byte* data, size_t size, Region& out, uint32_t access = kAllAccess, int fd = -1,
               uint64_t offset = 0);
  // Of anonymous memory.
  Region MakeRegion(size_t size, uint32_t access = kAllAccess);
  uint32_t MakeAh(uint8_t host);

  // To RTS; `host` is the last byte of the peer's address. The errno of the first step that failed.
  int Connect(const MappedQp& qp, uint32_t peer_qpn, uint8_t host);
  int ToReset(MappedQp& qp);

  void Ring(uint32_t handle);
  // Writes entry `wqe` with `sges`, publishes it and rings the doorbell.
  void Post(MappedQp& qp, const roci_abi_send_wqe& wqe, const std::vector<roci_abi_sge>& sges);
  void PostReceive(MappedQp& qp, const std::vector<roci_abi_sge>& sges, uint32_t num_sge = kNone);
  void PublishSends(MappedQp& qp, uint32_t producer);
  void PublishReceives(MappedQp& qp, uint32_t producer);

  uint32_t pd = 0;
  MappedCq cq;
  Region region;
  Mapping doorbells_memory;
  int wake_fd = -1;
  int async_fd = -1;
  roci_abi_doorbells* doorbells() const { return doorbells_memory.At<roci_abi_doorbells>(0); }

 private:
  // Descriptor `i` of the last answer, which this process keeps.
  int Keep(size_t i);
};

// Two sessions and queue pairs of the attacker's own, connected; the near one is the attacked.
class RigPair {
 public:
  explicit RigPair(const QpOptions& options = {}, const QpOptions& far_options = {});
  // Again, after the queue pairs have failed.
  void Reconnect();
  // A valid operation, with a receive at the far end if needed.
  roci_abi_send_wqe ValidWqe(uint8_t opcode) const;

  Rig near;
  Rig far;
  MappedQp near_qp;
  MappedQp far_qp;
  uint32_t ah = 0;  // UD
};

// Values at which counts and sizes break.
inline constexpr uint32_t kLimits32[] = {
    0,       1,        2,         3,          0x7F,       0xFF,       0x100,      0xFFFF,
    0x10000, 0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF};
inline constexpr uint64_t kLimits64[] = {0,
                                         1,
                                         0xFFF,
                                         0x1000,
                                         0x7FFFFFFF,
                                         0xFFFFFFFF,
                                         0x100000000,
                                         0x00007FFFFFFFF000,
                                         0x0000800000000000,
                                         0x7FFFFFFFFFFFFFFF,
                                         0x8000000000000000,
                                         0xFFFF800000000000,
                                         0xFFFFFFFFFFFFF000,
                                         0xFFFFFFFFFFFFFFFE,
                                         0xFFFFFFFFFFFFFFFF};

}  // namespace roci::testing::hostile
