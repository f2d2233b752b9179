// What a parent domain (ibv_alloc_parent_domain(3)) means for the objects made in it: their memory
// in this process, and whether threads share them.
//
// The rings of queues are the daemon's memory, which no allocator of the app's can give; what it
// gives is the plugin's own half of a QP or CQ, the state that posts and polls work on.
#pragma once

#include <cerrno>
#include <memory>
#include <new>

#include "verbs_provider/verbs/objects.h"

namespace roci::provider {

/// What an app's allocator is told that the memory is for (`resource_type`).
enum class DomainMemory : uint64_t {
  kQueuePair = 1,
  kCompletionQueue = 2,
};

/// Null if `pd` is null or a plain protection domain.
inline Pd* ParentDomainOf(ibv_pd* pd) {
  auto* domain = reinterpret_cast<Pd*>(pd);
  return domain != nullptr && domain->parent != nullptr ? domain : nullptr;
}

/// Memory from the app's allocator, if `domain` has one that gives it, else from the C heap; null
/// with errno ENOMEM. Counts as a use of the domain.
void* TakeDomainMemory(Pd* domain, size_t size, size_t alignment, DomainMemory what, Home* home);
void ReturnDomainMemory(const Home& home, void* memory, DomainMemory what);

/// A value-initialised T, which has a member `home`. `pd` is a parent domain, another one, or null.
template <class T>
T* AllocateIn(ibv_pd* pd, DomainMemory what) {
  Home home;
  void* memory = TakeDomainMemory(ParentDomainOf(pd), sizeof(T), alignof(T), what, &home);
  if (memory == nullptr) return nullptr;
  T* object = new (memory) T();
  object->home = home;
  return object;
}

template <class T>
void FreeIn(T* object, DomainMemory what) {
  const Home home = object->home;
  std::destroy_at(object);
  ReturnDomainMemory(home, object, what);
}

/// An object that was made with `pd` and keeps nothing there: a parent domain is not freed before
/// it.
inline void EnterDomain(ibv_pd* pd) {
  if (Pd* domain = ParentDomainOf(pd)) ++domain->users;
}
inline void LeaveDomain(ibv_pd* pd) {
  if (Pd* domain = ParentDomainOf(pd)) --domain->users;
}

/// Whether the app has promised that one thread at a time uses the objects of `pd`.
inline bool IsForOneThread(ibv_pd* pd) {
  const Pd* domain = ParentDomainOf(pd);
  return domain != nullptr && domain->td != nullptr;
}

}  // namespace roci::provider
