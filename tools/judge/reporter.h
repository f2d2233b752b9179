// Where the checks report.
#pragma once

#include <utility>

#include "tools/judge/findings.h"
#include "tools/judge/flow.h"

namespace roci::tools::judge {

class Reporter {
 public:
  explicit Reporter(Findings& findings) : findings_(findings) {}

  // `text` is called only if the finding is kept: most are only counted.
  template <class Text>
  void Say(Rule rule, Certainty certainty, Flow& flow, const FrameRef& frame, Text&& text) {
    if (!findings_.Count(rule, certainty, flow.said[static_cast<size_t>(rule)])) return;
    findings_.Add(rule, certainty, frame, flow.name(), text());
  }
  // Certain: the packet itself is wrong.
  template <class Text>
  void Sure(Rule rule, Flow& flow, const SeenFrame& frame, Text&& text) {
    Say(rule, Certainty::kSure, flow, FrameRef::Of(frame), std::forward<Text>(text));
  }
  // A frame that the capture lacks would explain it. Sure while nothing shows that it lacks any.
  template <class Text>
  void Missing(Rule rule, Flow& flow, const SeenFrame& frame, Text&& text) {
    const bool lacks = flow.may_lack_frames || (flow.peer != nullptr && flow.peer->may_lack_frames);
    Say(rule, lacks ? Certainty::kUnsure : Certainty::kIfWhole, flow, FrameRef::Of(frame),
        std::forward<Text>(text));
  }
  template <class Text>
  void Unsure(Rule rule, Flow& flow, const FrameRef& frame, Text&& text) {
    Say(rule, Certainty::kUnsure, flow, frame, std::forward<Text>(text));
  }

  Findings& findings() { return findings_; }

 private:
  Findings& findings_;
};

}  // namespace roci::tools::judge
