#include "control/session/session_decoder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"
#include "control/loop/protocol_version.h"
#include "control/session/request_checks.h"
#include "control/session/session_commands.h"
#include "verbs_provider/abi/list_mr.h"
#include "verbs_provider/abi/tag_matching.h"

namespace roci::control {
namespace {

// Number of descriptors for access to the program's memory.
uint32_t MemoryFdsOf(uint64_t features) {
  constexpr uint64_t kEither = ROCI_ABI_FEATURE_APP_MEMORY | ROCI_ABI_FEATURE_MEMORY_PROOF;
  return (features & kEither) != 0 ? 1 : 0;
}

absl::Status CheckHello(const void* request, uint32_t fd_count, const DeviceLimits&) {
  const auto& hello = *static_cast<const roci_abi_hello_request*>(request);
  if (hello.magic != ROCI_ABI_MAGIC) return StatusFromErrno(EPROTO, "wrong magic number");
  if (absl::Status version = CheckProtocolVersion(hello.major); !version.ok()) return version;
  if (std::memchr(hello.device, 0, sizeof(hello.device)) == nullptr) {
    return Invalid("the device name is not terminated");
  }
  return fd_count == MemoryFdsOf(hello.features) ? absl::OkStatus()
                                                 : Invalid("wrong number of descriptors");
}

absl::Status CheckAttach(const void* request, uint32_t fd_count, const DeviceLimits&) {
  const auto& attach = *static_cast<const roci_abi_attach_request*>(request);
  if (attach.magic != ROCI_ABI_MAGIC) return Invalid("wrong magic number");
  if (absl::Status version = CheckProtocolVersion(attach.major); !version.ok()) return version;
  return fd_count == 1 + MemoryFdsOf(attach.features) ? absl::OkStatus()
                                                      : Invalid("wrong number of descriptors");
}

// The version in a HELLO or ATTACH of another size, which is another version's.
absl::Status CheckVersionOf(std::span<const std::byte> message, uint32_t command) {
  static_assert(offsetof(roci_abi_hello_request, major) ==
                offsetof(roci_abi_attach_request, major));
  roci_abi_hello_request hello = {};
  const size_t size = std::min(message.size(), offsetof(roci_abi_hello_request, features));
  std::memcpy(&hello, message.data(), size);
  const bool opens = command == ROCI_ABI_HELLO || command == ROCI_ABI_ATTACH;
  return opens && hello.magic == ROCI_ABI_MAGIC ? CheckProtocolVersion(hello.major)
                                                : absl::OkStatus();
}

bool HasWindows(const DeviceLimits& limits) { return limits.HasWindows(); }
bool HasDeviceMemory(const DeviceLimits& limits) { return limits.max_dm_bytes > 0; }
bool HasMulticast(const DeviceLimits& limits) { return limits.max_multicast_groups > 0; }
bool HasSrqs(const DeviceLimits& limits) { return limits.max_srq > 0; }
bool HasXrc(const DeviceLimits& limits) { return limits.HasCapabilities(kCapXrc); }
template <Feature kFeature>
bool Has(const DeviceLimits& limits) {
  return limits.Has(kFeature);
}
constexpr auto HasCounters = Has<Feature::kCreateCounters>;
constexpr auto HasDmaBuffers = Has<Feature::kRegDmabufMr>;
constexpr auto HasFlows = Has<Feature::kFlows>;
constexpr auto HasModeration = Has<Feature::kCqModeration>;
constexpr auto HasNullMr = Has<Feature::kAllocNullMr>;
constexpr auto HasRereg = Has<Feature::kReregMr>;
constexpr auto HasResizeCq = Has<Feature::kResizeCq>;
constexpr auto HasRss = Has<Feature::kRss>;
constexpr auto HasTagMatching = Has<Feature::kTagMatching>;

template <class RequestType, class ResponseType>
constexpr SessionCommandInfo Command(const char* name, bool takes_fds, RequestCheck* check,
                                     bool (*is_offered)(const DeviceLimits&)) {
  static_assert(offsetof(RequestType, head) == 0 && offsetof(ResponseType, head) == 0);
  static_assert(sizeof(RequestType) <= kMaxRequestBytes);
  return {name, sizeof(RequestType), sizeof(ResponseType), check, is_offered, takes_fds};
}

constexpr size_t kCommandRows = [] {
  size_t rows = 0;
#define ROCI_ROW(...) ++rows;
  ROCI_SESSION_COMMANDS(ROCI_ROW)
#undef ROCI_ROW
  return rows;
}();

// Indexed by roci_abi_command. Unassigned numbers have no name.
constexpr std::array<SessionCommandInfo, ROCI_ABI_COMMAND_COUNT> kCommands = [] {
  std::array<SessionCommandInfo, ROCI_ABI_COMMAND_COUNT> table{};
#define ROCI_ROW(name, request, response, takes_fds, check, offered, handler)                     \
  table[ROCI_ABI_##name] = Command<roci_abi_##request##_request, roci_abi_##response##_response>( \
      #name, takes_fds, check, offered);
  ROCI_SESSION_COMMANDS(ROCI_ROW)
#undef ROCI_ROW
  return table;
}();
static_assert(kCommandRows == ROCI_ABI_COMMAND_COUNT - 1);
static_assert(std::ranges::count(kCommands, nullptr, &SessionCommandInfo::name) == 1,
              "0 is no command");

}  // namespace

const SessionCommandInfo* FindCommand(uint32_t command) {
  return command >= 1 && command < ROCI_ABI_COMMAND_COUNT ? &kCommands[command] : nullptr;
}

absl::Status DecodeRequest(std::span<const std::byte> message, uint32_t fd_count,
                           const DeviceLimits& limits, Request& out) {
  out.info = nullptr;
  out.head = {};
  if (message.size() < sizeof(out.head)) return Invalid("the message is shorter than a head");
  std::memcpy(&out.head, message.data(), sizeof(out.head));
  const SessionCommandInfo* info = FindCommand(out.head.command);
  if (info == nullptr) return absl::UnimplementedError("unknown command");
  out.info = info;
  if (message.size() != info->request_size || out.head.size != info->request_size) {
    if (absl::Status version = CheckVersionOf(message, out.head.command); !version.ok()) {
      return version;
    }
    return Invalid("wrong size of the message");
  }
  if (fd_count > kMaxRequestFds || (fd_count > 0 && !info->takes_fds)) {
    return Invalid("wrong number of descriptors");
  }
  std::memcpy(out.bytes.data(), message.data(), message.size());
  if (info->is_offered != nullptr && !info->is_offered(limits)) {
    return absl::UnimplementedError(absl::StrCat("the device does not support ", info->name));
  }
  return info->check != nullptr ? info->check(out.bytes.data(), fd_count, limits)
                                : absl::OkStatus();
}

}  // namespace roci::control
