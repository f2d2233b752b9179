// One end of this project's program pairs for rxe_test.py: command line, device, and RC queue pairs
// connected to the other end. Exchanges parameters by TCP like ibv_rc_pingpong.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace interop {

/// Prints `what` and ends the program with an error.
[[noreturn]] void Fail(const std::string& what);
/// Fails unless `good`.
void Check(bool good, const std::string& what);
/// The same for a call; also prints errno.
void CheckCall(bool good, const std::string& call);

/// -d DEVICE -g GID_INDEX -p TCP_PORT -m PATH_MTU [-u TIMEOUT] [-w WHAT] [SERVER]
struct Options {
  std::string device;
  int gid_index = 0;
  std::string port;
  int mtu_bytes = 1024;
  uint8_t timeout = 18;  // 4.096 us << 18 = 1.1 s
  std::string what;
  std::string server;  // empty: this is the server

  bool IsServer() const { return server.empty(); }
};

/// Ends the program with status 2 if the command line is wrong.
Options ParseOptions(int argc, char** argv);

/// The TCP connection of both ends. Data is in host byte order, as both ends are on one machine.
class Meeting {
 public:
  explicit Meeting(const Options& options);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Sends `mine` and returns what the other end sends.
  template <class T>
  T Exchange(const T& mine) {
    T theirs;
    Send(&mine, sizeof(mine));
    Receive(&theirs, sizeof(theirs));
    return theirs;
  }
  /// Signal() lets the other end's Await() return.
  void Signal();
  void Await();

 private:
  void Send(const void* bytes, size_t length);
  void Receive(void* bytes, size_t length);

  int socket_ = -1;
};

/// An open device, and memory with all remote access rights for the other end.
class OpenedDevice {
 public:
  OpenedDevice(const Options& options, size_t memory_size);
  ~OpenedDevice();
  OpenedDevice(const OpenedDevice&) = delete;
  OpenedDevice& operator=(const OpenedDevice&) = delete;

  uint8_t* memory() { return memory_.data(); }
  uint64_t AddressOf(size_t offset) const {
    return reinterpret_cast<uint64_t>(memory_.data() + offset);
  }
  /// A counter of the port, from hw_counters.
  uint64_t Counter(const std::string& name) const;
  /// Whether that counter reaches `value` within some seconds.
  bool AwaitCounter(const std::string& name, uint64_t value) const;

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_mr* region = nullptr;
  ibv_gid gid = {};

 private:
  std::vector<uint8_t> memory_;
};

struct QpOptions {
  uint8_t timeout = 18;
  // Linux's soft-RoCE takes 7 as infinite. With a smaller number it gives up long messages at a few
  // per cent of loss.
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
};

/// For alarm(), in seconds: ends a program that hangs.
constexpr unsigned kLimitS = 200;

constexpr uint32_t kMaxInline = 64;
constexpr uint32_t kMaxReads = 8;  // outstanding READs and atomics
constexpr uint32_t kQueueDepth = 64;

/// An RC queue pair in RTS, connected to the queue pair of the other end.
class Connection {
 public:
  Connection(const Options& options, const QpOptions& qp_options, OpenedDevice& device,
             Meeting& meeting);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Posts a signalled request for `length` bytes of the memory at `offset` and of the other end's
  /// memory at `remote_offset`.
  void Post(ibv_wr_opcode opcode, size_t offset, uint32_t length, size_t remote_offset);
  void Post(ibv_send_wr& request);
  void PostReceive(size_t offset, uint32_t length);
  uint64_t RemoteAddressOf(size_t offset) const { return remote_address_ + offset; }
  uint32_t remote_rkey() const { return remote_rkey_; }
  /// Waits for the next completion.
  ibv_wc Await();
  /// The same, and fails unless the completion is a success.
  ibv_wc AwaitSuccess(const std::string& what);

  ibv_qp* qp = nullptr;

 private:
  struct Place {
    ibv_gid gid;
    uint32_t qpn;
    uint32_t psn;
    uint64_t address;
    uint32_t rkey;
  };

  void ToInit();
  void ToRtr(const Options& options, const Place& other);
  void ToRts(const QpOptions& qp_options, uint32_t psn);
  void AwaitEvent();

  OpenedDevice& device_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  uint64_t remote_address_ = 0;
  uint32_t remote_rkey_ = 0;
};

}  // namespace interop
