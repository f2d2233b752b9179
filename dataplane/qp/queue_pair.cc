#include "dataplane/qp/queue_pair.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "dataplane/base/slab.h"
#include "dataplane/qp/lane_state.h"
#include "dataplane/qp/queue_layouts.h"
#include "dataplane/qp/shard_view.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/rings/receive_entry.h"
#include "dataplane/rings/trace.h"

namespace roci::dataplane {
namespace {

Slab& QueuePairs() {
  static Slab slab(sizeof(QueuePair), /*huge=*/true);
  return slab;
}

roci_abi_queue* QueueAt(const SharedMemory& memory, uint32_t offset) {
  return reinterpret_cast<roci_abi_queue*>(memory.data() + offset);
}

bool HasTags(const QueuePairConfig& config) {
  return config.srq != nullptr && config.srq->tags() != nullptr;
}

// There are no more work requests in flight than PSNs.
uint32_t RecordCount(const QueuePairConfig& config) {
  const uint32_t entries = HasTags(config) ? TagReceiver::kSendEntries : config.max_send_wr;
  return std::bit_ceil(std::clamp(entries, 1u, config.limits.window_packets));
}

// `tags`: of a tag-matching receive queue; it posts to the send queue instead of the program.
QueuePairHost::Queues MakeQueues(const QueuePairConfig& config, const roce::QpConfig& core,
                                 uint32_t handle, const QueueLayout& layout,
                                 const SharedMemory& memory, TagReceiver* tags) {
  const uint32_t qpn = core.qpn.value();
  const uint32_t recv_handle = config.srq != nullptr ? config.srq->handle() : handle;
  return {.send = tags != nullptr
                      ? tags->MakeSendQueue()
                      : SendQueue(QueueAt(memory, layout.send_queue_offset),
                                  memory.data() + layout.send_slots_offset, layout.send_capacity,
                                  layout.send_stride, static_cast<uint8_t>(layout.max_send_sge),
                                  layout.max_inline, config.type, config.lacking_opcodes),
          .send_owner = {.qpn = qpn, .qp_handle = handle, .is_shared = tags != nullptr},
          .send_cq = config.send_cq,
          .recv_cq = config.recv_cq,
          .shared = config.srq,
          .recv = RecvQueue(QueueAt(memory, layout.recv_queue_offset),
                            memory.data() + layout.recv_slots_offset, layout.recv_capacity,
                            layout.recv_stride, static_cast<uint8_t>(layout.max_recv_sge)),
          .recv_owner = {.qpn = qpn, .qp_handle = recv_handle, .is_shared = core.uses_srq},
          .tags = tags,
          .domain = config.domain};
}

}  // namespace

absl::StatusOr<std::unique_ptr<QueuePair>> QueuePair::Create(const ShardView& shard,
                                                             VerbsContext* context, LaneState& lane,
                                                             const QueuePairConfig& config,
                                                             roce::Qpn qpn, uint32_t handle) {
  const QueueLayout layout = LayOutQueues(config);
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create(
      "roci-qp", layout.memory_size, context != nullptr ? context->retired_rings() : nullptr);
  if (!memory.ok()) return memory.status();
  RecordStorage storage = RecordStorage::Allocate(RecordCount(config));
  ResourceStorage resources = ResourceStorage::Allocate(
      std::bit_ceil(std::max<uint32_t>(config.limits.max_dest_rd_atomic, 1)));
  if (!storage || !resources) return absl::ResourceExhaustedError("queue pair: no address space");
  roce::QpConfig core_config;
  core_config.type = config.type;
  core_config.qpn = qpn;
  core_config.sq_sig_all = config.sq_sig_all;
  core_config.uses_srq = config.srq != nullptr || config.type == roce::QpType::kXrcRecv;
  core_config.limits = config.limits;
  auto tags = HasTags(config) ? std::make_unique<TagReceiver>(*config.srq) : nullptr;
  auto reordering = config.limits.reorder_wait_ns != 0 && roce::IsReliable(config.type)
                        ? std::make_unique<Reordering>()
                        : nullptr;
  return std::unique_ptr<QueuePair>(new QueuePair(
      shard, context, lane, config, core_config, handle, layout, std::move(tags),
      std::move(reordering), *std::move(memory), std::move(storage), std::move(resources)));
}

QueuePair::QueuePair(const ShardView& shard, VerbsContext* context, LaneState& qp_lane,
                     const QueuePairConfig& config, const roce::QpConfig& core_config,
                     uint32_t qp_handle, const QueueLayout& layout,
                     std::unique_ptr<TagReceiver> tags, std::unique_ptr<Reordering> reordering,
                     SharedMemory memory, RecordStorage storage, ResourceStorage resources)
    : record_class_(static_cast<uint8_t>(storage.size_class())),
      blocks_own_multicast_(config.blocks_own_multicast),
      host_(*this, {.shard = &shard, .lane = &qp_lane, .context = context, .now_ns = shard.now_ns},
            {.keys = context != nullptr ? context->keys_address() : nullptr,
             .copies = context != nullptr ? &context->copies() : nullptr,
             .pd = config.pd,
             .recv_pd = config.srq != nullptr ? config.srq->pd() : config.pd},
            MakeQueues(config, core_config, qp_handle, layout, memory, tags.get())),
      core_(core_config, RecordCount(config), resources.span(),
            qp_lane.congestion ? &congestion_ : nullptr,
            reordering != nullptr ? &reordering->state : nullptr),
      rss_(config.rss != nullptr ? std::make_unique<RssGroup>(*config.rss) : nullptr),
      congestion_(qp_lane.congestion ? &*qp_lane.congestion : nullptr),
      reordering_(std::move(reordering)),
      origin_(config.origin),
      events_(context, config.user_handle, config.is_work_queue),
      memory_(std::move(memory)),
      storage_(std::move(storage)),
      resources_(std::move(resources)),
      tags_(std::move(tags)) {
  timer_.owner = this;
  if (reordering_ != nullptr) {
    reordering_->frames.of_user =
        context != nullptr ? &context->copies().use()->early : &shard.early->of_domains();
  }
  host_.send_queue().SetArmed(true);
  if (tags_ == nullptr) host_.send_queue().UseTrace(&qp_lane.trace, core_config.qpn.value());
  host_.recv_queue().UseTrace(&qp_lane.trace, core_config.qpn.value());
  events_.UseTrace(&qp_lane.trace, core_config.qpn.value());
}

QueuePair::~QueuePair() = default;

void* QueuePair::operator new(size_t bytes) {
  assert(bytes == sizeof(QueuePair));
  void* place = QueuePairs().Take();
  if (place == nullptr) throw std::bad_alloc();
  return place;
}

void QueuePair::operator delete(void* qp) { QueuePairs().Give(qp); }

roce::ModifyResult QueuePair::Modify(const OnShard& shard, const roce::QpAttributes& attributes,
                                     uint32_t mask, const roce::Path* path) {
  const HeldReceive held = FindHeldReceive();
  const roce::ModifyResult result = core_.Modify(host_, attributes, mask);
  if (result != roce::ModifyResult::kOk) return result;
  if (path != nullptr) SetPath(shard, *path);
  if ((mask & roce::kAttrState) != 0 && attributes.state == roce::QpState::kReset) {
    LeaveCopies(shard);
    GiveBack(shard, held);
    host_.ResetQueues();
    broken_handled_ = false;
  }
  return result;
}

QueuePair::HeldReceive QueuePair::FindHeldReceive() {
  const roce::RecvWqe* wqe = core_.held_receive();
  if (wqe == nullptr) return {};
  if (core_.type() == roce::QpType::kXrcRecv)
    host_.SelectReceiveQueue(core_.receive_queue_number());
  return {host_.shared_queue(), *wqe};
}

void QueuePair::LeaveCopies(const OnShard& shard) {
  if (copy_wait_.in != nullptr) copy_wait_.in->Forget(shard, *this);
  if (AppCopies* copies = host_.copy_state().parked_in()) copies->Forget(shard, *this);
  host_.copy_state() = CopyState();
  fails_after_copies_ = false;
}

void QueuePair::ForgetReceiveQueue(const OnShard&, const SharedReceiveQueue& queue) {
  core_.ForgetReceiveQueue(queue.number());
  host_.ForgetReceiveQueue(queue);
}

void QueuePair::GiveBackReceive(const OnShard& shard) { GiveBack(shard, FindHeldReceive()); }

void QueuePair::GiveBack(const OnShard& shard, const HeldReceive& held) {
  if (tags_ != nullptr && !tags_->Abandon(host_)) return;
  if (held.srq != nullptr) held.srq->GiveBack(shard, held.wqe);
}

void QueuePair::Fail(const OnShard&) {
  const bool is_broken = HasBrokenQueue();
  broken_handled_ |= is_broken;
  const CopyFault fault = host_.copy_state().TakeFault();
  if (is_broken) {
    host_.RaiseEvent(roce::QpEvent::kFatal);
  } else if (fault.place_fault().of_request) {
    host_.RaiseEvent(roce::QpEvent::kAccessViolation);
  }
  if (fault.failed()) core_.HandlePlaceFault(host_, fault.place_fault());
  if (is_broken) MoveToError();
}

void QueuePair::FailForQueue(const OnShard&) {
  if (core_.state() == roce::QpState::kErr || core_.state() == roce::QpState::kReset) return;
  host_.RaiseEvent(roce::QpEvent::kFatal);
  MoveToError();
}

void QueuePair::MoveToError() {
  roce::QpAttributes attributes;
  attributes.state = roce::QpState::kErr;
  core_.Modify(host_, attributes, roce::kAttrState);
}

QueuePairInfo QueuePair::Inspect(const OnShard& shard) const {
  QueuePairInfo info;
  info.qpn = qpn();
  info.type = type();
  info.state = core_.state();
  info.handle = handle();
  info.pd = pd();
  info.attributes = Query(shard);
  core_.Describe(host_.now_ns(), info.debug);
  info.local_gid = path_.local_gid();
  info.remote_gid = path_.remote_gid();
  info.vlan = path_.vlan();
  info.send_taken = host_.send_queue().taken();
  info.recv_taken = host_.recv_queue().taken();
  info.tx_packets = tx_packets_;
  info.rx_packets = rx_packets_;
  info.drops = drops_;
  info.active = active_position_ != kNotActive;
  return info;
}

}  // namespace roci::dataplane
