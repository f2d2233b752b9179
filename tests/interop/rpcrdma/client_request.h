// What a client keeps for one call at a time: registered buffers for the call, for data that is
// placed directly, and for a long reply, each with a key of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/interop/rpcrdma/client_options.h"
#include "tests/interop/rpcrdma/header.h"
#include "tests/interop/rpcrdma/marshal_plan.h"
#include "tests/interop/rpcrdma/send_batch.h"
#include "tests/interop/rpcrdma/verbs_device.h"

namespace rpcrdma {

// A registered buffer whose key the server gets for the duration of a call.
class ExposedBuffer {
 public:
  // `access`: what the server may do. An empty buffer is never exposed.
  ExposedBuffer(VerbsDevice& device, size_t bytes, int access, Registration registration);

  std::span<std::byte> bytes() const { return slots_.Slot(0).first(bytes_); }
  ibv_sge Sge(const Range& range) const {
    return slots_.Sge(bytes().subspan(range.offset, range.length));
  }
  // Exposes a range and returns its segments. With windows a bind goes into `batch`. Throws
  // std::system_error.
  Chunk Expose(const Range& range, size_t segment_bytes, SendBatch& batch);
  // Ends the exposure. A window that the server has not invalidated is invalidated by `batch`.
  void Revoke(SendBatch& batch);
  // The server has invalidated this key. True: it was this buffer's.
  bool NoteInvalidated(uint32_t key);
  // The QP to which a window is bound is about to end.
  void DropWindow();

 private:
  const size_t bytes_;
  const int access_;
  const Registration registration_;
  ibv_pd* const pd_;
  RegisteredSlots slots_;
  Owned<ibv_mw> window_;
  uint32_t window_key_ = 0;  // of the latest bind
  bool bound_ = false;
};

// How a call ended.
enum class CallStatus {
  kIdle,     // not sent yet
  kPending,  // sent, or waiting to be sent again
  kDone,
  kRemoteError,  // the server answered RDMA_ERROR
  kBadReply,     // a reply that does not fit the call
  kClosed,       // the client was closed
};

class ClientRequest {
 public:
  // `call_bytes`: for the longest call message; `data_bytes`: for placed data; `reply_bytes`: for
  // the rest of the longest reply.
  ClientRequest(VerbsDevice& device, uint32_t slot, size_t call_bytes, size_t data_bytes,
                size_t reply_bytes, Registration registration);

  // Where the caller puts the call message. The client writes its XID, the first word.
  std::span<std::byte> call() const { return call_.bytes(); }
  // What the caller says about the call before it is sent.
  CallShape shape;

  CallStatus status() const { return status_; }
  // The reply. Data that was placed directly lies in data(), and not in reply().
  std::span<const std::byte> reply() const { return reply_message_; }
  std::span<const std::byte> data() const { return data_.bytes().first(placed_bytes_); }
  // Which chunks the latest transmission used.
  const MarshalPlan& plan() const { return plan_; }
  uint32_t transmissions() const { return transmissions_; }

 private:
  friend class Client;

  // Writes the header, and the work requests of a transmission into batch_. False: the chunks do
  // not fit into a header of this length. Throws std::system_error.
  bool Marshal(uint32_t credits, size_t send_bytes, size_t receive_bytes, size_t segment_bytes,
               std::span<std::byte> header_room, const RegisteredSlots& headers);
  // Takes the reply in. Sets the status of the end.
  void TakeReply(const Header& header, std::span<const std::byte> payload);
  bool FitsOffer(const Header& header) const;
  void NoteInvalidated(uint32_t key);
  // Fills batch_ with what ends the server's access. Returns whether there is something to post.
  bool Revoke();
  void DropWindows();

  const uint32_t slot_;
  ExposedBuffer call_;
  ExposedBuffer data_;
  ExposedBuffer reply_;
  uint32_t xid_ = 0;
  CallStatus status_ = CallStatus::kIdle;
  CallStatus result_ = CallStatus::kIdle;  // becomes the status when the memory is fenced
  MarshalPlan plan_;
  Header offered_;
  SendBatch batch_;
  std::vector<std::byte> reply_message_;
  size_t placed_bytes_ = 0;
  uint32_t transmissions_ = 0;
  uint64_t sent_ms_ = 0;
  bool waits_for_send_ = false;  // the batch of the call has not completed
  bool waits_for_reply_ = false;
  bool waits_for_fence_ = false;  // that of the invalidations has not
};

}  // namespace rpcrdma
