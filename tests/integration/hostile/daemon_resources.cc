#include "tests/integration/hostile/daemon_resources.h"

#include <sys/stat.h>

#include <cctype>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tools/show/manage_client.h"

namespace roci::testing::hostile {
namespace {

// A sanitizer's allocator keeps freed memory in its own mappings.
bool IsSanitized() { return std::getenv("ROCI_HOSTILE_SANITIZED") != nullptr; }
// Heap that malloc retains, in several arenas.
uint64_t RssAllowanceKib() { return IsSanitized() ? 1024 << 10 : 96 << 10; }
uint64_t AnonymousAllowance() { return IsSanitized() ? 4096 : 64; }
constexpr uint64_t kLogAllowance = 1 << 20;

std::string Proc(const char* name) { return "/proc/" + std::to_string(DaemonPid()) + "/" + name; }

// Removes numbers, so that "socket:[123]" and "socket:[4]" are the same kind.
std::string KindOf(std::string link) {
  std::erase_if(link, [](unsigned char c) { return std::isdigit(c) != 0; });
  return link;
}

void ReadMappings(DaemonResources& out) {
  std::ifstream maps(Proc("maps"));
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string range, rights, offset, device, inode;
    fields >> range >> rights >> offset >> device >> inode;
    ++(inode == "0" ? out.anonymous_mappings : out.file_mappings);
  }
}

uint64_t RssKib() {
  std::ifstream status(Proc("status"));
  for (std::string word; status >> word;) {
    uint64_t kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib;
  }
  return 0;
}

void AddObjects(DaemonResources& out) {
  const auto show = [](const char* what) {
    return tools::AskDaemon("", {{"command", "show"}, {"what", what}});
  };
  const auto devices = show("devices");
  if (!devices.ok()) return;
  for (const nlohmann::json& device : *devices) {
    const std::string name = device["name"];
    out.objects[name + " sessions"] = device["sessions"];
    for (const auto& [kind, value] : device.items()) {
      if (value.is_object() && value.contains("used"))
        out.objects[name + " " + kind] = value["used"];
    }
  }
  for (const char* kind : {"apps", "connections"}) {
    const auto rows = show(kind);
    if (rows.ok()) out.objects[kind] = rows->size();
  }
}

}  // namespace

pid_t DaemonPid() {
  const char* pid = std::getenv("ROCID_PID");
  return pid != nullptr ? static_cast<pid_t>(std::atoi(pid)) : 0;
}

bool DaemonIsAlive() {
  std::ifstream stat(Proc("stat"));
  std::string number, name, state;
  return stat >> number >> name >> state && state != "Z" && state != "X";
}

DaemonResources ReadDaemonResources() {
  DaemonResources out;
  std::error_code error;
  for (std::filesystem::directory_iterator it(Proc("fd"), error), end; it != end; ++it) {
    ++out.descriptors[KindOf(std::filesystem::read_symlink(*it, error))];
  }
  ReadMappings(out);
  out.rss_kib = RssKib();
  struct stat log {};
  if (stat(Proc("fd/2").c_str(), &log) == 0 && S_ISREG(log.st_mode)) {
    out.log_bytes = static_cast<uint64_t>(log.st_size);
  }
  AddObjects(out);
  return out;
}

std::string Excess(const DaemonResources& before, const DaemonResources& after) {
  std::ostringstream out;
  const auto compare = [&](const std::string& what, uint64_t was, uint64_t is, uint64_t allowance) {
    if (is > was + allowance) out << what << ": " << is << " instead of " << was << "; ";
  };
  if (after.objects.empty()) out << "the daemon does not answer; ";
  compare("mappings of files", before.file_mappings, after.file_mappings, 0);
  compare("other mappings", before.anonymous_mappings, after.anonymous_mappings,
          AnonymousAllowance());
  compare("resident KiB", before.rss_kib, after.rss_kib, RssAllowanceKib());
  compare("bytes of log", before.log_bytes, after.log_bytes, kLogAllowance);
  const auto compare_all = [&](const std::string& what, const auto& was, const auto& is) {
    for (const auto& [kind, count] : is) {
      const auto known = was.find(kind);
      compare(what + kind, known != was.end() ? known->second : 0, count, 0);
    }
  };
  compare_all("descriptors of ", before.descriptors, after.descriptors);
  compare_all("", before.objects, after.objects);
  return out.str();
}

}  // namespace roci::testing::hostile
