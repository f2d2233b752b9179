// A system call of an attacker that does not end, and keeps what it has locked.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <thread>

#include "tests/integration/fuse_file.h"
#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/rig.h"

namespace roci::testing::hostile {

// A read(2) into a page of a file whose server does not answer. Make one before any thread: it
// enters namespaces of its own.
class EndlessRead {
 public:
  EndlessRead() : file_(FuseFile::Reads::kWithheld, FuseFile::Flushes::kAnswered) {
    if (file_.fd < 0) Lacks("FUSE");
    page_ = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file_.fd, 0);
    if (page_ == MAP_FAILED) Lacks("a mapping of a FUSE file");
  }
  ~EndlessRead() {
    kill(file_.server, SIGKILL);
    if (reader_.joinable()) reader_.join();
  }
  EndlessRead(const EndlessRead&) = delete;
  EndlessRead& operator=(const EndlessRead&) = delete;

  // Returns when the read holds whatever it holds.
  void Begin(int fd, size_t size) {
    reader_ = std::thread([=, this] {
      [[maybe_unused]] const ssize_t n = read(fd, page_, size);
      ended_ = true;
    });
    for (int i = 0; i < 10'000 && file_.requests->reads == 0; ++i) usleep(1000);
    EXPECT_GT(file_.requests->reads, 0u) << "there was nothing to read";
    usleep(10'000);
  }
  bool has_ended() const { return ended_; }
  static bool CanBegin(int fd) {
    pollfd wait{fd, POLLIN, 0};
    return poll(&wait, 1, 10'000) == 1;
  }

 private:
  const FuseFile file_;
  void* page_;
  std::atomic<bool> ended_{false};
  std::thread reader_;
};

}  // namespace roci::testing::hostile
