// Descriptors by number: a radix tree of three levels. Nodes are allocated at first use and never
// freed, so that readers need no lock.
#include "verbs_provider/intercept/fd_registry.h"

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>

namespace roci::provider {
namespace {

// All-zero bytes are an empty slot.
struct Slot {
  std::atomic<FdKind> kind;
  std::atomic<void*> owner;
  // The file's identity. Not unique for anonymous inodes such as an eventfd's.
  std::atomic<uint64_t> device;
  std::atomic<uint64_t> inode;
};

constexpr unsigned kLowBits = 8;
constexpr unsigned kMiddleBits = 11;
constexpr unsigned kHighBits = 12;
static_assert(kLowBits + kMiddleBits + kHighBits == 31, "a descriptor is a non-negative int");

struct Leaf {
  Slot slots[1u << kLowBits];
};
struct Branch {
  std::atomic<Leaf*> leaves[1u << kMiddleBits];
};

std::atomic<Branch*> g_root[1u << kHighBits];

// The node that `place` points to. If there is none, allocates it if `make` is set, else returns
// null. Null also if out of memory.
template <class Node>
Node* Child(std::atomic<Node*>& place, bool make) {
  Node* node = place.load(std::memory_order_acquire);
  if (node != nullptr || !make) return node;
  // Zero bytes equal a value-initialised node.
  Node* fresh = static_cast<Node*>(std::calloc(1, sizeof(Node)));
  if (fresh == nullptr) return nullptr;
  if (place.compare_exchange_strong(node, fresh, std::memory_order_acq_rel)) return fresh;
  std::free(fresh);
  return node;
}

Slot* Find(int fd, bool make) {
  if (fd < 0) return nullptr;
  const auto number = static_cast<unsigned>(fd);
  Branch* branch = Child(g_root[number >> (kLowBits + kMiddleBits)], make);
  if (branch == nullptr) return nullptr;
  Leaf* leaf = Child(branch->leaves[(number >> kLowBits) & ((1u << kMiddleBits) - 1)], make);
  return leaf == nullptr ? nullptr : &leaf->slots[number & ((1u << kLowBits) - 1)];
}

}  // namespace

bool AddFd(int fd, FdKind kind, void* owner) {
  struct stat st;
  if (::fstat(fd, &st) != 0) return false;
  Slot* slot = Find(fd, true);
  if (slot == nullptr) return false;
  slot->kind.store(FdKind::kNone, std::memory_order_release);
  slot->owner.store(owner, std::memory_order_relaxed);
  slot->device.store(st.st_dev, std::memory_order_relaxed);
  slot->inode.store(st.st_ino, std::memory_order_relaxed);
  slot->kind.store(kind, std::memory_order_release);
  return true;
}

void RemoveFd(int fd) {
  Slot* slot = Find(fd, false);
  if (slot != nullptr) slot->kind.store(FdKind::kNone, std::memory_order_release);
}

FdKind FindFd(int fd, void** owner) {
  Slot* slot = Find(fd, false);
  if (slot == nullptr) return FdKind::kNone;
  const FdKind kind = slot->kind.load(std::memory_order_acquire);
  if (kind != FdKind::kNone && owner != nullptr) {
    *owner = slot->owner.load(std::memory_order_relaxed);
  }
  return kind;
}

bool IsSameFile(int fd) {
  Slot* slot = Find(fd, false);
  struct stat st;
  if (slot == nullptr) return false;
  if (::fstat(fd, &st) == 0 && slot->device.load(std::memory_order_relaxed) == st.st_dev &&
      slot->inode.load(std::memory_order_relaxed) == st.st_ino) {
    return true;
  }
  RemoveFd(fd);
  return false;
}

bool ExchangeKind(int fd, FdKind from, FdKind to) {
  Slot* slot = Find(fd, false);
  return slot != nullptr && slot->kind.compare_exchange_strong(from, to, std::memory_order_acq_rel);
}

}  // namespace roci::provider
