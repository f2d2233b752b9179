// An event channel of the connection manager, used without librdmacm.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "tests/integration/hostile/rig.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::testing::hostile {

class CmSpeaker {
 public:
  // Connects, and opens the channel unless told not to.
  explicit CmSpeaker(bool opens = true);
  ~CmSpeaker();
  CmSpeaker(const CmSpeaker&) = delete;
  CmSpeaker& operator=(const CmSpeaker&) = delete;

  int fd() const { return fd_; }
  int signal() const { return signal_; }
  uint32_t number() const { return number_; }

  // Sends bytes as they are. False: the daemon has closed the connection.
  bool SendBytes(std::span<const std::byte> bytes);
  // The error of the answer; -1: none came in time, -2: the daemon has closed.
  int Receive(int timeout_ms = 2000);
  int Ask(const roci_abi_cm_request& request, int timeout_ms = 2000);
  template <class Command>
  static roci_abi_cm_request Make(uint32_t number, const Command& command) {
    roci_abi_cm_request request{};
    request.head = {ROCI_ABI_CM_COMMAND, sizeof(request), 1, 0};
    request.command = number;
    request.in_size = sizeof(command);
    request.out_size = ROCI_ABI_CM_ANSWERS_MAX;
    std::memcpy(request.data, &command, sizeof(command));
    return request;
  }
  template <class Command>
  int Call(uint32_t number, const Command& command) {
    return Ask(Make(number, command));
  }

  // 0: refused.
  uint32_t Create(uint16_t space = RDMA_PS_TCP);
  int Bind(uint32_t id, uint16_t port);
  int Listen(uint32_t id, uint32_t backlog = 0);
  // To 10.99.0.`host`.
  int Resolve(uint32_t id, uint8_t host, uint16_t port);
  int ResolveRoute(uint32_t id);
  int Connect(uint32_t id, uint8_t private_bytes = 0);
  // False: no event.
  bool TakeEvent(rdma_ucm_event_resp* out = nullptr);
  int Destroy(uint32_t id);

  roci_abi_cm_response answer = {};  // the last answer

 private:
  int fd_ = -1;
  int signal_ = -1;
  uint32_t number_ = 0;
};

sockaddr_in6 CmAddress(uint8_t host, uint16_t port);

}  // namespace roci::testing::hostile
