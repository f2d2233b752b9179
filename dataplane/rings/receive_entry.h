// Takes one receive entry through gate 2: copies it once, then checks the copy. Shared by receive
// queues and shared receive queues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "roce/work.h"
#include "verbs_provider/abi/rings.h"

namespace roci::dataplane {

// Copies foreign memory exactly once: the compiler must not read the source again.
template <class T>
void CopyOnce(T& to, const std::byte* from) {
  std::memcpy(&to, from, sizeof(T));
  asm volatile("" : "+m"(to));
}

inline roce::Sge ToSge(const roci_abi_sge& sge) {
  return {sge.va, sge.length, roce::Key(sge.lkey)};
}

// Element `i` of the receive entry in `slot`.
inline roce::Sge ReadReceiveSge(const std::byte* slot, uint32_t i) {
  roci_abi_sge sge;
  CopyOnce(sge, slot + sizeof(roci_abi_recv_wqe) + i * sizeof(roci_abi_sge));
  return ToSge(sge);
}

// Bytes of a slot for `max_sge` elements.
constexpr uint32_t RecvStride(uint32_t max_sge) {
  constexpr uint32_t kMultiple = 32;
  const auto bytes =
      static_cast<uint32_t>(sizeof(roci_abi_recv_wqe) + max_sge * sizeof(roci_abi_sge));
  return (bytes + kMultiple - 1) / kMultiple * kMultiple;
}

// Fills in `out`, except its slot number. kBad: `out` has the wr_id, and `bad_status` the error.
inline roce::FetchResult TakeReceive(const std::byte* slot, uint8_t max_sge, roce::RecvWqe& out,
                                     roce::CompletionStatus& bad_status) {
  struct Entry {
    roci_abi_recv_wqe head;
    roci_abi_sge first;
  };
  static_assert(sizeof(Entry) == 32);
  Entry entry;
  CopyOnce(entry, slot);
  out.wr_id = entry.head.wr_id;
  out.num_sge = 0;
  out.capacity = 0;
  if (entry.head.num_sge > max_sge) [[unlikely]] {
    bad_status = roce::CompletionStatus::kLocalQpOperationError;
    return roce::FetchResult::kBad;
  }
  out.num_sge = static_cast<uint8_t>(entry.head.num_sge);
  if (out.num_sge >= 1) [[likely]] {
    out.first_sge = ToSge(entry.first);
    out.capacity = entry.first.length;
  }
  for (uint32_t i = 1; i < out.num_sge; ++i) out.capacity += ReadReceiveSge(slot, i).length;
  return roce::FetchResult::kOk;
}

}  // namespace roci::dataplane
