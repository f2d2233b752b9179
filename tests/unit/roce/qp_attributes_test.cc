// The table of state transitions and the value checks of attributes.
#include "roce/qp_attributes.h"

#include <gtest/gtest.h>

#include <vector>

namespace roci::roce {
namespace {

constexpr QpState kAllStates[] = {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts,
                                  QpState::kSqd,   QpState::kSqe,  QpState::kErr};
constexpr QpType kAllTypes[] = {QpType::kRc,      QpType::kUc,      QpType::kUd,
                                QpType::kXrcSend, QpType::kXrcRecv, QpType::kRawPacket};

// The attribute masks that ordinary programs use.
constexpr uint32_t kRcInit = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
constexpr uint32_t kUdInit = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrQkey;
constexpr uint32_t kRcRtr = kAttrState | kAttrAddressVector | kAttrPathMtu | kAttrDestQpn |
                            kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
constexpr uint32_t kUcRtr =
    kAttrState | kAttrAddressVector | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
constexpr uint32_t kRcRts =
    kAttrState | kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrSqPsn | kAttrMaxRdAtomic;

TEST(QpAttributes, OrdinaryProgramsComeUp) {
  const struct {
    QpType type;
    uint32_t init, rtr, rts;
  } cases[] = {
      {QpType::kRc, kRcInit, kRcRtr, kRcRts},
      {QpType::kUc, kRcInit, kUcRtr, kAttrState | kAttrSqPsn},
      {QpType::kUd, kUdInit, kAttrState, kAttrState | kAttrSqPsn},
      {QpType::kXrcSend, kRcInit, kUcRtr, kRcRts},
      {QpType::kXrcRecv, kRcInit, kRcRtr, kAttrState | kAttrTimeout | kAttrSqPsn},
      {QpType::kRawPacket, kAttrState | kAttrPort, kAttrState, kAttrState},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(static_cast<int>(c.type));
    const std::pair<QpState, QpState> steps[] = {{QpState::kReset, QpState::kInit},
                                                 {QpState::kInit, QpState::kRtr},
                                                 {QpState::kRtr, QpState::kRts}};
    const uint32_t masks[] = {c.init, c.rtr, c.rts};
    for (int i = 0; i < 3; ++i) {
      const auto [from, to] = steps[i];
      EXPECT_EQ(CheckModify(c.type, from, to, masks[i]), ModifyResult::kOk);
      // Every attribute in the mask is required.
      for (uint32_t bit = 1; bit < (1u << 26); bit <<= 1) {
        if (bit == kAttrState || (masks[i] & bit) == 0) continue;
        EXPECT_EQ(CheckModify(c.type, from, to, masks[i] & ~bit), ModifyResult::kMissingAttribute);
      }
    }
  }
}

TEST(QpAttributes, OnlyTheLegalTransitions) {
  for (const QpType type : kAllTypes) {
    for (const QpState from : kAllStates) {
      for (const QpState to : kAllStates) {
        const bool unreliable = type == QpType::kUc || type == QpType::kUd;
        const bool legal =
            to == QpState::kReset || (to == QpState::kErr && from != QpState::kReset) ||
            (to == QpState::kInit && (from == QpState::kReset || from == QpState::kInit)) ||
            (to == QpState::kRtr && from == QpState::kInit) ||
            (to == QpState::kRts &&
             (from == QpState::kRtr || from == QpState::kRts || from == QpState::kSqd ||
              (from == QpState::kSqe && unreliable))) ||
            (to == QpState::kSqd && (from == QpState::kRts || from == QpState::kSqd));
        const ModifyResult result = CheckModify(type, from, to, kAttrState);
        EXPECT_EQ(result != ModifyResult::kBadTransition, legal)
            << static_cast<int>(type) << " " << QpStateName(from) << " -> " << QpStateName(to);
      }
    }
  }
}

TEST(QpAttributes, OptionalAttributes) {
  const auto ok = [](QpType type, QpState from, QpState to, uint32_t mask) {
    return CheckModify(type, from, to, kAttrState | mask) == ModifyResult::kOk;
  };
  EXPECT_TRUE(ok(QpType::kRc, QpState::kRts, QpState::kRts, kAttrMinRnrTimer | kAttrAccessFlags));
  EXPECT_TRUE(ok(QpType::kRc, QpState::kRts, QpState::kSqd, kAttrSqdNotify));
  EXPECT_TRUE(ok(QpType::kRc, QpState::kSqd, QpState::kSqd, kAttrTimeout | kAttrAddressVector));
  EXPECT_TRUE(ok(QpType::kRc, QpState::kSqd, QpState::kRts, kAttrCurState));
  EXPECT_TRUE(ok(QpType::kUd, QpState::kRts, QpState::kRts, kAttrQkey));
  EXPECT_TRUE(ok(QpType::kUd, QpState::kSqe, QpState::kRts, 0));
  const auto refused = [](QpType type, QpState from, QpState to, uint32_t mask) {
    return CheckModify(type, from, to, kAttrState | mask) == ModifyResult::kAttributeNotAllowed;
  };
  EXPECT_TRUE(refused(QpType::kRc, QpState::kRts, QpState::kRts, kAttrQkey));
  EXPECT_TRUE(refused(QpType::kRc, QpState::kRts, QpState::kRts, kAttrSqPsn));
  EXPECT_TRUE(refused(QpType::kRc, QpState::kRts, QpState::kSqd, kAttrTimeout));
  EXPECT_TRUE(refused(QpType::kUd, QpState::kRts, QpState::kRts, kAttrAccessFlags));
  EXPECT_TRUE(refused(QpType::kUc, QpState::kInit, QpState::kRtr, kUcRtr | kAttrMinRnrTimer));
  EXPECT_TRUE(refused(QpType::kRc, QpState::kRts, QpState::kErr, kAttrTimeout));
  EXPECT_TRUE(refused(QpType::kRc, QpState::kReset, QpState::kInit, kRcInit | kAttrCapabilities));
}

TEST(QpAttributes, CurrentStateOnlyWhereItMeansSomething) {
  EXPECT_EQ(CheckModify(QpType::kRc, QpState::kInit, QpState::kInit, kAttrState | kAttrCurState),
            ModifyResult::kBadTransition);
  EXPECT_EQ(CheckModify(QpType::kRc, QpState::kSqd, QpState::kRts, kAttrState | kAttrCurState),
            ModifyResult::kOk);
}

TEST(QpAttributes, ResetAndErrorTakeNothingElse) {
  for (const QpType type : kAllTypes) {
    for (const QpState to : {QpState::kReset, QpState::kErr}) {
      EXPECT_EQ(CheckModify(type, QpState::kRts, to, kAttrState), ModifyResult::kOk);
      EXPECT_EQ(CheckModify(type, QpState::kRts, to, kAttrState | kAttrCurState),
                ModifyResult::kAttributeNotAllowed);
    }
  }
}

TEST(QpAttributes, WithoutAStateTheStateStays) {
  EXPECT_EQ(CheckModify(QpType::kRc, QpState::kRts, QpState::kRts, kAttrMinRnrTimer),
            ModifyResult::kOk);
  EXPECT_EQ(CheckModify(QpType::kRc, QpState::kRts, QpState::kSqd, kAttrSqdNotify),
            ModifyResult::kBadTransition);
}

TEST(QpAttributes, ValuesAreChecked) {
  const QpAttributeLimits limits{};
  const auto check = [&](uint32_t mask, auto change) {
    QpAttributes a;
    a.port = 1;
    change(a);
    return CheckAttributeValues(a, mask, limits);
  };
  using A = QpAttributes;
  constexpr auto kOk = ModifyResult::kOk;
  constexpr auto kBad = ModifyResult::kBadValue;
  EXPECT_EQ(check(kAttrPort, [](A& a) { a.port = 1; }), kOk);
  EXPECT_EQ(check(kAttrPort, [](A& a) { a.port = 0; }), kBad);
  EXPECT_EQ(check(kAttrPort, [](A& a) { a.port = 2; }), kBad);
  EXPECT_EQ(check(kAttrPkeyIndex, [](A& a) { a.pkey_index = 1; }), kBad);
  EXPECT_EQ(check(kAttrPathMtu, [](A& a) { a.path_mtu = PathMtu::k4096; }), kOk);
  EXPECT_EQ(check(kAttrTimeout, [](A& a) { a.timeout = 31; }), kOk);
  EXPECT_EQ(check(kAttrTimeout, [](A& a) { a.timeout = 32; }), kBad);
  EXPECT_EQ(check(kAttrRetryCount, [](A& a) { a.retry_count = 7; }), kOk);
  EXPECT_EQ(check(kAttrRetryCount, [](A& a) { a.retry_count = 8; }), kBad);
  EXPECT_EQ(check(kAttrRnrRetry, [](A& a) { a.rnr_retry = 8; }), kBad);
  EXPECT_EQ(check(kAttrMinRnrTimer, [](A& a) { a.min_rnr_timer = 32; }), kBad);
  EXPECT_EQ(check(kAttrMaxRdAtomic, [](A& a) { a.max_rd_atomic = 16; }), kOk);
  EXPECT_EQ(check(kAttrMaxRdAtomic, [](A& a) { a.max_rd_atomic = 17; }), kBad);
  EXPECT_EQ(check(kAttrMaxDestRdAtomic, [](A& a) { a.max_dest_rd_atomic = 17; }), kBad);
  // Attributes that the mask does not name are not checked.
  EXPECT_EQ(check(kAttrPort, [](A& a) { a.timeout = 200; }), kOk);
  EXPECT_EQ(check(kAttrPathMigState, [](A& a) { a.path_mig_state = kPathMigrated; }), kOk);
  EXPECT_EQ(check(kAttrPathMigState, [](A& a) { a.path_mig_state = 1; }),
            ModifyResult::kUnsupported);
  EXPECT_EQ(check(kAttrAlternatePath, [](A&) {}), ModifyResult::kUnsupported);
}

}  // namespace
}  // namespace roci::roce
