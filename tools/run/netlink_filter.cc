// A seccomp filter that refuses one netlink family.
#include "tools/run/netlink_filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace roci::tools {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "name the audit architecture"
#endif

constexpr sock_filter Load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}

// Skips `otherwise` instructions unless the loaded value is `value`.
constexpr sock_filter SkipUnless(uint32_t value, uint8_t otherwise) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, otherwise);
}

constexpr size_t Argument(size_t index) {
  // Loads the low half of the argument: domain and protocol are ints.
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  return offsetof(seccomp_data, args) + index * sizeof(uint64_t);
}

}  // namespace

bool HasNetlink(int family) {
  const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family);
  if (fd < 0) return false;
  ::close(fd);
  return true;
}

absl::Status RefuseNetlink(int family) {
  std::array<sock_filter, 10> code = {
      Load(offsetof(seccomp_data, arch)),
      SkipUnless(kArchitecture, 7),
      Load(offsetof(seccomp_data, nr)),
      SkipUnless(SYS_socket, 5),
      Load(Argument(0)),
      SkipUnless(AF_NETLINK, 3),
      Load(Argument(2)),
      SkipUnless(static_cast<uint32_t>(family), 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPROTONOSUPPORT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<uint16_t>(code.size()), code.data()};
  // The filter is no security boundary, so it does not need the speculation mitigations of seccomp.
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) !=
      0) {
    return absl::ErrnoToStatus(errno, "cannot hide the kernel's RDMA netlink");
  }
  return absl::OkStatus();
}

}  // namespace roci::tools
