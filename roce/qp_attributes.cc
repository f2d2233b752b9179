// The table of queue pair transitions and the value checks of attributes.
#include "roce/qp_attributes.h"

#include <array>
#include <cassert>
#include <cstddef>

namespace roci::roce {
namespace {

// Columns of the table. Raw packet QPs have no transport attributes.
enum Column : uint32_t {
  kColumnRc,
  kColumnUc,
  kColumnUd,
  kColumnXrcSend,
  kColumnXrcRecv,
  kColumnRaw,
  kColumns
};

struct Masks {
  std::array<uint32_t, kColumns> required{};
  std::array<uint32_t, kColumns> optional{};
};

struct Transition {
  QpState from;
  QpState to;
  Masks masks;
};

constexpr uint32_t kInitConnected = kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
constexpr uint32_t kInitDatagram = kAttrPkeyIndex | kAttrPort | kAttrQkey;

constexpr uint32_t kRtrConnected = kAttrAddressVector | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
constexpr uint32_t kRtrResponder = kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
constexpr uint32_t kRtrOptional = kAttrAlternatePath | kAttrAccessFlags | kAttrPkeyIndex;

constexpr uint32_t kRtsRequester =
    kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrSqPsn | kAttrMaxRdAtomic;
// Attributes that a connected QP may change in RTS.
constexpr uint32_t kLive =
    kAttrCurState | kAttrAlternatePath | kAttrAccessFlags | kAttrPathMigState | kAttrRateLimit;
constexpr uint32_t kLiveResponder = kLive | kAttrMinRnrTimer;
constexpr uint32_t kLiveDatagram = kAttrCurState | kAttrQkey | kAttrRateLimit;

constexpr uint32_t kSqdUc =
    kAttrAddressVector | kAttrAlternatePath | kAttrAccessFlags | kAttrPkeyIndex | kAttrPathMigState;
constexpr uint32_t kSqdXrcSend =
    kSqdUc | kAttrPort | kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrMaxRdAtomic;
constexpr uint32_t kSqdXrcRecv =
    kSqdUc | kAttrPort | kAttrTimeout | kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
constexpr uint32_t kSqdRc = kSqdXrcSend | kSqdXrcRecv;

// IBTA vol 1, 11.2.5.2, as Linux implements it. All sending types have the rate limit, which Linux
// has for raw packets only. Columns: RC, UC, UD, XRC send, XRC receive, raw. Transitions to RESET
// and ERR take no attributes and are legal from every state, except from RESET to ERR.
constexpr Transition kTransitions[] = {
    {QpState::kReset,
     QpState::kInit,
     {{kInitConnected, kInitConnected, kInitDatagram, kInitConnected, kInitConnected, kAttrPort},
      {}}},
    {QpState::kInit,
     QpState::kInit,
     {{},
      {kInitConnected, kInitConnected, kInitDatagram, kInitConnected, kInitConnected, kAttrPort}}},
    {QpState::kInit,
     QpState::kRtr,
     {{kRtrConnected | kRtrResponder, kRtrConnected, 0, kRtrConnected,
       kRtrConnected | kRtrResponder, 0},
      {kRtrOptional, kRtrOptional, kAttrPkeyIndex | kAttrQkey, kRtrOptional, kRtrOptional, 0}}},
    {QpState::kRtr,
     QpState::kRts,
     {{kRtsRequester, kAttrSqPsn, kAttrSqPsn, kRtsRequester, kAttrTimeout | kAttrSqPsn, 0},
      {kLiveResponder, kLive, kLiveDatagram, kLive, kLiveResponder, kAttrRateLimit}}},
    {QpState::kRts,
     QpState::kRts,
     {{}, {kLiveResponder, kLive, kLiveDatagram, kLive, kLiveResponder, kAttrRateLimit}}},
    {QpState::kRts,
     QpState::kSqd,
     {{}, {kAttrSqdNotify, kAttrSqdNotify, kAttrSqdNotify, kAttrSqdNotify, kAttrSqdNotify, 0}}},
    {QpState::kSqd,
     QpState::kRts,
     {{}, {kLiveResponder, kLive, kLiveDatagram, kLive, kLiveResponder, 0}}},
    {QpState::kSqd,
     QpState::kSqd,
     {{}, {kSqdRc, kSqdUc, kAttrPkeyIndex | kAttrQkey, kSqdXrcSend, kSqdXrcRecv, 0}}},
    // Only UC and UD enter SQE (10.3.1.6).
    {QpState::kSqe,
     QpState::kRts,
     {{}, {0, kAttrCurState | kAttrAccessFlags, kLiveDatagram, 0, 0, 0}}},
};

uint32_t ColumnOf(QpType type) {
  switch (type) {
    case QpType::kRc:
      return kColumnRc;
    case QpType::kUc:
      return kColumnUc;
    case QpType::kUd:
      return kColumnUd;
    case QpType::kXrcSend:
      return kColumnXrcSend;
    case QpType::kXrcRecv:
      return kColumnXrcRecv;
    case QpType::kRawPacket:
      return kColumnRaw;
  }
  return kColumnRc;
}

const Masks* FindTransition(QpState from, QpState to) {
  for (const Transition& transition : kTransitions) {
    if (transition.from == from && transition.to == to) return &transition.masks;
  }
  return nullptr;
}

bool IsCurrentStateAllowed(QpState from) {
  return from == QpState::kRtr || from == QpState::kRts || from == QpState::kSqd ||
         from == QpState::kSqe;
}

// Timer codes have 5 bits (IBTA vol 1, 9.7.5.2.8 and 9.7.6.1.3), retry counts 3.
constexpr uint8_t kMaxTimerCode = 31;
constexpr uint8_t kMaxRetryCount = 7;

}  // namespace

const char* QpStateName(QpState state) {
  static constexpr const char* kNames[kQpStateCount] = {"RESET", "INIT", "RTR", "RTS",
                                                        "SQD",   "SQE",  "ERR"};
  const auto index = static_cast<size_t>(state);
  return index < kQpStateCount ? kNames[index] : "?";
}

const char* ModifyResultName(ModifyResult result) {
  switch (result) {
    case ModifyResult::kOk:
      return "ok";
    case ModifyResult::kBadTransition:
      return "bad transition";
    case ModifyResult::kMissingAttribute:
      return "missing attribute";
    case ModifyResult::kAttributeNotAllowed:
      return "attribute not allowed";
    case ModifyResult::kBadValue:
      return "bad value";
    case ModifyResult::kUnsupported:
      return "unsupported";
    case ModifyResult::kMustFlush:
      return "send work requests to flush";
  }
  return "?";
}

ModifyResult CheckModify(QpType type, QpState from, QpState to, uint32_t mask) {
  assert(static_cast<uint32_t>(to) < kQpStateCount);
  if ((mask & kAttrState) == 0 && from != to) return ModifyResult::kBadTransition;
  if ((mask & kAttrCurState) != 0 && !IsCurrentStateAllowed(from)) {
    return ModifyResult::kBadTransition;
  }
  uint32_t required = 0;
  uint32_t optional = 0;
  if (to == QpState::kErr && from == QpState::kReset) return ModifyResult::kBadTransition;
  if (to != QpState::kReset && to != QpState::kErr) {
    const Masks* masks = FindTransition(from, to);
    if (masks == nullptr) return ModifyResult::kBadTransition;
    const uint32_t column = ColumnOf(type);
    // The row exists for other types only: RC has no transition from SQE.
    if (from == QpState::kSqe && masks->optional[column] == 0) return ModifyResult::kBadTransition;
    required = masks->required[column];
    optional = masks->optional[column];
  }
  if ((mask & required) != required) return ModifyResult::kMissingAttribute;
  if ((mask & ~(required | optional | kAttrState)) != 0) return ModifyResult::kAttributeNotAllowed;
  return ModifyResult::kOk;
}

namespace {

// enum ibv_access_flags up to FLUSH_PERSISTENT, and its range of optional flags, which are ignored
// if unknown.
constexpr uint32_t kKnownAccessFlags = 0x3FF | 0x3FF00000;

}  // namespace

ModifyResult CheckAttributeValues(const QpAttributes& a, uint32_t mask,
                                  const QpAttributeLimits& limits) {
  const auto has = [mask](uint32_t bit) { return (mask & bit) != 0; };
  assert(!has(kAttrPathMtu) || PathMtuFromCode(static_cast<uint32_t>(a.path_mtu)).has_value());
  const bool bad =
      (has(kAttrPkeyIndex) && a.pkey_index >= limits.pkey_table_length) ||
      (has(kAttrPort) && (a.port == 0 || a.port > limits.ports)) ||
      (has(kAttrPathMtu) && a.path_mtu > limits.max_path_mtu) ||
      (has(kAttrTimeout) && a.timeout > kMaxTimerCode) ||
      (has(kAttrRetryCount) && a.retry_count > kMaxRetryCount) ||
      (has(kAttrRnrRetry) && a.rnr_retry > kMaxRetryCount) ||
      (has(kAttrMinRnrTimer) && a.min_rnr_timer > kMaxTimerCode) ||
      (has(kAttrMaxRdAtomic) && a.max_rd_atomic > limits.max_rd_atomic) ||
      (has(kAttrMaxDestRdAtomic) && a.max_dest_rd_atomic > limits.max_dest_rd_atomic) ||
      (has(kAttrAccessFlags) && (a.access_flags & ~kKnownAccessFlags) != 0) ||
      (has(kAttrRateLimit) && a.rate_limit_kbps != 0 &&
       (a.rate_limit_kbps < limits.min_rate_kbps || a.rate_limit_kbps > limits.max_rate_kbps));
  if (bad) return ModifyResult::kBadValue;
  if (has(kAttrAlternatePath) || (has(kAttrPathMigState) && a.path_mig_state != kPathMigrated)) {
    return ModifyResult::kUnsupported;
  }
  return ModifyResult::kOk;
}

}  // namespace roci::roce
