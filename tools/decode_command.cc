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
Kuznetsov's "modified" format) or pcapng format (any number of sections and interfaces), plain or
compressed with gzip. `-` is standard input; each frame is printed when it arrives, so that a running
capture can be decoded. Link types: Ethernet, Linux cooked (SLL and SLL2), BSD loopback (NULL and
LOOP), raw IP.

Print one line per RoCE frame: RoCEv2 (UDP to port 4791, over IPv4 or IPv6) and RoCEv1 (EtherType
0x8915), also after any number of VLAN tags, LLC/SNAP, MPLS, PPPoE and backbone tags, and in the
tunnels VXLAN, GENEVE, GRE (NVGRE, ERSPAN, PPTP), NSH, EtherIP, IP in IP, up to 32 headers in all.
Other frames are only counted. A line has the number of the frame in the file, its time, the headers
with all fields (eth, vlan, ipv4 or ipv6, udp, or for v1 grh, then bth, and the extension headers of
the opcode: rdeth, deth, xrceth, feth, reth, atomiceth, aeth, atomicacketh, immdt, ieth, cnp), then
  payload     bytes of payload, without pad and ICRC
  pad         the pad bytes in hexadecimal, if they are not zero
  trailer     number of bytes after the packet: Ethernet padding, or a frame check sequence
  icrc        good; bad, with the found and the computed value in wire order; or unchecked
  reencoded   same: encoding the decoded frame gives the same bytes; or the offset of the difference
  malformed   reason for which a device drops the frame: a counter of `roci show ports`. RoCEv1,
              which these devices do not support, is checked like v2 after its own headers; not_roce
              if its GRH names another transport. Reliable datagrams (RD) are printed, but no RoCE
              device supports them: reserved_opcode
  cut         the capture has less of the frame than was sent: it cannot be verified
  verdict     ok, failed or cut
Outer headers are printed before these, outermost first:
  in          name of the header, and src and dst of ipv4 and ipv6, vni of vxlan and geneve, label of
              mpls, vid of vlan, session of pppoe and erspan, key of gre (in NVGRE its upper 24 bits
              are the network), path of nsh, isid of pbb
(eth is the innermost Ethernet header, vlan the tags after it.) A wrong UDP checksum (other than 0)
is followed by the computed one. It is no failure, since a device checks only the ICRC; nor are
reserved bits and pad bytes. With --json a line is a JSON object with these names, numbers in
decimal; vlan and in are arrays.

The last line, on standard error, counts the frames: all, RoCE, failed and cut. If there are any, it
also counts frames that were not decoded: truncated before the UDP port, with unsupported headers
(incomplete, too many, or of unknown versions), of unsupported link types, and frames that may
contain RoCE in later fragments of IP packets, macsec, trill, esp, ah (over IPv4), ipcomp, l2tp, gtp.

Exit status: 0 if no frame failed; 1 if a frame is malformed, has a bad ICRC or a different encoding,
or if the file is damaged (frames before the damage are printed); 2 for wrong usage, for a file that
cannot be read or is no capture, if the output cannot be written, and if no frame failed but some
have an unsupported link type. Cut frames do not fail.

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

// Counts the frame, and prints it if it is RoCE.
void DecodeFrame(const CaptureRecord& record, const DecodeOptions& options, Totals& totals) {
  ++totals.frames;
  const auto [kind, frame, hidden_by] =
      Dissect(record.bytes, record.original_length, record.link_type);
  if (kind == FrameKind::kLinkType && totals.Of(kind) == 0) {
    std::fprintf(stderr, "roci: frame %" PRIu64 " has the unsupported link type %u\n",
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
  constexpr std::array<std::pair<FrameKind, const char*>, 3> kNotDecoded = {{
      {FrameKind::kCut, "truncated before the UDP port"},
      {FrameKind::kHeaders, "with unsupported headers"},
      {FrameKind::kLinkType, "of unsupported link types"},
  }};
  const char* separator = "; not decoded: ";
  const auto print = [&separator](uint64_t count, const char* of, const char* words) {
    if (count == 0) return;
    std::fprintf(stderr, "%s%" PRIu64 " %s%s", separator, count, of, words);
    separator = ", ";
  };
  for (const auto& [kind, words] : kNotDecoded) print(totals.Of(kind), "", words);
  for (const auto& [header, count] : totals.hidden_by) {
    print(count, header == Header::kLaterFragment ? "" : "in ", HeaderName(header));
  }
  std::fputc('\n', stderr);
}

int StatusOf(const Totals& totals, CaptureReader::Outcome outcome) {
  if (totals.failed != 0 || outcome == CaptureReader::Outcome::kDamaged) return kFailed;
  return totals.Of(FrameKind::kLinkType) != 0 ? kTrouble : 0;
}

// An input or output error: frames that were not decoded must not count as good.
int Trouble(const char* what, int error, const Totals& totals) {
  std::fprintf(stderr, "roci: %s: %s; only %" PRIu64 " frames were decoded\n", what,
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
  command->add_flag("--json", options->json, "Print one JSON object per line");
  command->add_flag("--failed", options->failed_only, "Print only frames that fail");
  command->footer(kManual);
  command->callback([options, &context] { context.exit_status = Decode(*options); });
}

}  // namespace roci::tools
