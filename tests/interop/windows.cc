// Memory windows of one device accessed by another device, of any make: a pair of programs for
// rxe_test.py. The server binds the windows, the client accesses memory through them, with one
// connection per row of the table.
//
// windows -s ADDRESS [ROWS] | windows -c ADDRESS [ROWS]; exit status 0 on success. ROWS is "all",
// or "inside" to leave out accesses beyond a window's bounds: Linux's soft-RoCE checks only the
// bounds of the region.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr const char* kPort = "18601";
constexpr unsigned kLimitS =
    200;  // ends a program that hangs and that rxe_test.py (180 s) has lost
constexpr uint32_t kMemory = 65536, kBegin = 4104, kLength = 40000;
constexpr uint8_t kUntouched = 0xA5;
constexpr uint64_t kCounter = 41;
constexpr unsigned kReadWrite = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

enum class Before { kNothing, kBindElsewhere, kLocalInvalidate, kRemoteInvalidate, kUnbind };
enum class Use { kWriteAndRead, kWriteBehind, kWriteBefore, kRead, kWrite, kFetchAdd };

struct Row {
  const char* name;
  ibv_mw_type type;
  unsigned access;
  Before before;
  Use use;
  ibv_wc_status status;
};

constexpr Row kRows[] = {
    {"type 1, written and read", IBV_MW_TYPE_1, kReadWrite, Before::kNothing, Use::kWriteAndRead,
     IBV_WC_SUCCESS},
    {"type 2, written and read", IBV_MW_TYPE_2, kReadWrite, Before::kNothing, Use::kWriteAndRead,
     IBV_WC_SUCCESS},
    {"type 2, fetch and add", IBV_MW_TYPE_2, IBV_ACCESS_REMOTE_ATOMIC, Before::kNothing,
     Use::kFetchAdd, IBV_WC_SUCCESS},
    {"type 1, one byte too far", IBV_MW_TYPE_1, kReadWrite, Before::kNothing, Use::kWriteBehind,
     IBV_WC_REM_ACCESS_ERR},
    {"type 2, one byte too early", IBV_MW_TYPE_2, kReadWrite, Before::kNothing, Use::kWriteBefore,
     IBV_WC_REM_ACCESS_ERR},
    {"type 2 for reading, written", IBV_MW_TYPE_2, IBV_ACCESS_REMOTE_READ, Before::kNothing,
     Use::kWrite, IBV_WC_REM_ACCESS_ERR},
    {"type 1, by the key before the last", IBV_MW_TYPE_1, kReadWrite, Before::kBindElsewhere,
     Use::kRead, IBV_WC_REM_ACCESS_ERR},
    {"type 1, unbound", IBV_MW_TYPE_1, kReadWrite, Before::kUnbind, Use::kRead,
     IBV_WC_REM_ACCESS_ERR},
    {"type 2, invalidated by its owner", IBV_MW_TYPE_2, kReadWrite, Before::kLocalInvalidate,
     Use::kRead, IBV_WC_REM_ACCESS_ERR},
    {"type 2, invalidated by the other side", IBV_MW_TYPE_2, kReadWrite, Before::kRemoteInvalidate,
     Use::kRead, IBV_WC_REM_ACCESS_ERR},
};

constexpr uint8_t kRowCount = std::size(kRows);

bool ReachesOut(const Row& row) {
  return row.use == Use::kWriteBehind || row.use == Use::kWriteBefore;
}

std::vector<uint8_t> ChooseRows(bool only_inside) {
  std::vector<uint8_t> chosen;
  for (uint8_t i = 0; i < kRowCount; ++i) {
    if (!only_inside || !ReachesOut(kRows[i])) chosen.push_back(i);
  }
  return chosen;
}

// The server's message. In host byte order, because both ends are on one machine.
struct Offer {
  uint64_t address;
  uint32_t rkey;
};

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "windows: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

void Check(bool good, const std::string& what) {
  if (!good) Fail(what);
}

uint8_t PatternAt(uint32_t i) { return static_cast<uint8_t>(i * 7 + 3); }

// One end of a connection: its identifier, memory and a buffer for messages.
class End {
 public:
  explicit End(rdma_cm_id* id) : id_(id), memory_(kMemory, kUntouched) {
    region_ =
        ibv_reg_mr(id->pd, memory_.data(), kMemory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    Check(region_ != nullptr, "ibv_reg_mr");
    message_region_ = rdma_reg_msgs(id, &message_, sizeof(message_));
    Check(message_region_ != nullptr, "rdma_reg_msgs");
    Check(rdma_post_recv(id, nullptr, &message_, sizeof(message_), message_region_) == 0,
          "rdma_post_recv");
  }
  ~End() {
    rdma_dereg_mr(message_region_);
    rdma_dereg_mr(region_);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  uint8_t* memory() { return memory_.data(); }
  uint64_t AddressOf(uint32_t offset) const {
    return reinterpret_cast<uint64_t>(memory_.data() + offset);
  }
  ibv_mr* region() const { return region_; }
  rdma_cm_id* id() const { return id_; }
  const Offer& message() const { return message_; }

  ibv_wc_status Post(ibv_send_wr& request) {
    request.send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    Check(ibv_post_send(id_->qp, &request, &bad) == 0, "ibv_post_send");
    return AwaitSend();
  }
  ibv_wc_status AwaitSend() {
    ibv_wc entry = {};
    Check(rdma_get_send_comp(id_, &entry) == 1, "rdma_get_send_comp");
    return entry.status;
  }
  ibv_wc AwaitMessage() {
    ibv_wc entry = {};
    Check(rdma_get_recv_comp(id_, &entry) == 1 && entry.status == IBV_WC_SUCCESS,
          std::string("receiving: ") + ibv_wc_status_str(entry.status));
    Check(rdma_post_recv(id_, nullptr, &message_, sizeof(message_), message_region_) == 0,
          "rdma_post_recv");
    return entry;
  }
  ibv_wc_status SendMessage(const Offer& offer, ibv_wr_opcode opcode = IBV_WR_SEND,
                            uint32_t rkey = 0) {
    Offer copy = offer;
    ibv_sge sge = {reinterpret_cast<uint64_t>(&copy), sizeof(copy), 0};
    ibv_send_wr request = {};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_INLINE;
    request.invalidate_rkey = rkey;
    return Post(request);
  }

 private:
  rdma_cm_id* id_;
  std::vector<uint8_t> memory_;
  ibv_mr* region_;
  Offer message_ = {};
  ibv_mr* message_region_;
};

void Bind(End& end, ibv_mw* window, const ibv_mw_bind_info& info) {
  if (window->type == IBV_MW_TYPE_1) {
    ibv_mw_bind bind = {};
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = info;
    Check(ibv_bind_mw(end.id()->qp, window, &bind) == 0, "ibv_bind_mw");
    Check(end.AwaitSend() == IBV_WC_SUCCESS, "binding a window of type 1");
    return;
  }
  ibv_send_wr request = {};
  request.opcode = IBV_WR_BIND_MW;
  request.bind_mw.mw = window;
  request.bind_mw.rkey = ibv_inc_rkey(window->rkey);
  request.bind_mw.bind_info = info;
  Check(end.Post(request) == IBV_WC_SUCCESS, "binding a window of type 2");
  window->rkey = request.bind_mw.rkey;
}

// Does what the row requires between the bind of the window and its use by the client.
void Prepare(End& end, ibv_mw* window, Before before) {
  const ibv_mw_bind_info elsewhere = {end.region(), end.AddressOf(0), kBegin, kReadWrite};
  const ibv_mw_bind_info nowhere = {end.region(), end.AddressOf(0), 0, 0};
  ibv_send_wr invalidate = {};
  invalidate.opcode = IBV_WR_LOCAL_INV;
  invalidate.invalidate_rkey = window->rkey;
  switch (before) {
    case Before::kBindElsewhere:
      return Bind(end, window, elsewhere);
    case Before::kUnbind:
      return Bind(end, window, nowhere);
    case Before::kLocalInvalidate:
      return Check(end.Post(invalidate) == IBV_WC_SUCCESS, "local invalidate");
    case Before::kRemoteInvalidate:
    case Before::kNothing:
      return;
  }
}

// Sends a message to which the client replies with a request that has to fail. A flush is fine: the
// client has received the message, else it would not continue. Its request ends the queue pair,
// possibly before the ACK for this message arrives (soft-RoCE completes a receive before it
// responds).
void SendBeforeFault(End& end, const Offer& offer, const char* what) {
  const ibv_wc_status status = end.SendMessage(offer);
  Check(status == IBV_WC_SUCCESS || status == IBV_WC_WR_FLUSH_ERR, what);
}

void AwaitRemoteInvalidate(End& end, uint32_t rkey) {
  const ibv_wc entry = end.AwaitMessage();
  // Ignores the flag: Linux's soft-RoCE sets the kernel's bit, which differs from the library's.
  Check(entry.invalidated_rkey == rkey, "R_Key " + std::to_string(entry.invalidated_rkey) +
                                            " invalidated instead of " + std::to_string(rkey));
  SendBeforeFault(end, {}, "sending");
}

void AwaitDisconnect(rdma_cm_id* id) {
  rdma_cm_event* event = nullptr;
  Check(rdma_get_cm_event(id->channel, &event) == 0 && event->event == RDMA_CM_EVENT_DISCONNECTED,
        "waiting for the client's end");
  rdma_ack_cm_event(event);
}

// Checks the server's memory after the client is done.
void CheckMemory(End& end, const Row& row) {
  const bool written = row.use == Use::kWriteAndRead;
  for (uint32_t i = 0; i < kMemory; ++i) {
    const bool inside = i >= kBegin && i < kBegin + kLength;
    if (row.use == Use::kFetchAdd && i >= kBegin && i < kBegin + sizeof(kCounter)) continue;
    const uint8_t wanted = written && inside ? PatternAt(i - kBegin) : kUntouched;
    Check(end.memory()[i] == wanted, "the server's memory, byte " + std::to_string(i));
  }
  uint64_t counter;
  std::memcpy(&counter, end.memory() + kBegin, sizeof(counter));
  Check(row.use != Use::kFetchAdd || counter == kCounter + 1, "the counter");
}

void ServeRow(rdma_cm_id* id, const Row& row) {
  End end(id);
  if (row.use == Use::kFetchAdd) std::memcpy(end.memory() + kBegin, &kCounter, sizeof(kCounter));
  ibv_mw* window = ibv_alloc_mw(id->pd, row.type);
  Check(window != nullptr, "ibv_alloc_mw");
  Check(rdma_accept(id, nullptr) == 0, "rdma_accept");
  Bind(end, window, {end.region(), end.AddressOf(kBegin), kLength, row.access});
  const Offer offer = {end.AddressOf(kBegin), window->rkey};
  Prepare(end, window, row.before);
  const bool fails_next = row.status != IBV_WC_SUCCESS && row.before != Before::kRemoteInvalidate;
  if (fails_next) {
    SendBeforeFault(end, offer, "sending the offer");
  } else {
    Check(end.SendMessage(offer) == IBV_WC_SUCCESS, "sending the offer");
  }
  if (row.before == Before::kRemoteInvalidate) AwaitRemoteInvalidate(end, offer.rkey);
  AwaitDisconnect(id);
  CheckMemory(end, row);
  rdma_disconnect(id);
  // The window first: Linux's soft-RoCE destroys no queue pair to which a window is bound.
  Check(ibv_dealloc_mw(window) == 0, "ibv_dealloc_mw");
  rdma_destroy_qp(id);
}

ibv_wc_status Access(End& end, ibv_wr_opcode opcode, uint64_t address, uint32_t rkey,
                     uint32_t length) {
  ibv_sge sge = {end.AddressOf(0), length, end.region()->lkey};
  ibv_send_wr request = {};
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = opcode;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    request.wr.atomic.remote_addr = address;
    request.wr.atomic.rkey = rkey;
    request.wr.atomic.compare_add = 1;
  } else {
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = rkey;
  }
  return end.Post(request);
}

ibv_wc_status WriteAndRead(End& end, const Offer& offer) {
  for (uint32_t i = 0; i < kLength; ++i) end.memory()[i] = PatternAt(i);
  ibv_wc_status status = Access(end, IBV_WR_RDMA_WRITE, offer.address, offer.rkey, kLength);
  if (status != IBV_WC_SUCCESS) return status;
  std::fill_n(end.memory(), kLength, uint8_t{0});
  status = Access(end, IBV_WR_RDMA_READ, offer.address, offer.rkey, kLength);
  for (uint32_t i = 0; i < kLength; ++i) {
    Check(end.memory()[i] == PatternAt(i), "what was read, byte " + std::to_string(i));
  }
  return status;
}

ibv_wc_status FetchAdd(End& end, const Offer& offer) {
  const ibv_wc_status status =
      Access(end, IBV_WR_ATOMIC_FETCH_AND_ADD, offer.address, offer.rkey, sizeof(kCounter));
  Check(std::memcmp(end.memory(), &kCounter, sizeof(kCounter)) == 0, "the counter that was read");
  return status;
}

ibv_wc_status UseWindow(End& end, Use use, const Offer& offer) {
  switch (use) {
    case Use::kWriteAndRead:
      return WriteAndRead(end, offer);
    case Use::kFetchAdd:
      return FetchAdd(end, offer);
    case Use::kWriteBehind:
      return Access(end, IBV_WR_RDMA_WRITE, offer.address + kLength - 7, offer.rkey, 8);
    case Use::kWriteBefore:
      return Access(end, IBV_WR_RDMA_WRITE, offer.address - 1, offer.rkey, 8);
    case Use::kRead:
      return Access(end, IBV_WR_RDMA_READ, offer.address, offer.rkey, 8);
    case Use::kWrite:
      return Access(end, IBV_WR_RDMA_WRITE, offer.address, offer.rkey, 8);
  }
  return IBV_WC_GENERAL_ERR;
}

void RunRow(rdma_cm_id* id, const Row& row, uint8_t number) {
  End end(id);
  rdma_conn_param parameters = {};
  parameters.private_data = &number;
  parameters.private_data_len = sizeof(number);
  parameters.responder_resources = parameters.initiator_depth = 1;
  parameters.retry_count = 6;
  parameters.rnr_retry_count = 7;
  Check(rdma_connect(id, &parameters) == 0, "rdma_connect");
  end.AwaitMessage();
  const Offer offer = end.message();
  if (row.before == Before::kRemoteInvalidate) {
    Check(end.SendMessage({}, IBV_WR_SEND_WITH_INV, offer.rkey) == IBV_WC_SUCCESS,
          "SEND with invalidate");
    end.AwaitMessage();
  }
  const ibv_wc_status status = UseWindow(end, row.use, offer);
  Check(status == row.status, std::string(row.name) + ": " + ibv_wc_status_str(status));
  std::printf("%s: %s\n", row.name, ibv_wc_status_str(status));
  rdma_disconnect(id);
  rdma_destroy_qp(id);
}

ibv_qp_init_attr QpAttributes() {
  ibv_qp_init_attr attributes = {};
  attributes.cap = {8, 8, 1, 1, sizeof(Offer)};
  attributes.qp_type = IBV_QPT_RC;
  return attributes;
}

rdma_addrinfo* Resolve(const char* address, int flags) {
  rdma_addrinfo hints = {};
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* found = nullptr;
  Check(rdma_getaddrinfo(address, kPort, &hints, &found) == 0, "rdma_getaddrinfo");
  return found;
}

void Serve(const char* address, size_t row_count) {
  rdma_addrinfo* place = Resolve(address, RAI_PASSIVE);
  ibv_qp_init_attr attributes = QpAttributes();
  rdma_cm_id* listener = nullptr;
  Check(rdma_create_ep(&listener, place, nullptr, &attributes) == 0, "rdma_create_ep");
  Check(rdma_listen(listener, 4) == 0, "rdma_listen");
  for (size_t i = 0; i < row_count; ++i) {
    rdma_cm_id* id = nullptr;
    Check(rdma_get_request(listener, &id) == 0, "rdma_get_request");
    const auto* number = static_cast<const uint8_t*>(id->event->param.conn.private_data);
    Check(number != nullptr && *number < std::size(kRows), "private data of the request");
    ServeRow(id, kRows[*number]);
    rdma_destroy_ep(id);
  }
  rdma_destroy_ep(listener);
  rdma_freeaddrinfo(place);
}

void RunClient(const char* address, const std::vector<uint8_t>& rows) {
  rdma_addrinfo* place = Resolve(address, 0);
  for (const uint8_t i : rows) {
    ibv_qp_init_attr attributes = QpAttributes();
    rdma_cm_id* id = nullptr;
    Check(rdma_create_ep(&id, place, nullptr, &attributes) == 0, "rdma_create_ep");
    RunRow(id, kRows[i], i);
    rdma_destroy_ep(id);
  }
  rdma_freeaddrinfo(place);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string side = argc > 1 ? argv[1] : "", rows = argc == 4 ? argv[3] : "all";
  if (argc < 3 || argc > 4 || (side != "-s" && side != "-c") ||
      (rows != "all" && rows != "inside")) {
    std::fprintf(stderr, "usage: windows -s|-c ADDRESS [all|inside]\n");
    return 2;
  }
  setvbuf(stdout, nullptr, _IOLBF, 0);
  alarm(kLimitS);
  const std::vector<uint8_t> chosen = ChooseRows(rows == "inside");
  if (side == "-s") {
    Serve(argv[2], chosen.size());
  } else {
    RunClient(argv[2], chosen);
  }
  return 0;
}
