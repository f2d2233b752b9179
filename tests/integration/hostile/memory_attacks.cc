// Registered memory that changes or disappears during traffic: truncated files, punched holes,
// private memory protected, unmapped and replaced.
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/rig.h"

namespace roci::testing::hostile {
namespace {

constexpr size_t kBytes = 64 * kPage;

// Traffic in both directions goes on, from and to `size` bytes at `data`, registered by `reg`,
// while another thread changes them.
void UnderTraffic(Scene& scene, const std::function<int(Rig&, Region&)>& reg,
                  const std::function<void()>& change) {
  RigPair pair;
  Region region;
  const int error = reg(pair.near, region);
  if (error != 0) Lacks("the registration: " + std::string(std::strerror(error)));
  std::atomic<bool> goes = true;
  std::thread changer([&] {
    while (goes) change();
  });
  for (uint32_t i = 0; scene.Goes(); ++i) {
    const bool reads = i % 2 != 0;
    const uint64_t offset = scene.Below(kBytes - 4 * kPage);
    pair.near.Post(pair.near_qp,
                   pair.ValidWqe(reads ? ROCI_ABI_WR_RDMA_READ : ROCI_ABI_WR_RDMA_WRITE),
                   {region.Sge(3 * kPage, offset)});
    for (const auto end = Clock::now() + Milliseconds(2); Clock::now() < end;) {
      roci_abi_cqe cqe;
      if (!pair.near.cq.Poll(&cqe)) continue;
      if (cqe.status != IBV_WC_SUCCESS) pair.Reconnect();
      break;
    }
    if (i % 8 == 7) pair.Reconnect();
  }
  goes = false;
  changer.join();
}

struct File {
  int fd;
  std::byte* data;
};

File Mapped(int fd) {
  if (fd < 0 || ftruncate(fd, kBytes) != 0) Lacks("the file");
  void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) Lacks("the mapping");
  return {fd, static_cast<std::byte*>(at)};
}

int FileIn(const char* folder) {
  char path[64];
  std::snprintf(path, sizeof(path), "%s/h.XXXXXX", folder);
  const int fd = mkostemp(path, O_CLOEXEC);
  if (fd >= 0) unlink(path);
  return fd;
}

using OpenFile = std::function<int()>;
using Change = std::function<void(const File&)>;

// By descriptor, and by a mapping that the daemon looks up.
auto OfFile(const OpenFile& open_one, const Change& change, bool by_lookup = false) {
  return [=](Scene& scene) {
    const File file = Mapped(open_one());
    UnderTraffic(
        scene,
        [&](Rig& rig, Region& region) {
          if (!by_lookup) return rig.Register(file.data, kBytes, region, kAllAccess, file.fd);
          roci_abi_reg_mr_request request{};
          request.pd = rig.pd;
          request.access = kAllAccess;
          request.start = request.iova = reinterpret_cast<uint64_t>(file.data);
          request.length = kBytes;
          request.extent_count = 1;
          request.extents[0] = {request.start,
                                kBytes,
                                0,
                                request.start,
                                request.start + kBytes,
                                ROCI_ABI_EXTENT_MAP_FILES,
                                0};
          roci_abi_reg_mr_response response;
          const int error = rig.Call(ROCI_ABI_REG_MR, request, response);
          region = {file.data, kBytes, response.handle, response.lkey};
          return error;
        },
        [&] { change(file); });
  };
}

void Truncate(const File& file) {
  [[maybe_unused]] int failed = ftruncate(file.fd, 0);
  usleep(50);
  failed = ftruncate(file.fd, kBytes);
  usleep(200);
}
void TruncateOddly(const File& file) {
  for (const off_t size : {off_t{1}, off_t{kPage + 1}, off_t{kBytes - 1}, off_t{kBytes}}) {
    [[maybe_unused]] const int failed = ftruncate(file.fd, size);
    usleep(50);
  }
}
void Punch(const File& file) {
  fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes);
  usleep(50);
}
void Collapse(const File& file) {
  fallocate(file.fd, FALLOC_FL_COLLAPSE_RANGE, 0, kPage);
  fallocate(file.fd, FALLOC_FL_INSERT_RANGE, 0, kPage);
  fallocate(file.fd, FALLOC_FL_ZERO_RANGE, 0, kBytes);
  usleep(50);
}
void Lease(const File& file) {
  fcntl(file.fd, F_SETLEASE, F_WRLCK);
  fcntl(file.fd, F_ADD_SEALS, F_SEAL_GROW);
  usleep(50);
}
void Remap(const File& file) {
  (void)mmap(file.data, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  usleep(50);
  (void)mmap(file.data, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.fd, 0);
  usleep(50);
}

using ChangePrivate = std::function<void(std::byte*)>;

auto OfPrivate(const ChangePrivate& change, uint32_t access = kAllAccess) {
  return [=](Scene& scene) {
    void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    auto* data = static_cast<std::byte*>(at);
    UnderTraffic(
        scene, [&](Rig& rig, Region& region) { return rig.Register(data, kBytes, region, access); },
        [&] {
          change(data);
          usleep(50);
        });
  };
}

void MapAnew(std::byte* data, int rights) {
  (void)mmap(data, kBytes, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
void Protect(std::byte* data) {
  mprotect(data, kBytes, PROT_NONE);
  usleep(50);
  mprotect(data, kBytes, PROT_READ | PROT_WRITE);
}
void ProtectFromWrites(std::byte* data) {
  mprotect(data + 8 * kPage, kBytes / 2, PROT_READ);
  usleep(50);
  mprotect(data, kBytes, PROT_READ | PROT_WRITE);
}
void Unmap(std::byte* data) {
  munmap(data, kBytes);
  usleep(50);
  MapAnew(data, PROT_READ | PROT_WRITE);
}
void Discard(std::byte* data) { madvise(data, kBytes, MADV_DONTNEED); }
void Move(std::byte* data) {
  void* away = mremap(data, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
  usleep(50);
  if (away != MAP_FAILED) munmap(away, kBytes);
}
void ReplaceByFile(std::byte* data) {
  const int fd = memfd_create("short", MFD_CLOEXEC);
  (void)mmap(data, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  usleep(50);
  close(fd);
  MapAnew(data, PROT_READ | PROT_WRITE);
}
void ReplaceByDevice(std::byte* data) {
  const int fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
  (void)mmap(data, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0);
  usleep(50);
  close(fd);
  MapAnew(data, PROT_READ | PROT_WRITE);
}

// Addresses without memory, or with read-only memory.
void ForeignAddresses(Scene&) {
  RigPair pair;
  const auto start_of = [](const char* what) {
    FILE* maps = std::fopen("/proc/self/maps", "re");
    char line[512];
    unsigned long begin = 0;
    while (std::fgets(line, sizeof(line), maps) != nullptr) {
      if (std::strstr(line, what) != nullptr && std::sscanf(line, "%lx", &begin) == 1) break;
    }
    std::fclose(maps);
    return begin;
  };
  const uint64_t addresses[] = {0,
                                start_of("[vdso]"),
                                start_of("[vvar]"),
                                start_of("[stack]"),
                                start_of("libc"),
                                reinterpret_cast<uint64_t>(&ForeignAddresses) & ~(kPage - 1),
                                0xFFFFFFFFFF600000,
                                0x00007FFFFFFFE000,
                                0xFFFF888000000000,
                                0xFFFFFFFF81000000};
  for (const uint64_t at : addresses) {
    Region region;
    if (pair.near.Register(reinterpret_cast<std::byte*>(at), kPage, region) != 0) continue;
    for (const uint8_t opcode : {ROCI_ABI_WR_RDMA_READ, ROCI_ABI_WR_RDMA_WRITE}) {
      // Read-only memory must stay unchanged: the code continues to run.
      if (opcode == ROCI_ABI_WR_RDMA_READ && at == start_of("[stack]")) continue;
      pair.near.Post(pair.near_qp, pair.ValidWqe(opcode), {region.Sge(64)});
      usleep(2000);
      pair.Reconnect();
    }
  }
}

// The whole address space as an on-demand region.
void WholeAddressSpace(Scene& scene) {
  RigPair pair;
  roci_abi_reg_mr_request request{};
  request.pd = pair.near.pd;
  request.access = kAllAccess | IBV_ACCESS_ON_DEMAND;
  request.length = ~uint64_t{0};
  request.extent_count = 1;
  request.extents[0].length = request.length;
  roci_abi_reg_mr_response response;
  if (pair.near.Call(ROCI_ABI_REG_MR, request, response) != 0) Lacks("on-demand regions");
  while (scene.Goes()) {
    const roci_abi_sge sge = {scene.Random64() >> scene.Below(40), 1 + scene.Below(10'000),
                              response.lkey};
    pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE), {sge});
    usleep(100);
    pair.Reconnect();
  }
}

// Released while in use.
void UnshareAndReregister(Scene& scene) {
  const File file = Mapped(memfd_create("hostile", MFD_CLOEXEC));
  RigPair pair;
  Region region;
  ASSERT_EQ(pair.near.Register(file.data, kBytes, region, kAllAccess, file.fd), 0);
  for (uint32_t i = 0; scene.Goes(); ++i) {
    pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE),
                   {region.Sge(8 * kPage, scene.Below(8 * kPage))});
    if (i % 2 != 0) {
      roci_abi_unshare_range_request request{};
      request.start = scene.Below(2) != 0 ? region.va() : 0;
      request.length = scene.Below(2) != 0 ? kPage : ~uint64_t{0} >> 1;
      roci_abi_plain_response response;
      pair.near.Call(ROCI_ABI_UNSHARE_RANGE, request, response);
    } else {
      roci_abi_rereg_mr_request request{};
      request.handle = region.handle;
      request.flags = IBV_REREG_MR_CHANGE_TRANSLATION;
      request.start = request.iova = region.va();
      request.length = kBytes;
      request.extent_count = request.fd_count = 1;
      request.extents[0] = {region.va(), kBytes, 0, 0, 0, ROCI_ABI_EXTENT_FD, 0};
      roci_abi_reg_mr_response response;
      pair.near.Call(ROCI_ABI_REREG_MR, request, response, {file.fd});
    }
    while (pair.near.cq.Poll()) {
    }
    if (i % 8 == 7) pair.Reconnect();
  }
}

// Device memory and its descriptor.
void DeviceMemory(Scene& scene) {
  RigPair pair;
  while (scene.Goes()) {
    roci_abi_alloc_dm_request alloc{};
    alloc.length = 4 * kPage;
    roci_abi_alloc_dm_response dm;
    ASSERT_EQ(pair.near.Call(ROCI_ABI_ALLOC_DM, alloc, dm), 0);
    const int fd = dup(pair.near.fds()[0]);
    roci_abi_reg_dm_mr_request request{};
    request.pd = pair.near.pd;
    request.dm = dm.handle;
    request.length = 4 * kPage;
    request.access = kAllAccess | IBV_ACCESS_ZERO_BASED;
    roci_abi_reg_mr_response mr;
    ASSERT_EQ(pair.near.Call(ROCI_ABI_REG_DM_MR, request, mr), 0);
    pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE), {{0, 3 * kPage, mr.lkey}});
    EXPECT_NE(ftruncate(fd, 0), 0);
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4 * kPage);
    EXPECT_NE(pair.near.OnHandle(ROCI_ABI_FREE_DM, dm.handle), 0) << "in use";
    EXPECT_EQ(pair.near.OnHandle(ROCI_ABI_DEREG_MR, mr.handle), 0);
    EXPECT_EQ(pair.near.OnHandle(ROCI_ABI_FREE_DM, dm.handle), 0);
    close(fd);
    pair.Reconnect();
  }
}

bool DaemonMayKeepPages() {
  std::ifstream status(std::string("/proc/") + std::getenv("ROCID_PID") + "/status");
  std::string word;
  while (status >> word && word != "CapEff:") {
  }
  uint64_t capabilities = 0;
  status >> std::hex >> capabilities;
  return (capabilities >> CAP_LINUX_IMMUTABLE & 1) != 0;
}

// Descriptor `i` of the last answer: memory that the daemon uses. None of its pages can be removed.
void ExpectKept(const RawSession& session, size_t i, const char* what) {
  ASSERT_LT(i, session.fds().size()) << what;
  const int fd = session.fds()[i];
  const Mapping memory(fd, kPage);
  ASSERT_NE(memory.data(), nullptr) << what;
  EXPECT_NE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage), 0) << what;
  EXPECT_NE(madvise(memory.data(), kPage, MADV_REMOVE), 0) << what;
}

// An lcore would wait for the kernel to remove them.
void QueuesKeepTheirPages(Scene&) {
  if (!DaemonMayKeepPages()) Lacks("CAP_LINUX_IMMUTABLE");
  RawSession session;
  ASSERT_EQ(session.Hello(), 0);
  ExpectKept(session, 0, "doorbells");
  Rig rig;
  MappedCq cq = rig.MakeCq(16);
  ExpectKept(rig, 0, "completion queue");
  roci_abi_resize_cq_request resize{};
  resize.handle = cq.handle;
  resize.entries = 1000;
  roci_abi_resize_cq_response resized;
  ASSERT_EQ(rig.Call(ROCI_ABI_RESIZE_CQ, resize, resized), 0);
  ExpectKept(rig, 0, "resized completion queue");
  rig.MakeQp();
  ExpectKept(rig, 0, "queue pair");
  rig.MakeSrq(16);
  ExpectKept(rig, 0, "shared receive queue");
  rig.MakeTagSrq(16, 4, 4);
  ExpectKept(rig, 0, "queue with tags");
  ExpectKept(rig, 1, "tag operations");
  roci_abi_alloc_list_mr_request alloc_list{};
  alloc_list.pd = rig.pd;
  alloc_list.max_runs = 8;
  roci_abi_alloc_list_mr_response list;
  ASSERT_EQ(rig.Call(ROCI_ABI_ALLOC_LIST_MR, alloc_list, list), 0);
  ExpectKept(rig, 0, "list region");
  roci_abi_alloc_dm_request alloc_dm{};
  alloc_dm.length = kPage;
  roci_abi_alloc_dm_response dm;
  ASSERT_EQ(rig.Call(ROCI_ABI_ALLOC_DM, alloc_dm, dm), 0);
  ExpectKept(rig, 0, "device memory");
}

}  // namespace

void AddMemoryAttacks(Attacks& out) {
  const auto add = [&](const char* name, std::function<void(Scene&)> run, bool in_sample = false) {
    out.push_back({"Memory", name, std::move(run), in_sample});
  };
  const auto memfd = [] { return memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING); };
  const auto on_disk = [] { return FileIn("/tmp"); };
  add("MemfdTruncated", OfFile(memfd, Truncate), true);
  add("MemfdTruncatedOddly", OfFile(memfd, TruncateOddly));
  add("MemfdPunched", OfFile(memfd, Punch), true);
  add("MemfdRemapped", OfFile(memfd, Remap));
  add("MemfdSealedLater", OfFile(memfd, Lease));
  add("FileTruncated", OfFile(on_disk, Truncate), true);
  add("FileTruncatedOddly", OfFile(on_disk, TruncateOddly));
  add("FilePunched", OfFile(on_disk, Punch));
  add("FileCollapsed", OfFile(on_disk, Collapse));
  add("FileLeased", OfFile(on_disk, Lease));
  add("SharedMemoryTruncated", OfFile([] { return FileIn("/dev/shm"); }, Truncate));
  add("LookedUpTruncated", OfFile(memfd, Truncate, true), true);
  add("LookedUpRemapped", OfFile(on_disk, Remap, true));
  add("Protected", OfPrivate(Protect), true);
  add("ProtectedFromWrites", OfPrivate(ProtectFromWrites));
  add("Unmapped", OfPrivate(Unmap), true);
  add("Discarded", OfPrivate(Discard));
  add("Moved", OfPrivate(Move));
  add("ReplacedByFile", OfPrivate(ReplaceByFile), true);
  add("ReplacedByDevice", OfPrivate(ReplaceByDevice));
  add("OnDemandUnmapped", OfPrivate(Unmap, kAllAccess | IBV_ACCESS_ON_DEMAND));
  add("ForeignAddresses", ForeignAddresses, true);
  add("WholeAddressSpace", WholeAddressSpace);
  add("UnshareAndReregister", UnshareAndReregister);
  add("DeviceMemory", DeviceMemory);
  add("QueuesKeepTheirPages", QueuesKeepTheirPages, true);
}

}  // namespace roci::testing::hostile
