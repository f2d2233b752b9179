#include "tests/integration/hostile/victim.h"

#include <infiniband/verbs.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing::hostile {
namespace {

constexpr size_t kBufferBytes = 32 * 1024;
constexpr size_t kMessageBytes = 12 * 1024;  // several packets
constexpr uint32_t kUntouchedSeed = 77;

uint64_t Now() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// Duration of a step. Each wait for a processor counts only a moment, since the machine causes it,
// not the daemon.
class StepClock {
 public:
  explicit StepClock(VictimPage& page) : page_(page) {}
  void Begin() {
    page_.step_ns = 0;
    last_ = Now();
  }
  void Tick() {
    constexpr uint64_t kMoment = 20'000'000;
    const uint64_t now = Now();
    page_.step_ns += std::min(now - last_, kMoment);
    last_ = now;
  }
  // A single call: its whole duration counts.
  void EndCall() {
    page_.step_ns += Now() - last_;
    End();
  }
  void End() {
    page_.longest_step_ns = std::max(page_.longest_step_ns.load(), page_.step_ns.load());
    page_.step_ns = 0;
  }

 private:
  VictimPage& page_;
  uint64_t last_ = 0;
};

class Program {
 public:
  explicit Program(VictimPage& page)
      : page_(page),
        step_(page),
        pair_(Options()),
        source_(pair_.near_device, kBufferBytes, 0),
        back_(pair_.near_device, kBufferBytes, 0),
        target_(pair_.far_device, kBufferBytes, 0),
        untouched_(pair_.far_device, kBufferBytes, kUntouchedSeed) {
    page_.near_qpn = pair_.near.qp->qp_num;
    page_.far_qpn = pair_.far.qp->qp_num;
    page_.rkey = untouched_.rkey();
    page_.remote_va = untouched_.address();
    std::memset(target_.data(), 0, kBufferBytes);
  }

  [[noreturn]] void Run() {
    for (uint64_t round = 1;; ++round) {
      Pause();
      const auto seed = static_cast<uint32_t>(round);
      source_.Fill(seed);
      WriteAndRead(seed);
      SendAndReceive(seed + 1);
      FetchAdd(round);
      ExpectPattern(untouched_, 0, kBufferBytes, kUntouchedSeed, "untouched memory");
      if (round % kRoundsBetweenCalls == 0) Calls();
      page_.rounds = round;
    }
  }

 private:
  static EndpointOptions Options() {
    EndpointOptions options;
    options.timeout = 16;  // 0.27 s
    options.retry_count = 7;
    options.rnr_retry = 7;
    return options;
  }

  [[noreturn]] void Fail(const char* what, long detail) {
    std::snprintf(page_.failure, sizeof(page_.failure), "%s (%ld) in round %llu", what, detail,
                  static_cast<unsigned long long>(page_.rounds.load()));
    page_.has_failed = 1;
    _exit(1);
  }

  void Pause() {
    while (page_.wants_pause != 0) {
      page_.is_paused = 1;
      usleep(200);
    }
    page_.is_paused = 0;
  }

  void Wait(Endpoint& end, const char* what) {
    ibv_wc wc = {};
    int polled = 0;
    for (step_.Begin(); (polled = ibv_poll_cq(end.cq, 1, &wc)) == 0; step_.Tick()) usleep(20);
    step_.End();
    if (polled < 0) Fail("the completion queue", polled);
    if (wc.status != IBV_WC_SUCCESS) Fail(what, wc.status);
  }

  void ExpectPattern(Buffer& buffer, size_t offset, size_t length, uint32_t seed,
                     const char* what) {
    for (size_t i = offset; i < offset + length; ++i) {
      if (buffer.data()[i] != PatternByte(seed, i)) Fail(what, static_cast<long>(i));
    }
  }

  void Post(ibv_wr_opcode opcode, ibv_sge sge, uint64_t remote, const char* what) {
    const int error = pair_.near.PostSend(opcode, sge, IBV_SEND_SIGNALED, remote, target_.rkey());
    if (error != 0) Fail(what, error);
  }

  void WriteAndRead(uint32_t seed) {
    Post(IBV_WR_RDMA_WRITE, source_.Sge(0, kMessageBytes), target_.address(), "post of a WRITE");
    Wait(pair_.near, "WRITE");
    ExpectPattern(target_, 0, kMessageBytes, seed, "data of a WRITE");
    std::memset(back_.data(), 0, kMessageBytes);
    Post(IBV_WR_RDMA_READ, back_.Sge(0, kMessageBytes), target_.address(), "post of a READ");
    Wait(pair_.near, "READ");
    ExpectPattern(back_, 0, kMessageBytes, seed, "data of a READ");
  }

  void SendAndReceive(uint32_t seed) {
    source_.Fill(seed);
    if (pair_.far.PostRecv(target_.Sge(0, kMessageBytes)) != 0) Fail("post of a receive", 0);
    Post(IBV_WR_SEND, source_.Sge(0, kMessageBytes), 0, "post of a SEND");
    Wait(pair_.near, "SEND");
    Wait(pair_.far, "receive");
    ExpectPattern(target_, 0, kMessageBytes, seed, "data of a SEND");
  }

  // The counter follows the messages.
  void FetchAdd(uint64_t round) {
    ibv_sge sge = back_.Sge(kMessageBytes, sizeof(uint64_t));
    ibv_send_wr wr = {};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.atomic.remote_addr = target_.address() + kMessageBytes;
    wr.wr.atomic.compare_add = 1;
    wr.wr.atomic.rkey = target_.rkey();
    if (pair_.near.Post(wr) != 0) Fail("post of an atomic", 0);
    Wait(pair_.near, "atomic");
    uint64_t old = 0;
    std::memcpy(&old, back_.data() + kMessageBytes, sizeof(old));
    if (old != round - 1) Fail("result of an atomic", static_cast<long>(old));
    for (size_t i = kMessageBytes + sizeof(old); i < kBufferBytes; ++i) {
      if (target_.data()[i] != 0) Fail("memory behind the messages", static_cast<long>(i));
    }
  }

  // Creates and destroys an object, which must work whatever other users hold.
  template <class Make, class Destroy>
  void Call(const char* what, const Make& make, const Destroy& destroy) {
    step_.Begin();
    auto* object = make();
    if (object == nullptr) Fail(what, errno);
    step_.EndCall();
    step_.Begin();
    if (const int error = destroy(object); error != 0) Fail(what, error);
    step_.EndCall();
  }

  void Calls() {
    ibv_context* context = pair_.near_device.context;
    ibv_pd* pd = pair_.near_device.pd;
    Call(
        "completion queue", [=] { return ibv_create_cq(context, 16, nullptr, nullptr, 0); },
        ibv_destroy_cq);
    Call(
        "region", [&] { return ibv_reg_mr(pd, source_.data(), kBufferBytes, 0); }, ibv_dereg_mr);
    Call(
        "protection domain", [=] { return ibv_alloc_pd(context); }, ibv_dealloc_pd);
    Call(
        "window", [=] { return ibv_alloc_mw(pd, IBV_MW_TYPE_2); }, ibv_dealloc_mw);
    Call(
        "completion channel", [=] { return ibv_create_comp_channel(context); },
        ibv_destroy_comp_channel);
    ibv_srq_init_attr srq{nullptr, {16, 1, 0}};
    Call(
        "shared receive queue", [&] { return ibv_create_srq(pd, &srq); }, ibv_destroy_srq);
    ibv_alloc_dm_attr dm{4096, 0, 0};
    Call(
        "device memory", [&] { return ibv_alloc_dm(context, &dm); }, ibv_free_dm);
    DatagramCalls();
  }

  // A queue pair, a peer's address, a group.
  void DatagramCalls() {
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = pair_.near.cq;
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = IBV_QPT_UD;
    ibv_pd* pd = pair_.near_device.pd;
    Call(
        "queue pair", [&] { return ibv_create_qp(pd, &init); },
        [&](ibv_qp* qp) {
          ibv_gid group;
          std::memcpy(group.raw, kVictimsGroup, sizeof(group.raw));
          int error = ibv_attach_mcast(qp, &group, 0);
          if (error != 0) Fail("multicast group", error);
          error = ibv_detach_mcast(qp, &group, 0);
          return error != 0 ? error : ibv_destroy_qp(qp);
        });
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.grh.dgid = pair_.far_device.gid;
    attr.grh.sgid_index = static_cast<uint8_t>(pair_.near_device.gid_index);
    attr.port_num = 1;
    Call(
        "address handle", [&] { return ibv_create_ah(pd, &attr); }, ibv_destroy_ah);
  }

  VictimPage& page_;
  StepClock step_;
  Pair pair_;
  Buffer source_;
  Buffer back_;
  Buffer target_;
  Buffer untouched_;
};

bool WaitFor(uint64_t limit_ms, const auto& condition) {
  for (const uint64_t end = Now() + limit_ms * 1'000'000; Now() < end; usleep(1000)) {
    if (condition()) return true;
  }
  return condition();
}

}  // namespace

Victim::Victim(VictimPage& page) : page_(page), pid_(fork()) {
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Program(page_).Run();
}

Victim::~Victim() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Victim::is_alive() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }

bool Victim::AwaitRounds(uint64_t count, uint64_t limit_ms) const {
  const uint64_t wanted = page_.rounds + count;
  WaitFor(limit_ms, [&] { return page_.rounds >= wanted || page_.has_failed != 0; });
  return page_.rounds >= wanted;
}

bool Victim::Pause(uint64_t limit_ms) {
  page_.wants_pause = 1;
  return WaitFor(limit_ms, [&] { return page_.is_paused != 0; });
}

void Victim::Resume() {
  page_.wants_pause = 0;
  WaitFor(1000, [&] { return page_.is_paused == 0; });
}

}  // namespace roci::testing::hostile
