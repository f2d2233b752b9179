// roci event: raises an asynchronous event of verbs in programs
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "control/manage/event_table.h"
#include "tools/commands.h"
#include "tools/link/selection.h"
#include "tools/show/answer_output.h"
#include "tools/show/manage_client.h"

namespace roci::tools {
namespace {

constexpr char kManual[] =
    R"(Raise an asynchronous event (ibv_get_async_event(3)) in programs, and set the state that it reports.
EVENT is one of these:

  of a queue pair (--qp)
    qp_fatal, qp_req_err, qp_access_err       it goes to ERR
    comm_est, sq_drained, qp_last_wqe_reached, path_mig, path_mig_err
  of a work queue of receive side scaling (--wq)
    wq_fatal                                  it goes to ERR
  of a completion queue (--cq)
    cq_err                                    it has overflowed: its queue pairs go to ERR
  of a shared receive queue (--srq)
    srq_err                                   it is broken: queue pairs that need it go to ERR
    srq_limit_reached
  of the port, in all programs that have DEV open
    port_err, port_active                     the link goes down or up, as with `roci link`
    gid_change, pkey_change, sm_change, lid_change, client_reregister
  of the device, in all programs that have it open
    device_fatal                              their contexts are dead: they must open it again

An XRC receive queue pair's events go to all programs that have it open. An event that changes nothing
(the link is down already) is refused. Permitted for the daemon's user and root only.

Examples:
  roci event roci0 qp_fatal --qp 18
  roci event roci0 cq_err --cq 1711341              # a handle as in `roci show cqs`
  roci event roci0 device_fatal)";

constexpr bool IsOfName(char c) { return c == '_' || (c >= 'a' && c <= 'z'); }
// Whether the manual's list, which is before the examples, has the name as a word.
constexpr bool IsInManual(std::string_view name) {
  constexpr std::string_view kText =
      std::string_view(kManual).substr(0, std::string_view(kManual).find("Examples:"));
  for (size_t at = kText.find(name); at != kText.npos; at = kText.find(name, at + 1)) {
    if (!IsOfName(kText[at - 1]) && !IsOfName(kText[at + name.size()])) return true;
  }
  return false;
}
static_assert(std::ranges::all_of(control::kEventTable, IsInManual, &control::EventRow::name));

struct EventOptions {
  std::string device;
  std::string event;
  std::string qp, wq, cq, srq, pid;
  bool json = false;
};

void AddNumber(nlohmann::json& request, const char* key, const std::string& text) {
  if (!text.empty()) request[key] = *ParseNumber(text, UINT32_MAX);
}

int Raise(const EventOptions& options, const std::string& runtime_dir) {
  nlohmann::json request = {
      {"command", control::kEventCommand}, {"device", options.device}, {"event", options.event}};
  AddNumber(request, "qp", options.qp);
  AddNumber(request, "wq", options.wq);
  AddNumber(request, "cq", options.cq);
  AddNumber(request, "srq", options.srq);
  AddNumber(request, "pid", options.pid);
  return PrintAnswer(AskDaemon(runtime_dir, request), options.json, [&](const auto& answer) {
    const uint64_t programs = answer.value("programs", uint64_t{0});
    return absl::StrCat(options.device, ": ", options.event, " in ", programs, " program",
                        programs == 1 ? "" : "s", "\n");
  });
}

}  // namespace

void AddEventCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<EventOptions>();
  CLI::App* command = app.add_subcommand("event", "Raise an asynchronous event in programs");
  command->footer(kManual);
  command->add_option("DEV", options->device, "The device: roci0")->required();
  command->add_option("EVENT", options->event, "The event: qp_fatal")->required();
  command->add_flag("--json", options->json, "Print JSON");
  const auto add_number = [command](const char* name, std::string& out, const char* help) {
    command->add_option(name, out, help)->check([](const std::string& text) {
      return ParseNumber(text, UINT32_MAX) ? std::string() : text + " is not a number";
    });
  };
  add_number("--qp", options->qp, "The queue pair with this number");
  add_number("--wq", options->wq, "The work queue with this number");
  add_number("--cq", options->cq, "The completion queue with this handle");
  add_number("--srq", options->srq, "The shared receive queue with this handle");
  add_number("--pid", options->pid, "Of this process, if several have such a handle");
  command->callback(
      [options, &context] { context.exit_status = Raise(*options, context.runtime_dir); });
}

}  // namespace roci::tools
