// Recorded traffic of other implementations, from tests/vectors, and a replay in which our queue
// pair replaces one side.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {

struct Recorded {
  WirePacket packet;
  Gid src, dst;
};

constexpr char kNicToNic[] = "nic-to-nic";  // the other captures are of Linux's soft-RoCE

std::string CaptureFile(const std::string& name);

// The packets of one transport service.
std::vector<Recorded> Load(const std::string& name, Transport transport = Transport::kRc);

// The RC packets of each pair of queue pairs. A packet carries only the number of the receiving
// queue pair; the responses with the same PSN identify the sender of a request.
using Conversation = std::vector<Recorded>;
std::vector<Conversation> LoadConversations(const std::string& name);

bool HasReth(const WirePacket& packet);
bool HasAtomicEth(const WirePacket& packet);
NodeOptions OptionsFor(const std::vector<Recorded>& recorded, Psn first);

struct Split {
  std::vector<Recorded> requests, answers;
};
Split SplitBy(const std::vector<Recorded>& recorded, const Gid& asker);
// The GIDs of all requesters in a capture.
std::vector<Gid> Askers(const std::vector<Recorded>& recorded);

// Grants one key per region that the requests access, for exactly the accessed bytes.
void GrantWhatIsNamed(ScriptedHost& host, const std::vector<Recorded>& requests);
// Fills our memory with the contents that Linux's memory had when it received `request`, as far as
// Linux's response contains them. The operand of an atomic is filled once per address: our own
// arithmetic must produce the later values.
void FillForRequest(ScriptedHost& host, const std::vector<Recorded>& answers,
                    const WirePacket& request, uint32_t mtu_bytes,
                    std::set<uint64_t>& seen_atomics);
void PostReceives(Node& node, int count);
// Posts work requests that produce the recorded requests, with the payloads in our memory. The last
// may be a WRITE whose end was not recorded.
void PostFromRequests(Node& node, const std::vector<Recorded>& requests);

void ExpectSameAnswer(const WirePacket& ours, const WirePacket& theirs);
void ExpectSameRequest(const WirePacket& ours, const WirePacket& theirs);

}  // namespace roci::roce
