// The judge of captures: gets the records of one capture in order, and says which of the rules of
// RoCEv2 their senders break. Sans I/O; bounded memory for each flow.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tools/decode/capture_file.h"
#include "tools/judge/cm_messages.h"
#include "tools/judge/congestion.h"
#include "tools/judge/findings.h"
#include "tools/judge/flow_table.h"
#include "tools/judge/own_copies.h"
#include "tools/judge/seen_frame.h"

namespace roci::tools::judge {

struct JudgeTotals {
  uint64_t frames = 0, bytes = 0;
  uint64_t roce = 0;        // RoCEv2
  uint64_t v1 = 0;          // RoCEv1, not judged
  uint64_t hidden = 0;      // may be RoCE, not decoded
  uint64_t cut = 0;         // cut within the headers
  uint64_t unchecked = 0;   // cut within the payload: the ICRC is not checked
  uint64_t unfollowed = 0;  // of flows beyond the limit
  uint64_t dropped = 0;     // which the capture lacks by its own account
  uint64_t own_copies = 0;  // received by the adapter that sent them: judged as sent
};

class Judge {
 public:
  explicit Judge(uint32_t most_per_flow = Findings::kMostPerFlow)
      : findings_(most_per_flow), out_(findings_) {}
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;

  void Add(const CaptureRecord& record);
  // The capture has ended. `dropped`: frames that the capture reports as lost.
  void Finish(uint64_t dropped = 0);

  const Findings& findings() const { return findings_; }
  const JudgeTotals& totals() const { return totals_; }
  const FlowTable& flows() const { return flows_; }
  const CmTotals& cm() const { return cm_.totals(); }
  const CongestionWatch& congestion() const { return congestion_; }

 private:
  Flow* FlowOf(const SeenFrame& frame);
  void TakeMalformed();
  void TakePacket(Flow& flow);
  void TakeDamaged(Flow& flow);
  void Learn(const LearnedPair& pair);

  FrameParser parser_;
  SeenFrame frame_;
  Findings findings_;
  Reporter out_;
  FlowTable flows_;
  OwnCopies own_copies_;
  CmMessages cm_;
  CongestionWatch congestion_;
  JudgeTotals totals_;
  int64_t last_ns_ = 0;
};

}  // namespace roci::tools::judge
