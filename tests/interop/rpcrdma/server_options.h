// Settings of a server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rpcrdma {

struct ServerOptions {
  std::string address = "0.0.0.0";  // numeric, IPv4 or IPv6; the wildcards mean all devices
  uint16_t port = 20049;            // that of NFS (RFC 8267, section 4.2); 0: any free one
  uint32_t credits = 64;            // calls of one connection at a time
  size_t inline_bytes = 4096;       // longest SEND in each direction, a multiple of 1 KiB
  size_t message_bytes = (1 << 20) + (16 << 10);  // longest call or reply
  size_t message_buffers = 32;  // for calls and replies moved by RDMA, of each device
  size_t max_connections = 64;
  uint32_t max_segments = 128;       // of one header
  uint32_t max_send_entries = 1024;  // of a connection's send queue; the device may have fewer
  uint32_t max_send_sges = 3;        // of a SEND: a reply in more parts is copied together
  uint32_t idle_limit_s = 900;       // a connection without a call for that long is closed
  uint32_t stall_limit_s = 120;      // so is one whose work requests do not complete for that long
  uint32_t spin_us = 0;              // poll that long before sleeping
};

}  // namespace rpcrdma
