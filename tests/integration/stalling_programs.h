// Programs whose memory stalls the daemon's accesses, for measurements of how they affect others.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {

// For programs that must survive stalls of other programs: 8 tries of 1.1 s each.
EndpointOptions PatientOptions();

// Each of these functions is a whole program. It reports on standard output when its memory stalls
// accesses (StallingProcess), and runs until it is killed. It returns only if the machine refuses a
// feature that it needs, after it has reported the reason.

// Registers, WRITEs and deregisters, over and over, to be stopped at any moment.
void RegisterAndWrite();
// WRITEs to pages that are never served (userfaultfd).
void WriteToMissingPages();
// WRITEs, over and over, to a mapped file that is not in the page cache.
void WriteToColdFile();
// WRITEs to a page of a FUSE file whose server does not answer reads.
void WriteToSilentFuseFile();
// WRITEs, over and over, to pages that are in a swap file, which is in use until the program ends.
void WriteToSwappedPages();

// A process that runs this executable with other arguments, which must call one of the functions
// above. The destructor kills it, and waits until its helpers have ended, too.
class StallingProcess {
 public:
  explicit StallingProcess(const std::vector<std::string>& arguments);
  ~StallingProcess();
  StallingProcess(const StallingProcess&) = delete;
  StallingProcess& operator=(const StallingProcess&) = delete;

  enum class State {
    kAtWork,
    kRefused,  // by the machine; refusal() is the reason
    kFailed,   // the process has ended
  };
  // Waits for the report of the program.
  State AwaitReport();
  const std::string& refusal() const { return refusal_; }

  // Waits until all threads are stopped.
  void Stop() const;
  void Continue() const;

 private:
  void AwaitHelpers() const;

  pid_t pid_ = -1;
  int output_ = -1;
  std::string refusal_;
};

}  // namespace roci::testing
