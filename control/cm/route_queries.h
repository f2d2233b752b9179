// Answers to queries for an identifier's addresses and route. They change nothing.
#pragma once

// After the C library's header: the kernel's headers then use its address types.
#include <netinet/in.h>
#include <rdma/ib_user_sa.h>
#include <rdma/rdma_user_cm.h>

#include <cstddef>
#include <span>

#include "control/cm/cm_id.h"

namespace roci::control::cm {

void QueryRoute(const CmId& id, rdma_ucm_query_route_resp& out);
void QueryAddress(const CmId& id, rdma_ucm_query_addr_resp& out);
// The same, converted to AF_IB addresses.
void QueryGids(const CmId& id, rdma_ucm_query_addr_resp& out);
// Fills in one path or none. Returns the size of the answer.
inline constexpr size_t kPathAnswerBytes =
    sizeof(rdma_ucm_query_path_resp) + sizeof(ib_path_rec_data);
size_t QueryPath(const CmId& id, std::span<std::byte, kPathAnswerBytes> out);

}  // namespace roci::control::cm
