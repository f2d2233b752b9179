// Errors of an RC connection whose peer does not respond: it has no receive request, for a while or
// for ever; no queue pair; no program. A pair of programs for rxe_test.py.
//
// faults -d DEVICE -g GID_INDEX -p PORT -m MTU [-w WHAT] [SERVER]; exit status 0 on success. WHAT
// is "rows", the table below, in which the client gets the errors; or "stream": both ends write to
// each other, print "flowing", and must detect that the other end is gone.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/interop/verbs_pair.h"

namespace {

using interop::Check;
using interop::CheckCall;
using interop::Connection;
using interop::Meeting;
using interop::OpenedDevice;
using interop::Options;

constexpr uint32_t kLength = 9000, kReceived = 16384, kMemory = 32768;
constexpr uint8_t kTimeout = 14, kRetries = 3, kRnrRetries = 2;
constexpr std::chrono::microseconds kTimeout_us(4096 * (1 << kTimeout) / 1000);
constexpr int kFlowing = 50;  // completed WRITEs before "flowing" is printed
constexpr int kAtOnce = 8;

enum class Peer { kReceivesLate, kNeverReceives, kIsReset };

struct Row {
  const char* name;
  Peer peer;
  uint8_t rnr_retry;
  ibv_wc_status status;
};

constexpr Row kRows[] = {
    {"no receive request for a while", Peer::kReceivesLate, 7, IBV_WC_SUCCESS},
    {"no receive request", Peer::kNeverReceives, kRnrRetries, IBV_WC_RNR_RETRY_EXC_ERR},
    {"no receive request, not tried again", Peer::kNeverReceives, 0, IBV_WC_RNR_RETRY_EXC_ERR},
    {"no answer", Peer::kIsReset, 7, IBV_WC_RETRY_EXC_ERR},
};

uint8_t PatternAt(uint32_t i) { return static_cast<uint8_t>(i * 11 + 5); }

void Fill(OpenedDevice& device) {
  for (uint32_t i = 0; i < kLength; ++i) device.memory()[i] = PatternAt(i);
}

void CheckReceived(Connection& connection, OpenedDevice& device) {
  const ibv_wc entry = connection.AwaitSuccess("receiving late");
  Check(entry.byte_len == kLength, "length of what was received");
  for (uint32_t i = 0; i < kLength; ++i) {
    Check(device.memory()[kReceived + i] == PatternAt(i),
          "invalid data, byte " + std::to_string(i));
  }
}

void Reset(Connection& connection) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RESET;
  CheckCall(ibv_modify_qp(connection.qp, &attributes, IBV_QP_STATE) == 0, "RESET");
}

void ServeRow(Connection& connection, OpenedDevice& device, Meeting& meeting, const Row& row) {
  const uint64_t naks = device.Counter("send_rnr_err");
  if (row.peer == Peer::kIsReset) Reset(connection);
  meeting.Signal();
  if (row.peer == Peer::kReceivesLate) {
    Check(device.AwaitCounter("send_rnr_err", naks + 1), "no RNR NAK is sent");
    connection.PostReceive(kReceived, kReceived);
    CheckReceived(connection, device);
  }
  meeting.Await();
  if (row.peer == Peer::kNeverReceives) {
    Check(device.AwaitCounter("send_rnr_err", naks + row.rnr_retry + 1), "too few RNR NAKs");
  }
}

// After a fault the queue pair is in ERR and flushes the request behind it.
void CheckEnded(Connection& connection, const Row& row) {
  const ibv_wc_status behind = connection.Await().status;
  Check(behind == IBV_WC_WR_FLUSH_ERR,
        std::string(row.name) + ": the request behind: " + ibv_wc_status_str(behind));
  ibv_qp_attr attributes = {};
  ibv_qp_init_attr unused = {};
  CheckCall(ibv_query_qp(connection.qp, &attributes, IBV_QP_STATE, &unused) == 0, "ibv_query_qp");
  Check(attributes.qp_state == IBV_QPS_ERR, std::string(row.name) + ": state of the queue pair");
}

void RequestRow(Connection& connection, OpenedDevice& device, Meeting& meeting, const Row& row) {
  const uint64_t naks = device.Counter("rcvd_rnr_err");
  const uint64_t exceeded = device.Counter("retry_exceeded_err");
  meeting.Await();
  const auto begin = std::chrono::steady_clock::now();
  connection.Post(IBV_WR_SEND, 0, kLength, 0);
  if (row.status != IBV_WC_SUCCESS) connection.Post(IBV_WR_RDMA_WRITE, 0, kLength, 0);
  const ibv_wc_status status = connection.Await().status;
  const auto took = std::chrono::steady_clock::now() - begin;
  Check(status == row.status, std::string(row.name) + ": " + ibv_wc_status_str(status));
  if (status != IBV_WC_SUCCESS) CheckEnded(connection, row);
  if (row.peer == Peer::kIsReset) {
    Check(took >= kRetries * kTimeout_us, "given up too early");
    Check(device.AwaitCounter("retry_exceeded_err", exceeded + 1), "retry_exceeded_err");
  } else {
    Check(device.AwaitCounter("rcvd_rnr_err", naks + 1), "no RNR NAK has come");
  }
  std::printf("%s: %s\n", row.name, ibv_wc_status_str(status));
  meeting.Signal();
}

void RunRows(const Options& options, OpenedDevice& device, Meeting& meeting) {
  for (const Row& row : kRows) {
    const bool gives_up = row.peer == Peer::kIsReset;
    Connection connection(options,
                          {.timeout = gives_up ? kTimeout : options.timeout,
                           .retry_count = gives_up ? kRetries : uint8_t{6},
                           .rnr_retry = row.rnr_retry},
                          device, meeting);
    (options.IsServer() ? ServeRow : RequestRow)(connection, device, meeting, row);
  }
}

// Writes until a request fails, which must be because the other end no longer responds.
void Stream(const Options& options, OpenedDevice& device, Meeting& meeting) {
  Connection connection(options, {.timeout = 16, .retry_count = 5}, device, meeting);
  for (int i = 0; i < kAtOnce; ++i) {
    connection.Post(IBV_WR_RDMA_WRITE, 0, kLength, kReceived);
  }
  for (int done = 1;; ++done) {
    const ibv_wc_status status = connection.Await().status;
    if (status != IBV_WC_SUCCESS) {
      Check(status == IBV_WC_RETRY_EXC_ERR && done > kFlowing, ibv_wc_status_str(status));
      return (void)std::printf("the other end is gone: %s\n", ibv_wc_status_str(status));
    }
    if (done == kFlowing) std::printf("flowing\n");
    connection.Post(IBV_WR_RDMA_WRITE, 0, kLength, kReceived);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = interop::ParseOptions(argc, argv);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  alarm(interop::kLimitS);
  Meeting meeting(options);
  OpenedDevice device(options, kMemory);
  Fill(device);
  if (options.what == "stream") {
    Stream(options, device, meeting);
  } else {
    RunRows(options, device, meeting);
  }
  return 0;
}
