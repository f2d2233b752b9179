// What a program and the daemon can do with the ends of an event socket.
#include "control/loop/event_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <thread>
#include <vector>

namespace roci::control {
namespace {

using std::chrono::seconds;

// A page that comes when `Come` is called: until then, every access waits.
class MissingPage {
 public:
  MissingPage() {
    page_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fd_ = UniqueFd(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC)));
    uffdio_api api{};
    api.api = UFFD_API;
    uffdio_register range{};
    range.range = {reinterpret_cast<uint64_t>(page_), kBytes};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    works_ = fd_.valid() && ioctl(fd_.get(), UFFDIO_API, &api) == 0 &&
             ioctl(fd_.get(), UFFDIO_REGISTER, &range) == 0;
  }
  ~MissingPage() { munmap(page_, kBytes); }
  MissingPage(const MissingPage&) = delete;
  MissingPage& operator=(const MissingPage&) = delete;

  // False: this machine has no userfaultfd for faults of the kernel.
  bool works() const { return works_; }
  void* data() const { return page_; }
  void AwaitAccess() const {
    uffd_msg message;
    EXPECT_EQ(read(fd_.get(), &message, sizeof(message)), ssize_t{sizeof(message)});
  }
  void Come() const {
    uffdio_zeropage zero{};
    zero.range = {reinterpret_cast<uint64_t>(page_), kBytes};
    EXPECT_EQ(ioctl(fd_.get(), UFFDIO_ZEROPAGE, &zero), 0);
  }

 private:
  static constexpr size_t kBytes = 4096;
  void* page_;
  UniqueFd fd_;
  bool works_;
};

class EventSocketTest : public testing::Test {
 protected:
  EventSocketTest() { EXPECT_TRUE(OpenEventSocket(sending, receiving).ok()); }
  bool Write(uint64_t element) const {
    return write(sending.get(), &element, sizeof(element)) == ssize_t{sizeof(element)};
  }
  short Events() const {
    pollfd wait = {receiving.get(), POLLIN, 0};
    poll(&wait, 1, 0);
    return wait.revents;
  }
  std::vector<uint64_t> ReadAll() const {
    std::vector<uint64_t> events;
    uint64_t element = 0;
    while ((Events() & POLLIN) != 0 && read(receiving.get(), &element, sizeof(element)) > 0) {
      events.push_back(element);
    }
    return events;
  }

  UniqueFd sending;
  UniqueFd receiving;
};

TEST_F(EventSocketTest, HandsOutOneEventPerRead) {
  EXPECT_EQ(Events(), 0);
  for (const uint64_t element : {7, 1, 2}) EXPECT_TRUE(Write(element));
  int waiting = 0;
  ASSERT_EQ(ioctl(receiving.get(), FIONREAD, &waiting), 0);
  EXPECT_EQ(waiting, 24);
  uint64_t elements[3];
  EXPECT_EQ(read(receiving.get(), elements, sizeof(elements)), 8);
  EXPECT_EQ(elements[0], 7u);
  EXPECT_EQ(ReadAll(), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(Events(), 0);
}

TEST_F(EventSocketTest, BlocksOnlyTheProgram) {
  EXPECT_EQ(fcntl(receiving.get(), F_GETFL) & O_NONBLOCK, 0);
  int events = 0;
  while (Write(1)) ++events;
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_GE(events, 16);
  EXPECT_LE(events, 120) << "more than the plugin removes (verbs/events.cc)";
  EXPECT_EQ(ReadAll().size(), static_cast<size_t>(events));
  EXPECT_TRUE(Write(2));
}

// As with a pipe, the lcore would wait as long as the reader.
TEST_F(EventSocketTest, AReaderWhosePageDoesNotComeKeepsNobodyFromWriting) {
  const MissingPage page;
  if (!page.works()) GTEST_SKIP() << "no userfaultfd";
  EXPECT_TRUE(Write(1));
  std::thread reader([&] { EXPECT_EQ(read(receiving.get(), page.data(), 8), 8); });
  page.AwaitAccess();
  std::promise<bool> written;
  std::thread writer([&] { written.set_value(Write(2)); });
  std::future<bool> result = written.get_future();
  EXPECT_EQ(result.wait_for(seconds(30)), std::future_status::ready);
  page.Come();
  writer.join();
  reader.join();
  EXPECT_TRUE(result.get());
  EXPECT_EQ(ReadAll(), std::vector<uint64_t>{2});
}

// Otherwise a program could pass descriptors whose close(2) blocks.
TEST_F(EventSocketTest, TheProgramCanSendNothing) {
  EXPECT_EQ(send(receiving.get(), "x", 1, MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(Events(), 0) << "and its end is at no end of file";
}

TEST_F(EventSocketTest, EndsForTheProgramWithTheDaemon) {
  EXPECT_TRUE(Write(3));
  sending.Reset();
  EXPECT_NE(Events() & POLLIN, 0);
  uint64_t element = 0;
  EXPECT_EQ(read(receiving.get(), &element, sizeof(element)), 8);
  EXPECT_EQ(element, 3u);
  EXPECT_EQ(read(receiving.get(), &element, sizeof(element)), 0);
}

}  // namespace
}  // namespace roci::control
