// The list of completion channels of this process.
#include "verbs_provider/session/channel.h"

#include <unistd.h>

#include <cerrno>

#include "verbs_provider/base/allocate.h"
#include "verbs_provider/base/linked_list.h"
#include "verbs_provider/base/process_lock.h"
#include "verbs_provider/intercept/intercept.h"
#include "verbs_provider/session/session.h"

namespace roci::provider {
namespace {

struct CompletionChannel {
  VerbsSession* session;
  uint32_t handle;
  int fd;
  CompletionChannel* next;
};

CompletionChannel* channels = nullptr;

void AddChannel(CompletionChannel* channel) {
  const ProcessLock lock;
  AddToList(channels, channel);
}

// Removes the first channel for which matches(channel) is true. Null: there is none.
template <class Matches>
CompletionChannel* TakeChannel(Matches matches) {
  const ProcessLock lock;
  return RemoveFirst(channels, matches);
}

}  // namespace

int CreateChannel(VerbsSession* session) {
  auto* channel = Allocate<CompletionChannel>();
  if (channel == nullptr) return -ENOMEM;
  roci_abi_plain_request request = {};
  roci_abi_handle_response response = {};
  ReceivedFds fds;
  int error =
      session->client.Call(ROCI_ABI_CREATE_COMP_CHANNEL, &request, &response, nullptr, &fds);
  channel->session = session;
  channel->handle = response.handle;
  channel->fd = fds.at(0);
  const bool created = error == 0 || (error == EMFILE && response.head.error == 0);
  if (error == 0 && !RegisterFd(channel->fd, FdKind::kCompletionChannel, channel)) error = ENOMEM;
  if (error != 0) {
    if (created) {
      CallWithHandle(session->client, ROCI_ABI_DESTROY_COMP_CHANNEL, response.handle);
    }
    Free(channel);
    return -error;
  }
  AddChannel(channel);
  return fds.Take(0);
}

void DestroyChannel(void* owner) {
  CompletionChannel* channel =
      TakeChannel([owner](const CompletionChannel* c) { return c == owner; });
  if (channel == nullptr) return;
  CallWithHandle(channel->session->client, ROCI_ABI_DESTROY_COMP_CHANNEL, channel->handle);
  Free(channel);
}

bool FindChannel(VerbsSession* session, int fd, uint32_t* handle) {
  void* owner = nullptr;
  if (LookUpFd(fd, &owner) != FdKind::kCompletionChannel) return false;
  const auto* channel = static_cast<const CompletionChannel*>(owner);
  *handle = channel->handle;
  return channel->session == session;
}

void DropChannels(VerbsSession* session) {
  while (CompletionChannel* channel =
             TakeChannel([=](const CompletionChannel* c) { return c->session == session; })) {
    void* owner = nullptr;
    if (LookUpFd(channel->fd, &owner) == FdKind::kCompletionChannel && owner == channel) {
      ForgetFd(channel->fd);
    }
    Free(channel);
  }
}

}  // namespace roci::provider
