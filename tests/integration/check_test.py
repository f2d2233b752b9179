#!/usr/bin/env python3
"""`roci check`: as a command, about captures of our own adapters while Debian's programs run, and about faults.

Usage: check_test.py ROCI ROCID PLUGIN LABORATORY VECTORS [unittest arguments]
"""
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from harness import LIMIT_S, Daemon, Pair, Programs, await_

PROGRAMS, LABORATORY, VECTORS = None, None, None
ACROSS = ('roci0', 'roci1')  # server, client


def check(*arguments, data=None, cwd=None):
    return subprocess.run([PROGRAMS.roci, 'check', *arguments], input=data, capture_output=True, timeout=LIMIT_S, check=False, cwd=cwd)


class CommandTest(unittest.TestCase):
    """Captures that were recorded elsewhere."""

    def test_exit_statuses(self):
        nics = os.path.join(VECTORS, 'nic-to-nic.pcap')
        with open(nics, 'rb') as file:
            good = file.read()
        bad = bytearray(good)
        bad[-5] ^= 1
        for data, status, says in ((good, 0, '0 violations (and 0 unsure)'), (bytes(bad), 1, '1 violations'),
                                   (good[:-10], 2, 'the file ends within a record'), (b'no capture', 2, 'neither pcap nor pcapng'),
                                   (b'', 2, 'neither')):
            done = check('-', data=data)
            self.assertEqual(done.returncode, status, done)
            self.assertIn(says, done.stderr.decode())
        self.assertEqual(check('/no/file').returncode, 2)
        self.assertEqual(check().returncode, 2)
        self.assertEqual(check('--most', '0', nics).returncode, 2)
        self.assertEqual(check(nics, '/no/file').returncode, 2)
        self.assertEqual(check('--svg', 'x.svg', nics, nics).returncode, 2)

    def test_a_finding_names_frame_rule_and_clause(self):
        with open(os.path.join(VECTORS, 'nic-to-nic.pcap'), 'rb') as file:
            bad = bytearray(file.read())
        bad[-5] ^= 1
        line = check('-', data=bytes(bad)).stdout.decode()
        self.assertRegex(line, r'^-: frame 123 \d+\.\d{9} 192\.168\.70\.4 > \S+ qp 0x48: violation icrc: .*\[IBTA 7\.8\.1, A17\.4\.4\]\n$')
        done = check('--json', '-', data=bytes(bad))
        (finding,) = json.loads(done.stdout)['findings']
        self.assertEqual((finding['frame'], finding['rule'], finding['sure']), (123, 'icrc', True))
        self.assertEqual(json.loads(done.stdout)['counts']['icrc'], {'sure': 1, 'unsure': 0})

    def test_a_damaged_capture_is_judged_up_to_its_damage(self):
        with open(os.path.join(VECTORS, 'nic-to-nic.pcap'), 'rb') as file:
            cut = file.read()[:40000]
        done = check('--json', '-', data=cut)
        self.assertEqual(done.returncode, 2)
        result = json.loads(done.stdout)
        self.assertIn('ends within', result['error'])
        self.assertGreater(result['roce'], 40)

    def test_unsure_findings_count_with_whole(self):
        records, at = [], 24
        with open(os.path.join(VECTORS, 'nic-to-nic.pcap'), 'rb') as file:
            data = file.read()
        while at < len(data):
            length = 16 + int.from_bytes(data[at + 8:at + 12], 'little')
            records.append(data[at:at + length])
            at += length
        lacking = data[:24] + b''.join(records[:41] + records[42:])
        done = check('-', data=lacking)
        self.assertIn(b'psn_gap', done.stdout)
        self.assertIn(b'unsure, the capture may lack frames', done.stdout)
        self.assertEqual(done.returncode, 0)
        done = check('--whole', '-', data=lacking)
        self.assertNotIn(b'unsure,', done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_summary_and_drawing(self):
        nics = os.path.join(VECTORS, 'nic-to-nic.pcap')
        with tempfile.TemporaryDirectory() as folder:
            done = check('--summary', '--svg', os.path.join(folder, 'rates.svg'), nics)
            self.assertEqual(done.returncode, 0, done.stderr)
            drawing = xml.etree.ElementTree.parse(os.path.join(folder, 'rates.svg')).getroot()
        self.assertTrue(drawing.tag.endswith('svg'))
        self.assertGreater(len(drawing), 2)
        self.assertRegex(done.stdout.decode(), r'qp 0x45, RC, from qp 0x48, path MTU 1024\n  packets \d+ bytes \d+ messages 34\n  rtt: ')
        pairs = json.loads(check('--summary', '--json', nics).stdout)['queue_pairs']
        self.assertEqual({pair['src_qpn'] for pair in pairs}, {0x45, 0x48})

    def test_rules_are_listed(self):
        rules = check('--rules').stdout.decode().splitlines()
        self.assertGreater(len(rules), 50)
        self.assertTrue(all('[IBTA ' in rule for rule in rules))


class OwnTrafficTest(unittest.TestCase):
    """Captures of a daemon's devices."""

    def setUp(self):
        self.daemon = Daemon(PROGRAMS)
        self.addCleanup(self.daemon.stop)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def roci(self, *arguments):
        subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, *arguments], capture_output=True, text=True,
                       timeout=LIMIT_S, check=True)

    def capture(self, run, device='roci0'):
        """What `roci check --json --summary` says about the frames of a device during `run`, and its exit status."""
        path = os.path.join(self.folder.name, 'traffic.pcapng')
        command = [PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'capture', device, '-w', path]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            self.assertTrue(await_(lambda: os.path.exists(path) and os.path.getsize(path) > 0))
            run()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=LIMIT_S)
        done = check('--json', '--summary', path)
        os.remove(path)
        return json.loads(done.stdout), done.returncode

    def run_pair(self, *command):
        pair = Pair(self.daemon, ACROSS, list(command))
        self.addCleanup(pair.kill)
        self.assertEqual(pair.connect().result(), '', command)

    def run_connected(self, *command):
        """rping: by the connection manager."""
        server = self.daemon.start('rping', '-s', *command)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        self.assertTrue(await_(lambda: any(each['state'] == 'listen' for each in self.daemon.show('connections'))))
        client = self.daemon.start('rping', '-c', '-a', '10.99.0.1', '-I', '10.99.0.2', *command)
        self.addCleanup(client.kill)
        output, _ = client.communicate(timeout=LIMIT_S)
        self.assertIn(client.returncode, (0, 255), output)

    def expect_clean(self, run, least_frames):
        result, status = self.capture(run)
        self.assertEqual((result['findings'], status), ([], 0), result['findings'])
        self.assertGreaterEqual(result['roce'], least_frames)
        return result

    def test_programs_break_no_rule(self):
        for command, least in ((['ib_write_bw', '-n', '200', '-s', '65536'], 1000), (['ib_read_bw', '-n', '200', '-s', '65536'], 1000),
                               (['ib_send_bw', '-m', '1024', '-n', '500', '-s', '3000'], 1000),
                               (['ib_send_bw', '-c', 'UC', '-m', '256', '-n', '500', '-s', '3000'], 500),
                               (['ib_send_bw', '-c', 'UD', '-n', '500', '-s', '512'], 500), (['ib_atomic_bw', '-n', '500'], 500),
                               (['ib_write_lat', '-n', '300', '-s', '64'], 300), (['ib_send_lat', '-n', '300', '-s', '64', '-r', '1'], 300),
                               (['ib_send_bw', '-b', '-q', '4', '-n', '200', '-s', '5000'], 1000)):
            with self.subTest(command=command):
                self.expect_clean(lambda command=command: self.run_pair(command[0], '-x', '1', '-F', *command[1:]), least)

    def test_connections_break_no_rule(self):
        result = self.expect_clean(lambda: self.run_connected('-C', '20', '-S', '5000'), 100)
        pairs = [pair for pair in result['queue_pairs'] if pair['transport'] == 'RC']
        self.assertEqual(len(pairs), 2)
        self.assertTrue(all(pair['src_qpn'] for pair in pairs))

    def test_a_device_that_talks_to_itself_breaks_no_rule(self):
        def run():
            server = self.daemon.start('rping', '-s', '-a', '10.99.0.1', '-C', '20')
            self.addCleanup(server.communicate)
            self.addCleanup(server.kill)
            self.assertTrue(await_(lambda: any(each['state'] == 'listen' for each in self.daemon.show('connections'))))
            client = self.daemon.start('rping', '-c', '-a', '10.99.0.1', '-C', '20')
            self.addCleanup(client.kill)
            output, _ = client.communicate(timeout=LIMIT_S)
            self.assertIn(client.returncode, (0, 255), output)

        result = self.expect_clean(run, 200)
        self.assertGreater(result['own_copies'], 100)
        self.assertTrue(all(pair['repeated'] == 0 for pair in result['queue_pairs']), result['queue_pairs'])

    def with_fault(self, *fault, command=('ib_send_bw', '-m', '1024', '-s', '3000', '-n', '200'), device='roci1', at='roci0'):
        """The rules that a capture of the server's device names, with a fault at the client's (or as `device` says)."""
        self.roci('fault', 'add', device, *fault)

        def run():
            pair = Pair(self.daemon, ACROSS, [command[0], '-x', '1', '-F', '-Q', '1', '-u', '8', *command[1:]])
            self.addCleanup(pair.kill)
            pair.connect()
            pair.client.communicate(timeout=LIMIT_S)
            pair.server.kill()
            pair.server.communicate()

        result, status = self.capture(run, at)
        self.roci('fault', 'del', device, 'all')
        return {finding['rule'] for finding in result['findings']}, status, result

    def test_a_loss_is_recovered_without_a_violation(self):
        # The last `-u` counts. A busy machine makes the client's short time-out cross the NAK.
        command = ('ib_send_bw', '-m', '1024', '-s', '3000', '-n', '200', '-u', '16')
        _, status, result = self.with_fault('--drop', '--opcode', 'RC_SEND_MIDDLE', '--nth', '20', command=command)
        # On a busy machine the capture lacks frames, which makes findings unsure.
        counts = [finding for finding in result['findings'] if finding['sure'] or not result['dropped']]
        self.assertEqual((counts, status), ([], 0), result)
        self.assertEqual(sum(pair['nak_recoveries'] for pair in result['queue_pairs']), 1)
        self.assertGreaterEqual(sum(pair['missing'] for pair in result['queue_pairs']), 1)

    def test_faults_are_named(self):
        for fault, rule in ((['--flip', 'payload:0', '--opcode', 'RC_SEND_MIDDLE'], 'icrc'),
                            (['--set', 'bth.tver=1', '--opcode', 'RC_SEND_MIDDLE'], 'transport_version'),
                            (['--set', 'bth.pkey=0x8001', '--opcode', 'RC_SEND_MIDDLE'], 'pkey'),
                            (['--set', 'bth.migreq=0', '--opcode', 'RC_SEND_MIDDLE'], 'mig_req'),
                            (['--set', 'bth.opcode=4', '--opcode', 'RC_SEND_MIDDLE'], 'opcode_sequence'),
                            (['--set', 'bth.padcnt=1', '--opcode', 'RC_SEND_MIDDLE'], 'payload_length'),
                            (['--set', 'bth.psn+=0x400000', '--opcode', 'RC_SEND_MIDDLE'], 'psn_order')):
            with self.subTest(fault=fault):
                rules, _status, result = self.with_fault(*fault, '--nth', '20')
                self.assertIn(rule, rules, result['findings'])

    def test_faults_of_the_responder_are_named(self):
        acks = ['--opcode', 'RC_ACKNOWLEDGE', '--nth', '20']
        for fault, rule in ((['--set', 'aeth.syndrome=0x40'], 'syndrome'), (['--set', 'aeth.msn+=9'], 'msn'),
                            (['--set', 'bth.psn+=40'], 'ack_unsent')):
            with self.subTest(fault=fault):
                command = ('ib_send_bw', '-s', '8', '-t', '4', '-n', '500')
                rules, _status, result = self.with_fault(*fault, *acks, command=command, device='roci0', at='roci1')
                self.assertIn(rule, rules, result['findings'])

    def test_the_commands_of_the_document(self):
        text = pathlib.Path(LABORATORY).read_text(encoding='utf-8')
        commands = [shlex.split(line.strip())[1:] for line in text.splitlines() if line.startswith('    roci check ')]
        self.assertGreaterEqual(len(commands), 3)
        path = os.path.join(self.folder.name, 'run.pcapng')
        command = [PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'capture', 'roci0', '-w', path]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            self.assertTrue(await_(lambda: os.path.exists(path) and os.path.getsize(path) > 0))
            self.run_pair('ib_send_bw', '-x', '1', '-F', '-n', '100', '-s', '3000')
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=LIMIT_S)
        for arguments in commands:
            done = subprocess.run([PROGRAMS.roci, *arguments], capture_output=True, timeout=LIMIT_S, check=False, cwd=self.folder.name)
            self.assertEqual(done.returncode, 0, (arguments, done))


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    LABORATORY, VECTORS = sys.argv[4:6]
    unittest.main(argv=[sys.argv[0]] + sys.argv[6:])
