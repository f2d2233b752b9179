// Methods that only the shard's thread may call do not compile without its token.
#include "dataplane/base/on_shard.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

#include "dataplane/qp/app_copies.h"
#include "dataplane/qp/async_events.h"
#include "dataplane/qp/completion_events.h"
#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/queue_pair_events.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/qp/tag_queue.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/rings/list_memory.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/device_client.h"
#include "dataplane/shard/device_lane.h"
#include "dataplane/shard/durable_writer.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/port_waits.h"
#include "dataplane/shard/shard_client.h"
#include "dataplane/shard/xrc_client.h"

namespace roci::dataplane {
namespace {

// Control code has no token and cannot make one.
static_assert(!std::is_default_constructible_v<OnShard>);
static_assert(!std::is_copy_constructible_v<OnShard>);
template <class Kept>
concept GivesTokenOut = requires(const Kept& kept) {
  kept.Token();
};
static_assert(!GivesTokenOut<OnShardForHosts>);
// Clients of the control thread give out nothing of a shard.
template <class Client>
concept GivesShardOut = requires(Client& client) {
  client.lcores_;
}
|| requires(Client& client) { client.lcore_; }
|| requires(Client& client) { client.context_; }
|| requires(Client& client) { client.device_; }
|| requires(Client& client) { client.targets_; };
static_assert(!GivesShardOut<Dataplane> && !GivesShardOut<ShardClient>);
static_assert(!GivesShardOut<DeviceClient> && !GivesShardOut<XrcClient>);

// METHOD compiles with the token as first argument, and not without it.
#define EXPECT_NEEDS_TOKEN(CLASS, METHOD, ...)                                                \
  {                                                                                           \
    const auto with = []<class T>(T*) {                                                       \
      return requires(T & object, const OnShard& shard) {                                     \
        object.METHOD(shard __VA_OPT__(, ) __VA_ARGS__);                                      \
      };                                                                                      \
    };                                                                                        \
    const auto without = []<class T>(T*) {                                                    \
      return requires(T & object) { object.METHOD(__VA_ARGS__); };                            \
    };                                                                                        \
    EXPECT_TRUE(with(static_cast<CLASS*>(nullptr))) << #CLASS "::" #METHOD " with the token"; \
    EXPECT_FALSE(without(static_cast<CLASS*>(nullptr))) << #CLASS "::" #METHOD " without it"; \
  }

TEST(OnShard, QueuesNeedTheToken) {
  EXPECT_NEEDS_TOKEN(CompletionQueue, Write, std::declval<roce::Completion&>(),
                     std::declval<CompletionOwner&>(), true, 0);
  EXPECT_NEEDS_TOKEN(CompletionQueue, WriteEntry, std::declval<roci_abi_cqe&>(), true, 0);
  EXPECT_NEEDS_TOKEN(CompletionQueue, PublishBurst);
  EXPECT_NEEDS_TOKEN(SharedReceiveQueue, Fetch, std::declval<roce::RecvWqe&>(),
                     std::declval<roce::CompletionStatus&>());
  EXPECT_NEEDS_TOKEN(SharedReceiveQueue, GiveBack, std::declval<roce::RecvWqe&>());
  EXPECT_NEEDS_TOKEN(SharedReceiveQueue, Fail);
  EXPECT_NEEDS_TOKEN(SharedReceiveQueue, ReadSge, std::declval<roce::RecvWqe&>(), 0);
  EXPECT_NEEDS_TOKEN(SharedReceiveQueue, broken);
  EXPECT_NEEDS_TOKEN(TagQueue, Serve, 0);
  EXPECT_NEEDS_TOKEN(TagQueue, list);
  EXPECT_NEEDS_TOKEN(TagQueue, has_more);
  EXPECT_NEEDS_TOKEN(TagQueue, Release, 0);
  EXPECT_NEEDS_TOKEN(TagQueue, taken);
  EXPECT_NEEDS_TOKEN(ListMemory, Register, std::declval<memory::KeyTable&>(),
                     std::declval<roce::SendWqe&>(), memory::AccessContext());
}

TEST(OnShard, QueuePairsNeedTheToken) {
  EXPECT_NEEDS_TOKEN(QueuePair, core);
  EXPECT_NEEDS_TOKEN(QueuePair, host);
  EXPECT_NEEDS_TOKEN(QueuePair, timer);
  EXPECT_NEEDS_TOKEN(QueuePair, HandlePacket, 0, std::declval<roce::Packet&>());
  EXPECT_NEEDS_TOKEN(QueuePair, HandleWork);
  EXPECT_NEEDS_TOKEN(QueuePair, PollTransmit, 0, std::declval<roce::TxPacket&>(),
                     std::declval<memory::SegmentList&>());
  EXPECT_NEEDS_TOKEN(QueuePair, SetPath, std::declval<roce::Path&>());
  EXPECT_NEEDS_TOKEN(QueuePair, NoteRing, 0);
  EXPECT_NEEDS_TOKEN(QueuePair, ArmSends);
  EXPECT_NEEDS_TOKEN(QueuePair, FailForQueue);
  EXPECT_NEEDS_TOKEN(QueuePair, SendEvents, HostEffects());
  EXPECT_NEEDS_TOKEN(QueuePair, RefuseDurable);
  EXPECT_NEEDS_TOKEN(QueuePair, Prefetch);
  EXPECT_NEEDS_TOKEN(QueuePair, PrefetchWork);
}

TEST(OnShard, CopiesNeedTheToken) {
  EXPECT_NEEDS_TOKEN(AppCopies, places);
  EXPECT_NEEDS_TOKEN(AppCopies, gathers);
  EXPECT_NEEDS_TOKEN(AppCopies, IsIdle);
  EXPECT_NEEDS_TOKEN(AppCopies, TakeRunRequest);
  EXPECT_NEEDS_TOKEN(AppCopies, Hold, std::declval<QueuePair&>());
  EXPECT_NEEDS_TOKEN(AppCopies, Await, std::declval<QueuePair&>());
  EXPECT_NEEDS_TOKEN(AppCopies, AddAtomic, std::declval<AtomicCopy&>());
  EXPECT_NEEDS_TOKEN(AppCopies, Begin);
  EXPECT_NEEDS_TOKEN(AppCopies, Settle);
  EXPECT_NEEDS_TOKEN(AppCopies, Forget, std::declval<QueuePair&>());
}

TEST(OnShard, EventsNeedTheToken) {
  EXPECT_NEEDS_TOKEN(CompletionEvents, Publish);
  EXPECT_NEEDS_TOKEN(CompletionEvents, Flush, 0);
  EXPECT_NEEDS_TOKEN(CompletionEvents, Expire, 0);
  EXPECT_NEEDS_TOKEN(CompletionEvents, Retry);
  EXPECT_NEEDS_TOKEN(CompletionEvents, NoteOverflow, std::declval<CompletionQueue&>());
  EXPECT_NEEDS_TOKEN(AsyncEvents, Send, 0, 0);
  EXPECT_NEEDS_TOKEN(AsyncEvents, Retry);
  EXPECT_NEEDS_TOKEN(AsyncEvents, waiting);
  EXPECT_NEEDS_TOKEN(QueuePairEvents, Send, roce::QpEvent::kFatal);
}

TEST(OnShard, ContextsAndLanesNeedTheToken) {
  EXPECT_NEEDS_TOKEN(Lcore, worker);
  EXPECT_NEEDS_TOKEN(VerbsContext, SendAsyncEvent, 0, 0);
  EXPECT_NEEDS_TOKEN(VerbsContext, ServeTags, 0, 0);
  EXPECT_NEEDS_TOKEN(VerbsContext, FindQueuePair, 0);
  EXPECT_NEEDS_TOKEN(VerbsContext, doorbells);
  EXPECT_NEEDS_TOKEN(VerbsContext, lists);
  EXPECT_NEEDS_TOKEN(DeviceLane, Receive, static_cast<rte_mbuf**>(nullptr));
  EXPECT_NEEDS_TOKEN(DeviceLane, Stage, static_cast<rte_mbuf*>(nullptr), 0);
  EXPECT_NEEDS_TOKEN(DeviceLane, FlushStage);
  EXPECT_NEEDS_TOKEN(DeviceLane, ServeTap);
  EXPECT_NEEDS_TOKEN(DeviceLane, StageRaw);
  EXPECT_NEEDS_TOKEN(DeviceLane, Find, roce::Qpn(1));
  EXPECT_NEEDS_TOKEN(DeviceLane, FindMembers, roce::Gid());
  EXPECT_NEEDS_TOKEN(DeviceLane, Reserve);
  EXPECT_NEEDS_TOKEN(DeviceLane, tap);
  EXPECT_NEEDS_TOKEN(DeviceLane, local_addresses);
  EXPECT_NEEDS_TOKEN(DeviceLane, IsBacklogged);
  EXPECT_NEEDS_TOKEN(DeviceLane, RxWaits);
  EXPECT_NEEDS_TOKEN(DeviceLane, SetRxInterrupts, true);
  EXPECT_NEEDS_TOKEN(FlowTable, Match, roce::FlowKey(), [](const FlowRule&) {});
  EXPECT_NEEDS_TOKEN(ReceiveQueueTable, Find, 0, nullptr);
}

TEST(OnShard, HelpersOfTheLoopNeedTheToken) {
  EXPECT_NEEDS_TOKEN(PortWaits, Add, std::declval<DeviceLane&>());
  EXPECT_NEEDS_TOKEN(PortWaits, Remove, std::declval<DeviceLane&>());
  EXPECT_NEEDS_TOKEN(PortWaits, Enable, 0);
  EXPECT_NEEDS_TOKEN(PortWaits, Disable);
  EXPECT_NEEDS_TOKEN(PortWaits, MustPoll);
  EXPECT_NEEDS_TOKEN(DurableWriter, Start, nullptr, nullptr, std::declval<memory::DurableRange&>());
  EXPECT_NEEDS_TOKEN(DurableWriter, GiveUp, nullptr);
  EXPECT_NEEDS_TOKEN(DurableWriter, HasDone);
  EXPECT_NEEDS_TOKEN(DurableWriter, IsBusy);
  EXPECT_NEEDS_TOKEN(DurableWriter, Collect, [](void*, const void*, bool) {});
}

}  // namespace
}  // namespace roci::dataplane
