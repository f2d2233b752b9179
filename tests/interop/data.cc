// Every operation of an RC connection with its bytes checked, at sizes around the path MTU: a pair
// of programs for rxe_test.py. The client sends the requests, the server checks its memory; both
// check that the memory around it is unchanged.
//
// data -d DEVICE -g GID_INDEX -p PORT -m MTU [-u TIMEOUT] [SERVER]; exit status 0 if every byte is
// correct.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/interop/verbs_pair.h"

namespace {

using interop::Check;
using interop::Connection;
using interop::Meeting;
using interop::OpenedDevice;
using interop::Options;

constexpr uint32_t kBegin = 4099;  // not aligned
constexpr uint32_t kLargest = 1 << 20;
constexpr uint32_t kBehind = 4096;  // bytes behind the message that are checked, too
constexpr size_t kMemory = kBegin + kLargest + kBehind;
constexpr uint8_t kUntouched = 0xA5;
constexpr uint32_t kImmediate = 0x01C0FFEE;
constexpr size_t kCounter = 4096;             // offset of the word that atomics change
constexpr uint64_t kFirstCount = 0xFFFFFFF0;  // so that adding carries
constexpr uint32_t kAtomics = 32;

struct Operation {
  const char* name;
  ibv_wr_opcode opcode;
  bool is_inline;
};

constexpr Operation kOperations[] = {
    {"WRITE", IBV_WR_RDMA_WRITE, false},
    {"WRITE with immediate", IBV_WR_RDMA_WRITE_WITH_IMM, false},
    {"READ", IBV_WR_RDMA_READ, false},
    {"SEND", IBV_WR_SEND, false},
    {"SEND with immediate", IBV_WR_SEND_WITH_IMM, false},
    {"SEND inline", IBV_WR_SEND, true},
    {"WRITE inline", IBV_WR_RDMA_WRITE, true},
};

bool HasImmediate(const Operation& operation) {
  return operation.opcode == IBV_WR_RDMA_WRITE_WITH_IMM || operation.opcode == IBV_WR_SEND_WITH_IMM;
}

bool IsSend(const Operation& operation) {
  return operation.opcode == IBV_WR_SEND || operation.opcode == IBV_WR_SEND_WITH_IMM;
}

bool IsRead(const Operation& operation) { return operation.opcode == IBV_WR_RDMA_READ; }

struct Row {
  Operation operation;
  uint32_t size;
  uint8_t seed;

  std::string Name() const {
    return std::string(operation.name) + " of " + std::to_string(size) + " bytes";
  }
};

std::vector<Row> MakeRows(uint32_t mtu) {
  std::vector<Row> rows;
  for (const Operation& operation : kOperations) {
    for (const uint32_t size :
         {0u, 1u, 3u, interop::kMaxInline, mtu - 1, mtu, mtu + 1, 65536u, kLargest}) {
      if (operation.is_inline && size > interop::kMaxInline) continue;
      rows.push_back({operation, size, static_cast<uint8_t>(rows.size())});
    }
  }
  return rows;
}

uint8_t PatternAt(uint8_t seed, uint32_t i) {
  return static_cast<uint8_t>(i * 7 + (i >> 8) * 13 + (i >> 16) * 5 + seed * 31 + 1);
}

std::vector<uint8_t> Pattern(const Row& row) {
  std::vector<uint8_t> bytes(row.size);
  for (uint32_t i = 0; i < row.size; ++i) bytes[i] = PatternAt(row.seed, i);
  return bytes;
}

// Fills the memory that the row can reach with kUntouched. The source also gets the row's pattern.
void Prepare(OpenedDevice& device, const Row& row, bool is_source) {
  std::memset(device.memory(), kUntouched, kBegin + row.size + kBehind);
  if (!is_source) return;
  const std::vector<uint8_t> pattern = Pattern(row);
  std::copy(pattern.begin(), pattern.end(), device.memory() + kBegin);
}

// Expects the row's pattern at its place and kUntouched around it.
void CheckMemory(OpenedDevice& device, const Row& row) {
  std::vector<uint8_t> wanted(kBegin + row.size + kBehind, kUntouched);
  const std::vector<uint8_t> pattern = Pattern(row);
  std::copy(pattern.begin(), pattern.end(), wanted.begin() + kBegin);
  const auto [at, there] = std::mismatch(wanted.begin(), wanted.end(), device.memory());
  Check(at == wanted.end(),
        row.Name() + ": invalid data, byte " +
            std::to_string(at - wanted.begin() - static_cast<ptrdiff_t>(kBegin)));
}

void CheckReceived(const ibv_wc& entry, const Row& row) {
  const bool is_send = IsSend(row.operation);
  Check(entry.opcode == (is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM),
        row.Name() + ": opcode of the completion");
  Check(entry.byte_len == row.size, row.Name() + ": received " + std::to_string(entry.byte_len));
  const bool has_immediate = (entry.wc_flags & IBV_WC_WITH_IMM) != 0;
  Check(has_immediate == HasImmediate(row.operation), row.Name() + ": immediate data or none");
  Check(!has_immediate || entry.imm_data == htobe32(kImmediate + row.seed),
        row.Name() + ": the immediate data");
}

void ServeRow(Connection& connection, OpenedDevice& device, Meeting& meeting, const Row& row) {
  Prepare(device, row, IsRead(row.operation));
  const bool receives = IsSend(row.operation) || HasImmediate(row.operation);
  // A WRITE with immediate does not touch the memory of the receive request.
  if (receives) connection.PostReceive(IsSend(row.operation) ? kBegin : 0, row.size);
  meeting.Signal();
  if (receives) CheckReceived(connection.AwaitSuccess(row.Name()), row);
  meeting.Await();
  CheckMemory(device, row);
}

void RequestRow(Connection& connection, OpenedDevice& device, Meeting& meeting, const Row& row) {
  Prepare(device, row, !IsRead(row.operation));
  meeting.Await();
  ibv_sge sge = {device.AddressOf(kBegin), row.size, device.region->lkey};
  ibv_send_wr request = {};
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = row.operation.opcode;
  request.send_flags = row.operation.is_inline ? IBV_SEND_INLINE : 0;
  if (HasImmediate(row.operation)) request.imm_data = htobe32(kImmediate + row.seed);
  request.wr.rdma.remote_addr = connection.RemoteAddressOf(kBegin);
  request.wr.rdma.rkey = connection.remote_rkey();
  connection.Post(request);
  connection.AwaitSuccess(row.Name());
  CheckMemory(device, row);
  meeting.Signal();
}

void PostAtomic(Connection& connection, OpenedDevice& device, ibv_wr_opcode opcode, size_t offset,
                uint64_t compare_add, uint64_t swap = 0) {
  ibv_sge sge = {device.AddressOf(offset), sizeof(uint64_t), device.region->lkey};
  ibv_send_wr request = {};
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = opcode;
  request.wr.atomic.remote_addr = connection.RemoteAddressOf(kCounter);
  request.wr.atomic.rkey = connection.remote_rkey();
  request.wr.atomic.compare_add = compare_add;
  request.wr.atomic.swap = swap;
  connection.Post(request);
}

uint64_t WordAt(OpenedDevice& device, size_t offset) {
  uint64_t word;
  std::memcpy(&word, device.memory() + offset, sizeof(word));
  return word;
}

// Posts all at once: each executes exactly once and in order, whatever is lost on the way.
void FetchAndAdd(Connection& connection, OpenedDevice& device) {
  for (uint32_t i = 0; i < kAtomics; ++i) {
    PostAtomic(connection, device, IBV_WR_ATOMIC_FETCH_AND_ADD, 8 * i, i + 1);
  }
  uint64_t expected = kFirstCount;
  for (uint32_t i = 0; i < kAtomics; ++i) {
    connection.AwaitSuccess("FETCH_ADD");
    Check(WordAt(device, 8 * i) == expected, "invalid data: FETCH_ADD " + std::to_string(i));
    expected += i + 1;
  }
}

// Every second one compares with another value than the word has, and must not change it.
void CompareAndSwap(Connection& connection, OpenedDevice& device, uint64_t first) {
  for (uint32_t i = 0; i < kAtomics; ++i) {
    const uint64_t present = first + i / 2;
    PostAtomic(connection, device, IBV_WR_ATOMIC_CMP_AND_SWP, 8 * i, i % 2 ? ~present : present,
               i % 2 ? 0 : present + 1);
  }
  for (uint32_t i = 0; i < kAtomics; ++i) {
    connection.AwaitSuccess("CMP_SWAP");
    Check(WordAt(device, 8 * i) == first + (i + 1) / 2,
          "invalid data: CMP_SWAP " + std::to_string(i));
  }
}

void RunAtomics(Connection& connection, OpenedDevice& device, Meeting& meeting, bool is_server) {
  constexpr uint64_t kAdded = kAtomics * (kAtomics + 1) / 2;
  std::memcpy(device.memory() + kCounter, &kFirstCount, sizeof(kFirstCount));
  meeting.Exchange('a');
  if (!is_server) {
    FetchAndAdd(connection, device);
    CompareAndSwap(connection, device, kFirstCount + kAdded);
  }
  meeting.Exchange('a');
  const uint64_t wanted = kFirstCount + (is_server ? kAdded + kAtomics / 2 : 0);
  Check(WordAt(device, kCounter) == wanted, "invalid data: the word after all atomics");
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = interop::ParseOptions(argc, argv);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  alarm(interop::kLimitS);
  Meeting meeting(options);
  OpenedDevice device(options, kMemory);
  Connection connection(options, {.timeout = options.timeout}, device, meeting);
  const std::vector<Row> rows = MakeRows(static_cast<uint32_t>(options.mtu_bytes));
  for (const Row& row : rows) {
    (options.IsServer() ? ServeRow : RequestRow)(connection, device, meeting, row);
    std::printf("%s\n", row.Name().c_str());
  }
  RunAtomics(connection, device, meeting, options.IsServer());
  std::printf("%zu operations and %u atomics, every byte right\n", rows.size(), 2 * kAtomics);
  return 0;
}
