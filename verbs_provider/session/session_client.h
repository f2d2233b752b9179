// The plugin's end of the control socket: sends one request at a time and receives its response,
// with the descriptors of both.
#pragma once

#include <pthread.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "verbs_provider/abi/answer_limit.h"
#include "verbs_provider/abi/session.h"
#include "verbs_provider/abi/spin_judge.h"
#include "verbs_provider/base/held_file.h"

namespace roci::provider {

/// The descriptors received with one message. The destructor closes those that were not taken.
class ReceivedFds {
 public:
  static constexpr uint32_t kCapacity = 8;

  ReceivedFds() = default;
  ~ReceivedFds() { CloseAll(); }
  ReceivedFds(const ReceivedFds&) = delete;
  ReceivedFds& operator=(const ReceivedFds&) = delete;

  uint32_t count() const { return count_; }
  int at(uint32_t index) const { return index < count_ ? fds_[index] : -1; }
  /// Passes ownership of descriptor number `index` to the caller; -1 if there is none.
  int Take(uint32_t index);
  void CloseAll();
  void Add(int fd);

 private:
  uint32_t count_ = 0;
  int fds_[kCapacity];
};

struct FdsToSend {
  static constexpr uint32_t kCapacity = ROCI_ABI_MAX_EXTENTS;
  uint32_t count = 0;
  int fds[kCapacity];
};

/// The state of a session, in a page that is zero in a forked child (MADV_WIPEONFORK).
enum SessionState : uint32_t {
  kSessionInherited = 0,  ///< This is a forked child; rings and socket belong to the parent.
  kSessionAlive = 1,
  kSessionDead = 2,  ///< The daemon has exited or the session has ended; the rings stay mapped.
};

/// Thread-safe after Connect. Blocks for at most kTimeoutSeconds per message, and raises no
/// SIGPIPE. When the daemon has exited, has not answered in time or has broken the protocol, or the
/// program has closed the socket, `state` becomes kSessionDead and every call returns EIO.
class SessionClient {
 public:
  static constexpr int kTimeoutSeconds = ROCI_ABI_ANSWER_LIMIT_S;

  SessionClient() = default;
  ~SessionClient() { Close(); }
  SessionClient(const SessionClient&) = delete;
  SessionClient& operator=(const SessionClient&) = delete;

  /// Sets `*state`, which outlives the client, to kSessionAlive. 0 or an errno (ENOENT,
  /// ECONNREFUSED: no daemon listens there). `socket_file`: an O_PATH descriptor of the socket,
  /// used if `socket_path` does not resolve, for example after chroot(2); or -1.
  int Connect(const char* socket_path, std::atomic<uint32_t>* state, int socket_file = -1);
  /// Takes ownership of a connected SOCK_SEQPACKET socket. Public for tests.
  int Adopt(int fd, std::atomic<uint32_t>* state);
  void Close();

  /// The daemon's process ID; 0 if unknown.
  int peer_pid() const { return peer_pid_; }
  bool alive() const {
    return state_ != nullptr && state_->load(std::memory_order_relaxed) == kSessionAlive;
  }
  /// Ends the session: the state becomes kSessionDead.
  void MarkDead() {
    if (alive()) state_->store(kSessionDead, std::memory_order_relaxed);
  }
  /// Checks whether the daemon or this program has closed the socket, and ends the session then.
  /// False if the session has ended. Two system calls.
  bool CheckPeer();
  /// Closes a forked child's copy of the parent's socket.
  void DropInChild();

  /// Fills in the head of `request`, sends it and waits for the response. 0 or a positive errno:
  /// the daemon's error (if it refuses the connection, the session ends), EIO as above,
  /// ETOOMANYREFS, ENOBUFS or ENOMEM if the request could not be sent (`response` is unchanged, the
  /// session goes on), or EMFILE if this process could not receive the response's descriptors.
  /// After EMFILE `response` is complete, so that the caller can destroy the object.
  template <class Request, class Response>
  int Call(uint32_t command, Request* request, Response* response, const FdsToSend* send = nullptr,
           ReceivedFds* received = nullptr) {
    static_assert(offsetof(Request, head) == 0 && offsetof(Response, head) == 0);
    request->head.command = command;
    return Transact(&request->head, sizeof(Request), {&response->head, sizeof(Response)}, send,
                    received);
  }
  /// As Call, for a response of variable size, at least `least` bytes. The rest of `response` is
  /// unchanged.
  template <class Request, class Response>
  int CallForAtLeast(size_t least, uint32_t command, Request* request, Response* response) {
    static_assert(offsetof(Request, head) == 0 && offsetof(Response, head) == 0);
    request->head.command = command;
    return Transact(&request->head, sizeof(Request), {&response->head, sizeof(Response), least},
                    nullptr, nullptr);
  }

 private:
  // The buffer for a response.
  struct ResponseBuffer {
    ResponseBuffer(roci_abi_response* to, size_t bytes) : ResponseBuffer(to, bytes, bytes) {}
    ResponseBuffer(roci_abi_response* to, size_t bytes, size_t least_bytes)
        : response(to), size(bytes), least(least_bytes) {}
    roci_abi_response* response;
    size_t size;
    size_t least;  // shortest valid response, bytes
  };

  int Transact(roci_abi_request* request, size_t request_size, const ResponseBuffer& buffer,
               const FdsToSend* send, ReceivedFds* received);
  int Exchange(roci_abi_request* request, size_t request_size, const ResponseBuffer& buffer,
               const FdsToSend* send, ReceivedFds* received);
  ssize_t Receive(int socket, msghdr* message);

  HeldFile socket_;
  int peer_pid_ = 0;
  uint32_t serial_ = 0;
  abi::SpinJudge spins_;
  std::atomic<uint32_t>* state_ = nullptr;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

/// Sends a roci_abi_handle_request with a plain response: DEALLOC_PD, DESTROY_AH, ...
int CallWithHandle(SessionClient& client, uint32_t command, uint32_t handle);

}  // namespace roci::provider
