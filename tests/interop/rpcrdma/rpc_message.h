// The headers of ONC RPC messages (RFC 5531), as far as tests of the transport need them: no
// credentials.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/interop/rpcrdma/xdr_words.h"

namespace rpcrdma {

struct RpcCall {
  uint32_t xid = 0;
  uint32_t program = 0;
  uint32_t version = 0;
  uint32_t procedure = 0;
};

// RFC 5531, section 9: accept_stat.
enum class AcceptStatus : uint32_t {
  kSuccess = 0,
  kProgramUnavailable = 1,
  kProgramMismatch = 2,
  kProcedureUnavailable = 3,
  kGarbageArguments = 4,
  kSystemError = 5,
};

inline constexpr size_t kRpcCallBytes = 40;   // with empty credentials and verifier
inline constexpr size_t kRpcReplyBytes = 24;  // of an accepted call, with an empty verifier

// Appends a word.
void AppendWord(std::vector<std::byte>& message, uint32_t value);
// Appends bytes and their round-up, without a length.
void AppendBytes(std::vector<std::byte>& message, std::span<const std::byte> bytes);

std::vector<std::byte> EncodeRpcCall(const RpcCall& call);
// Leaves `reader` at the arguments. False: not a call of RPC version 2.
bool DecodeRpcCall(XdrReader& reader, RpcCall& call);

std::vector<std::byte> EncodeRpcReply(uint32_t xid, AcceptStatus status);
// Leaves `reader` at the results. False: not an accepted reply.
bool DecodeRpcReply(XdrReader& reader, uint32_t& xid, AcceptStatus& status);

}  // namespace rpcrdma
