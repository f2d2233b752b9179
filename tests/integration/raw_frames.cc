// Sends or receives frames with a raw packet queue pair; checksums_test.py checks their checksums.
//
// raw_frames DEVICE send|fill FRAME...
//   frames as hexadecimal digits; fill: with IBV_SEND_IP_CSUM
// raw_frames DEVICE receive PORT COUNT
//   prints "ready", and then for each received UDP datagram to the port whether it has
//   IBV_WC_IP_CSUM_OK (1 or 0), and its frame
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "tests/integration/verbs_raw.h"

namespace roci::testing {
namespace {

Frame FromDigits(const std::string& digits) {
  Frame frame;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    frame.push_back(static_cast<uint8_t>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  }
  return frame;
}

int Send(OpenDevice& device, std::span<char*> frames, unsigned flags) {
  RawEndpoint endpoint(device);
  for (const char* frame : frames) {
    if (endpoint.Send(FromDigits(frame), flags) != IBV_WC_SUCCESS) return 1;
  }
  return 0;
}

int Receive(OpenDevice& device, int port, int count) {
  RawEndpoint endpoint(device, true);
  const Mac mac = MacOf(device);
  ibv_flow* flow = Rule().Eth(&mac).Ports(false, -1, port).On(endpoint.qp);
  if (flow == nullptr) return 1;
  std::puts("ready");
  std::fflush(stdout);
  for (int tries = 0; count > 0 && tries < 10; ++tries) {
    const Frame frame = endpoint.Receive();
    if (frame.empty()) continue;
    --count;
    std::printf("%d ", (endpoint.last_flags & IBV_WC_IP_CSUM_OK) != 0);
    for (const uint8_t byte : frame) std::printf("%02x", byte);
    std::puts("");
    std::fflush(stdout);
  }
  return ibv_destroy_flow(flow) == 0 && count == 0 ? 0 : 1;
}

}  // namespace
}  // namespace roci::testing

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  roci::testing::OpenDevice device(argv[1]);
  const std::string what = argv[2];
  const std::span<char*> rest(argv + 3, argv + argc);
  if (what == "send") return roci::testing::Send(device, rest, 0);
  if (what == "fill") return roci::testing::Send(device, rest, IBV_SEND_IP_CSUM);
  if (what == "receive" && rest.size() == 2) {
    return roci::testing::Receive(device, std::atoi(rest[0]), std::atoi(rest[1]));
  }
  return 2;
}
