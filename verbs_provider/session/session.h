// What one open device of this process shares with the daemon: the control socket, the doorbell
// page, and the tables by which the data path finds its objects.
#pragma once

#include <atomic>
#include <cstdint>

#include "verbs_provider/base/shared_mapping.h"
#include "verbs_provider/memory/convert.h"
#include "verbs_provider/memory/mr_keys.h"
#include "verbs_provider/rings/doorbell.h"
#include "verbs_provider/session/session_client.h"

namespace roci::provider {

struct Dm;
struct Mr;
struct Qp;
struct Srq;

/// Created and destroyed by Open and Close. Members without a remark are fixed after Open.
struct Session {
  /// 0 or an errno. On success `*opened` is on the list of sessions, with one user. `socket_file`:
  /// as for SessionClient::Connect.
  static int Open(const char* socket_path, int socket_file, const char* device, Session** opened);
  /// As Open, a session that shares the context whose command descriptor `cmd_fd` is
  /// (abi/session.h, ATTACH). `device` (ROCI_ABI_DEVICE_NAME_MAX bytes) gets the name of its
  /// device. ENODEV: no process of this user has it open.
  static int Attach(const char* socket_path, int socket_file, int cmd_fd, char* device,
                    Session** opened);
  /// Tells the daemon by which descriptor others may attach. Where it does not know of that, nobody
  /// can, and that is all.
  void NameContext(int cmd_fd);
  /// One more user: an imported context.
  void Share() { ++users; }
  /// Ends one use. After the last one the session's objects are gone or will not be used any more,
  /// and it is closed. Also right in a forked child.
  static void Close(Session* session);
  /// Installs the process-wide fork and conversion hooks. Idempotent; 0 or an errno.
  static int InstallHooks();

  /// What every call on the data path looks at before anything else.
  bool alive() const { return state->load(std::memory_order_relaxed) == kSessionAlive; }
  /// True in a child that inherited this session; its mappings are not there.
  bool inherited() const { return state->load(std::memory_order_relaxed) == kSessionInherited; }

  Qp* FindQp(uint32_t handle) const {
    return handle < ROCI_ABI_MAX_QP_HANDLES ? qps[handle].load(std::memory_order_relaxed) : nullptr;
  }

  Srq* FindSrq(uint32_t handle) const {
    return handle < ROCI_ABI_MAX_SRQ_HANDLES ? srqs[handle].load(std::memory_order_relaxed)
                                             : nullptr;
  }

  SessionClient client;
  /// SessionState, in a page that fork wipes.
  std::atomic<uint32_t>* state = nullptr;
  SharedMapping doorbell_memory;
  Doorbells bells;
  int wake_fd = -1;
  int async_fd = -1;    // contexts have duplicates
  uint32_t number = 0;  // as `roci show app` prints it
  uint32_t auto_inline = 0;
  bool may_restart = false;      // send queues may leave indices out
  bool fills_checksums = false;  // of raw packets
  uint32_t num_comp_vectors = 1;
  ConvertPolicy memory_policy = ConvertPolicy::kMapFiles;

  /// By handle. An entry is changed under the locks of the QP's CQs and read under one of them.
  std::atomic<Qp*>* qps = nullptr;
  /// By handle. No completion names one that is not there: what was not polled is marked first.
  std::atomic<Srq*>* srqs = nullptr;
  /// Changed under the RegistrationLock.
  MrKeys keys;

  Mr* regions = nullptr;          // newest first; under the RegistrationLock
  Dm* device_memories = nullptr;  // likewise

  std::atomic<uint32_t> users{1};
  Session* next = nullptr;  // on the list of sessions
};

}  // namespace roci::provider
