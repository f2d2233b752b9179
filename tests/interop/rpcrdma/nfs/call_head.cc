// Encodes the head of calls.
#include "tests/interop/rpcrdma/nfs/call_head.h"

#include <onc_rpc.h>

#include "tests/interop/rpcrdma/nfs/xdr_message.h"

namespace rpcrdma {
namespace {

constexpr uint32_t kCall = 0, kRpcVersion = 2, kAuthSys = 1;

}  // namespace

std::vector<std::byte> RootCallHead(uint32_t xid, uint32_t program, uint32_t version,
                                    uint32_t procedure) {
  AuthSys root{};
  Reply head;
  head.Put(xdr_CallStart, CallStart{xid, kCall, kRpcVersion});
  head.Put(xdr_CallTarget, CallTarget{program, version, procedure});
  head.PutWord(kAuthSys);
  head.PutWord(static_cast<uint32_t>(xdr_sizeof(reinterpret_cast<xdrproc_t>(xdr_AuthSys), &root)));
  head.Put(xdr_AuthSys, root);
  head.Put(xdr_CallAuth, CallAuth{});
  return head.Take().message;
}

}  // namespace rpcrdma
