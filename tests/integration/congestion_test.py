#!/usr/bin/env python3
"""Congestion control between two devices whose wire marks packets: `roci impair --ecn`, counters, rates.

Utilisation and fairness of a bottleneck depend on the machine's load: tools/bench measures utilisation, the simulator both
(tests/sim/incast.h).

Usage: congestion_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from harness import LIMIT_S, Daemon, Pair, Programs, await_

PROGRAMS = None
SERVER, CLIENT = 'roci0', 'roci1'  # the client writes
ON = '[congestion]\nenabled = "on"\n'
# Every cut halves the rate, and recovery is so slow that a busy machine's pauses between packets do not look like the end of
# congestion.
STEEP = ON + 'alpha_period_us = 1000000\nincrease_period_us = 100000\nadditive_mbps = 20000\n'
# Marks requests of the client; acknowledgements are not marked.
MARK_REQUESTS = ('--direction', 'in', '--ecn')
CNP_DSCP = 48


class CongestionTest(unittest.TestCase):

    def start(self, config):
        self.daemon = Daemon(PROGRAMS, config=config)
        self.addCleanup(self.daemon.stop)

    def roci(self, *arguments):
        done = subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, *arguments], capture_output=True,
                              timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def start_pair(self, *command):
        pair = Pair(self.daemon, (SERVER, CLIENT), list(command))
        self.addCleanup(pair.kill)
        return pair.connect()

    def counters(self, device):
        return next(port for port in self.daemon.show('counters') if port['device'] == device)

    def transport(self, device, name):
        return self.counters(device)['transport'][name]

    def sent_bytes(self):
        return self.counters(CLIENT)['counters']['tx_bytes']

    def sent_bps(self):
        """Checks that the rate never exceeds what was sent in a second."""
        begin, before = time.monotonic(), self.sent_bytes()
        time.sleep(1)
        return (self.sent_bytes() - before) * 8 / (time.monotonic() - begin)

    def received_bytes(self):
        return self.counters(SERVER)['counters']['rx_bytes']

    def assert_progress(self, least_bytes=100_000_000):
        before = self.received_bytes()
        self.assertTrue(await_(lambda: self.received_bytes() > before + least_bytes, LIMIT_S))

    def impairment(self):
        return next(port for port in self.daemon.show('ports') if port['device'] == CLIENT)['impairments'][0]

    def throttled_kbps(self):
        """The rate that the client's queue pair is throttled to, or None."""
        rates = [qp['throttled_to_kbps'] for qp in self.daemon.show('qps') if qp['device'] == CLIENT and qp['state'] == 'RTS']
        self.assertEqual(len(rates), 1)
        return rates[0]

    def decoded(self, path):
        return [json.loads(line) for line in self.roci('decode', '--json', path).splitlines()]

    def test_rate_falls_while_packets_are_marked_and_comes_back(self):
        self.start(STEEP)
        self.start_pair('ib_write_bw', '-x', '1', '-F', '-s', '65536', '-D', '1000', '-u', '18')
        self.assertTrue(await_(lambda: self.sent_bytes() > 10_000_000, LIMIT_S))
        self.assertIsNone(self.throttled_kbps())
        self.assertEqual(self.transport(SERVER, 'np_cnp_sent'), 0)

        self.roci('impair', SERVER, *MARK_REQUESTS, '100%')
        # Repeated cuts lower the rate to the minimum, 10 Mb/s.
        self.assertTrue(await_(lambda: (self.throttled_kbps() or 10 ** 9) < 100_000, LIMIT_S))
        # Unthrottled, the rate is several Gb/s. (While the daemon waits for a processor, rates recover.)
        rates = []
        self.assertTrue(await_(lambda: rates.append(self.sent_bps()) or 0 < rates[-1] < 200e6, LIMIT_S), rates)
        self.assertRegex(self.roci('show', 'qps').decode(), r'THROTTLED(.|\n)* Mb/s')

        self.roci('impair', SERVER, '--clear')
        self.assertTrue(await_(lambda: self.throttled_kbps() is None, LIMIT_S))
        server, client = self.counters(SERVER)['transport'], self.counters(CLIENT)['transport']
        self.assertGreater(server['np_ecn_marked_roce_packets'], server['np_cnp_sent'] - 1)
        self.assertGreater(server['np_cnp_sent'], 10)
        self.assertEqual(client['rp_cnp_handled'], server['np_cnp_sent'])
        self.assertEqual((client['rp_cnp_ignored'], client['np_cnp_sent'], server['rp_cnp_handled']), (0, 0, 0))
        # The test's pauses caused no ACK timeout.
        self.assertEqual(client['local_ack_timeout_err'], 0)
        before = self.sent_bytes()
        self.assertTrue(await_(lambda: self.sent_bytes() > before + 50_000_000, LIMIT_S))
        self.assertEqual(self.transport(SERVER, 'np_cnp_sent'), server['np_cnp_sent'])

    def test_a_bottleneck_that_marks_slows_its_senders_down(self):
        self.start(ON)
        # Two senders have more in flight than the queue holds.
        for _ in range(2):
            self.start_pair('ib_write_bw', '-x', '1', '-F', '-s', '65536', '-D', '1000', '-u', '16')
        self.assertTrue(await_(lambda: self.sent_bytes() > 10_000_000, LIMIT_S))
        self.roci('impair', CLIENT, '--rate', '1Gbit', '--rate-queue', '1MB')
        self.assertTrue(await_(lambda: self.impairment()['counters']['rate_dropped'] > 0, LIMIT_S))
        self.assertEqual(self.transport(SERVER, 'np_cnp_sent'), 0)
        # Marks lower their rates to about the rate of the link.
        self.roci('impair', CLIENT, '--rate', '1Gbit', '--rate-queue', '1MB', '--rate-ecn', '40kB:200kB')
        self.assertTrue(await_(lambda: self.impairment()['counters']['ecn_marked'] > 100, LIMIT_S))
        self.assertTrue(await_(lambda: self.transport(SERVER, 'np_cnp_sent') > 10, LIMIT_S))
        self.assertTrue(await_(lambda: all((qp['throttled_to_kbps'] or 10 ** 9) < 2_000_000 for qp in self.daemon.show('qps')
                                           if qp['device'] == CLIENT and qp['state'] == 'RTS'), LIMIT_S))
        self.assert_progress()

    def test_a_queue_shorter_than_the_window_loses_and_is_used(self):
        self.start(ON)
        self.roci('impair', CLIENT, '--rate', '1Gbit', '--rate-queue', '100kB')
        self.start_pair('ib_write_bw', '-x', '1', '-F', '-s', '65536', '-D', '1000')
        self.assertTrue(await_(lambda: self.sent_bytes() > 1_000_000, LIMIT_S))
        self.assertTrue(await_(lambda: self.impairment()['counters']['rate_dropped'] > 0, LIMIT_S))
        self.assert_progress()
        self.assertEqual(self.transport(SERVER, 'np_cnp_sent'), 0)

    def test_read_responses_are_throttled_at_the_responder(self):
        self.start(ON)
        self.roci('impair', CLIENT, *MARK_REQUESTS, '20%')
        pair = self.start_pair('ib_read_bw', '-x', '1', '-F', '-s', '65536', '-n', '100', '-u', '18')
        self.assertEqual(pair.result(), '')
        self.assertGreater(self.transport(CLIENT, 'np_cnp_sent'), 0)
        self.assertEqual(self.transport(SERVER, 'rp_cnp_handled'), self.transport(CLIENT, 'np_cnp_sent'))

    def test_every_connected_type_takes_part(self):
        self.start(ON)
        self.roci('impair', SERVER, *MARK_REQUESTS, '30%')
        for kind in ('RC', 'UC', 'XRC'):
            before = self.transport(CLIENT, 'rp_cnp_handled')
            pair = self.start_pair('ib_write_bw', '-c', kind, '-x', '2', '-F', '-s', '4096', '-n', '500', '-u', '18')
            self.assertEqual(pair.result(), '', kind)
            self.assertGreater(self.transport(CLIENT, 'rp_cnp_handled'), before, kind)

    @contextlib.contextmanager
    def capture(self):
        """A list that holds the decoded frames of the client's device after the block."""
        frames = []
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'both.pcapng')
            capture = subprocess.Popen([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'capture', CLIENT, '-w', path],
                                       stderr=subprocess.PIPE, text=True)
            self.addCleanup(capture.stderr.close)
            self.addCleanup(capture.kill)
            self.assertTrue(await_(lambda: os.path.exists(path) and os.path.getsize(path) > 0))
            yield frames
            capture.send_signal(signal.SIGINT)
            capture.communicate(timeout=LIMIT_S)
            frames += self.decoded(path)

    def test_frames_on_the_wire(self):
        self.start(ON)
        self.roci('impair', SERVER, *MARK_REQUESTS, '100%')
        with self.capture() as frames:
            # DSCP 26; the program cannot choose the ECN bits.
            pair = self.start_pair('ib_write_lat', '-x', '1', '-F', '-n', '50', '-s', '64', '--tclass', '107', '-u', '18')
            self.assertEqual(pair.result(), '')
            pair = self.start_pair('ib_send_lat', '-c', 'UD', '-x', '1', '-F', '-n', '10', '-s', '64', '--tclass', '104')
            self.assertEqual(pair.result(), '')
        kinds = {}
        for frame in frames:
            if 'bth' in frame:
                kinds.setdefault(frame['bth']['name'], []).append(frame)
        for frame in kinds['RC_WRITE_ONLY'] + kinds['RC_ACKNOWLEDGE']:
            self.assertEqual((frame['ipv4']['dscp'], frame['ipv4']['ecn']), (26, 2), frame)
        for frame in kinds['UD_SEND_ONLY']:  # datagrams are not throttled
            self.assertEqual((frame['ipv4']['dscp'], frame['ipv4']['ecn']), (26, 0), frame)
        for frame in kinds['CNP']:
            self.assertEqual((frame['ipv4']['dscp'], frame['ipv4']['ecn']), (CNP_DSCP, 0), frame)
            self.assertTrue(frame['bth']['becn'])
            self.assertEqual(frame['icrc']['verdict'], 'good', frame)

    def test_marked_datagrams_are_answered_to_their_sources(self):
        self.start(ON)
        self.roci('impair', SERVER, *MARK_REQUESTS, '100%')
        with self.capture() as frames:
            for gid in ('1', '2'):
                # ECN-capable; for datagrams the program chooses the bits.
                pair = self.start_pair('ib_send_lat', '-c', 'UD', '-x', gid, '-F', '-n', '50', '-s', '64', '--tclass', '106')
                self.assertEqual(pair.result(), '')
        frames = [frame for frame in frames if 'bth' in frame]
        for family in ('ipv4', 'ipv6'):
            sent = [frame for frame in frames if frame['bth']['name'] == 'UD_SEND_ONLY' and family in frame and
                    frame['eth']['src'] == self.counters(CLIENT)['mac']]
            answers = [frame for frame in frames if frame['bth']['name'] == 'CNP' and family in frame]
            self.assertTrue(answers, family)
            for frame in answers:
                self.assertEqual((frame['verdict'], frame['bth']['dest_qpn'], frame['bth']['becn']),
                                 ('ok', sent[0]['deth']['src_qpn'], True))
                for key in ('src', 'dst'):
                    other = 'dst' if key == 'src' else 'src'
                    self.assertEqual(frame[family][key], sent[0][family][other])
                    self.assertEqual(frame['eth'][key], sent[0]['eth'][other])
        self.assertEqual(self.transport(SERVER, 'np_cnp_sent'), self.transport(CLIENT, 'rp_cnp_ignored'))

    def test_off_on_a_wire_unless_told_otherwise(self):
        self.start(None)
        self.roci('impair', SERVER, *MARK_REQUESTS, '100%')
        self.assertEqual(self.start_pair('ib_write_bw', '-x', '1', '-F', '-s', '4096', '-n', '500').result(), '')
        impairment = next(port for port in self.daemon.show('ports') if port['device'] == SERVER)['impairments'][0]
        self.assertGreater(impairment['counters']['matched'], 0)
        self.assertEqual(impairment['counters']['ecn_marked'], 0)
        # ECN-capable packets are marked; nothing else changes.
        self.assertEqual(self.start_pair('ib_write_bw', '-x', '1', '-F', '-s', '4096', '-n', '500', '--tclass', '2').result(), '')
        self.assertGreater(self.transport(SERVER, 'np_ecn_marked_roce_packets'), 0)
        self.assertEqual(self.transport(SERVER, 'np_cnp_sent'), 0)
        self.assertEqual([device['congestion_control'] for device in self.daemon.show('devices')], [False, False])


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
