// Serves the test program over RDMA: rpcrdma_null_server [ADDRESS [PORT [SPIN_US]]]. Prints its
// counters when SIGINT or SIGTERM ends it.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "tests/interop/rpcrdma/server.h"
#include "tests/interop/rpcrdma/test_service.h"

namespace {

const rpcrdma::Server* g_server = nullptr;

int Serve(int argc, char** argv) {
  rpcrdma::ServerOptions options;
  if (argc > 1) options.address = argv[1];
  if (argc > 2) options.port = static_cast<uint16_t>(std::atoi(argv[2]));
  if (argc > 3) options.spin_us = static_cast<uint32_t>(std::atoi(argv[3]));
  rpcrdma::TestService service;
  rpcrdma::Server server(options, service);
  g_server = &server;
  const auto stop = [](int) { g_server->Stop(); };
  std::signal(SIGINT, stop);
  std::signal(SIGTERM, stop);
  std::printf("rpcrdma_null_server: %s port %u\n", options.address.c_str(), server.port());
  std::fflush(stdout);
  server.Run();
  std::fputs(server.counters().Text().c_str(), stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Serve(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rpcrdma_null_server: %s\n", error.what());
    return 1;
  }
}
