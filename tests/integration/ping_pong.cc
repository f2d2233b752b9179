// A deterministic program: messages of varying sizes go from one end of a reliable connection to
// the other and come back. Each end reacts to completions only, and polls. One thread drives both
// ends, or, with --processes, each end is a process.
//
// Usage: ping_pong DEVICE DEVICE [--messages N] [--window N] [--timeout EXPONENT] [--processes]
// [--pause MS]
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr uint32_t kMostBytes = 20'000;

struct Settings {
  const char* devices[2];
  uint32_t messages = 200;
  uint32_t window = 1;  // messages on their way at a time
  uint8_t timeout = 8;  // 1 ms
  bool two_processes = false;
  uint32_t pause_ms = 0;  // of the near end, after half of the messages
};

void Require(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::exit(1);
}

// What an end tells the other.
struct Address {
  ibv_gid gid;
  uint32_t qpn;
  uint32_t psn;
};

uint32_t BytesOf(uint32_t message) {
  constexpr uint32_t kSizes[] = {1, 64, 257, 1024, 4096, 5000, kMostBytes};
  return kSizes[message % (sizeof(kSizes) / sizeof(kSizes[0]))];
}

class End {
 public:
  End(const Settings& settings, bool is_far) : settings_(settings), is_far_(is_far) {
    Open(settings.devices[is_far ? 1 : 0]);
    Require((pd_ = ibv_alloc_pd(context_)) != nullptr, "ibv_alloc_pd");
    memory_.resize(size_t{2} * slots() * kMostBytes, 'x');
    mr_ = ibv_reg_mr(pd_, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
    Require(mr_ != nullptr, "ibv_reg_mr");
    cq_ = ibv_create_cq(context_, static_cast<int>(4 * slots()), nullptr, nullptr, 0);
    Require(cq_ != nullptr, "ibv_create_cq");
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = cq_;
    attr.cap = {slots(), slots(), 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = 1;
    Require((qp_ = ibv_create_qp(pd_, &attr)) != nullptr, "ibv_create_qp");
  }
  ~End() {
    ibv_destroy_qp(qp_);
    ibv_destroy_cq(cq_);
    ibv_dereg_mr(mr_);
    ibv_dealloc_pd(pd_);
    ibv_close_device(context_);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  Address address() const { return {gid_, qp_->qp_num, psn()}; }

  // All receives are posted before the peer can send.
  void Connect(const Address& peer) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    Modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    for (uint32_t i = 0; i < slots(); ++i) PostReceive(i);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer.qpn;
    attr.rq_psn = peer.psn;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = peer.gid;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
    attr.ah_attr.grh.hop_limit = 64;
    Modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = settings_.timeout;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.sq_psn = psn();
    Modify(attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }

  void Begin() {
    for (uint32_t i = 0; !is_far_ && i < settings_.window; ++i) PostSend();
  }
  // Polls once.
  void Step() {
    ibv_wc completions[4];
    const int count = ibv_poll_cq(cq_, 4, completions);
    Require(count >= 0, "ibv_poll_cq");
    for (int i = 0; i < count; ++i) React(completions[i]);
  }
  bool is_done() const { return sent_ == settings_.messages && received_ == settings_.messages; }

 private:
  static constexpr uint64_t kSend = 1u << 31;
  uint32_t slots() const { return 2 * settings_.window; }
  uint32_t psn() const { return is_far_ ? 0x2000 : 0x1000; }

  void Open(const char* name) {
    int count = 0;
    ibv_device** const devices = ibv_get_device_list(&count);
    for (int i = 0; i < count; ++i) {
      if (std::strcmp(ibv_get_device_name(devices[i]), name) == 0) {
        context_ = ibv_open_device(devices[i]);
      }
    }
    Require(context_ != nullptr, name);
    ibv_free_device_list(devices);
    ibv_gid_entry entry = {};
    for (uint32_t i = 0; ibv_query_gid_ex(context_, 1, i, &entry, 0) == 0; ++i) {
      const bool is_ipv4 = entry.gid.raw[10] == 0xFF && entry.gid.raw[11] == 0xFF;
      if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || !is_ipv4) continue;
      gid_index_ = i;
      gid_ = entry.gid;
      return;
    }
    Require(false, "no IPv4 address");
  }

  void Modify(ibv_qp_attr& attr, int mask) {
    Require(ibv_modify_qp(qp_, &attr, mask) == 0, "ibv_modify_qp");
  }

  ibv_sge Place(uint64_t slot, uint32_t bytes) const {
    return {reinterpret_cast<uintptr_t>(memory_.data()) + slot * kMostBytes, bytes, mr_->lkey};
  }
  void PostReceive(uint64_t slot) {
    ibv_sge sge = Place(slot, kMostBytes);
    ibv_recv_wr work = {}, *bad = nullptr;
    work.wr_id = slot;
    work.sg_list = &sge;
    work.num_sge = 1;
    Require(ibv_post_recv(qp_, &work, &bad) == 0, "ibv_post_recv");
  }
  void PostSend() {
    ibv_sge sge = Place(slots() + posted_ % slots(), BytesOf(posted_));
    ibv_send_wr work = {}, *bad = nullptr;
    work.wr_id = kSend;
    work.sg_list = &sge;
    work.num_sge = 1;
    work.opcode = IBV_WR_SEND;
    Require(ibv_post_send(qp_, &work, &bad) == 0, "ibv_post_send");
    ++posted_;
  }
  // The far end answers each message; the near end sends the next when one is back.
  void React(const ibv_wc& completion) {
    if (completion.status != IBV_WC_SUCCESS) {
      std::printf("end %d, message %u: %s\n", is_far_ ? 1 : 0, received_,
                  ibv_wc_status_str(completion.status));
      std::exit(1);
    }
    if (completion.wr_id == kSend) {
      ++sent_;
      return;
    }
    PostReceive(completion.wr_id);
    ++received_;
    if (!is_far_ && received_ == settings_.messages / 2) usleep(settings_.pause_ms * 1000);
    if (posted_ != settings_.messages) PostSend();
  }

  const Settings& settings_;
  const bool is_far_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_gid gid_ = {};
  uint32_t gid_index_ = 0;
  std::vector<char> memory_;
  uint32_t posted_ = 0, sent_ = 0, received_ = 0;
};

void RunInOne(const Settings& settings) {
  End near(settings, false), far(settings, true);
  near.Connect(far.address());
  far.Connect(near.address());
  near.Begin();
  while (!near.is_done() || !far.is_done()) {
    near.Step();
    far.Step();
  }
}

// Tells the other process, and waits until it has told the same.
void Exchange(int socket, const void* own, void* other, size_t bytes) {
  Require(write(socket, own, bytes) == static_cast<ssize_t>(bytes), "write");
  Require(recv(socket, other, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes), "recv");
}

void RunEnd(const Settings& settings, bool is_far, int socket) {
  End end(settings, is_far);
  const Address own = end.address();
  Address peer;
  Exchange(socket, &own, &peer, sizeof(own));
  end.Connect(peer);
  char word = 'c', answer;
  Exchange(socket, &word, &answer, sizeof(word));
  end.Begin();
  while (!end.is_done()) end.Step();
  // Queue pairs must outlive the peer's last acknowledgement. Until then this end goes on to poll.
  Require(write(socket, &word, sizeof(word)) == sizeof(word), "write");
  while (recv(socket, &answer, sizeof(answer), MSG_DONTWAIT) != sizeof(answer)) end.Step();
}

void RunInTwo(const Settings& settings) {
  int sockets[2];
  Require(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
  const pid_t child = fork();
  Require(child >= 0, "fork");
  if (child == 0) {
    close(sockets[0]);
    RunEnd(settings, true, sockets[1]);
    std::exit(0);
  }
  close(sockets[1]);
  RunEnd(settings, false, sockets[0]);
  int status = 0;
  Require(waitpid(child, &status, 0) == child && status == 0, "the other end");
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  int devices = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&] { return static_cast<uint32_t>(std::atoi(argv[++i])); };
    if (word == "--processes") {
      settings.two_processes = true;
    } else if (word == "--messages" && i + 1 < argc) {
      settings.messages = number();
    } else if (word == "--window" && i + 1 < argc) {
      settings.window = number();
    } else if (word == "--pause" && i + 1 < argc) {
      settings.pause_ms = number();
    } else if (word == "--timeout" && i + 1 < argc) {
      settings.timeout = static_cast<uint8_t>(number());
    } else if (devices < 2) {
      settings.devices[devices++] = argv[i];
    }
  }
  if (devices != 2) return 2;
  settings.two_processes ? RunInTwo(settings) : RunInOne(settings);
  std::printf("%u messages went and came back\n", settings.messages);
  return 0;
}
