// The names of the management socket's protocol (manage_server.h), for the daemon and for `roci`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace roci::control {

// Of the socket, below the runtime directory.
inline constexpr char kManageSocketName[] = "manage.sock";

// The values of "command".
inline constexpr char kShowCommand[] = "show";
inline constexpr char kCaptureCommand[] = "capture";
inline constexpr char kTraceCommand[] = "trace";
inline constexpr char kImpairCommand[] = "impair";
inline constexpr char kFaultCommand[] = "fault";
inline constexpr char kLinkCommand[] = "link";
inline constexpr char kDeviceCommand[] = "device";
inline constexpr char kEventCommand[] = "event";
inline constexpr char kAddressCommand[] = "address";
inline constexpr char kRouteCommand[] = "route";
inline constexpr char kProbeCommand[] = "probe";

// The kinds of records of a trace, in the order of dataplane::TraceKind.
inline constexpr auto kTraceKindNames =
    std::to_array<std::string_view>({"post", "packet", "complete", "timer", "event", "state"});

// The kinds of items that kShowCommand describes, in the order of `roci show --help`. X(member,
// name): `name` is the value of "what".
#define ROCI_SHOW_KINDS(X)       \
  X(kDevices, "devices")         \
  X(kPorts, "ports")             \
  X(kCounters, "counters")       \
  X(kApps, "apps")               \
  X(kQps, "qps")                 \
  X(kCqs, "cqs")                 \
  X(kSrqs, "srqs")               \
  X(kMrs, "mrs")                 \
  X(kConnections, "connections") \
  X(kLcores, "lcores")           \
  X(kNeighbours, "neighbours")

enum class ShowKind : uint8_t {
#define ROCI_SHOW_KIND(member, name) member,
  ROCI_SHOW_KINDS(ROCI_SHOW_KIND)
#undef ROCI_SHOW_KIND
};
// Indexed by ShowKind.
inline constexpr auto kShowKindNames = std::to_array<std::string_view>({
#define ROCI_SHOW_KIND(member, name) name,
    ROCI_SHOW_KINDS(ROCI_SHOW_KIND)
#undef ROCI_SHOW_KIND
});

constexpr std::string_view NameOf(ShowKind kind) {
  return kShowKindNames[static_cast<size_t>(kind)];
}
constexpr std::optional<ShowKind> FindShowKind(std::string_view name) {
  for (size_t i = 0; i < kShowKindNames.size(); ++i) {
    if (kShowKindNames[i] == name) return static_cast<ShowKind>(i);
  }
  return std::nullopt;
}

}  // namespace roci::control
