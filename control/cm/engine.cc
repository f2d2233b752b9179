// The engine's tables and timers.
#include "control/cm/engine.h"

#include <algorithm>
#include <cassert>

namespace roci::control::cm {

Engine::Engine(const EngineConfig& config, uint64_t seed) : config_(config), random_(seed) {}

const Connection* Engine::Find(uint32_t id) const {
  const auto it = connections_.find(id);
  return it == connections_.end() ? nullptr : it->second.get();
}

Connection* Engine::Get(uint32_t id) { return const_cast<Connection*>(Find(id)); }

bool Engine::MakeRoom() {
  if (connections_.size() < config_.max_connections) return true;
  const auto most = std::max_element(
      left_behind_.begin(), left_behind_.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (most == left_behind_.end()) return false;
  ++displaced_;
  Forget(*Get(most->second.begin()->second));
  return true;
}

void Engine::LeaveBehind(Connection& connection) {
  connection.owner = 0;
  if (connection.left != 0) return;
  connection.left = ++last_left_;
  left_behind_[connection.account].emplace(connection.left, connection.local_id);
}

Connection* Engine::Add() {
  if (!MakeRoom()) return nullptr;
  uint32_t id = 0;
  while (id == 0 || connections_.contains(id)) id = static_cast<uint32_t>(random_.Next());
  auto connection = std::make_unique<Connection>();
  connection->local_id = id;
  return connections_.emplace(id, std::move(connection)).first->second.get();
}

void Engine::SetDeadline(Connection& connection, roce::TimeNs deadline) {
  if (connection.deadline != roce::kNever) {
    timers_.erase({connection.deadline, connection.local_id});
  }
  connection.deadline = deadline;
  if (deadline != roce::kNever) timers_.insert({deadline, connection.local_id});
}

void Engine::DropIndexes(Connection& connection) {
  if (connection.indexed_by_qpn) peer_qpns_.erase({connection.remote_guid, connection.remote_qpn});
  connection.indexed_by_qpn = false;
}

void Engine::Forget(Connection& connection) {
  DropIndexes(connection);
  SetDeadline(connection, roce::kNever);
  if (connection.indexed_by_peer && connection.is_datagram) {
    sidr_peers_.erase({FarEndOf(connection.path), connection.remote_id});
  } else if (connection.indexed_by_peer) {
    peers_.erase({connection.remote_guid, connection.remote_id});
  }
  if (connection.left != 0) {
    const auto account = left_behind_.find(connection.account);
    account->second.erase(connection.left);
    if (account->second.empty()) left_behind_.erase(account);
  }
  connections_.erase(connection.local_id);
}

void Engine::SendOnce(Connection& connection, Body body) {
  connection.last = BuildMad({connection.transaction, body});
  outgoing_.push_back({connection.path, connection.last});
}

void Engine::SendRepeatedly(roce::TimeNs now, Connection& connection, Body body) {
  SendOnce(connection, body);
  connection.retries = connection.max_retries;
  SetDeadline(connection, now + connection.response_timeout);
}

void Engine::Tell(const Connection& connection, EventKind kind, Body body) {
  const bool is_new = kind == EventKind::kRequest || kind == EventKind::kDatagramRequest;
  if (connection.owner == 0 && !is_new) return;
  events_.push_back({kind, connection.local_id, connection.owner, connection.path, body});
}

bool Engine::IndexByQpn(Connection& connection) {
  const PeerKey key{connection.remote_guid, connection.remote_qpn};
  connection.indexed_by_qpn = peer_qpns_.emplace(key, connection.local_id).second;
  return connection.indexed_by_qpn;
}

// Timewait lasts until no copy of our messages can be in flight (IBTA vol 1, 12.9.8.4).
void Engine::EnterTimewait(roce::TimeNs now, Connection& connection) {
  DropIndexes(connection);
  connection.state = State::kTimewait;
  SetDeadline(connection, now + 2 * roce::TimeoutNs(config_.packet_life_time));
}

// The request is answered. Keeps the answer for copies of the request that are still in flight; a
// later copy counts as a new request.
void Engine::Linger(roce::TimeNs now, Connection& connection, State state) {
  DropIndexes(connection);
  LeaveBehind(connection);
  connection.state = state;
  SetDeadline(connection, now + 2 * roce::TimeoutNs(config_.packet_life_time));
}

roce::TimeNs Engine::PeerTime(uint8_t exponent) const {
  return roce::TimeoutNs(std::min(exponent, config_.max_peer_timeout));
}

void Engine::BeginRelease(roce::TimeNs now, Connection& connection) {
  connection.state = State::kDreqSent;
  connection.transaction = random_.Next();
  SendRepeatedly(now, connection,
                 Dreq{connection.local_id, connection.remote_id, connection.remote_qpn, {}});
}

void Engine::RepeatOrGiveUp(roce::TimeNs now, Connection& c) {
  switch (c.state) {
    case State::kTimewait:
      Tell(c, EventKind::kTimewaitOver);
      return Forget(c);
    case State::kRejected:
    case State::kSidrAnswered:
      return Forget(c);
    default:
      break;
  }
  if (c.retries > 0) {
    --c.retries;
    if (c.state == State::kMraReqReceived) c.state = State::kReqSent;
    if (c.state == State::kMraRepReceived) c.state = State::kRepSent;
    outgoing_.push_back({c.path, c.last});
    return SetDeadline(c, now + c.response_timeout);
  }
  switch (c.state) {
    case State::kReqSent:
    case State::kMraReqReceived:
      Tell(c, EventKind::kUnreachable);
      return AbandonRequest(c);
    case State::kRepSent:
    case State::kMraRepReceived:
      // Only the RTUs may have been lost: the peer may consider the connection established.
      Tell(c, EventKind::kUnreachable);
      LeaveBehind(c);
      return BeginRelease(now, c);
    case State::kDreqSent:
      Tell(c, EventKind::kDisconnected);
      return EnterTimewait(now, c);
    case State::kSidrReqSent:
      Tell(c, EventKind::kDatagramUnreachable);
      return Forget(c);
    default:
      assert(false);
  }
}

void Engine::HandleTimeout(roce::TimeNs now) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Connection* c = Get(timers_.begin()->second);
    assert(c != nullptr);
    SetDeadline(*c, roce::kNever);
    RepeatOrGiveUp(now, *c);
  }
}

}  // namespace roci::control::cm
