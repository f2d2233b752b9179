#include "control/manage/manage_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

class ManageServerTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/roci_manage_test.XXXXXX";
    directory_ = mkdtemp(name);
    server_ = *ManageServer::Create(*loop_, directory_, [](UniqueFd) {});
    server_->AddCommand("echo", [](const Json& request) -> absl::StatusOr<Json> {
      return request.value("text", Json());
    });
    server_->AddCommand("fail", [](const Json&) -> absl::StatusOr<Json> {
      return absl::NotFoundError("nothing there");
    });
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }
  Json Ask(const std::string& line) { return Json::parse(server_->Answer(line)); }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  std::string directory_;
  std::unique_ptr<ManageServer> server_;
};

TEST_F(ManageServerTest, Answers) {
  EXPECT_EQ(Ask(R"({"command":"echo","text":"hi"})"), (Json{{"ok", true}, {"result", "hi"}}));
  EXPECT_EQ(Ask(R"({"command":"fail"})"), (Json{{"ok", false}, {"error", "nothing there"}}));
}

TEST_F(ManageServerTest, HandlersSeeTheCallerButNotWhatItSaysOfItself) {
  server_->AddCommand(
      "who", [](const Json& request) -> absl::StatusOr<Json> { return request.at("caller"); });
  const Json answer = Json::parse(server_->Answer(R"({"command":"who","caller":1})", 17));
  EXPECT_EQ(answer, (Json{{"ok", true}, {"result", 17}}));
}

TEST_F(ManageServerTest, RefusesNonsense) {
  const std::vector<std::string> lines = {"",
                                          "{",
                                          "[]",
                                          "null",
                                          "{}",
                                          R"({"command":5})",
                                          R"({"command":"other"})",
                                          "\xff\xfe",
                                          std::string(10000, '[')};
  for (const std::string& line : lines) {
    const Json answer = Ask(line);
    EXPECT_EQ(answer["ok"], false) << line.substr(0, 40);
    EXPECT_FALSE(answer["error"].get<std::string>().empty());
  }
}

TEST_F(ManageServerTest, BytesThatAreNoTextDoNotHurt) {
  server_->AddCommand("odd", [](const Json&) -> absl::StatusOr<Json> {
    return Json(
        "a\xff"
        "b");
  });
  EXPECT_EQ(Ask(R"({"command":"odd"})")["ok"], true);
}

// What the server answers to `lines`, of which there are `count`, while its deadlines are served.
std::vector<std::string> Exchange(EventLoop& loop, ManageServer& server, const std::string& folder,
                                  const std::string& lines, size_t count) {
  const UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s/manage.sock", folder.c_str());
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(send(client.get(), lines.data(), lines.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(lines.size()));
  loop.AddDeadline([&] { return server.NextTimeout(); },
                   [&](roce::TimeNs now) { server.HandleTimeout(now); });
  std::string received;
  int rounds = 0;
  loop.AddDeadline([] { return roce::TimeNs{0}; },
                   [&](roce::TimeNs) {
                     char buffer[4096];
                     const ssize_t got = recv(client.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
                     if (got > 0) received.append(buffer, static_cast<size_t>(got));
                     const auto answers = std::count(received.begin(), received.end(), '\n');
                     if (static_cast<size_t>(answers) == count || ++rounds == 100'000) loop.Stop();
                   });
  loop.Run();
  return absl::StrSplit(received, '\n', absl::SkipEmpty());
}

TEST_F(ManageServerTest, LongAnswersAreMadeInParts) {
  int calls = 0;
  server_->AddInParts("count", [&](const Json& request) -> std::optional<ManageServer::Parts> {
    if (!request.contains("to")) return std::nullopt;
    return [&calls, next = 0, to = request["to"].get<int>()](std::string& out) mutable {
      ++calls;
      if (next < to) out += std::to_string(next++) + ",";
      return next < to;
    };
  });
  server_->AddCommand("count", [](const Json&) -> absl::StatusOr<Json> {
    return absl::InvalidArgumentError("to where?");
  });
  const std::vector<std::string> answers = Exchange(*loop_, *server_, directory_,
                                                    R"({"command":"count","to":3})"
                                                    "\n"
                                                    R"({"command":"count","to":0})"
                                                    "\n"
                                                    R"({"command":"count"})"
                                                    "\n"
                                                    R"({"command":"echo","text":1})"
                                                    "\n",
                                                    4);
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(Json::parse(answers[0]), (Json{{"ok", true}, {"result", {0, 1, 2}}}));
  EXPECT_EQ(Json::parse(answers[1]), (Json{{"ok", true}, {"result", Json::array()}}));
  EXPECT_EQ(Json::parse(answers[2]), (Json{{"ok", false}, {"error", "to where?"}}));
  EXPECT_EQ(Json::parse(answers[3]), (Json{{"ok", true}, {"result", 1}}));
  EXPECT_EQ(calls, 4);
}

TEST_F(ManageServerTest, ServesOverItsSocket) {
  const UniqueFd client(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s/manage.sock", directory_.c_str());
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  // Two requests in pieces, and an answer larger than the socket's buffer.
  const std::string big(3 << 20, 'x');
  server_->AddCommand("big", [&](const Json&) -> absl::StatusOr<Json> { return Json(big); });
  const std::string requests = "{\"command\":\"echo\",\"text\":1}\n{\"command\":\"big\"}\n";
  size_t sent = 0;
  std::string received;
  loop_->AddDeadline([] { return MonotonicNow() + 1'000'000; }, [](roce::TimeNs) {});
  int rounds = 0;
  loop_->AddDeadline(
      [] { return roce::TimeNs{0}; },
      [&](roce::TimeNs) {
        if (sent < requests.size()) {
          send(client.get(), requests.data() + sent, 1, 0);
          ++sent;
        }
        char buffer[65536];
        const ssize_t count = recv(client.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
        if (count > 0) received.append(buffer, static_cast<size_t>(count));
        const bool complete = std::count(received.begin(), received.end(), '\n') == 2;
        if (complete || ++rounds == 100'000) loop_->Stop();
      });
  loop_->Run();
  const size_t end = received.find('\n');
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(Json::parse(received.substr(0, end))["result"], 1);
  EXPECT_EQ(Json::parse(received.substr(end + 1))["result"].get<std::string>().size(), big.size());
}

}  // namespace
}  // namespace roci::control
