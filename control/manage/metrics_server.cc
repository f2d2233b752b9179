#include "control/manage/metrics_server.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"
#include "control/loop/no_memory.h"
#include "control/manage/metrics_text.h"
#include "control/manage/tcp_peers.h"

namespace roci::control {

// ---- The feed

absl::StatusOr<std::unique_ptr<MetricsFeed>> MetricsFeed::Create(
    EventLoop& loop, std::function<nlohmann::json()> make) {
  std::unique_ptr<MetricsFeed> feed(new MetricsFeed(loop, std::move(make)));
  feed->wanted_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!feed->wanted_.valid()) return StatusFromErrno(errno, "eventfd");
  MetricsFeed* const self = feed.get();
  const absl::StatusOr<EventLoop::Watch> watch =
      loop.Add(feed->wanted_.get(), EPOLLIN, [self](uint32_t) { self->Make(); });
  if (!watch.ok()) return watch.status();
  feed->watch_ = *watch;
  return feed;
}

MetricsFeed::~MetricsFeed() { loop_.Forget(watch_); }

void MetricsFeed::Make() {
  eventfd_t count;
  eventfd_read(wanted_.get(), &count);
  std::shared_ptr<const nlohmann::json> snapshot;
  // If memory is short, the waiting thread gives up after its time limit.
  const absl::Status status = OrRefuse([&] {
    snapshot = std::make_shared<const nlohmann::json>(make_());
    return absl::OkStatus();
  });
  if (!status.ok()) return;
  const std::lock_guard lock(mutex_);
  snapshot_ = std::move(snapshot);
  made_ = MonotonicNow();
  changed_.notify_all();
}

std::shared_ptr<const nlohmann::json> MetricsFeed::Get(int limit_ms) {
  std::unique_lock lock(mutex_);
  const roce::TimeNs asked = MonotonicNow();
  if (snapshot_ != nullptr && asked < made_ + kKeepNs) return snapshot_;
  eventfd_write(wanted_.get(), 1);
  changed_.wait_for(lock, std::chrono::milliseconds(limit_ms),
                    [&] { return stopped_ || (snapshot_ != nullptr && made_ >= asked); });
  return snapshot_ != nullptr && made_ >= asked && !stopped_ ? snapshot_ : nullptr;
}

void MetricsFeed::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

// ---- The library

namespace {

constexpr char kLibrary[] = "libmicrohttpd.so.12";

// The functions of libmicrohttpd that are used.
#define ROCI_HTTP_FUNCTIONS(X)       \
  X(MHD_start_daemon)                \
  X(MHD_stop_daemon)                 \
  X(MHD_run)                         \
  X(MHD_get_timeout)                 \
  X(MHD_get_daemon_info)             \
  X(MHD_get_connection_info)         \
  X(MHD_lookup_connection_value)     \
  X(MHD_create_response_from_buffer) \
  X(MHD_add_response_header)         \
  X(MHD_queue_response)              \
  X(MHD_destroy_response)

struct HttpLibrary {
#define ROCI_FUNCTION(name) decltype(&::name) name = nullptr;
  ROCI_HTTP_FUNCTIONS(ROCI_FUNCTION)
#undef ROCI_FUNCTION
};

absl::StatusOr<HttpLibrary> LoadLibrary() {
  void* const library = dlopen(kLibrary, RTLD_NOW);
  HttpLibrary out;
  bool is_whole = library != nullptr;
#define ROCI_FIND(name) \
  if (is_whole) is_whole = (out.name = reinterpret_cast<decltype(out.name)>(dlsym(library, #name)));
  ROCI_HTTP_FUNCTIONS(ROCI_FIND)
#undef ROCI_FIND
  if (is_whole) return out;
  return absl::NotFoundError(absl::StrCat(dlerror(), " (Debian: apt install libmicrohttpd12)"));
}

absl::StatusOr<UniqueFd> Listen(const MetricsAddress& address) {
  // More than the connections that clients hold, so that a scrape does not wait for the second try
  // of its connect(2).
  constexpr int kBacklog = 4096;
  sockaddr_in four = {};
  sockaddr_in6 six = {};
  four.sin_family = AF_INET;
  six.sin6_family = AF_INET6;
  four.sin_port = six.sin6_port = htons(address.port);
  const bool is_four = inet_pton(AF_INET, address.host.c_str(), &four.sin_addr) == 1;
  if (!is_four) inet_pton(AF_INET6, address.host.c_str(), &six.sin6_addr);
  const auto* to =
      is_four ? reinterpret_cast<const sockaddr*>(&four) : reinterpret_cast<const sockaddr*>(&six);
  UniqueFd fd(::socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  // A new daemon may listen while connections of the former one end; not beside it.
  if (fd.valid()) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!fd.valid() || bind(fd.get(), to, is_four ? sizeof(four) : sizeof(six)) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return StatusFromErrno(errno, address.Text());
  }
  return fd;
}

}  // namespace

// ---- The server

class MetricsServer::Http {
 public:
  Http(const HttpLibrary& library, MetricsFeed& feed) : library_(library), feed_(feed) {}
  ~Http();
  absl::Status Start(UniqueFd listener);

 private:
  struct Connection {
    std::string source;      // see SourceOf
    std::string address;     // of the source
    uint64_t number = 0;     // in the order of arrival
    roce::TimeNs end = 0;    // see kLongestMs
    bool has_asked = false;  // its request has come
    bool is_ending = false;
  };
  using Connections = std::map<MHD_Connection*, Connection>;

  static MHD_Result Answer(void* self, MHD_Connection* connection, const char* url,
                           const char* method, const char* version, const char* upload,
                           size_t* upload_size, void** state);
  static void Note(void* self, MHD_Connection* connection, void** state,
                   MHD_ConnectionNotificationCode what);
  MHD_Result AnswerRequest(MHD_Connection* connection, std::string_view url,
                           std::string_view method);
  MHD_Result AnswerMetrics(MHD_Connection* connection);
  MHD_Result Reply(MHD_Connection* connection, unsigned status, const std::string& body,
                   const char* type);
  int WaitMs() const;
  void Shutdown(MHD_Connection* connection) const;
  std::string SourceOf(MHD_Connection* connection, const std::string& address);
  void Add(MHD_Connection* connection);
  // The newest connection is not asked for.
  Connections::iterator FindToEnd();
  void End(Connections::iterator connection);
  void EndOverdue();
  void Run();

  const HttpLibrary library_;
  MetricsFeed& feed_;
  UniqueFd wake_;  // eventfd; readable: stop
  MHD_Daemon* daemon_ = nullptr;
  // On the thread:
  TcpPeers peers_;
  Connections connections_;
  // The last answer in each format: many scrapes print one snapshot once.
  struct Printed {
    std::shared_ptr<const nlohmann::json> from;
    std::string text;
  };
  std::array<Printed, 2> printed_;
  uint64_t last_number_ = 0;
  std::thread thread_;
};

absl::Status MetricsServer::Http::Start(UniqueFd listener) {
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return StatusFromErrno(errno, "eventfd");
  // Room for those that are ending.
  const auto limit = static_cast<unsigned>(2 * kMaxConnections);
  constexpr size_t kMemory = 32 << 10;
  daemon_ = library_.MHD_start_daemon(
      MHD_USE_EPOLL, 0, nullptr, nullptr, &Http::Answer, this,  //
      MHD_OPTION_LISTEN_SOCKET, listener.get(), MHD_OPTION_CONNECTION_LIMIT, limit,
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, kMemory, MHD_OPTION_NOTIFY_CONNECTION, &Http::Note, this,
      MHD_OPTION_END);
  if (daemon_ == nullptr) return absl::InternalError("libmicrohttpd does not start");
  listener.Release();  // closed by MHD_stop_daemon
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "roci-metrics");
  return absl::OkStatus();
}

MetricsServer::Http::~Http() {
  if (thread_.joinable()) {
    feed_.Stop();
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  if (daemon_ != nullptr) library_.MHD_stop_daemon(daemon_);
}

void MetricsServer::Http::Run() {
  const MHD_DaemonInfo* info = library_.MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD);
  std::array<pollfd, 2> waits = {pollfd{info->epoll_fd, POLLIN, 0}, pollfd{wake_.get(), POLLIN, 0}};
  while (waits[1].revents == 0) {
    if (poll(waits.data(), waits.size(), WaitMs()) < 0 && errno != EINTR) return;
    // At its limit of connections, the library listens again only in the run after one has ended.
    for (size_t before = SIZE_MAX; connections_.size() < before;) {
      before = connections_.size();
      library_.MHD_run(daemon_);
    }
    EndOverdue();
  }
}

// Until the library or a connection's end needs the thread; -1: not before something happens.
int MetricsServer::Http::WaitMs() const {
  MHD_UNSIGNED_LONG_LONG library_ms = 0;
  const bool has_timeout = library_.MHD_get_timeout(daemon_, &library_ms) == MHD_YES;
  if (connections_.empty() && !has_timeout) return -1;
  const roce::TimeNs now = MonotonicNow();
  roce::TimeNs left_ns = has_timeout ? library_ms * roce::kNsPerMs : UINT64_MAX;
  for (const auto& [handle, connection] : connections_) {
    left_ns = std::min(left_ns, connection.end > now ? connection.end - now : 0);
  }
  return static_cast<int>(std::min<roce::TimeNs>(left_ns / roce::kNsPerMs + 1, kLongestMs));
}

// The library sees the end of the connection and closes it.
void MetricsServer::Http::Shutdown(MHD_Connection* connection) const {
  const auto* info =
      library_.MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  if (info != nullptr) shutdown(info->connect_fd, SHUT_RDWR);
}

void MetricsServer::Http::EndOverdue() {
  const roce::TimeNs now = MonotonicNow();
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (now >= it->second.end) End(it);
  }
}

void MetricsServer::Http::End(Connections::iterator connection) {
  Shutdown(connection->first);
  connection->second.is_ending = true;
  connection->second.end = MonotonicNow() + roce::TimeNs{kLongestMs} * roce::kNsPerMs;
}

namespace {

// The address of a peer; of IPv6, its network of 64 bits, in which a host has any number of them.
std::string AddressOf(const sockaddr* peer) {
  if (peer == nullptr) return "";
  if (peer->sa_family == AF_INET) {
    const in_addr& address = reinterpret_cast<const sockaddr_in*>(peer)->sin_addr;
    return {reinterpret_cast<const char*>(&address), sizeof(address)};
  }
  constexpr size_t kNetworkBytes = 8;
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(peer)->sin6_addr;
  const auto* bytes = reinterpret_cast<const char*>(&address);
  // An IPv4 address at a socket for both.
  return IN6_IS_ADDR_V4MAPPED(&address) ? std::string(bytes + 12, 4)
                                        : std::string(bytes, kNetworkBytes);
}

}  // namespace

// A user of this machine may have any address of the loopback network.
std::string MetricsServer::Http::SourceOf(MHD_Connection* connection, const std::string& address) {
  const auto* fd = library_.MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  const auto owner = peers_.OwnerOf(fd != nullptr ? fd->connect_fd : -1);
  if (!owner.has_value()) return address;
  return owner->is_closed ? "closed" : absl::StrCat("user ", owner->uid);
}

void MetricsServer::Http::Add(MHD_Connection* connection) {
  const auto* info =
      library_.MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  Connection& added = connections_[connection];
  added.address = AddressOf(info != nullptr ? info->client_addr : nullptr);
  added.source = SourceOf(connection, added.address);
  added.number = ++last_number_;
  added.end = MonotonicNow() + roce::TimeNs{kLongestMs} * roce::kNsPerMs;
  const auto is_served = [](const auto& item) { return !item.second.is_ending; };
  if (std::ranges::count_if(connections_, is_served) > ptrdiff_t{kMaxConnections}) {
    End(FindToEnd());
  }
}

MetricsServer::Http::Connections::iterator MetricsServer::Http::FindToEnd() {
  const auto may_end = [this](const Connection& connection) {
    return !connection.is_ending && connection.number != last_number_;
  };
  std::map<std::string_view, ptrdiff_t> of_sources;
  std::map<std::pair<std::string_view, std::string_view>, ptrdiff_t> of_addresses;
  for (const auto& [handle, connection] : connections_) {
    if (!may_end(connection)) continue;
    ++of_sources[connection.source];
    ++of_addresses[{connection.source, connection.address}];
  }
  // Less: sooner to end.
  const auto rank = [&](const Connection& connection) {
    return std::tuple(-of_sources[connection.source],
                      -of_addresses[{connection.source, connection.address}], connection.has_asked,
                      connection.number);
  };
  auto found = connections_.end();
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (!may_end(it->second)) continue;
    if (found == connections_.end() || rank(it->second) < rank(found->second)) found = it;
  }
  return found;
}

void MetricsServer::Http::Note(void* self, MHD_Connection* connection, void**,
                               MHD_ConnectionNotificationCode what) {
  auto& http = *static_cast<Http*>(self);
  if (what != MHD_CONNECTION_NOTIFY_STARTED) {
    http.connections_.erase(connection);
    return;
  }
  const absl::Status status = OrRefuse([&] {
    http.Add(connection);
    return absl::OkStatus();
  });
  if (!status.ok()) http.Shutdown(connection);
}

MHD_Result MetricsServer::Http::Answer(void* self, MHD_Connection* connection, const char* url,
                                       const char* method, const char*, const char*, size_t*,
                                       void**) {
  auto& http = *static_cast<Http*>(self);
  if (const auto it = http.connections_.find(connection); it != http.connections_.end()) {
    it->second.has_asked = true;
  }
  MHD_Result result = MHD_NO;  // closes the connection
  const absl::Status status = OrRefuse([&] {
    result = http.AnswerRequest(connection, url, method);
    return absl::OkStatus();
  });
  return status.ok() ? result : MHD_NO;
}

MHD_Result MetricsServer::Http::AnswerRequest(MHD_Connection* connection, std::string_view url,
                                              std::string_view method) {
  constexpr char kText[] = "text/plain; charset=utf-8";
  if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
    return Reply(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET /metrics\n", kText);
  }
  if (url == "/metrics") return AnswerMetrics(connection);
  return Reply(connection, MHD_HTTP_NOT_FOUND, "Metrics are at /metrics\n", kText);
}

MHD_Result MetricsServer::Http::AnswerMetrics(MHD_Connection* connection) {
  constexpr int kLimitMs = 3000;
  const char* accept =
      library_.MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
  const bool is_open =
      accept != nullptr && absl::StrContains(accept, "application/openmetrics-text");
  const MetricsFormat format = is_open ? MetricsFormat::kOpenMetrics : MetricsFormat::kPrometheus;
  const std::shared_ptr<const nlohmann::json> snapshot = feed_.Get(kLimitMs);
  if (snapshot == nullptr) {
    return Reply(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "The control thread is busy\n",
                 "text/plain; charset=utf-8");
  }
  Printed& printed = printed_[is_open ? 1 : 0];
  if (printed.from != snapshot) {
    printed.text = MetricsText(*snapshot, format);
    printed.from = snapshot;
  }
  return Reply(connection, MHD_HTTP_OK, printed.text,
               is_open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                       : "text/plain; version=0.0.4; charset=utf-8");
}

MHD_Result MetricsServer::Http::Reply(MHD_Connection* connection, unsigned status,
                                      const std::string& body, const char* type) {
  MHD_Response* const response = library_.MHD_create_response_from_buffer(
      body.size(), const_cast<char*>(body.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  library_.MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
  library_.MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
  const MHD_Result queued = library_.MHD_queue_response(connection, status, response);
  library_.MHD_destroy_response(response);
  return queued;
}

MetricsServer::MetricsServer() = default;
MetricsServer::~MetricsServer() = default;

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Create(
    EventLoop& loop, const MetricsAddress& address, std::function<nlohmann::json()> make) {
  const absl::StatusOr<HttpLibrary> library = LoadLibrary();
  if (!library.ok()) return library.status();
  absl::StatusOr<UniqueFd> listener = Listen(address);
  if (!listener.ok()) return listener.status();
  absl::StatusOr<std::unique_ptr<MetricsFeed>> feed = MetricsFeed::Create(loop, std::move(make));
  if (!feed.ok()) return feed.status();
  std::unique_ptr<MetricsServer> server(new MetricsServer);
  server->feed_ = *std::move(feed);
  server->http_ = std::make_unique<Http>(*library, *server->feed_);
  const absl::Status status = server->http_->Start(*std::move(listener));
  if (!status.ok()) return status;
  return server;
}

}  // namespace roci::control
