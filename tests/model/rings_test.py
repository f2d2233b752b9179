#!/usr/bin/env python3
"""The protocols of rings, doorbells and wake-ups hold under the memory model of C++, not only under that of x86. Prints TAP.

Each test is a protocol between two threads, reduced to its operations on shared memory, and an outcome that would lose data or a
wake-up. With the fences of the code the model forbids that outcome; without one of them it allows it, so the fence is needed.
abi::FenceAfterExchange() stands as a fence here: on x86 the operation before it is one.
"""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent)]
import tap  # pylint: disable=wrong-import-position
from memory_model import (ACQ_REL, ACQUIRE, RELAXED, RELEASE, SEQ_CST, allows, exchange, fence, fetch_or,  # pylint: disable=wrong-import-position
                          load, outcomes, store)


def without_fence(thread):
    """The thread without its fences."""
    return [op for op in thread if op.kind != 'fence']


class Protocol(unittest.TestCase):
    """What the protocols' tests share."""

    def check_forbidden(self, initial, threads, needs_fence_of=(), **outcome):
        """The model forbids the outcome, and allows it if one of these threads (numbers) has no fence."""
        self.assertFalse(allows(initial, threads, **outcome), 'the outcome is possible')
        self.assertLessEqual(set(outcome), {op.name for thread in threads for op in thread})
        for number in needs_fence_of:
            weaker = [without_fence(thread) if i == number else thread for i, thread in enumerate(threads)]
            self.assertTrue(allows(initial, weaker, **outcome), f'the fence of thread {number} is not needed')


class WorkQueues(Protocol):
    """verbs_provider/rings/doorbell.h, dataplane/rings/doorbells.h, dataplane/shard/worker_visit.cc."""

    ENTRY = {'entry': 0, 'producer': 0}

    def test_an_entry_is_there_when_its_index_is(self):
        program = [store('entry', 1, RELAXED), exchange('producer', 1, SEQ_CST)]
        lcore = [load('producer', ACQUIRE, 'producer'), load('entry', RELAXED, 'entry')]
        self.check_forbidden(self.ENTRY, [program, lcore], producer=1, entry=0)
        weaker = [load('producer', RELAXED, 'producer'), load('entry', RELAXED, 'entry')]
        self.assertTrue(allows(self.ENTRY, [program, weaker], producer=1, entry=0))

    def test_a_queue_that_is_armed_is_rung_or_looked_at(self):
        program = [exchange('producer', 1, SEQ_CST), fence(), load('armed', RELAXED, 'armed')]
        lcore = [store('armed', 1, RELAXED), fence(), load('producer', ACQUIRE, 'producer')]
        self.check_forbidden({'producer': 0, 'armed': 0}, [program, lcore], needs_fence_of=[0, 1], armed=0, producer=0)

    def test_a_doorbell_that_was_rung_already_needs_no_ring(self):
        # The program finds its bit set; the lcore takes that bit and then reads the index.
        program = [exchange('producer', 1, SEQ_CST), load('bits', SEQ_CST, 'bits')]
        lcore = [exchange('bits', 0, ACQ_REL), fence(), load('producer', ACQUIRE, 'producer')]
        self.check_forbidden({'producer': 0, 'bits': 1}, [program, lcore], needs_fence_of=[1], bits=1, producer=0)

    def test_a_level_above_that_was_rung_already_needs_no_ring(self):
        program = [fetch_or('level0', 1, SEQ_CST), load('level1', SEQ_CST, 'level1')]
        lcore = [exchange('level1', 0, ACQ_REL), fence(), load('level0', RELAXED, 'level0')]
        self.check_forbidden({'level0': 0, 'level1': 1}, [program, lcore], needs_fence_of=[1], level1=1, level0=0)

    def test_what_was_rung_is_seen_when_the_levels_are_taken(self):
        program = [exchange('producer', 1, SEQ_CST), fetch_or('level0', 1, SEQ_CST), fetch_or('level1', 1, SEQ_CST)]
        lcore = [exchange('level1', 0, ACQ_REL, 'level1'), exchange('level0', 0, ACQ_REL, 'level0'), load('producer', ACQUIRE, 'producer')]
        initial = {'producer': 0, 'level0': 0, 'level1': 0}
        self.check_forbidden(initial, [program, lcore], level1=1, level0=0)
        self.check_forbidden(initial, [program, lcore], level1=1, producer=0)

    def test_a_slot_is_free_when_its_index_is_behind_the_tail(self):
        lcore = [load('entry', RELAXED, 'entry'), store('consumer', 1, RELEASE)]
        program = [load('consumer', ACQUIRE, 'consumer'), store('entry', 2, RELAXED)]
        self.check_forbidden({'entry': 1, 'consumer': 0}, [lcore, program], consumer=1, entry=2)


class Sleep(Protocol):
    """dataplane/shard/worker_idle.cc: whoever brings work wakes an lcore that sleeps."""

    def check(self, brings):
        """`brings`: how the work is made visible."""
        other = [brings, fence(), load('sleeping', RELAXED, 'sleeping')]
        lcore = [store('sleeping', 1, RELAXED), fence(), load('work', RELAXED, 'work')]
        self.check_forbidden({'work': 0, 'sleeping': 0}, [other, lcore], needs_fence_of=[0, 1], sleeping=0, work=0)

    def test_a_doorbell_wakes(self):
        self.check(fetch_or('work', 1, SEQ_CST))

    def test_a_command_or_a_frame_wakes(self):
        self.check(exchange('work', 1, ACQ_REL))
        self.check(store('work', 1, RELEASE))

    def test_one_of_two_that_ring_writes_to_the_eventfd(self):
        ring = [exchange('sleeping', 0, SEQ_CST, 'first')], [exchange('sleeping', 0, SEQ_CST, 'second')]
        found = outcomes({'sleeping': 1}, *ring)
        self.assertEqual({sum(value for _, value in outcome) for outcome in found}, {1})

    def test_who_runs_the_lcore_sees_what_the_last_did(self):
        last = [store('state', 1, RELAXED), store('holder', 0, RELEASE)]
        following = [exchange('holder', 2, ACQUIRE, 'holder'), load('state', RELAXED, 'state')]
        self.check_forbidden({'state': 0, 'holder': 1}, [last, following], holder=0, state=0)


class Completions(Protocol):
    """verbs_provider/rings/completion_ring.*, dataplane/qp/completion_queue.*, dataplane/qp/completion_events.cc."""

    def test_an_entry_is_whole_when_its_generation_is_there(self):
        lcore = [store('data', 1, RELAXED), store('entry', 1, RELAXED), store('generation', 1, RELEASE)]
        program = [load('generation', ACQUIRE, 'generation'), load('entry', RELAXED, 'entry'), load('data', RELAXED, 'data')]
        initial = {'data': 0, 'entry': 0, 'generation': 0}
        self.check_forbidden(initial, [lcore, program], generation=1, entry=0)
        self.check_forbidden(initial, [lcore, program], generation=1, data=0)

    def test_a_queue_that_is_armed_gets_an_event_or_shows_the_entry(self):
        lcore = [store('generation', 1, RELEASE), fence(), load('arm', RELAXED, 'arm')]
        program = [exchange('arm', 1, SEQ_CST), fence(), load('generation', ACQUIRE, 'generation')]
        self.check_forbidden({'generation': 0, 'arm': 0}, [lcore, program], needs_fence_of=[0, 1], arm=0, generation=0)

    def test_a_queue_that_is_armed_again_meanwhile_shows_the_entry(self):
        # The lcore disarms for an event; the program arms after that and polls.
        lcore = [store('generation', 1, RELEASE), exchange('arm', 0, SEQ_CST, 'disarmed')]
        program = [exchange('arm', 2, SEQ_CST, 'armed'), load('generation', ACQUIRE, 'generation')]
        self.check_forbidden({'generation': 0, 'arm': 1}, [lcore, program], disarmed=1, armed=0, generation=0)

    def test_a_slot_is_written_again_after_it_was_polled(self):
        program = [load('entry', RELAXED, 'entry'), store('consumer', 1, RELEASE)]
        lcore = [load('consumer', ACQUIRE, 'consumer'), store('entry', 2, RELAXED)]
        self.check_forbidden({'entry': 1, 'consumer': 0}, [program, lcore], consumer=1, entry=2)


class Others(Protocol):
    """The mailbox, the slow path and the drivers' peers."""

    def test_a_command_and_its_answer_are_whole(self):
        caller = [store('argument', 1, RELAXED), exchange('first', 1, SEQ_CST), load('done', ACQUIRE, 'done'), load('answer', RELAXED, 'answer')]
        lcore = [exchange('first', 0, ACQUIRE, 'first'), load('argument', RELAXED, 'argument'), store('answer', 1, RELAXED),
                 store('done', 1, RELEASE)]
        initial = {'argument': 0, 'first': 0, 'done': 0, 'answer': 0}
        self.check_forbidden(initial, [caller, lcore], first=1, argument=0)
        self.check_forbidden(initial, [caller, lcore], done=1, answer=0)

    def test_a_frame_of_the_slow_path_is_signalled_or_found(self):
        # dataplane/shard/sharded_device.cc
        lcore = [store('frame', 1, RELAXED), exchange('signalled', 1, SEQ_CST, 'was')]
        reader = [exchange('signalled', 0, SEQ_CST), load('frame', RELAXED, 'frame')]
        self.check_forbidden({'frame': 0, 'signalled': 1}, [lcore, reader], was=1, frame=0)

    def test_the_end_of_a_peer_waits_for_lcores_that_use_it(self):
        # dataplane/port/rx_wait.cc
        lcore = [exchange('using', 1, SEQ_CST), fence(), load('peer', RELAXED, 'peer')]
        driver = [store('peer', 0, RELAXED), fence(), load('using', ACQUIRE, 'using')]
        self.check_forbidden({'using': 0, 'peer': 1}, [lcore, driver], needs_fence_of=[0, 1], peer=1, using=0)

    def test_frames_are_released_before_the_memory_of_dpdk_ends(self):
        # dataplane/shard/lcore_threads.cc
        copier = [exchange('releasing', 1, SEQ_CST), load('stop', SEQ_CST, 'stop')]
        end = [store('stop', 1, SEQ_CST), load('releasing', SEQ_CST, 'releasing')]
        self.check_forbidden({'releasing': 0, 'stop': 0}, [copier, end], stop=0, releasing=0)


class TheModel(unittest.TestCase):
    """The model itself, by programs whose outcomes are known."""

    BOTH = {'x': 0, 'y': 0}

    def check(self, expected, first, second, initial=None, **outcome):
        """Whether two threads may have an outcome."""
        self.assertEqual(allows(initial or self.BOTH, [first, second], **outcome), expected)

    def test_store_buffering(self):
        for order, expected in ((RELAXED, True), (SEQ_CST, False)):
            self.check(expected, [store('x', 1, order), load('y', order, 'a')], [store('y', 1, order), load('x', order, 'b')], a=0, b=0)

    def test_message_passing(self):
        for store_order, load_order, expected in ((RELEASE, ACQUIRE, False), (RELAXED, ACQUIRE, True), (RELEASE, RELAXED, True)):
            self.check(expected, [store('x', 1, RELAXED), store('y', 1, store_order)],
                       [load('y', load_order, 'a'), load('x', RELAXED, 'b')], a=1, b=0)

    def test_message_passing_by_fences(self):
        self.check(False, [store('x', 1, RELAXED), fence(), store('y', 1, RELAXED)],
                   [load('y', RELAXED, 'a'), fence(), load('x', RELAXED, 'b')], a=1, b=0)

    def test_coherence(self):
        self.check(False, [store('x', 1, RELAXED)], [load('x', RELAXED, 'a'), load('x', RELAXED, 'b')], a=1, b=0)

    def test_exchanges_are_atomic(self):
        self.check(False, [exchange('x', 1, RELAXED, 'a')], [exchange('x', 2, RELAXED, 'b')], a=0, b=0)

    def test_a_release_sequence_goes_through_exchanges(self):
        self.assertFalse(allows(self.BOTH, [[store('x', 1, RELAXED), store('y', 1, RELEASE)], [exchange('y', 2, RELAXED, 'a')],
                                            [load('y', ACQUIRE, 'b'), load('x', RELAXED, 'c')]], a=1, b=2, c=0))

    def test_an_exchange_is_no_fence(self):
        self.check(True, [exchange('x', 1, SEQ_CST), load('y', RELAXED, 'a')], [store('y', 1, RELAXED), fence(), load('x', RELAXED, 'b')],
                   a=0, b=0)


if __name__ == '__main__':
    tap.main(sys.modules[__name__])
