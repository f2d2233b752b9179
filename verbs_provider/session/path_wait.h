// Requests that need the path to a peer. While the daemon resolves the peer's address, the session
// is free for other threads, and for fork().
#pragma once

#include <cerrno>
#include <cstdint>

#include "verbs_provider/base/keep_errno.h"
#include "verbs_provider/session/session.h"

namespace roci::provider {

/// The pauses between the repetitions of one request.
class PathWait {
 public:
  /// Create it before the request is sent: a change of paths since then ends a pause.
  explicit PathWait(const VerbsSession& session);
  /// Sleeps until the daemon may have another answer. False: it had enough time, or the session has
  /// ended. Not a cancellation point.
  bool Sleep();

 private:
  uint32_t Paths() const;

  const VerbsSession& session_;
  const uint64_t end_ns_;
  uint32_t paths_;
  uint64_t pause_ns_;
  uint64_t interval_ns_;
};

/// As SessionClient::Call, for a command whose answer may be EINPROGRESS
/// (ROCI_ABI_FEATURE_PATH_WAITS). ETIMEDOUT: the peer does not answer.
template <class Request, class Response>
int CallWithPath(VerbsSession* session, uint32_t command, Request* request, Response* response) {
  int error;
  {
    const KeepErrno keep_errno;
    PathWait wait(*session);
    for (;;) {
      error = session->client.Call(command, request, response);
      // A fault of the daemon may give the error as well.
      if (error != EINPROGRESS || response->head.wait == 0) break;
      request->head.wait = response->head.wait;
      if (wait.Sleep()) continue;
      error = session->alive() ? ETIMEDOUT : EIO;
      break;
    }
  }
  return SetErrno(error);
}

}  // namespace roci::provider
