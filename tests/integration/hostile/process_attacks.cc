// Programs that fork, exec, stop, change users and die at any time, with sessions and traffic.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/messages.h"

namespace roci::testing::hostile {
namespace {

// Runs traffic, calls and sessions until it is killed.
[[noreturn]] void Busy(uint64_t seed) {
  std::minstd_rand random(static_cast<uint32_t>(seed) | 1);
  while (true) {
    RigPair pair;
    for (int i = 0; i < 40; ++i) {
      pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE),
                     {pair.near.region.Sge(8 * kPage)});
      pair.far.Post(pair.far_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_READ),
                    {pair.far.region.Sge(8 * kPage)});
      while (pair.near.cq.Poll() || pair.far.cq.Poll()) {
      }
      switch (random() % 5) {
        case 0:
          pair.near.MakeRegion(kPage << random() % 6);
          break;
        case 1:
          pair.near.MakeQp({}, pair.near.MakeCq(16).handle);
          break;
        case 2:
          pair.far.MakeSrq(16);
          break;
        case 3:
          pair.Reconnect();
          break;
        default:
          pair.near.CreateChannel();
          break;
      }
    }
  }
}

pid_t Start(const std::function<void()>& run) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_DUMPABLE, 1);
  run();
  std::fflush(nullptr);
  _exit(0);
}

void End(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

// At random points; a thousand times in the long campaign.
auto Killed(int by_night, int by_day, int at_once) {
  return [=](Scene& scene) {
    const int rounds = (scene.is_long ? by_night : by_day) / at_once;
    for (int round = 0; round < rounds; ++round) {
      std::vector<pid_t> pids;
      for (int i = 0; i < at_once; ++i) {
        const uint64_t seed = scene.Random64();
        pids.push_back(Start([seed] { Busy(seed); }));
      }
      usleep(1000 + scene.Below(40'000));
      for (const pid_t pid : pids) End(pid);
    }
  };
}

void Stopped(Scene& scene) {
  while (scene.Goes()) {
    const uint64_t seed = scene.Random64();
    const pid_t pid = Start([seed] { Busy(seed); });
    usleep(5000 + scene.Below(20'000));
    kill(pid, SIGSTOP);
    usleep(scene.is_long ? 300'000 : 60'000);
    if (scene.Below(2) != 0) kill(pid, SIGCONT);
    usleep(5000);
    End(pid);
  }
}

// The session's process executes another program, with and without the sockets.
auto Executed(bool keeps_socket) {
  return [=](Scene& scene) {
    while (scene.Goes()) {
      const pid_t pid = Start([&] {
        RigPair pair;
        for (int i = 0; i < 8; ++i) {
          pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE),
                         {pair.near.region.Sge(8 * kPage)});
          pair.far.Post(pair.far_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_READ),
                        {pair.far.region.Sge(8 * kPage)});
        }
        for (const int fd : {pair.near.fd(), pair.far.fd()}) {
          fcntl(fd, F_SETFD, keeps_socket ? 0 : FD_CLOEXEC);
        }
        execl("/bin/sleep", "sleep", "0.03", static_cast<char*>(nullptr));
      });
      waitpid(pid, nullptr, 0);
    }
  };
}

// A child continues its parent's session; the parent ends or continues as well.
auto Forked(bool parent_stays) {
  return [=](Scene& scene) {
    while (scene.Goes()) {
      const pid_t pid = Start([&] {
        Speaker speaker;
        if (fork() != 0) {
          if (!parent_stays) _exit(0);
          usleep(5000);
        }
        for (int i = 0; i < 50; ++i) {
          speaker.rig.Ring(speaker.qp.info.handle);
          const std::vector<std::byte> message = speaker.Valid(MessageKinds()[i % 6]);
          if (!speaker.rig.SendBytes(message)) break;
          std::array<std::byte, 4096> answer;
          speaker.rig.ReceiveBytes(answer, 1);
          speaker.rig.CloseFds();
        }
      });
      waitpid(pid, nullptr, 0);
    }
  };
}

// Registered memory of an ended process whose session is held by a child.
void OrphanedMemory(Scene& scene) {
  while (scene.Goes()) {
    const pid_t pid = Start([] {
      auto* pair = new RigPair;
      if (fork() != 0) _exit(0);
      for (int i = 0; i < 16; ++i) {
        pair->near.Post(pair->near_qp, pair->ValidWqe(ROCI_ABI_WR_RDMA_WRITE),
                        {pair->near.region.Sge(8 * kPage)});
        usleep(200);
      }
    });
    waitpid(pid, nullptr, 0);
    usleep(2000);
  }
}

// One address space, several processes.
void SharedAddressSpace(Scene& scene) {
  static std::unique_ptr<RigPair> pair;
  alignas(16) static char stack[64 * 1024];
  while (scene.Goes()) {
    const int child = clone(
        [](void*) {
          pair = std::make_unique<RigPair>();
          for (int i = 0; i < 8; ++i) {
            pair->near.Post(pair->near_qp, pair->ValidWqe(ROCI_ABI_WR_RDMA_WRITE),
                            {pair->near.region.Sge(8 * kPage)});
          }
          return 0;
        },
        stack + sizeof(stack), CLONE_VM | CLONE_FILES | SIGCHLD, nullptr);
    ASSERT_GT(child, 0);
    waitpid(child, nullptr, 0);
    // The session's process has ended, its memory has not.
    roci_abi_query_device_response response;
    EXPECT_NE(pair->near.Call(ROCI_ABI_QUERY_DEVICE, roci_abi_query_device_request{}, response), 0);
    pair.reset();
  }
}

void NotDumpable(Scene&) {
  for (const int dumpable : {0, 1}) {
    const pid_t pid = Start([=] {
      prctl(PR_SET_DUMPABLE, dumpable);
      RawSession session;
      const int error = session.Hello();
      const bool is_as_wanted = dumpable != 0 ? error == 0 : error != 0;
      _exit(is_as_wanted ? 0 : 1);
    });
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0) << "dumpable " << dumpable;
  }
  Speaker speaker;
  prctl(PR_SET_DUMPABLE, 0);
  for (const MessageKind& kind : MessageKinds()) speaker.Ask(speaker.Valid(kind));
  prctl(PR_SET_DUMPABLE, 1);
}

void OtherNamespaces(Scene&) {
  const pid_t pid = Start([] {
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(0);
    const pid_t inner = fork();
    if (inner == 0) {
      RigPair pair;
      for (int i = 0; i < 8; ++i) {
        pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE),
                       {pair.near.region.Sge(8 * kPage)});
      }
      // Capabilities in the program's own user namespace do not count.
      auto request = RawSession::QpRequest(pair.near.pd, pair.near.cq.handle, IBV_QPT_RAW_PACKET);
      roci_abi_create_qp_response response;
      _exit(pair.near.CreateQp(request, response) == EPERM ? 0 : 5);
    }
    int status = 0;
    waitpid(inner, &status, 0);
    _exit(WEXITSTATUS(status) == 5 ? 5 : 0);
  });
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_NE(WEXITSTATUS(status), 5) << "a raw packet queue pair for a namespace's root";
}

// Few descriptors and little memory for the answers.
void NarrowLimits(Scene&) {
  const pid_t pid = Start([] {
    Speaker speaker;
    const rlimit few{8, 8};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int round = 0; round < 4; ++round) {
      for (const MessageKind& kind : MessageKinds()) {
        const std::vector<std::byte> message = speaker.Valid(kind);
        if (!speaker.rig.SendBytes(message)) _exit(0);
        std::array<std::byte, 4096> answer;
        speaker.rig.ReceiveBytes(answer, 100);
      }
    }
  });
  waitpid(pid, nullptr, 0);
}

}  // namespace

void AddProcessAttacks(Attacks& out) {
  const auto add = [&](const char* name, std::function<void(Scene&)> run, bool in_sample = false) {
    out.push_back({"Processes", name, std::move(run), in_sample});
  };
  add("KilledAlone", Killed(400, 10, 1), true);
  add("KilledTogether", Killed(600, 12, 3), true);
  add("Stopped", Stopped, true);
  add("ExecutedWithSocket", Executed(true), true);
  add("ExecutedWithoutSocket", Executed(false));
  add("ForkedAndGone", Forked(false), true);
  add("ForkedAndBoth", Forked(true));
  add("OrphanedMemory", OrphanedMemory);
  add("SharedAddressSpace", SharedAddressSpace, true);
  add("NotDumpable", NotDumpable);
  add("OtherNamespaces", OtherNamespaces);
  add("NarrowLimits", NarrowLimits, true);
}

}  // namespace roci::testing::hostile
