#include "tests/interop/rpcrdma/test_service.h"

#include <algorithm>

#include "tests/interop/rpcrdma/rpc_message.h"
#include "tests/interop/rpcrdma/xdr_words.h"

namespace rpcrdma {
namespace {

std::byte PatternByte(uint32_t seed, size_t i) {
  return static_cast<std::byte>((seed + i * 2654435761u) >> 13 ^ i);
}

RpcReply Status(uint32_t xid, AcceptStatus status) { return {EncodeRpcReply(xid, status)}; }

RpcReply Drop() {
  RpcReply reply;
  reply.drop = true;
  return reply;
}

// A reply with opaque data.
RpcReply WithData(uint32_t xid, size_t length, bool placeable) {
  RpcReply reply = Status(xid, AcceptStatus::kSuccess);
  AppendWord(reply.message, static_cast<uint32_t>(length));
  const size_t offset = reply.message.size();
  reply.message.resize(offset + PaddedLength(length));
  if (placeable) {
    reply.bulk_offset = offset;
    reply.bulk_length = length;
  }
  return reply;
}

RpcReply Generate(uint32_t xid, XdrReader& arguments, bool placeable) {
  uint32_t length = 0;
  uint32_t seed = 0;
  if (!arguments.Read32(length) || !arguments.Read32(seed) || length > kMostTestBytes) {
    return Status(xid, AcceptStatus::kGarbageArguments);
  }
  RpcReply reply = WithData(xid, length, placeable);
  FillPattern(std::span(reply.message).subspan(kRpcReplyBytes + 4, length), seed);
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
  RpcReply reply = WithData(xid, data.size(), true);
  std::copy(data.begin(), data.end(),
            reply.message.begin() + static_cast<ptrdiff_t>(reply.bulk_offset));
  return reply;
}

}  // namespace

void FillPattern(std::span<std::byte> bytes, uint32_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = PatternByte(seed, i);
}

bool HasPattern(std::span<const std::byte> bytes, uint32_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != PatternByte(seed, i)) return false;
  }
  return true;
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
  }
  return Status(header.xid, AcceptStatus::kProcedureUnavailable);
}

}  // namespace rpcrdma
