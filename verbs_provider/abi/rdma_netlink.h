// RDMA netlink between programs and the daemon: the socket, its first message, and port IDs. The
// preloaded library (verbs_provider/netlink) opens the SOCK_SEQPACKET Unix socket where a program
// asks for a socket of NETLINK_RDMA. Each message after the greeting is a netlink datagram as in
// <rdma/rdma_netlink.h>, at most ROCI_ABI_NETLINK_DATAGRAM_MAX bytes, in both directions.
#pragma once

#include "verbs_provider/abi/session_head.h"

// The socket's name in the runtime directory.
#define ROCI_ABI_NETLINK_SOCKET_NAME "rdma_netlink.sock"
#define ROCI_ABI_NETLINK_VERSION 1 /* raised when the greeting or the port IDs change */
// As large as the buffers of libmnl and iproute2.
#define ROCI_ABI_NETLINK_DATAGRAM_MAX 4096

// The daemon's first message: the program may use the connection, or why it may not.
struct roci_abi_netlink_greeting {
  uint32_t magic;    // ROCI_ABI_MAGIC
  uint32_t version;  // ROCI_ABI_NETLINK_VERSION
  int32_t error;     // 0, or an errno of socket(2); the daemon then closes the connection
  uint32_t reserved;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_netlink_greeting) == 16);

// The netlink port ID of a connection (nl_pid). Both sides derive it from the abstract name that
// the kernel gave the program's socket (autobind, unix(7)): a zero and five hexadecimal digits.
// 0: it has no such name.
#define ROCI_ABI_NETLINK_NAME_SIZE 6 /* bytes in sun_path */
static inline uint32_t roci_abi_netlink_port(const char* sun_path, uint32_t size) {
  uint32_t port = 0x80000000u;
  if (size != ROCI_ABI_NETLINK_NAME_SIZE || sun_path[0] != 0) return 0;
  for (uint32_t i = 1; i < size; ++i) {
    const char c = sun_path[i];
    const uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                           : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                                                  : 16;
    if (digit == 16) return 0;
    port |= digit << (4 * (size - 1 - i));
  }
  return port;
}
