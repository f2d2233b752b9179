// Serves metrics over HTTP, on a thread of its own.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/statusor.h"
#include "control/config/metrics_address.h"
#include "control/loop/event_loop.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// The way of a snapshot from the control thread to the thread that serves it. A snapshot serves all
// requests of a second, so that however many clients take little time of the control thread.
class MetricsFeed {
 public:
  static constexpr roce::TimeNs kKeepNs = 1'000'000'000;

  // `make` runs on the control thread, which calls everything but Get(). `loop` outlives this.
  static absl::StatusOr<std::unique_ptr<MetricsFeed>> Create(EventLoop& loop,
                                                             std::function<nlohmann::json()> make);
  ~MetricsFeed();
  MetricsFeed(const MetricsFeed&) = delete;
  MetricsFeed& operator=(const MetricsFeed&) = delete;

  // On another thread. Null: the control thread did not answer within `limit_ms`, or Stop().
  std::shared_ptr<const nlohmann::json> Get(int limit_ms);
  // Ends every Get().
  void Stop();

 private:
  MetricsFeed(EventLoop& loop, std::function<nlohmann::json()> make)
      : loop_(loop), make_(std::move(make)) {}
  void Make();

  EventLoop& loop_;
  const std::function<nlohmann::json()> make_;
  UniqueFd wanted_;  // eventfd
  EventLoop::Watch watch_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::shared_ptr<const nlohmann::json> snapshot_;
  roce::TimeNs made_ = 0;
};

// At most kMaxConnections at a time: one more ends the oldest of the source (user of this machine,
// or IPv4 address, or network of an IPv6 address) that has the most, and of the user's address that
// has the most, first those without a request. A connection ends with its answer, or after
// kLongestMs, however slowly its peer reads or writes.
class MetricsServer {
 public:
  static constexpr unsigned kMaxConnections = 16;
  static constexpr int kLongestMs = 5'000;

  // Listens at `address`. Fails with the reason if it cannot: the port is in use, or
  // libmicrohttpd is not installed (it is loaded here, so that only users of metrics need it).
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Create(
      EventLoop& loop, const MetricsAddress& address, std::function<nlohmann::json()> make);
  ~MetricsServer();

 private:
  class Http;
  MetricsServer();
  std::unique_ptr<MetricsFeed> feed_;
  std::unique_ptr<Http> http_;
};

}  // namespace roci::control
