#include "tools/show/terms.h"

#include <map>

namespace roci::tools {
namespace {

constexpr char kDevices[] = R"(DEVICE     its name, as programs see it
ON         the wire inside the daemon or the DPDK port that carries its frames
LINK       up: the port is active
MTU/PATH   bytes of Ethernet payload, and the largest path MTU that fits with headers
SESSIONS   times that programs have it open
QPS, CQS, MRS   queue pairs, completion queues, memory regions: in use / limit (ibv_query_device(3))
ADDRESSES  one per GID, in the order of the GID table; all RoCE v2. @7: in VLAN 7. CONFLICT: another
           adapter has it, too; see `roci addr show`
)";
// Of everything that a program has made.
constexpr char kWhose[] = "DEVICE, APP   where it is, and whose: name and process number\n";
constexpr char kPorts[] = R"(counters   frames and bytes that the port has sent and received
lost by the port itself   what its driver counts that never came to us (rx_missed: we were too slow;
           rx_no_buffer, rx_errors), or that it did not send (tx_errors)
frames dropped, by reason   what was received and thrown away, and which check it failed
transport  what the queue pairs of the device have met: retries, NAKs, duplicates, ...
messages to the connection manager   datagrams to QP 1: taken, or which check they failed; and
           connections without an owner that had to make room before their time (displaced)
not RoCE   frames for the daemon itself: ARP, IPv6 neighbour discovery, ping
impairments   what `roci impair` has set, and the frames that it has met
`roci show counters` prints those that are zero too.
)";
constexpr char kApps[] = R"(SESSION    number of the connection: one per open device of a program
APP        name and process number
UID        the user that runs it
DEVICE     the device that it has open; "-" before it has opened one, for which it has five seconds
LCORE      the dataplane thread that serves it
PDS, MRS, CQS, QPS, AHS, CHANNELS   objects it has: protection domains, memory regions, completion
           queues, queue pairs, address handles, completion channels
)";
constexpr char kQps[] = R"(QPN        queue pair number on the wire
TYPE       RC (reliable connection), UC (unreliable connection), UD (datagrams), ...
STATE      RESET, INIT, RTR (receives), RTS (receives and sends), SQD (sends drained), SQE, ERR
REMOTE     address and number of the peer's queue pair; "-" where there is none
MTU        path MTU, bytes of payload in a packet
SQ PSN     packet sequence numbers: the oldest that is not acknowledged .. the next for new work
RQ PSN     the packet sequence number that is expected next
WINDOW     packets sent and not acknowledged / how many may be; a loss on a port leaves fewer for a while
TIMER      the acknowledge timeout as given: 4.096 us * 2^TIMER, 0 for none; "*": it runs
RETRY      retries left before the queue pair fails / as given (retry_cnt)
RNR        the same for a peer that is not ready to receive (rnr_retry); 7 is for ever
THROTTLED  the rate to which congestion control holds it; "-": to none
TX PKTS, RX PKTS, DROPS   packets sent, received, and refused by the queue pair
)";
constexpr char kCqs[] = R"(CQ         its handle in the program's session
CAPACITY   entries
QUEUES     send and receive queues that complete into it
CHANNEL    handle of its completion channel; 0 for none
EVENTS     completion events written to that channel
OVERFLOWED yes: it was full when an entry was due, and is of no more use
)";
constexpr char kMrs[] = R"(MR         its handle in the program's session
KIND       region: of the program's memory, or of device memory; null: takes everything, gives
           zeros; window: a memory window, or list: a region that a work request registers, which
           are ranges of other regions
KEY        L_Key and R_Key
PD         handle of its protection domain
ADDRESS    where it begins in the program
LENGTH     bytes
REACHED BY mapped: the daemon has the same memory mapped; process_vm: system calls for each burst;
           mixed: parts of each; regions: as those are that it is a range of
EXTENTS    pieces of memory it is made of
ACCESS     rights that were given to it
)";
constexpr char kLcores[] = R"(LCORE      number of the dataplane thread
SESSIONS   sessions that it serves
BUSY       share of the last quarter of a second in which there was work (--json has the cycles since
           the start: busy_cycles, and idle_cycles, which those asleep are part of)
PRIORITY   of its thread: realtime with the SCHED_FIFO priority, or ordinary (realtime in docs/rocid.toml)
WAITED     how long it could have run while other programs had the processors; much of it slows down
           all RDMA traffic ("-": the kernel does not count it; --json: waited_for_processor_ms, ran_ms)
SLEEPS     times it went to sleep without work
RX PKTS, TX PKTS   packets received and sent by it
COMP EVENTS        events written to completion channels
MEMORY FAULTS      accesses to memory that was not there (any more)
TIMERS     timers of queue pairs that ran out
)";
constexpr char kSrqs[] = R"(SRQ        handle in the program's session
TYPE       basic, XRC, or tags (tag matching)
NUMBER     its number, which XRC senders name
PD         handle of its protection domain
SIZE       receives that it can hold
POSTED     receives that the program has posted since it was created
TAKEN      of these, those that messages have taken
QPS        queue pairs that take from it
LIMIT      fewer receives than this left: the event for it is due; 0: not armed
EVENTS     asynchronous events so far
BROKEN     the program has damaged its ring: nothing is taken any more
)";
constexpr char kConnections[] = R"(ID         the connection manager's number of it
PID        process number of the program
SPACE      port space: tcp, udp, ib or ipoib
STATE      of the identifier: listen, or how far the connection is
DEVICE     ours; empty: none yet
SOURCE, DESTINATION   addresses and ports
QPN, REMOTE QPN       queue pair numbers; 0: not known yet
)";
constexpr char kAddresses[] = R"(DEVICE     ours
GID        index in the GID table; where an address was removed, the link-local one stands again
ADDRESS    with the length of its network's prefix
VLAN       of the address; "-": none, its frames have no tag
CLAIMED BY another adapter that says that it has this address; "-": nobody
)";
constexpr char kRoutes[] = R"(DEVICE     ours
NETWORK    where it leads; 0.0.0.0/0 and ::/0 are the default routes. The longest prefix decides
VIA        the gateway
VLAN       of both; "-": none
STATE      dead: the gateway is in none of the device's networks any more, or its own address; the
           route is passed over until that changes
)";
constexpr char kNeighbours[] = R"(DEVICE     ours
ADDRESS    of the peer, or of the gateway
MAC        its Ethernet address, once it has answered
STATE      reachable; incomplete: asked for
)";

}  // namespace

std::string ExplainColumns(const std::string& what) {
  static const std::map<std::string, const char*> terms = {{"devices", kDevices},
                                                           {"ports", kPorts},
                                                           {"counters", kPorts},
                                                           {"apps", kApps},
                                                           {"qps", kQps},
                                                           {"cqs", kCqs},
                                                           {"srqs", kSrqs},
                                                           {"mrs", kMrs},
                                                           {"connections", kConnections},
                                                           {"lcores", kLcores},
                                                           {"neighbours", kNeighbours},
                                                           {"addresses", kAddresses},
                                                           {"routes", kRoutes}};
  const auto it = terms.find(what);
  if (it == terms.end()) return "";
  const bool made = what == "qps" || what == "cqs" || what == "srqs" || what == "mrs";
  return std::string(it->second) + (made ? kWhose : "");
}

}  // namespace roci::tools
