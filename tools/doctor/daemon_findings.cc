#include "tools/doctor/daemon_findings.h"

#include <cstring>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "verbs_provider/abi/session_head.h"

namespace roci::tools {
namespace {

std::string ToolAbi() { return absl::StrCat(ROCI_ABI_MAJOR, ".", ROCI_ABI_MINOR); }

// A text in rocid's answer; "?": it has none.
std::string TextOf(const DaemonFacts& facts, const char* key) {
  const auto text = facts.answer.find(key);
  return text != facts.answer.end() && text->is_string() ? text->get<std::string>() : "?";
}

// "rocid 0.1.0 (process 17, user 0)"
std::string Who(const DaemonFacts& facts) {
  std::string who = "rocid";
  if (facts.answer.is_object()) absl::StrAppend(&who, " ", TextOf(facts, "version"));
  return absl::StrCat(who, " (",
                      facts.pid != 0 ? absl::StrCat("process ", facts.pid) : "in another container",
                      ", user ", facts.uid, ")");
}

Finding JudgeAnswer(const DaemonFacts& facts, const std::string& version) {
  constexpr char kName[] = "daemon";
  constexpr char kRemedy[] = "install daemon, tool and plugin of one version and restart rocid";
  const std::string daemon_version = TextOf(facts, "version");
  const std::string abi = TextOf(facts, "abi");
  const std::string found =
      absl::StrCat(Who(facts), " answers at ", facts.runtime_dir, ", session ABI ", abi);
  int major = 0;
  if (!absl::SimpleAtoi(abi.substr(0, abi.find('.')), &major) || major != ROCI_ABI_MAJOR) {
    return Fatal(kName,
                 absl::StrCat(found, "; roci ", version, " has ", ToolAbi(), ", so the ",
                              major < ROCI_ABI_MAJOR ? "daemon" : "tool", " is too old"),
                 "programs cannot open devices with a plugin of roci's version", kRemedy);
  }
  if (daemon_version != version) {
    return Slow(kName, absl::StrCat(found, "; roci is ", version),
                "what only the newer one of them knows does not work", kRemedy);
  }
  return Ok(kName, absl::StrCat(found, "; roci ", version));
}

// A thing that rocid needs a capability for.
struct Right {
  const char* thing;  // in "errors"
  const char* name;
  const char* cost;
  const char* remedy;
};

constexpr Right kRights[] = {
    {"raw_sockets", "raw sockets", "no ports packet:NAME, net_af_packet, net_af_xdp",
     "CAP_NET_RAW"},
    {"tap", "/dev/net/tun", "no ports net_tap", "CAP_NET_ADMIN and /dev/net/tun"},
    {"map_files", "/proc/PID/map_files",
     "shared memory without an open descriptor is accessed by system calls",
     "CAP_CHECKPOINT_RESTORE"},
    {"keep_pages", "queues without holes",
     "other users' programs can delay rocid by punching holes into queues",
     "CAP_LINUX_IMMUTABLE (Linux 6.0)"},
};

}  // namespace

Finding JudgeDaemon(const DaemonFacts& facts, const std::string& version) {
  constexpr char kName[] = "daemon";
  switch (facts.state) {
    case DaemonState::kAbsent: {
      const std::string own =
          facts.answer.is_object()
              ? absl::StrCat(" (rocid ", TextOf(facts, "version"), " is installed)")
              : " (nor is rocid beside this program or in $PATH)";
      return Missing(kName, absl::StrCat("no daemon is running at ", facts.runtime_dir, own),
                     "no devices", "start rocid, or name its directory with --runtime-dir");
    }
    case DaemonState::kSilent:
      return Fatal(
          kName,
          absl::StrCat(Who(facts), " at ", facts.runtime_dir, " does not answer: ", facts.problem),
          "programs that open a device wait, then fail",
          "look whether it is stopped or overloaded (its log, top); restart it");
    case DaemonState::kPrivate:
      return Ok(kName,
                absl::StrCat(Who(facts), " listens at ", facts.runtime_dir, "; roci ", version,
                             ", session ABI ", ToolAbi(),
                             ". Only its user and root, with its capabilities, may ask it more"));
    case DaemonState::kAnswers:
      break;
  }
  return JudgeAnswer(facts, version);
}

Finding JudgeCapabilities(const DaemonFacts& facts) {
  constexpr char kName[] = "capabilities";
  const char* const who = facts.is_running() ? "rocid" : "a rocid of this user";
  std::vector<std::string> has, lacks, costs, remedies;
  for (const Right& right : kRights) {
    const std::optional<int> error = facts.ErrorOf(right.thing);
    if (!error) continue;
    if (*error == 0) {
      has.push_back(right.name);
    } else {
      lacks.push_back(absl::StrCat(right.name, " (", std::strerror(*error), ")"));
      costs.push_back(right.cost);
      remedies.push_back(right.remedy);
    }
  }
  if (has.empty() && lacks.empty()) {
    return Ok(kName, "not known: ask as rocid's user or root, with rocid installed");
  }
  if (lacks.empty()) return Ok(kName, absl::StrCat(who, " has ", absl::StrJoin(has, ", ")));
  return Slow(kName, absl::StrCat(who, " lacks ", absl::StrJoin(lacks, ", ")),
              absl::StrJoin(costs, "; "),
              absl::StrCat("grant rocid what is needed (setcap, or AmbientCapabilities= in its "
                           "unit): ",
                           absl::StrJoin(remedies, ", ")));
}

Finding JudgeDrivers(const DaemonFacts& facts) {
  constexpr char kName[] = "dpdk_drivers";
  const nlohmann::json drivers =
      facts.answer.is_object() ? facts.answer.value("drivers", nlohmann::json()) : nullptr;
  if (!drivers.is_object()) {
    return Ok(kName, "not known: ask as rocid's user or root, with rocid installed");
  }
  std::vector<std::string> found, lacking;
  for (const auto& [name, is_there] : drivers.items()) {
    (is_there == true ? found : lacking).push_back(name);
  }
  const std::string text =
      found.empty() ? "none found" : absl::StrCat("found: ", absl::StrJoin(found, ", "));
  if (lacking.empty()) return Ok(kName, text);
  if (drivers.value("mempool_ring", true) == false) {
    return Fatal(kName, absl::StrCat(text, ", not mempool_ring"), "rocid does not start",
                 "Debian: apt install librte-mempool-ring23 (or of DPDK's version here)");
  }
  const std::string cost = absl::StrCat("no ports ", absl::StrJoin(lacking, ", "),
                                        " (wires and packet:NAME need no driver)");
  return Slow(kName, text, cost,
              "Debian: apt install the librte-net packages of these, or librte-meta-net");
}

}  // namespace roci::tools
