// Lists of objects that are linked by their member `next`. The caller holds the list's lock.
#pragma once

namespace roci::provider {

template <class T>
void AddToList(T*& first, T* object) {
  object->next = first;
  first = object;
}

/// Removes and returns the first object for which matches(object) is true; null: there is none.
template <class T, class Matches>
T* RemoveFirst(T*& first, Matches&& matches) {
  T** link = &first;
  while (*link != nullptr && !matches(*link)) link = &(*link)->next;
  T* found = *link;
  if (found != nullptr) *link = found->next;
  return found;
}

/// Does nothing if `object` is not in the list.
template <class T>
void RemoveFromList(T*& first, const T* object) {
  RemoveFirst(first, [object](const T* each) { return each == object; });
}

}  // namespace roci::provider
