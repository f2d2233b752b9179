// Measures what each of several users gets of a daemon that is the bottleneck: an ordinary
// libibverbs program that becomes one process for each user. Run by tools/bench, as root under
// `roci run`.
//
// user_shares OPERATION SECONDS UID:QUEUE_PAIRS...
//   OPERATION: write or read, 64 KiB each, from roci0 to roci1; every queue pair always has
//   requests outstanding
//   Prints the bytes of each user as a JSON list.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

constexpr uint32_t kBytes = 64 << 10;  // of a message
// A process that gets no processor for some tens of milliseconds must not run out of requests.
constexpr uint32_t kOutstanding = 8192;  // of a user
constexpr uint32_t kLeast = 16;          // of a queue pair
constexpr int kPoll = 64;
constexpr uint8_t kReads = 16;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

void Require(bool is_good, const char* what) {
  if (is_good) return;
  std::fprintf(stderr, "user_shares: %s: %s\n", what, strerror(errno));
  std::_Exit(1);
}

struct User {
  uid_t uid;
  uint32_t queue_pairs;
};

// Shared by the processes.
struct Progress {
  std::atomic<uint32_t> ready{0};
  std::atomic<uint64_t> bytes[16] = {};
};

// The queue pairs of a user on one device, with one completion queue and one region.
class End {
 public:
  End(OpenDevice& device, uint32_t queue_pairs, uint32_t depth) : device_(device) {
    cq = ibv_create_cq(device.context, static_cast<int>(queue_pairs * depth), nullptr, nullptr, 0);
    Require(cq != nullptr, "ibv_create_cq");
    // Memory that lcores may access.
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Require(memory != MAP_FAILED, "mmap");
    mr = ibv_reg_mr(device.pd, memory, kBytes, kAccess);
    Require(mr != nullptr, "ibv_reg_mr");
    for (uint32_t i = 0; i < queue_pairs; ++i) {
      ibv_qp_init_attr attr{};
      attr.send_cq = attr.recv_cq = cq;
      attr.cap = {depth, 1, 1, 1, 0};
      attr.qp_type = IBV_QPT_RC;
      qps.push_back(ibv_create_qp(device.pd, &attr));
      Require(qps.back() != nullptr, "ibv_create_qp");
    }
  }

  void Connect(const End& peer) const {
    for (size_t i = 0; i < qps.size(); ++i) Connect(qps[i], peer.qps[i]->qp_num, peer.device_.gid);
  }

  ibv_cq* cq;
  ibv_mr* mr;
  std::vector<ibv_qp*> qps;

 private:
  void Connect(ibv_qp* qp, uint32_t peer_qpn, const ibv_gid& peer_gid) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAccess;
    Require(
        ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
        "ibv_modify_qp to INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = peer_qpn;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = kReads;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = peer_gid;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(device_.gid_index);
    attr.ah_attr.grh.hop_limit = 64;
    Require(
        ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
        "ibv_modify_qp to RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 20;
    attr.retry_cnt = attr.rnr_retry = 7;
    Require(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
            "ibv_modify_qp to RTS");
  }

  OpenDevice& device_;
};

void Become(uid_t uid) {
  Require(setgid(uid) == 0 && setuid(uid) == 0, "setuid");
  // As after exec: the daemon may look at the process.
  Require(prctl(PR_SET_DUMPABLE, 1) == 0, "prctl");
}

[[noreturn]] void Transfer(const User& user, ibv_wr_opcode opcode, Progress& progress,
                           std::atomic<uint64_t>& bytes) {
  if (user.uid != getuid()) Become(user.uid);
  const uint32_t depth = std::max(kLeast, kOutstanding / user.queue_pairs);
  End near(DeviceZero(), user.queue_pairs, depth);
  End far(DeviceOne(), user.queue_pairs, depth);
  near.Connect(far);
  far.Connect(near);
  std::unordered_map<uint32_t, ibv_qp*> by_number;
  ibv_sge sge{reinterpret_cast<uintptr_t>(near.mr->addr), kBytes, near.mr->lkey};
  const auto post = [&](ibv_qp* qp) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {reinterpret_cast<uintptr_t>(far.mr->addr), far.mr->rkey};
    Require(ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
  };
  progress.ready.fetch_add(1);
  for (ibv_qp* qp : near.qps) {
    by_number[qp->qp_num] = qp;
    for (uint32_t i = 0; i < depth; ++i) post(qp);
  }
  for (;;) {
    ibv_wc completions[kPoll];
    const int count = ibv_poll_cq(near.cq, kPoll, completions);
    Require(count >= 0, "ibv_poll_cq");
    for (int i = 0; i < count; ++i) {
      Require(completions[i].status == IBV_WC_SUCCESS, "a request failed");
      post(by_number[completions[i].qp_num]);
    }
    bytes.fetch_add(static_cast<uint64_t>(count) * kBytes, std::memory_order_relaxed);
  }
}

std::vector<uint64_t> Look(const Progress& progress, size_t users) {
  std::vector<uint64_t> out;
  for (size_t i = 0; i < users; ++i) out.push_back(progress.bytes[i].load());
  return out;
}

int Measure(ibv_wr_opcode opcode, double seconds, const std::vector<User>& users) {
  void* shared =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Require(shared != MAP_FAILED, "mmap");
  auto& progress = *new (shared) Progress;
  std::vector<pid_t> children;
  for (size_t i = 0; i < users.size(); ++i) {
    children.push_back(fork());
    Require(children.back() >= 0, "fork");
    if (children.back() == 0) Transfer(users[i], opcode, progress, progress.bytes[i]);
  }
  const auto has_ended = [&] { return waitpid(-1, nullptr, WNOHANG) != 0; };
  const auto pause = [](double length) { usleep(static_cast<useconds_t>(length * 1e6)); };
  bool is_good = true;
  while (is_good && progress.ready.load() < users.size()) {
    pause(0.02);
    is_good = !has_ended();
  }
  std::vector<uint64_t> before, after;
  if (is_good) {
    pause(seconds / 4);
    before = Look(progress, users.size());
    pause(seconds);
    after = Look(progress, users.size());
    is_good = !has_ended();
  }
  for (const pid_t child : children) kill(child, SIGKILL);
  while (wait(nullptr) > 0) {
  }
  if (!is_good) return 1;
  for (size_t i = 0; i < users.size(); ++i) {
    std::printf("%s%lu", i == 0 ? "[" : ", ", after[i] - before[i]);
  }
  std::printf("]\n");
  return 0;
}

bool Parse(const char* text, User& out) {
  char* end = nullptr;
  out.uid = static_cast<uid_t>(std::strtoul(text, &end, 10));
  if (*end != ':') return false;
  out.queue_pairs = static_cast<uint32_t>(std::strtoul(end + 1, &end, 10));
  return *end == '\0' && out.queue_pairs > 0;
}

int Main(int argc, char** argv) {
  std::vector<User> users;
  bool is_good = argc > 3 && argc <= 3 + 16;
  for (int i = 3; is_good && i < argc; ++i) {
    users.emplace_back();
    is_good = Parse(argv[i], users.back());
  }
  const std::string_view operation = argc > 1 ? argv[1] : "";
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0;
  if (!is_good || seconds <= 0 || (operation != "write" && operation != "read")) {
    std::fprintf(stderr, "Usage: user_shares write|read SECONDS UID:QUEUE_PAIRS...\n");
    return 2;
  }
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  return Measure(operation == "read" ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, seconds, users);
}

}  // namespace
}  // namespace roci::testing

int main(int argc, char** argv) { return roci::testing::Main(argc, argv); }
