// roci decode FILE
#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tools/commands.h"
#include "tools/decode/capture_file.h"
#include "tools/decode/describe.h"
#include "tools/decode/dissect.h"
#include "tools/decode/gunzip.h"

namespace roci::tools {
namespace {

constexpr int kFailed = 1;
constexpr int kTrouble = 2;

constexpr char kManual[] =
    R"(FILE is a capture in pcap format (times in micro- or nanoseconds, either byte order, and
Kuznetsov's "modified" format) or pcapng format (any number of sections and interfaces), as it is or
compressed with gzip; `-` is standard input, which may be a capture that still goes on: each frame
is printed when it arrives. Link types: Ethernet, Linux cooked (SLL and SLL2), BSD loopback (NULL
and LOOP), raw IP.

Every RoCE frame becomes one line: RoCEv2 (UDP to port 4791, over IPv4 or IPv6) and RoCEv1
(EtherType 0x8915). They are found behind VLAN tags of any number, LLC/SNAP, MPLS, PPPoE and
backbone tags, and in the tunnels VXLAN, GENEVE, GRE (NVGRE, ERSPAN, PPTP), NSH, EtherIP, IP in IP,
up to 32 headers in all. Frames of other kinds are counted only. A line has the number of the frame
in the file, its time, the headers with all fields (eth, vlan, ipv4 or ipv6, udp, or for v1 grh,
then bth, and of rdeth, deth, xrceth, feth, reth, atomiceth, aeth, atomicacketh, immdt, ieth, cnp
those that the opcode has), then
  payload     bytes of payload, without pad and ICRC
  pad         the pad's bytes in hexadecimal, if they are not zero
  trailer     bytes behind the packet: Ethernet padding, or a frame check sequence
  icrc        good; bad, with what was found and what it should be, both in the order of the wire;
              or unchecked
  reencoded   same: encoding what was read gives the same bytes again. Or where it differs
  malformed   why a device would drop the frame: the name of the counter in `roci show ports`.
              RoCEv1, which our devices do not speak, is judged like v2 with other headers in front,
              and is not_roce if its GRH says that another transport follows. Reliable datagrams
              (RD) are shown, but no RoCE device serves them: reserved_opcode
  cut         the capture has less of the frame than was sent: it cannot be verified
  verdict     ok, failed or cut
In front of the headers stands, where there is one, what was around them, outermost first:
  in          the header's name, and src and dst of ipv4 and ipv6, vni of vxlan and geneve, label of
              mpls, vid of vlan, session of pppoe and erspan, key of gre (of NVGRE its upper 24 bits
              are the network), path of nsh, isid of pbb
(eth is the innermost Ethernet header, and vlan what is behind it.) A UDP checksum that is there
(not 0) and wrong has behind it what it should be (computed). A frame does not fail for it, since a
device looks at the ICRC only, nor for reserved bits and pad bytes. With --json a line is a JSON
object with these names, numbers in decimal; vlan and in are arrays.

The last line, on standard error, counts the frames: all, those of RoCE, those that failed and those
that are cut. Behind that come, if there are any, those that were not looked at: cut or with headers
that end too early to tell what they are (or are too many, or of unknown versions), of other link
types than the above, and those in which RoCE may be hidden: later fragments of IP packets, and what
is in macsec, trill, esp, ah (over IPv4), ipcomp, l2tp, gtp.

Exit status: 0 if no frame failed; 1 if one is malformed, has a bad ICRC or was not encoded the same
again, or if the file is damaged (what was before the damage is printed); 2 for wrong usage, for
files that cannot be read or are no captures, and when the output cannot be written, which ends the
work, and if no frame failed but some are of a link type that is not understood. Frames that are cut
do not fail.

Examples:
  roci decode traffic.pcapng
  tcpdump -i eth0 -w - udp port 4791 | roci decode -
  roci decode --json traffic.pcap | jq 'select(.aeth.kind == "nak")')";

struct DecodeOptions {
  std::string path;
  bool json = false;
  bool failed_only = false;
};

struct Totals {
  uint64_t frames = 0;
  std::array<uint64_t, 6> kinds{};  // by FrameKind
  std::map<Header, uint64_t> hidden_by;
  uint64_t failed = 0;
  uint64_t cut = 0;

  uint64_t Of(FrameKind kind) const { return kinds[static_cast<size_t>(kind)]; }
};

void Print(const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::putchar('\n');
}

// Prints the frame if it is RoCE.
void DecodeFrame(const CaptureRecord& record, const DecodeOptions& options, Totals& totals) {
  ++totals.frames;
  const auto [kind, frame, hidden_by] =
      Dissect(record.bytes, record.original_length, record.link_type);
  if (kind == FrameKind::kLinkType && totals.Of(kind) == 0) {
    std::fprintf(stderr, "roci: frame %" PRIu64 " is of link type %u, which is not understood\n",
                 record.number, record.link_type);
  }
  ++totals.kinds[static_cast<size_t>(kind)];
  if (kind == FrameKind::kHidden) ++totals.hidden_by[hidden_by];
  if (kind != FrameKind::kRoce) return;
  totals.failed += frame->failed();
  totals.cut += frame->cut;
  if (options.failed_only && !frame->failed()) return;
  const nlohmann::ordered_json description = Describe(record, *frame);
  Print(options.json ? description.dump() : DescribeInText(description));
}

void PrintTotals(const Totals& totals) {
  std::fprintf(stderr,
               "%" PRIu64 " frames, %" PRIu64 " of RoCE: %" PRIu64 " failed, %" PRIu64 " cut",
               totals.frames, totals.Of(FrameKind::kRoce), totals.failed, totals.cut);
  constexpr std::array<std::pair<FrameKind, const char*>, 3> kNotLookedAt = {{
      {FrameKind::kCut, "cut in front of the UDP port"},
      {FrameKind::kHeaders, "with headers that are not understood"},
      {FrameKind::kLinkType, "of link types that are not understood"},
  }};
  const char* separator = "; not looked at: ";
  const auto print = [&separator](uint64_t count, const char* of, const char* words) {
    if (count == 0) return;
    std::fprintf(stderr, "%s%" PRIu64 " %s%s", separator, count, of, words);
    separator = ", ";
  };
  for (const auto& [kind, words] : kNotLookedAt) print(totals.Of(kind), "", words);
  for (const auto& [header, count] : totals.hidden_by) {
    print(count, header == Header::kLaterFragment ? "" : "in ", HeaderName(header));
  }
  std::fputc('\n', stderr);
}

int StatusOf(const Totals& totals, CaptureReader::Outcome outcome) {
  if (totals.failed != 0 || outcome == CaptureReader::Outcome::kDamaged) return kFailed;
  return totals.Of(FrameKind::kLinkType) != 0 ? kTrouble : 0;
}

// Input or output that does not work: what was not looked at must not pass for good.
int Trouble(const char* what, int error, const Totals& totals) {
  std::fprintf(stderr, "roci: %s: %s; only %" PRIu64 " frames were looked at\n", what,
               std::strerror(error), totals.frames);
  return kTrouble;
}

int DecodeAll(std::FILE* file, const DecodeOptions& options) {
  int read_error = 0;
  Gunzip gunzip([&](std::byte* p, size_t n) {
    const size_t got = std::fread(p, 1, n, file);
    if (got < n && std::ferror(file) != 0) read_error = errno;
    return got;
  });
  CaptureReader reader([&gunzip](std::byte* p, size_t n) { return gunzip.Read(p, n); });
  CaptureRecord record;
  Totals totals;
  CaptureReader::Outcome outcome;
  while ((outcome = reader.Next(record)) == CaptureReader::Outcome::kRecord) {
    DecodeFrame(record, options, totals);
    if (std::ferror(stdout) != 0) return Trouble("cannot write the frames", errno, totals);
  }
  if (std::fflush(stdout) != 0) return Trouble("cannot write the frames", errno, totals);
  if (read_error != 0) return Trouble(options.path.c_str(), read_error, totals);
  if (!gunzip.error().empty()) outcome = CaptureReader::Outcome::kDamaged;
  const std::string& error = gunzip.error().empty() ? reader.error() : gunzip.error();
  if (!error.empty()) std::fprintf(stderr, "roci: %s: %s\n", options.path.c_str(), error.c_str());
  if (outcome == CaptureReader::Outcome::kNotACapture) return kTrouble;
  PrintTotals(totals);
  return StatusOf(totals, outcome);
}

int Decode(const DecodeOptions& options) {
  if (options.path == "-") {
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    return DecodeAll(stdin, options);
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(options.path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) {
    std::fprintf(stderr, "roci: %s: %s\n", options.path.c_str(), std::strerror(errno));
    return kTrouble;
  }
  return DecodeAll(file.get(), options);
}

}  // namespace

void AddDecodeCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<DecodeOptions>();
  CLI::App* command =
      app.add_subcommand("decode", "Print and verify the RoCE frames of a capture file");
  command
      ->add_option("FILE", options->path,
                   "A pcap or pcapng file (also .gz), or - for standard input")
      ->required();
  command->add_flag("--json", options->json, "One JSON object a line, for programs");
  command->add_flag("--failed", options->failed_only, "Print the frames that fail only");
  command->footer(kManual);
  command->callback([options, &context] { context.exit_status = Decode(*options); });
}

}  // namespace roci::tools
