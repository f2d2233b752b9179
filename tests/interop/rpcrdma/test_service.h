// An RPC program for tests of the transport: data of any length in each direction, with a pattern
// that both sides know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/interop/rpcrdma/rpc_service.h"

namespace rpcrdma {

// In the transient block (RFC 5531, section 13.3.3).
inline constexpr uint32_t kTestProgram = 0x40'00'81'66;
inline constexpr uint32_t kTestVersion = 1;
inline constexpr uint32_t kMostTestBytes = 1 << 20;

enum class TestProcedure : uint32_t {
  kNull = 0,
  kGet = 1,      // (length, seed) -> opaque<>, which may be placed directly
  kPut = 2,      // (seed, opaque<>) -> 1 if all bytes are as they should be, else 0
  kList = 3,     // (length, seed) -> opaque<>, which may not be placed directly
  kEcho = 4,     // (opaque<>) -> the same, which may be placed directly
  kDrop = 5,     // (): closes the connection
  kGetMore = 6,  // as kGet, with the seed behind the data
};

// Of at most kMostTestBytes.
void FillPattern(std::span<std::byte> bytes, uint32_t seed);
bool HasPattern(std::span<const std::byte> bytes, uint32_t seed);

class TestService : public RpcService {
 public:
  RpcReply Answer(std::span<const std::byte> call) override;
};

}  // namespace rpcrdma
