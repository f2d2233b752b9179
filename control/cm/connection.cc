#include "control/cm/connection.h"

#include <iterator>

namespace roci::control::cm {
namespace {

struct Rule {
  MessageType message;
  State state;
  Action action;
};

// All other messages are ignored (IBTA vol 1, 12.9.7 and 12.9.8).
constexpr Rule kRules[] = {
    {MessageType::kReq, State::kReqReceived, Action::kAskPatience},
    {MessageType::kReq, State::kMraReqSent, Action::kAskPatience},
    {MessageType::kReq, State::kRepSent, Action::kRepeatLast},
    {MessageType::kReq, State::kMraRepReceived, Action::kRepeatLast},
    {MessageType::kReq, State::kRejected, Action::kRepeatLast},
    {MessageType::kReq, State::kDreqSent, Action::kRejectStale},
    {MessageType::kReq, State::kTimewait, Action::kRejectStale},

    {MessageType::kRep, State::kReqSent, Action::kTakeReply},
    {MessageType::kRep, State::kMraReqReceived, Action::kTakeReply},
    {MessageType::kRep, State::kRepReceived, Action::kAskPatience},
    {MessageType::kRep, State::kMraRepSent, Action::kAskPatience},
    {MessageType::kRep, State::kEstablished, Action::kRepeatLast},
    {MessageType::kRep, State::kRejected, Action::kRepeatLast},

    {MessageType::kRtu, State::kRepSent, Action::kTakeReady},
    {MessageType::kRtu, State::kMraRepReceived, Action::kTakeReady},

    {MessageType::kMra, State::kReqSent, Action::kWaitLonger},
    {MessageType::kMra, State::kMraReqReceived, Action::kWaitLonger},
    {MessageType::kMra, State::kRepSent, Action::kWaitLonger},
    {MessageType::kMra, State::kMraRepReceived, Action::kWaitLonger},

    {MessageType::kRej, State::kReqSent, Action::kTakeReject},
    {MessageType::kRej, State::kMraReqReceived, Action::kTakeReject},
    {MessageType::kRej, State::kReqReceived, Action::kTakeReject},
    {MessageType::kRej, State::kMraReqSent, Action::kTakeReject},
    {MessageType::kRej, State::kRepSent, Action::kTakeReject},
    {MessageType::kRej, State::kMraRepReceived, Action::kTakeReject},
    {MessageType::kRej, State::kRepReceived, Action::kTakeReject},
    {MessageType::kRej, State::kMraRepSent, Action::kTakeReject},
    {MessageType::kRej, State::kEstablished, Action::kEndByPeer},
    {MessageType::kRej, State::kDreqSent, Action::kEndByPeer},

    {MessageType::kDreq, State::kRepSent, Action::kEndByPeer},
    {MessageType::kDreq, State::kMraRepReceived, Action::kEndByPeer},
    {MessageType::kDreq, State::kRepReceived, Action::kEndByPeer},
    {MessageType::kDreq, State::kMraRepSent, Action::kEndByPeer},
    {MessageType::kDreq, State::kEstablished, Action::kEndByPeer},
    {MessageType::kDreq, State::kDreqSent, Action::kEndByPeer},
    {MessageType::kDreq, State::kTimewait, Action::kRepeatRelease},
    {MessageType::kDreq, State::kRejected, Action::kRepeatRelease},

    {MessageType::kDrep, State::kDreqSent, Action::kEndByUs},
    {MessageType::kLap, State::kEstablished, Action::kRefusePath},
};

}  // namespace

Action ActionOf(MessageType message, State state) {
  for (const Rule& rule : kRules) {
    if (rule.message == message && rule.state == state) return rule.action;
  }
  return Action::kIgnore;
}

}  // namespace roci::control::cm
