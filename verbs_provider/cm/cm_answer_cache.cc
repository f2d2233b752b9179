// A direct-mapped table of answers. Serial numbers order what several threads insert and
// invalidate.
#include "verbs_provider/cm/cm_answer_cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace roci::provider {
namespace {

class Locked {
 public:
  explicit Locked(pthread_mutex_t* mutex) : mutex_(mutex) { pthread_mutex_lock(mutex_); }
  ~Locked() { pthread_mutex_unlock(mutex_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  pthread_mutex_t* mutex_;
};

// Serial numbers wrap around.
bool IsBefore(uint32_t serial, uint32_t other) { return static_cast<int32_t>(serial - other) < 0; }

// Reads the header of the first answer in `size` bytes at `bytes` into `*head`. Null if that answer
// is not complete.
const roci_abi_cm_prefetched* HeadAt(const unsigned char* bytes, size_t size,
                                     roci_abi_cm_prefetched* head) {
  if (size < sizeof(*head)) return nullptr;
  memcpy(head, bytes, sizeof(*head));
  return head->size <= size - sizeof(*head) && head->size % 8 == 0 ? head : nullptr;
}

}  // namespace

struct CmAnswerCache::Slot {
  uint32_t id;
  uint32_t size;  // bytes used; 0: the slot is empty
  uint64_t inserted_ns;
  unsigned char bytes[ROCI_ABI_CM_ANSWERS_MAX];
};

CmAnswerCache::~CmAnswerCache() {
  for (Slot* slot : slots_) free(slot);
}

void CmAnswerCache::Insert(const roci_abi_cm_response& response, uint32_t serial, uint64_t now_ns) {
  const size_t begin = (size_t{response.out_size} + 7) & ~size_t{7};
  const size_t end = std::min<size_t>(response.data_size, sizeof(response.data));
  roci_abi_cm_prefetched first;
  if (begin >= end || HeadAt(response.data + begin, end - begin, &first) == nullptr) return;
  const uint32_t index = first.id % kSlots;
  const Locked lock(&mutex_);
  if (IsBefore(serial, changed_[index])) return;
  Slot*& slot = slots_[index];
  if (slot == nullptr) slot = static_cast<Slot*>(malloc(sizeof(Slot)));
  if (slot == nullptr) return;
  slot->id = first.id;
  slot->size = static_cast<uint32_t>(end - begin);
  slot->inserted_ns = now_ns;
  memcpy(slot->bytes, response.data + begin, slot->size);
}

bool CmAnswerCache::Find(uint32_t command, uint32_t id, uint32_t what, uint64_t now_ns,
                         void* answer, size_t room) {
  const Locked lock(&mutex_);
  const Slot* slot = slots_[id % kSlots];
  if (slot == nullptr || slot->id != id || now_ns - slot->inserted_ns > kFreshNs) return false;
  roci_abi_cm_prefetched head;
  for (size_t at = 0; HeadAt(slot->bytes + at, slot->size - at, &head) != nullptr;
       at += sizeof(head) + head.size) {
    if (head.command != command || head.id != id || head.what != what) continue;
    if (head.size > room) return false;
    memcpy(answer, slot->bytes + at + sizeof(head), head.size);
    return true;
  }
  return false;
}

void CmAnswerCache::Invalidate(uint32_t id, uint32_t serial) {
  const uint32_t index = id % kSlots;
  const Locked lock(&mutex_);
  if (serial != 0 && IsBefore(changed_[index], serial)) changed_[index] = serial;
  Slot* slot = slots_[index];
  if (slot != nullptr && slot->id == id) slot->size = 0;
}

}  // namespace roci::provider
