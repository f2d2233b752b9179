// A list whose elements carry their links: it allocates nothing, and an element leaves its list in
// constant time.
#pragma once

#include <utility>

namespace roci::memory {

// The place of an element in one list.
template <class T>
struct ListLink {
  T* next = nullptr;
  T** from = nullptr;  // the pointer to this element; null: it is in no list
  bool is_linked() const { return from != nullptr; }
};

// kLinkOf(element) is the link that the list uses, so an element with several links can be in
// several lists. The list owns no element. Not thread-safe.
template <class T, ListLink<T>& (*kLinkOf)(T&)>
class IntrusiveList {
 public:
  IntrusiveList() = default;
  // Takes all elements of `other`.
  IntrusiveList(IntrusiveList&& other) noexcept : first_(std::exchange(other.first_, nullptr)) {
    if (first_ != nullptr) kLinkOf(*first_).from = &first_;
  }
  IntrusiveList& operator=(IntrusiveList&&) = delete;

  bool empty() const { return first_ == nullptr; }
  T* first() const { return first_; }  // null: the list is empty
  // The element behind `element`; null: it is the last.
  static T* Next(T& element) { return kLinkOf(element).next; }

  // `element` is in no list by this link.
  void PushFront(T& element) {
    ListLink<T>& link = kLinkOf(element);
    link = {first_, &first_};
    if (first_ != nullptr) kLinkOf(*first_).from = &link.next;
    first_ = &element;
  }
  // `element` is in a list by this link.
  static void Remove(T& element) {
    ListLink<T>& link = kLinkOf(element);
    *link.from = link.next;
    if (link.next != nullptr) kLinkOf(*link.next).from = link.from;
    link = {};
  }
  // Removes and returns the first element; null: there is none.
  T* PopFront() {
    T* element = first_;
    if (element != nullptr) Remove(*element);
    return element;
  }

 private:
  T* first_ = nullptr;
};

}  // namespace roci::memory
