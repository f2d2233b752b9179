// An ordinary libibverbs program that prints its asynchronous events, and what has become of the
// objects that they name. Ends by itself, destroying its objects, after COUNT events, or after
// IBV_EVENT_DEVICE_FATAL, when it tries to open the device again.
//
// Usage: event_probe DEVICE COUNT
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Objects {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* with_srq = nullptr;
  ibv_qp* plain = nullptr;
};

[[noreturn]] void Fail(const char* what) {
  std::printf("failed: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

template <class T>
T* Made(T* object, const char* what) {
  if (object == nullptr) Fail(what);
  return object;
}

ibv_context* Open(const char* name) {
  ibv_device** devices = Made(ibv_get_device_list(nullptr), "ibv_get_device_list");
  ibv_context* context = nullptr;
  for (ibv_device** each = devices; *each != nullptr && context == nullptr; ++each) {
    if (std::strcmp(ibv_get_device_name(*each), name) == 0) context = ibv_open_device(*each);
  }
  ibv_free_device_list(devices);
  return Made(context, "ibv_open_device");
}

ibv_qp* MakeQp(const Objects& objects, ibv_srq* srq) {
  ibv_qp_init_attr init = {};
  init.send_cq = objects.cq;
  init.recv_cq = objects.cq;
  init.srq = srq;
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = Made(ibv_create_qp(objects.pd, &init), "ibv_create_qp");
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  if (ibv_modify_qp(qp, &attr, mask) != 0) Fail("ibv_modify_qp");
  return qp;
}

Objects Make(const char* device) {
  Objects objects;
  objects.context = Open(device);
  objects.pd = Made(ibv_alloc_pd(objects.context), "ibv_alloc_pd");
  objects.cq = Made(ibv_create_cq(objects.context, 16, nullptr, nullptr, 0), "ibv_create_cq");
  ibv_srq_init_attr init = {};
  init.attr = {16, 1, 0};
  objects.srq = Made(ibv_create_srq(objects.pd, &init), "ibv_create_srq");
  objects.with_srq = MakeQp(objects, objects.srq);
  objects.plain = MakeQp(objects, nullptr);
  return objects;
}

int Destroy(const Objects& objects) {
  return ibv_destroy_qp(objects.plain) | ibv_destroy_qp(objects.with_srq) |
         ibv_destroy_srq(objects.srq) | ibv_destroy_cq(objects.cq) | ibv_dealloc_pd(objects.pd);
}

const char* StateOf(ibv_qp* qp) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) != 0) return "unknown";
  return attr.qp_state == IBV_QPS_ERR ? "ERR" : "not ERR";
}

// The object that an event names.
const char* ElementOf(const Objects& objects, const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq == objects.cq ? "cq" : "?";
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq == objects.srq ? "srq" : "?";
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      if (event.element.qp == objects.plain) return "qp";
      return event.element.qp == objects.with_srq ? "qp with srq" : "?";
    case IBV_EVENT_DEVICE_FATAL:
      return "device";
    default:
      return event.element.port_num == 1 ? "port" : "?";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const Objects objects = Make(argv[1]);
  std::printf("ready %u %u\n", objects.plain->qp_num, objects.with_srq->qp_num);
  for (int left = std::atoi(argv[2]); left > 0; --left) {
    ibv_async_event event = {};
    if (ibv_get_async_event(objects.context, &event) != 0) Fail("ibv_get_async_event");
    std::printf("%s of %s; qp %s, qp with srq %s\n", ibv_event_type_str(event.event_type),
                ElementOf(objects, event), StateOf(objects.plain), StateOf(objects.with_srq));
    ibv_ack_async_event(&event);
    if (event.event_type != IBV_EVENT_DEVICE_FATAL) continue;
    if (ibv_alloc_pd(objects.context) != nullptr) Fail("a dead device allocates");
    ibv_context* again = Open(argv[1]);
    Made(ibv_alloc_pd(again), "ibv_alloc_pd after the device was opened again");
    std::printf("open again\n");
    return 0;
  }
  if (Destroy(objects) != 0) Fail("destroy");
  std::printf("destroyed\n");
  return ibv_close_device(objects.context);
}
