// Prints the behaviour of registered memory as a table (docs/memory.md): an operation on a kind of
// memory, at a time relative to its registration, and what program and device then see.
//
// Usage: memory_table -d DEVICE [-g GID_INDEX] [-f FOLDER] [-t SECONDS] [-u USER_ID] [-r FILE] [-o
// TEXT] [-l]
//
//   -f  a folder on a file system with O_DIRECT and shared mappings (default /tmp)
//   -t  time limit of a row, in seconds (default 20)
//   -u  run the rows as this user
//   -r  run only the rows whose first three columns are a line of FILE
//   -o  run only the rows whose first three columns contain TEXT
//   -l  print the first three columns of all rows
//
// Prints a line per row: operation, kind, time; errno of the operation, what the program sees, the
// result of a READ by the device, whether a WRITE by the device is visible, remarks. Every row runs
// in its own process, which opens the device. The last column reports a crash or hang.
#include <grp.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>

#include "tests/interop/memory_row.h"

namespace interop {
namespace {

struct Options {
  Settings settings;
  int limit_s = 20;
  uid_t user = 0;
  std::string only;
  std::string rows_file;
  bool list = false;
};

struct TableRow {
  std::string name;  // the first three columns
  std::function<Result()> run;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int option = 0; (option = getopt(argc, argv, "d:g:f:t:u:r:o:l")) != -1;) {
    switch (option) {
      case 'd':
        options.settings.device.name = optarg;
        break;
      case 'g':
        options.settings.device.gid_index = atoi(optarg);
        break;
      case 'f':
        options.settings.folder = optarg;
        break;
      case 't':
        options.limit_s = atoi(optarg);
        break;
      case 'u':
        options.user = static_cast<uid_t>(atoi(optarg));
        break;
      case 'r':
        options.rows_file = optarg;
        break;
      case 'o':
        options.only = optarg;
        break;
      case 'l':
        options.list = true;
        break;
      default:
        exit(2);
    }
  }
  return options;
}

// The region of kind "stack" lies on this function's stack.
Result RunWithStack(const Settings& settings, NamedOperation& operation, const std::string& kind,
                    Moment moment) {
  auto* stack = static_cast<uint8_t*>(__builtin_alloca(StackBytes()));
  return RunRow(settings, operation, kind, moment, stack);
}

std::vector<TableRow> AllRows(const Settings& settings, std::vector<NamedOperation>& operations) {
  std::vector<TableRow> rows;
  for (NamedOperation& operation : operations) {
    for (const std::string& kind : Kinds()) {
      if (operation.suits != nullptr && !operation.suits(kind)) continue;
      for (size_t i = 0; i < std::size(kMoments); ++i) {
        rows.push_back({operation.name + '\t' + kind + '\t' + kMoments[i],
                        [&settings, &operation, kind, moment = static_cast<Moment>(i)] {
                          return RunWithStack(settings, operation, kind, moment);
                        }});
      }
    }
  }
  for (const SpecialRow& row : SpecialRows()) {
    rows.push_back({std::string(row.name) + '\t' + row.kind + "\t-",
                    [&settings, &row] { return row.run(settings); }});
  }
  return rows;
}

// Runs in the row's own process.
[[noreturn]] void RunChild(const TableRow& row, const Options& options, int out) {
  setpgid(0, 0);
  if (options.user != 0 &&
      (setgroups(0, nullptr) != 0 || setgid(options.user) != 0 || setuid(options.user) != 0)) {
    _exit(1);
  }
  CatchFaults();
  const Result result = row.run();
  const std::string line = result.error + '\t' + result.sees + '\t' + result.reads + '\t' +
                           result.writes + '\t' + result.remark;
  _exit(write(out, line.data(), line.size()) == static_cast<ssize_t>(line.size()) ? 0 : 1);
}

// Returns what the row's process wrote, or "" if it wrote nothing in time.
std::string Hear(int in, int limit_s) {
  pollfd readable = {in, POLLIN, 0};
  if (poll(&readable, 1, limit_s * 1000) != 1) return "";
  char line[1024];
  const ssize_t length = read(in, line, sizeof(line));
  return length > 0 ? std::string(line, static_cast<size_t>(length)) : "";
}

std::string RunProcess(const TableRow& row, const Options& options) {
  int ends[2];
  if (pipe(ends) != 0) exit(1);
  const pid_t child = fork();
  if (child == 0) RunChild(row, options, ends[1]);
  close(ends[1]);
  const auto start = std::chrono::steady_clock::now();
  std::string line = Hear(ends[0], options.limit_s);
  const bool hung =
      std::chrono::steady_clock::now() - start >= std::chrono::seconds(options.limit_s);
  close(ends[0]);
  // A process that wrote its line is done. Any other is stuck, or dead already.
  int status = 0;
  if (hung) kill(child, SIGKILL);
  waitpid(child, &status, 0);
  kill(-child, SIGKILL);  // kills the row's child processes
  if (!line.empty()) return line;
  return std::string("-\t-\t-\t-\t") + (hung ? "hung" : "crashed");
}

std::set<std::string> ReadLines(const std::string& path) {
  std::set<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.insert(line);
  return lines;
}

int Run(const Options& options) {
  std::vector<NamedOperation> operations;
  AddMappings(operations);
  AddProcesses(operations);
  AddKernel(operations);
  const std::set<std::string> wanted =
      options.rows_file.empty() ? std::set<std::string>() : ReadLines(options.rows_file);
  for (const TableRow& row : AllRows(options.settings, operations)) {
    if (row.name.find(options.only) == std::string::npos) continue;
    if (!options.rows_file.empty() && !wanted.contains(row.name)) continue;
    if (options.list) {
      printf("%s\n", row.name.c_str());
      continue;
    }
    printf("%s\t%s\n", row.name.c_str(), RunProcess(row, options).c_str());
    fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace interop

int main(int argc, char** argv) { return interop::Run(interop::Parse(argc, argv)); }
