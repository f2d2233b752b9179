#include "dataplane/port/packet_receiver.h"

#include <linux/if_packet.h>
#include <rte_mbuf.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dataplane/base/frame_pool.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kRoomBytes = kFrameBufferBytes - kFrameOffset;
// The longest frame is the kernel's longest packet behind a header of Ethernet.
constexpr uint32_t kRestBytes = 65'536;

std::byte* BytesOf(const rte_mbuf* buffer) {
  return static_cast<std::byte*>(buffer->buf_addr) + kFrameOffset;
}

}  // namespace

PacketReceiver::PacketReceiver(int socket, rte_mempool* pool)
    : socket_(socket), pool_(pool), rest_(new std::byte[kRestBytes]) {}

PacketReceiver::~PacketReceiver() {
  rte_pktmbuf_free_bulk(held_.data() + held_at_, reserved_ - held_at_);
}

bool PacketReceiver::Pending() const {
  int bytes = 0;
  return held_at_ != held_end_ || (ioctl(socket_, FIONREAD, &bytes) == 0 && bytes > 0);
}

uint32_t PacketReceiver::TakeHeld(rte_mbuf** frames, uint32_t count) {
  count = std::min(count, held_end_ - held_at_);
  std::copy_n(held_.begin() + held_at_, count, frames);
  held_at_ += count;
  return count;
}

uint32_t PacketReceiver::Receive(rte_mbuf** frames, uint32_t count) {
  uint32_t received = TakeHeld(frames, count);
  // Bounded, as the frames may all be dropped.
  for (uint32_t reads = 0; received < count && reads < count && ReceiveNext(); ++reads) {
    received += TakeHeld(frames + received, count - received);
  }
  return received;
}

// Makes `buffers` empty ones available behind the frames. False: the pool is empty.
bool PacketReceiver::Reserve(uint32_t buffers) {
  if (held_at_ == held_end_ && held_end_ != 0) {
    std::copy(held_.begin() + held_end_, held_.begin() + reserved_, held_.begin());
    reserved_ -= held_end_;
    held_at_ = held_end_ = 0;
  }
  const uint32_t missing = held_end_ + buffers > reserved_ ? held_end_ + buffers - reserved_ : 0;
  if (missing == 0) return true;
  if (rte_pktmbuf_alloc_bulk(pool_, held_.data() + reserved_, missing) != 0) {
    without_buffer_.Add(1);
    return false;
  }
  reserved_ += missing;
  return true;
}

// The first empty buffers have become frames.
void PacketReceiver::Keep(uint32_t frames, const Message& message) {
  for (uint32_t i = 0; i < frames; ++i) {
    rte_mbuf* frame = held_[held_end_++];
    frame->data_off = kFrameOffset;
    frame->pkt_len = frame->data_len;
    frame->ol_flags = message.has_tag ? RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED : 0;
    frame->vlan_tci = message.tag;
  }
}

// Reads the next message of the socket: its VirtioNetHeader into gso_, the frame into `parts`, of
// which the first is for the header.
PacketReceiver::Message PacketReceiver::Read(std::span<iovec> parts, int flags) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(tpacket_auxdata))> control;
  parts[0] = {&gso_, sizeof(gso_)};
  msghdr header{};
  header.msg_iov = parts.data();
  header.msg_iovlen = parts.size();
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t bytes = recvmsg(socket_, &header, flags | MSG_DONTWAIT | MSG_TRUNC);
  Message message;
  message.bytes = bytes - static_cast<int64_t>(sizeof(gso_));
  if (bytes < 0) return message;
  const cmsghdr* found = CMSG_FIRSTHDR(&header);
  if (found == nullptr || found->cmsg_level != SOL_PACKET || found->cmsg_type != PACKET_AUXDATA) {
    return message;
  }
  tpacket_auxdata data;
  std::memcpy(&data, CMSG_DATA(found), sizeof(data));
  message.has_tag = (data.tp_status & TP_STATUS_VLAN_VALID) != 0;
  message.tag = data.tp_vlan_tci;
  message.is_foreign = message.has_tag && (data.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0 &&
                       data.tp_vlan_tpid != roce::kEtherTypeVlan;
  return message;
}

// Receives one message. False: there is none, or no buffer for it.
bool PacketReceiver::ReceiveNext() {
  if (!expects_segments_) return ReceiveWhole();
  parts_[1] = {head_.data(), head_.size()};
  const Message next = Read({parts_.data(), 2}, MSG_PEEK);
  if (next.bytes < 0) {
    // A frame that the kernel cannot describe is dropped when it is read.
    if (errno != EAGAIN) expects_segments_ = false;
    return false;
  }
  const auto bytes = static_cast<uint32_t>(next.bytes);
  const GsoLayout layout =
      LayoutOf(gso_, {head_.data(), std::min<size_t>(bytes, head_.size())}, bytes);
  if (layout.kind == GsoLayout::Kind::kSegments) return ReceiveSegments(layout);
  expects_segments_ = false;
  return ReceiveWhole();
}

// The next message is dropped.
bool PacketReceiver::Drop() {
  Read({parts_.data(), 1}, 0);
  errors_.Add(1);
  return true;
}

// The next message is a GSO frame of this layout, whose headers are in head_.
bool PacketReceiver::ReceiveSegments(const GsoLayout& layout) {
  if (layout.header_bytes + layout.segment_bytes > kRoomBytes) return Drop();
  if (!Reserve(layout.segments)) return false;
  rte_mbuf** const buffers = held_.data() + held_end_;
  for (uint32_t i = 0; i < layout.segments; ++i) {
    std::byte* const at = BytesOf(buffers[i]);
    const uint32_t bytes = layout.header_bytes + layout.BytesOf(i);
    buffers[i]->data_len = static_cast<uint16_t>(bytes);
    parts_[i + 1] =
        i == 0 ? iovec{at, bytes} : iovec{at + layout.header_bytes, bytes - layout.header_bytes};
  }
  const Message message = Read({parts_.data(), layout.segments + 1}, 0);
  if (message.bytes < 0) return false;
  if (message.is_foreign) {
    errors_.Add(1);
    return true;
  }
  for (uint32_t i = 0; i < layout.segments; ++i) {
    WriteSegmentHeaders(layout, head_, i, BytesOf(buffers[i]));
  }
  Keep(layout.segments, message);
  return true;
}

// The next message is probably an ordinary frame.
bool PacketReceiver::ReceiveWhole() {
  if (!Reserve(1)) return false;
  rte_mbuf* const buffer = held_[held_end_];
  parts_[1] = {BytesOf(buffer), kRoomBytes};
  parts_[2] = {rest_.get(), kRestBytes};
  const Message message = Read({parts_.data(), 3}, 0);
  if (message.bytes < 0) return false;
  const auto bytes = static_cast<uint32_t>(message.bytes);
  const size_t head_bytes = std::min<size_t>(bytes, head_.size());
  std::memcpy(head_.data(), BytesOf(buffer), head_bytes);
  const GsoLayout layout = LayoutOf(gso_, {head_.data(), head_bytes}, bytes);
  const bool fits = layout.kind == GsoLayout::Kind::kSegments
                        ? layout.header_bytes + layout.segment_bytes <= kRoomBytes
                        : bytes <= kRoomBytes;
  if (layout.kind == GsoLayout::Kind::kInvalid || message.is_foreign || !fits) {
    errors_.Add(1);
    return true;
  }
  if (layout.kind == GsoLayout::Kind::kSegments) {
    expects_segments_ = true;
    SplitBuffered(layout, message);
    return true;
  }
  buffer->data_len = static_cast<uint16_t>(bytes);
  Keep(1, message);
  return true;
}

// Splits a GSO frame that was read as an ordinary frame: its start is in the first empty buffer,
// the end in rest_, its headers are in head_. The kernel no longer has it, so it is lost without
// buffers.
void PacketReceiver::SplitBuffered(const GsoLayout& layout, const Message& message) {
  if (!Reserve(layout.segments)) return;
  rte_mbuf** const buffers = held_.data() + held_end_;
  for (uint32_t i = 1; i < layout.segments; ++i) {
    CopyBuffered(layout.header_bytes + i * layout.segment_bytes, layout.BytesOf(i),
                 BytesOf(buffers[i]) + layout.header_bytes);
  }
  for (uint32_t i = 0; i < layout.segments; ++i) {
    buffers[i]->data_len = static_cast<uint16_t>(layout.header_bytes + layout.BytesOf(i));
    WriteSegmentHeaders(layout, head_, i, BytesOf(buffers[i]));
  }
  Keep(layout.segments, message);
}

// Copies a range of the frame that starts in the first empty buffer and ends in rest_.
void PacketReceiver::CopyBuffered(uint32_t from, uint32_t bytes, std::byte* to) const {
  const uint32_t first = from < kRoomBytes ? std::min(bytes, kRoomBytes - from) : 0;
  if (first != 0) std::memcpy(to, BytesOf(held_[held_end_]) + from, first);
  if (first == bytes) return;
  std::memcpy(to + first, rest_.get() + (from + first - kRoomBytes), bytes - first);
}

}  // namespace roci::dataplane
