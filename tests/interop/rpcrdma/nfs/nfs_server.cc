// Exports a folder by NFS version 3 over TCP and, if asked for, over RDMA. MOUNT is answered on the
// same TCP port.
#include <getopt.h>
#include <signal.h>
#include <sys/stat.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/interop/rpcrdma/nfs/handle_key.h"
#include "tests/interop/rpcrdma/nfs/nfs_service.h"
#include "tests/interop/rpcrdma/nfs/tcp_server.h"
#include "tests/interop/rpcrdma/server.h"

namespace rpcrdma {
namespace {

constexpr char kUsage[] =
    "Usage: nfs_server --tcp ADDRESS:PORT [--rdma ADDRESS:PORT] [--key FILE] FOLDER\n"
    "\n"
    "Export FOLDER by NFS version 3. MOUNT is answered on the same TCP port; no rpcbind is "
    "needed.\n"
    "Addresses are numeric; write IPv6 as [ADDRESS]:PORT.\n"
    "\n"
    "  --tcp ADDRESS:PORT   listen there for RPC over TCP\n"
    "  --rdma ADDRESS:PORT  listen there for RPC over RDMA, too (port 20049 is usual)\n"
    "  --key FILE           keep the secret of file handles there, so that clients survive a "
    "restart\n";

struct Endpoint {
  std::string address;
  uint16_t port;
};

struct Options {
  std::optional<Endpoint> tcp, rdma;
  std::string key_file, folder;
};

Endpoint ParseEndpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos) throw std::invalid_argument(text + ": ADDRESS:PORT wanted");
  Endpoint endpoint{text.substr(0, colon), 0};
  const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(begin, end, endpoint.port);
  if (error != std::errc() || rest != end) throw std::invalid_argument(text + ": no port");
  std::string& address = endpoint.address;
  if (address.size() > 2 && address.front() == '[' && address.back() == ']')
    address = address.substr(1, address.size() - 2);
  return endpoint;
}

Options ParseOptions(int count, char** arguments) {
  const option known[] = {{"tcp", required_argument, nullptr, 't'},
                          {"rdma", required_argument, nullptr, 'r'},
                          {"key", required_argument, nullptr, 'k'},
                          {"help", no_argument, nullptr, 'h'},
                          {}};
  Options options;
  for (int each; (each = getopt_long(count, arguments, "h", known, nullptr)) != -1;) {
    switch (each) {
      case 't':
        options.tcp = ParseEndpoint(optarg);
        break;
      case 'r':
        options.rdma = ParseEndpoint(optarg);
        break;
      case 'k':
        options.key_file = optarg;
        break;
      case 'h':
        std::fputs(kUsage, stdout);
        std::exit(0);
      default:
        throw std::invalid_argument("nfs_server --help prints the options");
    }
  }
  if (optind + 1 != count || !options.tcp)
    throw std::invalid_argument("--tcp and one FOLDER wanted; see --help");
  options.folder = arguments[optind];
  return options;
}

// Runs the function on a thread of its own; an exception in it ends the program.
std::thread Start(std::function<void()> run) {
  return std::thread([run = std::move(run)] {
    try {
      run();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "nfs_server: %s\n", error.what());
      std::_Exit(1);
    }
  });
}

void WaitForSignal(const sigset_t& signals) {
  int signal = 0;
  sigwait(&signals, &signal);
  std::printf("nfs_server: signal %d received, shutting down\n", signal);
}

void PrintCount(const char* name, uint64_t value) {
  if (value != 0) std::printf("  %s: %llu\n", name, static_cast<unsigned long long>(value));
}

void PrintCounters(const NfsCounters& nfs, const TcpCounters& tcp) {
  PrintCount("calls", nfs.calls);
  PrintCount("calls repeated", nfs.repeated);
  PrintCount("messages that are no calls", nfs.not_a_call);
  PrintCount("calls with a wrong RPC version", nfs.rpc_version_mismatch);
  PrintCount("calls with a bad credential", nfs.bad_credential);
  PrintCount("calls of unknown programs", nfs.no_such_program);
  PrintCount("calls of unknown program versions", nfs.program_version_mismatch);
  PrintCount("calls of unknown procedures", nfs.no_such_procedure);
  PrintCount("calls with garbage arguments", nfs.garbage_arguments);
  PrintCount("TCP connections", tcp.connections);
  PrintCount("TCP connections refused", tcp.refused);
  PrintCount("TCP connections failed", tcp.failed);
  PrintCount("TCP connections with malformed records", tcp.malformed);
  PrintCount("TCP connections closed because a message was no call", tcp.dropped);
  PrintCount("TCP connections stalled", tcp.stalled);
}

// RPC over RDMA, if asked for.
class RdmaEnd {
 public:
  RdmaEnd(const std::optional<Endpoint>& endpoint, NfsService* service) {
    if (!endpoint) return;
    ServerOptions options;
    options.address = endpoint->address;
    options.port = endpoint->port;
    server_.emplace(options, *service);
    std::printf("nfs_server: RDMA port %d\n", server_->port());
    thread_ = Start([this] { server_->Run(); });
  }
  void Stop() {
    if (!server_) return;
    server_->Stop();
    thread_.join();
    std::fputs(server_->counters().Text().c_str(), stdout);
  }

 private:
  std::optional<Server> server_;
  std::thread thread_;
};

void Serve(const Options& options, const sigset_t& signals) {
  NfsService service(options.folder,
                     options.key_file.empty() ? RandomKey() : KeyIn(options.key_file));
  TcpServer tcp(options.tcp->address, options.tcp->port, &service);
  std::printf("nfs_server: %s is exported, TCP port %d\n", service.path().c_str(), tcp.port());
  RdmaEnd rdma(options.rdma, &service);
  std::thread tcp_thread = Start([&] { tcp.Run(); });
  std::puts("nfs_server: ready");
  std::fflush(stdout);
  WaitForSignal(signals);
  tcp.Stop();
  tcp_thread.join();
  PrintCounters(service.counters(), tcp.counters());
  rdma.Stop();
}

int Main(int count, char** arguments) {
  try {
    const Options options = ParseOptions(count, arguments);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before other threads start
    signal(SIGXFSZ, SIG_IGN);                       // a too long file is an error of a call
    umask(0);
    Serve(options, signals);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nfs_server: %s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace rpcrdma

int main(int count, char** arguments) { return rpcrdma::Main(count, arguments); }
