// Constants of libibverbs and librdmacm that the connection manager uses and that the kernel's
// headers do not define; and the transport's, in the kernel's types.
#pragma once

#include <cstdint>

#include "roce/qp_attributes.h"

namespace roci::control::cm {

// The queue pair types of identifiers, as in the kernel's structures.
inline constexpr auto kQpRc = static_cast<uint8_t>(roce::QpType::kRc);
inline constexpr auto kQpUc = static_cast<uint8_t>(roce::QpType::kUc);
inline constexpr auto kQpUd = static_cast<uint8_t>(roce::QpType::kUd);
inline constexpr auto kQpXrcSend = static_cast<uint8_t>(roce::QpType::kXrcSend);
inline constexpr auto kQpXrcRecv = static_cast<uint8_t>(roce::QpType::kXrcRecv);

// States in INIT_QP_ATTR.
inline constexpr auto kQpInit = static_cast<uint32_t>(roce::QpState::kInit);
inline constexpr auto kQpRtr = static_cast<uint32_t>(roce::QpState::kRtr);
inline constexpr auto kQpRts = static_cast<uint32_t>(roce::QpState::kRts);

inline constexpr uint8_t kPortNumber = 1;  // of a device

inline constexpr uint8_t kRate100Gbps = 16;  // IBV_RATE_100_GBPS

inline constexpr uint32_t kUdpQkey = 0x01234567;  // RDMA_UDP_QKEY

}  // namespace roci::control::cm
