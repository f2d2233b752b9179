// The plugin's half of a session: the control socket, the doorbell page, and the tables by which
// the data path finds queue pairs, shared receive queues and keys.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "verbs_provider/base/held_file.h"
#include "verbs_provider/base/shared_mapping.h"
#include "verbs_provider/memory/convert.h"
#include "verbs_provider/memory/mr_keys.h"
#include "verbs_provider/rings/doorbell.h"
#include "verbs_provider/session/parked_ahs.h"
#include "verbs_provider/session/session_client.h"

namespace roci::provider {

struct Dm;
struct Mr;
struct Qp;
struct Srq;

/// Created by Open or Attach, destroyed by Close. Members without a comment about changes are
/// constant after Open.
struct VerbsSession {
  /// 0 or an errno. On success `*opened` is on the list of sessions, with one reference.
  /// `socket_file`: as for SessionClient::Connect. `*daemon_major`: the daemon's protocol version
  /// (abi/session_head.h) if that is the reason for an error, otherwise unchanged.
  static int Open(const char* socket_path, int socket_file, const char* device,
                  VerbsSession** opened, uint16_t* daemon_major);
  /// As Open, for a session that shares the context whose command descriptor is `cmd_fd`
  /// (abi/session_sharing.h, ATTACH). Writes the name of the context's device to `device`
  /// (ROCI_ABI_DEVICE_NAME_MAX bytes). ENODEV: no process of this user has that context open.
  static int Attach(const char* socket_path, int socket_file, int cmd_fd, char* device,
                    VerbsSession** opened);
  /// Tells the daemon the command descriptor by which other processes may attach. Errors are
  /// ignored: then no process can attach.
  void NameContext(int cmd_fd);
  /// Adds a reference, for an imported context.
  void AddReference() { ++ref_count; }
  /// Drops a reference. The last one closes and frees the session; its objects must not be used
  /// after that. Allowed in a forked child.
  static void Close(VerbsSession* session);
  /// Installs the process-wide fork and conversion hooks. Idempotent; 0 or an errno.
  static int InstallHooks();

  /// Every call on the data path checks this first.
  bool alive() const { return state->load(std::memory_order_relaxed) == kSessionAlive; }
  /// True in a forked child that inherited this session, and does not have its mappings.
  bool inherited() const { return state->load(std::memory_order_relaxed) == kSessionInherited; }

  Qp* FindQp(uint32_t handle) const {
    return handle < ROCI_ABI_MAX_QP_HANDLES ? qps[handle].load(std::memory_order_relaxed) : nullptr;
  }

  Srq* FindSrq(uint32_t handle) const {
    return handle < ROCI_ABI_MAX_SRQ_HANDLES ? srqs[handle].load(std::memory_order_relaxed)
                                             : nullptr;
  }

  SessionClient client;
  /// SessionState, in a page that is zero in a forked child (MADV_WIPEONFORK).
  std::atomic<uint32_t>* state = nullptr;
  SharedMapping doorbell_memory;
  Doorbells bells;
  HeldFile wake_file;   // the daemon's eventfd
  HeldFile async_file;  // each context has a duplicate
  uint32_t number = 0;  // as `roci show apps` prints it
  uint32_t auto_inline = 0;
  bool counts_polls = false;         // the daemon asks for the number of empty polls
  bool may_restart = false;          // send queues may skip indices
  bool fills_checksums = false;      // the daemon fills in the checksums of raw packets
  bool repeats_selectively = false;  // reliable connections may, if the peer does, too
  bool has_lenient_posts = false;    // ROCI_ABI_HELLO_LENIENT_POSTS
  uint32_t num_comp_vectors = 1;
  ConvertPolicy memory_policy = ConvertPolicy::kMapFiles;

  /// By handle. An entry is changed with the locks of both of the QP's CQs, and read with one of
  /// them.
  std::atomic<Qp*>* qps = nullptr;
  /// By handle. Destroying a shared receive queue marks its completions as skipped before it
  /// removes the entry, so that poll never looks up a freed queue.
  std::atomic<Srq*>* srqs = nullptr;
  /// Changed under the RegistrationLock.
  MrKeys keys;
  ParkedAhs parked_ahs;
  /// Held while an object is destroyed and its unread events are removed (verbs/events.h).
  pthread_mutex_t event_mutex = PTHREAD_MUTEX_INITIALIZER;

  Mr* regions = nullptr;          // newest first; under the RegistrationLock
  Dm* device_memories = nullptr;  // likewise

  std::atomic<uint32_t> ref_count{1};
  VerbsSession* next = nullptr;  // on the list of sessions
};

}  // namespace roci::provider
