#!/usr/bin/env python3
"""Daemons with several lcores on ports with several queues: a frame reaches its queue pair from any queue, and a daemon with
one lcore serves all queues of its port.

Of the tests of a port with one queue, the default run repeats those that depend on queues and lcores; ROCI_TEST_ALL=yes repeats all.

The test creates namespaces and interfaces and removes them; without permission for that its cases are skipped.

Usage: queues_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import os
import sys
import time
import unittest

import networks_test as networks
import ports_test as ports
from harness import LIMIT_S, Programs, await_, members
from networks_test import V4, Ends

PAIRS = 8  # one session each: a new session goes to the lcore with the fewest


class SeveralQueues:
    """For classes derived from TwoDaemons, which have `lcores` of each daemon, and `queues` for receiving."""
    lcores = (2, 2)
    queues = (2, 2)

    @classmethod
    def daemon_config(cls, number):
        return f'[daemon]\nlcores = {cls.lcores[number]}\n'

    def test_the_port_has_the_queues(self):
        self.assertEqual(tuple(daemon.show('ports')[0]['rx_queues'] for daemon in self.daemons), self.queues)

    def arriving(self, reasons):
        """Each lcore drops its copy of frames to a group without members there."""
        return {reason: count * (self.lcores[1] if reason == 'unknown_multicast' else 1)
                for reason, count in super().arriving(reasons).items()}

    def lcores_of(self, number):
        return self.daemons[number].show('lcores')

    def test_queue_pairs_of_every_lcore_get_their_packets(self):
        before = [self.lcores_of(number) for number in range(2)]
        commands = (['ibv_rc_pingpong', '-g', '1', '-n', '1000', '-c'], ['ibv_uc_pingpong', '-g', '1', '-n', '300', '-c'],
                    ['ibv_srq_pingpong', '-g', '2', '-n', '100', '-c'], ['ib_write_bw', '-x', '2', '-F', '-n', '500'])
        pairs = []
        for number in range(PAIRS):
            pairs.append(Ends(self.daemons, commands[number % len(commands)]))
            self.addCleanup(pairs[-1].kill)
            pairs[-1].connect()
        self.assertEqual([pair.result() for pair in pairs], [''] * PAIRS)
        for number in range(2):
            lcores = self.lcores_of(number)
            received = [now['rx_packets'] - then['rx_packets'] for now, then in zip(lcores, before[number])]
            self.assertTrue(all(received), (number, received))
            direct = [now['rx_packets'] - now['rx_handed_off'] - then['rx_packets'] + then['rx_handed_off']
                      for now, then in zip(lcores, before[number])]
            self.assertEqual([bool(count) for count in direct], [each < self.spread[number] for each in range(len(direct))],
                             (number, received, direct))
            self.assertEqual(self.daemons[number].show('ports')[0]['counters']['rx_hand_off_dropped'], 0)

    @property
    def spread(self):
        """The number of lcores of each daemon that receive frames from their own queues."""
        return tuple(min(lcores, queues) for lcores, queues in zip(self.lcores, self.queues))

    def test_a_group_gets_every_message_once(self):
        """Members on every lcore, with more receives than messages."""
        self.assertTrue(await_(lambda: members(self.daemons[0]) == 0))
        for _ in range(4):
            receiver = self.daemons[0].start('mckey', '-m', '239.1.2.3', '-b', V4[0], '-C', '1000', '-S', '64')
            self.addCleanup(receiver.communicate)
            self.addCleanup(receiver.kill)

        self.assertTrue(await_(lambda: members(self.daemons[0]) == 4), self.daemons[0].show('qps'))
        before = self.sent()
        sender = self.daemons[1].start('mckey', '-m', '239.1.2.3', '-b', V4[1], '-s', '-C', '200', '-S', '64')
        self.addCleanup(sender.kill)
        said, _ = sender.communicate(timeout=LIMIT_S)
        self.assertEqual(sender.returncode, 0, said)

        def received():
            return [qp['rx_packets'] for qp in self.daemons[0].show('qps')]
        # mckey does not wait until all messages are sent, so the last may be dropped.
        await_(lambda: min(received()) >= self.sent() - before - 1)
        time.sleep(0.5)  # more must not come
        self.assertEqual(len(set(received())), 1, received())
        self.assertIn(received()[0], (self.sent() - before - 1, self.sent() - before))
        self.assertGreater(received()[0], 0)

    def sent(self):
        return self.daemons[1].show('ports')[0]['counters']['tx_roce_packets']


    # These depend neither on queues nor on lcores.
    if os.environ.get('ROCI_TEST_ALL') != 'yes':
        test_programs = test_a_flood_is_harmless = test_link_state_follows_the_network_device = None
        test_path_mtu_follows_the_network_device = test_frames_above_the_mtu_are_counted = None
        test_nothing_is_sent_to_a_link_that_is_down = test_an_address_of_its_own_beside_the_kernel = None
        test_the_mtu_is_limited_by_the_driver = test_mtu_is_limited_by_the_buffers = test_the_configured_mtu_is_set = None
        test_a_second_daemon_in_the_same_place_is_warned = test_a_second_listener_is_refused = None


class Shorter(SeveralQueues):
    test_programs = test_a_rate_holds_on_a_port = None


class TapTest(SeveralQueues, ports.TapTest):
    """One queue per lcore."""


class PacketTest(SeveralQueues, networks.VethTest):
    """The kernel spreads frames over the sockets of qpairs= by their hash."""
    arguments = ',qpairs=2'


class PacketOneLcoreTest(Shorter, networks.VethTest):
    """More queues than lcores, and fewer."""
    arguments = ',qpairs=3'
    lcores = (1, 2)
    queues = (3, 3)


class VhostTest(Shorter, networks.VhostTest):
    """The driver side sends on the queue of the lcore, the device side on the first."""
    arguments = ',queues=2'

    @property
    def spread(self):
        return (2, 1)


class MemifTest(Shorter, networks.MemifTest):
    """One queue, whose lcore passes frames to the others."""
    queues = (1, 1)


if __name__ == '__main__':
    networks.PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
