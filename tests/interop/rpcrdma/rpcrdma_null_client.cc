// Measures calls of the test program: rpcrdma_null_client ADDRESS PORT SECONDS BYTES DEPTH [SPIN].
// BYTES 0: NULL calls, else GETs of so many bytes; DEPTH calls at a time. Prints calls and MB a
// second.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include "tests/interop/rpcrdma/client.h"
#include "tests/interop/rpcrdma/rpc_message.h"
#include "tests/interop/rpcrdma/test_service.h"

namespace {

using rpcrdma::CallStatus;
using rpcrdma::ClientRequest;

double Now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Prepare(ClientRequest& request, uint32_t bytes) {
  const auto procedure = bytes == 0 ? rpcrdma::TestProcedure::kNull : rpcrdma::TestProcedure::kGet;
  std::vector<std::byte> message = rpcrdma::EncodeRpcCall(
      {0, rpcrdma::kTestProgram, rpcrdma::kTestVersion, static_cast<uint32_t>(procedure)});
  if (bytes != 0) {
    rpcrdma::AppendWord(message, bytes);
    rpcrdma::AppendWord(message, 7);
  }
  std::copy(message.begin(), message.end(), request.call().begin());
  request.shape.message_bytes = message.size();
  request.shape.data_room = bytes;
  request.shape.most_reply_bytes = rpcrdma::kRpcReplyBytes + (bytes == 0 ? 0 : 4);
}

int Measure(const rpcrdma::ClientOptions& options, double seconds, uint32_t bytes, bool spins) {
  rpcrdma::Client client(options);
  std::vector<ClientRequest*> requests(options.slots);
  for (ClientRequest*& request : requests) {
    if (client.Allocate(256, bytes, 256, request) != rpcrdma::AllocationResult::kAllocated)
      return 1;
    Prepare(*request, bytes);
  }
  while (!client.is_connected()) client.Progress(1000);
  const double begin_s = Now_s();
  uint64_t done = 0;
  while (Now_s() - begin_s < seconds) {
    for (ClientRequest* request : requests) {
      if (request->status() == CallStatus::kPending) continue;
      if (request->status() == CallStatus::kDone) ++done;
      client.Send(*request);
    }
    client.Progress(spins ? 0 : 1000);
  }
  const double took_s = Now_s() - begin_s;
  std::printf("%.0f calls/s, %.1f MB/s\n", static_cast<double>(done) / took_s,
              static_cast<double>(done) * bytes / took_s / 1e6);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fputs("usage: rpcrdma_null_client ADDRESS PORT SECONDS BYTES DEPTH [SPIN]\n", stderr);
    return 2;
  }
  rpcrdma::ClientOptions options;
  options.address = argv[1];
  options.port = static_cast<uint16_t>(std::atoi(argv[2]));
  options.slots = static_cast<uint32_t>(std::atoi(argv[5]));
  try {
    return Measure(options, std::atof(argv[3]), static_cast<uint32_t>(std::atoi(argv[4])),
                   argc > 6);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rpcrdma_null_client: %s\n", error.what());
    return 1;
  }
}
