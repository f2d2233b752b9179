#include "tests/interop/rpcrdma/rpc_message.h"

namespace rpcrdma {
namespace {

constexpr uint32_t kCall = 0;
constexpr uint32_t kReply = 1;
constexpr uint32_t kRpcVersion = 2;
constexpr uint32_t kAccepted = 0;
constexpr uint32_t kMostOfOpaqueAuth = 400;  // RFC 5531, section 8.2

// Credentials or verifier of any flavor.
bool SkipAuth(XdrReader& reader) {
  uint32_t flavor = 0;
  uint32_t length = 0;
  std::span<const std::byte> body;
  return reader.Read32(flavor) && reader.Read32(length) && length <= kMostOfOpaqueAuth &&
         reader.ReadBytes(length, body);
}

}  // namespace

void AppendWord(std::vector<std::byte>& message, uint32_t value) {
  message.resize(message.size() + 4);
  StoreWord(message.data() + message.size() - 4, value);
}

void AppendBytes(std::vector<std::byte>& message, std::span<const std::byte> bytes) {
  message.insert(message.end(), bytes.begin(), bytes.end());
  message.resize(PaddedLength(message.size()));
}

std::vector<std::byte> EncodeRpcCall(const RpcCall& call) {
  std::vector<std::byte> message;
  message.reserve(kRpcCallBytes);
  for (const uint32_t word :
       {call.xid, kCall, kRpcVersion, call.program, call.version, call.procedure, 0u, 0u, 0u, 0u}) {
    AppendWord(message, word);
  }
  return message;
}

bool DecodeRpcCall(XdrReader& reader, RpcCall& call) {
  uint32_t direction = 0;
  uint32_t rpc_version = 0;
  return reader.Read32(call.xid) && reader.Read32(direction) && direction == kCall &&
         reader.Read32(rpc_version) && rpc_version == kRpcVersion && reader.Read32(call.program) &&
         reader.Read32(call.version) && reader.Read32(call.procedure) && SkipAuth(reader) &&
         SkipAuth(reader);
}

std::vector<std::byte> EncodeRpcReply(uint32_t xid, AcceptStatus status) {
  std::vector<std::byte> message;
  message.reserve(kRpcReplyBytes);
  for (const uint32_t word : {xid, kReply, kAccepted, 0u, 0u, static_cast<uint32_t>(status)}) {
    AppendWord(message, word);
  }
  return message;
}

bool DecodeRpcReply(XdrReader& reader, uint32_t& xid, AcceptStatus& status) {
  uint32_t direction = 0;
  uint32_t reply_status = 0;
  uint32_t accept_status = 0;
  if (!reader.Read32(xid) || !reader.Read32(direction) || direction != kReply ||
      !reader.Read32(reply_status) || reply_status != kAccepted || !SkipAuth(reader) ||
      !reader.Read32(accept_status)) {
    return false;
  }
  status = static_cast<AcceptStatus>(accept_status);
  return true;
}

}  // namespace rpcrdma
