#include "tests/interop/verbs_pair.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

namespace interop {
namespace {

constexpr int kCounterLimit_ms = 120000;
constexpr int kCounterPause_ms = 10;
constexpr unsigned kRemoteAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

ibv_mtu MtuOf(int bytes) {
  switch (bytes) {
    case 256:
      return IBV_MTU_256;
    case 512:
      return IBV_MTU_512;
    case 1024:
      return IBV_MTU_1024;
    case 2048:
      return IBV_MTU_2048;
    case 4096:
      return IBV_MTU_4096;
    default:
      Fail("no path MTU has " + std::to_string(bytes) + " bytes");
  }
}

ibv_context* OpenDevice(const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  CheckCall(list != nullptr, "ibv_get_device_list");
  ibv_context* context = nullptr;
  for (int i = 0; i < count && context == nullptr; ++i) {
    if (name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  return context;
}

int Listen(const addrinfo& place) {
  const int listener = socket(place.ai_family, place.ai_socktype, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  CheckCall(bind(listener, place.ai_addr, place.ai_addrlen) == 0 && listen(listener, 1) == 0,
            "listen");
  const int accepted = accept(listener, nullptr, nullptr);
  close(listener);
  return accepted;
}

int Connect(const addrinfo& place) {
  const int connected = socket(place.ai_family, place.ai_socktype, 0);
  CheckCall(connect(connected, place.ai_addr, place.ai_addrlen) == 0, "connect");
  return connected;
}

}  // namespace

void Fail(const std::string& what) {
  std::printf("failed: %s\n", what.c_str());
  std::exit(1);
}

void Check(bool good, const std::string& what) {
  if (!good) Fail(what);
}

void CheckCall(bool good, const std::string& call) {
  if (!good) Fail(call + ": " + std::strerror(errno));
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  int letter;
  while ((letter = getopt(argc, argv, "d:g:p:m:u:w:")) != -1) {
    if (letter == 'd') options.device = optarg;
    if (letter == 'g') options.gid_index = std::atoi(optarg);
    if (letter == 'p') options.port = optarg;
    if (letter == 'm') options.mtu_bytes = std::atoi(optarg);
    if (letter == 'u') options.timeout = static_cast<uint8_t>(std::atoi(optarg));
    if (letter == 'w') options.what = optarg;
    if (letter == '?') std::exit(2);
  }
  if (options.device.empty() || options.port.empty() || argc - optind > 1) {
    std::fprintf(stderr, "usage: %s -d DEVICE -g GID_INDEX -p PORT -m MTU [...] [SERVER]\n", *argv);
    std::exit(2);
  }
  if (optind < argc) options.server = argv[optind];
  return options;
}

Meeting::Meeting(const Options& options) {
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  const char* host = options.IsServer() ? nullptr : options.server.c_str();
  addrinfo* place = nullptr;
  Check(getaddrinfo(host, options.port.c_str(), &hints, &place) == 0, "getaddrinfo");
  socket_ = options.IsServer() ? Listen(*place) : Connect(*place);
  freeaddrinfo(place);
  Check(socket_ >= 0, "meeting the other end");
}

Meeting::~Meeting() { close(socket_); }

void Meeting::Signal() { Send("", 1); }

void Meeting::Await() {
  char byte;
  Receive(&byte, 1);
}

void Meeting::Send(const void* bytes, size_t length) {
  Check(send(socket_, bytes, length, MSG_NOSIGNAL) == static_cast<ssize_t>(length),
        "telling the other end");
}

void Meeting::Receive(void* bytes, size_t length) {
  Check(recv(socket_, bytes, length, MSG_WAITALL) == static_cast<ssize_t>(length),
        "the other end is gone");
}

OpenedDevice::OpenedDevice(const Options& options, size_t memory_size)
    : context(OpenDevice(options.device)), memory_(memory_size) {
  Check(context != nullptr, "no device " + options.device);
  CheckCall(ibv_query_gid(context, 1, options.gid_index, &gid) == 0, "ibv_query_gid");
  pd = ibv_alloc_pd(context);
  CheckCall(pd != nullptr, "ibv_alloc_pd");
  region = ibv_reg_mr(pd, memory_.data(), memory_.size(), kRemoteAccess);
  CheckCall(region != nullptr, "ibv_reg_mr");
}

OpenedDevice::~OpenedDevice() {
  ibv_dereg_mr(region);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
}

uint64_t OpenedDevice::Counter(const std::string& name) const {
  std::ifstream file(std::string("/sys/class/infiniband/") + ibv_get_device_name(context->device) +
                     "/ports/1/hw_counters/" + name);
  uint64_t value = 0;
  Check(static_cast<bool>(file >> value), "the counter " + name);
  return value;
}

bool OpenedDevice::AwaitCounter(const std::string& name, uint64_t value) const {
  for (int waited_ms = 0; Counter(name) < value; waited_ms += kCounterPause_ms) {
    if (waited_ms > kCounterLimit_ms) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(kCounterPause_ms));
  }
  return true;
}

Connection::Connection(const Options& options, const QpOptions& qp_options, OpenedDevice& device,
                       Meeting& meeting)
    : device_(device) {
  channel_ = ibv_create_comp_channel(device.context);
  CheckCall(channel_ != nullptr, "ibv_create_comp_channel");
  cq_ = ibv_create_cq(device.context, 2 * kQueueDepth, nullptr, channel_, 0);
  CheckCall(cq_ != nullptr, "ibv_create_cq");
  ibv_qp_init_attr attributes = {};
  attributes.send_cq = attributes.recv_cq = cq_;
  attributes.cap = {kQueueDepth, kQueueDepth, 1, 1, kMaxInline};
  attributes.qp_type = IBV_QPT_RC;
  qp = ibv_create_qp(device.pd, &attributes);
  CheckCall(qp != nullptr, "ibv_create_qp");
  const uint32_t psn = (qp->qp_num * 2654435761u) & 0xFFFFFF;
  const Place other = meeting.Exchange(
      Place{device.gid, qp->qp_num, psn, device.AddressOf(0), device.region->rkey});
  remote_address_ = other.address;
  remote_rkey_ = other.rkey;
  ToInit();
  ToRtr(options, other);
  ToRts(qp_options, psn);
  meeting.Exchange('r');  // both are ready to receive
}

Connection::~Connection() {
  ibv_destroy_qp(qp);
  ibv_destroy_cq(cq_);
  ibv_destroy_comp_channel(channel_);
}

void Connection::ToInit() {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = kRemoteAccess;
  CheckCall(
      ibv_modify_qp(qp, &attributes,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
      "INIT");
}

void Connection::ToRtr(const Options& options, const Place& other) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = MtuOf(options.mtu_bytes);
  attributes.dest_qp_num = other.qpn;
  attributes.rq_psn = other.psn;
  attributes.max_dest_rd_atomic = kMaxReads;
  attributes.min_rnr_timer = 12;  // 0.64 ms
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.grh.dgid = other.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(options.gid_index);
  attributes.ah_attr.grh.hop_limit = 64;
  attributes.ah_attr.port_num = 1;
  CheckCall(
      ibv_modify_qp(qp, &attributes,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
      "RTR");
}

void Connection::ToRts(const QpOptions& qp_options, uint32_t psn) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = qp_options.timeout;
  attributes.retry_cnt = qp_options.retry_count;
  attributes.rnr_retry = qp_options.rnr_retry;
  attributes.sq_psn = psn;
  attributes.max_rd_atomic = kMaxReads;
  CheckCall(ibv_modify_qp(qp, &attributes,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
            "RTS");
}

void Connection::Post(ibv_wr_opcode opcode, size_t offset, uint32_t length, size_t remote_offset) {
  ibv_sge sge = {device_.AddressOf(offset), length, device_.region->lkey};
  ibv_send_wr request = {};
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = opcode;
  request.wr.rdma.remote_addr = RemoteAddressOf(remote_offset);
  request.wr.rdma.rkey = remote_rkey_;
  Post(request);
}

void Connection::Post(ibv_send_wr& request) {
  request.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  CheckCall(ibv_post_send(qp, &request, &bad) == 0, "ibv_post_send");
}

void Connection::PostReceive(size_t offset, uint32_t length) {
  ibv_sge sge = {device_.AddressOf(offset), length, device_.region->lkey};
  ibv_recv_wr request = {};
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  CheckCall(ibv_post_recv(qp, &request, &bad) == 0, "ibv_post_recv");
}

ibv_wc Connection::Await() {
  ibv_wc entry = {};
  // Armed before the second poll: a later completion raises an event.
  for (bool armed = false;; armed = !armed) {
    const int count = ibv_poll_cq(cq_, 1, &entry);
    Check(count >= 0, "ibv_poll_cq");
    if (count == 1) return entry;
    if (armed) {
      AwaitEvent();
    } else {
      CheckCall(ibv_req_notify_cq(cq_, 0) == 0, "ibv_req_notify_cq");
    }
  }
}

void Connection::AwaitEvent() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  CheckCall(ibv_get_cq_event(channel_, &cq, &context) == 0, "ibv_get_cq_event");
  ibv_ack_cq_events(cq, 1);
}

ibv_wc Connection::AwaitSuccess(const std::string& what) {
  const ibv_wc entry = Await();
  Check(entry.status == IBV_WC_SUCCESS, what + ": " + ibv_wc_status_str(entry.status));
  return entry;
}

}  // namespace interop
