// The operations of send queues: the queue pair types that have each, and what its entries have.
// The plugin and the daemon's gate 2 take their checks from this table.
#pragma once

#include <array>
#include <cstdint>

#include "verbs_provider/abi/rings.h"

namespace roci::abi {

// The fields of an entry besides those that all operations have: the member of
// roci_abi_send_wqe::u, or `invalidate_key`.
enum class SendFields : uint8_t { kNone, kAtomic, kInvalidate, kBind, kList, kFlush };

struct SendOpcode {
  // Bit i: enum ibv_qp_type i.
  uint16_t qp_types = 0;
  // Types for which the operation exists, but not on this device.
  uint16_t unsupported_types = 0;
  SendFields fields = SendFields::kNone;
  bool may_be_inline = false;
  bool is_in_verbs = true;           // false: the request is posted by a call of rocidv.h
  uint8_t local_bytes = kAnyLength;  // required length of the local buffers

  static constexpr uint8_t kAnyLength = 0xFF;
};

// Rows of the table: a bit of a mask each.
inline constexpr uint32_t kSendOpcodeCount = 32;

constexpr uint32_t OpcodeBit(uint32_t opcode) { return 1u << opcode; }

// Values of enum ibv_qp_type.
inline constexpr uint32_t kQpRc = 2, kQpUc = 3, kQpUd = 4, kQpRawPacket = 8, kQpXrcSend = 9;

// Indexed by roci_abi_send_opcode (IBTA vol 1, 10.8.2, table of operations by transport service;
// annexes A16 to A19).
inline constexpr std::array<SendOpcode, kSendOpcodeCount> kSendOpcodes = [] {
  constexpr uint16_t kReliable = 1u << kQpRc | 1u << kQpXrcSend;
  constexpr uint16_t kConnected = kReliable | 1u << kQpUc;
  constexpr uint16_t kPackets = kConnected | 1u << kQpUd;
  constexpr uint16_t kUc = 1u << kQpUc;
  constexpr uint16_t kRaw = 1u << kQpRawPacket;
  std::array<SendOpcode, kSendOpcodeCount> table{};
  table[ROCI_ABI_WR_RDMA_WRITE] = {.qp_types = kConnected, .may_be_inline = true};
  table[ROCI_ABI_WR_RDMA_WRITE_WITH_IMM] = {.qp_types = kConnected, .may_be_inline = true};
  table[ROCI_ABI_WR_SEND] = {.qp_types = kPackets | kRaw, .may_be_inline = true};
  table[ROCI_ABI_WR_SEND_WITH_IMM] = {.qp_types = kPackets, .may_be_inline = true};
  table[ROCI_ABI_WR_RDMA_READ] = {.qp_types = kReliable};
  table[ROCI_ABI_WR_ATOMIC_CMP_AND_SWP] = {
      .qp_types = kReliable, .fields = SendFields::kAtomic, .local_bytes = 8};
  table[ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD] = {
      .qp_types = kReliable, .fields = SendFields::kAtomic, .local_bytes = 8};
  table[ROCI_ABI_WR_LOCAL_INV] = {
      .qp_types = kConnected, .fields = SendFields::kInvalidate, .local_bytes = 0};
  table[ROCI_ABI_WR_BIND_MW] = {
      .qp_types = kConnected, .fields = SendFields::kBind, .local_bytes = 0};
  table[ROCI_ABI_WR_SEND_WITH_INV] = {.qp_types = kReliable,
                                      .unsupported_types = kUc,
                                      .fields = SendFields::kInvalidate,
                                      .may_be_inline = true};
  table[ROCI_ABI_WR_TSO] = {.unsupported_types = kRaw};
  table[ROCI_ABI_WR_FLUSH] = {
      .qp_types = kReliable, .fields = SendFields::kFlush, .is_in_verbs = false, .local_bytes = 0};
  table[ROCI_ABI_WR_ATOMIC_WRITE] = {
      .qp_types = kReliable, .may_be_inline = true, .local_bytes = 8};
  table[ROCI_ABI_WR_REG_LIST] = {
      .qp_types = kConnected, .fields = SendFields::kList, .is_in_verbs = false, .local_bytes = 0};
  return table;
}();

// A bit per opcode of which `holds(row)` is true.
template <class Holds>
constexpr uint32_t OpcodesWhere(Holds holds) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < kSendOpcodeCount; ++i) {
    if (holds(kSendOpcodes[i])) mask |= OpcodeBit(i);
  }
  return mask;
}

// Operations that a device may lack, a bit per opcode: see roci_abi_create_qp_response.
inline constexpr uint32_t kAtomicOpcodes =
    OpcodeBit(ROCI_ABI_WR_ATOMIC_CMP_AND_SWP) | OpcodeBit(ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD);
inline constexpr uint32_t kFlushOpcodes =
    OpcodeBit(ROCI_ABI_WR_FLUSH) | OpcodeBit(ROCI_ABI_WR_ATOMIC_WRITE);
inline constexpr uint32_t kWindowOpcodes = OpcodeBit(ROCI_ABI_WR_BIND_MW);

// The operations of one type of queue pair, a bit per opcode.
struct SendOpcodesOfType {
  uint32_t verbs = 0;        // posted by ibv_post_send or ibv_wr_*
  uint32_t rocidv = 0;       // posted by a call of rocidv.h
  uint32_t unsupported = 0;  // see SendOpcode::unsupported_types
  uint32_t misplaced = 0;    // taken, to complete with IBV_WC_LOC_QP_OP_ERR
  constexpr uint32_t served() const { return verbs | rocidv; }
};

// `qp_type`: enum ibv_qp_type. All 0 for other values and for types that send nothing.
constexpr SendOpcodesOfType SendOpcodesOf(uint32_t qp_type) {
  const auto has = [qp_type](uint32_t types) {
    return qp_type < 16 && (types >> qp_type & 1) != 0;
  };
  return {
      .verbs = OpcodesWhere(
          [has](const SendOpcode& row) { return row.is_in_verbs && has(row.qp_types); }),
      .rocidv = OpcodesWhere(
          [has](const SendOpcode& row) { return !row.is_in_verbs && has(row.qp_types); }),
      .unsupported =
          OpcodesWhere([has](const SendOpcode& row) { return has(row.unsupported_types); }),
  };
}

// Types of queue pairs that have a send queue; bit i: enum ibv_qp_type i.
inline constexpr uint32_t kSendingQpTypes = [] {
  uint32_t types = 0;
  for (const SendOpcode& row : kSendOpcodes) types |= row.qp_types;
  return types;
}();

// The roci_abi_send_flags of entries of a type. Each operation of the type has them;
// ROCI_ABI_SEND_INLINE only where SendOpcode::may_be_inline is set.
constexpr uint8_t SendFlagsOf(uint32_t qp_type) {
  constexpr uint8_t kAll =
      ROCI_ABI_SEND_FENCE | ROCI_ABI_SEND_SIGNALED | ROCI_ABI_SEND_SOLICITED | ROCI_ABI_SEND_INLINE;
  return qp_type == kQpRawPacket ? kAll | ROCI_ABI_SEND_IP_CHECKSUM : kAll;
}

}  // namespace roci::abi
