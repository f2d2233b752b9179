// Restrictions on programs of this user: namespaces, system call filters, and the kernel's own RDMA
// devices, which libibverbs prefers. As in machine.h, Try functions try and Judge functions are
// pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/finding.h"
#include "tools/doctor/machine.h"

namespace roci::tools {

// ---- The mount namespace of `roci run`

struct MountNamespaceFacts {
  std::string refusal;                // why there is none; empty: it works
  std::vector<std::string> settings;  // of the kernel that forbid user namespaces, "NAME = VALUE"
};
MountNamespaceFacts TryMountNamespace(const Roots& roots = {});
Finding JudgeMountNamespace(const MountNamespaceFacts& facts);

// ---- PID namespaces

enum class Visibility : uint8_t { kNoDaemon, kUnknown, kVisible, kHidden };
struct PidNamespaceFacts {
  Visibility to_daemon = Visibility::kNoDaemon;  // whether rocid sees processes of this namespace
  bool is_first = false;                         // this process is in the machine's first one
};
bool IsInFirstPidNamespace(const Roots& roots = {});
// By the line NSpid of rocid's /proc/PID/status, read here: a daemon in a namespace below this one
// does not see this process.
Visibility VisibilityByNumbers(const std::string& status);
Finding JudgePidNamespace(const PidNamespaceFacts& facts);

// ---- System call filters (seccomp)

struct SeccompFacts {
  bool is_filtered = false;
  std::vector<std::string> refused;  // system calls that rocid, plugin or `roci run` make
};
SeccompFacts TrySystemCalls(const Roots& roots = {});
Finding JudgeSeccomp(const SeccompFacts& facts);

// ---- RDMA in the kernel

struct KernelRdmaFacts {
  bool has_netlink = false;          // libibverbs lists devices by netlink, not by /sys
  std::string hide_refusal;          // why `roci run` cannot hide that; empty: it can
  std::vector<std::string> devices;  // of the kernel
  std::vector<std::string> ours;     // of rocid
};
KernelRdmaFacts TryKernelRdma(const std::string& sysfs, const Roots& roots = {});
Finding JudgeKernelRdma(const KernelRdmaFacts& facts);

}  // namespace roci::tools
