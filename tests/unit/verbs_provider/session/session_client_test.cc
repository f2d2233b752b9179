// The control socket with correct, failing and malicious daemons.
#include "verbs_provider/session/session_client.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/send_fds.h"

namespace roci::provider {
namespace {

// The daemon's end: receives one message, then calls `answer`.
class FakeDaemon {
 public:
  FakeDaemon() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    client_end = ends[0];
    daemon_end = ends[1];
  }
  ~FakeDaemon() {
    if (thread_.joinable()) thread_.join();
    if (daemon_end >= 0) close(daemon_end);
  }
  void Serve(int messages, const std::function<void(const roci_abi_request&)>& answer) {
    thread_ = std::thread([this, messages, answer] {
      for (int i = 0; i < messages; ++i) {
        char buffer[4096];
        const ssize_t n = recv(daemon_end, buffer, sizeof(buffer), 0);
        if (n < static_cast<ssize_t>(sizeof(roci_abi_request))) return;
        roci_abi_request request;
        memcpy(&request, buffer, sizeof(request));
        received_size = n;
        answer(request);
      }
    });
  }
  void Send(const void* data, size_t size, std::vector<int> fds = {}) {
    const std::span bytes(static_cast<const std::byte*>(data), size);
    EXPECT_EQ(testing::SendFds(daemon_end, bytes, fds), static_cast<ssize_t>(size));
  }
  roci_abi_handle_response Answer(const roci_abi_request& request, uint32_t handle, int error = 0) {
    roci_abi_handle_response response = {};
    response.head.serial = request.serial;
    response.head.error = error;
    response.handle = handle;
    return response;
  }

  int client_end = -1;
  int daemon_end = -1;
  ssize_t received_size = 0;

 private:
  std::thread thread_;
};

class SessionClientTest : public ::testing::Test {
 protected:
  SessionClientTest() { EXPECT_EQ(client.Adopt(daemon.client_end, &state), 0); }
  int AllocPd(uint32_t* granted, ReceivedFds* fds = nullptr) {
    roci_abi_plain_request request = {};
    roci_abi_handle_response response = {};
    const int error = client.Call(ROCI_ABI_ALLOC_PD, &request, &response, nullptr, fds);
    *granted = response.handle;
    return error;
  }

  std::atomic<uint32_t> state{kSessionDead};
  FakeDaemon daemon;
  SessionClient client;
  uint32_t handle = 0;
};

TEST_F(SessionClientTest, SendsRequestsAndReceivesResponses) {
  EXPECT_EQ(state, kSessionAlive);
  EXPECT_EQ(client.peer_pid(), getpid());
  uint32_t last_serial = 0;
  daemon.Serve(3, [&](const roci_abi_request& request) {
    EXPECT_EQ(request.command, uint32_t{ROCI_ABI_ALLOC_PD});
    EXPECT_EQ(request.size, sizeof(roci_abi_plain_request));
    EXPECT_EQ(daemon.received_size, static_cast<ssize_t>(sizeof(roci_abi_plain_request)));
    EXPECT_NE(request.serial, last_serial);
    last_serial = request.serial;
    const auto response = daemon.Answer(request, request.serial + 100);
    daemon.Send(&response, sizeof(response));
  });
  for (uint32_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(AllocPd(&handle), 0);
    EXPECT_EQ(handle, last_serial + 100);
  }
  EXPECT_TRUE(client.CheckPeer());
}

TEST_F(SessionClientTest, ReturnsErrorsOfShortAndFullResponses) {
  daemon.Serve(2, [&](const roci_abi_request& request) {
    const auto response = daemon.Answer(request, 0, request.serial == 1 ? ENOSPC : EBUSY);
    daemon.Send(&response, request.serial == 1 ? sizeof(response.head) : sizeof(response));
  });
  EXPECT_EQ(AllocPd(&handle), ENOSPC);
  EXPECT_EQ(AllocPd(&handle), EBUSY);
  EXPECT_EQ(state, kSessionAlive);
}

TEST_F(SessionClientTest, ReceivesDescriptors) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  daemon.Serve(1, [&](const roci_abi_request& request) {
    auto response = daemon.Answer(request, 1);
    response.head.fd_count = 2;
    daemon.Send(&response, sizeof(response), {pipe_ends[0], pipe_ends[1]});
  });
  int kept;
  int dropped;
  {
    ReceivedFds fds;
    ASSERT_EQ(AllocPd(&handle, &fds), 0);
    ASSERT_EQ(fds.count(), 2u);
    EXPECT_EQ(fds.at(2), -1);
    dropped = fds.at(0);
    kept = fds.Take(1);
    EXPECT_EQ(fcntl(kept, F_GETFD), FD_CLOEXEC);
  }
  EXPECT_EQ(fcntl(dropped, F_GETFD), -1) << "closed with the list";
  EXPECT_EQ(write(kept, "x", 1), 1);
  char byte;
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), 1);
  close(kept);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(SessionClientTest, SendsDescriptors) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  FdsToSend fds;
  fds.count = 1;
  fds.fds[0] = pipe_ends[1];
  std::thread server([&] {
    char buffer[4096];
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
    iovec part = {buffer, sizeof(buffer)};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ASSERT_EQ(recvmsg(daemon.daemon_end, &message, 0),
              static_cast<ssize_t>(sizeof(roci_abi_request)));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    ASSERT_NE(rights, nullptr);
    EXPECT_EQ(rights->cmsg_len, CMSG_LEN(sizeof(int)));
    int fd;
    memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
    EXPECT_EQ(write(fd, "y", 1), 1);
    close(fd);
    const auto response = daemon.Answer(*reinterpret_cast<roci_abi_request*>(buffer), 5);
    daemon.Send(&response, sizeof(response));
  });
  roci_abi_plain_request request = {};
  roci_abi_handle_response response = {};
  EXPECT_EQ(client.Call(ROCI_ABI_ALLOC_PD, &request, &response, &fds), 0);
  server.join();
  char byte = 0;
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(SessionClientTest, NoticesThatTheDaemonHasExited) {
  EXPECT_TRUE(client.CheckPeer());
  close(daemon.daemon_end);
  daemon.daemon_end = -1;
  EXPECT_FALSE(client.CheckPeer());
  EXPECT_EQ(state, kSessionDead);
  EXPECT_EQ(AllocPd(&handle), EIO);
}

TEST_F(SessionClientTest, SurvivesADaemonThatExitsDuringARequest) {
  daemon.Serve(1, [&](const roci_abi_request&) {
    close(daemon.daemon_end);
    daemon.daemon_end = -1;
  });
  EXPECT_EQ(AllocPd(&handle), EIO);
  EXPECT_EQ(state, kSessionDead);
}

TEST_F(SessionClientTest, ReturnsTheRefusal) {
  roci_abi_plain_response refusal = {};
  refusal.head.error = EUSERS;
  daemon.Send(&refusal, sizeof(refusal));
  close(daemon.daemon_end);
  daemon.daemon_end = -1;
  EXPECT_EQ(AllocPd(&handle), EUSERS);
  EXPECT_EQ(state, kSessionDead);
  EXPECT_EQ(AllocPd(&handle), EIO);
}

TEST_F(SessionClientTest, ReturnsTheRefusalWithTheRequestUnread) {
  roci_abi_plain_response refusal = {};
  refusal.head.error = EAGAIN;
  std::thread refuses([&] {
    char byte;
    EXPECT_EQ(recv(daemon.daemon_end, &byte, 1, MSG_PEEK), 1);
    daemon.Send(&refusal, sizeof(refusal));
    close(daemon.daemon_end);
    daemon.daemon_end = -1;
  });
  EXPECT_EQ(AllocPd(&handle), EAGAIN);
  EXPECT_EQ(state, kSessionDead);
  refuses.join();
}

// A message that a daemon of this version never sends ends the session: later messages cannot be
// trusted.
TEST_F(SessionClientTest, EndsTheSessionOnMalformedResponses) {
  const struct {
    const char* what;
    std::function<void(FakeDaemon&, const roci_abi_request&)> answer;
  } kCases[] = {
      {"short",
       [](FakeDaemon& d, const roci_abi_request& r) {
         const auto response = d.Answer(r, 1);
         d.Send(&response, sizeof(response) - 1);
       }},
      {"long",
       [](FakeDaemon& d, const roci_abi_request& r) {
         char buffer[sizeof(roci_abi_handle_response) + 8] = {};
         const auto response = d.Answer(r, 1);
         memcpy(buffer, &response, sizeof(response));
         d.Send(buffer, sizeof(buffer));
       }},
      {"stale serial",
       [](FakeDaemon& d, const roci_abi_request& r) {
         auto response = d.Answer(r, 1);
         --response.head.serial;
         d.Send(&response, sizeof(response));
       }},
      {"negative error",
       [](FakeDaemon& d, const roci_abi_request& r) {
         const auto response = d.Answer(r, 1, -5);
         d.Send(&response, sizeof(response));
       }},
      {"descriptors missing",
       [](FakeDaemon& d, const roci_abi_request& r) {
         auto response = d.Answer(r, 1);
         response.head.fd_count = 1;
         d.Send(&response, sizeof(response));
       }},
      {"descriptors nobody announced",
       [](FakeDaemon& d, const roci_abi_request& r) {
         const auto response = d.Answer(r, 1);
         d.Send(&response, sizeof(response), {0});
       }},
  };
  for (const auto& c : kCases) {
    std::atomic<uint32_t> own_state{0};
    FakeDaemon own;
    SessionClient own_client;
    ASSERT_EQ(own_client.Adopt(own.client_end, &own_state), 0);
    own.Serve(1, [&](const roci_abi_request& request) { c.answer(own, request); });
    roci_abi_plain_request request = {};
    roci_abi_handle_response response = {};
    EXPECT_EQ(own_client.Call(ROCI_ABI_ALLOC_PD, &request, &response), EIO) << c.what;
    EXPECT_EQ(own_state, kSessionDead) << c.what;
  }
}

TEST_F(SessionClientTest, SerializesTheRequestsOfThreads) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 500;
  daemon.Serve(kThreads * kCalls, [&](const roci_abi_request& request) {
    const auto response = daemon.Answer(request, request.serial);
    daemon.Send(&response, sizeof(response));
  });
  std::atomic<uint64_t> sum{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kCalls; ++i) {
        uint32_t own = 0;
        ASSERT_EQ(AllocPd(&own), 0);
        sum += own;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  constexpr uint64_t kTotal = kThreads * kCalls;
  EXPECT_EQ(sum, kTotal * (kTotal + 1) / 2) << "each serial was answered once";
}

TEST(SessionClientConnect, ReachesSocketsWithLongPaths) {
  std::string folder =
      ::testing::TempDir() + "/" + std::string(120, 'x') + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/rocid.sock";
  SessionClient client;
  std::atomic<uint32_t> state{0};
  EXPECT_EQ(client.Connect(path.c_str(), &state), ENOENT);
  EXPECT_EQ(client.Connect((folder + "/no/where").c_str(), &state), ENOENT);
  EXPECT_EQ(state, 0u);

  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const int directory = open(folder.c_str(), O_PATH | O_CLOEXEC);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/rocid.sock", directory);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  EXPECT_EQ(client.Connect(path.c_str(), &state), 0);
  EXPECT_EQ(state, kSessionAlive);
  close(listener);
  EXPECT_EQ(SessionClient().Connect(path.c_str(), &state), ECONNREFUSED);
  close(directory);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace roci::provider
