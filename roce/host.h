// The services that a queue pair needs: a compile-time concept, so that the same source
// runs in the dataplane loop, in unit tests, in the simulator and under fuzzers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/segment.h"
#include "memory/types.h"
#include "roce/counters.h"
#include "roce/packet.h"
#include "roce/qp_attributes.h"
#include "roce/work.h"

namespace roci::roce {

// All calls are synchronous and made by the thread that drives the QP.
//
// Work queues (gate 2: bounded, copied once, validated):
//   FetchSend, FetchRecv    Take the next posted WQE. FetchRecv gets the packet that needs the
//                           receive (tag matching selects by its payload), or null for a frame
//                           that is not RoCE.
//   PostedReceives          How many receives FetchRecv can take. The host may answer a number that
//                           it read earlier, less those taken since, but 0 only if there are none.
//                           Not called for a shared receive queue.
//   HasRoomToKeep           Whether the host can keep an early packet (EarlyAction::kKeep).
//   SelectReceiveQueue      XRC only: FetchRecv, ScatterRecv, CompleteRecv and all remote access
//                           use that shared receive queue and its protection domain from now on.
//                           False: the domain has no such queue; nothing changed.
//
// Translation (gate 4). These append to `segments`, which is empty, and are never called for zero
// bytes:
//   GatherSend              `length` bytes at `offset` of a WQE's data. For an inline WQE the
//                           segment points into the send queue.
//   ScatterSend             The local buffer of a READ or atomic.
//   ScatterRecv             The buffer of a receive.
//   ResolveRemote           An R_Key range that the peer named.
//   CheckRemote             The checks of ResolveRemote for a whole message, without translation.
//   CheckRemoteKey          Key and access rights only.
//
// Memory:
//   Place                   Copies a received payload. The host may delay the copy. Until it is
//                           done, the host withholds everything that depends on it, and offers no
//                           atomic, ATOMIC WRITE or FLUSH (OpcodeInfo::NeedsPlaced).
//   atomics                 kNotYet: nothing happened (PacketEffects::offer_again).
//   Invalidate              Invalidates a memory window or list region (SEND with invalidate,
//                           local invalidate).
//   BindWindow, RegisterList  Execute those WQEs.
//   StartDurable            Starts to write back a range of a region, or all of it, with
//                           everything placed in it before. Does not wait. kBusy: no room now. One
//                           operation at a time: a new one replaces the last. PollDurable answers
//                           its state; kBusy after kRunning: it was not started for lack of room,
//                           and StartDurable is called again. After kBusy and kRunning the host
//                           calls Qp::NoteDurable when the state may have changed.
//
// Reports:
//   NoteState               The state has changed, to another one.
template <class H>
concept QpHost = requires(H& h, SendWqe& send, const SendWqe& csend, RecvWqe& recv,
                          const RecvWqe& crecv, CompletionStatus& bad_status,
                          memory::SegmentList& segments, const memory::SegmentList& csegments,
                          const memory::Segment& segment, std::span<const std::byte> bytes,
                          uint64_t& original, const Completion& completion, const Packet* packet) {
  { h.FetchSend(send, bad_status) } -> std::same_as<FetchResult>;
  { h.FetchRecv(recv, bad_status, packet) } -> std::same_as<FetchResult>;
  { h.PostedReceives() } -> std::same_as<uint32_t>;
  { h.HasRoomToKeep() } -> std::same_as<bool>;
  {
    h.GatherSend(csend, uint32_t{} /*offset*/, uint32_t{} /*length*/, segments)
    } -> std::same_as<memory::MemoryStatus>;
  { h.ScatterSend(csend, uint32_t{}, uint32_t{}, segments) } -> std::same_as<memory::MemoryStatus>;
  { h.ScatterRecv(crecv, uint32_t{}, uint32_t{}, segments) } -> std::same_as<memory::MemoryStatus>;
  {
    h.ResolveRemote(Key{}, uint64_t{} /*va*/, uint32_t{}, memory::Access{}, segments)
    } -> std::same_as<memory::MemoryStatus>;
  {
    h.CheckRemote(Key{}, uint64_t{} /*va*/, uint32_t{}, memory::Access{})
    } -> std::same_as<memory::MemoryStatus>;
  { h.CheckRemoteKey(Key{}, memory::Access{}) } -> std::same_as<memory::MemoryStatus>;
  { h.Invalidate(Key{}) } -> std::same_as<memory::MemoryStatus>;
  { h.BindWindow(csend) } -> std::same_as<memory::MemoryStatus>;
  { h.RegisterList(csend) } -> std::same_as<memory::MemoryStatus>;
  {
    h.StartDurable(Key{}, uint64_t{} /*va*/, uint32_t{} /*length*/, bool{} /*whole region*/)
    } -> std::same_as<DurableState>;
  { h.PollDurable() } -> std::same_as<DurableState>;
  {
    h.AtomicWrite(segment, std::span<const std::byte, 8>(bytes))
    } -> std::same_as<memory::MemoryStatus>;
  { h.SelectReceiveQueue(uint32_t{} /*number*/) } -> std::same_as<bool>;
  { h.Place(csegments, bytes) } -> std::same_as<memory::MemoryStatus>;
  {
    h.AtomicCompareSwap(segment, uint64_t{} /*compare*/, uint64_t{} /*swap*/, original)
    } -> std::same_as<memory::MemoryStatus>;
  { h.AtomicFetchAdd(segment, uint64_t{} /*add*/, original) } -> std::same_as<memory::MemoryStatus>;
  { h.CompleteSend(completion) } -> std::same_as<void>;
  { h.CompleteRecv(completion) } -> std::same_as<void>;
  { h.RaiseEvent(QpEvent{}) } -> std::same_as<void>;
  { h.NoteState(QpState{} /*from*/, QpState{} /*to*/) } -> std::same_as<void>;
  { h.Count(QpCounter{}) } -> std::same_as<void>;
};

}  // namespace roci::roce
