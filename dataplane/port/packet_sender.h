// Sends frames through a packet socket, runs of frames of one flow as one (udp_gso.h). One thread
// at a time uses it; any thread may read the counter.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/counters.h"
#include "dataplane/port/udp_gso.h"

struct rte_mbuf;

namespace roci::dataplane {

class PacketSender {
 public:
  // `socket`: a non-blocking packet socket with PACKET_VNET_HDR, which outlives this object.
  // `joins`: whether frames may be joined.
  PacketSender(int socket, bool joins) : socket_(socket), joins_(joins) {}

  // Takes ownership of the first frames, in order, and returns how many: fewer while the kernel has
  // no room. Frames that the kernel refuses are counted, and count as taken.
  uint32_t Send(rte_mbuf** frames, uint32_t count);

  uint64_t errors() const { return errors_.value(); }  // frames that were refused

 private:
  static constexpr uint32_t kMostFrames = 32;  // of one system call

  struct Message {
    VirtioNetHeader gso;
    std::array<std::byte, kMaxGsoHeaderBytes> headers;
    uint32_t frames;
  };

  uint32_t Describe(rte_mbuf* const* frames, uint32_t count, uint32_t alone);
  static uint32_t DescribeRun(rte_mbuf* const* frames, uint32_t count, Message& message,
                              iovec*& part);

  int socket_;
  bool joins_;
  Counter errors_;
  std::array<Message, kMostFrames> messages_;
  std::array<mmsghdr, kMostFrames> calls_{};
  std::array<iovec, 2 * kMostFrames> parts_;  // a run of n frames has n + 2, a single frame 2
};

}  // namespace roci::dataplane
