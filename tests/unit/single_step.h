// Checks what another thread could see of shared memory at any time: runs a function in a forked
// child, one machine instruction at a time, and reads the child's memory after each.
#pragma once

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace roci {

// Calls check(bytes) with the bytes of `watched` after every instruction of function() that changed
// them; check answers whether to go on. Returns how often it was called; 0 where processes may not
// be traced. What the function does to memory that is not shared is lost.
template <class Function, class Check>
uint32_t ForEachStep(std::span<const std::byte> watched, Function&& function, Check&& check) {
  constexpr uint32_t kMostSteps = 20'000'000;
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
    raise(SIGSTOP);
    function();
    _exit(0);
  }
  std::vector<std::byte> last(watched.begin(), watched.end());
  std::vector<std::byte> now(watched.size());
  const iovec local{now.data(), now.size()};
  const iovec remote{const_cast<std::byte*>(watched.data()), watched.size()};
  uint32_t looks = 0;
  int status = 0;
  for (uint32_t steps = 0; steps < kMostSteps; ++steps) {
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) break;
    if (process_vm_readv(child, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(now.size()) &&
        now != last) {
      ++looks;
      if (!check(std::span<const std::byte>(now))) break;
      last = now;
    }
    if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) break;
  }
  if (WIFSTOPPED(status)) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  return looks;
}

}  // namespace roci
