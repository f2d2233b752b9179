// Measures the cost of registering and deregistering memory, of address handles, and of fork with
// registered memory, compared with memory that the kernel has pinned as it does for an adapter: an
// ordinary libibverbs program. Run by tools/bench under `roci run`; prints JSON.
#include <infiniband/verbs.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr size_t kPage = 4096;
constexpr int kRegions = 10'000;
constexpr int kMostRegions = 65'536;
constexpr int kPaths = 1000;  // more than a provider may keep for the next handle of the same path
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

void Check(bool ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "registration: %s: %s\n", what, strerror(errno));
  exit(1);
}

double NowUs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

char* Touched(size_t length) {
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Check(memory != MAP_FAILED, "mmap");
  memset(memory, 1, length);
  return static_cast<char*>(memory);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

ibv_context* Open(const char* name) {
  ibv_device** list = ibv_get_device_list(nullptr);
  Check(list != nullptr, "ibv_get_device_list");
  while (*list != nullptr && strcmp(ibv_get_device_name(*list), name) != 0) ++list;
  Check(*list != nullptr, name);
  ibv_context* context = ibv_open_device(*list);
  Check(context != nullptr, "ibv_open_device");
  return context;
}

ibv_pd* OpenDomain(const char* name) {
  ibv_pd* pd = ibv_alloc_pd(Open(name));
  Check(pd != nullptr, "ibv_alloc_pd");
  return pd;
}

ibv_mr* Register(ibv_pd* pd, char* at, size_t length) {
  ibv_mr* mr = ibv_reg_mr(pd, at, length, kAccess);
  Check(mr != nullptr, "ibv_reg_mr");
  return mr;
}

// The median of `count` pairs of ibv_reg_mr and ibv_dereg_mr.
double PairUs(ibv_pd* pd, char* at, size_t length, int count) {
  std::vector<double> took;
  for (int i = 0; i < count; ++i) {
    const double begin = NowUs();
    Check(ibv_dereg_mr(Register(pd, at, length)) == 0, "ibv_dereg_mr");
    took.push_back(NowUs() - begin);
  }
  return Median(took);
}

// Seconds to register kMostRegions pages, and to deregister them.
std::pair<double, double> ManyRegionsS(ibv_pd* pd, char* pages) {
  std::vector<ibv_mr*> regions;
  const double begin = NowUs();
  for (int i = 0; i < kMostRegions; ++i) {
    regions.push_back(Register(pd, pages + static_cast<size_t>(i) * kPage, kPage));
  }
  const double registered = NowUs();
  for (ibv_mr* mr : regions) Check(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
  return {(registered - begin) * 1e-6, (NowUs() - registered) * 1e-6};
}

// The median of `count` pairs of ibv_create_ah and ibv_destroy_ah with `paths` flow labels in turn.
double AddressHandleUs(ibv_pd* pd, int count, int paths) {
  constexpr int kGid = 1;  // of the first IPv4 address
  ibv_context* peer = Open("roci1");
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.sgid_index = kGid;
  attributes.grh.hop_limit = 64;
  Check(ibv_query_gid(peer, 1, kGid, &attributes.grh.dgid) == 0, "ibv_query_gid");
  std::vector<double> took;
  for (int i = 0; i < count; ++i) {
    attributes.grh.flow_label = static_cast<uint32_t>(i % paths);
    const double begin = NowUs();
    ibv_ah* ah = ibv_create_ah(pd, &attributes);
    Check(ah != nullptr, "ibv_create_ah");
    Check(ibv_destroy_ah(ah) == 0, "ibv_destroy_ah");
    took.push_back(NowUs() - begin);
  }
  Check(ibv_close_device(peer) == 0, "ibv_close_device");
  return Median(took);
}

double ForkUs() {
  std::vector<double> took;
  for (int i = 0; i < 5; ++i) {
    const double begin = NowUs();
    const pid_t child = fork();
    if (child == 0) _exit(0);
    took.push_back(NowUs() - begin);
    Check(child > 0 && waitpid(child, nullptr, 0) == child, "fork");
  }
  return Median(took);
}

// ForkUs() while the memory is pinned: a fixed buffer of io_uring, which forks copy at once.
// Without a result the reason is in *refusal.
double PinnedForkUs(char* at, size_t length, std::string* refusal) {
  io_uring_params parameters{};
  const auto ring = static_cast<int>(syscall(SYS_io_uring_setup, 1, &parameters));
  if (ring < 0) {
    *refusal = std::string("io_uring_setup: ") + strerror(errno);
    return 0;
  }
  const iovec buffer{at, length};
  double took = 0;
  if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) == 0) {
    took = ForkUs();
    Check(syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, nullptr, 0) == 0,
          "IORING_UNREGISTER_BUFFERS");
  } else {
    *refusal = std::string("IORING_REGISTER_BUFFERS: ") + strerror(errno);
  }
  close(ring);
  return took;
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 2000;
  ibv_pd* pd = OpenDomain("roci0");
  char* pages = Touched(kMostRegions * kPage);
  PairUs(pd, pages, kPage, 100);
  const double first = PairUs(pd, pages, kPage, count);
  std::vector<ibv_mr*> regions;
  for (int i = 0; i < kRegions; ++i) {
    regions.push_back(Register(pd, pages + static_cast<size_t>(i) * kPage, kPage));
  }
  const double last = PairUs(pd, pages, kPage, count);
  for (ibv_mr* mr : regions) Check(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
  const auto [most_registered_s, most_deregistered_s] = ManyRegionsS(pd, pages);
  const double same_path = AddressHandleUs(pd, count, 1);
  const double new_path = AddressHandleUs(pd, count, kPaths);
  constexpr size_t kMiB = size_t{1} << 20, kGiB = size_t{1} << 30;
  char* large = Touched(kGiB);
  const double mib = PairUs(pd, large, kMiB, count);
  const double gib = PairUs(pd, large, kGiB, std::min(count, 100));
  const double fork_without = ForkUs();
  ibv_mr* mr = Register(pd, large, kGiB);
  const double fork_with = ForkUs();
  Check(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
  std::string refusal;
  const double fork_pinned = PinnedForkUs(large, kGiB, &refusal);
  printf(
      "{\"first_us\": %.2f, \"after_10000_us\": %.2f, \"mib_us\": %.2f, \"gib_us\": %.2f, "
      "\"fork_us\": %.0f, \"fork_registered_us\": %.0f, \"most_registered_s\": %.3f, "
      "\"most_deregistered_s\": %.3f, \"same_path_us\": %.3f, \"new_path_us\": %.3f, ",
      first, last, mib, gib, fork_without, fork_with, most_registered_s, most_deregistered_s,
      same_path, new_path);
  if (refusal.empty()) {
    printf("\"fork_pinned_us\": %.0f}\n", fork_pinned);
  } else {
    printf("\"pinning_refused\": \"%s\"}\n", refusal.c_str());
  }
  return 0;
}
