// Private data of messages, in the fields of librdmacm's events.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace roci::control::cm {

// `out`: rdma_ucm_conn_param or rdma_ucm_ud_param. What does not fit is cut.
template <class Param>
void CopyData(std::span<const std::byte> data, Param& out) {
  const size_t size = std::min<size_t>(data.size(), UINT8_MAX);  // as private_data_len
  std::memcpy(out.private_data, data.data(), size);
  out.private_data_len = static_cast<uint8_t>(size);
}

}  // namespace roci::control::cm
