// Attributes of a queue pair and the table of its state transitions (IBTA vol 1, 10.3.1
// and 11.2.5.2).
#pragma once

#include <cstdint>

#include "roce/types.h"

namespace roci::roce {

// Values are those of enum ibv_qp_type.
enum class QpType : uint8_t {
  kRc = 2,
  kUc = 3,
  kUd = 4,
  kRawPacket = 8,
  kXrcSend = 9,
  kXrcRecv = 10,
};

// Values are those of enum ibv_qp_state.
enum class QpState : uint8_t {
  kReset = 0,
  kInit = 1,
  kRtr = 2,
  kRts = 3,
  kSqd = 4,
  kSqe = 5,
  kErr = 6,
};
inline constexpr uint32_t kQpStateCount = 7;

// Connected types have exactly one peer.
constexpr bool IsConnected(QpType type) {
  return type != QpType::kUd && type != QpType::kRawPacket;
}

// Types whose requests are acknowledged. Only these can keep early packets.
constexpr bool IsReliable(QpType type) {
  return type == QpType::kRc || type == QpType::kXrcSend || type == QpType::kXrcRecv;
}

// "RESET", "RTS", ...
const char* QpStateName(QpState state);

// Bits of an attribute mask; values are those of enum ibv_qp_attr_mask.
inline constexpr uint32_t kAttrState = 1u << 0;
inline constexpr uint32_t kAttrCurState = 1u << 1;
inline constexpr uint32_t kAttrSqdNotify = 1u << 2;
inline constexpr uint32_t kAttrAccessFlags = 1u << 3;
inline constexpr uint32_t kAttrPkeyIndex = 1u << 4;
inline constexpr uint32_t kAttrPort = 1u << 5;
inline constexpr uint32_t kAttrQkey = 1u << 6;
inline constexpr uint32_t kAttrAddressVector = 1u << 7;
inline constexpr uint32_t kAttrPathMtu = 1u << 8;
inline constexpr uint32_t kAttrTimeout = 1u << 9;
inline constexpr uint32_t kAttrRetryCount = 1u << 10;
inline constexpr uint32_t kAttrRnrRetry = 1u << 11;
inline constexpr uint32_t kAttrRqPsn = 1u << 12;
inline constexpr uint32_t kAttrMaxRdAtomic = 1u << 13;
inline constexpr uint32_t kAttrAlternatePath = 1u << 14;
inline constexpr uint32_t kAttrMinRnrTimer = 1u << 15;
inline constexpr uint32_t kAttrSqPsn = 1u << 16;
inline constexpr uint32_t kAttrMaxDestRdAtomic = 1u << 17;
inline constexpr uint32_t kAttrPathMigState = 1u << 18;
inline constexpr uint32_t kAttrCapabilities = 1u << 19;
inline constexpr uint32_t kAttrDestQpn = 1u << 20;
inline constexpr uint32_t kAttrRateLimit = 1u << 25;

// Bits of QpAttributes::access_flags; values are those of enum ibv_access_flags.
inline constexpr uint32_t kQpAccessRemoteWrite = 1u << 1;
inline constexpr uint32_t kQpAccessRemoteRead = 1u << 2;
inline constexpr uint32_t kQpAccessRemoteAtomic = 1u << 3;
inline constexpr uint32_t kQpAccessFlushGlobal = 1u << 8;
inline constexpr uint32_t kQpAccessFlushPersistent = 1u << 9;

// Automatic path migration: only IBV_MIG_MIGRATED is supported, one path per QP.
inline constexpr uint8_t kPathMigrated = 0;
inline constexpr uint8_t kPathArmed = 2;  // the last

// The attributes of ibv_qp_attr that the transport uses, in host byte order. The control plane
// keeps the address vector, the dataplane's frame template the resolved path.
struct QpAttributes {
  QpState state = QpState::kReset;
  QpState cur_state =
      QpState::kReset;  // in: the state that the program expects (kAttrCurState); out: = state
  PathMtu path_mtu = PathMtu::k1024;
  uint8_t path_mig_state = kPathMigrated;
  uint32_t qkey = 0;
  Psn rq_psn;  // out: next PSN expected
  Psn sq_psn;  // out: PSN of the next new request
  Qpn dest_qpn;
  uint32_t access_flags = 0;
  uint32_t rate_limit_kbps = 0;   // 0: none
  uint32_t rate_burst_bytes = 0;  // burst after a pause; 0: see Pacer::Set
  uint16_t pkey_index = 0;
  uint8_t port = 0;                // 1
  uint8_t timeout = 0;             // 4.096 us * 2^timeout, 0: never; 0..31
  uint8_t retry_count = 0;         // 0..7
  uint8_t rnr_retry = 0;           // 0..7, 7: no limit
  uint8_t min_rnr_timer = 0;       // code of kRnrTimerNs, 0..31
  uint8_t max_rd_atomic = 0;       // READs and atomics this side may have outstanding
  uint8_t max_dest_rd_atomic = 0;  // READs and atomics the peer may have outstanding
  bool en_sqd_async_notify = false;
  bool sq_draining = false;  // out only: in SQD and requests still unacknowledged
};

enum class ModifyResult : uint8_t {
  kOk,
  kBadTransition,        // EINVAL
  kMissingAttribute,     // EINVAL
  kAttributeNotAllowed,  // EINVAL
  kBadValue,             // EINVAL
  kUnsupported,          // EOPNOTSUPP: alternate paths, path migration
  kMustFlush,            // see Qp::Modify
};
const char* ModifyResultName(ModifyResult result);

// Whether `mask` (kAttr*) has every attribute that the transition requires and only attributes that
// it allows. Without kAttrState in `mask`, `to` must equal `from`.
ModifyResult CheckModify(QpType type, QpState from, QpState to, uint32_t mask);

// Least rate limit other than 0.
inline constexpr uint32_t kMinRateKbps = 100;
inline constexpr uint32_t kMaxRateKbps = 100'000'000;

// Limits of attribute values on this device.
struct QpAttributeLimits {
  uint32_t pkey_table_length = 1;
  uint8_t ports = 1;
  uint8_t max_rd_atomic = 16;
  uint8_t max_dest_rd_atomic = 16;
  PathMtu max_path_mtu = PathMtu::k4096;
  uint32_t min_rate_kbps = kMinRateKbps;
  uint32_t max_rate_kbps = kMaxRateKbps;
};

// Checks the values of those attributes that `mask` names.
ModifyResult CheckAttributeValues(const QpAttributes& attributes, uint32_t mask,
                                  const QpAttributeLimits& limits);

}  // namespace roci::roce
