// What a queue pair needs from the world around it: a compile-time concept, so that the same source
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
#include "roce/work.h"

namespace roci::roce {

// All calls are synchronous and made by the thread that drives the QP.
//
// FetchSend / FetchRecv take the next posted entry from the app's queue (gate 2: bounded, copied
// once, validated); FetchRecv is told the packet that needs it, if it is one of RoCE (with tag
// matching its payload decides), else null. Gather* / Scatter* translate `length` bytes at `offset`
// of a work request's data into memory segments (gate 4); for an inline request the segment points
// into the app's ring. ScatterSend is the local side of READ and atomics. ResolveRemote translates
// an R_Key range that the peer named; CheckRemote makes the same checks for a whole message without
// translating. Gather, Scatter and Resolve append to `segments`, which comes in empty; they are
// never called for zero bytes. Place copies a received payload. Invalidate takes a memory window or
// fast-registered key away (a peer's SEND with invalidate, or a local invalidate); BindWindow puts
// a window on its region, RegisterList fills a list region. CheckRemoteKey looks at key and rights
// alone. Place may be done later; the host tells nobody of what follows from it before, and offers
// atomics, ATOMIC WRITEs and FLUSHes (NeedsPlaced) only when everything before is placed. An atomic
// that takes time answers kNotYet: nothing has happened, and the host offers the packet again.
// StartDurable begins to bring a range of a region, or all of it, to where a power failure does not
// reach it, with what was placed in it before; it does not wait. kBusy: no room for now. Whatever
// it answers but kBusy holds until the next call, and PollDurable says what became of it; there is
// one at a time, and a new one makes the one before forgotten. After kBusy and kRunning the host
// calls Qp::NoteDurable when another look is worth while. SelectReceiveQueue (XRC only) makes
// FetchRecv, ScatterRecv, CompleteRecv and everything remote work with that shared receive queue
// and its protection domain from here on; false: this QP's domain has none of that number, and
// nothing changed.
template <class H>
concept QpHost = requires(H& h, SendWqe& send, const SendWqe& csend, RecvWqe& recv,
                          const RecvWqe& crecv, CompletionStatus& bad_status,
                          memory::SegmentList& segments, const memory::SegmentList& csegments,
                          const memory::Segment& segment, std::span<const std::byte> bytes,
                          uint64_t& original, const Completion& completion, const Packet* packet) {
  { h.FetchSend(send, bad_status) } -> std::same_as<FetchResult>;
  { h.FetchRecv(recv, bad_status, packet) } -> std::same_as<FetchResult>;
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
  { h.Count(QpCounter{}) } -> std::same_as<void>;
};

}  // namespace roci::roce
