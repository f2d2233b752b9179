// roci fault add|list|del: exact faults of packets, completions and verbs calls
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "control/config/fault_keys.h"
#include "dataplane/types/fault_settings.h"
#include "roce/headers.h"
#include "roce/types.h"
#include "roce/work.h"
#include "tools/commands.h"
#include "tools/decode/capture_file.h"
#include "tools/decode/gunzip.h"
#include "tools/link/selection.h"
#include "tools/show/answer_output.h"
#include "tools/show/manage_client.h"
#include "tools/show/tables.h"

namespace roci::tools {
namespace {

using Json = nlohmann::json;

constexpr char kManual[] =
    R"(Drop, delay, change, ... exactly chosen RoCE packets of device DEV, or inject others. With --completion,
change completions; with --verb, make calls of programs fail or take longer. All conditions must hold.

Which packets:
  --direction  out (default) or in
  --qp         of these queue pairs: as destination, as sender, or as source of a datagram
  --program    of queue pairs of programs with this name (as in ps -o comm), or of this process number
  --created    of the N-th queue pair that is created on the device from now on (with --program: by all
               its programs together)
  --peer       of this address at the other end: 10.99.0.2
  --opcode     with these opcodes: RC_SEND_ONLY, '*READ_REQUEST', 0x11
  --cm         messages of the connection manager: req, mra, rej, rep, rtu, dreq, drep, sidr_req, sidr_rep,
               lap, apr
  --psn        with this PSN: 1000, or +5 for the fifth after the first packet to the same queue pair
               that the fault has seen, of its kind (request or response)
  --pass       with --psn: only when this PSN passes for the N-th time; 2 is the first retransmission

Which completions, of those that succeed:
  --completion of this opcode (enum ibv_wc_opcode): send, rdma_write, rdma_read, comp_swap, fetch_add, bind_mw,
               local_inv, atomic_write, flush, recv, recv_rdma_with_imm, or a pattern: '*'. Unsignaled work
               requests have none
  --qp, --program, --created  of these queue pairs
  With --lose-event, of those that would raise a completion event

Which calls:
  --verb       of this name in libibverbs, without ibv_: reg_mr, 'create_*'. Not those that need no daemon
               (posting, polling, create_ah). Work queues count as queue pairs: create_qp, ... Of librdmacm:
               rdma_resolve_addr, rdma_resolve_route, rdma_connect, rdma_accept, rdma_reject, rdma_disconnect,
               rdma_join_multicast, and patterns that begin with rdma_
  --program    of programs with this name, or of this process number

When (of the packets or calls for which all of this holds):
  --after      from this time after the command on;  --for: only for this long
  --nth        of those that are left, the N-th only; with --every or --times, from the N-th on
  --every      every N-th of them
  --times      at most this number; 0: no limit (the default, but with --nth alone)
  --chance     each with this probability, which --seed and the packet's number decide

What to do with packets (several at once, except with --drop):
  --drop       drop it
  --delay      hold it for a time
  --reorder    hold it until N later packets of the direction have passed (at most 1s)
  --duplicate  send N more copies
  --truncate   cut N bytes off its end
  --ecn        set CE, if it is ECN capable (RFC 3168)
  --set        change a field: bth.psn+=1, aeth.syndrome=nak_access, reth.rkey=0. --set help lists all
  --flip       invert a bit, counted from 0 in the order of transmission: payload:7, headers:0 (from
               the BTH on), icrc:31
  --icrc       fix: compute the ICRC again, keep: leave the old one. Default: fix with --set, keep
               with --flip alone
  --inject     put a frame in front of it: cnp, nak_psn, nak_invalid, nak_access, nak_operational or rnr_nak
               to the requester (beside a response, or back to the sender of a request); stale: the first
               packet that matched, again; with --cm rep, dreq: the other end seems to disconnect
  --replay     put frame N of a capture in front of it, unchanged: FILE:N (N from 1)
  --reject     with --cm req, rep or sidr_req: drop the message and answer with REJ (SIDR_REP) of this
               reason: a number, or as in Linux (enum ib_cm_rej_reason): no_qp, no_resources, timeout,
               stale_conn, invalid_service_id, consumer_defined, ...
  With --inject and --replay, --set, --flip and --ecn change the injected frame instead, and --drop replaces
  the packet by it

What to do with completions:
  --status     they report this (enum ibv_wc_status): loc_len_err, loc_qp_op_err, loc_prot_err, wr_flush_err,
               mw_bind_err, bad_resp_err, loc_access_err, rem_inv_req_err, rem_access_err, rem_op_err,
               retry_exc_err, rnr_retry_exc_err, rem_abort_err, fatal_err, resp_timeout_err, general_err. Their
               queue pair goes to ERR
  --vendor-error  with --status: their vendor_err, instead of the number of the status
  --delay      programs see them, and later entries of their completion queue, after this time;
               one that is hit there comes with the first and is not delayed by its own time
  --lose-event the completion event that they raise is lost
  --overflow   they do not fit: the completion queue overflows (IBV_EVENT_CQ_ERR)

What to do with calls:
  --errno      they fail with it: ENOMEM, or a number. rdma_resolve_addr and rdma_resolve_route fail with
               the event (RDMA_CM_EVENT_ADDR_ERROR, ROUTE_ERROR)
  --delay      they take longer by this time, and fail only then; all faults together at most 20s, and
               open_device 4s. Other calls of the same context wait, too. Not librdmacm's
  --limit      query_device and query_port answer with at most this: max_qp=16, max_qp_wr, max_sge, max_cqe,
               max_mr, max_msg_sz, ... (names as in struct ibv_device_attr and ibv_port_attr)

Counts are of the whole device, whatever the number of lcores. Only --reorder, --psn +N, --pass and
the first packet of --inject stale are of one lcore. Faults apply in the order of their creation,
before impairments (roci impair). A fault of one queue pair is deleted with it. A device has at most
1024 of packets, 64 of completions and 64 of calls. Permitted for the daemon's user and root only;
lost when the daemon ends.

Examples:
  roci fault add roci0 --drop --opcode RC_SEND_ONLY --psn +999   # the 1000th, however often it is sent
  roci fault add roci0 --drop --psn +100 --pass 1              # lost once, its retransmission passes
  roci fault add roci0 --set aeth.syndrome=nak_access --opcode RC_ACKNOWLEDGE --nth 3
  roci fault add roci1 --direction in --flip payload:0 --icrc fix --every 100
  roci fault add roci0 --completion rdma_read --status rem_access_err --nth 1000
  roci fault add roci0 --verb reg_mr --errno ENOMEM --nth 3
  roci fault add roci0 --drop --cm rep --times 1
  roci fault add roci0 --direction in --cm req --reject no_resources
  roci fault add roci1 --inject cnp --opcode RC_SEND_ONLY --every 100
  roci fault add roci1 --replay run.pcapng:17 --program rping --created 1 --nth 5
  roci fault list roci0
  roci fault del roci0 1
  roci fault del roci0 all)";

// The value of an option that control::FaultKeys() lists.
struct KeyValue {
  bool flag = false;
  std::string text;
  std::vector<std::string> texts;
};

struct FaultOptions {
  std::string device;
  std::vector<KeyValue> values = std::vector<KeyValue>(control::FaultKeys().size());
  std::string replay;
  std::string which;  // of `del`
  bool json = false;
  Selection selection;

  const KeyValue& Of(std::string_view name) const {
    const auto keys = control::FaultKeys();
    const auto found = std::ranges::find(keys, name, &control::FaultKey::name);
    return values[static_cast<size_t>(found - keys.begin())];
  }
};

// Frame N of a capture, by "FILE:N", in hexadecimal digits. Nothing, and a message: there is none.
std::optional<std::string> ReadFrame(const std::string& text) {
  const size_t colon = text.rfind(':');
  const auto number =
      colon != std::string::npos ? ParseNumber(text.substr(colon + 1), kMostInJson) : std::nullopt;
  if (!number || *number == 0) {
    std::fprintf(stderr, "roci: %s must be FILE:N, with the number of a frame from 1\n",
                 text.c_str());
    return std::nullopt;
  }
  const std::string path = text.substr(0, colon);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) {
    std::fprintf(stderr, "roci: %s: %s\n", path.c_str(), std::strerror(errno));
    return std::nullopt;
  }
  Gunzip gunzip([&](std::byte* p, size_t n) { return std::fread(p, 1, n, file.get()); });
  CaptureReader reader([&](std::byte* p, size_t n) { return gunzip.Read(p, n); });
  CaptureRecord record;
  while (reader.Next(record) == CaptureReader::Outcome::kRecord) {
    if (record.number != *number) continue;
    if (record.link_type != kLinkTypeEthernet || record.bytes.size() < record.original_length) {
      std::fprintf(stderr, "roci: frame %s is cut, or not of Ethernet\n", text.c_str());
      return std::nullopt;
    }
    const size_t bytes = record.bytes.size();
    if (bytes < roce::EthernetHeader::kBytes || bytes > dataplane::Injection::kMostBytes) {
      std::fprintf(stderr, "roci: frame %s has %zu bytes; one of %u to %zu can be replayed\n",
                   text.c_str(), bytes, roce::EthernetHeader::kBytes,
                   size_t{dataplane::Injection::kMostBytes});
      return std::nullopt;
    }
    const auto* const raw = reinterpret_cast<const char*>(record.bytes.data());
    return absl::BytesToHexString(absl::string_view(raw, bytes));
  }
  std::fprintf(stderr, "roci: %s has no frame %s%s%s\n", path.c_str(),
               text.substr(colon + 1).c_str(), reader.error().empty() ? "" : ": ",
               reader.error().c_str());
  return std::nullopt;
}

Json FaultOf(const FaultOptions& options) {
  Json fault = Json::object();
  AddSelection(options.selection, fault);
  for (size_t i = 0; i < options.values.size(); ++i) {
    const auto& [flag, text, texts] = options.values[i];
    const control::FaultKey& key = control::FaultKeys()[i];
    if (flag || !text.empty()) control::TakeFaultValue(key, text, fault);
    for (const std::string& each : texts) control::TakeFaultValue(key, each, fault);
  }
  return fault;
}

int ListFields() {
  for (const roce::PacketField& field : roce::PacketFields()) {
    std::printf("%-20.*s %2u bits\n", static_cast<int>(field.name.size()), field.name.data(),
                field.bits);
  }
  return 0;
}

int AddFault(const FaultOptions& options, const std::string& runtime_dir) {
  if (options.Of("set").texts == std::vector<std::string>{"help"}) return ListFields();
  const std::string& delay = options.Of("delay").text;
  if (options.Of("verb").text.empty() && !delay.empty() && !ParseDuration(delay)) {
    std::fprintf(stderr, "roci: %s is not a time up to 5s (only calls can take longer)\n",
                 delay.c_str());
    return 2;
  }
  Json fault = FaultOf(options);
  if (!options.replay.empty()) {
    const std::optional<std::string> frame = ReadFrame(options.replay);
    if (!frame) return 2;
    fault["frame"] = *frame;
  }
  const Json request = {
      {"command", control::kFaultCommand}, {"device", options.device}, {"add", fault}};
  return PrintAnswer(AskDaemon(runtime_dir, request), options.json, FormatFaults);
}

int Ask(const FaultOptions& options, const std::string& runtime_dir) {
  Json request = {{"command", control::kFaultCommand}, {"device", options.device}};
  if (options.which == "all") {
    request["clear"] = true;
  } else if (!options.which.empty()) {
    request["remove"] = *ParseNumber(options.which, UINT32_MAX);
  }
  return PrintAnswer(AskDaemon(runtime_dir, request), options.json, FormatFaults);
}

void AddKeyOption(CLI::App& command, const control::FaultKey& key, KeyValue& out) {
  using Kind = control::FaultKeyKind;
  const std::string name = absl::StrCat("--", std::string(key.name));
  if (key.kind == Kind::kFlag) {
    command.add_flag(name, out.flag, key.help);
    return;
  }
  CLI::Option* option = key.takes_several()
                            ? command.add_option(name, out.texts, key.help)->allow_extra_args(false)
                            : command.add_option(name, out.text, key.help);
  option->check([&key](const std::string& text) {
    Json ignored;
    return control::TakeFaultValue(key, text, ignored);
  });
}

void AddFaultOptions(CLI::App& command, FaultOptions& options) {
  AddSelectionOptions(command, options.selection);
  for (size_t i = 0; i < options.values.size(); ++i) {
    const control::FaultKey& key = control::FaultKeys()[i];
    if (key.name != "qp" && key.name != "opcode") AddKeyOption(command, key, options.values[i]);
  }
  command.add_option("--replay", options.replay, "Put a frame of a capture in front: FILE:N");
}

}  // namespace

void AddFaultCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<FaultOptions>();
  CLI::App* command = app.add_subcommand(
      "fault", "Lose, delay, change, ... exactly chosen packets, completions, calls");
  command->require_subcommand(1);
  command->footer(kManual);
  const auto add_common = [options](CLI::App* to) {
    to->add_option("DEV", options->device, "The device: roci0")->required();
    to->add_flag("--json", options->json, "Print JSON");
  };
  CLI::App* add = command->add_subcommand("add", "Add a fault");
  add_common(add);
  AddFaultOptions(*add, *options);
  add->callback(
      [options, &context] { context.exit_status = AddFault(*options, context.runtime_dir); });
  CLI::App* list = command->add_subcommand("list", "List the faults of a device and their counts");
  add_common(list);
  list->callback([options, &context] { context.exit_status = Ask(*options, context.runtime_dir); });
  CLI::App* remove = command->add_subcommand("del", "Delete one fault of a device, or all");
  add_common(remove);
  remove->add_option("NUMBER", options->which, "Its number, or all")
      ->required()
      ->check([](const std::string& text) {
        return text == "all" || ParseNumber(text, UINT32_MAX) ? std::string()
                                                              : text + " is not a number or all";
      });
  remove->callback(
      [options, &context] { context.exit_status = Ask(*options, context.runtime_dir); });
}

}  // namespace roci::tools
