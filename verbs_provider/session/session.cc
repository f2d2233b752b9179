// Opens and closes sessions, and handles fork.
#include "verbs_provider/session/session.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "verbs_provider/base/allocate.h"
#include "verbs_provider/base/keep_errno.h"
#include "verbs_provider/base/linked_list.h"
#include "verbs_provider/base/process_lock.h"
#include "verbs_provider/memory/app_memory.h"
#include "verbs_provider/memory/maps_reader.h"
#include "verbs_provider/rings/give_way.h"
#include "verbs_provider/session/channel.h"

namespace roci::provider {
namespace {

constexpr uint64_t kFeatures = ROCI_ABI_FEATURE_IP_CHECKSUM | ROCI_ABI_FEATURE_PATH_WAITS;

// Every session of this process; under the ProcessLock.
VerbsSession* sessions = nullptr;

void AddSession(VerbsSession* session) {
  const ProcessLock lock;
  AddToList(sessions, session);
}

void RemoveSession(VerbsSession* session) {
  const ProcessLock lock;
  RemoveFromList(sessions, session);
}

// ConvertHook: tells each session's daemon that [va, va + length) is about to become private again.
bool UnshareInAllSessions(void*, uint64_t va, uint64_t length) {
  bool told = true;
  const ProcessLock lock;
  for (VerbsSession* session = sessions; session != nullptr; session = session->next) {
    if (!session->alive()) continue;
    roci_abi_unshare_range_request request = {};
    roci_abi_plain_response response = {};
    request.start = va;
    request.length = length;
    if (session->client.Call(ROCI_ABI_UNSHARE_RANGE, &request, &response) == 0) continue;
    // The daemon's later writes to the range would be lost silently. Ending the session reports it.
    session->client.MarkDead();
    told = false;
  }
  return told;
}

// The fork handler of the child. Closes the parent's sockets: otherwise the daemon would not see
// the parent's exit. The child keeps the memory of the parent's objects.
void AfterForkInChild() {
  ForgetOtherThreads();
  for (VerbsSession* session = sessions; session != nullptr; session = session->next) {
    if (session->inherited()) session->client.DropInChild();
  }
  ProcessLock::AfterFork();
}

int InstallHooksOnce() {
  // Before InitConvert: prepare handlers run in reverse order of registration, and conversion's
  // takes the ProcessLock through the hook.
  int error = pthread_atfork(ProcessLock::BeforeFork, ProcessLock::AfterFork, AfterForkInChild);
  if (error == 0) error = InitConvert({UnshareInAllSessions, nullptr});
  return error;
}

ConvertPolicy PolicyOf(uint32_t memory_policy) {
  switch (memory_policy) {
    case ROCI_ABI_MEMORY_PROCESS_VM:
      return ConvertPolicy::kProcessVm;
    case ROCI_ABI_MEMORY_MAP:
      return ConvertPolicy::kConvert;
    default:
      return ConvertPolicy::kMapFiles;
  }
}

int MakeStatePage(VerbsSession* session) {
  const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return errno;
  if (madvise(page, size, MADV_WIPEONFORK) != 0) {
    const int error = errno;
    munmap(page, size);
    return error;
  }
  session->state = new (page) std::atomic<uint32_t>(kSessionDead);
  return 0;
}

int AllocateTables(VerbsSession* session) {
  // calloc: pages without a handle in use take no memory.
  session->qps =
      static_cast<std::atomic<Qp*>*>(calloc(ROCI_ABI_MAX_QP_HANDLES, sizeof(*session->qps)));
  session->srqs =
      static_cast<std::atomic<Srq*>*>(calloc(ROCI_ABI_MAX_SRQ_HANDLES, sizeof(*session->srqs)));
  if (session->qps == nullptr || session->srqs == nullptr) return ENOMEM;
  return MakeStatePage(session);
}

// Checks the response to HELLO or ATTACH and sets up the session. 0 or an errno.
int ApplyHello(VerbsSession* session, const roci_abi_hello_response& response, ReceivedFds* fds) {
  const bool has_uffd = (response.flags & ROCI_ABI_HELLO_HAS_USERFAULTFD) != 0;
  if (response.magic != ROCI_ABI_MAGIC || response.major != ROCI_ABI_MAJOR ||
      fds->count() != (has_uffd ? 4u : 3u) || response.doorbell_size < sizeof(roci_abi_doorbells)) {
    return EPROTO;
  }
  const int map_error = session->doorbell_memory.Map(fds->at(0), response.doorbell_size);
  if (map_error != 0) return map_error;
  session->wake_file.Hold(fds->Take(1));
  session->async_file.Hold(fds->Take(2));
  if (has_uffd) SetUserfaultfdDevice(fds->Take(3));
  session->bells =
      Doorbells(session->doorbell_memory.At<roci_abi_doorbells>(0), &session->wake_file);
  session->number = response.session;
  session->auto_inline = response.auto_inline;
  session->counts_polls = (response.features & ROCI_ABI_FEATURE_POLL_COUNT) != 0;
  session->may_restart = (response.features & ROCI_ABI_FEATURE_RESTART) != 0;
  session->repeats_selectively = (response.features & ROCI_ABI_FEATURE_SELECTIVE_REPEAT) != 0;
  session->has_lenient_posts = (response.flags & ROCI_ABI_HELLO_LENIENT_POSTS) != 0;
  session->fills_checksums = (response.features & ROCI_ABI_FEATURE_IP_CHECKSUM) != 0;
  session->num_comp_vectors = response.num_comp_vectors;
  session->memory_policy = PolicyOf(response.memory_policy);
  return 0;
}

// The descriptor by which the daemon reaches this program's memory: /proc/self/mem, or, if the
// program may not open that, a memory proof (abi/session_device.h).
class MemoryDescriptor {
 public:
  MemoryDescriptor() : fd_(OpenOwnMemory()) {
    if (fd_ < 0 && (errno == EACCES || errno == EPERM)) MakeProof();
  }
  ~MemoryDescriptor() {
    if (proof_ != MAP_FAILED) munmap(proof_, sizeof(roci_abi_memory_proof));
    if (fd_ >= 0) close(fd_);
  }
  MemoryDescriptor(const MemoryDescriptor&) = delete;
  MemoryDescriptor& operator=(const MemoryDescriptor&) = delete;

  // Sends HELLO or ATTACH with `fds` and the memory descriptor. If the daemon does not support the
  // descriptor (EINVAL), sends the request again without it; that daemon then opens the memory
  // itself.
  template <class Request, class Response>
  int CallWith(SessionClient& client, uint32_t command, Request* request, Response* response,
               FdsToSend fds, ReceivedFds* received) const {
    request->features = kFeatures;
    if (fd_ >= 0) {
      FdsToSend with_memory = fds;
      with_memory.fds[with_memory.count++] = fd_;
      request->features |= feature_;
      const int error = client.Call(command, request, response, &with_memory, received);
      if (error != EINVAL) return error;
      request->features = kFeatures;
    }
    return client.Call(command, request, response, &fds, received);
  }

 private:
  void MakeProof() {
    constexpr size_t kSize = sizeof(roci_abi_memory_proof);
    const int fd = memfd_create("roci", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return;
    fd_ = fd;
    feature_ = ROCI_ABI_FEATURE_MEMORY_PROOF;
    if (ftruncate(fd, kSize) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
      return;  // the daemon refuses the unsealed file
    }
    proof_ = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (proof_ == MAP_FAILED) return;
    *static_cast<roci_abi_memory_proof*>(proof_) = {reinterpret_cast<uintptr_t>(proof_), 0};
  }

  int fd_;
  uint64_t feature_ = ROCI_ABI_FEATURE_APP_MEMORY;
  void* proof_ = MAP_FAILED;
};

// Sends HELLO. 0 or an errno. `daemon_major`: as for VerbsSession::Open.
int SayHello(VerbsSession* session, const char* device, uint16_t* daemon_major) {
  roci_abi_hello_request request = {};
  roci_abi_hello_response response = {};
  request.magic = ROCI_ABI_MAGIC;
  request.major = ROCI_ABI_MAJOR;
  request.minor = ROCI_ABI_MINOR;
  if (strlen(device) >= sizeof(request.device)) return ENODEV;
  strcpy(request.device, device);
  ReceivedFds fds;
  const int error =
      MemoryDescriptor().CallWith(session->client, ROCI_ABI_HELLO, &request, &response, {}, &fds);
  if (response.magic == ROCI_ABI_MAGIC && response.major != ROCI_ABI_MAJOR) {
    *daemon_major = response.major;
  }
  return error != 0 ? error : ApplyHello(session, response, &fds);
}

// Sends ATTACH, for a session that shares a context. 0 or an errno.
int SayAttach(VerbsSession* session, int cmd_fd, char* device) {
  roci_abi_attach_request request = {};
  roci_abi_attach_response response = {};
  request.magic = ROCI_ABI_MAGIC;
  request.major = ROCI_ABI_MAJOR;
  request.minor = ROCI_ABI_MINOR;
  FdsToSend send;
  send.count = 1;
  send.fds[0] = cmd_fd;
  ReceivedFds fds;
  const int error = MemoryDescriptor().CallWith(session->client, ROCI_ABI_ATTACH, &request,
                                                &response, send, &fds);
  if (error != 0) return error;
  if (memchr(response.device, 0, sizeof(response.device)) == nullptr) return EPROTO;
  memcpy(device, response.device, sizeof(response.device));
  return ApplyHello(session, response.hello, &fds);
}

// Frees a session that is not on the list. A forked child does not have the shared mappings; its
// descriptors are its own copies.
void Dispose(VerbsSession* session) {
  if (session->state != nullptr && !session->inherited()) session->doorbell_memory.Unmap();
  session->wake_file.Close();
  session->async_file.Close();
  if (session->state != nullptr) {
    munmap(session->state, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  }
  free(session->qps);
  free(session->srqs);
  Free(session);
}

}  // namespace

int VerbsSession::InstallHooks() {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static bool installed = false;
  pthread_mutex_lock(&mutex);
  const int error = installed ? 0 : InstallHooksOnce();
  installed = error == 0;
  pthread_mutex_unlock(&mutex);
  return error;
}

namespace {

// Opens a session. `handshake(session)` sends the first request: 0 or an errno.
template <class Handshake>
int Begin(const char* socket_path, int socket_file, Handshake handshake, VerbsSession** opened) {
  auto* session = Allocate<VerbsSession>();
  if (session == nullptr) return ENOMEM;
  int error = AllocateTables(session);
  if (error == 0) error = session->client.Connect(socket_path, session->state, socket_file);
  if (error == 0) {
    AllowAccessBy(session->client.peer_pid());
    error = handshake(session);
  }
  if (error != 0) {
    Dispose(session);
    return error;
  }
  {
    const RegistrationLock lock;
    MapsReader::HoldFile();
  }
  AddSession(session);
  *opened = session;
  return 0;
}

}  // namespace

int VerbsSession::Open(const char* socket_path, int socket_file, const char* device,
                       VerbsSession** opened, uint16_t* daemon_major) {
  return Begin(
      socket_path, socket_file,
      [=](VerbsSession* session) { return SayHello(session, device, daemon_major); }, opened);
}

int VerbsSession::Attach(const char* socket_path, int socket_file, int cmd_fd, char* device,
                         VerbsSession** opened) {
  return Begin(
      socket_path, socket_file,
      [=](VerbsSession* session) { return SayAttach(session, cmd_fd, device); }, opened);
}

void VerbsSession::NameContext(int cmd_fd) {
  const KeepErrno keep_errno;
  roci_abi_name_context_request request = {};
  roci_abi_plain_response response = {};
  request.fd = cmd_fd;
  client.Call(ROCI_ABI_NAME_CONTEXT, &request, &response);
}

void VerbsSession::Close(VerbsSession* session) {
  if (--session->ref_count != 0) return;
  RemoveSession(session);
  DropChannels(session);
  Dispose(session);
}

}  // namespace roci::provider
