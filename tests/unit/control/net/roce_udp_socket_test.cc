// The socket on UDP port 4791, with IPv6 and without (a seccomp filter in a child process refuses
// IPv6 sockets, as a kernel with ipv6.disable=1 does).
#include "control/net/roce_udp_socket.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace roci::control {
namespace {

constexpr int kNoFilter = 77;

bool RefuseIpv6() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{sizeof(code) / sizeof(code[0]), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// The family of the socket; 0: it is not bound to the port.
int FamilyOfSocket() {
  const absl::StatusOr<UniqueFd> socket = OpenRoceUdpSocket();
  if (!socket.ok()) {
    std::fprintf(stderr, "%s\n", std::string(socket.status().message()).c_str());
    return 0;
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (getsockname(socket->get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) return 0;
  // The port is at the same offset in both kinds of address.
  const auto* address = reinterpret_cast<const sockaddr_in*>(&bound);
  return address->sin_port == htons(4791) ? bound.ss_family : 0;
}

void ExitWithFamilyWithoutIpv6() {
  if (!RefuseIpv6()) std::_Exit(kNoFilter);
  std::_Exit(FamilyOfSocket());
}

bool EndedAsHoped(int status) {
  return WIFEXITED(status) && (WEXITSTATUS(status) == AF_INET || WEXITSTATUS(status) == kNoFilter);
}

TEST(RoceUdpSocketTest, HoldsIpv4AloneWhereThereIsNoIpv6) {
  GTEST_FLAG_SET(death_test_style, "fast");
  EXPECT_EXIT(ExitWithFamilyWithoutIpv6(), EndedAsHoped, "");
}

TEST(RoceUdpSocketTest, HoldsBothFamilies) {
  const int probe = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) GTEST_SKIP() << "no IPv6 here";
  close(probe);
  EXPECT_EQ(FamilyOfSocket(), AF_INET6);
}

}  // namespace
}  // namespace roci::control
