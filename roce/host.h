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
#include "roce/work.h"

namespace roci::roce {

// All calls are synchronous and made by the thread that drives the QP.
//
// FetchSend / FetchRecv take the next posted entry from the app's queue (gate 2: bounded, copied
// once, validated). Gather* / Scatter* translate `length` bytes at `offset` of a work request's
// data into memory segments (gate 4); for an inline request the segment points into the app's ring.
// ScatterSend is the local side of READ and atomics. ResolveRemote translates an R_Key range that
// the peer named; CheckRemote makes the same checks for a whole message without translating.
// Gather, Scatter and Resolve append to `segments`, which comes in empty; they are never called for
// zero bytes. Place copies a received payload. Invalidate takes a memory window or fast-registered
// key away (a peer's SEND with invalidate, or a local invalidate).
template <class H>
concept QpHost = requires(H& h, SendWqe& send, const SendWqe& csend, RecvWqe& recv,
                          const RecvWqe& crecv, CompletionStatus& bad_status,
                          memory::SegmentList& segments, const memory::SegmentList& csegments,
                          const memory::Segment& segment, std::span<const std::byte> bytes,
                          uint64_t& original, const Completion& completion) {
  { h.FetchSend(send, bad_status) } -> std::same_as<FetchResult>;
  { h.FetchRecv(recv, bad_status) } -> std::same_as<FetchResult>;
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
  { h.Invalidate(Key{}) } -> std::same_as<memory::MemoryStatus>;
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
