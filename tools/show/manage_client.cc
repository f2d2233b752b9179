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
#include "control/loop/unique_fd.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace roci::tools {
namespace {

constexpr size_t kMaxAnswerBytes = size_t{1} << 30;

using control::UniqueFd;

// The status of a failed call; DeadlineExceeded at the socket's time limit.
absl::Status Failed(const char* call, int error) {
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINPROGRESS) {
    return absl::DeadlineExceededError("the daemon does not answer (is it stopped or overloaded?)");
  }
  return absl::UnavailableError(absl::StrCat(call, ": ", std::strerror(error)));
}

absl::Status CannotConnect(const std::string& directory, int error) {
  if (error == ENOENT || error == ENOTDIR || error == ECONNREFUSED) {
    return absl::NotFoundError(absl::StrCat("no daemon is running at ", directory,
                                            " (start rocid, or name its directory with "
                                            "--runtime-dir or $",
                                            abi::kRuntimeDirVariable, "; see `roci doctor`)"));
  }
  const std::string why =
      absl::StrCat(directory, "/", control::kManageSocketName, ": ", std::strerror(error));
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat(why, " (permitted for the daemon's user and root only)"));
  }
  return absl::NotFoundError(why);
}

// Uses the directory's descriptor, since the path may be longer than sun_path.
absl::Status Connect(int fd, const std::string& directory, int timeout_s) {
  const UniqueFd folder(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return CannotConnect(directory, errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", folder.get(),
                control::kManageSocketName);
  const timeval limit{timeout_s, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return errno == EAGAIN ? Failed("connect", errno) : CannotConnect(directory, errno);
  }
  return absl::OkStatus();
}

absl::Status Send(int fd, const std::string& line) {
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t count = send(fd, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0) return Failed("send", errno);
    sent += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Exchange(int fd, const std::string& line) {
  if (absl::Status status = Send(fd, line); !status.ok()) return status;
  std::string answer;
  while (answer.empty() || answer.back() != '\n') {
    char buffer[65536];
    const ssize_t count = recv(fd, buffer, sizeof(buffer), 0);
    if (count == 0) return absl::UnavailableError("the daemon closed the connection");
    if (count < 0) return Failed("recv", errno);
    answer.append(buffer, static_cast<size_t>(count));
    if (answer.size() > kMaxAnswerBytes) return absl::InternalError("the answer does not end");
  }
  return answer;
}

// Receives one line and no byte after it.
absl::StatusOr<std::string> ReceiveLine(int fd) {
  std::string line;
  while (line.empty() || line.back() != '\n') {
    char byte;
    const ssize_t count = recv(fd, &byte, 1, 0);
    if (count == 0) return absl::UnavailableError("the daemon closed the connection");
    if (count < 0) return Failed("recv", errno);
    line.push_back(byte);
    if (line.size() > kMaxAnswerBytes) return absl::InternalError("the answer does not end");
  }
  return line;
}

absl::StatusOr<UniqueFd> OpenSocket(const std::string& runtime_dir, int timeout_s) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return absl::InternalError(absl::StrCat("socket: ", std::strerror(errno)));
  const absl::Status status = Connect(
      fd.get(), abi::RuntimeDir(runtime_dir.c_str(), abi::RuntimeDirUse::kConnect), timeout_s);
  if (!status.ok()) return status;
  return fd;
}

// Arguments of the command line need not be UTF-8.
std::string LineOf(const nlohmann::json& request) {
  constexpr int kCompact = -1;
  return request.dump(kCompact, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::StatusOr<nlohmann::json> ResultOf(const std::string& line) {
  const nlohmann::json answer = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object() || !answer.contains("ok")) {
    return absl::InternalError("the daemon's answer is malformed");
  }
  if (answer["ok"] == true && answer.contains("result")) return answer["result"];
  return absl::InternalError(answer.value("error", "the daemon refused and gave no reason"));
}

}  // namespace

nlohmann::json ShowRequest(control::ShowKind kind) {
  return {{"command", control::kShowCommand}, {"what", control::NameOf(kind)}};
}

absl::StatusOr<nlohmann::json> AskDaemon(const std::string& runtime_dir,
                                         const nlohmann::json& request, int timeout_s) {
  const absl::StatusOr<UniqueFd> fd = OpenSocket(runtime_dir, timeout_s);
  if (!fd.ok()) return fd.status();
  const absl::StatusOr<std::string> line = Exchange(fd->get(), LineOf(request));
  if (!line.ok()) return line.status();
  return ResultOf(*line);
}

absl::StatusOr<UniqueFd> OpenStream(const std::string& runtime_dir, const nlohmann::json& request,
                                    int timeout_s) {
  absl::StatusOr<UniqueFd> fd = OpenSocket(runtime_dir, timeout_s);
  if (!fd.ok()) return fd.status();
  absl::Status status = Send(fd->get(), LineOf(request));
  if (!status.ok()) return status;
  const absl::StatusOr<std::string> line = ReceiveLine(fd->get());
  if (!line.ok()) return line.status();
  const absl::StatusOr<nlohmann::json> result = ResultOf(*line);
  if (!result.ok()) return result.status();
  const timeval never{};
  setsockopt(fd->get(), SOL_SOCKET, SO_RCVTIMEO, &never, sizeof(never));
  return fd;
}

}  // namespace roci::tools
