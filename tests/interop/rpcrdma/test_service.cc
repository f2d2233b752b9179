#include "tests/interop/rpcrdma/test_service.h"

#include <cstring>
#include <random>

#include "tests/interop/rpcrdma/rpc_message.h"
#include "tests/interop/rpcrdma/xdr_words.h"

namespace rpcrdma {
namespace {

// Bytes without a period that any length of a chunk could hide. A pattern is a part of them, so
// that it costs no more than a copy.
const std::byte* Pattern(uint32_t seed) {
  static const std::vector<std::byte> bytes = [] {
    std::vector<std::byte> random(2 * kMostTestBytes);
    std::minstd_rand generator(1);
    for (std::byte& byte : random) byte = static_cast<std::byte>(generator() >> 8);
    return random;
  }();
  return bytes.data() + seed * 61 % kMostTestBytes;
}

RpcReply Status(uint32_t xid, AcceptStatus status) { return {EncodeRpcReply(xid, status)}; }

RpcReply Drop() {
  RpcReply reply;
  reply.drop = true;
  return reply;
}

// A reply with opaque data.
RpcReply WithData(uint32_t xid, std::span<const std::byte> data, bool placeable) {
  RpcReply reply = Status(xid, AcceptStatus::kSuccess);
  reply.message.reserve(kRpcReplyBytes + 4 + PaddedLength(data.size()));
  AppendWord(reply.message, static_cast<uint32_t>(data.size()));
  if (placeable) {
    reply.bulk_offset = reply.message.size();
    reply.bulk_length = data.size();
  }
  AppendBytes(reply.message, data);
  return reply;
}

RpcReply Generate(uint32_t xid, XdrReader& arguments, bool placeable) {
  uint32_t length = 0;
  uint32_t seed = 0;
  if (!arguments.Read32(length) || !arguments.Read32(seed) || length > kMostTestBytes) {
    return Status(xid, AcceptStatus::kGarbageArguments);
  }
  return WithData(xid, {Pattern(seed), length}, placeable);
}

RpcReply GenerateMore(uint32_t xid, XdrReader& arguments) {
  XdrReader again = arguments;
  uint32_t length = 0;
  uint32_t seed = 0;
  RpcReply reply = Generate(xid, arguments, true);
  if (again.Read32(length) && again.Read32(seed)) AppendWord(reply.message, seed);
  return reply;
}

bool ReadOpaque(XdrReader& arguments, std::span<const std::byte>& data) {
  uint32_t length = 0;
  return arguments.Read32(length) && arguments.ReadBytes(length, data);
}

RpcReply Put(uint32_t xid, XdrReader& arguments) {
  uint32_t seed = 0;
  std::span<const std::byte> data;
  if (!arguments.Read32(seed) || !ReadOpaque(arguments, data)) {
    return Status(xid, AcceptStatus::kGarbageArguments);
  }
  RpcReply reply = Status(xid, AcceptStatus::kSuccess);
  AppendWord(reply.message, HasPattern(data, seed) ? 1 : 0);
  return reply;
}

RpcReply Echo(uint32_t xid, XdrReader& arguments) {
  std::span<const std::byte> data;
  if (!ReadOpaque(arguments, data)) return Status(xid, AcceptStatus::kGarbageArguments);
  return WithData(xid, data, true);
}

}  // namespace

void FillPattern(std::span<std::byte> bytes, uint32_t seed) {
  if (!bytes.empty()) std::memcpy(bytes.data(), Pattern(seed), bytes.size());
}

bool HasPattern(std::span<const std::byte> bytes, uint32_t seed) {
  if (bytes.empty()) return true;
  return bytes.size() <= kMostTestBytes &&
         std::memcmp(bytes.data(), Pattern(seed), bytes.size()) == 0;
}

RpcReply TestService::Answer(std::span<const std::byte> call) {
  XdrReader reader(call);
  RpcCall header;
  if (!DecodeRpcCall(reader, header)) return Drop();
  if (header.program != kTestProgram) return Status(header.xid, AcceptStatus::kProgramUnavailable);
  switch (static_cast<TestProcedure>(header.procedure)) {
    case TestProcedure::kNull:
      return Status(header.xid, AcceptStatus::kSuccess);
    case TestProcedure::kGet:
      return Generate(header.xid, reader, true);
    case TestProcedure::kPut:
      return Put(header.xid, reader);
    case TestProcedure::kList:
      return Generate(header.xid, reader, false);
    case TestProcedure::kEcho:
      return Echo(header.xid, reader);
    case TestProcedure::kDrop:
      return Drop();
    case TestProcedure::kGetMore:
      return GenerateMore(header.xid, reader);
  }
  return Status(header.xid, AcceptStatus::kProcedureUnavailable);
}

}  // namespace rpcrdma
