#include "tests/interop/rpcrdma/client_request.h"

#include <algorithm>

#include "tests/interop/rpcrdma/xdr_words.h"

namespace rpcrdma {
namespace {

// A region cannot be empty.
size_t AtLeastOne(size_t bytes) { return std::max<size_t>(bytes, 1); }

// The region's access: a window grants the server what the region itself does not (IBTA vol 1,
// 10.6.7.2), but a window that may write needs a region that may be written.
int RegionAccess(int access, Registration registration) {
  if (registration == Registration::kWindows) return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
  return IBV_ACCESS_LOCAL_WRITE | access;
}

}  // namespace

ExposedBuffer::ExposedBuffer(VerbsDevice& device, size_t bytes, int access,
                             Registration registration)
    : bytes_(bytes),
      access_(access),
      registration_(registration),
      pd_(device.pd()),
      slots_(device.pd(), 1, AtLeastOne(bytes), RegionAccess(access, registration)) {}

Chunk ExposedBuffer::Expose(const Range& range, size_t segment_bytes, SendBatch& batch) {
  const ibv_sge sge = Sge(range);
  if (registration_ == Registration::kRegions) {
    return SegmentsOf(slots_.mr()->rkey, sge.addr, range.length, segment_bytes);
  }
  if (window_ == nullptr) {
    window_.reset(ibv_alloc_mw(pd_, IBV_MW_TYPE_2));
    if (window_ == nullptr) ThrowErrno("ibv_alloc_mw");
    window_key_ = window_->rkey;
  }
  window_key_ = ibv_inc_rkey(window_key_);
  batch.AddBind(window_.get(), window_key_,
                {slots_.mr(), sge.addr, range.length, static_cast<unsigned>(access_)});
  bound_ = true;
  return SegmentsOf(window_key_, sge.addr, range.length, segment_bytes);
}

void ExposedBuffer::Revoke(SendBatch& batch) {
  if (bound_) batch.AddLocalInvalidate(window_key_);
  bound_ = false;
}

bool ExposedBuffer::NoteInvalidated(uint32_t key) {
  const bool is_mine = bound_ && key == window_key_;
  if (is_mine) bound_ = false;
  return is_mine;
}

void ExposedBuffer::DropWindow() {
  window_.reset();
  bound_ = false;
}

ClientRequest::ClientRequest(VerbsDevice& device, uint32_t slot, size_t call_bytes,
                             size_t data_bytes, size_t reply_bytes, Registration registration)
    : slot_(slot),
      call_(device, call_bytes, IBV_ACCESS_REMOTE_READ, registration),
      data_(device, data_bytes, IBV_ACCESS_REMOTE_WRITE, registration),
      reply_(device, reply_bytes, IBV_ACCESS_REMOTE_WRITE, registration) {}

bool ClientRequest::Marshal(uint32_t credits, size_t send_bytes, size_t receive_bytes,
                            size_t segment_bytes, std::span<std::byte> header_room,
                            const RegisteredSlots& headers) {
  plan_ = PlanMarshal(shape, send_bytes, receive_bytes, segment_bytes);
  batch_.Clear();
  offered_ = Header();
  offered_.xid = xid_;
  offered_.credits = credits;
  if (plan_.long_call) offered_.procedure = Procedure::kNomsg;
  const Range pulled = plan_.long_call ? Range{0, shape.message_bytes} : shape.bulk;
  if (plan_.long_call || plan_.read_chunk) {
    for (const Segment& segment : call_.Expose(pulled, segment_bytes, batch_)) {
      offered_.reads.push_back({static_cast<uint32_t>(pulled.offset), segment});
    }
  }
  if (plan_.write_chunk) {
    offered_.writes.push_back(data_.Expose({0, shape.data_room}, segment_bytes, batch_));
  }
  if (plan_.reply_chunk) {
    offered_.reply = reply_.Expose({0, plan_.reply_chunk_bytes}, segment_bytes, batch_);
  }
  const size_t length = EncodeHeader(offered_, header_room.first(send_bytes));
  ibv_sge sges[3] = {headers.Sge(header_room.first(length))};
  uint32_t count = 1;
  for (const Range& range : plan_.payload) sges[count++] = call_.Sge(range);
  batch_.AddSend({sges, count});
  return length != 0;
}

// Chunks come back as they were offered, with the lengths that were used (RFC 8166, section 3.4.6).
bool ClientRequest::FitsOffer(const Header& header) const {
  const auto fits = [](const Chunk& used, const Chunk& offer) {
    return std::equal(used.begin(), used.end(), offer.begin(), offer.end(),
                      [](const Segment& a, const Segment& b) {
                        return a.handle == b.handle && a.offset == b.offset && a.length <= b.length;
                      });
  };
  if (!header.reads.empty() || header.writes.size() > offered_.writes.size()) return false;
  for (size_t i = 0; i < header.writes.size(); ++i) {
    if (!fits(header.writes[i], offered_.writes[i])) return false;
  }
  const bool is_long = header.procedure == Procedure::kNomsg;
  if (!header.reply) return !is_long;
  return offered_.reply && fits(*header.reply, *offered_.reply) &&
         (is_long || ChunkBytes(*header.reply) == 0);
}

void ClientRequest::TakeReply(const Header& header, std::span<const std::byte> payload) {
  reply_message_.clear();
  placed_bytes_ = 0;
  if (header.procedure == Procedure::kError) {
    result_ = CallStatus::kRemoteError;
    return;
  }
  result_ = CallStatus::kBadReply;
  if (!FitsOffer(header)) return;
  if (header.procedure == Procedure::kNomsg) {
    payload = reply_.bytes().first(ChunkBytes(*header.reply));
  }
  // The message has the XID of its header (RFC 8166, section 4.2.1).
  if (payload.size() < 4 || LoadWord(payload.data()) != xid_) return;
  reply_message_.assign(payload.begin(), payload.end());
  if (!header.writes.empty()) placed_bytes_ = ChunkBytes(header.writes.front());
  result_ = CallStatus::kDone;
}

void ClientRequest::NoteInvalidated(uint32_t key) {
  for (ExposedBuffer* buffer : {&call_, &data_, &reply_}) {
    if (buffer->NoteInvalidated(key)) return;
  }
}

bool ClientRequest::Revoke() {
  batch_.Clear();
  for (ExposedBuffer* buffer : {&call_, &data_, &reply_}) buffer->Revoke(batch_);
  return batch_.size() > 0;
}

void ClientRequest::DropWindows() {
  for (ExposedBuffer* buffer : {&call_, &data_, &reply_}) buffer->DropWindow();
}

}  // namespace rpcrdma
