// Speed of the dataplane alone: one lcore drives both ends of a wire, this thread plays the program
// (posts to the rings, polls the completion queue). Prints messages/s, Gb/s and cycles per stage.
//
//   dataplane_bench [write|read|send] [size] [queue pairs] [milliseconds]
//                   [depth per queue pair] [requests per doorbell]
//   dataplane_bench lat [size]
//   dataplane_bench idle 0 [queue pairs]      memory of queue pairs that do nothing
//
// Environment: THREADS=2 gives the lcore a thread of its own (needs two idle processors; SPIN=1: it
// never yields). Otherwise program and lcore take turns on one thread and processor time counts,
// which other load disturbs little. PROFILE=1 times the stages. PROCESS_VM=1 maps no memory.
// FAULTS=1000: both devices have so many faults that concern other packets: a third names queue
// pairs, a third PSNs, a third opcodes.
// TRACE=1: the first queue pair of the device that posts is traced; 2: its peer, too. This thread
// takes the records, and its time does not count.
// PORT_A and PORT_B: devargs of DPDK ports that are joined outside, instead of the wire.
#include <rte_cycles.h>
#include <rte_pause.h>
#include <time.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/worker.h"
#include "dataplane/types/trace_reader.h"
#include "tests/unit/dataplane/ring_app.h"

namespace {

namespace dataplane = roci::dataplane;
namespace roce = roci::roce;
using roci::testing::AppCq;
using roci::testing::AppQp;
using roci::testing::Node;

// Null: the lcore runs on a thread of its own.
dataplane::Worker* g_inline_worker = nullptr;

// Traces of one queue pair of a device each, as `roci trace` makes them.
class Traces {
 public:
  explicit Traces(const dataplane::Dataplane& dataplane) : reader_(dataplane.OpenTrace()) {}
  void Add(dataplane::DeviceClient& device, roce::Qpn qpn) {
    dataplane::TraceSettings settings;
    settings.qpns = {qpn};
    const auto number = static_cast<uint8_t>(devices_.size());
    if (!device.Do(dataplane::StartTrace{*reader_, settings, number}).ok()) std::abort();
    devices_.push_back(&device);
  }
  void Take() {
    if (devices_.empty()) return;
    reader_->Take(UINT64_MAX, records_);
    for (const dataplane::TraceRecord& record : records_) {
      ++(record.kind == dataplane::TraceKind::kLost ? losses_ : taken_);
    }
    records_.clear();
  }
  void End() {
    for (dataplane::DeviceClient* device : devices_) device->Do(dataplane::StopTrace{});
    if (!devices_.empty()) {
      std::printf("records of the trace: %" PRIu64 ", gaps %" PRIu64 "\n", taken_, losses_);
    }
  }

 private:
  std::unique_ptr<dataplane::TraceReader> reader_;
  std::vector<dataplane::DeviceClient*> devices_;
  std::vector<dataplane::TraceRecord> records_;
  uint64_t taken_ = 0, losses_ = 0;
};
Traces* g_traces = nullptr;

// Cycles of the lcore's turns.
uint64_t g_worker_cycles = 0;

void GiveTurn() {
  if (g_inline_worker != nullptr) {
    const uint64_t start = dataplane::Clock::Tsc();
    g_inline_worker->RunOnce();
    g_worker_cycles += dataplane::Clock::Tsc() - start;
    g_traces->Take();
  } else {
    rte_pause();
    g_traces->Take();
  }
}

double Seconds() {
  timespec now;
  clock_gettime(g_inline_worker != nullptr ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Options {
  std::string mode = "write";
  uint32_t size = 64;
  uint32_t queue_pairs = 1;
  uint32_t milliseconds = 1000;
  uint32_t depth = 128;
  uint32_t batch = 16;
};

dataplane::QueuePairConfig QpConfig(AppCq& cq, uint32_t depth) {
  dataplane::QueuePairConfig config;
  config.pd = Node::kPd;
  config.send_cq = cq.cq();
  config.recv_cq = cq.cq();
  config.max_send_wr = depth;
  config.max_recv_wr = 256;
  config.max_inline = 64;
  return config;
}

struct Pairs {
  std::vector<std::unique_ptr<AppQp>> a;
  std::vector<std::unique_ptr<AppQp>> b;
};

Pairs MakePairs(Node& a, Node& b, AppCq& a_cq, AppCq& b_cq, const Options& options) {
  Pairs pairs;
  for (uint32_t i = 0; i < options.queue_pairs; ++i) {
    pairs.a.push_back(std::make_unique<AppQp>(a.client(), QpConfig(a_cq, options.depth)));
    pairs.b.push_back(std::make_unique<AppQp>(b.client(), QpConfig(b_cq, options.depth)));
    Connect(a, *pairs.a[i], b, pairs.b[i]->qp().qpn());
    Connect(b, *pairs.b[i], a, pairs.a[i]->qp().qpn());
  }
  return pairs;
}

roci_abi_send_wqe Head(const Options& options, Node& b) {
  roci_abi_send_wqe head{};
  head.opcode = options.mode == "read"   ? ROCI_ABI_WR_RDMA_READ
                : options.mode == "send" ? ROCI_ABI_WR_SEND
                                         : ROCI_ABI_WR_RDMA_WRITE;
  head.num_sge = 1;
  head.rkey = b.key();
  head.remote_va = b.va();
  return head;
}

// Keeps `depth` requests per queue pair outstanding; the last one of a batch is signalled.
uint64_t Throughput(const Options& options, Node& a, Node& b, AppCq& a_cq, AppCq& b_cq,
                    Pairs& pairs) {
  const uint32_t batch = std::min(options.batch, options.depth);
  std::vector<uint32_t> free(options.queue_pairs, options.depth);
  std::vector<uint32_t> by_handle(65536);
  for (uint32_t i = 0; i < options.queue_pairs; ++i) by_handle[pairs.a[i]->qp().handle()] = i;
  roci_abi_send_wqe head = Head(options, b);
  const bool receives = options.mode == "send";
  if (receives) {
    for (auto& qp : pairs.b) {
      for (int i = 0; i < 256; ++i) qp->PostRecv(0, {b.Sge(0, options.size)});
      qp->Ring();
    }
  }
  uint64_t done = 0;
  uint32_t turn = 0;
  const double end = Seconds() + options.milliseconds * 1e-3;
  for (uint64_t round = 0; (round & 255) != 0 || Seconds() < end; ++round) {
    for (uint32_t visit = 0; visit < std::max(64 / batch, 1u); ++visit) {
      const uint32_t i = turn++ % options.queue_pairs;
      if (free[i] < batch) continue;
      for (uint32_t n = 1; n <= batch; ++n) {
        head.flags = n == batch ? ROCI_ABI_SEND_SIGNALED : 0;
        pairs.a[i]->Post(head, a.Sge(size_t{n} * options.size % 65536, options.size));
      }
      free[i] -= batch;
      pairs.a[i]->Ring();
    }
    roci_abi_cqe cqe;
    bool idle = true;
    for (int n = 0; n < 64 && a_cq.Poll(&cqe); ++n) {
      if (cqe.status != 0) {
        std::printf("completion status %u\n", cqe.status);
        std::exit(1);
      }
      free[by_handle[cqe.qp_handle]] += batch;
      done += batch;
      idle = false;
    }
    for (int n = 0; receives && n < 256 && b_cq.Poll(&cqe); ++n) {
      pairs.b[by_handle[cqe.qp_handle]]->PostRecv(0, {b.Sge(0, options.size)});
      pairs.b[by_handle[cqe.qp_handle]]->Ring();
    }
    if (idle || g_inline_worker != nullptr) GiveTurn();
  }
  return done;
}

void Latency(const Options& options, Node& a, Node& b, AppCq& a_cq, Pairs& pairs) {
  roci_abi_send_wqe head = Head(options, b);
  head.opcode = ROCI_ABI_WR_RDMA_READ;
  head.flags = ROCI_ABI_SEND_SIGNALED;
  std::vector<double> times;
  roci_abi_cqe cqe;
  for (int i = 0; i < 200000; ++i) {
    const uint64_t start = dataplane::Clock::Tsc();
    pairs.a[0]->Post(head, a.Sge(0, options.size));
    pairs.a[0]->Ring();
    while (!a_cq.Poll(&cqe)) GiveTurn();
    times.push_back(static_cast<double>(dataplane::Clock::Tsc() - start) * 1e6 /
                    static_cast<double>(rte_get_tsc_hz()));
  }
  std::sort(times.begin(), times.end());
  std::printf("read %u B: median %.2f us, 99%% %.2f us\n", options.size, times[times.size() / 2],
              times[times.size() * 99 / 100]);
}

// Memory of this process in kB, without rings.
uint64_t AnonymousKilobytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  uint64_t value = 0;
  while (status >> word) {
    if (word == "RssAnon:") status >> value;
  }
  return value;
}

void PrintStages(const dataplane::LcoreSnapshot& before, const dataplane::LcoreSnapshot& after,
                 uint64_t messages) {
  std::printf(
      "busy %.0f cycles/message, %.1f frames/burst, %.0f%% busy;",
      static_cast<double>(after.busy_cycles - before.busy_cycles) / static_cast<double>(messages),
      static_cast<double>(after.rx_packets - before.rx_packets) /
          static_cast<double>(after.rx_bursts - before.rx_bursts + 1),
      100.0 * static_cast<double>(after.busy_cycles - before.busy_cycles) /
          static_cast<double>(after.busy_cycles - before.busy_cycles + after.idle_cycles -
                              before.idle_cycles));
  for (size_t i = 0; i < dataplane::kLcoreStageCount; ++i) {
    std::printf(" %s %.0f", dataplane::kLcoreStageNames[i],
                static_cast<double>(after.stage_cycles[i] - before.stage_cycles[i]) /
                    static_cast<double>(messages));
  }
  std::printf("\n");
}

void PrintCounters(Node& a, Node& b) {
  const auto counters = a.device().Snapshot();
  const auto remote = b.device().Snapshot();
  std::printf("tx_blocked %" PRIu64 " %" PRIu64 ", retransmitted %" PRIu64 ", acks %" PRIu64 "\n",
              counters.tx_blocked, remote.tx_blocked,
              counters.qp[static_cast<size_t>(roce::QpCounter::kRetransmittedPackets)],
              remote.qp[static_cast<size_t>(roce::QpCounter::kAcksSent)]);
}

void MeasureThroughput(const Options& options, dataplane::Lcore& lcore, Node& a, Node& b,
                       AppCq& a_cq, AppCq& b_cq, Pairs& pairs) {
  const auto before = lcore.Snapshot();
  const double start = Seconds();
  const uint64_t start_cycles = dataplane::Clock::Tsc();
  g_worker_cycles = 0;
  const uint64_t done = Throughput(options, a, b, a_cq, b_cq, pairs);
  const double seconds = Seconds() - start;
  const double share = static_cast<double>(g_worker_cycles) /
                       static_cast<double>(dataplane::Clock::Tsc() - start_cycles);
  const auto messages = static_cast<double>(done);
  std::printf("%s %u B, %u queue pairs: %.2f M messages/s, %.1f Gb/s, %.0f ns of the lcore each\n",
              options.mode.c_str(), options.size, options.queue_pairs, messages / seconds / 1e6,
              messages * options.size * 8 / seconds / 1e9, share * seconds * 1e9 / messages);
  PrintStages(before, lcore.Snapshot(), done);
  PrintCounters(a, b);
}

Node::Config NodeConfig(uint32_t number, const char* port_variable) {
  Node::Config config;
  config.number = number;
  config.process_vm = std::getenv("PROCESS_VM") != nullptr;
  if (const char* port = std::getenv(port_variable)) config.devargs = port;
  return config;
}

// Of each direction one half.
void AddFaults(Node& node, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    dataplane::FaultSettings settings;
    settings.actions.drops = true;
    settings.match.direction =
        i % 2 == 0 ? dataplane::LinkDirection::kIn : dataplane::LinkDirection::kOut;
    if (i % 3 == 0) settings.match.filter.qpns = {roce::Qpn(0xE00000 + i)};
    if (i % 3 == 1) settings.match.psn = 0xF00000 + i;
    if (i % 3 == 2) {
      settings.match.filter.opcodes.set(static_cast<size_t>(roce::Opcode::kRcCompareSwap));
    }
    if (!node.device().Do(dataplane::AddFault{settings}).ok()) std::abort();
  }
}

void Measure(const Options& options, dataplane::Dataplane& dataplane) {
  dataplane::Wire wire(dataplane);
  Node a(dataplane, &wire, NodeConfig(1, "PORT_A"));
  Node b(dataplane, &wire, NodeConfig(2, "PORT_B"));
  AppCq a_cq(a.client(), 65536);
  AppCq b_cq(b.client(), 65536);
  const uint64_t before_kilobytes = AnonymousKilobytes();
  Pairs pairs = MakePairs(a, b, a_cq, b_cq, options);
  if (const char* faults = std::getenv("FAULTS")) {
    for (Node* node : {&a, &b}) {
      AddFaults(*node, static_cast<uint32_t>(std::strtoul(faults, nullptr, 0)));
    }
  }
  Traces traces(dataplane);
  g_traces = &traces;
  const char* traced = std::getenv("TRACE");
  const unsigned long ends = traced != nullptr ? std::strtoul(traced, nullptr, 0) : 0;
  if (ends > 0) traces.Add(a.device(), pairs.a[0]->qp().qpn());
  if (ends > 1) traces.Add(b.device(), pairs.b[0]->qp().qpn());
  if (options.mode == "idle") {
    std::printf(
        "%.2f KiB per connected queue pair, this program's own bookkeeping included\n",
        static_cast<double>(AnonymousKilobytes() - before_kilobytes) / (2.0 * options.queue_pairs));
  } else if (options.mode == "lat") {
    Latency(options, a, b, a_cq, pairs);
  } else {
    MeasureThroughput(options, dataplane::ShardAccess::LcoreOf(dataplane, 0), a, b, a_cq, b_cq,
                      pairs);
  }
  traces.End();
}

void Run(const Options& options) {
  dataplane::DataplaneOptions dataplane_options;
  dataplane_options.lcore.profile = std::getenv("PROFILE") != nullptr;
  dataplane_options.lcore.spin = std::getenv("SPIN") != nullptr;
  auto dataplane = dataplane::Dataplane::Start(dataplane_options);
  if (!dataplane.ok()) {
    std::fprintf(stderr, "%s\n", dataplane.status().ToString().c_str());
    std::exit(1);
  }
  if (std::getenv("THREADS") == nullptr) {
    dataplane::ShardAccess::LcoreOf(**dataplane, 0).Stop();
    dataplane::Lcore& lcore = dataplane::ShardAccess::LcoreOf(**dataplane, 0);
    lcore.Call([&](const dataplane::OnShard& shard) { g_inline_worker = &lcore.worker(shard); });
  }
  Measure(options, **dataplane);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc > 1) options.mode = argv[1];
  const auto number = [&](int i, uint32_t otherwise) {
    return argc > i ? static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 0)) : otherwise;
  };
  options.size = number(2, options.size);
  options.queue_pairs = number(3, options.queue_pairs);
  options.milliseconds = number(4, options.milliseconds);
  options.depth = number(5, options.depth);
  options.batch = std::max(number(6, options.batch), 1u);
  Run(options);
}
