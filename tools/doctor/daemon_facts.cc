#include "tools/doctor/daemon_facts.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "absl/status/statusor.h"
#include "control/loop/unique_fd.h"
#include "control/manage/manage_protocol.h"
#include "tools/doctor/child.h"
#include "tools/run/file.h"
#include "tools/show/manage_client.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace roci::tools {
namespace {

constexpr int kLimitS = 5;

// Connects as programs do, and fills in `state`, `problem`, `pid` and `uid`.
void Connect(DaemonFacts& facts) {
  const control::UniqueFd folder(open(facts.runtime_dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const control::UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // The path may be longer than sun_path.
  std::snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", folder.get(),
                abi::kSocketName);
  const timeval limit = {kLimitS, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const bool is_absent = errno == ENOENT || errno == ENOTDIR || errno == ECONNREFUSED;
    facts.state = is_absent ? DaemonState::kAbsent : DaemonState::kSilent;
    facts.problem = std::strerror(errno);
    return;
  }
  facts.state = DaemonState::kPrivate;
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  facts.pid = peer.pid;
  facts.uid = peer.uid;
}

void Ask(DaemonFacts& facts) {
  const absl::StatusOr<nlohmann::json> answer =
      AskDaemon(facts.runtime_dir, {{"command", control::kProbeCommand}}, kLimitS);
  if (answer.ok()) {
    facts.state = DaemonState::kAnswers;
    facts.answer = *answer;
    return;
  }
  facts.problem = std::string(answer.status().message());
  // Others than its own user and a root with its capabilities may not open the socket, or the
  // daemon closes the connection.
  if (absl::IsDeadlineExceeded(answer.status())) facts.state = DaemonState::kSilent;
}

void AskProgram(DaemonFacts& facts) {
  const ChildEnd end = RunCommand({FindDaemonProgram(), "--probe"});
  nlohmann::json answer = nlohmann::json::parse(end.out, nullptr, /*allow_exceptions=*/false);
  if (end.status == 0 && answer.is_object()) facts.answer = std::move(answer);
}

}  // namespace

std::optional<int> DaemonFacts::ErrorOf(const char* thing) const {
  const auto errors = answer.find("errors");
  if (!answer.is_object() || errors == answer.end() || !errors->is_object()) return std::nullopt;
  const auto error = errors->find(thing);
  if (error == errors->end() || !error->is_number_integer()) return std::nullopt;
  return error->get<int>();
}

nlohmann::json DaemonFacts::Running(const char* member) const {
  if (!answer.is_object()) return nullptr;
  const auto running = answer.find("running");
  if (running == answer.end() || !running->is_object()) return nullptr;
  return running->value(member, nlohmann::json());
}

std::string FindDaemonProgram() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::string own(path, static_cast<size_t>(length < 0 ? 0 : length));
  const std::string directory = own.substr(0, own.rfind('/') + 1);
  for (const char* candidate : {"../control/rocid", "rocid", "../sbin/rocid"}) {
    if (access((directory + candidate).c_str(), X_OK) == 0) return directory + candidate;
  }
  return "rocid";
}

DaemonFacts AskForFacts(const std::string& runtime_dir) {
  DaemonFacts facts;
  facts.runtime_dir = abi::RuntimeDir(runtime_dir.c_str(), abi::RuntimeDirUse::kConnect);
  Connect(facts);
  if (facts.state == DaemonState::kPrivate) Ask(facts);
  if (facts.state == DaemonState::kAbsent) AskProgram(facts);
  return facts;
}

}  // namespace roci::tools
