// A program that confines itself before it opens the devices, and then uses them: messages between
// roci0 and roci1 from and to private memory. confined_test.py starts it.
//
// Usage: confined_program HOW [ARGUMENT]
//   plain          no further confinement
//   setuid         changes the user without exec
//   chroot DIR     after it has got the list of devices
//   open-chroot DIR  after it has opened the devices
//   filter         with a system call filter like the default of container engines
//   raw            also tries a raw packet queue pair, and prints whether it got one
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

constexpr uid_t kOther = 65534;
constexpr size_t kLength = 256 * 1024;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::exit(2);
}

// The system calls that Docker's default profile refuses to a container without capabilities, as
// far as this architecture has them.
constexpr int kRefused[] = {
    SYS_acct,
    SYS_add_key,
    SYS_bpf,
    SYS_clock_settime,
    SYS_delete_module,
    SYS_fanotify_init,
    SYS_finit_module,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fsopen,
    SYS_fspick,
    SYS_get_mempolicy,
    SYS_init_module,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_io_uring_setup,
    SYS_kcmp,
    SYS_kexec_file_load,
    SYS_kexec_load,
    SYS_keyctl,
    SYS_lookup_dcookie,
    SYS_mbind,
    SYS_mount,
    SYS_mount_setattr,
    SYS_move_mount,
    SYS_move_pages,
    SYS_open_by_handle_at,
    SYS_open_tree,
    SYS_perf_event_open,
    SYS_personality,
    SYS_pidfd_getfd,
    SYS_pivot_root,
    SYS_process_madvise,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_ptrace,
    SYS_quotactl,
    SYS_reboot,
    SYS_request_key,
    SYS_set_mempolicy,
    SYS_setdomainname,
    SYS_sethostname,
    SYS_setns,
    SYS_settimeofday,
    SYS_swapoff,
    SYS_swapon,
    SYS_syslog,
    SYS_umount2,
    SYS_unshare,
    SYS_userfaultfd,
    SYS_vhangup,
};

void Filter() {
  std::vector<sock_filter> code = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  for (const int number : kRefused) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  }
  // glibc calls clone3 first.
  code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1));
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(code.size()), code.data()};
  Require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS");
  Require(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, "seccomp");
}

void Confine(const std::string& how, const char* argument) {
  if (how == "setuid") {
    Require(setgroups(0, nullptr) == 0 && setgid(kOther) == 0 && setuid(kOther) == 0, "setuid");
  } else if (how == "chroot" || how == "open-chroot") {
    Require(ibv_get_device_list(nullptr) != nullptr, "ibv_get_device_list");
    if (how == "open-chroot") {
      DeviceZero();
      DeviceOne();
    }
    Require(chroot(argument) == 0 && chdir("/") == 0, "chroot");
  } else if (how == "filter") {
    Filter();
  }
}

void TryRawPackets() {
  ibv_qp_init_attr attr = {};
  attr.qp_type = IBV_QPT_RAW_PACKET;
  attr.send_cq = attr.recv_cq = ibv_create_cq(DeviceZero().context, 1, nullptr, nullptr, 0);
  attr.cap = {1, 1, 1, 1, 0};
  ibv_qp* qp = ibv_create_qp(DeviceZero().pd, &attr);
  std::printf("raw packets: %s\n", qp != nullptr ? "granted" : std::strerror(errno));
}

TEST(Confined, MovesMessagesBetweenTheDevices) {
  Pair pair;
  Buffer near(pair.near_device, kLength, 1), far(pair.far_device, kLength, 2);
  const auto length = static_cast<uint32_t>(kLength / 2);
  ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, near.Sge(0, length), IBV_SEND_SIGNALED,
                               far.address(), far.rkey()),
            0);
  pair.near.ExpectSuccess();
  EXPECT_EQ(memcmp(near.data(), far.data(), length), 0);
  ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_READ, near.Sge(length, length), IBV_SEND_SIGNALED,
                               far.address() + length, far.rkey()),
            0);
  pair.near.ExpectSuccess();
  EXPECT_EQ(memcmp(near.data() + length, far.data() + length, length), 0);
}

}  // namespace
}  // namespace roci::testing

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string how = argc > 1 ? argv[1] : "plain";
  roci::testing::Confine(how, argc > 2 ? argv[2] : nullptr);
  const int failed = RUN_ALL_TESTS();
  if (how == "raw") roci::testing::TryRawPackets();
  return failed;
}
