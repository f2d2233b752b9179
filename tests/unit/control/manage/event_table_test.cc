// The numbers and names of asynchronous events are those of enum ibv_event_type.
#include "control/manage/event_table.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"

namespace roci::control {
namespace {

struct VerbsEvent {
  uint32_t number;  // the project's
  ibv_event_type type;
  const char* type_name;
};

#define ROCI_VERBS_EVENT(number, type) \
  { dataplane::number, type, #type }
constexpr VerbsEvent kVerbsEvents[] = {
    ROCI_VERBS_EVENT(kEventCqError, IBV_EVENT_CQ_ERR),
    ROCI_VERBS_EVENT(kEventQpFatal, IBV_EVENT_QP_FATAL),
    ROCI_VERBS_EVENT(kEventQpRequestError, IBV_EVENT_QP_REQ_ERR),
    ROCI_VERBS_EVENT(kEventQpAccessError, IBV_EVENT_QP_ACCESS_ERR),
    ROCI_VERBS_EVENT(kEventCommunicationEstablished, IBV_EVENT_COMM_EST),
    ROCI_VERBS_EVENT(kEventSendQueueDrained, IBV_EVENT_SQ_DRAINED),
    ROCI_VERBS_EVENT(kEventPathMigrated, IBV_EVENT_PATH_MIG),
    ROCI_VERBS_EVENT(kEventPathRequestError, IBV_EVENT_PATH_MIG_ERR),
    ROCI_VERBS_EVENT(kEventDeviceFatal, IBV_EVENT_DEVICE_FATAL),
    ROCI_VERBS_EVENT(kEventPortActive, IBV_EVENT_PORT_ACTIVE),
    ROCI_VERBS_EVENT(kEventPortError, IBV_EVENT_PORT_ERR),
    ROCI_VERBS_EVENT(kEventLidChange, IBV_EVENT_LID_CHANGE),
    ROCI_VERBS_EVENT(kEventPkeyChange, IBV_EVENT_PKEY_CHANGE),
    ROCI_VERBS_EVENT(kEventSmChange, IBV_EVENT_SM_CHANGE),
    ROCI_VERBS_EVENT(kEventSrqError, IBV_EVENT_SRQ_ERR),
    ROCI_VERBS_EVENT(kEventSrqLimitReached, IBV_EVENT_SRQ_LIMIT_REACHED),
    ROCI_VERBS_EVENT(kEventLastWqeReached, IBV_EVENT_QP_LAST_WQE_REACHED),
    ROCI_VERBS_EVENT(kEventClientReregister, IBV_EVENT_CLIENT_REREGISTER),
    ROCI_VERBS_EVENT(kEventGidChange, IBV_EVENT_GID_CHANGE),
    ROCI_VERBS_EVENT(kEventWorkQueueFatal, IBV_EVENT_WQ_FATAL),
};
#undef ROCI_VERBS_EVENT

TEST(EventTableTest, NumbersAreThoseOfVerbs) {
  ASSERT_EQ(std::size(kVerbsEvents), size_t{IBV_EVENT_WQ_FATAL} + 1) << "one of them is missing";
  for (const VerbsEvent& each : kVerbsEvents) {
    EXPECT_EQ(each.number, static_cast<uint32_t>(each.type)) << each.type_name;
  }
}

TEST(EventTableTest, NamesAreThoseOfVerbs) {
  EXPECT_EQ(kEventTable.size(), std::size(kVerbsEvents));
  for (const VerbsEvent& each : kVerbsEvents) {
    const auto row = std::ranges::find(kEventTable, each.number, &EventRow::number);
    ASSERT_NE(row, kEventTable.end()) << each.type_name;
    EXPECT_EQ("ibv_event_" + std::string(row->name), absl::AsciiStrToLower(each.type_name));
  }
}

}  // namespace
}  // namespace roci::control
