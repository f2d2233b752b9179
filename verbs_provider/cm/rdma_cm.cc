#include "verbs_provider/cm/rdma_cm.h"

#include <netinet/in.h>
// The kernel's header comes after the C library's, whose addresses it then uses.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "verbs_provider/abi/rdma_cm.h"
#include "verbs_provider/abi/stand_in.h"
#include "verbs_provider/base/allocate.h"
#include "verbs_provider/base/keep_errno.h"
#include "verbs_provider/base/process_lock.h"
#include "verbs_provider/base/provider_api.h"
#include "verbs_provider/cm/foretold_answers.h"
#include "verbs_provider/intercept/intercept.h"
#include "verbs_provider/session/session_client.h"

namespace roci::provider {
namespace {

// One open descriptor of the device. As with the kernel's, a thread that waits in it keeps it when
// another closes it, and goes on waiting.
struct EventChannel {
  SessionClient client;
  ForetoldAnswers foretold;
  std::atomic<uint32_t> state{kSessionDead};
  uint32_t number = 0;
  uint64_t serial = 0;  // of this process, from 1
  pid_t pid = 0;        // of the process that opened it
  uint32_t users = 1;
  EventChannel* next = nullptr;
};

// The channel whose last event told the calling thread of a connection's end: its serial. 0: none.
thread_local uint64_t t_told_end_by = 0;

// Those that are open; under the ProcessLock, and so are their users.
EventChannel* g_channels = nullptr;

void AddChannel(EventChannel* channel) {
  static uint64_t last_serial = 0;
  const ProcessLock lock;
  channel->serial = ++last_serial;
  channel->next = g_channels;
  g_channels = channel;
}

bool IsOpen(uint64_t serial) {
  const ProcessLock lock;
  const EventChannel* channel = g_channels;
  while (channel != nullptr && channel->serial != serial) channel = channel->next;
  return channel != nullptr;
}

// Null: it has been closed meanwhile.
EventChannel* Hold(void* owner) {
  const ProcessLock lock;
  for (EventChannel* channel = g_channels; channel != nullptr; channel = channel->next) {
    if (channel != owner) continue;
    ++channel->users;
    return channel;
  }
  return nullptr;
}

// `closed`: nobody shall find it any more.
void Release(EventChannel* channel, bool closed) {
  bool last = false;
  {
    const ProcessLock lock;
    for (EventChannel** link = &g_channels; closed && *link != nullptr; link = &(*link)->next) {
      if (*link != channel) continue;
      *link = channel->next;
      break;
    }
    last = --channel->users == 0;
  }
  if (last) Free(channel);
}

char g_socket_path[4096];

bool ReadSocketPath() {
  char file[4096];
  const int length = snprintf(file, sizeof(file), "%s/class/misc/rdma_cm/%s", ibv_get_sysfs_path(),
                              abi::kSocketAttribute);
  if (length <= 0 || static_cast<size_t>(length) >= sizeof(file)) return false;
  const int fd = open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = read(fd, g_socket_path, sizeof(g_socket_path) - 1);
  close(fd);
  if (n <= 0) return false;
  g_socket_path[n] = '\0';
  g_socket_path[strcspn(g_socket_path, "\n")] = '\0';
  return g_socket_path[0] == '/';
}

int OpenChannel(EventChannel* channel, int flags) {
  const int error = channel->client.Connect(g_socket_path, &channel->state);
  if (error != 0) return -error;
  roci_abi_cm_open_request request = {};
  roci_abi_cm_open_response response = {};
  request.magic = ROCI_ABI_MAGIC;
  request.major = ROCI_ABI_MAJOR;
  request.minor = ROCI_ABI_MINOR;
  ReceivedFds fds;
  const int refused = channel->client.Call(ROCI_ABI_CM_OPEN, &request, &response, nullptr, &fds);
  if (refused != 0) return -refused;
  if (fds.count() != 1) return -EPROTO;
  channel->number = response.channel;
  channel->pid = getpid();
  const int fd = fds.Take(0);
  if ((flags & O_NONBLOCK) != 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  if ((flags & O_CLOEXEC) == 0) fcntl(fd, F_SETFD, 0);
  return fd;
}

int Open(int flags) {
  const KeepErrno keep_errno;
  auto* channel = Allocate<EventChannel>();
  if (channel == nullptr) return -ENOMEM;
  const int fd = OpenChannel(channel, flags);
  AddChannel(channel);
  if (fd >= 0 && RegisterFd(fd, FdKind::kRdmaCm, channel)) return fd;
  if (fd >= 0) close(fd);
  Release(channel, true);
  return fd >= 0 ? -ENOMEM : fd;
}

uint64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

bool IsLastOfConnection(const roci_abi_cm_response& response) {
  // RDMA_CM_EVENT_* of rdma_cma.h, which does not go together with the kernel's header.
  constexpr uint32_t kDisconnected = 10;
  constexpr uint32_t kTimewaitExit = 15;
  rdma_ucm_event_resp event;
  static_assert(sizeof(event) <= sizeof(response.data));
  memcpy(&event, response.data, sizeof(event));
  return event.event == kDisconnected || event.event == kTimewaitExit;
}

void Close(void* owner, int) {
  const KeepErrno keep_errno;
  auto* channel = static_cast<EventChannel*>(owner);
  if (t_told_end_by == channel->serial) t_told_end_by = 0;
  Release(channel, true);
}

// Where a command wants its answer; 0: nowhere.
uint64_t AnswerAddress(uint32_t command, const void* body) {
  switch (command) {
    case RDMA_USER_CM_CMD_CREATE_ID:
      return static_cast<const rdma_ucm_create_id*>(body)->response;
    case RDMA_USER_CM_CMD_JOIN_MCAST:
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
    case RDMA_USER_CM_CMD_DESTROY_ID:
    case RDMA_USER_CM_CMD_LEAVE_MCAST:
    case RDMA_USER_CM_CMD_QUERY_ROUTE:
    case RDMA_USER_CM_CMD_QUERY:
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
    case RDMA_USER_CM_CMD_GET_EVENT:
    case RDMA_USER_CM_CMD_MIGRATE_ID:
      return *static_cast<const uint64_t*>(body);
    default:
      return 0;
  }
}

// What refers to this process: an option's value, another descriptor.
int Localise(roci_abi_cm_request* request) {
  if (request->command == RDMA_USER_CM_CMD_SET_OPTION &&
      request->in_size >= sizeof(rdma_ucm_set_option)) {
    rdma_ucm_set_option option;
    memcpy(&option, request->data, sizeof(option));
    if (option.optlen > sizeof(request->data) - request->in_size) return EINVAL;
    memcpy(request->data + request->in_size, reinterpret_cast<const void*>(option.optval),
           option.optlen);
    request->extra_size = option.optlen;
  }
  if (request->command == RDMA_USER_CM_CMD_MIGRATE_ID &&
      request->in_size >= sizeof(rdma_ucm_migrate_id)) {
    rdma_ucm_migrate_id migrate;
    memcpy(&migrate, request->data, sizeof(migrate));
    void* from = nullptr;
    if (LookUpFd(static_cast<int>(migrate.fd), &from) != FdKind::kRdmaCm) return EINVAL;
    EventChannel* channel = Hold(from);
    if (channel == nullptr) return EINVAL;
    migrate.fd = channel->number;
    channel->foretold.Drop(migrate.id);
    Release(channel, false);
    memcpy(request->data, &migrate, sizeof(migrate));
  }
  return 0;
}

// Nothing comes to a descriptor that is closed, and the kernel's device leaves whoever waits in it
// waiting: programs end their threads then, or themselves. (A signal ends it, whatever SA_RESTART.)
int WaitForNothing() {
  pause();
  return EINTR;
}

// GET_EVENT waits, unless the descriptor's `flags` say otherwise. The event may go to another
// thread. As with the kernel's device, a signal whose handler was installed with SA_RESTART does
// not end the wait, nor does another thread that closes the descriptor.
int WaitForEvent(const EventChannel* channel, int fd, int flags) {
  void* owner = nullptr;
  if (LookUpFd(fd, &owner) == FdKind::kRdmaCm && owner == channel) {
    char byte;
    const ssize_t n = recv(fd, &byte, sizeof(byte), MSG_PEEK);
    if (n >= 0) return n == 0 ? EIO : 0;
    if (errno != EBADF) return errno;
  }
  return (flags & O_NONBLOCK) != 0 ? EAGAIN : WaitForNothing();
}

// Librdmacm frees nothing of what it cannot destroy. The identifiers and memberships of a daemon
// that is gone went with it.
bool IsGoneAnyway(uint32_t command, const SessionClient& client) {
  return (command == RDMA_USER_CM_CMD_DESTROY_ID || command == RDMA_USER_CM_CMD_LEAVE_MCAST) &&
         !client.alive();
}

bool IsQuestion(uint32_t command) {
  return command == RDMA_USER_CM_CMD_QUERY || command == RDMA_USER_CM_CMD_INIT_QP_ATTR;
}

// Whether the daemon has told the answer already.
bool AnswerByItself(EventChannel* channel, const rdma_ucm_cmd_hdr& header, const void* body) {
  if (!IsQuestion(header.cmd) || header.in != sizeof(rdma_ucm_query)) return false;
  static_assert(sizeof(rdma_ucm_query) == sizeof(rdma_ucm_init_qp_attr));
  const auto* question = static_cast<const rdma_ucm_query*>(body);
  return question->response != 0 && channel->client.alive() &&
         channel->foretold.Find(header.cmd, question->id, question->option, MonotonicNs(),
                                reinterpret_cast<void*>(question->response), header.out);
}

void NoteForetold(EventChannel* channel, const roci_abi_cm_response& response, uint32_t serial,
                  int error) {
  if (response.changed_id != 0) channel->foretold.Forget(response.changed_id, serial);
  if (error == 0) channel->foretold.Keep(response, serial, MonotonicNs());
}

ssize_t WriteTo(EventChannel* channel, int fd, const void* data, size_t size) {
  rdma_ucm_cmd_hdr header;
  if (size < sizeof(header)) return -EINVAL;
  memcpy(&header, data, sizeof(header));
  roci_abi_cm_request request = {};
  if (header.in + sizeof(header) > size || header.in > sizeof(request.data)) return -EINVAL;
  // A child shares its parent's connection: their messages would mix.
  if (channel->pid != getpid()) return -EIO;
  request.command = header.cmd;
  request.in_size = header.in;
  request.out_size = header.out;
  alignas(8) unsigned char body[ROCI_ABI_CM_DATA_MAX] = {};
  memcpy(body, static_cast<const char*>(data) + sizeof(header), header.in);
  if (AnswerByItself(channel, header, body)) return static_cast<ssize_t>(size);
  memcpy(request.data, body, header.in);
  int error = Localise(&request);
  if (error != 0) return -error;
  roci_abi_cm_response response = {};
  const bool is_get_event = header.cmd == RDMA_USER_CM_CMD_GET_EVENT;
  const int flags = is_get_event ? fcntl(fd, F_GETFL) : 0;
  if (flags < 0) return -errno;
  do {
    error = is_get_event ? WaitForEvent(channel, fd, flags) : 0;
    if (error != 0) break;
    error = channel->client.CallForAtLeast(offsetof(roci_abi_cm_response, data),
                                           ROCI_ABI_CM_COMMAND, &request, &response);
  } while (error == EAGAIN && is_get_event);
  if (is_get_event) {
    const bool waits_next = (flags & O_NONBLOCK) == 0;
    const bool is_end = error == 0 && IsLastOfConnection(response);
    t_told_end_by = is_end && waits_next ? channel->serial : 0;
  }
  NoteForetold(channel, response, request.head.serial, error);
  if (IsGoneAnyway(header.cmd, channel->client)) {
    response = {};
    response.out_size = sizeof(rdma_ucm_destroy_id_resp);
    error = 0;
  }
  if (error != 0) return -error;
  const uint64_t answer = AnswerAddress(header.cmd, body);
  if (answer != 0) {
    memcpy(reinterpret_cast<void*>(answer), response.data,
           std::min<size_t>({response.out_size, header.out, sizeof(response.data)}));
  }
  return static_cast<ssize_t>(size);
}

ssize_t Write(void* owner, int fd, const void* data, size_t size) {
  const KeepErrno keep_errno;
  EventChannel* channel = Hold(owner);
  if (channel == nullptr) return -EBADF;
  const ssize_t result = WriteTo(channel, fd, data, size);
  Release(channel, false);
  return result;
}

// Programs (rping for one) acknowledge their last event in one thread and close the descriptor in
// another, which has waited for that alone. The first thread then asks for the next event. In time,
// it waits for ever (see WaitForNothing). Too late, it would fail with EBADF and end the program,
// which is rare with the kernel's device and common where the daemon keeps the processors busy: so
// it waits as well. `data` may have gone to any descriptor, since librdmacm has freed the channel.
ssize_t WriteElsewhere(const void* data, size_t size) {
  const KeepErrno keep_errno;
  rdma_ucm_cmd_hdr header;
  if (t_told_end_by == 0 || size != sizeof(header) + sizeof(rdma_ucm_get_event)) return 0;
  memcpy(&header, data, sizeof(header));
  if (header.cmd != RDMA_USER_CM_CMD_GET_EVENT || header.in != sizeof(rdma_ucm_get_event) ||
      IsOpen(t_told_end_by))
    return 0;
  return -WaitForNothing();
}

}  // namespace

void ServeRdmaCm() {
  if (!ReadSocketPath()) return;
  RdmaCmHandlers handlers;
  handlers.open = Open;
  handlers.write = Write;
  handlers.write_elsewhere = WriteElsewhere;
  handlers.close = Close;
  InstallRdmaCmInterception(handlers);
}

}  // namespace roci::provider
