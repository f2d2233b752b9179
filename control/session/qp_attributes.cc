#include "control/session/qp_attributes.h"

#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"

namespace roci::control {
namespace {

constexpr uint32_t kKnownAttributes =
    roce::kAttrState | roce::kAttrCurState | roce::kAttrSqdNotify | roce::kAttrAccessFlags |
    roce::kAttrPkeyIndex | roce::kAttrPort | roce::kAttrQkey | roce::kAttrAddressVector |
    roce::kAttrPathMtu | roce::kAttrTimeout | roce::kAttrRetryCount | roce::kAttrRnrRetry |
    roce::kAttrRqPsn | roce::kAttrMaxRdAtomic | roce::kAttrAlternatePath | roce::kAttrMinRnrTimer |
    roce::kAttrSqPsn | roce::kAttrMaxDestRdAtomic | roce::kAttrPathMigState |
    roce::kAttrCapabilities | roce::kAttrDestQpn | roce::kAttrRateLimit;

}  // namespace

uint32_t KnownAttributesOf(roce::QpType type, uint32_t mask) {
  constexpr uint32_t kOfResponders = roce::kAttrMaxDestRdAtomic | roce::kAttrMinRnrTimer;
  constexpr uint32_t kOfRequesters =
      roce::kAttrMaxRdAtomic | roce::kAttrRetryCount | roce::kAttrRnrRetry;
  if (type == roce::QpType::kXrcSend) return mask & ~kOfResponders;
  if (type == roce::QpType::kXrcRecv) return mask & ~kOfRequesters;
  return mask;
}

absl::Status AttributesFromAbi(const roci_abi_qp_attr& attr, uint32_t mask,
                               roce::QpAttributes& out) {
  if (mask & ~kKnownAttributes) return Invalid("unknown attributes in the mask");
  if (mask & roce::kAttrCapabilities)
    return absl::UnimplementedError("queue pairs cannot be resized");
  if (mask & roce::kAttrState) {
    if (attr.state >= roce::kQpStateCount) return Invalid("invalid state");
    out.state = static_cast<roce::QpState>(attr.state);
  }
  if (mask & roce::kAttrCurState) {
    if (attr.cur_state >= roce::kQpStateCount) return Invalid("invalid current state");
    out.cur_state = static_cast<roce::QpState>(attr.cur_state);
  }
  if (mask & roce::kAttrPathMtu) {
    const std::optional<roce::PathMtu> mtu = roce::PathMtuFromCode(attr.path_mtu);
    if (!mtu) return Invalid("invalid path MTU");
    out.path_mtu = *mtu;
  }
  if (mask & roce::kAttrPathMigState) {
    if (attr.path_mig_state > roce::kPathArmed) return Invalid("invalid path migration state");
    out.path_mig_state = static_cast<uint8_t>(attr.path_mig_state);
  }
  // PSNs are 32-bit fields of which 24 bits count.
  out.rq_psn = roce::Psn(attr.rq_psn);
  out.sq_psn = roce::Psn(attr.sq_psn);
  if ((mask & roce::kAttrDestQpn) && attr.dest_qpn > roce::kMask24)
    return Invalid("invalid remote QPN");
  out.dest_qpn = roce::Qpn(attr.dest_qpn);
  out.qkey = attr.qkey;
  out.access_flags = attr.access_flags;
  out.pkey_index = attr.pkey_index;
  out.port = attr.port;
  out.timeout = attr.timeout;
  out.retry_count = attr.retry_count;
  out.rnr_retry = attr.rnr_retry;
  out.min_rnr_timer = attr.min_rnr_timer;
  out.max_rd_atomic = attr.max_rd_atomic;
  out.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  out.en_sqd_async_notify = attr.en_sqd_async_notify != 0;
  out.rate_limit_kbps = attr.rate_limit_kbps;
  out.rate_burst_bytes = attr.rate_burst_bytes;
  return absl::OkStatus();
}

void AttributesToAbi(const roce::QpAttributes& attributes, roci_abi_qp_attr& out) {
  out.state = static_cast<uint32_t>(attributes.state);
  out.cur_state = static_cast<uint32_t>(attributes.cur_state);
  out.path_mtu = static_cast<uint32_t>(attributes.path_mtu);
  out.path_mig_state = attributes.path_mig_state;
  out.qkey = attributes.qkey;
  out.rq_psn = attributes.rq_psn.value();
  out.sq_psn = attributes.sq_psn.value();
  out.dest_qpn = attributes.dest_qpn.value();
  out.access_flags = attributes.access_flags;
  out.pkey_index = attributes.pkey_index;
  out.sq_draining = attributes.sq_draining;
  out.en_sqd_async_notify = attributes.en_sqd_async_notify;
  out.max_rd_atomic = attributes.max_rd_atomic;
  out.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  out.min_rnr_timer = attributes.min_rnr_timer;
  out.port = attributes.port;
  out.timeout = attributes.timeout;
  out.retry_count = attributes.retry_count;
  out.rnr_retry = attributes.rnr_retry;
  out.rate_limit_kbps = attributes.rate_limit_kbps;
  out.rate_burst_bytes = attributes.rate_burst_bytes;
}

absl::Status StatusOfModify(roce::ModifyResult result) {
  if (result == roce::ModifyResult::kOk) return absl::OkStatus();
  if (result == roce::ModifyResult::kUnsupported) {
    return absl::UnimplementedError(roce::ModifyResultName(result));
  }
  return absl::InvalidArgumentError(roce::ModifyResultName(result));
}

}  // namespace roci::control
