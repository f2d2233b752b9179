#include "dataplane/base/resource_storage.h"

#include <bit>
#include <cassert>
#include <iterator>

#include "dataplane/base/slab.h"

namespace roci::dataplane {
namespace {

constexpr size_t BytesOf(uint32_t count) { return count * sizeof(roce::ResponderResource); }

// The slab for objects of `count` resources: one slab for each power of two.
Slab& SlabOf(uint32_t count) {
  static Slab slabs[] = {
      Slab(BytesOf(1), false),  Slab(BytesOf(2), false),   Slab(BytesOf(4), false),
      Slab(BytesOf(8), false),  Slab(BytesOf(16), false),  Slab(BytesOf(32), false),
      Slab(BytesOf(64), false), Slab(BytesOf(128), false), Slab(BytesOf(256), false),
  };
  const auto index = static_cast<size_t>(std::countr_zero(count));
  assert(std::has_single_bit(count) && index < std::size(slabs));
  return slabs[index];
}

}  // namespace

ResourceStorage ResourceStorage::Allocate(uint32_t count) {
  ResourceStorage storage;
  storage.data_ = static_cast<roce::ResponderResource*>(SlabOf(count).Take());
  storage.count_ = count;
  return storage;
}

ResourceStorage& ResourceStorage::operator=(ResourceStorage&& other) noexcept {
  if (this != &other) {
    GiveBack();
    data_ = std::exchange(other.data_, nullptr);
    count_ = other.count_;
  }
  return *this;
}

void ResourceStorage::GiveBack() {
  if (data_ != nullptr) SlabOf(count_).Give(std::exchange(data_, nullptr));
}

}  // namespace roci::dataplane
