// A frame of a capture as the judge needs it: parsed by the dataplane's parser, also where the
// frame is cut, tagged twice, or in a tunnel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "roce/drop_reason.h"
#include "roce/packet.h"
#include "tools/decode/capture_file.h"
#include "tools/decode/walk.h"

namespace roci::tools::judge {

enum class SeenKind : uint8_t {
  kPacket,     // `packet` is valid
  kMalformed,  // RoCEv2 that the parser refuses: `malformed` says why
  kCut,        // the capture ends within the headers
  kOther,      // not RoCEv2, or not decoded (Seen::hidden)
};

struct SeenFrame {
  uint64_t number = 0;
  bool has_time = false;
  int64_t time_ns = 0;  // since 1970
  uint32_t interface = 0;
  SeenKind kind = SeenKind::kOther;
  bool is_v1 = false;   // with kOther: RoCEv1
  bool hidden = false;  // with kOther: may be RoCE in a header that is not decoded

  roce::DropReason malformed = roce::DropReason::kNone;
  bool payload_is_whole = false;  // the payload and the ICRC are in the capture
  bool icrc_is_good = false;      // true if it cannot be checked
  // Of every kind but kOther, as far as captured.
  roce::Gid src, dst;
  std::optional<roce::Qpn> dest_qpn;

  roce::Packet packet;  // points into the record or the reader's buffer
  const std::byte* bth = nullptr;
};

// Not thread-safe. Needs no memory per frame.
class FrameParser {
 public:
  FrameParser();
  // `out` is valid until the next call, and as long as the record.
  void Parse(const CaptureRecord& record, SeenFrame& out);

 private:
  bool ParsePlain(const CaptureRecord& record, SeenFrame& out);
  void ParseWalked(const CaptureRecord& record, const Walk& walk, SeenFrame& out);
  void TakePacket(SeenFrame& out);

  std::vector<std::byte> plain_;  // an Ethernet header, and the packet as long as it states
};

}  // namespace roci::tools::judge
