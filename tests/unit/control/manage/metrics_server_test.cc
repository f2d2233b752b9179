#include "control/manage/metrics_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace roci::control {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A port that no socket has now.
uint16_t FreePort() {
  const UniqueFd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(probe.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

// The control thread is a thread of the test; it runs from StartLoop() on.
class MetricsServerTest : public testing::Test {
 protected:
  void SetUp() override {
    address_ = {"127.0.0.1", FreePort()};
    auto server = MetricsServer::Create(*loop_, address_, [this] {
      ++made_;
      return Json{{"daemon", {{{"version", "test"}}}}};
    });
    if (absl::IsNotFound(server.status())) GTEST_SKIP() << server.status();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    StopLoop();
    server_.reset();
  }

  void StartLoop() {
    stop_.Reset(eventfd(0, EFD_CLOEXEC));
    ASSERT_TRUE(loop_->Add(stop_.get(), EPOLLIN, [this](uint32_t) { loop_->Stop(); }).ok());
    thread_ = std::thread([this] { loop_->Run(); });
  }
  void StopLoop() {
    if (!thread_.joinable()) return;
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }

  // `from`: an address of the loopback network.
  UniqueFd Connect(uint32_t from = INADDR_LOOPBACK) const {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit = {60, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sockaddr_in own = Loopback(0);
    own.sin_addr.s_addr = htonl(from);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
    const sockaddr_in address = Loopback(address_.port);
    const int result =
        connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    EXPECT_EQ(result, 0);
    return fd;
  }
  // All that the server sends until it closes.
  static std::string ReadAll(int fd) {
    std::string text;
    char buffer[4096];
    for (ssize_t count; (count = recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
      text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  }
  std::string Ask(const std::string& request) const {
    const UniqueFd fd = Connect();
    EXPECT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    return ReadAll(fd.get());
  }
  static std::string Get(const std::string& path, const std::string& headers = "") {
    return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  MetricsAddress address_;
  std::unique_ptr<MetricsServer> server_;
  std::thread thread_;
  UniqueFd stop_;  // eventfd
  std::atomic<int> made_ = 0;
};

TEST_F(MetricsServerTest, ServesBothFormats) {
  StartLoop();
  const std::string plain = Ask(Get("/metrics"));
  EXPECT_THAT(plain, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(plain, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(plain, HasSubstr("roci_daemon_info{version=\"test\"} 1"));
  const std::string open =
      Ask(Get("/metrics", "Accept: application/openmetrics-text;version=1.0.0,text/plain\r\n"));
  EXPECT_THAT(open, HasSubstr("application/openmetrics-text; version=1.0.0"));
  EXPECT_THAT(open, HasSubstr("# EOF"));
  EXPECT_EQ(made_, 1) << "one snapshot serves the requests of a second";
}

TEST_F(MetricsServerTest, RefusesOtherPathsAndMethods) {
  StartLoop();
  EXPECT_THAT(Ask(Get("/")), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"),
              StartsWith("HTTP/1.1 405"));
  Ask("nonsense\r\n\r\n");
  EXPECT_THAT(Ask(Get("/metrics", "X: " + std::string(200'000, 'x') + "\r\n").substr(0, 100'000)),
              HasSubstr("HTTP/1.1 4"));
  EXPECT_THAT(Ask(Get("/metrics")), StartsWith("HTTP/1.1 200")) << "it still serves";
}

TEST_F(MetricsServerTest, ABusyControlThreadIsReported) {
  EXPECT_THAT(Ask(Get("/metrics")), StartsWith("HTTP/1.1 503"));
  EXPECT_EQ(made_, 0);
  StartLoop();
  EXPECT_THAT(Ask(Get("/metrics")), StartsWith("HTTP/1.1 200"));
}

TEST_F(MetricsServerTest, SilentClientsDoNotKeepOthersOut) {
  StartLoop();
  std::vector<UniqueFd> silent;
  for (unsigned i = 0; i <= MetricsServer::kMaxConnections; ++i) {
    silent.push_back(Connect());
    // Half of a request, which never ends.
    EXPECT_EQ(send(silent.back().get(), "GET ", 4, MSG_NOSIGNAL), 4);
  }
  const roce::TimeNs begin = MonotonicNow();
  EXPECT_THAT(Ask(Get("/metrics")), StartsWith("HTTP/1.1 200"));
  EXPECT_LT(MonotonicNow() - begin, roce::TimeNs{MetricsServer::kLongestMs / 2} * roce::kNsPerMs)
      << "it has waited for the end of a silent one";
  EXPECT_EQ(ReadAll(silent.front().get()), "") << "the oldest is closed";
  EXPECT_LT(MonotonicNow() - begin, roce::TimeNs{MetricsServer::kLongestMs / 2} * roce::kNsPerMs);
}

TEST_F(MetricsServerTest, ClientsOfOneAddressDisplaceNoOthers) {
  StartLoop();
  const UniqueFd slow = Connect(INADDR_LOOPBACK + 1);
  const std::string request = Get("/metrics");
  EXPECT_EQ(send(slow.get(), request.data(), 4, MSG_NOSIGNAL), 4);
  std::vector<UniqueFd> flood;
  for (unsigned i = 0; i < 4 * MetricsServer::kMaxConnections; ++i) {
    flood.push_back(Connect());
    // Without a request, or with an answer that nobody reads.
    if (i % 2 == 0) send(flood.back().get(), request.data(), request.size(), MSG_NOSIGNAL);
  }
  EXPECT_THAT(Ask(Get("/metrics")), StartsWith("HTTP/1.1 200")) << "also of the same address";
  EXPECT_EQ(send(slow.get(), request.data() + 4, request.size() - 4, MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size() - 4));
  EXPECT_THAT(ReadAll(slow.get()), StartsWith("HTTP/1.1 200"));
}

TEST_F(MetricsServerTest, EndsWhileClientsWait) {
  const UniqueFd asking = Connect();
  const std::string request = Get("/metrics");
  EXPECT_GT(send(asking.get(), request.data(), request.size(), MSG_NOSIGNAL), 0);
  usleep(100'000);
  server_.reset();
  ReadAll(asking.get());
}

TEST_F(MetricsServerTest, APortInUseIsRefusedWithTheReason) {
  const auto second = MetricsServer::Create(*loop_, address_, [] { return Json::object(); });
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(address_.Text()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("Address already in use"));
}

}  // namespace
}  // namespace roci::control
