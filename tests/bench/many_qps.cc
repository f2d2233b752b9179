// Measures the message rate with many connected queue pairs: an ordinary libibverbs program with
// both ends, on two devices, that sends small RDMA WRITEs round robin over them. Run by tools/bench
// under `roci run`. See Usage().
#include <getopt.h>
#include <infiniband/verbs.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr uint32_t kMessage = 64;                  // bytes
constexpr uint32_t kMemory = 64 * 1024;            // bytes that each end registers
constexpr uint32_t kPerVisit = 16;                 // messages in a row on a queue pair, if not one
constexpr uint32_t kQueueEntries = 2 * kPerVisit;  // of a send queue; the first pair has more
constexpr uint32_t kMaxOutstanding = 512;          // over all queue pairs
constexpr uint32_t kCqEntries = 4096;
constexpr int kPoll = 64;
constexpr int kTurnsPerLook = 32;  // at the clock

constexpr char kUsage[] =
    R"(usage: many_qps [OPTIONS]
Sends 64-byte RDMA WRITEs over one pair of connected RC queue pairs, then over many, round robin with at most 512
outstanding, and prints messages per second and the daemon's memory per idle queue pair as JSON.
  --server DEVICE     device of the passive ends (roci0)
  --client DEVICE     device of the active ends (roci1)
  --gid-index N       (1)
  --pairs N           connected pairs in the second part (10000)
  --seconds S         length of each measurement (1)
  --runs N            repetitions of each (3)
  --daemon-pid PID    whose memory to look at (none)
)";

struct Options {
  std::string server = "roci0";
  std::string client = "roci1";
  int gid_index = 1;
  uint32_t pairs = 10000;
  double seconds = 1;
  int runs = 3;
  int daemon_pid = 0;
};

[[noreturn]] void Die(const char* what, int error) {
  fprintf(stderr, "many_qps: %s: %s\n", what, strerror(error));
  exit(1);
}
void Check(bool ok, const char* what) {
  if (!ok) Die(what, errno);
}
void CheckZero(int error, const char* what) {
  if (error != 0) Die(what, error > 0 ? error : errno);
}

double Now() {  // seconds
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Private memory of the daemon in bytes, without files and memory shared with programs (rings).
// Negative if not known.
int64_t OwnMemory(int pid) {
  if (pid == 0) return -1;
  FILE* file = fopen(("/proc/" + std::to_string(pid) + "/status").c_str(), "r");
  if (file == nullptr) return -1;
  int64_t kib = 0;
  char line[256];
  while (fgets(line, sizeof(line), file) != nullptr) {
    long value = 0;
    if (sscanf(line, "RssAnon: %ld", &value) == 1) kib += value;
    if (sscanf(line, "HugetlbPages: %ld", &value) == 1) kib += value;
  }
  fclose(file);
  return kib * 1024;
}

// One device with what all its queue pairs share.
class End {
 public:
  End(const std::string& name, int gid_index) : gid_index_(gid_index), memory_(kMemory) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    Check(list != nullptr, "ibv_get_device_list");
    for (int i = 0; i < count; ++i) {
      if (name == ibv_get_device_name(list[i])) context_ = ibv_open_device(list[i]);
    }
    ibv_free_device_list(list);
    if (context_ == nullptr) Die(("opening " + name).c_str(), ENODEV);
    pd_ = ibv_alloc_pd(context_);
    Check(pd_ != nullptr, "ibv_alloc_pd");
    cq_ = ibv_create_cq(context_, kCqEntries, nullptr, nullptr, 0);
    Check(cq_ != nullptr, "ibv_create_cq");
    mr_ =
        ibv_reg_mr(pd_, memory_.data(), kMemory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    Check(mr_ != nullptr, "ibv_reg_mr");
    CheckZero(ibv_query_gid(context_, 1, gid_index, &gid_), "ibv_query_gid");
  }
  ~End() {
    ibv_dereg_mr(mr_);
    ibv_destroy_cq(cq_);
    ibv_dealloc_pd(pd_);
    ibv_close_device(context_);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  ibv_qp* CreateQp(uint32_t queue_entries) {
    ibv_qp_init_attr attr{};
    attr.send_cq = cq_;
    attr.recv_cq = cq_;
    attr.cap = {queue_entries, 1, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    ibv_qp* qp = ibv_create_qp(pd_, &attr);
    Check(qp != nullptr, "ibv_create_qp");
    return qp;
  }

  void Connect(ibv_qp* qp, uint32_t peer_qpn, const ibv_gid& peer) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    CheckZero(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              "ibv_modify_qp to INIT");
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = peer_qpn;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = peer;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.port_num = 1;
    CheckZero(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              "ibv_modify_qp to RTR");
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    CheckZero(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
              "ibv_modify_qp to RTS");
  }

  ibv_cq* cq() const { return cq_; }
  const ibv_mr* mr() const { return mr_; }
  const ibv_gid& gid() const { return gid_; }

 private:
  int gid_index_;
  std::vector<char> memory_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_gid gid_{};
};

// The connected pairs, and the traffic over them.
class Pairs {
 public:
  Pairs(End& server, End& client) : server_(server), client_(client) {}
  ~Pairs() {
    for (ibv_qp* qp : active_) ibv_destroy_qp(qp);
    for (ibv_qp* qp : passive_) ibv_destroy_qp(qp);
  }
  Pairs(const Pairs&) = delete;
  Pairs& operator=(const Pairs&) = delete;

  void GrowTo(size_t count) {
    while (active_.size() < count) {
      const uint32_t entries = active_.empty() ? kMaxOutstanding : kQueueEntries;
      passive_.push_back(server_.CreateQp(1));
      active_.push_back(client_.CreateQp(entries));
      server_.Connect(passive_.back(), active_.back()->qp_num, client_.gid());
      client_.Connect(active_.back(), passive_.back()->qp_num, server_.gid());
      if (active_.size() % 2000 == 0)
        fprintf(stderr, "many_qps: %zu pairs connected\n", active_.size());
    }
  }

  // Messages per second over the first `count` pairs, `per_visit` in a row on each.
  double Rate(size_t count, uint32_t per_visit, double seconds) {
    Send(count, per_visit, seconds / 5);
    const double start = Now();
    const uint64_t sent = Send(count, per_visit, seconds);
    return static_cast<double>(sent) / (Now() - start);
  }

 private:
  // Waits until everything posted is completed; returns the number of completions.
  uint64_t Send(size_t count, uint32_t per_visit, double seconds) {
    const double end = Now() + seconds;
    next_ = next_ < count ? next_ : 0;
    const uint64_t window =
        count == 1 ? kMaxOutstanding : std::min<uint64_t>(kMaxOutstanding, kPerVisit * count);
    uint64_t posted = 0;
    uint64_t completed = 0;
    bool going_on = true;
    while (going_on || completed < posted) {
      // Reading the clock in each iteration would be a large part of a message's cost.
      for (int turn = 0; turn < kTurnsPerLook; ++turn) {
        while (going_on && posted - completed + per_visit <= window) {
          for (uint32_t i = 0; i < per_visit; ++i) Post(active_[next_], posted++);
          next_ = next_ + 1 >= count ? 0 : next_ + 1;
        }
        completed += Poll();
      }
      going_on = going_on && Now() < end;
    }
    return completed;
  }

  void Post(ibv_qp* qp, uint64_t index) {
    const uint64_t offset = index * kMessage % kMemory;
    ibv_sge sge{reinterpret_cast<uint64_t>(client_.mr()->addr) + offset, kMessage,
                client_.mr()->lkey};
    ibv_send_wr wr{};
    wr.wr_id = index;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(server_.mr()->addr) + offset;
    wr.wr.rdma.rkey = server_.mr()->rkey;
    ibv_send_wr* bad = nullptr;
    CheckZero(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
  }

  uint64_t Poll() {
    ibv_wc entries[kPoll];
    const int count = ibv_poll_cq(client_.cq(), kPoll, entries);
    if (count < 0) Die("ibv_poll_cq", -count);
    for (int i = 0; i < count; ++i) {
      if (entries[i].status == IBV_WC_SUCCESS) continue;
      fprintf(stderr, "many_qps: a WRITE failed: %s\n", ibv_wc_status_str(entries[i].status));
      exit(1);
    }
    return static_cast<uint64_t>(count);
  }

  End& server_;
  End& client_;
  std::vector<ibv_qp*> active_;
  std::vector<ibv_qp*> passive_;
  size_t next_ = 0;
};

Options ParseOptions(int argc, char** argv) {
  constexpr option kLong[] = {
      {"server", required_argument, nullptr, 's'},
      {"client", required_argument, nullptr, 'c'},
      {"gid-index", required_argument, nullptr, 'x'},
      {"pairs", required_argument, nullptr, 'n'},
      {"seconds", required_argument, nullptr, 't'},
      {"runs", required_argument, nullptr, 'r'},
      {"daemon-pid", required_argument, nullptr, 'p'},
      {"help", no_argument, nullptr, 'h'},
      {nullptr, 0, nullptr, 0},
  };
  Options options;
  for (int c; (c = getopt_long(argc, argv, "", kLong, nullptr)) != -1;) {
    switch (c) {
      case 's':
        options.server = optarg;
        break;
      case 'c':
        options.client = optarg;
        break;
      case 'x':
        options.gid_index = atoi(optarg);
        break;
      case 'n':
        options.pairs = static_cast<uint32_t>(atoi(optarg));
        break;
      case 't':
        options.seconds = atof(optarg);
        break;
      case 'r':
        options.runs = atoi(optarg);
        break;
      case 'p':
        options.daemon_pid = atoi(optarg);
        break;
      case 'h':
        fputs(kUsage, stdout);
        exit(0);
      default:
        fputs(kUsage, stderr);
        exit(2);
    }
  }
  if (options.pairs == 0 || options.runs <= 0 || options.seconds <= 0 || optind != argc) {
    fputs(kUsage, stderr);
    exit(2);
  }
  return options;
}

// A queue pair of the provider may hold a descriptor.
void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void PrintList(const char* name, const std::vector<double>& values) {
  printf("  \"%s\": [", name);
  for (size_t i = 0; i < values.size(); ++i) printf("%s%.0f", i == 0 ? "" : ", ", values[i]);
  printf("],\n");
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  RaiseFileLimit();
  End server(options.server, options.gid_index);
  End client(options.client, options.gid_index);
  Pairs pairs(server, client);
  pairs.GrowTo(1);
  std::vector<double> one;
  for (int i = 0; i < options.runs; ++i) one.push_back(pairs.Rate(1, 1, options.seconds));

  const int64_t before = OwnMemory(options.daemon_pid);
  const double start = Now();
  pairs.GrowTo(options.pairs);
  const double connect_s = Now() - start;
  const int64_t after = OwnMemory(options.daemon_pid);

  std::vector<double> one_among_many;
  std::vector<double> many;
  std::vector<double> many_in_bursts;
  for (int i = 0; i < options.runs; ++i) {
    one_among_many.push_back(pairs.Rate(1, 1, options.seconds));
    many.push_back(pairs.Rate(options.pairs, 1, options.seconds));
    many_in_bursts.push_back(pairs.Rate(options.pairs, kPerVisit, options.seconds));
  }

  // Time for the daemon to trim its pools and fall asleep.
  usleep(500'000);
  const int64_t after_traffic = OwnMemory(options.daemon_pid);

  printf("{\n  \"pairs\": %u,\n  \"outstanding\": %u,\n  \"messages_per_visit\": %u,\n",
         options.pairs, kMaxOutstanding, kPerVisit);
  PrintList("one_per_s", one);
  PrintList("one_among_many_per_s", one_among_many);
  PrintList("many_per_s", many);
  PrintList("many_in_bursts_per_s", many_in_bursts);
  // Each pair is two queue pairs.
  if (before >= 0 && after >= 0 && options.pairs > 1) {
    printf("  \"daemon_bytes_per_idle_qp\": %.0f,\n",
           static_cast<double>(after - before) / (2.0 * (options.pairs - 1)));
    printf("  \"daemon_bytes_per_used_qp\": %.0f,\n",
           static_cast<double>(after_traffic - before) / (2.0 * (options.pairs - 1)));
  }
  printf("  \"connect_s\": %.2f\n}\n", connect_s);
  return 0;
}
