// Reads the arguments of a call and writes a reply, by the routines that rpcgen makes.
#pragma once

#include <rpc/rpc.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/interop/rpcrdma/nfs/status.h"
#include "tests/interop/rpcrdma/rpc_service.h"

namespace rpcrdma {

template <class T>
using XdrRoutine = bool_t (*)(XDR*, T*);

// Bytes of an item and its padding (RFC 4506, 3).
constexpr size_t Padded(size_t bytes) { return (bytes + 3) & ~size_t{3}; }

// A decoded value, and the memory that the routine allocated for it. False if the bytes do not hold
// one.
template <class T>
class Decoded {
 public:
  Decoded(XDR* from, XdrRoutine<T> routine)
      : routine_(routine), good_(routine(from, &value_) != 0) {}
  ~Decoded() { xdr_free(reinterpret_cast<xdrproc_t>(routine_), &value_); }
  Decoded(const Decoded&) = delete;
  Decoded& operator=(const Decoded&) = delete;

  explicit operator bool() const { return good_; }
  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }

 private:
  XdrRoutine<T> routine_;
  T value_{};
  bool good_;
};

// Bytes of a call, decoded from the front.
class Arguments {
 public:
  explicit Arguments(std::span<const std::byte> bytes) : bytes_(bytes) {
    // xdrmem takes a pointer to mutable bytes also to decode, and only reads then.
    auto* begin = const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
    xdrmem_create(&xdr_, begin, static_cast<u_int>(bytes.size()), XDR_DECODE);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  template <class T>
  Decoded<T> Take(XdrRoutine<T> routine) {
    return Decoded<T>(&xdr_, routine);
  }
  // What is not decoded yet.
  std::span<const std::byte> Rest() { return bytes_.subspan(xdr_getpos(&xdr_)); }

 private:
  std::span<const std::byte> bytes_;
  XDR xdr_{};
};

// A reply, written from the front.
class Reply {
 public:
  size_t size() const { return out_.message.size(); }
  void Truncate(size_t size) { out_.message.resize(size); }
  // Appends `bytes` zero bytes and returns where they are.
  std::byte* Extend(size_t bytes) {
    out_.message.resize(out_.message.size() + bytes);
    return out_.message.data() + out_.message.size() - bytes;
  }
  void PutWord(uint32_t word) { Put(xdr_u_int, word); }
  void PutStatus(Status status) { PutWord(static_cast<uint32_t>(status)); }

  template <class T>
  void Put(XdrRoutine<T> routine, const T& value) {
    // The routines take a pointer to a mutable value also to encode, and only read then.
    auto* source = const_cast<T*>(&value);
    const size_t at = size();
    Extend(xdr_sizeof(reinterpret_cast<xdrproc_t>(routine), source));
    PutAt(at, routine, value);
  }

  // Writes into bytes that Extend() has made.
  template <class T>
  void PutAt(size_t offset, XdrRoutine<T> routine, const T& value) {
    XDR xdr{};
    xdrmem_create(&xdr, reinterpret_cast<char*>(out_.message.data() + offset),
                  static_cast<u_int>(size() - offset), XDR_ENCODE);
    complete_ &= routine(&xdr, const_cast<T*>(&value)) != 0;
  }

  // The part of the reply that a transport may place directly.
  void SetBulk(size_t offset, size_t length) {
    out_.bulk_offset = offset;
    out_.bulk_length = length;
  }
  // False if a value could not be encoded: the reply must not be sent.
  bool complete() const { return complete_; }
  RpcReply Take() { return std::move(out_); }

 private:
  RpcReply out_;
  bool complete_ = true;
};

}  // namespace rpcrdma
