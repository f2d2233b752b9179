// Common parts of tests of librdmacm's calls: identifiers that are destroyed with the test, events
// as values, and steps to a connection between the two devices of the default configuration.
#pragma once

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>

namespace roci::testing {

inline constexpr char kNear[] = "10.99.0.1";
inline constexpr char kFar[] = "10.99.0.2";

// 0, or errno of a call that failed.
inline int ErrorOf(int result) { return result == 0 ? 0 : errno; }

// An address in the form that the calls take.
class Address {
 public:
  explicit Address(const std::string& ip, uint16_t port = 0);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage_); }

 private:
  sockaddr_storage storage_ = {};
};

struct IdDeleter {
  void operator()(rdma_cm_id* id) const;  // with its queue pair
};
using Id = std::unique_ptr<rdma_cm_id, IdDeleter>;

// An event that has been acknowledged.
struct Seen {
  int event = -1;  // rdma_cm_event_type; -1: none came
  int status = 0;
  rdma_cm_id* id = nullptr;
  rdma_cm_id* listener = nullptr;
  rdma_conn_param conn = {};  // without private data
  rdma_ud_param ud = {};      // likewise
  std::string data;           // private data, zeros at its end included
  void* context = nullptr;    // of a multicast event
};

class EventChannel {
 public:
  EventChannel();
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  rdma_event_channel* get() const { return channel_; }
  Id Create(rdma_port_space space = RDMA_PS_TCP);
  Id Listen(const std::string& ip, uint16_t port, rdma_port_space space = RDMA_PS_TCP,
            int backlog = 8);
  // Up to the resolved route. `type_of_service` is set if it is not negative.
  Id Route(const std::string& ip, uint16_t port, rdma_port_space space = RDMA_PS_TCP,
           int type_of_service = -1);

  Seen Next(int timeout_ms = 60'000);
  // Fails the test if the next event differs or does not arrive.
  Seen Expect(rdma_cm_event_type event);
  // The new identifier of a request.
  Id ExpectRequest(Seen* seen = nullptr);
  bool IsQuiet() { return Next(200).event == -1; }
  // True: an event is waiting.
  bool IsWaiting() const;

 private:
  rdma_event_channel* channel_;
};

// With a queue pair number that no other test has used.
rdma_conn_param Parameters(const std::string& data = "");

// A connection without queue pairs, or half of one.
struct Connection {
  EventChannel far_channel, near_channel;
  Id listener;
  Id active, passive;  // after the listener, so that they end first

  // Connects up to the request; the test does the rest.
  explicit Connection(uint16_t port, int type_of_service = -1);
  void Accept();
  // Waits until both sides are established.
  void Establish();
  // Returns the mask of rdma_init_qp_attr, 0 on failure.
  static int Mask(rdma_cm_id* id, ibv_qp_state state, ibv_qp_attr* attributes = nullptr);
};

// A queue pair of the identifier's type.
int CreateQueuePair(rdma_cm_id* id);

}  // namespace roci::testing
