// Attacks of an ordinary user on root's daemon, while a program of root verifies its own traffic.
// After each attack: no wrong byte and no stall in that program, the daemon is alive, and its use
// of resources is as before.
//
// Usage: hostile_campaign [--all] [--seed N] [gtest options]; without --all a sample in short form.
// One process attacks at a time; its child processes end with it.
#include "tests/integration/hostile/campaign.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>

#include "tests/integration/hostile/cm_speaker.h"
#include "tests/integration/hostile/daemon_resources.h"
#include "tests/integration/hostile/rig.h"

namespace roci::testing::hostile {
namespace {

constexpr uid_t kNobody = 65534;
constexpr int kLacking = 77;  // exit status
constexpr uint64_t kLongestStallNs = 2'000'000'000;
constexpr uint64_t kAttackLimit_s = 60;
constexpr uint64_t kTeardownLimit_s = 20;

uint64_t Patience() {
  const char* patience = std::getenv("ROCI_TEST_PATIENCE");
  return patience != nullptr ? std::strtoull(patience, nullptr, 10) : 1;
}

// Only root can access the test's folders.
void OpenRuntimeDir() {
  const std::filesystem::path run(abi::RuntimeDir(nullptr, abi::RuntimeDirUse::kConnect));
  chmod(run.c_str(), 0711);
  chmod(run.parent_path().c_str(), 0711);
}

// Kills and reaps processes that attackers left behind.
void EndGroup(pid_t group) {
  kill(-group, SIGKILL);
  while (waitpid(-group, nullptr, 0) > 0) {
  }
}

void BecomeOrdinaryUser() {
  setpgid(0, 0);
  const rlimit descriptors{65536, 65536};
  setrlimit(RLIMIT_NOFILE, &descriptors);
  if (setgroups(0, nullptr) != 0 || setresgid(kNobody, kNobody, kNobody) != 0 ||
      setresuid(kNobody, kNobody, kNobody) != 0) {
    std::abort();
  }
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_DUMPABLE, 1);  // like a program started by the user
}

void WarmUp(Scene&) {
  RigPair pair;
  const CmSpeaker speaker;
  char path[] = "/tmp/warm.XXXXXX";
  for (const int fd : {memfd_create("warm", MFD_CLOEXEC), mkostemp(path, O_CLOEXEC)}) {
    Region region;
    EXPECT_EQ(ftruncate(fd, kPage), 0);
    EXPECT_EQ(pair.near.Register(pair.near.region.data, kPage, region, kAllAccess, fd), 0);
  }
  unlink(path);
}

class Campaign {
 public:
  Campaign(bool is_long, uint64_t seed)
      : is_long_(is_long),
        seed_(seed),
        page_(new (mmap(nullptr, sizeof(VictimPage), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0)) VictimPage{}) {}

  // Once. What the daemon opens for the first ordinary user, for the first file that may shrink,
  // and for the first file of a mounted file system, stays open.
  void Begin() {
    StartVictim();
    ASSERT_EQ(Attempt({"", "", WarmUp}), 0);
    TakeBaseline();
  }

  void Run(const Attack& attack) {
    if (victim_ == nullptr) Begin();
    if (::testing::Test::HasFatalFailure()) return;
    page_->longest_step_ns = 0;
    const int status = Attempt(attack);
    const bool lacks = WIFEXITED(status) && WEXITSTATUS(status) == kLacking;
    if (!lacks && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
      ADD_FAILURE() << "the attacker ended with " << std::hex << "0x" << status;
    }
    ExpectUnharmed();
    if (lacks) GTEST_SKIP() << "not available here";
  }

 private:
  int Attempt(const Attack& attack) {
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      BecomeOrdinaryUser();
      Scene scene(*page_, seed_, is_long_);
      attack.run(scene);
      std::fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    setpgid(pid, pid);
    int status = 0;
    const auto end = Clock::now() + std::chrono::seconds(kAttackLimit_s * Patience());
    while (waitpid(pid, &status, WNOHANG) == 0) {
      if (Clock::now() > end) {
        ADD_FAILURE() << "the attack does not end";
        EndGroup(pid);
        return 0;
      }
      usleep(1000);
    }
    EndGroup(pid);
    return status;
  }

  void ExpectUnharmed() {
    ASSERT_TRUE(DaemonIsAlive()) << "the daemon has ended";
    const bool goes_on = victim_->AwaitRounds(kRoundsBetweenCalls, 30'000 * Patience());
    std::printf("the victim waited at most %llu us\n",
                static_cast<unsigned long long>(page_->longest_step_ns / 1000));
    EXPECT_EQ(page_->has_failed, 0u) << "at the victim: " << page_->failure;
    EXPECT_TRUE(goes_on) << "the victim makes no progress";
    EXPECT_LT(page_->longest_step_ns, kLongestStallNs * Patience()) << "ns; the victim has waited";
    if (page_->has_failed != 0 || !victim_->is_alive()) return Renew();
    ExpectGivenBack();
  }

  void ExpectGivenBack() {
    if (!victim_->Pause(10'000 * Patience())) return;
    std::string excess;
    const auto end = Clock::now() + std::chrono::seconds(kTeardownLimit_s * Patience());
    do {
      excess = Excess(baseline_, ReadDaemonResources());
      if (excess.empty()) break;
      usleep(20'000);
    } while (Clock::now() < end && DaemonIsAlive());
    victim_->Resume();
    EXPECT_EQ(excess, "") << "the daemon holds more than before";
    if (!excess.empty()) TakeBaseline();
    baseline_.log_bytes = ReadDaemonResources().log_bytes;
  }

  void TakeBaseline() {
    ASSERT_TRUE(victim_->Pause(10'000 * Patience()));
    usleep(200'000);
    baseline_ = ReadDaemonResources();
    victim_->Resume();
  }

  void StartVictim() {
    victim_ = std::make_unique<Victim>(*page_);
    ASSERT_TRUE(victim_->AwaitRounds(2 * kRoundsBetweenCalls, 60'000)) << page_->failure;
  }

  // A new victim for the next attacks.
  void Renew() {
    victim_.reset();
    new (page_) VictimPage{};
    usleep(500'000);
    StartVictim();
    TakeBaseline();
  }

  const bool is_long_;
  const uint64_t seed_;
  VictimPage* const page_;
  std::unique_ptr<Victim> victim_;
  DaemonResources baseline_;
};

class AttackCase : public ::testing::Test {
 public:
  AttackCase(Campaign& campaign, const Attack& attack) : campaign_(campaign), attack_(attack) {}
  void TestBody() override {
    if (geteuid() != 0) GTEST_SKIP() << "cannot become another user";
    campaign_.Run(attack_);
  }

 private:
  Campaign& campaign_;
  const Attack& attack_;
};

Attacks AllAttacks() {
  Attacks out;
  for (const auto add : {AddSendQueueAttacks, AddReceiveQueueAttacks, AddCompletionQueueAttacks,
                         AddDoorbellAttacks, AddEventAttacks, AddMessageAttacks, AddNumberAttacks,
                         AddHandleAttacks, AddDescriptorAttacks, AddQuotaAttacks, AddMemoryAttacks,
                         AddProcessAttacks, AddConnectionManagerAttacks, AddNetworkAttacks}) {
    add(out);
  }
  return out;
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  bool is_long = false;
  uint64_t seed = std::random_device{}();
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--all") == 0) is_long = true;
    if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      seed = std::strtoull(argv[i + 1], nullptr, 0);
    }
  }
  std::printf("seed %llu (--seed repeats it)\n", static_cast<unsigned long long>(seed));
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  OpenRuntimeDir();
  const Attacks attacks = AllAttacks();
  Campaign campaign(is_long, seed);
  for (const Attack& attack : attacks) {
    if (!is_long && !attack.in_sample) continue;
    ::testing::RegisterTest(attack.topic.c_str(), attack.name.c_str(), nullptr, nullptr, __FILE__,
                            __LINE__,
                            [&]() -> ::testing::Test* { return new AttackCase(campaign, attack); });
  }
  return RUN_ALL_TESTS();
}

}  // namespace

void Lacks(const std::string& what) {
  std::printf("lacking: %s\n", what.c_str());
  std::fflush(nullptr);
  _exit(kLacking);
}

}  // namespace roci::testing::hostile

int main(int argc, char** argv) { return roci::testing::hostile::Main(argc, argv); }
