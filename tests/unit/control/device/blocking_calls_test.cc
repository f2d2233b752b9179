// Calls on helper threads: the thread they run on, which users they delay, and their cost in
// descriptors.
#include "control/device/blocking_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "control/device/account_lookup.h"

namespace roci::control {
namespace {

constexpr uid_t kAlice = 1001;
constexpr uid_t kBob = 1002;

// What calls wait for, until it is opened or goes.
class Gate {
 public:
  Gate() { state_->mutex.lock(); }
  ~Gate() { Open(); }
  void Open() {
    if (!std::exchange(is_open_, true)) state_->mutex.unlock();
  }
  std::function<void()> Call() const {
    return [state = state_] {
      ++state->begun;
      const std::shared_lock wait(state->mutex);
    };
  }

  // Calls that have begun.
  size_t begun() const { return state_->begun; }

 private:
  struct State {
    std::shared_mutex mutex;
    std::atomic<size_t> begun = 0;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  bool is_open_ = false;
};

class BlockingCallsTest : public testing::Test {
 protected:
  // The loop runs once in a test, until the last `action` is done. Each of them waits, after the
  // one before, for its `condition`.
  void When(
      std::function<bool()> condition, std::function<void()> action = [] {}) {
    steps_.push_back({std::move(condition), std::move(action)});
  }
  void WhenDone(
      size_t count, std::function<void()> action = [] {}) {
    When([this, count] { return done_ == count; }, std::move(action));
  }
  void Run() {
    constexpr roce::TimeNs kOften = 1'000'000;
    loop_->AddDeadline([this] { return next_; },
                       [this](roce::TimeNs now) {
                         next_ = now + kOften;
                         for (; !steps_.empty() && steps_.front().condition(); steps_.pop_front()) {
                           steps_.front().action();
                         }
                         if (steps_.empty()) loop_->Stop();
                       });
    loop_->Run();
  }
  std::function<void()> Done() {
    return [this] { ++done_; };
  }

  struct Step {
    std::function<bool()> condition;
    std::function<void()> action;
  };
  SharedQuotas whole_{.sessions = Quota(10),
                      .descriptors = Quota(100),
                      .ring_memory = Quota(1000),
                      .ring_mappings = Quota(20),
                      .app_mappings = Quota(7)};
  Users users_{whole_, 50};
  const std::shared_ptr<User> alice_ = users_.Get(kAlice);
  const std::shared_ptr<User> bob_ = users_.Get(kBob);
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  std::unique_ptr<BlockingCalls> calls_ = *BlockingCalls::Create(*loop_);
  std::deque<Step> steps_;
  roce::TimeNs next_ = 0;
  size_t done_ = 0;
  Gate gate_;
};

constexpr size_t kThreads = BlockingCalls::kThreadsOfUser;

TEST_F(BlockingCallsTest, RunOnAnotherThreadAndReportOnThis) {
  std::thread::id called, reported;
  EXPECT_NE(calls_->Run(
                alice_, 0, [&] { called = std::this_thread::get_id(); },
                [&] {
                  reported = std::this_thread::get_id();
                  ++done_;
                }),
            0u);
  WhenDone(1);
  Run();
  EXPECT_NE(called, std::thread::id());
  EXPECT_NE(called, std::this_thread::get_id());
  EXPECT_EQ(reported, std::this_thread::get_id());
}

TEST_F(BlockingCallsTest, ThatBlockDelayTheirUserAlone) {
  for (size_t i = 0; i <= kThreads; ++i) {
    ASSERT_NE(calls_->Run(alice_, 0, gate_.Call(), Done()), 0u);
  }
  const auto call_of_bob = [] {};
  calls_->Run(bob_, 0, call_of_bob, Done());
  WhenDone(1);
  When([this] { return gate_.begun() == kThreads; }, [this] { gate_.Open(); });
  WhenDone(kThreads + 2);
  Run();
  EXPECT_EQ(gate_.begun(), kThreads + 1) << "the last had to wait";
}

TEST_F(BlockingCallsTest, AreForgotten) {
  std::atomic<size_t> late = 0;
  uint64_t first = 0;
  for (size_t i = 0; i < kThreads; ++i) {
    first = calls_->Run(alice_, 0, gate_.Call(), Done());
  }
  const auto held = std::make_shared<int>(0);
  const uint64_t waiting = calls_->Run(
      alice_, 2, [&late, held] { ++late; }, Done());
  EXPECT_EQ(alice_->descriptors.used(), 2u);
  calls_->Forget(waiting);
  EXPECT_EQ(held.use_count(), 1) << "it has not begun";
  EXPECT_EQ(alice_->descriptors.used(), 0u);
  calls_->Forget(0);
  When([this] { return gate_.begun() == kThreads; },
       [&] {
         calls_->Forget(first);
         gate_.Open();
       });
  WhenDone(kThreads - 1);
  Run();
  EXPECT_EQ(late, 0u);
}

TEST_F(BlockingCallsTest, CostDescriptorsUntilTheyReturn) {
  const uint64_t number = calls_->Run(alice_, 70, gate_.Call(), Done());
  EXPECT_EQ(alice_->descriptors.used(), 70u) << "also beyond the limit";
  When([this] { return gate_.begun() == 1; },
       [&] {
         calls_->Forget(number);
         EXPECT_EQ(alice_->descriptors.used(), 70u) << "it goes on";
         gate_.Open();
       });
  When([this] { return alice_->descriptors.used() == 0; });
  Run();
  EXPECT_EQ(done_, 0u);
}

TEST_F(BlockingCallsTest, ThatLackMemoryAreReportedAsDone) {
  calls_->Run(
      alice_, 0, [] { throw std::bad_alloc(); }, Done());
  WhenDone(1);
  Run();
}

TEST_F(BlockingCallsTest, MayOutlastTheirOwner) {
  for (size_t i = 0; i <= kThreads; ++i) {
    calls_->Run(alice_, 1, gate_.Call(), Done());
  }
  When([this] { return gate_.begun() == kThreads; }, [this] { calls_.reset(); });
  Run();
  EXPECT_EQ(alice_->descriptors.used(), 0u);
}

// ---- AccountLookup

std::shared_mutex& AccountServer() {
  static std::shared_mutex mutex;
  return mutex;
}

// As a server of subuid(5) that may not answer: everybody belongs to kBob.
uid_t AskAccountServer(uid_t) {
  const std::shared_lock wait(AccountServer());
  return kBob;
}

TEST_F(BlockingCallsTest, AnAccountIsFoundWithoutWaitingForIt) {
  AccountLookup accounts(users_, *calls_, &AskAccountServer);
  constexpr uid_t kContainer = 100'000;
  std::unique_lock silence(AccountServer());
  EXPECT_TRUE(accounts.Await(kContainer, false, Done()));
  EXPECT_TRUE(accounts.Await(kContainer, false, Done()));
  EXPECT_EQ(done_, 0u);
  EXPECT_TRUE(accounts.Await(kContainer, true, Done()));
  EXPECT_EQ(done_, 1u) << "a trusted user has no account";
  EXPECT_NE(users_.Get(kContainer), bob_);
  silence.unlock();
  WhenDone(3, [&] {
    EXPECT_EQ(users_.Get(kContainer), bob_);
    EXPECT_TRUE(accounts.Await(kContainer, false, Done()));
    EXPECT_EQ(done_, 4u) << "known";
  });
  Run();
}

TEST_F(BlockingCallsTest, ConnectionsThatWaitForAnAccountTakeDescriptors) {
  AccountLookup accounts(users_, *calls_, &AskAccountServer);
  std::unique_lock silence(AccountServer());
  const size_t most = alice_->descriptors.limit() / AccountLookup::kDescriptors;
  for (size_t i = 0; i < most; ++i) EXPECT_TRUE(accounts.Await(kAlice, false, Done()));
  EXPECT_EQ(alice_->descriptors.left(), alice_->descriptors.limit() % AccountLookup::kDescriptors);
  EXPECT_FALSE(accounts.Await(kAlice, false, Done()));
  EXPECT_TRUE(accounts.Await(kBob, false, Done())) << "another user";
  silence.unlock();
  WhenDone(most + 1, [&] { EXPECT_EQ(alice_->descriptors.used(), 0u); });
  Run();
}

}  // namespace
}  // namespace roci::control
