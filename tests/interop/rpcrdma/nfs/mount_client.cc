// One MNT call (RFC 1813, appendix I).
#include "tests/interop/rpcrdma/nfs/mount_client.h"

#include <mount3.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "tests/interop/rpcrdma/nfs/call_head.h"
#include "tests/interop/rpcrdma/nfs/descriptor.h"
#include "tests/interop/rpcrdma/nfs/record_reader.h"
#include "tests/interop/rpcrdma/nfs/xdr_message.h"
#include "tests/interop/rpcrdma/rpc_message.h"
#include "tests/interop/rpcrdma/socket_address.h"

namespace rpcrdma {
namespace {

constexpr uint32_t kProgram = 100005, kVersion = 3, kMnt = 1, kXid = 1;
constexpr timeval kLimit = {60, 0};

[[noreturn]] void FailCall(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

Descriptor Connect(const std::string& address, uint16_t port) {
  SocketAddress server(address, port);
  Descriptor socket(::socket(server.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kLimit, sizeof kLimit) != 0 ||
      connect(socket.get(), server.get(), server.length()) != 0) {
    FailCall("MOUNT: TCP " + address + " port " + std::to_string(port));
  }
  return socket;
}

void SendAll(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) FailCall("MOUNT: send");
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

std::vector<std::byte> ReceiveRecord(int socket) {
  RecordReader reader;
  std::array<std::byte, 4096> buffer;
  for (;;) {
    const ssize_t got = recv(socket, buffer.data(), buffer.size(), 0);
    if (got < 0) FailCall("MOUNT: receive");
    if (got == 0) throw std::runtime_error("MOUNT: the server has closed the connection");
    std::span<const std::byte> input(buffer.data(), static_cast<size_t>(got));
    const RecordReader::Result result = reader.Read(&input);
    if (result == RecordReader::Result::kRecord) return reader.Take();
    if (result == RecordReader::Result::kMalformed)
      throw std::runtime_error("MOUNT: a malformed record");
  }
}

std::vector<std::byte> MntCall(const std::string& path) {
  Reply call;
  const std::vector<std::byte> head = RootCallHead(kXid, kProgram, kVersion, kMnt);
  std::copy(head.begin(), head.end(), call.Extend(head.size()));
  call.Put(xdr_MountPath,
           MountPath{static_cast<u_int>(path.size()), const_cast<char*>(path.data())});
  if (!call.complete()) throw std::invalid_argument("MOUNT: the path is too long");
  return call.Take().message;
}

}  // namespace

std::string MountByTcp(const std::string& address, uint16_t port, const std::string& path) {
  const std::vector<std::byte> call = MntCall(path);
  const Descriptor socket = Connect(address, port);
  SendAll(socket.get(), MarkOf(call.size()));
  SendAll(socket.get(), call);
  const std::vector<std::byte> record = ReceiveRecord(socket.get());
  XdrReader reader(record);
  uint32_t xid = 0;
  uint32_t status = 0;
  AcceptStatus accepted = AcceptStatus::kSystemError;
  if (!DecodeRpcReply(reader, xid, accepted) || xid != kXid || accepted != AcceptStatus::kSuccess ||
      !reader.Read32(status)) {
    throw std::runtime_error("MOUNT: a reply that does not decode");
  }
  if (status != 0) {
    throw std::runtime_error("MOUNT: " + path + ": the server answers status " +
                             std::to_string(status));
  }
  Arguments results(std::span<const std::byte>(record).subspan(reader.position()));
  const auto ok = results.Take(xdr_MountOk);
  if (!ok) throw std::runtime_error("MOUNT: a reply that does not decode");
  return {ok->handle.handle_val, ok->handle.handle_len};
}

}  // namespace rpcrdma
