// The emulated rdma_cm device: open, write and close, and the wait for events.
#include "verbs_provider/cm/rdma_cm.h"

#include <netinet/in.h>
// <rdma/rdma_user_cm.h> comes after <netinet/in.h>, because it then uses the C library's address
// types.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
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
#include <type_traits>

#include "verbs_provider/abi/cm_commands.h"
#include "verbs_provider/abi/rdma_cm.h"
#include "verbs_provider/abi/stand_in.h"
#include "verbs_provider/base/allocate.h"
#include "verbs_provider/base/clock.h"
#include "verbs_provider/base/keep_errno.h"
#include "verbs_provider/base/linked_list.h"
#include "verbs_provider/base/no_cancellation.h"
#include "verbs_provider/base/process_lock.h"
#include "verbs_provider/base/provider_api.h"
#include "verbs_provider/cm/cm_answer_cache.h"
#include "verbs_provider/intercept/fd_registry.h"
#include "verbs_provider/intercept/intercept.h"
#include "verbs_provider/session/session_client.h"

namespace roci::provider {
namespace {

// One open descriptor of the device. As with the kernel's device, closing the descriptor does not
// end a call in another thread: the call holds a reference.
struct EventChannel {
  SessionClient client;
  CmAnswerCache answers;
  std::atomic<uint32_t> state{kSessionDead};
  std::atomic<uint32_t> bytes_taken{0};  // roci_abi_cm_response::bytes_withdrawn
  uint32_t number = 0;
  uint64_t serial = 0;     // unique in this process, from 1
  pid_t pid = 0;           // the process that opened it
  uint32_t ref_count = 1;  // under the ProcessLock
  EventChannel* next = nullptr;
};

// Serial of the channel whose last event told the calling thread of a connection's end. 0: none.
thread_local uint64_t t_disconnected_channel = 0;

// The open channels; under the ProcessLock.
EventChannel* g_channels = nullptr;

void AddChannel(EventChannel* channel) {
  static uint64_t last_serial = 0;
  const ProcessLock lock;
  channel->serial = ++last_serial;
  AddToList(g_channels, channel);
}

bool IsOpen(uint64_t serial) {
  const ProcessLock lock;
  const EventChannel* channel = g_channels;
  while (channel != nullptr && channel->serial != serial) channel = channel->next;
  return channel != nullptr;
}

// Takes a reference to the channel. Null if it has been closed.
EventChannel* Hold(void* owner) {
  const ProcessLock lock;
  for (EventChannel* channel = g_channels; channel != nullptr; channel = channel->next) {
    if (channel != owner) continue;
    ++channel->ref_count;
    return channel;
  }
  return nullptr;
}

// Drops a reference. `closed`: also removes the channel from the list of open ones.
void Release(EventChannel* channel, bool closed) {
  bool last = false;
  {
    const ProcessLock lock;
    if (closed) RemoveFromList(g_channels, channel);
    last = --channel->ref_count == 0;
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

uint64_t MonotonicNs() { return ClockNs(CLOCK_MONOTONIC_COARSE); }

bool IsLastOfConnection(const roci_abi_cm_response& response) {
  rdma_ucm_event_resp event;
  static_assert(sizeof(event) <= sizeof(response.data));
  memcpy(&event, response.data, sizeof(event));
  return event.event == ROCI_ABI_CM_EVENT_DISCONNECTED ||
         event.event == ROCI_ABI_CM_EVENT_TIMEWAIT_EXIT;
}

void Close(void* owner, int) {
  const KeepErrno keep_errno;
  auto* channel = static_cast<EventChannel*>(owner);
  if (t_disconnected_channel == channel->serial) t_disconnected_channel = 0;
  Release(channel, true);
}

// The address in the field `response` of a command's structure; 0: the command has no answer.
template <class In, class Answer>
uint64_t ResponseIn(const void* body) {
  if constexpr (std::is_void_v<Answer>) {
    return 0;
  } else {
    return static_cast<const In*>(body)->response;
  }
}

// The program's address for the answer to a command; 0: the command has no answer.
uint64_t AnswerAddress(uint32_t command, const void* body) {
  switch (command) {
#define ROCI_ROW(name, subject, type, answer, handler) \
  case RDMA_USER_CM_CMD_##name:                        \
    return ResponseIn<type, answer>(body);
    ROCI_CM_COMMANDS(ROCI_ROW)
#undef ROCI_ROW
    default:
      return 0;
  }
}

bool IsQuery(uint32_t command) {
  switch (command) {
#define ROCI_ROW(name, subject, type, answer, handler) \
  case RDMA_USER_CM_CMD_##name:                        \
    return ROCI_ABI_CM_##subject == ROCI_ABI_CM_QUERY_ID;
    ROCI_CM_COMMANDS(ROCI_ROW)  // NOLINT(bugprone-branch-clone,misc-redundant-expression)
#undef ROCI_ROW
    default:
      return false;
  }
}

// The channel that an identifier leaves (MIGRATE_ID).
struct LeftChannel {
  LeftChannel() = default;
  ~LeftChannel() {
    if (channel != nullptr) Release(channel, false);
  }
  LeftChannel(const LeftChannel&) = delete;
  LeftChannel& operator=(const LeftChannel&) = delete;
  EventChannel* channel = nullptr;  // a reference, or null
  int fd = -1;
};

// Replaces what only this process can resolve: copies an option's value into the request, and
// replaces a descriptor by its channel's number. 0 or EINVAL.
int ResolveReferences(roci_abi_cm_request* request, LeftChannel* left) {
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
    left->fd = static_cast<int>(migrate.fd);
    if (LookUpFd(left->fd, &from) != FdKind::kRdmaCm) return EINVAL;
    left->channel = Hold(from);
    if (left->channel == nullptr) return EINVAL;
    migrate.fd = left->channel->number;
    left->channel->answers.Remove(migrate.id);
    memcpy(request->data, &migrate, sizeof(migrate));
  }
  return 0;
}

// Another thread may have closed `fd`, whose number may be another file's by now.
bool IsDescriptorOf(const EventChannel* channel, int fd) {
  void* owner = nullptr;
  return LookUpFd(fd, &owner) == FdKind::kRdmaCm && owner == channel && IsSameFile(fd);
}

// Takes the bytes that the daemon has withdrawn, with which the descriptor would stay readable. A
// daemon that has sent an event since has also sent another byte.
void TakeBytes(EventChannel* channel, int fd, uint32_t withdrawn) {
  const NoCancellation no_cancellation;
  uint32_t taken = channel->bytes_taken.load(std::memory_order_relaxed);
  while (static_cast<int32_t>(withdrawn - taken) > 0) {
    if (!channel->bytes_taken.compare_exchange_weak(taken, taken + 1)) continue;
    char byte;
    if (!IsDescriptorOf(channel, fd) || recv(fd, &byte, sizeof(byte), MSG_DONTWAIT) <= 0) return;
    ++taken;
  }
}

// A read from a closed descriptor of the kernel's device blocks for ever, until the program ends
// the thread or exits. Unlike there, every signal ends this wait, whatever SA_RESTART says.
int WaitForNothing() {
  pause();
  return EINTR;
}

// Waits until an event is pending, or returns EAGAIN if `flags` has O_NONBLOCK. Another thread may
// take the event first. As with the kernel's device, neither a signal whose handler was installed
// with SA_RESTART nor closing the descriptor in another thread ends the wait.
int WaitForEvent(const EventChannel* channel, int fd, int flags) {
  if (IsDescriptorOf(channel, fd)) {
    char byte;
    const ssize_t n = recv(fd, &byte, sizeof(byte), MSG_PEEK);
    if (n >= 0) return n == 0 ? EIO : 0;
    if (errno != EBADF) return errno;
  }
  return (flags & O_NONBLOCK) != 0 ? EAGAIN : WaitForNothing();
}

// Whether `command` destroys an object of a daemon that has exited. Such commands succeed, because
// librdmacm leaks what it cannot destroy.
bool IsDestroyedWithDaemon(uint32_t command, const SessionClient& client) {
  return (command == RDMA_USER_CM_CMD_DESTROY_ID || command == RDMA_USER_CM_CMD_LEAVE_MCAST) &&
         !client.alive();
}

// Answers the command from the cache. False if the answer is not cached.
bool AnswerFromCache(EventChannel* channel, const rdma_ucm_cmd_hdr& header, const void* body) {
  if (!IsQuery(header.cmd) || header.in != sizeof(rdma_ucm_query)) return false;
  static_assert(sizeof(rdma_ucm_query) == sizeof(rdma_ucm_init_qp_attr));
  const auto* query = static_cast<const rdma_ucm_query*>(body);
  return query->response != 0 && channel->client.alive() &&
         channel->answers.Find(header.cmd, query->id, query->option, MonotonicNs(),
                               reinterpret_cast<void*>(query->response), header.out);
}

void UpdateCache(EventChannel* channel, const roci_abi_cm_response& response, uint32_t serial,
                 int error) {
  if (response.changed_id != 0) channel->answers.Invalidate(response.changed_id, serial);
  if (error == 0) channel->answers.Insert(response, serial, MonotonicNs());
}

ssize_t WriteTo(EventChannel* channel, int fd, const void* data, size_t size) {
  rdma_ucm_cmd_hdr header;
  if (size < sizeof(header)) return -EINVAL;
  memcpy(&header, data, sizeof(header));
  roci_abi_cm_request request = {};
  if (header.in + sizeof(header) > size || header.in > sizeof(request.data)) return -EINVAL;
  // A forked child shares its parent's connection; their messages would mix.
  if (channel->pid != getpid()) return -EIO;
  request.command = header.cmd;
  request.in_size = header.in;
  request.out_size = header.out;
  alignas(8) unsigned char body[ROCI_ABI_CM_DATA_MAX] = {};
  memcpy(body, static_cast<const char*>(data) + sizeof(header), header.in);
  if (AnswerFromCache(channel, header, body)) return static_cast<ssize_t>(size);
  memcpy(request.data, body, header.in);
  LeftChannel left;
  int error = ResolveReferences(&request, &left);
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
    TakeBytes(channel, fd, response.bytes_withdrawn);
  } while (error == EAGAIN && is_get_event);
  if (left.channel != nullptr) TakeBytes(left.channel, left.fd, response.bytes_withdrawn_from);
  if (is_get_event) {
    const bool waits_next = (flags & O_NONBLOCK) == 0;
    const bool is_end = error == 0 && IsLastOfConnection(response);
    t_disconnected_channel = is_end && waits_next ? channel->serial : 0;
  }
  UpdateCache(channel, response, request.head.serial, error);
  if (IsDestroyedWithDaemon(header.cmd, channel->client)) {
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

// As WriteTo. Releases the channel, also if the thread is cancelled while it waits for an event.
// (Not inlined: the cleanup handler uses setjmp.)
[[gnu::noinline]] ssize_t WriteAndRelease(EventChannel* channel, int fd, const void* data,
                                          size_t size) {
  ssize_t result = 0;
  pthread_cleanup_push([](void* held) { Release(static_cast<EventChannel*>(held), false); },
                       channel);
  result = WriteTo(channel, fd, data, size);
  pthread_cleanup_pop(1);
  return result;
}

ssize_t Write(void* owner, int fd, const void* data, size_t size) {
  const KeepErrno keep_errno;
  EventChannel* channel = Hold(owner);
  if (channel == nullptr) return -EBADF;
  return WriteAndRelease(channel, fd, data, size);
}

// Answers a GET_EVENT that lost a race with close. In programs such as rping, one thread
// acknowledges the last event of a connection and then asks for the next one, while another thread
// closes the descriptor. If GET_EVENT comes first, it blocks for ever (see WaitForNothing). If it
// comes after the close, it would fail with EBADF and end the program: rare with the kernel's
// device, common where the daemon keeps the processors busy. So it blocks in this case, too. The
// descriptor can be any number, because librdmacm has freed the channel. Returns 0 if `data` is
// another command.
ssize_t WriteElsewhere(const void* data, size_t size) {
  const KeepErrno keep_errno;
  rdma_ucm_cmd_hdr header;
  if (t_disconnected_channel == 0 || size != sizeof(header) + sizeof(rdma_ucm_get_event)) return 0;
  memcpy(&header, data, sizeof(header));
  if (header.cmd != RDMA_USER_CM_CMD_GET_EVENT || header.in != sizeof(rdma_ucm_get_event) ||
      IsOpen(t_disconnected_channel)) {
    return 0;
  }
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
