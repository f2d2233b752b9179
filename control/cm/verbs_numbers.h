// Constants of libibverbs and librdmacm that the connection manager uses (ibv_create_qp(3),
// ibv_modify_qp(3), rdma_get_cm_event(3)) and that the kernel's headers do not define.
#pragma once

#include <cstdint>

namespace roci::control::cm {

// enum ibv_qp_type.
inline constexpr uint8_t kQpRc = 2;
inline constexpr uint8_t kQpUc = 3;
inline constexpr uint8_t kQpUd = 4;
inline constexpr uint8_t kQpXrcSend = 9;
inline constexpr uint8_t kQpXrcRecv = 10;

// enum ibv_qp_state.
inline constexpr uint32_t kQpInit = 1;
inline constexpr uint32_t kQpRtr = 2;
inline constexpr uint32_t kQpRts = 3;

// enum ibv_qp_attr_mask.
inline constexpr uint32_t kMaskState = 1 << 0;
inline constexpr uint32_t kMaskAccessFlags = 1 << 3;
inline constexpr uint32_t kMaskPkeyIndex = 1 << 4;
inline constexpr uint32_t kMaskPort = 1 << 5;
inline constexpr uint32_t kMaskQkey = 1 << 6;
inline constexpr uint32_t kMaskAv = 1 << 7;
inline constexpr uint32_t kMaskPathMtu = 1 << 8;
inline constexpr uint32_t kMaskTimeout = 1 << 9;
inline constexpr uint32_t kMaskRetryCount = 1 << 10;
inline constexpr uint32_t kMaskRnrRetry = 1 << 11;
inline constexpr uint32_t kMaskRqPsn = 1 << 12;
inline constexpr uint32_t kMaskMaxRdAtomic = 1 << 13;
inline constexpr uint32_t kMaskMinRnrTimer = 1 << 15;
inline constexpr uint32_t kMaskSqPsn = 1 << 16;
inline constexpr uint32_t kMaskMaxDestRdAtomic = 1 << 17;
inline constexpr uint32_t kMaskDestQpn = 1 << 20;

// enum ibv_access_flags.
inline constexpr uint32_t kAccessRemoteWrite = 2;
inline constexpr uint32_t kAccessRemoteRead = 4;
inline constexpr uint32_t kAccessRemoteAtomic = 8;

inline constexpr uint32_t kEventCommEst = 4;  // IBV_EVENT_COMM_EST
inline constexpr uint8_t kRate100Gbps = 16;   // IBV_RATE_100_GBPS

// enum rdma_cm_event_type.
inline constexpr uint32_t kCmAddrResolved = 0;
inline constexpr uint32_t kCmAddrError = 1;
inline constexpr uint32_t kCmRouteResolved = 2;
inline constexpr uint32_t kCmConnectRequest = 4;
inline constexpr uint32_t kCmConnectResponse = 5;
inline constexpr uint32_t kCmUnreachable = 7;
inline constexpr uint32_t kCmRejected = 8;
inline constexpr uint32_t kCmEstablished = 9;
inline constexpr uint32_t kCmDisconnected = 10;
inline constexpr uint32_t kCmMulticastJoin = 12;
inline constexpr uint32_t kCmTimewaitExit = 15;

inline constexpr uint32_t kUdpQkey = 0x01234567;  // RDMA_UDP_QKEY

}  // namespace roci::control::cm
