// A session without the plugin, for messages that the plugin would never send.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tests/send_fds.h"
#include "verbs_provider/abi/runtime_dir.h"
#include "verbs_provider/abi/session.h"

namespace roci::testing {

class RawSession {
 public:
  // `socket_name`: another socket of the daemon with the same message heads.
  explicit RawSession(const char* socket_name = abi::kSocketName, int type = SOCK_SEQPACKET) {
    const std::string path =
        abi::RuntimeDir(nullptr, abi::RuntimeDirUse::kConnect) + "/" + socket_name;
    fd_ = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      std::perror(path.c_str());
      std::abort();
    }
  }
  ~RawSession() {
    Close();
    CloseFds();
  }
  RawSession(const RawSession&) = delete;
  RawSession& operator=(const RawSession&) = delete;

  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int fd() const { return fd_; }

  // Sends bytes as they are, with descriptors.
  bool SendBytes(std::span<const std::byte> bytes, const std::vector<int>& fds = {}) {
    return SendFds(fd_, bytes, fds) == static_cast<ssize_t>(bytes.size());
  }
  // Bytes received (-1: none within `timeout_ms`; 0: the daemon has closed). Descriptors are kept
  // until CloseFds.
  ssize_t ReceiveBytes(std::span<std::byte> bytes, int timeout_ms = 60'000) {
    pollfd wait{fd_, POLLIN, 0};
    if (poll(&wait, 1, timeout_ms) <= 0) return -1;
    iovec part{bytes.data(), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 64)];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t size = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
    if (size < 0) return 0;  // reset
    for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr;
         part_of = CMSG_NXTHDR(&message, part_of)) {
      const size_t count = (part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(part_of) + i * sizeof(int), sizeof(int));
        fds_.push_back(fd);
      }
    }
    return size;
  }
  void CloseFds() {
    for (const int fd : fds_) close(fd);
    fds_.clear();
  }
  const std::vector<int>& fds() const { return fds_; }

  template <class Request>
  bool Send(uint32_t command, Request request, const std::vector<int>& fds = {}) {
    request.head.command = command;
    request.head.size = sizeof(Request);
    request.head.serial = ++serial_;
    return SendBytes(std::as_bytes(std::span(&request, 1)), fds);
  }
  template <class Response>
  int Receive(Response& response, int timeout_ms = 10'000) {
    const ssize_t size = ReceiveBytes(std::as_writable_bytes(std::span(&response, 1)), timeout_ms);
    if (size < 0) return -ETIME;
    if (size == 0) return -EPIPE;
    EXPECT_EQ(size, static_cast<ssize_t>(sizeof(Response)));
    EXPECT_EQ(response.head.serial, serial_);
    EXPECT_EQ(response.head.error == 0 ? response.head.fd_count : 0, fds_.size());
    return response.head.error;
  }
  // The answer's errno; negative: no answer.
  template <class Request, class Response>
  int Call(uint32_t command, const Request& request, Response& response,
           const std::vector<int>& fds = {}) {
    CloseFds();
    response = {};
    if (!Send(command, request, fds)) return -EPIPE;
    return Receive(response);
  }

  // `memory`: a descriptor that is passed as the program's memory.
  // `features`: ROCI_ABI_FEATURE_*, in addition to what `memory` stands for.
  int Hello(const char* device = "roci0", int memory = -1, uint64_t features = 0) {
    roci_abi_hello_request request{};
    request.features = features;
    if (memory >= 0) request.features |= ROCI_ABI_FEATURE_APP_MEMORY;
    request.magic = ROCI_ABI_MAGIC;
    request.major = ROCI_ABI_MAJOR;
    std::snprintf(request.device, sizeof(request.device), "%s", device);
    roci_abi_hello_response response;
    return memory >= 0 ? Call(ROCI_ABI_HELLO, request, response, {memory})
                       : Call(ROCI_ABI_HELLO, request, response);
  }
  int OnHandle(uint32_t command, uint32_t handle) {
    roci_abi_handle_request request{};
    request.handle = handle;
    const bool counts = command == ROCI_ABI_DESTROY_CQ || command == ROCI_ABI_DESTROY_QP;
    roci_abi_plain_response plain;
    roci_abi_destroy_response destroyed;
    return counts ? Call(command, request, destroyed) : Call(command, request, plain);
  }
  // Handles are 0 on failure, with the errno in `error`.
  uint32_t AllocPd() { return Make(ROCI_ABI_ALLOC_PD, roci_abi_plain_request{}); }
  uint32_t CreateChannel() { return Make(ROCI_ABI_CREATE_COMP_CHANNEL, roci_abi_plain_request{}); }
  uint32_t CreateCq(uint32_t entries, uint32_t channel = ~0u) {
    roci_abi_create_cq_request request{};
    request.entries = entries;
    request.channel = channel;
    request.user_handle = 0x1000 + entries;
    roci_abi_create_cq_response response;
    error = Call(ROCI_ABI_CREATE_CQ, request, response);
    return error == 0 ? response.handle : 0;
  }
  static roci_abi_create_qp_request QpRequest(uint32_t pd, uint32_t cq, uint32_t type = 2) {
    roci_abi_create_qp_request request{};
    request.pd = pd;
    request.send_cq = cq;
    request.recv_cq = cq;
    request.srq = ~0u;
    request.qp_type = type;
    request.max_send_wr = 4;
    request.max_recv_wr = 4;
    request.max_send_sge = 1;
    request.max_recv_sge = 1;
    return request;
  }
  // QP handles begin at 0.
  int CreateQp(const roci_abi_create_qp_request& request, roci_abi_create_qp_response& response) {
    return Call(ROCI_ABI_CREATE_QP, request, response);
  }
  int Modify(uint32_t handle, uint32_t mask, const roci_abi_qp_attr& attr) {
    roci_abi_modify_qp_request request{};
    request.handle = handle;
    request.mask = mask;
    request.attr = attr;
    roci_abi_modify_qp_response response;
    return Call(ROCI_ABI_MODIFY_QP, request, response);
  }

  int error = 0;

 private:
  template <class Request>
  uint32_t Make(uint32_t command, const Request& request) {
    roci_abi_handle_response response;
    error = Call(command, request, response);
    return error == 0 ? response.handle : 0;
  }

  int fd_ = -1;
  uint32_t serial_ = 0;
  std::vector<int> fds_;
};

}  // namespace roci::testing
