#!/usr/bin/env python3
"""Captures and impairments while Debian's programs run: `roci capture`, `roci impair`.

tshark dissects the daemon's frames; scapy and icrc.py, which are independent of it, verify their ICRCs.

Usage: link_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import dissectors
from harness import LIMIT_S, Daemon, Pair, Programs, await_

PROGRAMS = None
ACROSS = ('roci0', 'roci1')

FEW = ['-n', '5', '-s', '9000']
# With GID index 1 (IPv4) and 2 (IPv6) these programs send every opcode that unmodified programs of Debian use.
# (opcodes_test.py tests all opcodes.)
TRAFFIC = (
    ['ib_send_bw', '-c', 'RC', *FEW], ['ib_send_bw', '-c', 'UC', *FEW], ['ib_send_bw', '-c', 'XRC', *FEW],
    ['ib_send_bw', '-c', 'UD', '-n', '5', '-s', '1000'], ['ib_send_lat', '-c', 'RC', '-n', '5', '-s', '63'],
    ['ib_send_lat', '-c', 'UC', '-n', '5', '-s', '63'], ['ib_send_lat', '-c', 'XRC', '-n', '5', '-s', '63'],
    ['ib_write_bw', '-c', 'RC', *FEW], ['ib_write_bw', '-c', 'UC', *FEW], ['ib_write_bw', '-c', 'XRC', *FEW],
    ['ib_write_bw', '-c', 'RC', '-n', '5', '-s', '61'], ['ib_write_bw', '-c', 'UC', '-n', '5', '-s', '61'],
    ['ib_write_bw', '-c', 'XRC', '-n', '5', '-s', '61'],
    ['ib_read_bw', '-c', 'RC', *FEW], ['ib_read_bw', '-c', 'XRC', *FEW], ['ib_read_bw', '-c', 'RC', '-n', '5', '-s', '62'],
    ['ib_read_bw', '-c', 'XRC', '-n', '5', '-s', '62'],
    ['ib_atomic_bw', '-c', 'RC', '-A', 'FETCH_AND_ADD', '-n', '5'],
    ['ib_atomic_bw', '-c', 'RC', '-A', 'CMP_AND_SWAP', '-n', '5'],
    ['ib_atomic_bw', '-c', 'XRC', '-A', 'FETCH_AND_ADD', '-n', '5'],
    ['ib_atomic_bw', '-c', 'XRC', '-A', 'CMP_AND_SWAP', '-n', '5'],
)
EXPECTED = {f'{kind}_{name}' for kind in ('RC', 'UC', 'XRC') for operation in ('SEND', 'WRITE')
            for name in (f'{operation}_FIRST', f'{operation}_MIDDLE', f'{operation}_LAST', f'{operation}_ONLY')}
EXPECTED |= {f'{kind}_{name}' for kind in ('RC', 'XRC') for name in (
    'READ_REQUEST', 'READ_RESPONSE_FIRST', 'READ_RESPONSE_MIDDLE', 'READ_RESPONSE_LAST', 'READ_RESPONSE_ONLY',
    'ACKNOWLEDGE', 'ATOMIC_ACKNOWLEDGE', 'COMPARE_SWAP', 'FETCH_ADD')}
EXPECTED |= {'UD_SEND_ONLY'}


class LinkTest(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon(PROGRAMS)
        self.addCleanup(self.daemon.stop)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def roci(self, *arguments, check=True):
        done = subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, *arguments], capture_output=True,
                              timeout=LIMIT_S, check=False)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def start_capture(self, *arguments):
        """A running capture, and its file."""
        path = os.path.join(self.folder, f'{len(os.listdir(self.folder))}.pcapng')
        process = subprocess.Popen([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'capture', *arguments,
                                    '-w', path], stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        self.assertTrue(await_(lambda: os.path.exists(path) and os.path.getsize(path) > 0))
        return process, path

    def end_capture(self, process):
        """The numbers of captured and dropped frames."""
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0, said)
        words = said.split()
        return int(words[0]), int(words[3])

    def run_pair(self, *command):
        pair = Pair(self.daemon, ACROSS, list(command))
        self.addCleanup(pair.kill)
        self.assertEqual(pair.connect().result(), '', command)

    def decoded(self, path):
        done = self.roci('decode', '--json', path)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def impairments(self, device):
        return next(port['impairments'] for port in self.daemon.show('ports') if port['device'] == device)

    def test_independent_dissectors_recognise_every_opcode(self):
        capture, path = self.start_capture('roci0')
        for gid in ('1', '2'):
            for command in TRAFFIC:
                self.run_pair(command[0], '-x', gid, '-F', *command[1:])
        captured, dropped = self.end_capture(capture)
        self.assertEqual(dropped, 0)
        frames = self.decoded(path)
        self.assertLessEqual(len(frames), captured)  # ARP and neighbour discovery
        for family in ('ipv4', 'ipv6'):
            seen = {frame['bth']['name'] for frame in frames if family in frame}
            self.assertEqual(EXPECTED - seen, set(), family)
            self.assertEqual({frame['direction'] for frame in frames if family in frame}, {'in', 'out'})

        dissectors.check(self, path, frames)

    def test_a_capture_contains_the_selected_frames(self):
        capture, path = self.start_capture('roci1', '--opcode', '*ACKNOWLEDGE', '--direction', 'out', '-s', '64')
        self.run_pair('ibv_rc_pingpong', '-g', '1', '-n', '50')
        captured, _ = self.end_capture(capture)
        self.assertGreater(captured, 0)
        frames = self.decoded(path)
        self.assertEqual({frame['bth']['name'] for frame in frames}, {'RC_ACKNOWLEDGE'})
        self.assertEqual({frame['direction'] for frame in frames}, {'out'})
        # With a number of frames the capture ends by itself; it writes to standard output for other programs. (Without an
        # opcode it would contain ARP and neighbour discovery, which `decode` omits.)
        command = [PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'capture', 'roci0', '--opcode', 'RC_*', '-c', '7', '-w', '-']
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as capture:
            self.assertTrue(await_(lambda: self.running_captures() > 0 or capture.poll() is not None))
            self.run_pair('ibv_rc_pingpong', '-g', '1', '-n', '50')
            stream, said = capture.communicate(timeout=LIMIT_S)
        self.assertEqual((capture.returncode, said), (0, b'7 frames captured, 0 dropped\n'))
        done = subprocess.run([PROGRAMS.roci, 'decode', '-'], input=stream, capture_output=True, timeout=LIMIT_S, check=True)
        self.assertEqual(done.stdout.count(b'\n'), 7)
        self.assertEqual(self.running_captures(), 0)

    def test_a_capture_ends_with_its_reader(self):
        # No selected frame arrives (the host may send ARP and MLD), so no write can fail.
        command = [PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'capture', 'roci0', '--opcode', 'RC_SEND_ONLY', '-w', '-']
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as capture:
            self.assertTrue(await_(lambda: self.running_captures() > 0))
            capture.stdout.close()
            capture.stdout = None
            _, said = capture.communicate(timeout=LIMIT_S)
        self.assertEqual((capture.returncode, said), (0, b'0 frames captured, 0 dropped\n'))
        self.assertEqual(self.running_captures(), 0)

    def test_a_capture_under_traffic_ends_with_its_reader(self):
        pair = Pair(self.daemon, ('roci0', 'roci1'), ['ib_write_bw', '-x', '1', '-F', '-s', '4096', '-D', '1000', '-u', '16'])
        self.addCleanup(pair.kill)
        pair.connect()
        command = [PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'capture', 'roci0', '-w', '-']
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as capture:
            self.assertEqual(len(capture.stdout.read(100_000)), 100_000)
            capture.stdout.close()
            capture.stdout = None
            _, said = capture.communicate(timeout=LIMIT_S)
        self.assertRegex(said, rb'^[1-9]\d* frames captured, \d+ dropped\n$')
        self.assertEqual(capture.returncode, 0)

    def running_captures(self):
        return next(port['captures'] for port in self.daemon.show('ports') if port['device'] == 'roci0')

    def test_an_ended_client_leaves_no_capture(self):
        capture, _ = self.start_capture('roci0')
        self.assertEqual(self.running_captures(), 1)
        capture.kill()
        capture.wait(timeout=LIMIT_S)
        self.assertTrue(await_(lambda: self.running_captures() == 0))
        self.run_pair('ibv_rc_pingpong', '-g', '1')

    def test_refusals(self):
        for arguments in (['capture', 'roci9', '-w', '-'], ['impair', 'roci9', '--loss', '1%'], ['impair', 'roci9']):
            done = self.roci(*arguments, check=False)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn(b'roci9', done.stderr)
        for arguments in (['capture', 'roci0'], ['capture', 'roci0', '-w', '-', '--opcode', 'NONSENSE'],
                          ['impair', 'roci0', '--loss', '101%'], ['impair', 'roci0', '--delay', '10'],
                          ['impair', 'roci0', '--seed', '1', '--direction', 'in'],
                          ['impair', 'roci0', '--seed', '1'], ['impair', 'roci0', '--seed', '0'],
                          ['impair', 'roci0', '--clear', '--loss', '1%'], ['impair', 'roci0', '--clear', '--seed', '1'],
                          ['impair', 'roci0', '--loss', '1%', '--qp', '0x1000000']):
            self.assertEqual(self.roci(*arguments, check=False).returncode, 2, arguments)
        above = str(2**53 + 1)
        for what, arguments in {'seconds': ['capture', 'roci0', '-w', '-', '--seconds', 'nan'],
                                'frames': ['capture', 'roci0', '-w', '-', '--count', above],
                                '2^53': ['impair', 'roci0', '--loss', '1%', '--seed', above]}.items():
            done = self.roci(*arguments, check=False)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(f'{arguments[-1]} is not a number', done.stderr.decode())
            self.assertIn(what, done.stderr.decode())
        captures = [self.start_capture('roci0')[0] for _ in range(4)]
        done = self.roci('capture', 'roci0', '-w', '/dev/null', check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b'captures', done.stderr)
        for capture in captures:
            self.end_capture(capture)

    def impair_both_ends(self, *impairment):
        """Frames that the first device sends to the second."""
        self.roci('impair', 'roci0', *impairment)
        self.roci('impair', 'roci1', *impairment, '--direction', 'in')

    def test_programs_finish_over_bad_links(self):
        # The peers resolve each other first: ARP frames are lost, too, and its retry is slow.
        self.run_pair('ibv_rc_pingpong', '-g', '1', '-n', '1')
        bad = ['--loss', '1%', '--duplicate', '1%', '--reorder', '2%', '--corrupt', '1%', '--delay', '20us', '--seed', '7']
        # The server exits after it has acknowledged the last message. If that ACK is lost, the client gets no other.
        self.impair_both_ends(*bad, '--opcode', 'RC_SEND*')
        self.run_pair('ibv_rc_pingpong', '-g', '1', '-c', '-n', '500', '-s', '20000')
        for device in ACROSS:
            self.roci('impair', device, '--clear')
        self.impair_both_ends(*bad)
        self.run_pair('ib_write_bw', '-x', '1', '-F', '-n', '200', '-s', '65536')
        self.run_pair('ib_read_bw', '-x', '1', '-F', '-n', '100', '-s', '65536')
        for device in ('roci0', 'roci1'):
            (impairment,) = self.impairments(device)
            for name in ('matched', 'lost', 'delayed', 'reordered', 'duplicated', 'corrupted'):
                self.assertGreater(impairment['counters'][name], 0, name)
            self.assertEqual(impairment['counters']['queue_full'], 0)
        drops = {port['device']: port['drops'] for port in self.daemon.show('ports')}
        self.assertGreater(drops['roci1'].get('icrc', 0), 0)
        text = self.roci('show', 'ports').stdout.decode()
        self.assertIn('out corrupt=0.01 delay_ns=20000 duplicate=0.01 loss=0.01', text)
        for device in ('roci0', 'roci1'):
            self.assertEqual(self.roci('impair', device, '--clear').stdout, b'none\n')
            self.assertEqual(self.impairments(device), [])
        self.run_pair('ibv_rc_pingpong', '-g', '1', '-c')

    def test_impairments_of_some_packets(self):
        self.roci('impair', 'roci0', '--opcode', 'UD_SEND_ONLY', '--loss', '100%')
        self.roci('impair', 'roci0', '--opcode', 'RC_SEND_ONLY', '--ecn', '1', '--seed', '5')
        self.assertEqual(len(self.impairments('roci0')), 2)
        capture, path = self.start_capture('roci0', '--direction', 'out')
        self.run_pair('ib_send_lat', '-x', '1', '-F', '-n', '100', '-s', '8', '--tclass', '2')
        self.end_capture(capture)
        counters = [impairment['counters'] for impairment in self.impairments('roci0')]
        self.assertEqual((counters[0]['matched'], counters[0]['lost']), (0, 0))
        self.assertGreaterEqual(counters[1]['ecn_marked'], 100)
        for frame in self.decoded(path):
            expected = 3 if frame['bth']['name'] == 'RC_SEND_ONLY' else 2
            self.assertEqual(frame['ipv4']['ecn'], expected, frame)
        # A rule with the same filter replaces the first.
        self.roci('impair', 'roci0', '--opcode', 'ud_send_only', '--loss', '1%')
        self.assertEqual(len(self.impairments('roci0')), 2)
        # Removing one rule keeps the other.
        for arguments in (['--opcode', 'RC_SEND_FIRST'], ['--opcode', 'RC_SEND_ONLY', '--direction', 'in']):
            done = self.roci('impair', 'roci0', *arguments, '--clear', check=False)
            self.assertEqual((done.returncode, done.stderr),
                             (1, b'roci: roci0 has no impairment with this filter\n'), arguments)
        self.roci('impair', 'roci0', '--opcode', 'RC_SEND_ONLY', '--clear')
        self.assertEqual([each['loss'] for each in self.impairments('roci0')], [0.01])

    def test_a_selected_queue_pair_has_both_directions(self):
        pair = Pair(self.daemon, ACROSS, ['ib_send_lat', '-x', '1', '-F', '-D', '20', '-s', '8'])
        self.addCleanup(pair.kill)
        pair.connect()

        def connected():
            return [qp for qp in self.daemon.show('qps') if qp['device'] == 'roci1' and qp['tx_packets'] > 100]
        self.assertTrue(await_(connected))
        (qp,) = connected()
        for both, names in (((), {'in', 'out'}), (('--direction', 'in'), {'in'}), (('--direction', 'out'), {'out'})):
            path = os.path.join(self.folder, 'some.pcapng')
            self.roci('capture', 'roci1', '--qp', str(qp['qpn']), '-c', '200', '-w', path, *both)
            frames = self.decoded(path)
            self.assertEqual({frame['direction'] for frame in frames}, names)
            self.assertEqual({(frame['direction'], frame['bth']['dest_qpn']) for frame in frames} -
                             {('in', qp['qpn']), ('out', qp['remote_qpn'])}, set())
        self.roci('impair', 'roci1', '--qp', str(qp['qpn']), '--delay', '1us')
        self.assertTrue(await_(lambda: self.impairments('roci1')[0]['counters']['delayed'] > 10))
        # The rule is found by its filter options in any order, even after queue pair and peer are destroyed.
        self.roci('impair', 'roci1', '--qp', str(qp['qpn']), '--qp', '5', '--delay', '1us')
        self.assertEqual(len(self.impairments('roci1')), 2)
        pair.kill()
        self.assertTrue(await_(lambda: not self.daemon.show('qps')))
        self.roci('impair', 'roci1', '--qp', '5', '--qp', str(qp['qpn']), '--clear')
        self.roci('impair', 'roci1', '--qp', str(qp['qpn']), '--clear')
        self.assertEqual(self.impairments('roci1'), [])

    def test_the_same_seed_gives_the_same_losses(self):
        came = []
        for _ in range(2):
            capture, path = self.start_capture('roci0', '--opcode', 'UC_WRITE_ONLY')
            # The client, on the other device, does not wait for lost frames.
            self.roci('impair', 'roci1', '--opcode', 'UC_WRITE_ONLY', '--loss', '30%', '--seed', '3', '--direction', 'out')
            self.run_pair('ib_write_bw', '-c', 'UC', '-x', '1', '-F', '-n', '200', '-s', '8')
            self.end_capture(capture)
            psns = [frame['bth']['psn'] for frame in self.decoded(path)]
            came.append([(psn - psns[0]) & 0xFFFFFF for psn in psns])
            for device in ACROSS:
                self.roci('impair', device, '--clear')
        self.assertEqual(came[0], came[1])
        self.assertTrue(100 < len(came[0]) < 180, len(came[0]))


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
