// Answers ONC RPC calls, whatever the transport.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace rpcrdma {

struct RpcReply {
  std::vector<std::byte> message;  // the whole reply in XDR, from the XID on
  // The part that RFC 8166 allows to be placed directly (data of READ, path of READLINK):
  // [bulk_offset, bulk_offset + bulk_length) of `message`, without XDR padding.
  size_t bulk_offset = 0;
  size_t bulk_length = 0;
  bool drop = false;  // no reply is possible: close the connection
};

class RpcService {
 public:
  virtual ~RpcService() = default;
  // `call`: the whole call message in XDR, from the XID on; Read chunks are already put in at
  // their positions.
  virtual RpcReply Answer(std::span<const std::byte> call) = 0;
};

}  // namespace rpcrdma
