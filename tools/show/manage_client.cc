#include "tools/show/manage_client.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace roci::tools {
namespace {

constexpr int kTimeoutSeconds = 30;
constexpr size_t kMaxAnswerBytes = size_t{1} << 30;

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status CannotConnect(const std::string& directory, int error) {
  const std::string why =
      absl::StrCat(directory, "/manage.sock: ", std::strerror(error),
                   error == ENOENT || error == ECONNREFUSED ? " (is rocid running?)" : "");
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat(why, " (only the daemon's user and root may ask it)"));
  }
  return absl::NotFoundError(why);
}

// Through the directory's descriptor: the path may be longer than sun_path.
absl::Status Connect(int fd, const std::string& directory) {
  const Fd folder(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return CannotConnect(directory, errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/manage.sock",
                folder.get());
  const timeval limit{kTimeoutSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return CannotConnect(directory, errno);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Exchange(int fd, const std::string& line) {
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t count = send(fd, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0) return absl::UnavailableError(absl::StrCat("send: ", std::strerror(errno)));
    sent += static_cast<size_t>(count);
  }
  std::string answer;
  while (answer.empty() || answer.back() != '\n') {
    char buffer[65536];
    const ssize_t count = recv(fd, buffer, sizeof(buffer), 0);
    if (count == 0) return absl::UnavailableError("the daemon closed the connection");
    if (count < 0) return absl::UnavailableError(absl::StrCat("recv: ", std::strerror(errno)));
    answer.append(buffer, static_cast<size_t>(count));
    if (answer.size() > kMaxAnswerBytes) return absl::InternalError("the answer does not end");
  }
  return answer;
}

}  // namespace

absl::StatusOr<nlohmann::json> AskDaemon(const std::string& runtime_dir,
                                         const nlohmann::json& request) {
  const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return absl::InternalError(absl::StrCat("socket: ", std::strerror(errno)));
  const absl::Status status =
      Connect(fd.get(), abi::RuntimeDir(runtime_dir.c_str(), abi::RuntimeDirUse::kConnect));
  if (!status.ok()) return status;
  const absl::StatusOr<std::string> line = Exchange(fd.get(), request.dump() + "\n");
  if (!line.ok()) return line.status();
  const nlohmann::json answer = nlohmann::json::parse(*line, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object() || !answer.contains("ok")) {
    return absl::InternalError("the daemon's answer is not understood");
  }
  if (answer["ok"] == true && answer.contains("result")) return answer["result"];
  return absl::InternalError(answer.value("error", "the daemon refuses without a reason"));
}

}  // namespace roci::tools
