#include "control/manage/metric_families.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "dataplane/base/counters.h"
#include "roce/counters.h"

namespace roci::control {
namespace {

using enum MetricType;

struct Help {
  std::string_view name;
  const char* text;
};

// HELP texts of device counters, by their names (dataplane/base/counters.h).
constexpr auto kDeviceHelps = std::to_array<Help>({
    {"rx_packets", "Frames received"},
    {"rx_bytes", "Bytes of received frames, without FCS"},
    {"tx_packets", "Frames sent"},
    {"tx_bytes", "Bytes of sent frames, without FCS"},
    {"rx_roce_packets", "RoCE packets received"},
    {"tx_roce_packets", "RoCE packets sent"},
    {"rx_flow_packets", "Received frames that flow rules took"},
    {"rx_slow_path", "Received frames for the control thread (ARP, ping, MADs, ...)"},
    {"rx_slow_path_dropped", "Frames for the control thread dropped at a full ring to it"},
    {"rx_neighbour_dropped", "Of these: ARP, and solicitations and advertisements of IPv6"},
    {"rx_mad_dropped", "Of these: packets to QP 1, by which connections are made"},
    {"tx_dropped", "Frames dropped after the port took none for a long time"},
    {"tx_above_mtu", "Frames dropped because they are longer than the port's MTU"},
    {"tx_link_down", "Frames not sent because the link was down"},
    {"rx_link_down", "Received frames dropped while the link was set down"},
    {"tx_blocked", "Bursts of which the port took only a part, so that queue pairs waited"},
    {"rx_hand_off_dropped", "Frames dropped at the full ring to another lcore"},
    {"rx_scattered_dropped", "Frames in several buffers dropped, as no single one was free"},
    {"rx_backlog_marked", "RoCE packets handled as ECN-marked because the receive ring was filled"},
    {"rx_memory_dropped", "Frames dropped because the memory of their program takes too long"},
    {"no_frame_buffer", "Times that queue pairs waited for a frame buffer"},
});

// HELP texts of queue pair counters, by their names (roce/counters.h).
constexpr auto kTransportHelps = std::to_array<Help>({
    {"rx_send_requests", "SEND requests accepted"},
    {"rx_write_requests", "RDMA WRITE requests accepted"},
    {"rx_read_requests", "RDMA READ requests accepted"},
    {"rx_atomic_requests", "Atomic requests accepted"},
    {"rx_flush_requests", "FLUSH requests accepted"},
    {"out_of_sequence", "Received requests whose PSN was ahead of the expected one"},
    {"kept_requests", "Requests kept until those before them came"},
    {"duplicate_request", "Received requests that had been executed before"},
    {"acks_sent", "ACKs sent"},
    {"sequence_naks_sent", "NAKs for a gap in the PSNs sent"},
    {"selective_naks_sent", "NAKs sent that list the missing packets (selective repeat)"},
    {"rnr_naks_sent", "RNR NAKs sent: no receive was posted"},
    {"error_naks_sent", "NAKs for an error of the request sent"},
    {"read_responses_sent", "Packets of READ responses sent"},
    {"atomic_responses_sent", "Responses to atomic requests sent"},
    {"out_of_buffer", "Requests for which no receive was posted"},
    {"resp_remote_invalid_request", "Received requests that were invalid"},
    {"resp_remote_access_errors", "Received requests without access to the memory they name"},
    {"resp_remote_operation_errors", "Received requests that the responder could not execute"},
    {"resp_local_length_error", "Messages longer than the receive that was posted"},
    {"resp_cqe_error", "Receives completed with an error"},
    {"resp_cqe_flush_error", "Receives flushed with an error"},
    {"packet_seq_err", "NAKs for a gap in the PSNs received"},
    {"selective_naks_received", "NAKs received that list the missing packets"},
    {"implied_nak_seq_err", "Losses that a response implied"},
    {"kept_responses", "Responses kept until those before them came"},
    {"local_ack_timeout_err", "ACK timeouts"},
    {"rnr_naks_received", "RNR NAKs received: the peer had no receive posted"},
    {"retransmitted_packets", "Packets sent again"},
    {"retry_exceeded_err", "Requests given up after the last retry"},
    {"rnr_nak_retry_err", "Requests given up after the last RNR retry"},
    {"credit_waits", "Requests that waited for a receive of the peer"},
    {"req_remote_invalid_request", "Requests that the peer refused as invalid"},
    {"req_remote_access_errors", "Requests that the peer refused for lack of access"},
    {"req_remote_operation_errors", "Requests that the peer could not execute"},
    {"req_bad_responses", "Responses that did not fit their request"},
    {"req_local_errors", "Requests that failed for the memory or length of this side"},
    {"req_cqe_error", "Requests completed with an error"},
    {"req_cqe_flush_error", "Requests flushed with an error"},
    {"np_ecn_marked_roce_packets", "RoCE packets received with an ECN mark"},
    {"np_cnp_sent", "CNPs sent"},
    {"rp_cnp_handled", "Received CNPs that lowered a rate"},
    {"rp_cnp_ignored", "Received CNPs without effect"},
});

constexpr std::array kDeviceCounterNames = {
#define ROCI_NAME(member, name) std::string_view(name),
    ROCI_DEVICE_COUNTERS(ROCI_NAME)
#undef ROCI_NAME
};

// Null: it has none.
template <size_t kCount>
constexpr const char* HelpOf(const std::array<Help, kCount>& helps, std::string_view name) {
  for (const Help& help : helps) {
    if (help.name == name) return help.text;
  }
  return nullptr;
}

template <class Names, class Helps>
constexpr bool HaveHelp(const Names& names, const Helps& helps) {
  return std::size(names) == std::size(helps) &&
         std::all_of(names.begin(), names.end(),
                     [&](std::string_view name) { return HelpOf(helps, name) != nullptr; });
}
static_assert(HaveHelp(kDeviceCounterNames, kDeviceHelps));
static_assert(HaveHelp(roce::kQpCounterNames, kTransportHelps));

void AddDaemon(std::vector<MetricFamily>& out) {
  out.push_back({"daemon", kInfo, "The daemon and its version", "daemon", "", ""});
  out.push_back({"daemon_start_time_seconds", kGauge, "Start of the daemon, since the epoch",
                 "daemon", "/start_time", ""});
  out.push_back(
      {"sessions_refused", kCounter, "Connections of programs refused", "daemon", "/refused", ""});
}

void AddDevices(std::vector<MetricFamily>& out) {
  constexpr double kBytesPerMegabit = 1e6 / 8;
  constexpr char kDevices[] = "devices";
  out.push_back({"device", kInfo, "A device, and its wire or port", kDevices, "", ""});
  out.push_back({"device_link_up", kGauge, "Whether the link is up", kDevices, "/link_up", ""});
  out.push_back({"device_rate_bytes_per_second", kGauge, "Speed of the link", kDevices,
                 "/rate_mbps", "", kBytesPerMegabit});
  out.push_back({"device_mtu_bytes", kGauge, "MTU of the port", kDevices, "/mtu", ""});
  out.push_back({"device_path_mtu_bytes", kGauge, "Largest path MTU", kDevices, "/path_mtu", ""});
  out.push_back({"device_congestion_control", kGauge, "Whether congestion control is on", kDevices,
                 "/congestion_control", ""});
  out.push_back({"device_multicast_groups", kGauge, "Multicast groups that the device reports",
                 kDevices, "/reported_groups", ""});
  out.push_back(
      {"device_sessions", kGauge, "Times that programs have it open", kDevices, "/sessions", ""});
  out.push_back({"device_objects", kGauge, "Objects in use", kDevices, "/used", "type"});
  out.push_back({"device_objects_limit", kGauge, "Most objects", kDevices, "/limit", "type"});
}

void AddPorts(std::vector<MetricFamily>& out) {
  constexpr char kPorts[] = "ports";
  const auto add_all = [&](const auto& helps, const std::string& prefix,
                           const std::string& member) {
    for (const Help& help : helps) {
      const std::string name(help.name);
      out.push_back({prefix + name, kCounter, help.text, kPorts, member + name, ""});
    }
  };
  add_all(kDeviceHelps, "device_", "/counters/");
  out.push_back({"device_rx_scattered", kCounter, "Received frames that took several buffers",
                 kPorts, "/counters/rx_scattered", ""});
  out.push_back({"device_dropped_packets", kCounter, "Received frames dropped, by reason", kPorts,
                 "/drops", "reason"});
  add_all(kTransportHelps, "transport_", "/transport/");
  out.push_back({"port_lost_frames", kCounter, "Frames that the port or its driver lost, by cause",
                 kPorts, "/lost_by_port", "cause"});
  out.push_back({"slow_path_frames", kCounter,
                 "Frames for the daemon itself (ARP, neighbour discovery, ping), by outcome",
                 kPorts, "/slow_path", "outcome"});
  out.push_back({"slow_path_send_failures", kCounter, "Frames of the daemon itself not sent",
                 kPorts, "/slow_path_send_failures", ""});
  out.push_back({"cm_messages", kCounter, "Messages to the connection manager, by outcome", kPorts,
                 "/cm_messages", "outcome"});
  out.push_back({"cm_connections_displaced", kCounter,
                 "Connections without an owner removed early to make room", kPorts,
                 "/cm_connections_displaced", ""});
  out.push_back(
      {"device_captures", kGauge, "Captures that run on the device", kPorts, "/captures", ""});
}

void AddLcores(std::vector<MetricFamily>& out) {
  struct Lcore {
    const char* name;
    const char* help;
  };
  constexpr Lcore kCounters[] = {
      {"loops", "Rounds of the loop"},
      {"busy_loops", "Rounds of the loop that found work"},
      {"busy_cycles", "TSC cycles of rounds with work"},
      {"idle_cycles", "TSC cycles awake without work"},
      {"sleeps", "Times that the lcore slept"},
      {"wakes_by_doorbell", "Times that a program woke the lcore"},
      {"wakes_by_port", "Times that frames woke the lcore"},
      {"yields", "Times that the lcore yielded its processor"},
      {"rx_bursts", "Bursts of received frames"},
      {"rx_handed_off", "Received packets that another lcore took from a port"},
      {"rx_packets", "Packets received"},
      {"tx_packets", "Packets sent"},
      {"calls", "Functions run for other threads"},
      {"long_calls", "Rounds of the loop in which such functions took more than a millisecond"},
      {"bad_doorbells", "Doorbells of queues that do not exist"},
      {"comp_events", "Completion events sent to programs"},
      {"async_events", "Asynchronous events sent to programs"},
      {"events_delayed", "Completion events that waited for a full channel"},
      {"events_slow",
       "Events that took long to write, after which a thread writes the user's events"},
      {"events_lost", "Asynchronous events dropped"},
      {"memory_faults", "Copies from or to program memory that failed"},
      {"memory_blocked",
       "Users whose mapped memory made the lcore sleep, and is accessed by system calls since"},
      {"timer_expiries", "Timers that expired"},
      {"durable_syncs", "Waits for a disk (FLUSH for persistence)"},
      {"durable_failures", "Waits for a disk that failed"},
      {"virtual_ns", "Virtual time in nanoseconds; 0: the time is real"},
      {"virtual_jumps", "Jumps of the virtual time"},
      {"virtual_guesses", "Programs that were taken for waiting after virtual_quiet_ms"},
  };
  constexpr double kSecondsPerMs = 1e-3;
  constexpr char kLcores[] = "lcores";
  for (const Lcore& counter : kCounters) {
    out.push_back({std::string("lcore_") + counter.name, kCounter, counter.help, kLcores,
                   std::string("/") + counter.name, ""});
  }
  out.push_back({"lcore_ran_seconds", kCounter, "Processor time of the lcore", kLcores, "/ran_ms",
                 "", kSecondsPerMs});
  out.push_back({"lcore_waited_for_processor_seconds", kCounter,
                 "Time that the lcore was ready but had no processor", kLcores,
                 "/waited_for_processor_ms", "", kSecondsPerMs});
  out.push_back({"lcore_realtime_priority", kGauge, "Real-time priority; 0: none", kLcores,
                 "/realtime_priority", ""});
  out.push_back({"lcore_sessions", kGauge, "Sessions on the lcore", kLcores, "/sessions", ""});
}

void AddPrograms(std::vector<MetricFamily>& out) {
  constexpr double kSecondsPerNs = 1e-9;
  out.push_back({"program_sessions", kGauge, "Open devices, by program and user", "programs",
                 "/sessions", ""});
  out.push_back({"program_objects", kGauge, "Objects in use, by program and user", "programs",
                 "/objects", "type"});
  out.push_back({"user_resources", kGauge, "What a user's programs have together", "users", "/used",
                 "resource"});
  out.push_back({"user_resources_limit", kGauge, "What a user's programs may have together",
                 "users", "/limit", "resource"});
  out.push_back({"user_control_seconds", kCounter,
                 "Time of the control thread for requests of a user's programs", "users",
                 "/control_ns", "", kSecondsPerNs});
  out.push_back({"cm_identifiers", kGauge, "Identifiers of librdmacm programs, by state", "cm",
                 "/identifiers", "state"});
  out.push_back({"control_calls_refused", kCounter, "Control calls answered with an error", "calls",
                 "/refused", ""});
  out.push_back({"control_call_duration_seconds", kHistogram,
                 "Time from a program's control call to its answer", "calls", "", ""});
}

}  // namespace

std::span<const MetricFamily> MetricFamilies() {
  static const std::vector<MetricFamily> families = [] {
    std::vector<MetricFamily> out;
    AddDaemon(out);
    AddDevices(out);
    AddPorts(out);
    AddLcores(out);
    AddPrograms(out);
    return out;
  }();
  return families;
}

}  // namespace roci::control
