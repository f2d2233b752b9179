// Fuzzes gate 3 for librdmacm's commands: the sizes and the bytes that a program writes to the
// character device. Input: four 32-bit numbers (command, size, size of the payload, room for the
// answer), then the bytes.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "control/cm/command_decoder.h"
#include "control/cm/socket_address.h"
#include "control/loop/errno_status.h"
#include "tests/fuzz/fuzz.h"

namespace roci::control::cm {
namespace {

// Each field is read separately, as the server does.
void CheckAddress(std::span<const std::byte> bytes) {
  const std::optional<SocketAddress> address = LoadSocketAddress(bytes);
  CHECK(!address || bytes.size() >= sizeof(sockaddr_in));
}

void CheckFields(const Command& command) {
  switch (command.number) {
    case RDMA_USER_CM_CMD_BIND: {
      const auto& in = command.As<rdma_ucm_bind>();
      const size_t size = std::min<size_t>(in.addr_size, sizeof(in.addr));
      return CheckAddress(std::as_bytes(std::span(&in.addr, 1)).first(size));
    }
    case RDMA_USER_CM_CMD_RESOLVE_ADDR: {
      const auto& in = command.As<rdma_ucm_resolve_addr>();
      const size_t size = std::min<size_t>(in.dst_size, sizeof(in.dst_addr));
      return CheckAddress(std::as_bytes(std::span(&in.dst_addr, 1)).first(size));
    }
    default:
      return;
  }
}

void CheckCommand(const roci_abi_cm_request& request, const Command& command) {
  CHECK(command.info != nullptr && command.info == FindCommand(request.command));
  CHECK(command.number == request.command);
  CHECK(request.in_size >= command.info->min_size);
  CHECK(request.out_size >= command.info->out_size);
  CHECK(command.extra.size() == request.extra_size);
  // Trailing data is behind the command in the copy.
  const std::byte* begin = command.bytes.data();
  CHECK(command.extra.data() == begin + command.info->in_size);
  CHECK(command.info->in_size + command.extra.size() <= command.bytes.size());
  CHECK(std::equal(command.extra.begin(), command.extra.end(),
                   reinterpret_cast<const std::byte*>(request.data) + request.in_size));
  const size_t given = std::min(request.in_size, command.info->in_size);
  CHECK(std::memcmp(begin, request.data, given) == 0);
  // Fields that an older form lacks are 0.
  CHECK(std::all_of(begin + given, begin + command.info->in_size,
                    [](std::byte b) { return b == std::byte{0}; }));
  CheckFields(command);
}

}  // namespace
}  // namespace roci::control::cm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace cm = roci::control::cm;
  roci_abi_cm_request request = {};
  uint32_t* const fields[] = {&request.command, &request.in_size, &request.extra_size,
                              &request.out_size};
  for (uint32_t* field : fields) {
    const size_t part = std::min(size, sizeof(*field));
    std::memcpy(field, data, part);
    data += part;
    size -= part;
  }
  std::memcpy(request.data, data, std::min(size, sizeof(request.data)));
  cm::Command command;
  const absl::Status status = cm::DecodeCommand(request, command);
  if (status.ok()) {
    cm::CheckCommand(request, command);
  } else {
    CHECK(roci::control::ErrnoOf(status) > 0);
  }
  return 0;
}
