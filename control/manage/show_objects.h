// The objects of programs as JSON, for `roci show qps`, `cqs`, `srqs` and `mrs`: some at a time,
// since there may be very many, and requests of programs wait meanwhile.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "control/manage/manage_protocol.h"
#include "control/manage/show_memory.h"
#include "control/session/session_server.h"

namespace roci::control {

// The members that tell whose an object is.
nlohmann::json SessionHead(const Session& session);

// Objects that come or go meanwhile may or may not be shown. Control thread.
class ShownObjects {
 public:
  // Objects that one call of AddSome adds.
  static constexpr size_t kMostInPart = 64;

  // `kind`: kQps, kCqs, kSrqs or kMrs. `sessions` outlives this object.
  ShownObjects(const SessionServer& sessions, ShowKind kind) : sessions_(sessions), kind_(kind) {}

  // Appends objects to `out`, each with a comma behind it. False: none is left.
  bool AddSome(std::string& out);

 private:
  // Appends objects of the session to `rows`. False: it has no more.
  bool AddSomeOf(const Session& session, nlohmann::json& rows);
  bool AddQps(const Session& session, nlohmann::json& rows);
  bool AddCqs(const Session& session, nlohmann::json& rows);
  bool AddSrqs(const Session& session, nlohmann::json& rows);

  const SessionServer& sessions_;
  const ShowKind kind_;
  uint32_t session_ = 0;      // the first one that is not done
  uint32_t next_handle_ = 0;  // of that session
  MemoryRows regions_;        // of that session
};

}  // namespace roci::control
