// The head of a client's calls, as root by AUTH_SYS (RFC 5531, section 9 and appendix A).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rpcrdma {

std::vector<std::byte> RootCallHead(uint32_t xid, uint32_t program, uint32_t version,
                                    uint32_t procedure);

}  // namespace rpcrdma
