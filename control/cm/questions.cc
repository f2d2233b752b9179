#include "control/cm/questions.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "control/cm/queue_pair_attributes.h"
#include "control/cm/route_queries.h"
#include "control/cm/verbs_numbers.h"
#include "control/loop/errno_status.h"

namespace roci::control::cm {
namespace {

constexpr size_t kMaxAnswerBytes =
    std::max({sizeof(rdma_ucm_query_addr_resp), kPathAnswerBytes, sizeof(ib_uverbs_qp_attr)});
struct Answer {
  alignas(8) std::array<std::byte, kMaxAnswerBytes> bytes;
  size_t size = 0;

  template <class T>
  absl::Status Set(const T& value) {
    static_assert(sizeof(T) <= kMaxAnswerBytes);
    std::memcpy(bytes.data(), &value, sizeof(T));
    size = sizeof(T);
    return absl::OkStatus();
  }
};

absl::Status AnswerQuery(const CmId& id, uint32_t what, Answer& out) {
  rdma_ucm_query_addr_resp addresses = {};
  switch (what) {
    case RDMA_USER_CM_QUERY_ADDR:
      QueryAddress(id, addresses);
      return out.Set(addresses);
    case RDMA_USER_CM_QUERY_GID:
      QueryGids(id, addresses);
      return out.Set(addresses);
    case RDMA_USER_CM_QUERY_PATH:
      out.size = QueryPath(id, std::span(out.bytes).first<kPathAnswerBytes>());
      return absl::OkStatus();
    default:
      return StatusFromErrno(ENOSYS, "unknown query");
  }
}

absl::Status AnswerTo(const CmId& id, const Question& question, Answer& out) {
  if (question.command == RDMA_USER_CM_CMD_QUERY) {
    return AnswerQuery(id, question.what, out);
  }
  ib_uverbs_qp_attr attributes = {};
  const absl::Status status = InitQpAttr(id, question.what, attributes);
  return status.ok() ? out.Set(attributes) : status;
}

constexpr Question kAddress = {RDMA_USER_CM_CMD_QUERY, RDMA_USER_CM_QUERY_ADDR};
constexpr Question kGids = {RDMA_USER_CM_CMD_QUERY, RDMA_USER_CM_QUERY_GID};
constexpr Question kPath = {RDMA_USER_CM_CMD_QUERY, RDMA_USER_CM_QUERY_PATH};
constexpr Question kToInit = {RDMA_USER_CM_CMD_INIT_QP_ATTR, kQpInit};
constexpr Question kToRtr = {RDMA_USER_CM_CMD_INIT_QP_ATTR, kQpRtr};
constexpr Question kToRts = {RDMA_USER_CM_CMD_INIT_QP_ATTR, kQpRts};

std::span<const Question> QuestionsAfter(Occasion occasion) {
  static constexpr Question kAddresses[] = {kAddress, kGids};
  static constexpr Question kRoute[] = {kPath, kToInit};
  static constexpr Question kRequest[] = {kAddress, kGids, kPath, kToInit, kToRtr, kToRts};
  static constexpr Question kStates[] = {kToInit, kToRtr, kToRts};
  switch (occasion) {
    case Occasion::kOther:
      return {};
    case Occasion::kBound:
    case Occasion::kAddressResolved:
      return kAddresses;
    case Occasion::kRouteResolved:
      return kRoute;
    case Occasion::kConnectRequest:
      return kRequest;
    case Occasion::kConnectResponse:
    case Occasion::kQpAttributes:
      return kStates;
  }
  return {};
}

uint32_t RoundUp(size_t bytes) { return static_cast<uint32_t>((bytes + 7) & ~size_t{7}); }

}  // namespace

absl::Status PutAnswer(const CmId& id, const Question& question, roci_abi_cm_response& out) {
  Answer answer;
  const absl::Status status = AnswerTo(id, question, answer);
  if (!status.ok()) return status;
  std::memcpy(out.data, answer.bytes.data(), answer.size);
  out.out_size = static_cast<uint32_t>(answer.size);
  return absl::OkStatus();
}

Occasion OccasionOf(uint32_t command) {
  switch (command) {
    case RDMA_USER_CM_CMD_BIND:
      return Occasion::kBound;
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
      return Occasion::kQpAttributes;
    default:
      return Occasion::kOther;
  }
}

Occasion OccasionOfEvent(uint32_t event) {
  switch (event) {
    case ROCI_ABI_CM_EVENT_ADDR_RESOLVED:
      return Occasion::kAddressResolved;
    case ROCI_ABI_CM_EVENT_ROUTE_RESOLVED:
      return Occasion::kRouteResolved;
    case ROCI_ABI_CM_EVENT_CONNECT_REQUEST:
      return Occasion::kConnectRequest;
    case ROCI_ABI_CM_EVENT_CONNECT_RESPONSE:
      return Occasion::kConnectResponse;
    default:
      return Occasion::kOther;
  }
}

void PrefetchAnswers(const CmId& id, Occasion occasion, roci_abi_cm_response& out) {
  for (const Question& question : QuestionsAfter(occasion)) {
    Answer answer;
    if (!AnswerTo(id, question, answer).ok()) continue;
    const roci_abi_cm_prefetched head = {question.command, id.number, question.what,
                                         RoundUp(answer.size)};
    const uint32_t at = RoundUp(out.data_size);
    if (at + sizeof(head) + head.size > sizeof(out.data)) return;
    std::memcpy(out.data + at, &head, sizeof(head));
    std::memcpy(out.data + at + sizeof(head), answer.bytes.data(), answer.size);
    out.data_size = static_cast<uint32_t>(at + sizeof(head) + head.size);
  }
}

}  // namespace roci::control::cm
