// The mailbox runs functions of several threads on one thread.
#include "dataplane/base/mailbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "tests/on_shard.h"

namespace roci::dataplane {
namespace {

TEST(Mailbox, RunsFunctionsOfOtherThreadsOneAtATime) {
  Mailbox mailbox;
  std::atomic<bool> stop{false};
  std::thread server([&] {
    while (!stop) {
      mailbox.Serve(dataplane::OnShardInTests::Token());
      std::this_thread::yield();
    }
  });
  uint64_t count = 0;
  std::thread others[2];
  for (std::thread& other : others) {
    other = std::thread([&] {
      for (int i = 0; i < 5000; ++i) {
        // Not atomic: only the server touches it.
        const auto add = [](const dataplane::OnShard&, void* p) { ++*static_cast<uint64_t*>(p); };
        mailbox.Post(add, &count, [] {});
      }
    });
  }
  for (std::thread& other : others) other.join();
  stop = true;
  server.join();
  EXPECT_EQ(count, 10000u);
}

}  // namespace
}  // namespace roci::dataplane
