// Values of the configuration that have names, in tables.
#pragma once

#include <cstddef>
#include <string_view>

namespace roci::control {

template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

// Returns whether the table has the name.
template <class Value, size_t kCount>
bool Lookup(const Named<Value> (&table)[kCount], std::string_view name, Value& out) {
  for (const Named<Value>& entry : table) {
    if (entry.name == name) {
      out = entry.value;
      return true;
    }
  }
  return false;
}

}  // namespace roci::control
