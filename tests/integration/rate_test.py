#!/usr/bin/env python3
"""`roci impair --rate`: a link with limited rate and a queue, per direction and queue pair, on one lcore and on several.

The utilisation of the rate depends on the machine's load: tools/bench measures it. The exactness of rates is tested in
simulated time (tests/unit/dataplane/link/link_tap_test.cc).

Usage: rate_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import subprocess
import sys
import time
import unittest

from harness import LIMIT_S, Daemon, Pair, Programs, await_

PROGRAMS = None
SERVER, CLIENT = 'roci0', 'roci1'  # the client writes
GIGABIT = 1e9
OVERHEAD_BYTES = 24  # of a frame on the wire
# At most as many bytes in flight as the queue holds.
STREAM = ['ib_write_bw', '-x', '1', '-F', '-s', '65536', '-t', '8', '-D', '1000', '-u', '18']


class RateTest(unittest.TestCase):

    def start(self, config=None):
        self.daemon = Daemon(PROGRAMS, config=config)
        self.addCleanup(self.daemon.stop)

    def roci(self, *arguments, status=0):
        done = subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, *arguments], capture_output=True,
                              text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def start_stream(self, command=None):
        """Starts writing; returns the client's queue pair."""
        before = {qp['qpn'] for qp in self.daemon.show('qps')}
        pair = Pair(self.daemon, (SERVER, CLIENT), command or STREAM)
        self.addCleanup(pair.kill)
        pair.connect()

        def writing():
            return [qp['qpn'] for qp in self.daemon.show('qps')
                    if qp['device'] == CLIENT and qp['qpn'] not in before and qp['tx_packets'] > 100]
        self.assertTrue(await_(writing, LIMIT_S))
        return writing()[0]

    def counters(self, device=CLIENT):
        return next(port for port in self.daemon.show('ports') if port['device'] == device)['counters']

    def impairment(self, device=CLIENT):
        (only,) = next(port['impairments'] for port in self.daemon.show('ports') if port['device'] == device)
        return only

    def rate_bps(self, seconds=2.0):
        """Bytes that the client's device sends, as on Ethernet."""
        begin, before = time.monotonic(), self.counters()
        time.sleep(seconds)
        after = self.counters()
        took_s = time.monotonic() - begin
        frames, sent = (after[name] - before[name] for name in ('tx_packets', 'tx_bytes'))
        return (sent + OVERHEAD_BYTES * frames) * 8 / took_s

    def packets_of(self, qpn):
        return next(qp['tx_packets'] for qp in self.daemon.show('qps') if qp['device'] == CLIENT and qp['qpn'] == qpn)

    def assert_rate(self, most_bps):
        """The stream continues at this rate at most. (After a wait for a processor, the queue may send a burst.)"""
        self.assert_progress()
        self.assertLess(self.rate_bps(), most_bps * 1.03)

    def assert_progress(self, least_bytes=20_000_000):
        before = self.counters()['tx_bytes']
        self.assertTrue(await_(lambda: self.counters()['tx_bytes'] > before + least_bytes, LIMIT_S))

    def test_a_stream_keeps_to_the_rate_in_either_direction(self):
        self.start()
        self.start_stream()
        for device, direction in ((CLIENT, 'out'), (SERVER, 'in')):
            self.roci('impair', device, '--direction', direction, '--rate', '1Gbit')
            self.assertTrue(await_(lambda: self.impairment(device)['counters']['rate_delayed'] > 1000, LIMIT_S))
            # The burst before the limit was set may have overflowed the queue.
            dropped = self.impairment(device)['counters']['rate_dropped']
            self.assert_rate(GIGABIT)
            counters = self.impairment(device)['counters']
            self.assertEqual((counters['rate_dropped'], counters['queue_full'], counters['lost']), (dropped, 0, 0))
            self.roci('impair', device, '--clear')
            self.assert_progress()
        # The other direction carries few acknowledgements.
        self.roci('impair', SERVER, '--direction', 'out', '--rate', '100Mbit')
        before = self.counters()['tx_packets']
        self.assert_progress()
        self.assertGreater(self.counters()['tx_packets'] - before, 4 * self.impairment(SERVER)['counters']['matched'])

    def test_frames_stay_in_order(self):
        self.start()
        self.roci('impair', CLIENT, '--rate', '2Gbit')
        for command in (['ibv_rc_pingpong', '-g', '1', '-c', '-n', '200', '-s', '100000'],
                        ['ib_write_bw', '-x', '1', '-F', '-s', '65536', '-t', '8', '-n', '500', '-u', '18']):
            pair = Pair(self.daemon, (SERVER, CLIENT), command)
            self.addCleanup(pair.kill)
            self.assertEqual(pair.connect().result(), '', command)
        counters = self.impairment()['counters']
        self.assertGreater(counters['rate_delayed'], 1000)
        self.assertEqual((counters['rate_dropped'], counters['queue_full']), (0, 0))
        for port in self.daemon.show('ports'):
            self.assertEqual([port['transport'].get(name, 0) for name in ('out_of_sequence', 'packet_seq_err')], [0, 0])

    def test_one_queue_pair_of_two(self):
        self.start()
        slow, fast = self.start_stream(), self.start_stream()
        self.roci('impair', CLIENT, '--qp', str(slow), '--rate', '10Mbit')
        self.assertTrue(await_(lambda: self.impairment()['counters']['rate_delayed'] > 100, LIMIT_S))
        before = [self.packets_of(qpn) for qpn in (slow, fast)]
        matched = self.impairment()['counters']['matched']

        def sent():
            return [self.packets_of(qpn) - earlier for qpn, earlier in zip((slow, fast), before)]
        self.assertTrue(await_(lambda: sent()[0] > 100 and sent()[1] > 10 * sent()[0], LIMIT_S), sent())
        # The limit does not apply to the other queue pair.
        matched = self.impairment()['counters']['matched'] - matched
        self.assertLess(matched, sent()[0] + 100)

    def test_frames_beyond_the_queue_are_dropped_and_counted(self):
        self.start()
        self.roci('impair', CLIENT, '--rate', '1Gbit', '--rate-queue', '100kB')
        pair = Pair(self.daemon, (SERVER, CLIENT), ['ib_write_bw', '-x', '1', '-F', '-s', '65536', '-t', '8', '-n', '300', '-u', '12'])
        self.addCleanup(pair.kill)
        self.assertEqual(pair.connect().result(), '')
        counters = self.impairment()['counters']
        self.assertGreater(counters['rate_dropped'], 0)
        self.assertEqual(counters['queue_full'], 0)
        self.assertEqual(counters['lost'], 0)
        self.assertRegex(self.roci('show', 'ports'), r'out rate_bps=1000000000 rate_queue_bytes=102400 seed=0\n.* rate_dropped [1-9]')

    def test_several_lcores_share_it(self):
        self.start('[daemon]\nlcores = 3\n')
        for _ in range(3):
            self.start_stream()
        self.roci('impair', CLIENT, '--rate', '1Gbit', '--rate-queue', '4MB')
        self.assertTrue(await_(lambda: self.impairment()['counters']['rate_delayed'] > 1000, LIMIT_S))
        self.assert_rate(GIGABIT)

    def test_output_and_refusals(self):
        self.start()
        for text, rate_bps in (('10Gbit', 10_000_000_000), ('1.5mbit', 1_500_000), ('100KBIT', 100_000), ('1Tbit', 10 ** 12),
                               ('123456', 123_456), ('2000000bit', 2_000_000)):
            self.roci('impair', CLIENT, '--rate', text)
            self.assertEqual(self.impairment()['rate_bps'], rate_bps, text)
        for arguments, queue, ecn in ((['--rate-queue', '64kB'], 65536, None), (['--rate-queue', '5000'], 5000, None),
                                      (['--rate-queue', '1ms', '--rate-ecn', '100us:200us'], 125_000, [12_500, 25_000]),
                                      (['--rate-ecn', '10k'], 2 ** 20, [10240, 51200]), ([], 2 ** 20, None)):
            self.roci('impair', CLIENT, '--rate', '1Gbit', *arguments)
            told = self.impairment()
            self.assertEqual(told['rate_queue_bytes'], queue, arguments)
            self.assertEqual([told.get(key) for key in ('rate_ecn_bytes', 'rate_ecn_all_bytes')], ecn or [None, None], arguments)
        self.assertEqual(self.roci('impair', CLIENT).splitlines()[0], 'out rate_bps=1000000000 rate_queue_bytes=1048576 seed=0')
        self.assertEqual(self.impairment()['rate_queue_bytes'], 1048576)
        for status, says, arguments in (
                (2, 'not a rate from 100kbit', ['--rate', '10Gbps']), (2, 'not a rate from 100kbit', ['--rate', '99kbit']),
                (2, 'not a rate from 100kbit', ['--rate', '2Tbit']), (2, 'not a rate from 100kbit', ['--rate', '-1']),
                (2, 'not a rate from 100kbit', ['--rate', 'fast']), (2, 'need --rate', ['--loss', '1%', '--rate-queue', '1ms']),
                (2, 'no impairment is given', ['--rate-ecn', '1ms']), (2, 'not a queue length', ['--rate', '1Gbit', '--rate-queue', '6s']),
                (2, 'not a queue length', ['--rate', '1Gbit', '--rate-ecn', '0']),
                (2, 'not a queue length', ['--rate', '1Gbit', '--rate-ecn', '10kB:']),
                (1, 'is less than the lower one (--rate-ecn)', ['--rate', '1Gbit', '--rate-ecn', '10kB:9kB']), (2, '--clear', ['--clear', '--rate', '1Gbit']),
                (1, '5 s at this rate', ['--rate', '1Mbit', '--rate-queue', '1MB']),
                (1, '(--rate-queue) never reaches 2097152 (--rate-ecn): nothing would be marked', ['--rate', '1Gbit', '--rate-ecn', '2MB'])):
            self.assertIn(says, self.roci('impair', CLIENT, *arguments, status=status), arguments)
        self.roci('impair', CLIENT, '--clear')
        self.assertEqual(self.roci('impair', CLIENT), 'none\n')


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
