// Reads the recorded frames of tests/vectors.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace roci::roce {

using Frame = std::vector<std::byte>;

// A frame and its origin for failure messages, "file:index".
struct NamedFrame {
  std::string name;
  Frame bytes;
};

// Frames of a pcap file (classic format, Ethernet). Ends the test program if the file has another
// format.
std::vector<NamedFrame> ReadPcap(const std::string& path);

struct KnownAnswer {
  std::string title;
  std::string kind;  // "v4", "v6", "roce1"
  Frame bytes;
};
std::vector<KnownAnswer> ReadKnownAnswers();

// Every frame of every capture, RoCEv2 or not.
const std::vector<NamedFrame>& AllCapturedFrames();

// Looks only at the fixed offsets of an untagged IPv4 frame, independently of the parser.
bool LooksLikeRoceV2OverIpv4(const Frame& frame);

}  // namespace roci::roce
