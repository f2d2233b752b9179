#include "control/config/metrics_address.h"

#include <arpa/inet.h>

#include <array>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace roci::control {
namespace {

constexpr char kPublic[] = "public:";

enum class Reachable : uint8_t { kNoAddress, kHere, kElsewhere };

Reachable ReachOf(const std::string& host) {
  in_addr four;
  in6_addr six;
  constexpr uint32_t kLoopbackNet = 127;
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) {
    return ntohl(four.s_addr) >> 24 == kLoopbackNet ? Reachable::kHere : Reachable::kElsewhere;
  }
  if (inet_pton(AF_INET6, host.c_str(), &six) != 1) return Reachable::kNoAddress;
  return IN6_IS_ADDR_LOOPBACK(&six) ? Reachable::kHere : Reachable::kElsewhere;
}

// Splits "HOST:PORT" and "[HOST]:PORT"; "PORT" alone is one of 127.0.0.1.
bool Split(const std::string& text, MetricsAddress& out) {
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  const std::string number = colon == std::string::npos ? text : text.substr(colon + 1);
  const bool is_number = number.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number || !absl::SimpleAtoi(number, &port) || port == 0 || port > UINT16_MAX)
    return false;
  out.port = static_cast<uint16_t>(port);
  out.host = colon == std::string::npos ? "127.0.0.1" : text.substr(0, colon);
  const bool is_bracketed = absl::StartsWith(out.host, "[") && absl::EndsWith(out.host, "]");
  const bool is_six = absl::StrContains(out.host, ":");
  if (is_bracketed) out.host = out.host.substr(1, out.host.size() - 2);
  return is_bracketed || !is_six;
}

}  // namespace

std::string MetricsAddress::Text() const {
  return absl::StrContains(host, ":") ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

absl::StatusOr<MetricsAddress> ParseMetricsAddress(const std::string& text) {
  const bool is_public = absl::StartsWith(text, kPublic);
  const std::string rest = is_public ? text.substr(sizeof(kPublic) - 1) : text;
  MetricsAddress address;
  const bool is_whole = Split(rest, address);
  const Reachable reach = is_whole ? ReachOf(address.host) : Reachable::kNoAddress;
  if (reach == Reachable::kNoAddress) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" is not PORT, ADDRESS:PORT or public:ADDRESS:PORT, such as 9095, ",
        "[::1]:9095, public:192.0.2.1:9095"));
  }
  if (reach == Reachable::kElsewhere && !is_public) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" can be reached from other machines, which could then read all counters ",
        "and the names of programs; write public:", rest, " if they shall"));
  }
  return address;
}

}  // namespace roci::control
