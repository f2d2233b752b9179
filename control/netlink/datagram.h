// Builds one datagram of netlink messages to a program.
#pragma once

#include <linux/netlink.h>

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "verbs_provider/abi/rdma_netlink.h"

namespace roci::control::netlink {

// Attributes that do not fit are omitted; ok() is then false until Return().
class Datagram {
 public:
  static constexpr size_t kMaxBytes = ROCI_ABI_NETLINK_DATAGRAM_MAX;
  // A place to return to.
  using Mark = size_t;

  bool ok() const { return !is_full_; }
  bool empty() const { return size_ == 0; }
  std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }
  void Clear() { Return(0); }
  Mark mark() const { return size_; }
  // Removes what was added since.
  void Return(Mark mark) {
    size_ = mark;
    is_full_ = false;
  }

  // A message lasts until End().
  Mark Begin(const nlmsghdr& request, uint16_t type, uint16_t flags, uint32_t port) {
    const Mark begin = size_;
    nlmsghdr head{};
    head.nlmsg_type = type;
    head.nlmsg_flags = flags;
    head.nlmsg_seq = request.nlmsg_seq;
    head.nlmsg_pid = port;
    Append(&head, sizeof(head));
    return begin;
  }
  void End(Mark begin) { SetLength<uint32_t>(begin); }

  void PutU8(uint16_t type, uint8_t value) { Put(type, &value, sizeof(value)); }
  void PutU32(uint16_t type, uint32_t value) { Put(type, &value, sizeof(value)); }
  void PutU64(uint16_t type, uint64_t value) { Put(type, &value, sizeof(value)); }
  void PutText(uint16_t type, std::string_view text) {
    PutHead(type, text.size() + 1);
    Append(text.data(), text.size());
    constexpr char kEnd = 0;
    Append(&kEnd, 1);
    Pad();
  }
  void PutBytes(uint16_t type, std::span<const std::byte> value) {
    Put(type, value.data(), value.size());
  }
  // A nested attribute lasts until Close().
  Mark Open(uint16_t type) {
    const Mark begin = size_;
    PutHead(type | NLA_F_NESTED, 0);
    return begin;
  }
  void Close(Mark begin) { SetLength<uint16_t>(begin); }
  // Bytes without an attribute's head.
  void Append(const void* data, size_t size) {
    is_full_ |= size > kMaxBytes - size_;
    if (is_full_ || size == 0) return;
    std::memcpy(bytes_.data() + size_, data, size);
    size_ += size;
  }

 private:
  void PutHead(uint16_t type, size_t size) {
    nlattr head{};
    head.nla_type = type;
    head.nla_len = static_cast<uint16_t>(NLA_HDRLEN + size);
    Append(&head, sizeof(head));
  }
  void Put(uint16_t type, const void* data, size_t size) {
    PutHead(type, size);
    Append(data, size);
    Pad();
  }
  void Pad() {
    constexpr std::array<std::byte, NLA_ALIGNTO> kZeros{};
    Append(kZeros.data(), NLA_ALIGN(size_) - size_);
  }
  // The length is the first field of both kinds of head.
  template <class Length>
  void SetLength(Mark begin) {
    if (is_full_) return;
    assert(begin + sizeof(Length) <= size_);
    const auto length = static_cast<Length>(size_ - begin);
    std::memcpy(bytes_.data() + begin, &length, sizeof(length));
  }

  std::array<std::byte, kMaxBytes> bytes_;
  size_t size_ = 0;
  bool is_full_ = false;
};

}  // namespace roci::control::netlink
