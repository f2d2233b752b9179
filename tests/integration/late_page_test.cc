// Sessions whose requests wait for a page of the program's memory: the daemon refuses them before
// the plugin would take it for dead, and the sessions go on when the page has come.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/integration/hostile/rig.h"
#include "tests/integration/late_memory.h"
#include "verbs_provider/abi/answer_limit.h"

namespace roci::testing {
namespace {

using hostile::kPage;
using hostile::Region;
using hostile::RigPair;
using std::chrono::seconds;
using std::chrono::steady_clock;

// A program (`pair.far`) with a WRITE to a page that does not come for 25 s.
class LateProgram {
 public:
  LateProgram() {
    if (!memory.works()) return;
    Region late;
    EXPECT_EQ(pair.far.Register(static_cast<std::byte*>(memory.data()), memory.size(), late), 0);
    roci_abi_send_wqe write = pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE);
    write.rkey = late.key;
    write.remote_va = memory.late_address();
    pair.near.Post(pair.near_qp, write, {pair.near.region.Sge(64)});
    while (!memory.IsAwaited()) usleep(1000);
    usleep(100'000);  // the daemon has noticed
  }
  // The errno. The answer comes after 15 s or more, and in time for the plugin.
  template <class Response>
  int ReceiveLate(steady_clock::time_point asked) {
    constexpr int kTimeoutMs = 60'000;
    Response response{};
    const int error = pair.far.Receive(response, kTimeoutMs);
    EXPECT_GT(steady_clock::now() - asked, seconds(15));
    EXPECT_LT(steady_clock::now() - asked, seconds(ROCI_ABI_ANSWER_LIMIT_S - 5));
    return error;
  }
  void ExpectToGoOn() {
    while (memory.IsAwaited()) usleep(10'000);
    // The page is there, but the daemon may notice later than the peer's retries last.
    const auto end = steady_clock::now() + seconds(10);
    bool has_written = false;
    while (!has_written && steady_clock::now() < end) has_written = Writes(end);
    EXPECT_TRUE(has_written);
  }
  // Connects the queue pairs again and writes. False: the WRITE has failed.
  bool Writes(steady_clock::time_point end) {
    pair.Reconnect();
    roci_abi_cqe entry{};
    // The write that has waited may have failed.
    while (pair.near.cq.Poll(&entry)) {
    }
    pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE), {pair.near.region.Sge(64)});
    bool is_complete = false;
    while (!is_complete && steady_clock::now() < end) is_complete = pair.near.cq.Poll(&entry);
    return is_complete && entry.status == IBV_WC_SUCCESS;
  }

  LateMemory memory{seconds(25)};
  RigPair pair;
};

// A registration with a descriptor.
void AskToRegister(hostile::Rig& program) {
  const int file = memfd_create("shared", MFD_CLOEXEC);
  EXPECT_EQ(ftruncate(file, kPage), 0);
  roci_abi_reg_mr_request request{};
  request.pd = program.pd;
  request.access = IBV_ACCESS_LOCAL_WRITE;
  request.start = request.iova = program.region.va();
  request.length = kPage;
  request.extent_count = request.fd_count = 1;
  request.extents[0].va = request.start;
  request.extents[0].length = kPage;
  request.extents[0].kind = ROCI_ABI_EXTENT_FD;
  EXPECT_TRUE(program.Send(ROCI_ABI_REG_MR, request, {file}));
  close(file);
}

TEST(LatePage, RequestsAreRefusedInTimeAndTheSessionsGoOn) {
  LateProgram queries, registers, returns;
  if (!queries.memory.works()) GTEST_SKIP() << "no userfaultfd for kernel faults";
  for (LateProgram* program : {&queries, &registers, &returns}) program->pair.far.CloseFds();
  roci_abi_query_port_request query{};
  query.port = 1;
  EXPECT_TRUE(queries.pair.far.Send(ROCI_ABI_QUERY_PORT, query));
  AskToRegister(registers.pair.far);
  roci_abi_return_events_request events{};
  events.channel = ROCI_ABI_NO_HANDLE;
  EXPECT_TRUE(returns.pair.far.Send(ROCI_ABI_RETURN_EVENTS, events));
  const auto asked = steady_clock::now();

  EXPECT_EQ(queries.ReceiveLate<roci_abi_query_port_response>(asked), EAGAIN);
  EXPECT_EQ(registers.ReceiveLate<roci_abi_reg_mr_response>(asked), EAGAIN);
  // Events that the plugin has received are not refused: they would be lost.
  EXPECT_EQ(returns.ReceiveLate<roci_abi_plain_response>(asked), 0);

  for (LateProgram* program : {&queries, &registers, &returns}) program->ExpectToGoOn();
  Region region;
  EXPECT_EQ(registers.pair.far.Register(registers.pair.far.region.data, kPage, region), 0);
}

}  // namespace
}  // namespace roci::testing
