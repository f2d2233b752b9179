#include "tests/integration/hostile/cm_speaker.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>

namespace roci::testing::hostile {

// An IPv4 address in the larger structure.
sockaddr_in6 CmAddress(uint8_t host, uint16_t port) {
  sockaddr_in6 out{};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = host == 0 ? 0 : htonl(0x0A630000u + host);
  std::memcpy(&out, &address, sizeof(address));
  return out;
}

CmSpeaker::CmSpeaker(bool opens) : fd_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  const std::string path =
      abi::RuntimeDir(nullptr, abi::RuntimeDirUse::kConnect) + "/" + ROCI_ABI_CM_SOCKET_NAME;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
  EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  if (!opens) return;
  roci_abi_cm_open_request request{};
  request.head = {ROCI_ABI_CM_OPEN, sizeof(request), 1, 0};
  request.magic = ROCI_ABI_MAGIC;
  request.major = ROCI_ABI_MAJOR;
  SendBytes(std::as_bytes(std::span(&request, 1)));
  if (Receive() != 0) return;
  roci_abi_cm_open_response response;
  std::memcpy(&response, &answer, sizeof(response));
  number_ = response.channel;
}

CmSpeaker::~CmSpeaker() {
  close(fd_);
  if (signal_ >= 0) close(signal_);
}

bool CmSpeaker::SendBytes(std::span<const std::byte> bytes) {
  return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

int CmSpeaker::Receive(int timeout_ms) {
  pollfd wait{fd_, POLLIN, 0};
  if (poll(&wait, 1, timeout_ms) <= 0) return -1;
  answer = {};
  iovec part{&answer, sizeof(answer)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
  if (size <= 0) return -2;
  EXPECT_GE(size, static_cast<ssize_t>(sizeof(roci_abi_response)));
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
    std::memcpy(&signal_, CMSG_DATA(header), sizeof(signal_));
  }
  EXPECT_GE(answer.head.error, 0);
  return answer.head.error;
}

int CmSpeaker::Ask(const roci_abi_cm_request& request, int timeout_ms) {
  return SendBytes(std::as_bytes(std::span(&request, 1))) ? Receive(timeout_ms) : -2;
}

uint32_t CmSpeaker::Create(uint16_t space) {
  rdma_ucm_create_id command{};
  command.uid = 1;
  command.ps = space;
  command.qp_type = IBV_QPT_RC;
  if (Call(RDMA_USER_CM_CMD_CREATE_ID, command) != 0) return 0;
  uint32_t id = 0;
  std::memcpy(&id, answer.data, sizeof(id));
  return id;
}

int CmSpeaker::Bind(uint32_t id, uint16_t port) {
  rdma_ucm_bind_ip command{};
  command.addr = CmAddress(0, port);
  command.id = id;
  return Call(RDMA_USER_CM_CMD_BIND_IP, command);
}

int CmSpeaker::Listen(uint32_t id, uint32_t backlog) {
  return Call(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, backlog});
}

int CmSpeaker::Resolve(uint32_t id, uint8_t host, uint16_t port) {
  rdma_ucm_resolve_ip command{};
  command.dst_addr = CmAddress(host, port);
  command.id = id;
  command.timeout_ms = 2000;
  const int error = Call(RDMA_USER_CM_CMD_RESOLVE_IP, command);
  if (error == 0) TakeEvent();
  return error;
}

int CmSpeaker::ResolveRoute(uint32_t id) {
  const int error = Call(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000});
  if (error == 0) TakeEvent();
  return error;
}

int CmSpeaker::Connect(uint32_t id, uint8_t private_bytes) {
  rdma_ucm_connect command{};
  command.id = id;
  command.conn_param.valid = 1;
  command.conn_param.qp_num = 0x1234;
  command.conn_param.private_data_len = private_bytes;
  return Call(RDMA_USER_CM_CMD_CONNECT, command);
}

bool CmSpeaker::TakeEvent(rdma_ucm_event_resp* out) {
  if (Call(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}) != 0) return false;
  if (out != nullptr) std::memcpy(out, answer.data, sizeof(*out));
  return true;
}

int CmSpeaker::Destroy(uint32_t id) {
  rdma_ucm_destroy_id command{};
  command.id = id;
  return Call(RDMA_USER_CM_CMD_DESTROY_ID, command);
}

}  // namespace roci::testing::hostile
