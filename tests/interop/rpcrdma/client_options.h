// Settings of a client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rpcrdma {

// How a chunk's memory is exposed to the server.
enum class Registration {
  kRegions,  // by the region of its buffer, for as long as the request exists
  kWindows,  // by a memory window of type 2B, for exactly this call and these bytes
};

struct ClientOptions {
  std::string address;  // of the server: numeric, IPv4 or IPv6
  uint16_t port = 20049;
  std::string source;                      // own address, empty: the routes choose
  uint32_t slots = 32;                     // requests at a time, and credits asked for
  size_t inline_bytes = 4096;              // longest SEND in each direction, a multiple of 1 KiB
  size_t segment_bytes = size_t{1} << 30;  // longest segment of a chunk
  Registration registration = Registration::kRegions;
  uint32_t call_limit_ms = 10'000;  // without a reply: connect again, send all calls again
  uint32_t connect_limit_ms = 10'000;
  uint32_t first_delay_ms = 100;  // before the second attempt to connect; doubles each time
  uint32_t most_delay_ms = 30'000;
};

}  // namespace rpcrdma
