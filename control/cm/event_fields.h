// What messages of peers say, in the fields of librdmacm's events.
#pragma once

// After the C library's header: the kernel's header then uses its address types.
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace roci::control::cm {

// Copies private data. `out`: rdma_ucm_conn_param or rdma_ucm_ud_param. What does not fit is cut.
template <class Param>
void CopyData(std::span<const std::byte> data, Param& out) {
  const size_t size = std::min<size_t>(data.size(), UINT8_MAX);  // as private_data_len
  std::memcpy(out.private_data, data.data(), size);
  out.private_data_len = static_cast<uint8_t>(size);
}

// `message`: a REQ or REP, both of which describe the peer's queue pair. The peer's initiator is
// served by this end's responder.
template <class Message>
void DescribePeer(const Message& message, rdma_ucm_event_resp& out) {
  out.param.conn.qp_num = message.local_qpn;
  out.param.conn.srq = message.srq;
  out.param.conn.responder_resources = message.initiator_depth;
  out.param.conn.initiator_depth = message.responder_resources;
  out.param.conn.flow_control = message.flow_control;
  out.param.conn.rnr_retry_count = message.rnr_retry_count;
  out.ece = {message.ece().vendor_id, message.ece().options};
}

}  // namespace roci::control::cm
