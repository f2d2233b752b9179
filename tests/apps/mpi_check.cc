// An MPI program that checks every byte: messages of many sizes, collectives, one-sided
// communication. Built with the mpicxx of the tested MPI (see run), so it uses no code of this
// project. Rank 0 prints "all good" and two figures.
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

int g_rank = 0;
int g_ranks = 0;
long g_wrong = 0;

uint8_t Pattern(int from, int to, size_t at, size_t length) {
  return static_cast<uint8_t>(static_cast<size_t>(from) * 31 + static_cast<size_t>(to) * 17 +
                              at * 7 + length);
}

void Expect(bool good, const char* what, long detail) {
  if (good) return;
  if (++g_wrong <= 5) std::printf("rank %d: %s (%ld)\n", g_rank, what, detail);
}

void Messages() {
  const int to = (g_rank + 1) % g_ranks;
  const int from = (g_rank + g_ranks - 1) % g_ranks;
  for (const size_t length :
       {0ul, 1ul, 7ul, 64ul, 255ul, 4095ul, 8193ul, 65536ul, 1000003ul, 8388608ul}) {
    std::vector<uint8_t> out(length);
    std::vector<uint8_t> in(length + 1, 0xEE);
    for (size_t i = 0; i < length; ++i) out[i] = Pattern(g_rank, to, i, length);
    MPI_Status status;
    MPI_Sendrecv(out.data(), static_cast<int>(length), MPI_BYTE, to, 5, in.data(),
                 static_cast<int>(length), MPI_BYTE, from, 5, MPI_COMM_WORLD, &status);
    int count = -1;
    MPI_Get_count(&status, MPI_BYTE, &count);
    Expect(count == static_cast<int>(length), "bytes received", count);
    for (size_t i = 0; i < length; ++i) {
      if (in[i] != Pattern(from, g_rank, i, length)) {
        Expect(false, "a byte of a message", static_cast<long>(i));
        break;
      }
    }
    Expect(in[length] == 0xEE, "the byte after a message", static_cast<long>(length));
  }
}

// Many at a time, received in another order than sent.
void ManyAtOnce() {
  constexpr int kMessages = 200;
  const int to = (g_rank + 1) % g_ranks;
  const int from = (g_rank + g_ranks - 1) % g_ranks;
  std::vector<std::vector<int>> out(kMessages), in(kMessages);
  std::vector<MPI_Request> requests(2 * kMessages);
  for (int i = 0; i < kMessages; ++i) {
    in[i].assign(100, -1);
    MPI_Irecv(in[i].data(), 100, MPI_INT, from, kMessages - 1 - i, MPI_COMM_WORLD, &requests[i]);
  }
  for (int i = 0; i < kMessages; ++i) {
    out[i].assign(100, g_rank * 1000 + i);
    MPI_Isend(out[i].data(), 100, MPI_INT, to, i, MPI_COMM_WORLD, &requests[kMessages + i]);
  }
  MPI_Waitall(2 * kMessages, requests.data(), MPI_STATUSES_IGNORE);
  for (int i = 0; i < kMessages; ++i) {
    for (const int value : in[i])
      Expect(value == from * 1000 + kMessages - 1 - i, "one of many", i);
  }
}

void Collectives() {
  std::vector<int64_t> mine(5000), sum(5000), all(5000 * g_ranks), turned(5000 * g_ranks);
  for (int i = 0; i < 5000; ++i) mine[i] = int64_t{i} * (g_rank + 1);
  MPI_Allreduce(mine.data(), sum.data(), 5000, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < 5000; ++i) {
    Expect(sum[i] == int64_t{i} * g_ranks * (g_ranks + 1) / 2, "allreduce", i);
  }
  MPI_Allgather(mine.data(), 5000, MPI_INT64_T, all.data(), 5000, MPI_INT64_T, MPI_COMM_WORLD);
  for (int rank = 0; rank < g_ranks; ++rank) {
    Expect(all[rank * 5000 + 4999] == int64_t{4999} * (rank + 1), "allgather", rank);
  }
  for (size_t i = 0; i < all.size(); ++i) all[i] = g_rank * 1000000 + static_cast<int64_t>(i);
  MPI_Alltoall(all.data(), 5000, MPI_INT64_T, turned.data(), 5000, MPI_INT64_T, MPI_COMM_WORLD);
  for (int rank = 0; rank < g_ranks; ++rank) {
    Expect(turned[rank * 5000 + 7] == rank * 1000000 + g_rank * 5000 + 7, "alltoall", rank);
  }
  std::vector<uint8_t> text(1 << 20);
  if (g_rank == 0) {
    for (size_t i = 0; i < text.size(); ++i) text[i] = Pattern(1, 2, i, 3);
  }
  MPI_Bcast(text.data(), static_cast<int>(text.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != Pattern(1, 2, i, 3)) {
      Expect(false, "broadcast", static_cast<long>(i));
      break;
    }
  }
}

// Put, get, accumulate, fetch-and-add and compare-and-swap on windows.
void OneSided() {
  constexpr int kValues = 20000;
  int64_t* memory = nullptr;
  MPI_Win window;
  MPI_Win_allocate((kValues + 2) * sizeof(int64_t), sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD,
                   &memory, &window);
  for (int i = 0; i < kValues + 2; ++i) memory[i] = 0;
  const int to = (g_rank + 1) % g_ranks;
  const int from = (g_rank + g_ranks - 1) % g_ranks;
  std::vector<int64_t> values(kValues), back(kValues);
  for (int i = 0; i < kValues; ++i) values[i] = g_rank * 100000 + i;
  MPI_Win_fence(0, window);
  MPI_Put(values.data(), kValues, MPI_INT64_T, to, 0, kValues, MPI_INT64_T, window);
  MPI_Win_fence(0, window);
  for (int i = 0; i < kValues; ++i) Expect(memory[i] == from * 100000 + i, "put", i);
  MPI_Get(back.data(), kValues, MPI_INT64_T, to, 0, kValues, MPI_INT64_T, window);
  MPI_Win_fence(0, window);
  for (int i = 0; i < kValues; ++i) Expect(back[i] == g_rank * 100000 + i, "get", i);
  MPI_Win_lock_all(0, window);
  for (int i = 0; i < 200; ++i) {
    const int64_t one = 1;
    int64_t before = -1;
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, kValues, MPI_SUM, window);
    MPI_Win_flush(0, window);
    Expect(before >= 0 && before < 200 * g_ranks, "fetch and add", before);
  }
  const int64_t nothing = 0;
  const int64_t me = g_rank + 1;
  int64_t winner = -1;
  MPI_Compare_and_swap(&me, &nothing, &winner, MPI_INT64_T, 0, kValues + 1, window);
  MPI_Win_flush(0, window);
  int won = winner == 0 ? 1 : 0;
  MPI_Win_unlock_all(window);
  MPI_Allreduce(MPI_IN_PLACE, &won, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  Expect(won == 1, "compare and swap: winners", won);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, g_rank, 0, window);
  if (g_rank == 0)
    Expect(memory[kValues] == 200 * g_ranks, "sum of fetch and add", memory[kValues]);
  MPI_Win_unlock(g_rank, window);
  MPI_Win_free(&window);
}

// Half a round trip of 8 bytes in microseconds, and MB/s of 1 MiB messages, between ranks 0 and 1.
void Figures() {
  std::vector<uint8_t> buffer(1 << 20);
  MPI_Barrier(MPI_COMM_WORLD);
  if (g_rank > 1) return;
  const int peer = 1 - g_rank;
  double begin = MPI_Wtime();
  for (int i = 0; i < 200; ++i) {
    if (g_rank == 0) MPI_Send(buffer.data(), 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
    MPI_Recv(buffer.data(), 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (g_rank == 1) MPI_Send(buffer.data(), 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
  }
  const double latency = (MPI_Wtime() - begin) / 400 * 1e6;
  begin = MPI_Wtime();
  for (int i = 0; i < 100; ++i) {
    if (g_rank == 0) MPI_Send(buffer.data(), 1 << 20, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
    if (g_rank == 1)
      MPI_Recv(buffer.data(), 1 << 20, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  if (g_rank == 0) {
    std::printf("8 B: %.1f us, 1 MiB: %.0f MB/s\n", latency,
                100 * 1.048576 / (MPI_Wtime() - begin));
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
  Messages();
  ManyAtOnce();
  Collectives();
  OneSided();
  Figures();
  MPI_Allreduce(MPI_IN_PLACE, &g_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (g_rank == 0) std::printf(g_wrong == 0 ? "all good\n" : "%ld values are wrong\n", g_wrong);
  MPI_Finalize();
  return g_wrong == 0 ? 0 : 1;
}
