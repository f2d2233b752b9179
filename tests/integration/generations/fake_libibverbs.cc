// A stand-in for libibverbs of the release ROCI_RELEASE, with the private ABI ROCI_PRIVATE_ABI: it
// notes what a plugin does, and lets the test call the plugin through the operation table. Its
// layouts are those of history.h, not of the plugins' declarations.
#include "tests/integration/generations/fake_libibverbs.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/unit/verbs_provider/generations/history.h"

#define ROCI_JOIN_EXPANDED(a, b) a##b
#define ROCI_JOIN(a, b) ROCI_JOIN_EXPANDED(a, b)

namespace {

size_t ContextOffset() {
  size_t bytes = 0;
  for (const auto& release : roci::provider::history::kReleases) {
    if (release.first <= ROCI_RELEASE) bytes = release.verbs_context_bytes_on_x86;
  }
  return bytes - sizeof(ibv_context);
}

ibv_context* ContextIn(void* verbs_context) {
  return reinterpret_cast<ibv_context*>(static_cast<char*>(verbs_context) +
                                        fake_libibverbs.context_offset);
}

}  // namespace

extern "C" {

FakeLibibverbs fake_libibverbs = {nullptr, 0, ContextOffset(), nullptr, nullptr, nullptr, nullptr};

void ROCI_JOIN(verbs_register_driver_, ROCI_PRIVATE_ABI)(const void* driver) {
  fake_libibverbs.driver = driver;
  ++fake_libibverbs.registrations;
}

void* _verbs_init_and_alloc_context(ibv_device* device, int cmd_fd, size_t size, void* offset,
                                    uint32_t) {
  auto* memory = static_cast<char*>(std::calloc(1, size));
  void* const inner = memory + reinterpret_cast<uintptr_t>(offset);
  ContextIn(inner)->device = device;
  ContextIn(inner)->cmd_fd = cmd_fd;
  ContextIn(inner)->async_fd = -1;
  fake_libibverbs.allocated = memory;
  return memory;
}

void verbs_set_ops(void* context, void* const* operations) {
  fake_libibverbs.operations_of = context;
  fake_libibverbs.operations = operations;
}

void verbs_uninit_context(void* context) {
  fake_libibverbs.uninitialised = context;
  close(ContextIn(context)->cmd_fd);
  if (ContextIn(context)->async_fd >= 0) close(ContextIn(context)->async_fd);
}

const char* ibv_get_sysfs_path() { return "/sys"; }

// The calls that the plugin intercepts in libibverbs.
ssize_t fake_read(int fd, void* data, size_t size) { return read(fd, data, size); }
ssize_t fake_write(int fd, const void* data, size_t size) { return write(fd, data, size); }
int fake_ioctl(int fd, unsigned long request, void* data) { return ioctl(fd, request, data); }

// What libibverbs calls first to find devices. (A program that uses it has loaded libnl.)
struct nl_sock;
__attribute__((weak)) nl_sock* nl_socket_alloc();
void fake_look_for_devices() {
  if (&nl_socket_alloc != nullptr) nl_socket_alloc();
}

// Has the newest public symbol version.
void newest_call() {}
}
