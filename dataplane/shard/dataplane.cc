#include "dataplane/shard/dataplane.h"

#include <rte_lcore.h>

#include <algorithm>

#include "dataplane/base/clock.h"
#include "dataplane/base/eal.h"
#include "dataplane/base/frame_pool.h"
#include "dataplane/base/priority_guard.h"
#include "dataplane/port/ethdev_port.h"
#include "dataplane/port/wire.h"
#include "dataplane/rings/trace.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/pending_releases.h"
#include "dataplane/shard/worker.h"
#include "memory/app_memory.h"

namespace roci::dataplane {
namespace {

// Frame buffers where the options name no number.
constexpr uint32_t kFramesOfFirstLcore = 8192;
constexpr uint32_t kFramesPerFurtherLcore = 4096;

}  // namespace

Dataplane::Dataplane()
    : priority_guard_(std::make_unique<PriorityGuard>()),
      releases_(std::make_unique<PendingReleases>()) {}

absl::StatusOr<std::unique_ptr<Dataplane>> Dataplane::Start(const DataplaneOptions& options) {
  memory::AppMemory::OwnProcess();  // opens the file before an lcore needs it
  const uint32_t frames =
      options.frames != 0 ? options.frames
                          : kFramesOfFirstLcore + kFramesPerFurtherLcore * (options.eal.lcores - 1);
  EalOptions eal = options.eal;
  const FrameMemory memory =
      !options.sharing_ports.empty() ? FrameMemory::kDevices : FrameMemory::kOwn;
  if (memory == FrameMemory::kDevices) {
    eal.frames_mib = FramePool::HeapMib(frames, kFrameBufferBytes);
    for (const PortSettings& port : options.sharing_ports) {
      eal.frames_mib += EthdevPort::MostHeapMib(port, options.eal.lcores);
    }
  }
  if (absl::Status status = StartEal(eal); !status.ok()) return status;
  std::unique_ptr<Dataplane> dataplane(new Dataplane);
  absl::StatusOr<std::unique_ptr<FramePool>> pool =
      FramePool::Create(frames, kFrameBufferBytes, memory);
  if (!pool.ok()) return pool.status();
  dataplane->pool_ = *std::move(pool);
  dataplane->frames_ = dataplane->pool_.get();
  dataplane->has_virtual_time_ = options.lcore.virtual_time.is_used;
  for (uint32_t i = 0; i < options.eal.lcores; ++i) {
    dataplane->lcores_.push_back(std::make_unique<Lcore>(*dataplane, i, options.lcore));
    dataplane->wakes_.push_back(&dataplane->lcores_.back()->wake());
  }
  unsigned eal_lcore = rte_get_next_lcore(-1, /*skip_main=*/1, /*wrap=*/0);
  for (auto& lcore : dataplane->lcores_) {
    if (options.lcore.realtime != RealtimeUse::kOff) {
      dataplane->priority_guard_->Add(lcore->priority());
    }
    if (absl::Status status = lcore->Start(eal_lcore); !status.ok()) return status;
    eal_lcore = rte_get_next_lcore(eal_lcore, 1, 0);
  }
  return dataplane;
}

Dataplane::~Dataplane() {
  wires_.clear();
  for (auto& lcore : lcores_) lcore->Stop();
  priority_guard_->Stop();
  releases_.reset();
  lcores_.clear();
  pool_.reset();
}

uint32_t Dataplane::LeastLoadedLcore() const {
  const auto& least =
      *std::min_element(lcores_.begin(), lcores_.end(),
                        [](const auto& a, const auto& b) { return a->contexts() < b->contexts(); });
  return least->index();
}

LcoreThread Dataplane::ThreadOf(uint32_t lcore) const {
  return {lcores_[lcore]->thread_id(), lcores_[lcore]->realtime_priority()};
}

bool Dataplane::HasHugePages() const { return EalHasHugePages(); }

LcoreState Dataplane::Inspect(uint32_t lcore) const {
  return {ThreadOf(lcore), lcores_[lcore]->contexts(), lcores_[lcore]->Snapshot()};
}

std::optional<uint32_t> Dataplane::TakeBlocker(uint32_t lcore) {
  return lcores_[lcore]->TakeBlocker();
}

uint64_t Dataplane::Now() {
  if (!has_virtual_time_) return Clock::Monotonic();
  Lcore& only = *lcores_.front();
  return only.Call([&](const OnShard& shard) { return only.worker(shard).now_ns(); });
}

Wire& Dataplane::AddWire() { return *wires_.emplace_back(std::make_unique<Wire>(*this)); }

std::unique_ptr<TraceReader> Dataplane::OpenTrace() const {
  return std::make_unique<TraceRings>(lcore_count());
}

void Dataplane::Guard(ThreadPriority& thread) { priority_guard_->Add(thread); }

bool Dataplane::PrepareDurable() {
  return std::all_of(lcores_.begin(), lcores_.end(),
                     [](const auto& lcore) { return lcore->PrepareDurable(); });
}

void Dataplane::ReleaseSome() { releases_->Release(); }

bool Dataplane::HasReleases() const { return !releases_->empty(); }

void Dataplane::Quiesce() {
  for (auto& lcore : lcores_) lcore->Call([](const OnShard&) {});
}

}  // namespace roci::dataplane
