// Order, removal from the middle, and elements in two lists.
#include "memory/intrusive_list.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace roci::memory {
namespace {

struct Element {
  int number;
  ListLink<Element> by_colour{};
  ListLink<Element> by_size{};
};
ListLink<Element>& ByColour(Element& element) { return element.by_colour; }
ListLink<Element>& BySize(Element& element) { return element.by_size; }
using Colours = IntrusiveList<Element, ByColour>;
using Sizes = IntrusiveList<Element, BySize>;

template <class List>
std::vector<int> Numbers(const List& list) {
  std::vector<int> numbers;
  for (Element* at = list.first(); at != nullptr; at = List::Next(*at)) {
    numbers.push_back(at->number);
  }
  return numbers;
}

TEST(IntrusiveList, HasTheLastInsertedElementFirst) {
  Colours list;
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.PopFront(), nullptr);
  Element a{1}, b{2}, c{3};
  for (Element* each : {&a, &b, &c}) list.PushFront(*each);
  EXPECT_EQ(Numbers(list), (std::vector{3, 2, 1}));
  EXPECT_EQ(list.PopFront(), &c);
  EXPECT_FALSE(c.by_colour.is_linked());
  EXPECT_EQ(Numbers(list), (std::vector{2, 1}));
}

TEST(IntrusiveList, RemovesAnyElement) {
  std::vector<Element> elements{{0}, {1}, {2}, {3}, {4}};
  Colours list;
  for (Element& each : elements) list.PushFront(each);
  Colours::Remove(elements[4]);
  Colours::Remove(elements[2]);
  Colours::Remove(elements[0]);
  EXPECT_EQ(Numbers(list), (std::vector{3, 1}));
  EXPECT_FALSE(elements[2].by_colour.is_linked());
  list.PushFront(elements[2]);
  EXPECT_EQ(Numbers(list), (std::vector{2, 3, 1}));
  for (const int number : {3, 1, 2}) Colours::Remove(elements[static_cast<size_t>(number)]);
  EXPECT_TRUE(list.empty());
}

TEST(IntrusiveList, KeepsAnElementInTwoListsApart) {
  Element a{1}, b{2};
  Colours red;
  Sizes small;
  for (Element* each : {&a, &b}) red.PushFront(*each);
  for (Element* each : {&b, &a}) small.PushFront(*each);
  Colours::Remove(b);
  EXPECT_EQ(Numbers(red), (std::vector{1}));
  EXPECT_EQ(Numbers(small), (std::vector{1, 2}));
}

TEST(IntrusiveList, MovesAllElements) {
  Element a{1}, b{2};
  Colours from;
  for (Element* each : {&a, &b}) from.PushFront(*each);
  Colours to = std::move(from);
  EXPECT_TRUE(from.empty());  // NOLINT(bugprone-use-after-move)
  from.PushFront(*to.PopFront());
  EXPECT_EQ(Numbers(to), (std::vector{1}));
  EXPECT_EQ(Numbers(from), (std::vector{2}));
  Colours::Remove(a);
  EXPECT_TRUE(to.empty());
}

}  // namespace
}  // namespace roci::memory
