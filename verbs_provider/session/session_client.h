// The plugin's end of the control socket: one request at a time, its answer, and the descriptors
// that travel with them.
#pragma once

#include <pthread.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "verbs_provider/abi/session.h"
#include "verbs_provider/abi/spin_judge.h"

namespace roci::provider {

/// Descriptors beside one message. Those received are closed by the destructor unless taken.
class ReceivedFds {
 public:
  static constexpr uint32_t kCapacity = 8;

  ReceivedFds() = default;
  ~ReceivedFds() { CloseAll(); }
  ReceivedFds(const ReceivedFds&) = delete;
  ReceivedFds& operator=(const ReceivedFds&) = delete;

  uint32_t count() const { return count_; }
  int at(uint32_t index) const { return index < count_ ? fds_[index] : -1; }
  /// Hands number `index` over to the caller, who closes it; -1 if there is none.
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

/// What has become of a session. Kept in a word of its own, in a page that fork wipes.
enum SessionState : uint32_t {
  kSessionInherited = 0,  ///< this is a forked child: rings and socket are its parent's
  kSessionAlive = 1,
  kSessionDead = 2,  ///< the daemon is gone; the rings are still mapped
};

/// Thread-safe after Connect. Never blocks for longer than kTimeoutSeconds per message, and raises
/// no SIGPIPE. Once the daemon is gone, has not answered in time or has broken the protocol,
/// `state` is kSessionDead and every call gives EIO.
class SessionClient {
 public:
  static constexpr int kTimeoutSeconds = 30;

  SessionClient() = default;
  ~SessionClient() { Close(); }
  SessionClient(const SessionClient&) = delete;
  SessionClient& operator=(const SessionClient&) = delete;

  /// `state` outlives the client; Connect sets it to kSessionAlive. 0 or an errno (ENOENT,
  /// ECONNREFUSED: no daemon there). `socket_file`: an O_PATH descriptor of the socket, for a
  /// process that the path does not lead there any more (chroot(2)), or -1.
  int Connect(const char* socket_path, std::atomic<uint32_t>* state, int socket_file = -1);
  /// For tests: takes over a connected SOCK_SEQPACKET socket.
  int Adopt(int fd, std::atomic<uint32_t>* state);
  void Close();

  /// The daemon's process, 0 if unknown.
  int peer_pid() const { return peer_pid_; }
  bool alive() const {
    return state_ != nullptr && state_->load(std::memory_order_relaxed) == kSessionAlive;
  }
  /// Notes that the daemon is gone.
  void MarkDead() {
    if (alive()) state_->store(kSessionDead, std::memory_order_relaxed);
  }
  /// Looks for end of file on the socket. One system call.
  bool CheckPeer();
  /// In a forked child only: lets go of the parent's socket.
  void DropInChild();

  /// Sends `request` (its head's command filled in by the caller, the rest of the head here) and
  /// waits for the answer. 0 or a positive errno: the daemon's own (also where it refuses the
  /// connection, which ends the session), EIO as above, or EMFILE where
  /// this process could not take the answer's descriptors (`response` is complete then, so that the
  /// caller can undo).
  template <class Request, class Response>
  int Call(uint32_t command, Request* request, Response* response, const FdsToSend* send = nullptr,
           ReceivedFds* received = nullptr) {
    static_assert(offsetof(Request, head) == 0 && offsetof(Response, head) == 0);
    request->head.command = command;
    return Transact(&request->head, sizeof(Request), {&response->head, sizeof(Response)}, send,
                    received);
  }
  /// The same, where the answer may end anywhere behind its first `least` bytes; what it lacks
  /// stays as it is.
  template <class Request, class Response>
  int CallForAtLeast(size_t least, uint32_t command, Request* request, Response* response) {
    static_assert(offsetof(Request, head) == 0 && offsetof(Response, head) == 0);
    request->head.command = command;
    return Transact(&request->head, sizeof(Request), {&response->head, sizeof(Response), least},
                    nullptr, nullptr);
  }

 private:
  // Where an answer goes.
  struct Room {
    Room(roci_abi_response* to, size_t bytes) : Room(to, bytes, bytes) {}
    Room(roci_abi_response* to, size_t bytes, size_t least_bytes)
        : response(to), size(bytes), least(least_bytes) {}
    roci_abi_response* response;
    size_t size;
    size_t least;
  };

  int Transact(roci_abi_request* request, size_t request_size, const Room& room,
               const FdsToSend* send, ReceivedFds* received);
  int Exchange(roci_abi_request* request, size_t request_size, const Room& room,
               const FdsToSend* send, ReceivedFds* received);
  int Refusal();
  ssize_t Receive(msghdr* message);
  bool Send(const roci_abi_request* request, size_t size, const FdsToSend* send);

  int fd_ = -1;
  int peer_pid_ = 0;
  uint32_t serial_ = 0;
  abi::SpinJudge spins_;
  std::atomic<uint32_t>* state_ = nullptr;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

/// DEALLOC_PD, DESTROY_AH, ... and other requests that name one object.
int CallWithHandle(SessionClient& client, uint32_t command, uint32_t handle);

}  // namespace roci::provider
