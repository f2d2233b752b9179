// Special rows of memory_table.cc: memory that lost data in the past, and device memory.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/interop/memory_checks.h"
#include "tests/interop/memory_row.h"

namespace interop {
namespace {

constexpr size_t kBufferLength = size_t{4} << 20;
constexpr int kAccess = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                        IBV_ACCESS_REMOTE_READ;

Result Remarked(const std::string& words) {
  Result result;
  result.remark = words;
  return result;
}

Subject SubjectOf(const Settings& settings, Region& region) {
  return {.settings = settings,
          .region = region,
          .at = region.data + region.part,
          .check_length = std::min(region.part_length, size_t{kMaxTransfer})};
}

Region MakeBuffer(const Settings& settings) {
  return MakeRegion("malloc", settings.folder, nullptr);
}

// The second buffer lies below the first one, so that it would grow over it.
Result NeighbourGrows(const Settings& settings) {
  const MemoryDevice device(settings.device);
  if (device.context == nullptr) return Remarked("no device");
  Region first = MakeBuffer(settings);
  Region second = MakeBuffer(settings);
  Subject subject = SubjectOf(settings, first);
  Checks checks(device, subject);
  if (checks.Register() != 0 || device.Register(second.data, second.length, true) == nullptr) {
    return Remarked("not registered");
  }
  auto* grown = static_cast<uint8_t*>(realloc(second.data, 2 * kBufferLength));
  const bool second_kept = Holds(Pattern::kFirst, grown, 0, kBufferLength);
  Fill(Pattern::kNew, grown, 0, 2 * kBufferLength);
  subject.Remark(second_kept ? "grown one kept" : "grown one lost");
  subject.Remark(Holds(Pattern::kFirst, first.data, 0, kBufferLength) ? "neighbour kept"
                                                                      : "neighbour lost");
  Result result;
  checks.Run(result);
  if (!Holds(Pattern::kNew, grown, 0, 2 * kBufferLength)) subject.Remark("grown one overwritten");
  result.remark = subject.remark;
  return result;
}

Result GrownThenForked(const Settings& settings, ForkCall call) {
  const MemoryDevice device(settings.device);
  if (device.context == nullptr) return Remarked("no device");
  Region region = MakeRegion("anonymous", settings.folder, nullptr);
  ibv_mr* mr = device.Register(region.data, region.length, true);
  if (mr == nullptr) return Remarked("not registered");
  void* moved =
      mremap(region.data, region.length, region.length + region.part_length, MREMAP_MAYMOVE);
  if (moved == MAP_FAILED) return Remarked("not grown");
  region.data = static_cast<uint8_t*>(moved);
  region.part = region.length;
  region.length += region.part_length;
  Fill(Pattern::kFirst, region.data, 0, region.length);
  ibv_dereg_mr(mr);
  Subject subject = SubjectOf(settings, region);
  Checks checks(device, subject);
  const std::unique_ptr<Operation> forking = MakeFork(call);
  Result result;
  result.error = NameOf(forking->Act(subject));
  if (checks.Register() != 0) return Remarked("not registered anew");
  checks.Run(result);
  forking->Finish(subject);
  result.remark = subject.remark;
  return result;
}

Result GrownThenLibraryFork(const Settings& settings) {
  return GrownThenForked(settings, ForkCall::kLibrary);
}

Result GrownThenBareFork(const Settings& settings) {
  return GrownThenForked(settings, ForkCall::kBare);
}

Result FixedBufferFirst(const Settings& settings) {
  const MemoryDevice device(settings.device);
  if (device.context == nullptr) return Remarked("no device");
  Region region = MakeBuffer(settings);
  Subject subject = SubjectOf(settings, region);
  Checks checks(device, subject);
  const std::unique_ptr<Operation> reading = MakeFixedBuffer();
  reading->Prepare(subject);
  if (!subject.skipped.empty()) return Remarked("skipped: " + subject.skipped);
  if (checks.Register() != 0) return Remarked("not registered");
  Result result;
  result.error = NameOf(reading->Act(subject));
  checks.Run(result);
  checks.Deregister();
  Fill(Pattern::kFirst, subject.at, region.part, subject.check_length);
  const std::string error = NameOf(reading->Act(subject));
  subject.Remark("after deregistration: " + (error == "-" ? "" : error + " ") +
                 Look(subject.at, region.part, subject.check_length, subject.brought));
  result.remark = subject.remark;
  return result;
}

Result FreedAlike(const Settings& settings) {
  const MemoryDevice device(settings.device);
  if (device.context == nullptr) return Remarked("no device");
  Region region = MakeBuffer(settings);
  Subject subject = SubjectOf(settings, region);
  Checks checks(device, subject);
  if (checks.Register() != 0) return Remarked("not registered");
  Result result;
  result.error = NameOf(madvise(subject.at, region.part_length, MADV_DONTNEED) == 0 ? 0 : errno);
  checks.DeviceLooksFirst();
  checks.Run(result);
  result.remark = subject.remark;
  return result;
}

// The number of page faults in kPasses passes that write to every page.
int64_t FaultsOfPasses(uint8_t* at, size_t length) {
  constexpr int kPasses = 20;
  rusage before = {};
  getrusage(RUSAGE_SELF, &before);
  for (int pass = 0; pass < kPasses; ++pass) {
    for (size_t offset = 0; offset < length; offset += kPage) {
      const_cast<volatile uint8_t*>(at)[offset] = static_cast<uint8_t>(pass);
    }
  }
  rusage after = {};
  getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

// Without a device a fork costs one page fault for each page.
Result ForkCostsOnce(const Settings& settings) {
  const MemoryDevice device(settings.device);
  if (device.context == nullptr) return Remarked("no device");
  Region region = MakeBuffer(settings);
  if (device.Register(region.data, region.length, true) == nullptr) {
    return Remarked("not registered");
  }
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  const auto pages = static_cast<int64_t>(region.length / kPage);
  return Remarked(FaultsOfPasses(region.data, region.length) < 2 * pages ? "at most one a page"
                                                                         : "more than one a page");
}

// The program does not map device memory: it reads and writes by copies through the library.
Result DeviceMemory(const Settings& settings) {
  const MemoryDevice device(settings.device);
  if (device.context == nullptr) return Remarked("no device");
  ibv_alloc_dm_attr attributes = {};
  attributes.length = kPage;
  ibv_dm* memory = ibv_alloc_dm(device.context, &attributes);
  if (memory == nullptr) return Remarked("none");
  std::vector<uint8_t> bytes(kPage);
  Fill(Pattern::kNew, bytes.data(), 0, kPage);
  if (ibv_memcpy_to_dm(memory, 0, bytes.data(), kPage) != 0) return Remarked("not written");
  const Remote region = {0, ibv_reg_dm_mr(device.pd, memory, 0, kPage, kAccess)};
  if (region.mr == nullptr) return Remarked("not registered");
  Loop loop(device);
  Result result;
  const std::string read_error = loop.Read(region, kPage);
  const bool is_new = Holds(Pattern::kNew, loop.buffer(), 0, kPage);
  result.reads = !read_error.empty() ? "error" : is_new ? "new" : "lost";
  Fill(Pattern::kDevice, loop.buffer(), 0, kPage);
  const std::string write_error = loop.Write(region, kPage);
  const bool copied = ibv_memcpy_from_dm(bytes.data(), memory, 0, kPage) == 0;
  const bool seen = copied && Holds(Pattern::kDevice, bytes.data(), 0, kPage);
  result.writes = !write_error.empty() ? "error" : seen ? "seen" : "not seen";
  return result;
}

}  // namespace

const std::vector<SpecialRow>& SpecialRows() {
  static const auto* const rows = new std::vector<SpecialRow>{
      {"read and write", "device memory", DeviceMemory},
      {"two buffers, the second grown by realloc", "malloc", NeighbourGrows},
      {"grown by mremap, deregistered, fork", "anonymous", GrownThenLibraryFork},
      {"grown by mremap, deregistered, bare fork", "anonymous", GrownThenBareFork},
      {"io_uring fixed buffer, registered after it", "malloc", FixedBufferFirst},
      {"MADV_DONTNEED, alike for program and device", "malloc", FreedAlike},
      {"fork, page faults of the parent's writes", "malloc", ForkCostsOnce},
  };
  return *rows;
}

}  // namespace interop
