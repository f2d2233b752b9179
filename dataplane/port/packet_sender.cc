#include "dataplane/port/packet_sender.h"

#include <rte_mbuf.h>

#include <algorithm>
#include <cerrno>
#include <span>

namespace roci::dataplane {
namespace {

std::span<const std::byte> BytesOf(const rte_mbuf* frame) {
  return {rte_pktmbuf_mtod(frame, const std::byte*), frame->data_len};
}

// The socket's buffer, the device's queue or the kernel's memory is full.
bool IsWithoutRoom(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM ||
         error == EINTR;
}

}  // namespace

// Describes as many of the frames as fit in one call of sendmmsg(2); returns the number of
// messages. The first `alone` frames are not joined.
uint32_t PacketSender::Describe(rte_mbuf* const* frames, uint32_t count, uint32_t alone) {
  count = std::min(count, kMostFrames);
  iovec* part = parts_.data();
  uint32_t messages = 0;
  for (uint32_t at = 0; at < count; ++messages) {
    Message& message = messages_[messages];
    msghdr& header = calls_[messages].msg_hdr;
    header.msg_iov = part;
    *part++ = {&message.gso, sizeof(message.gso)};
    message.frames =
        at >= alone && joins_ ? DescribeRun(frames + at, count - at, message, part) : 1;
    if (message.frames == 1) {
      message.gso = {};
      *part++ = {rte_pktmbuf_mtod(frames[at], void*), frames[at]->data_len};
    }
    header.msg_iovlen = static_cast<size_t>(part - header.msg_iov);
    at += message.frames;
  }
  return messages;
}

// Returns the number of frames of the run at the start of `frames`, and describes it if it is above
// 1.
uint32_t PacketSender::DescribeRun(rte_mbuf* const* frames, uint32_t count, Message& message,
                                   iovec*& part) {
  GsoRun run(BytesOf(frames[0]));
  while (run.frames() < count && run.Add(BytesOf(frames[run.frames()]))) {
  }
  if (run.frames() == 1) return 1;
  run.WriteHeaders(message.gso, message.headers.data());
  *part++ = {message.headers.data(), run.header_bytes()};
  for (uint32_t i = 0; i < run.frames(); ++i) {
    *part++ = {rte_pktmbuf_mtod_offset(frames[i], void*, run.header_bytes()),
               frames[i]->data_len - run.header_bytes()};
  }
  return run.frames();
}

uint32_t PacketSender::Send(rte_mbuf** frames, uint32_t count) {
  uint32_t sent = 0;
  uint32_t alone_until = 0;
  while (sent < count) {
    const uint32_t alone = alone_until > sent ? alone_until - sent : 0;
    const uint32_t messages = Describe(frames + sent, count - sent, alone);
    const int taken = sendmmsg(socket_, calls_.data(), messages, MSG_DONTWAIT);
    for (int i = 0; i < taken; ++i) sent += messages_[i].frames;
    if (taken > 0) continue;
    if (IsWithoutRoom(errno)) break;
    const uint32_t refused = messages_[0].frames;
    if (refused > 1) {
      // Perhaps each alone is welcome.
      alone_until = sent + refused;
      continue;
    }
    errors_.Add(1);
    ++sent;
  }
  rte_pktmbuf_free_bulk(frames, sent);
  return sent;
}

}  // namespace roci::dataplane
