// A random walk over the verbs API in one thread: creates, changes, uses and destroys objects in
// any order, and checks the results against its own model. An error ends the process with a message
// that has the seed.
#pragma once

#include <array>
#include <cstdarg>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/walk_end.h"
#include "tests/integration/walk_srq.h"
#include "tests/sim/random.h"

namespace roci::testing {

class Walker {
 public:
  explicit Walker(uint64_t seed);

  /// Walks for this time. Then everything is destroyed, or, for some seeds, left until the process
  /// exits.
  void Run(double seconds);
  uint64_t steps() const { return steps_; }
  uint64_t completions() const { return completions_; }
  /// Completions of shared receives, and of requests on windows.
  uint64_t shared() const { return shared_; }
  uint64_t windows() const { return windows_; }
  /// Requests and completions by the extended calls.
  uint64_t extended() const { return extended_; }

 private:
  struct Domain {
    WalkDevice* device;
    ibv_pd* pd;
    int users = 0;
  };
  struct Queue {
    WalkDevice* device;
    ibv_cq* cq;
    ibv_comp_channel* channel;
    ibv_cq_ex* extended;  // the same, or null
    int users = 0;
    uint64_t last_ns = 0;  // the newest completion's time
  };
  struct Region {
    Domain* domain;
    ibv_mr* mr;
    std::vector<uint8_t> bytes;
  };
  struct Handle {
    Domain* domain;
    ibv_ah* ah;
  };
  struct Operation {
    uint32_t weight;
    void (Walker::*run)();
  };
  static const Operation kOperations[];

  void Open(WalkDevice* device, const char* name);
  void Step();
  void CleanUp();
  [[noreturn]] void Fail(const char* format, ...) __attribute__((format(printf, 2, 3)));
  void Expect(bool condition, const char* what) {
    if (!condition) Fail("%s", what);
  }
  template <class T>
  T* Any(std::vector<std::unique_ptr<T>>& list) {
    return list.empty() ? nullptr : list[random_.Below(list.size())].get();
  }

  // Operations
  void MakeDomain();
  void DropDomain();
  void MakeQueue();
  void DropQueue();
  void ResizeQueue();
  void NotifyQueue();
  void MakeRegion();
  void ChangeRegion();
  void DropRegion();
  void MakeHandle();
  void DropHandle();
  void MakePair();
  void ConnectAnyPair();
  void DropEnd();
  void FailEnd();
  void ResetEnd();
  void BackToReset(WalkEnd* end);
  void LoseMemory();
  void PostRecvs();
  void PollAny();
  void QueryAll();
  void Settle();
  // walker_posts.cc
  void PostGood();
  void PostBad();
  void PostNothing();
  // walker_shared.cc
  void MakeSrq();
  void DropSrq();
  void ChangeSrq();
  void PostShared();
  void MakeXrcPair();
  void ReadEvents();
  // walker_windows.cc
  void BindWindow();
  void EndWindow();
  void PostStale();

  WalkEnd* MakeEnd(WalkDevice& device, ibv_qp_type type);
  WalkSrq* AnySrq(const WalkDevice& device, bool is_xrc);
  void MakeXrcSrq(WalkSrq* srq);
  void Refill(WalkSrq* srq, size_t count);
  WalkSrq* SharedOf(const Queue& queue, const ibv_wc& wc);
  void Drain(WalkEnd* end);
  void ReadEventsOf(const WalkDevice& device);
  void CheckEvent(const ibv_async_event& event);
  void DropWindow(WalkEnd* end);
  bool MayUseWindow(const WalkEnd& end) const;
  void PostWindowWork(WalkEnd* end, ibv_wr_opcode opcode, uint32_t key);
  void EndType1(WalkEnd* end);
  void CompleteWindowWork(WalkEnd& end, const WalkRequest& request);
  void DestroyEnd(WalkEnd* end);
  void Disconnect(WalkEnd* end);
  void Connect(WalkEnd* a, WalkEnd* b);
  void Disturb(WalkEnd* end);
  bool PostOne(WalkEnd* end, bool good);
  void Post(WalkEnd* end, ibv_send_wr& wr);
  Domain* DomainOf(ibv_pd* pd);
  Queue* QueueOf(ibv_cq* cq);
  WalkEnd* FindEnd(const Queue& queue, uint32_t qpn);
  int Poll(Queue& queue, int count);
  int PollExtended(Queue& queue, int count, ibv_wc* wcs);
  void Complete(Queue& queue, const ibv_wc& wc);
  void CompleteSend(WalkEnd& end, const ibv_wc& wc);
  void CompleteRecv(WalkEnd& end, const ibv_wc& wc);
  void CheckDone(WalkEnd& end, const WalkRequest& request);
  void CheckMessage(WalkEnd& end, const ibv_wc& wc);
  // Number of requests that must still complete without a signaled one.
  bool Owes(const WalkEnd& end) const;

  const uint64_t seed_;
  sim::Random random_;
  uint64_t steps_ = 0;
  uint64_t completions_ = 0;
  uint64_t shared_ = 0;
  uint64_t windows_ = 0;
  uint64_t extended_ = 0;
  WalkEnd* batch_ = nullptr;  // QP between ibv_wr_start and ibv_wr_complete
  uint64_t last_wr_id_ = 0;
  std::array<WalkDevice, 2> devices_;
  std::vector<std::unique_ptr<Domain>> domains_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::vector<std::unique_ptr<Region>> regions_;
  std::vector<std::unique_ptr<Handle>> handles_;
  std::vector<std::unique_ptr<WalkSrq>> srqs_;
  std::vector<std::unique_ptr<WalkEnd>> ends_;
};

}  // namespace roci::testing
