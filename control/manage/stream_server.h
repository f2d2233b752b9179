// Streams to management connections: takes what the lcores record, and sends it as far as the
// reader takes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "control/device/services.h"
#include "control/loop/event_loop.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// Control thread only.
class Stream {
 public:
  // Limit of bytes that wait for a slow reader. Then records stay on the lcores' rings, and are
  // lost when the rings are full.
  static constexpr size_t kMaxWaitingBytes = 1 << 20;

  Stream() = default;
  virtual ~Stream() = default;  // ends the recording
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Takes what the lcores have recorded, as far as there is room. May Finish().
  virtual void Drain(roce::TimeNs now) = 0;
  // Ends the recording and takes the rest. Call once.
  virtual void Finish() = 0;
  virtual bool finished() const = 0;

  std::string_view unsent() const { return std::string_view(out_).substr(sent_); }
  void NoteSent(size_t bytes);

 protected:
  bool has_room() const { return unsent().size() < kMaxWaitingBytes; }

  std::string out_;  // what is appended is sent

 private:
  size_t sent_ = 0;  // bytes of out_
};

// CLOCK_REALTIME minus CLOCK_MONOTONIC, ns.
uint64_t WallOffset();

// The running streams of one command. Control thread only; destroyed before the devices. A stream
// ends when its reader shuts down its sending direction (it then gets the rest), when the reader
// disconnects, or when it has finished and the reader has all.
class StreamServer {
 public:
  explicit StreamServer(const Services& services) : services_(services) {}
  virtual ~StreamServer();
  StreamServer(const StreamServer&) = delete;
  StreamServer& operator=(const StreamServer&) = delete;

  // Starts the recording.
  virtual absl::StatusOr<std::shared_ptr<Stream>> Prepare(const nlohmann::json& request) const = 0;
  void Start(std::shared_ptr<Stream> stream, UniqueFd socket);

  // For the loop's deadlines.
  roce::TimeNs NextTimeout() const;
  void HandleTimeout(roce::TimeNs now);

 protected:
  size_t size() const { return readers_.size(); }
  // Finishes all streams, and sends what their sockets have room for.
  void FinishAll();

  const Services& services_;

 private:
  struct Reader {
    std::shared_ptr<Stream> stream;
    UniqueFd socket;
    EventLoop::Watch watch = 0;
  };

  void Handle(uint64_t id, uint32_t events);
  // False: the reader is gone, or has received everything.
  bool Flush(Reader& reader);
  void Close(uint64_t id);

  uint64_t last_id_ = 0;
  roce::TimeNs next_drain_ = 0;
  std::map<uint64_t, Reader> readers_;
};

}  // namespace roci::control
