// Users take turns at the unmapper.
#include "memory/unmapper.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace roci::memory {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class UnmapperTest : public ::testing::Test {
 protected:
  UnmapperTest() { Unmapper::Drain(); }
  // `name` is appended to ended() when the last mapping of the user is unmapped.
  std::shared_ptr<RetiredUse> MakeUser(char name) {
    return {new RetiredUse, [this, name](RetiredUse* use) {
              const std::lock_guard guard(mutex_);
              ended_ += name;
              delete use;
            }};
  }
  // A user whose mapping blocks the unmapper until `gate` is ready.
  static std::shared_ptr<RetiredUse> MakeBlocker(const std::shared_future<void>& gate) {
    return {new RetiredUse, [gate](RetiredUse* use) {
              gate.wait();
              delete use;
            }};
  }
  static void Retire(size_t bytes, std::shared_ptr<RetiredUse> use, int dma_buffer = -1) {
    void* base =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(base, MAP_FAILED);
    auto mapping = std::make_unique<RetiredMapping>();
    mapping->base = static_cast<std::byte*>(base);
    mapping->length = bytes;
    mapping->use = std::move(use);
    mapping->dma_buffer = dma_buffer;
    Unmapper::Retire(mapping.release());
  }
  // After all mappings are unmapped, their owners are destroyed in order.
  std::string AwaitEnd() {
    Unmapper::Drain();
    const auto last = std::make_shared<std::promise<void>>();
    Retire(kMiB, {new RetiredUse, [last](RetiredUse* use) {
                    delete use;
                    last->set_value();
                  }});
    last->get_future().wait();
    const std::lock_guard guard(mutex_);
    return ended_;
  }

 private:
  std::mutex mutex_;
  std::string ended_;
};

TEST_F(UnmapperTest, AHugeMappingDelaysNoOtherUser) {
  std::promise<void> gate;
  Retire(kMiB, MakeBlocker(gate.get_future().share()));
  auto huge = MakeUser('h');
  auto small = MakeUser('s');
  Retire(4096 * kMiB, huge);
  for (int i = 0; i < 3; ++i) Retire(kMiB, huge);
  for (int i = 0; i < 3; ++i) Retire(kMiB, small);
  EXPECT_EQ(huge->mappings.load(), 4U);
  EXPECT_EQ(huge->bytes.load(), 4099 * kMiB);
  EXPECT_EQ(small->mappings.load(), 3U);
  EXPECT_GE(Unmapper::backlog(), 7U);
  EXPECT_GE(Unmapper::backlog_bytes(), 4102 * kMiB);
  huge.reset();
  small.reset();
  gate.set_value();
  EXPECT_EQ(AwaitEnd(), "sh");
}

// A descriptor whose close blocks until the peer goes: a TCP socket with data that the peer does
// not take.
class StuckFile {
 public:
  StuckFile() {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    peer_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
    const std::string bytes(64 << 10, 'x');
    while (send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    const linger wait{.l_onoff = 1, .l_linger = 3600};
    EXPECT_EQ(setsockopt(fd_, SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)), 0);
  }
  ~StuckFile() { Release(); }
  int fd() const { return fd_; }
  void Release() {
    if (peer_ >= 0) close(peer_);
    peer_ = -1;
  }

 private:
  int fd_ = -1;
  int peer_ = -1;
};

TEST_F(UnmapperTest, AStuckDmaBufferDelaysNoOtherUser) {
  constexpr auto kPatience = std::chrono::seconds(30);
  const auto await_none = [&](const RetiredUse& use) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (use.mappings != 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return use.mappings.load();
  };
  StuckFile file;
  const auto stuck = std::make_shared<RetiredUse>();
  const auto other = std::make_shared<RetiredUse>();
  for (int i = 0; i < 3; ++i) Retire(kMiB, stuck, i == 0 ? file.fd() : -1);
  Retire(kMiB, other);
  EXPECT_EQ(await_none(*other), 0U);
  EXPECT_GE(stuck->mappings.load(), 1U) << "the buffer counts until its access has ended";
  file.Release();
  EXPECT_EQ(await_none(*stuck), 0U);
}

TEST_F(UnmapperTest, MappingsCountForTheirUserUntilTheyAreUnmapped) {
  const auto user = std::make_shared<RetiredUse>();
  for (int i = 0; i < 100; ++i) Retire(kMiB, user);
  Retire(kMiB, nullptr);
  Unmapper::Drain();
  EXPECT_EQ(user->mappings.load(), 0U);
  EXPECT_EQ(user->bytes.load(), 0U);
  EXPECT_EQ(Unmapper::backlog(), 0U);
  EXPECT_EQ(Unmapper::backlog_bytes(), 0U);
}

}  // namespace
}  // namespace roci::memory
