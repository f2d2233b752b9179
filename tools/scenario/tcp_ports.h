// Free TCP ports for the programs of a scenario, also beside other scenarios that run now.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "control/loop/unique_fd.h"

namespace roci::tools {

// A port below those that the kernel chooses for connections, without a socket when it was chosen.
// It stays reserved among the scenarios of this network namespace until the object goes.
class TcpPort {
 public:
  static absl::StatusOr<TcpPort> Choose();
  uint16_t number() const { return number_; }

 private:
  uint16_t number_ = 0;
  control::UniqueFd reservation_;
};

// Whether the port has a listener. Does not connect: some programs accept one connection only.
bool IsListening(uint16_t port);

}  // namespace roci::tools
