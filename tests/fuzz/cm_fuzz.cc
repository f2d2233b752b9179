// Fuzzes the communication manager with messages. Input: a sequence of records, each a byte that
// selects an operation of the program, then attribute and payload of one MAD. Tables must stay
// within their limits, sent messages must be valid, and no connection may be stuck at the end.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "control/cm/engine.h"
#include "control/cm/ip_service.h"
#include "tests/fuzz/fuzz.h"

namespace roci::control::cm {
namespace {

constexpr uint32_t kMaxConnections = 8;
constexpr size_t kPayloadOffset = 24;
constexpr size_t kRecordBytes = 2 + kMadBytes - kPayloadOffset;

class Program {
 public:
  Program() {
    EngineConfig config;
    config.ca_guid = 1;
    config.max_connections = kMaxConnections;
    engine_ = std::make_unique<Engine>(config, 1);
    reply_.src_gid = roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 1}});
    reply_.dst_gid = roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 2}});
  }

  void Record(const uint8_t* data) {
    now_ += 1'000'000;
    Do(data[0]);
    MadBytes mad = BuildMad({data[0], Rtu{}});
    mad[17] = static_cast<std::byte>(kFirstMessage + data[1] % 12);
    std::memcpy(mad.data() + kPayloadOffset, data + 2, kMadBytes - kPayloadOffset);
    // Half of the messages name existing connections.
    Message message;
    if ((data[0] & 1) != 0 && ParseMad(mad, message) == MadReason::kNone && id_ != 0) {
      std::visit(
          [this](auto& body) {
            if constexpr (requires { body.remote_id; }) body.remote_id = id_;
          },
          message.body);
      mad = BuildMad(message);
    }
    if (Req* req = std::get_if<Req>(&message.body)) {
      req->primary.local_gid = reply_.dst_gid;
      req->primary.remote_gid = reply_.src_gid;
      ParseIpHeader(req->private_data);
      mad = BuildMad(message);
    }
    engine_->HandleMad(now_, reply_, mad);
    Settle();
  }

  void End() {
    std::vector<uint32_t> ids = ids_;
    for (const uint32_t id : ids) engine_->Release(now_, id);
    for (int i = 0; i < 100'000 && engine_->NextTimeout() != roce::kNever; ++i) {
      now_ = std::max(now_, engine_->NextTimeout());
      engine_->HandleTimeout(now_);
      Settle();
    }
    CHECK(engine_->size() == 0);
  }

 private:
  void Do(uint8_t what) {
    const uint32_t id = id_;
    switch (what >> 1 & 7) {
      case 1: {
        ConnectOptions options;
        options.owner = 1;
        options.path = reply_;
        options.qpn = what;
        const absl::StatusOr<uint32_t> made = engine_->Connect(now_, options);
        if (made.ok()) Keep(*made);
        break;
      }
      case 2:
        engine_->Accept(now_, id, {}).IgnoreError();
        break;
      case 3:
        engine_->Ready(now_, id).IgnoreError();
        break;
      case 4:
        engine_->Disconnect(now_, id).IgnoreError();
        break;
      case 5:
        engine_->Reject(now_, id, RejectReason::kConsumer, {}, {}).IgnoreError();
        break;
      case 6:
        engine_->AnswerDatagram(now_, id, {}).IgnoreError();
        break;
      case 7:
        if (engine_->NextTimeout() != roce::kNever) now_ = std::max(now_, engine_->NextTimeout());
        engine_->HandleTimeout(now_);
        break;
      default:
        break;
    }
    Settle();
  }

  void Keep(uint32_t id) {
    id_ = id;
    ids_.push_back(id);
  }

  void Settle() {
    CHECK(engine_->size() <= kMaxConnections);
    for (const Event& event : engine_->TakeEvents()) {
      if (event.owner == 0) {
        engine_->Adopt(event.id, 1, ++accounts_ % 3);
        Keep(event.id);
      }
    }
    for (const Outgoing& out : engine_->TakeOutgoing()) {
      Message message;
      CHECK(ParseMad(out.mad, message) == MadReason::kNone);
      CHECK(out.path.dst_gid == reply_.dst_gid);
    }
  }

  std::unique_ptr<Engine> engine_;
  roce::Path reply_;
  roce::TimeNs now_ = 1;
  uint32_t id_ = 0;
  uint32_t accounts_ = 0;
  std::vector<uint32_t> ids_;
};

}  // namespace
}  // namespace roci::control::cm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using roci::control::cm::kRecordBytes;
  roci::control::cm::Program program;
  constexpr size_t kMaxRecords = 64;
  const size_t records = std::min(size / kRecordBytes, kMaxRecords);
  for (size_t i = 0; i < records; ++i) program.Record(data + i * kRecordBytes);
  program.End();
  return 0;
}
