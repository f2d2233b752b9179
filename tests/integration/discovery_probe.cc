// An ordinary libibverbs program for calls that libibverbs answers without the provider: tables in
// sysfs, completion channels, asynchronous events. Exit status 0 if all checks pass; else a line
// per failed check.
//
// Usage: discovery_probe tables    check that sysfs agrees with libibverbs
//        discovery_probe reopen    check that opening and closing leaves nothing behind
//        discovery_probe loss      print "ready", then expect the daemon to die
#include <dirent.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace {

int failures = 0;

void Expect(bool true_statement, const std::string& what) {
  if (true_statement) return;
  std::printf("not so: %s (errno %d, %s)\n", what.c_str(), errno, std::strerror(errno));
  ++failures;
}

std::string Sysfs(const ibv_context* context, const std::string& path) {
  std::ifstream file(std::string(context->device->ibdev_path) + "/" + path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string Text(const ibv_gid& gid) {
  std::string text;
  char word[8];
  for (size_t i = 0; i < sizeof(gid.raw); i += 2) {
    std::snprintf(word, sizeof(word), "%s%02x%02x", i == 0 ? "" : ":", gid.raw[i], gid.raw[i + 1]);
    text += word;
  }
  return text;
}

void CheckTables(ibv_context* context) {
  ibv_port_attr port = {};
  Expect(ibv_query_port(context, 1, &port) == 0, "ibv_query_port succeeds");
  Expect(port.gid_tbl_len > 0, "there is a GID");
  Expect(Sysfs(context, "ports/1/state").substr(0, 1) == std::to_string(port.state),
         "sysfs and the port agree on its state");
  for (uint32_t i = 0; i < static_cast<uint32_t>(port.gid_tbl_len); ++i) {
    const std::string index = std::to_string(i);
    ibv_gid gid = {};
    Expect(ibv_query_gid(context, 1, static_cast<int>(i), &gid) == 0, "GID " + index + " is there");
    Expect(Text(gid) == Sysfs(context, "ports/1/gids/" + index), "GID " + index + " agrees");
    ibv_gid_entry entry = {};
    Expect(ibv_query_gid_ex(context, 1, i, &entry, 0) == 0, "GID entry " + index + " is there");
    Expect(entry.gid_type == IBV_GID_TYPE_ROCE_V2, "GID " + index + " is of RoCE v2");
  }
  ibv_gid beyond = {};
  Expect(ibv_query_gid(context, 1, port.gid_tbl_len, &beyond) != 0, "no GID after the last");
  ibv_gid_entry entries[64];
  Expect(ibv_query_gid_table(context, entries, 64, 0) == port.gid_tbl_len,
         "the GID table has as many entries as the port says");
  for (int i = 0; i < port.pkey_tbl_len; ++i) {
    __be16 pkey = 0;
    Expect(ibv_query_pkey(context, 1, i, &pkey) == 0, "the P_Key is there");
    Expect(ibv_get_pkey_index(context, 1, pkey) == i, "the P_Key is found by its value");
  }
  ibv_device_attr attributes = {};
  Expect(ibv_query_device(context, &attributes) == 0, "ibv_query_device succeeds");
  Expect(attributes.node_guid == ibv_get_device_guid(context->device),
         "sysfs and the device agree on the node GUID");
  Expect(Sysfs(context, "fw_ver") == attributes.fw_ver, "and on the firmware's version");
}

size_t CountDescriptors() {
  size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

void CheckReopen(ibv_device* device) {
  ibv_close_device(ibv_open_device(device));
  const size_t before = CountDescriptors();
  for (int round = 0; round < 50; ++round) {
    ibv_context* context = ibv_open_device(device);
    Expect(context != nullptr, "the device opens");
    if (context == nullptr) return;
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    Expect(channel != nullptr, "a completion channel is made");
    if (channel != nullptr) {
      Expect(ibv_destroy_comp_channel(channel) == 0, "and destroyed");
    }
    Expect(ibv_close_device(context) == 0, "the device closes");
  }
  Expect(CountDescriptors() == before, "no descriptor is left open");
}

// For select() and epoll users: a pipe without a writer reports POLLHUP only.
bool IsReadable(int fd, int timeout_ms) {
  pollfd waited = {fd, POLLIN, 0};
  return poll(&waited, 1, timeout_ms) == 1 && (waited.revents & (POLLIN | POLLHUP)) != 0;
}

void CheckLoss(ibv_context* context) {
  ibv_comp_channel* channel = ibv_create_comp_channel(context);
  Expect(channel != nullptr, "a completion channel is made");
  if (channel == nullptr) return;
  Expect(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0, "events can be polled for");
  Expect(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0, "so can completions");
  ibv_async_event event = {};
  Expect(ibv_get_async_event(context, &event) != 0 && errno == EAGAIN, "no event yet");
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  Expect(ibv_get_cq_event(channel, &cq, &cq_context) != 0 && errno == EAGAIN, "no completion yet");
  std::puts("ready");
  std::fflush(stdout);

  constexpr int kLossMs = 10'000;
  Expect(IsReadable(context->async_fd, kLossMs), "the loss makes the event descriptor readable");
  Expect(ibv_get_async_event(context, &event) == 0, "there is an event");
  Expect(event.event_type == IBV_EVENT_DEVICE_FATAL, "it says that the device is lost");
  ibv_ack_async_event(&event);
  Expect(!IsReadable(context->async_fd, 50), "then the event descriptor is quiet");
  errno = 0;
  Expect(ibv_get_async_event(context, &event) != 0 && errno == EAGAIN, "and has no more events");
  errno = 0;
  Expect(ibv_get_cq_event(channel, &cq, &cq_context) != 0 && errno == EIO,
         "completion channels fail with an I/O error");
  Expect(ibv_create_comp_channel(context) == nullptr, "no new completion channel is made");
  Expect(ibv_destroy_comp_channel(channel) == 0, "the old one is destroyed");
}

void WithDevice(ibv_device* device, void (*check)(ibv_context*)) {
  ibv_context* context = ibv_open_device(device);
  Expect(context != nullptr, "the device opens");
  if (context == nullptr) return;
  check(context);
  Expect(ibv_close_device(context) == 0, "the device closes");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  ibv_device** devices = ibv_get_device_list(nullptr);
  if (devices == nullptr || devices[0] == nullptr) {
    std::puts("no device");
    return 1;
  }
  for (ibv_device** device = devices; *device != nullptr && what == "tables"; ++device) {
    WithDevice(*device, CheckTables);
  }
  if (what == "reopen") CheckReopen(devices[0]);
  if (what == "loss") WithDevice(devices[0], CheckLoss);
  ibv_free_device_list(devices);
  return failures == 0 ? 0 : 1;
}
