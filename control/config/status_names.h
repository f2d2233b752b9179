// The statuses of completions that fail, by the names of enum ibv_wc_status without IBV_WC_.
#pragma once

#include "control/config/named_value.h"
#include "roce/work.h"

namespace roci::control {

inline constexpr Named<roce::CompletionStatus> kStatusNames[] = {
    {"loc_len_err", roce::CompletionStatus::kLocalLengthError},
    {"loc_qp_op_err", roce::CompletionStatus::kLocalQpOperationError},
    {"loc_prot_err", roce::CompletionStatus::kLocalProtectionError},
    {"wr_flush_err", roce::CompletionStatus::kWorkRequestFlushed},
    {"mw_bind_err", roce::CompletionStatus::kMwBindError},
    {"bad_resp_err", roce::CompletionStatus::kBadResponse},
    {"loc_access_err", roce::CompletionStatus::kLocalAccessError},
    {"rem_inv_req_err", roce::CompletionStatus::kRemoteInvalidRequest},
    {"rem_access_err", roce::CompletionStatus::kRemoteAccessError},
    {"rem_op_err", roce::CompletionStatus::kRemoteOperationError},
    {"retry_exc_err", roce::CompletionStatus::kRetryExceeded},
    {"rnr_retry_exc_err", roce::CompletionStatus::kRnrRetryExceeded},
    {"rem_abort_err", roce::CompletionStatus::kRemoteAborted},
    {"fatal_err", roce::CompletionStatus::kFatal},
    {"resp_timeout_err", roce::CompletionStatus::kResponseTimeout},
    {"general_err", roce::CompletionStatus::kGeneralError},
};

}  // namespace roci::control
