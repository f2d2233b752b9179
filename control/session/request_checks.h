// Content checks of the decoder, beyond a request's size: a function for each kind of request that
// has content to check. Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "control/config/device_limits.h"

namespace roci::control {

// `request`: a copy of the whole request. The errno for the answer, or OK.
using RequestCheck = absl::Status(const void* request, uint32_t fd_count,
                                  const DeviceLimits& limits);

// request_checks_memory.cc
RequestCheck CheckRegMr;
RequestCheck CheckRegDmMr;
RequestCheck CheckRegDmaBufferMr;
RequestCheck CheckReregMr;
RequestCheck CheckUnshareRange;
RequestCheck CheckAllocMw;
RequestCheck CheckAllocListMr;
RequestCheck CheckAllocSignatureMr;

// request_checks_queues.cc
RequestCheck CheckQueryPort;
RequestCheck CheckMulticast;
RequestCheck CheckOpenQp;
RequestCheck CheckCreateCq;
RequestCheck CheckModifyCq;
RequestCheck CheckModifyQp;
RequestCheck CheckResizeCq;
RequestCheck CheckCreateQp;
RequestCheck CheckCreateFlow;
RequestCheck CheckQueueTable;
RequestCheck CheckCreateRssQp;
RequestCheck CheckCreateSrq;
RequestCheck CheckCreateTagSrq;
RequestCheck CheckModifySrq;
RequestCheck CheckOpenXrcd;
RequestCheck CheckReturnEvents;

}  // namespace roci::control
