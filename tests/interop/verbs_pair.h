// One end of this project's program pairs for rxe_test.py: command line, device, and RC queue pairs
// to the other end. Exchanges parameters by TCP as ibv_rc_pingpong does.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace interop {

/// Says what is wrong and ends the program.
[[noreturn]] void Fail(const std::string& what);
/// Fails unless `good`.
void Check(bool good, const std::string& what);
/// The same of a call, and says what errno has.
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

/// Ends the program with status 2 where the command line is wrong.
Options ParseOptions(int argc, char** argv);

/// The TCP connection of both ends. What passes over it is in the machine's byte order: both ends
/// are on one machine.
class Meeting {
 public:
  explicit Meeting(const Options& options);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Sends `mine` and answers with what the other end sends.
  template <class T>
  T Exchange(const T& mine) {
    T theirs;
    Send(&mine, sizeof(mine));
    Receive(&theirs, sizeof(theirs));
    return theirs;
  }
  /// Tells the other end to go on, or waits until it does.
  void Signal();
  void Await();

 private:
  void Send(const void* bytes, size_t length);
  void Receive(void* bytes, size_t length);

  int socket_ = -1;
};

/// An open device, and memory that the other end may reach in every way.
class Device {
 public:
  Device(const Options& options, size_t memory_size);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  uint8_t* memory() { return memory_.data(); }
  uint64_t AddressOf(size_t offset) const {
    return reinterpret_cast<uint64_t>(memory_.data() + offset);
  }
  /// Of the port, from hw_counters.
  uint64_t Counter(const std::string& name) const;
  /// Whether that counter comes to be at least `value` within some seconds.
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
  // For ever with Linux's soft-RoCE, which with a smaller number gives long messages up at a few
  // per cent of loss.
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
};

/// For alarm(): more than what rxe_test.py waits, so that it is there that what is late ends.
constexpr unsigned kLimitS = 90;

constexpr uint32_t kMaxInline = 64;
constexpr uint32_t kMaxReads = 8;  // READs and atomics under way
constexpr uint32_t kQueueDepth = 64;

/// An RC queue pair in RTS, connected to that of the other end.
class Connection {
 public:
  Connection(const Options& options, const QpOptions& qp_options, Device& device, Meeting& meeting);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Posts a signalled request from or to `length` bytes of the memory at `offset`, for the other
  /// end's memory at `remote_offset`.
  void Post(ibv_wr_opcode opcode, size_t offset, uint32_t length, size_t remote_offset);
  void Post(ibv_send_wr& request);
  void PostReceive(size_t offset, uint32_t length);
  uint64_t RemoteAddressOf(size_t offset) const { return remote_address_ + offset; }
  uint32_t remote_rkey() const { return remote_rkey_; }
  /// The next completion.
  ibv_wc Await();
  /// The same, and fails where that is not a success.
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

  Device& device_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  uint64_t remote_address_ = 0;
  uint32_t remote_rkey_ = 0;
};

}  // namespace interop
