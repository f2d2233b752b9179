// Parent domains (ibv_alloc_parent_domain(3)): the allocator of the objects created in them, and
// whether several threads use these.
//
// The program's allocator provides the memory of the plugin's half of a QP or CQ. It cannot provide
// the rings, which are the daemon's memory.
#pragma once

#include <cerrno>
#include <memory>
#include <new>

#include "verbs_provider/verbs/objects.h"

namespace roci::provider {

/// The purpose of an allocation, as the program's allocator gets it (`resource_type`).
enum class DomainMemory : uint64_t {
  kQueuePair = 1,
  kCompletionQueue = 2,
};

/// Null if `pd` is null or a plain protection domain.
inline Pd* ParentDomainOf(ibv_pd* pd) {
  auto* domain = reinterpret_cast<Pd*>(pd);
  return domain != nullptr && domain->parent != nullptr ? domain : nullptr;
}

/// Allocates memory from the allocator of `domain`, if it has one that does not decline, else from
/// the C heap. Null with errno ENOMEM. Takes a reference to the domain.
void* AllocateDomainMemory(Pd* domain, size_t size, size_t alignment, DomainMemory what,
                           MemorySource* source);
void FreeDomainMemory(const MemorySource& source, void* memory, DomainMemory what);

/// A value-initialised T, which has a member `source`. `pd` is a parent domain, a protection domain
/// or null.
template <class T>
T* AllocateIn(ibv_pd* pd, DomainMemory what) {
  MemorySource source;
  void* memory = AllocateDomainMemory(ParentDomainOf(pd), sizeof(T), alignof(T), what, &source);
  if (memory == nullptr) return nullptr;
  T* object = new (memory) T();
  object->source = source;
  return object;
}

template <class T>
void FreeIn(T* object, DomainMemory what) {
  const MemorySource source = object->source;
  std::destroy_at(object);
  FreeDomainMemory(source, object, what);
}

/// Take and drop a reference to the parent domain `pd`, for an object that was created with it but
/// not allocated from it. No effect on a protection domain.
inline void AcquireDomain(ibv_pd* pd) {
  if (Pd* domain = ParentDomainOf(pd)) ++domain->ref_count;
}
inline void ReleaseDomain(ibv_pd* pd) {
  if (Pd* domain = ParentDomainOf(pd)) --domain->ref_count;
}

/// Whether the program has promised (by a thread domain) that one thread at a time uses the objects
/// of `pd`.
inline bool IsSingleThreaded(ibv_pd* pd) {
  const Pd* domain = ParentDomainOf(pd);
  return domain != nullptr && domain->td != nullptr;
}

}  // namespace roci::provider
