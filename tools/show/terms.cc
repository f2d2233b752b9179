#include "tools/show/terms.h"

#include <map>

namespace roci::tools {
namespace {

constexpr char kDevices[] = R"(DEVICE     its name
ON         the wire inside the daemon or the DPDK port that carries its frames
LINK       up: the port is active; unplugged: see `roci device`
MTU/PATH   bytes of Ethernet payload, and the largest path MTU that fits with headers
SESSIONS   number of times that programs have it open
QPS, CQS, MRS   queue pairs, completion queues, memory regions: in use / limit (ibv_query_device(3))
REORDER    what it does with packets that others have overtaken (docs/networks.md)
ADDRESSES  one per GID, in the order of the GID table; all RoCE v2. @7: in VLAN 7. CONFLICT: another
           adapter uses it as well; see `roci addr show`
)";
// Columns of all objects of programs.
constexpr char kWhose[] = "DEVICE, APP   its device, and its program: name and process number\n";
constexpr char kPorts[] = R"(counters   frames and bytes that the port has sent and received
flow control   rx_pause: pause frames of the peer stop sending; tx_pause: full receive rings send
           pause frames; pfc_N: the same for one priority (--json: also rx_ring, frames in each
           receive ring, and rx_backlog_mark)
polled at intervals while idle   the driver offers nothing to wait for (docs/ports.md): the first
           frame after a silence waits for up to 1 ms, and an idle dataplane thread keeps waking
lost by the port itself   counters of the driver: frames that did not reach the daemon (rx_missed: the
           daemon was too slow; rx_no_buffer, rx_errors), or were not sent (tx_errors)
frames dropped, by reason   received frames that failed a check, by check
transport  counters of the device's queue pairs: retries, NAKs, duplicates, ...
messages to the connection manager   datagrams to QP 1: accepted, or the check that they failed; and
           connections without an owner that were removed early to make room (displaced)
not RoCE   frames for the daemon itself: ARP, IPv6 neighbour discovery, ping
impairments   settings of `roci impair` and their counters
`roci show counters` also prints counters that are zero.
)";
constexpr char kApps[] = R"(SESSION    number of the connection: one per open device of a program
APP        name and process number
UID        the user that runs it
DEVICE     the device that it has open; "-" before it has opened one (within five seconds)
LCORE      the dataplane thread that serves it
PDS, MRS, CQS, QPS, AHS, CHANNELS   number of its protection domains, memory regions, completion
           queues, queue pairs, address handles, completion channels
MEMORY     how its regions are accessed, see `roci show mrs --help`; "-": it has none
not mapped a reason why regions are not mapped, and what would be faster
)";
constexpr char kQps[] = R"(QPN        queue pair number on the wire
TYPE       RC (reliable connection), UC (unreliable connection), UD (datagrams), ...
STATE      RESET, INIT, RTR (receives), RTS (receives and sends), SQD (sends drained), SQE, ERR
REMOTE     address and number of the peer's queue pair; "-": none
MTU        path MTU, bytes of payload in a packet
SQ PSN     packet sequence numbers: the oldest unacknowledged one .. that of the next new request
RQ PSN     the packet sequence number that is expected next
WINDOW     unacknowledged packets / most of them; a loss on a port reduces the limit for a while
TIMER      the ACK timeout (attribute): 4.096 us * 2^TIMER, 0: none; "*": running
RETRY      retries left before the queue pair fails / the attribute retry_cnt
RNR        the same for RNR NAKs (rnr_retry); 7: no limit
LOSS       selective: lost packets are repeated alone, if the peer does so, too; go-back-N: all later
           ones, too (docs/networks.md)
THROTTLED  current rate limit by congestion control; "-": none
TX PKTS, RX PKTS, DROPS   packets sent, received, and refused by the queue pair
)";
constexpr char kCqs[] = R"(CQ         its handle in the program's session
CAPACITY   entries
QUEUES     send and receive queues that complete into it
CHANNEL    handle of its completion channel; 0: none
EVENTS     completion events written to that channel
OVERFLOWED yes: it was full when a completion was due, and can no longer be used
)";
constexpr char kMrs[] = R"(MR         its handle in the program's session
KIND       region: of program memory or device memory; null: discards writes, reads as zeros;
           window: a memory window; list: a list of ranges of other regions, registered by a work
           request
KEY        L_Key and R_Key
PD         handle of its protection domain
ADDRESS    its first address in the program
LENGTH     bytes
REACHED BY mapped: the daemon has mapped the same memory, the fastest way; process_vm: system calls
           on the program's process (process_vm_readv); proc_mem: system calls on /proc/PID/mem;
           disk: mapped, but accessed by system calls, since pages may have to be read first; calls:
           the same, since an access to the user's mapped memory has made an lcore sleep;
           mixed: parts of each; regions: through the regions that it refers to
EXTENTS    number of its parts with one access method each
ACCESS     its access rights
WHY NOT MAPPED   "-": it is mapped. Lines below the table say what would be faster
)";
constexpr char kLcores[] = R"(LCORE      number of the dataplane thread
SESSIONS   sessions that it serves
BUSY       share of the last quarter of a second with work (--json has the cycles since the start:
           busy_cycles, and idle_cycles, which include those asleep)
PRIORITY   of its thread: realtime with the SCHED_FIFO priority, or ordinary (realtime in docs/rocid.toml)
SHARED BY  who gets equal parts of it: each queue_pair, or each user (fairness in docs/rocid.toml)
WAITED     time that it was runnable while other threads had the processors; much of it slows down
           all RDMA traffic ("-": the kernel does not count it; --json: waited_for_processor_ms, ran_ms)
SLEEPS     number of times that it went to sleep for lack of work
PORT WAKES sleeps that received frames ended (--json: wakes_by_port; wakes_by_doorbell: ended by
           programs and other threads; the others ended by time)
RX PKTS, TX PKTS   packets received and sent by it
COMP EVENTS        events written to completion channels
MEMORY FAULTS      accesses to program memory that failed
TIMERS     expired timers of queue pairs
CLOCK      real, or virtual (clock in docs/rocid.toml) with the time, which was 1 s at the start, and how often
           a program that does not poll was taken for waiting because nothing of it had moved for some time:
           with 0 guesses the run can be repeated exactly (--json: virtual_ns, virtual_guesses, and
           virtual_jumps of the time)
)";
constexpr char kSrqs[] = R"(SRQ        handle in the program's session
TYPE       basic, XRC, or tags (tag matching)
NUMBER     its number, which XRC senders name
PD         handle of its protection domain
SIZE       most receives that it can hold
POSTED     receives posted since its creation
TAKEN      receives of these that messages have used
QPS        queue pairs that use it
LIMIT      the limit event is raised when fewer receives are left; 0: not armed
EVENTS     asynchronous events so far
BROKEN     the program has damaged its ring: it is no longer used
)";
constexpr char kConnections[] = R"(ID         its number in the connection manager
PID        process number of the program
SPACE      port space: tcp, udp, ib or ipoib
STATE      of the identifier: listen, or the state of the connection
DEVICE     the local device; empty: none yet
SOURCE, DESTINATION   addresses and ports
QPN, REMOTE QPN       queue pair numbers; 0: not known yet
)";
constexpr char kAddresses[] = R"(DEVICE     the local device
GID        index in the GID table; the entry of a removed address has the link-local address again
ADDRESS    with the prefix length of its network
VLAN       of the address; "-": none, its frames have no tag
CLAIMED BY MAC of another adapter that announces this address; "-": none
)";
constexpr char kRoutes[] = R"(DEVICE     the local device
NETWORK    the destination; 0.0.0.0/0 and ::/0 are the default routes. The longest prefix is used
VIA        the gateway
VLAN       of network and gateway; "-": none
STATE      dead: the gateway is in no network of the device, or is the device's own address; the
           route is ignored until that changes
)";
constexpr char kNeighbours[] = R"(DEVICE     the local device
ADDRESS    of the peer, or of the gateway
MAC        its Ethernet address, once resolved
STATE      reachable; incomplete: being resolved
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
