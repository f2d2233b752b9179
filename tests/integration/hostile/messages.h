// Every message of the session protocol with valid fields, for attackers to modify.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/integration/hostile/rig.h"

namespace roci::testing::hostile {

struct MessageKind {
  const char* name;
  uint32_t command;
  size_t size;
};
// All commands but HELLO and ATTACH, which come first and once.
std::span<const MessageKind> MessageKinds();

// A session with an object of each kind, and messages that name them.
class Speaker {
 public:
  Speaker();
  // Valid, except that it may name objects that the command destroys.
  std::vector<std::byte> Valid(const MessageKind& kind);
  // Returns the error of the answer; -1: none within `timeout_ms`, -2: the daemon has closed the
  // connection. Checks the form of the answer. The caller chooses serial numbers.
  int Ask(std::span<const std::byte> message, const std::vector<int>& fds = {},
          int timeout_ms = 2000);

  Rig rig;
  MappedQp qp;
  MappedSrq srq;
  uint32_t xrcd = 0;
  uint32_t dm = 0;
  uint32_t ah = 0;
  uint32_t window = 0;
  uint32_t channel = 0;
  roci_abi_alloc_list_mr_response list = {};
};

}  // namespace roci::testing::hostile
