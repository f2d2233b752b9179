// The walker's objects: creation and destruction, and refusals.
#include <cerrno>
#include <cstring>

#include "tests/integration/walker.h"

namespace roci::testing {
namespace {

constexpr size_t kMaxDomains = 6;
constexpr size_t kMaxQueues = 8;
constexpr size_t kMaxRegions = 10;
constexpr size_t kMaxHandles = 6;
// More than the requests of all ends together.
constexpr int kFewestEntries = 512;

template <class T>
void Erase(std::vector<std::unique_ptr<T>>& list, const T* gone) {
  std::erase_if(list, [gone](const auto& owned) { return owned.get() == gone; });
}

}  // namespace

void Walker::Open(WalkDevice* device, const char* name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  Expect(list != nullptr, "ibv_get_device_list");
  for (int i = 0; i < count; ++i) {
    if (strcmp(name, ibv_get_device_name(list[i])) == 0) device->context = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  Expect(device->context != nullptr, "ibv_open_device");
  device->gid_index = 1;
  Expect(ibv_query_gid(device->context, 1, 1, &device->gid) == 0, "ibv_query_gid");
}

void Walker::MakeDomain() {
  if (domains_.size() >= kMaxDomains) return;
  WalkDevice* device = &devices_[random_.Below(2)];
  ibv_pd* pd = ibv_alloc_pd(device->context);
  Expect(pd != nullptr, "ibv_alloc_pd");
  domains_.push_back(std::make_unique<Domain>(Domain{device, pd}));
}

void Walker::DropDomain() {
  Domain* domain = Any(domains_);
  if (domain == nullptr) return;
  const int result = ibv_dealloc_pd(domain->pd);
  Expect(result == (domain->users > 0 ? EBUSY : 0), "ibv_dealloc_pd");
  if (result == 0) Erase(domains_, domain);
}

Walker::Domain* Walker::DomainOf(ibv_pd* pd) {
  for (const auto& domain : domains_) {
    if (domain->pd == pd) return domain.get();
  }
  Fail("a PD is lost");
}

void Walker::MakeQueue() {
  if (queues_.size() >= kMaxQueues) return;
  WalkDevice* device = &devices_[random_.Below(2)];
  ibv_comp_channel* channel = nullptr;
  if (random_.Chance(500)) {
    channel = ibv_create_comp_channel(device->context);
    Expect(channel != nullptr, "ibv_create_comp_channel");
  }
  const int entries = kFewestEntries + static_cast<int>(random_.Below(500));
  ibv_cq_ex* extended = nullptr;
  ibv_cq* cq = nullptr;
  if (random_.Chance(500)) {
    ibv_cq_init_attr_ex init = {};
    init.cqe = static_cast<uint32_t>(entries);
    init.channel = channel;
    init.wc_flags = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    // The walker is one thread.
    init.flags = random_.Chance(300) ? uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED} : 0;
    extended = ibv_create_cq_ex(device->context, &init);
    Expect(extended != nullptr, "ibv_create_cq_ex");
    cq = ibv_cq_ex_to_cq(extended);
  } else {
    cq = ibv_create_cq(device->context, entries, nullptr, channel, 0);
    Expect(cq != nullptr, "ibv_create_cq");
  }
  queues_.push_back(std::make_unique<Queue>(Queue{device, cq, channel, extended}));
}

void Walker::DropQueue() {
  Queue* queue = Any(queues_);
  if (queue == nullptr) return;
  if (queue->channel != nullptr) {
    Expect(ibv_destroy_comp_channel(queue->channel) == EBUSY, "ibv_destroy_comp_channel in use");
  }
  const int result = ibv_destroy_cq(queue->cq);
  Expect(result == (queue->users > 0 ? EBUSY : 0), "ibv_destroy_cq");
  if (result != 0) return;
  if (queue->channel != nullptr) {
    Expect(ibv_destroy_comp_channel(queue->channel) == 0, "ibv_destroy_comp_channel");
  }
  Erase(queues_, queue);
}

Walker::Queue* Walker::QueueOf(ibv_cq* cq) {
  for (const auto& queue : queues_) {
    if (queue->cq == cq) return queue.get();
  }
  Fail("a CQ is lost");
}

void Walker::ResizeQueue() {
  Queue* queue = Any(queues_);
  if (queue == nullptr) return;
  const int entries = kFewestEntries + static_cast<int>(random_.Below(2000));
  Expect(ibv_resize_cq(queue->cq, entries) == 0, "ibv_resize_cq");
  Expect(queue->cq->cqe >= entries, "a CQ smaller than asked for");
}

void Walker::NotifyQueue() {
  Queue* queue = Any(queues_);
  if (queue != nullptr) {
    Expect(ibv_req_notify_cq(queue->cq, random_.Chance(500)) == 0, "ibv_req_notify_cq");
  }
}

void Walker::MakeRegion() {
  Domain* domain = Any(domains_);
  if (domain == nullptr || regions_.size() >= kMaxRegions) return;
  auto region = std::make_unique<Region>();
  region->domain = domain;
  region->bytes.resize(random_.Between(1, 100'000));
  region->mr = ibv_reg_mr(domain->pd, region->bytes.data(), region->bytes.size(),
                          random_.Chance(500) ? IBV_ACCESS_LOCAL_WRITE : 0);
  Expect(region->mr != nullptr, "ibv_reg_mr");
  ++domain->users;
  regions_.push_back(std::move(region));
}

void Walker::ChangeRegion() {
  Region* region = Any(regions_);
  if (region == nullptr) return;
  const size_t length = random_.Between(1, region->bytes.size());
  Expect(ibv_rereg_mr(region->mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
                      nullptr, region->bytes.data(), length, IBV_ACCESS_LOCAL_WRITE) == 0,
         "ibv_rereg_mr");
}

void Walker::DropRegion() {
  Region* region = Any(regions_);
  if (region == nullptr) return;
  Expect(ibv_dereg_mr(region->mr) == 0, "ibv_dereg_mr");
  --region->domain->users;
  Erase(regions_, region);
}

void Walker::MakeHandle() {
  Domain* domain = Any(domains_);
  if (domain == nullptr || handles_.size() >= kMaxHandles) return;
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = devices_[random_.Below(2)].gid;
  attr.grh.sgid_index = domain->device->gid_index;
  attr.grh.hop_limit = 64;
  ibv_ah* ah = ibv_create_ah(domain->pd, &attr);
  Expect(ah != nullptr, "ibv_create_ah");
  ++domain->users;
  handles_.push_back(std::make_unique<Handle>(Handle{domain, ah}));
}

void Walker::DropHandle() {
  Handle* handle = Any(handles_);
  if (handle == nullptr) return;
  Expect(ibv_destroy_ah(handle->ah) == 0, "ibv_destroy_ah");
  --handle->domain->users;
  Erase(handles_, handle);
}

void Walker::CleanUp() {
  while (!ends_.empty()) DestroyEnd(ends_.back().get());
  while (!srqs_.empty()) DropSrq();
  while (!handles_.empty()) DropHandle();
  while (!regions_.empty()) DropRegion();
  while (!queues_.empty()) DropQueue();
  while (!domains_.empty()) DropDomain();
  for (WalkDevice& device : devices_) {
    Expect(ibv_close_device(device.context) == 0, "ibv_close_device");
  }
}

}  // namespace roci::testing
