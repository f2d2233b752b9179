#!/usr/bin/env python3
"""Every opcode, over IPv4 and IPv6, without and with a VLAN tag, decoded by independent dissectors.

Usage: opcodes_test.py ROCI ROCID PLUGIN EVERY_OPCODE [unittest arguments]

EVERY_OPCODE is every_opcode.cc, compiled.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import dissectors
from harness import LIMIT_S, Daemon, Programs, await_

PROGRAMS = None
EVERY_OPCODE = None
VLAN = 100
CONFIG = '[congestion]\nenabled = "on"\n[[wire]]\nname = "w"\n' + ''.join(f'''
[[device]]
name = "roci{number}"
wire = "w"
addresses = ["10.99.0.{number + 1}/24", "fd99::{number + 1}/64"]
[[device.vlan]]
id = {VLAN}
addresses = ["10.98.0.{number + 1}/24", "fd98::{number + 1}/64"]
''' for number in (0, 1))
# By GID index: what the packets have.
KINDS = {1: ('ipv4', False), 2: ('ipv6', False), 4: ('ipv4', True), 5: ('ipv6', True)}

SENT = {f'{operation}_{place}' for operation in ('SEND', 'WRITE')
        for place in ('FIRST', 'MIDDLE', 'LAST', 'LAST_IMM', 'ONLY', 'ONLY_IMM')}
ASKED = {'SEND_LAST_INVALIDATE', 'SEND_ONLY_INVALIDATE', 'READ_REQUEST', 'COMPARE_SWAP', 'FETCH_ADD', 'FLUSH', 'ATOMIC_WRITE',
         'ACKNOWLEDGE', 'ATOMIC_ACKNOWLEDGE', *(f'READ_RESPONSE_{place}' for place in ('FIRST', 'MIDDLE', 'LAST', 'ONLY'))}
EVERY = {f'{kind}_{name}' for kind in ('RC', 'UC', 'XRC') for name in SENT}
EVERY |= {f'{kind}_{name}' for kind in ('RC', 'XRC') for name in ASKED}
EVERY |= {'UD_SEND_ONLY', 'UD_SEND_ONLY_IMM', 'CNP'}


class OpcodesTest(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon(PROGRAMS, config=CONFIG)
        self.addCleanup(self.daemon.stop)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, 'all.pcapng')

    def roci(self, *arguments):
        return [PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, *arguments]

    def capture_all(self):
        capture = subprocess.Popen(self.roci('capture', 'roci0', '-w', self.path), stderr=subprocess.PIPE, text=True)
        self.addCleanup(capture.stderr.close)
        self.addCleanup(capture.kill)
        self.assertTrue(await_(lambda: os.path.exists(self.path) and os.path.getsize(self.path) > 0))
        for gid in KINDS:
            done = subprocess.run(self.daemon.command(EVERY_OPCODE, str(gid)), capture_output=True, text=True, timeout=LIMIT_S,
                                  check=False)
            self.assertEqual(done.returncode, 0, (gid, done.stderr))
        capture.send_signal(signal.SIGINT)
        _, said = capture.communicate(timeout=LIMIT_S)
        self.assertRegex(said, r'^\d+ frames captured, 0 dropped\n$')

    def test_independent_dissectors_decode_every_opcode(self):
        # ECN marks cause CNPs.
        subprocess.run(self.roci('impair', 'roci0', '--ecn', '50%', '--seed', '7'), check=True, capture_output=True,
                       timeout=LIMIT_S)
        self.capture_all()
        decoded = subprocess.run(self.roci('decode', '--json', self.path), capture_output=True, text=True, timeout=LIMIT_S,
                                 check=True)
        frames = [json.loads(line) for line in decoded.stdout.splitlines()]
        for family, tagged in KINDS.values():
            seen = {frame['bth']['name'] for frame in frames if family in frame and ('vlan' in frame) == tagged}
            self.assertEqual(EVERY ^ seen, set(), (family, tagged))
        dissectors.check(self, self.path, frames)


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    EVERY_OPCODE = os.path.abspath(sys.argv[4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[5:])
