// Receives frames from a packet socket. A GSO frame (udp_gso.h) is read straight into the buffers
// of its segments. One thread at a time uses it; any thread may read the counters.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dataplane/base/counters.h"
#include "dataplane/port/udp_gso.h"

struct msghdr;
struct rte_mbuf;
struct rte_mempool;

namespace roci::dataplane {

class PacketReceiver {
 public:
  // `socket`: a non-blocking packet socket with PACKET_VNET_HDR and PACKET_AUXDATA. `pool`: of
  // buffers of kFrameBufferBytes. Both outlive this object.
  PacketReceiver(int socket, rte_mempool* pool);
  ~PacketReceiver();
  PacketReceiver(const PacketReceiver&) = delete;
  PacketReceiver& operator=(const PacketReceiver&) = delete;

  // Up to `count` frames. VLAN tags are in the mbufs (RTE_MBUF_F_RX_VLAN_STRIPPED).
  uint32_t Receive(rte_mbuf** frames, uint32_t count);
  bool Pending() const;

  // Damaged GSO frames, frames longer than a buffer, and frames with a service tag (802.1ad).
  uint64_t errors() const { return errors_.value(); }
  // Attempts to receive without a free buffer. The frames wait in the socket.
  uint64_t without_buffer() const { return without_buffer_.value(); }

 private:
  // Results of recvmsg(2).
  struct Message {
    int64_t bytes = -1;  // of the frame; negative: there is none
    bool has_tag = false;
    uint16_t tag = 0;
    bool is_foreign = false;  // has a service tag
  };

  bool ReceiveNext();
  bool ReceiveWhole();
  bool ReceiveSegments(const GsoLayout& layout);
  void SplitBuffered(const GsoLayout& layout, const Message& message);
  bool Drop();
  Message Read(std::span<iovec> parts, int flags);
  bool Reserve(uint32_t buffers);
  void Keep(uint32_t frames, const Message& message);
  void CopyBuffered(uint32_t from, uint32_t bytes, std::byte* to) const;
  uint32_t TakeHeld(rte_mbuf** frames, uint32_t count);

  int socket_;
  rte_mempool* pool_;
  bool expects_segments_ = false;  // the last frame was a GSO frame
  VirtioNetHeader gso_;
  std::array<std::byte, kMaxGsoHeaderBytes> head_;
  // Received frames first, [held_at_, held_end_), then empty buffers, [held_end_, reserved_).
  std::array<rte_mbuf*, kMaxGsoSegments> held_{};
  uint32_t held_at_ = 0;
  uint32_t held_end_ = 0;
  uint32_t reserved_ = 0;
  std::array<iovec, kMaxGsoSegments + 1> parts_;
  // The part of an unexpected GSO frame that does not fit the first buffer.
  std::unique_ptr<std::byte[]> rest_;
  Counter errors_;
  Counter without_buffer_;
};

}  // namespace roci::dataplane
