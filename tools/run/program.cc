// Inspects the file of a program, and asks its dynamic loader which libraries it would load.
#include "tools/run/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "control/loop/unique_fd.h"
#include "tools/run/elf_file.h"
#include "tools/run/file.h"
#include "verbs_provider/abi/generations.h"

namespace roci::tools {
namespace {

constexpr char kLibrary[] = "libibverbs.so.1";
constexpr char kPreload[] = "LD_PRELOAD";
// As in the kernel: scripts whose interpreters are scripts.
constexpr int kMaxScripts = 5;

bool IsExecutable(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

std::string FirstLine(const std::string& path) {
  const control::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  char text[256];  // as many bytes as the kernel reads
  const ssize_t length = fd.valid() ? ::read(fd.get(), text, sizeof(text)) : 0;
  const absl::string_view all(text, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return std::string(all.substr(0, all.find('\n')));
}

// The command that env runs, by the words behind it in a script's first line; empty: none.
std::string CommandOfEnv(const std::vector<std::string>& words) {
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-u" || word == "-C") {
      ++i;
    } else if (!absl::StartsWith(word, "-") && !absl::StrContains(word, '=')) {
      return word;
    }
  }
  return "";
}

// The program that interprets the script `path`; empty if it is no script.
std::string InterpreterOf(const std::string& path) {
  const std::string line = FirstLine(path);
  if (!absl::StartsWith(line, "#!")) return "";
  const std::vector<std::string> words =
      absl::StrSplit(line.substr(2), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.empty()) return "";
  const bool is_env = absl::EndsWith(words[0], "/env");
  const std::string command = is_env ? CommandOfEnv(words) : "";
  return command.empty() ? words[0] : FindInPath(command);
}

// Whether executing the file gives this process more privileges than it has.
bool GainsPrivilege(const std::string& path) {
  struct stat st;
  struct statvfs mount;
  if (::stat(path.c_str(), &st) != 0 || ::statvfs(path.c_str(), &mount) != 0) return false;
  if ((mount.f_flag & ST_NOSUID) != 0 || ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
    return false;
  if ((st.st_mode & S_ISUID) != 0 && st.st_uid != ::geteuid()) return true;
  if ((st.st_mode & S_ISGID) != 0 && (st.st_mode & S_IXGRP) != 0 && st.st_gid != ::getegid()) {
    return true;
  }
  return ::geteuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

std::string ReadAll(int fd) {
  constexpr size_t kLimit = size_t{1} << 20;
  std::string text;
  char part[4096];
  while (text.size() < kLimit) {
    const ssize_t length = ::read(fd, part, sizeof(part));
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) break;
    text.append(part, static_cast<size_t>(length));
  }
  return text;
}

// This process's environment, with `preload` before the libraries that it preloads.
std::vector<std::string> EnvironmentWith(const std::string& preload) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!absl::StartsWith(*variable, absl::StrCat(kPreload, "="))) variables.push_back(*variable);
  }
  const char* present = std::getenv(kPreload);
  const bool has_some = present != nullptr && *present != '\0';
  if (has_some || !preload.empty()) {
    variables.push_back(absl::StrCat(
        kPreload, "=", preload, preload.empty() || !has_some ? "" : ":", has_some ? present : ""));
  }
  return variables;
}

// Output of the dynamic loader about the libraries of a program, which does not run.
std::string ListLibraries(const Program& program, const std::string& preload) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "";
  const control::UniqueFd reader(ends[0]);
  control::UniqueFd writer(ends[1]);
  std::vector<std::string> variables = EnvironmentWith(preload);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::string words[] = {program.interpreter, "--list", program.path};
  char* const arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, program.interpreter.c_str(), &actions, nullptr, arguments,
                                  environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  writer.Reset();
  if (error != 0) return "";
  const std::string said = ReadAll(reader.get());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return said;
}

// The path of libibverbs in a list with lines such as "libibverbs.so.1 => /lib/libibverbs.so.1
// (0x7f00)"; empty: it is not there.
std::string PathInList(absl::string_view list) {
  for (absl::string_view line : absl::StrSplit(list, '\n')) {
    line = absl::StripLeadingAsciiWhitespace(line);
    line = line.substr(0, line.rfind(" (0x"));
    const bool is_named = absl::ConsumePrefix(&line, absl::StrCat(kLibrary, " => "));
    const bool is_path = absl::StartsWith(line, "/");
    if (is_path && (is_named || absl::EndsWith(line, absl::StrCat("/", kLibrary)))) {
      return std::string(line);
    }
  }
  return "";
}

// libibverbs has this name of a variable in its data, shared or static. In two parts, so that this
// program does not have it.
std::string TextInLibibverbs() { return absl::StrCat("RDMAV_ALLOW_", "DISASSOC_DESTROY"); }

void FindLibibverbs(Program* program) {
  if (!program->is_native) return;
  if (!program->interpreter.empty()) program->libibverbs = PathInList(ListLibraries(*program, ""));
  program->links_libibverbs = !program->libibverbs.empty();
  if (!program->links_libibverbs) {
    program->contains_libibverbs = FileContains(program->path, TextInLibibverbs());
  }
  if (!program->links_libibverbs && !program->interpreter.empty()) {
    // As dlopen finds it: preloaded libraries are looked for in the same places.
    program->libibverbs = PathInList(ListLibraries(*program, kLibrary));
  }
  if (program->libibverbs.empty()) return;
  const absl::StatusOr<ElfFile> library = ReadElf(program->libibverbs);
  if (!library.ok()) return;
  program->private_abi = library->GreatestNumberAfter(abi::kRegisterFunction);
  program->public_version = library->GreatestNumberAfter(abi::kPublicVersion);
}

}  // namespace

std::string FindInPath(const std::string& name) {
  if (name.empty()) return "";
  if (absl::StrContains(name, '/')) return Exists(name) ? name : "";
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder :
       absl::StrSplit(path != nullptr ? path : "/bin:/usr/bin", ':')) {
    const std::string file = absl::StrCat(folder.empty() ? "." : folder, "/", name);
    if (IsExecutable(file)) return file;
  }
  return "";
}

Program InspectProgram(const std::string& command) {
  Program program;
  std::string path = FindInPath(command);
  for (int scripts = 0; scripts <= kMaxScripts && !path.empty(); ++scripts) {
    const std::string interpreter = InterpreterOf(path);
    if (interpreter.empty()) break;
    path = interpreter;
  }
  const absl::StatusOr<ElfFile> file = ReadElf(path);
  if (!path.empty()) program.gains_privilege = GainsPrivilege(path);
  if (!file.ok()) return program;
  program.path = path;
  program.is_native = file->is_native;
  program.interpreter = file->interpreter;
  FindLibibverbs(&program);
  return program;
}

}  // namespace roci::tools
