#!/usr/bin/env python3
"""`roci top`, in a terminal and without one, while a program sends.

Usage: top_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import unittest

from harness import LIMIT_S, Daemon, Pair, Programs, await_

PROGRAMS = None


class TopTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(PROGRAMS)
        cls.addClassCleanup(cls.daemon.stop)
        cls.pair = Pair(cls.daemon, ('roci0', 'roci1'), ['ib_send_lat', '-x', '1', '-F', '-D', '100', '-s', '8'])
        cls.addClassCleanup(cls.pair.kill)
        cls.pair.connect()
        if not await_(lambda: sum(qp['tx_packets'] > 100 for qp in cls.daemon.show('qps')) == 2):
            raise AssertionError('the program does not send')

    def command(self, *arguments):
        return [PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'top', *arguments]

    def run_top(self, *arguments):
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def test_without_a_terminal_it_prints_blocks(self):
        done = self.run_top('--count', '2', '--interval', '100ms')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        blocks = done.stdout.strip().split('\n\n')
        self.assertEqual(done.stdout.count('queue pairs by tx'), 2)
        self.assertNotIn('\x1b', done.stdout)
        rows = re.findall(r'^0x[0-9a-f]{6} ib_send_lat\[\d+\] +([0-9.]+[KM]?) .* RC +RTS +roci[01]', done.stdout, re.MULTILINE)
        self.assertEqual(len(rows), 4, blocks)
        self.assertTrue(all(rate != '0' for rate in rows), rows)
        self.assertRegex(done.stdout, r'lcore 0: \d+% busy')

    def test_filters(self):
        done = self.run_top('--count', '1', '--interval', '50ms', '--device', 'roci1', '--program', 'ib_send_lat', '--active', '--sort', 'qp')
        self.assertEqual(len(re.findall('^0x', done.stdout, re.MULTILINE)), 1, done.stdout)
        self.assertNotIn('roci0 ', done.stdout)
        self.assertIn('by qp', done.stdout)
        for arguments in (['--interval', '1ms'], ['--sort', 'speed'], ['--count', 'x']):
            self.assertNotEqual(self.run_top(*arguments).returncode, 0)
        done = self.run_top('--count', '1', '--device', 'roci9')
        self.assertEqual((done.returncode, done.stdout), (1, ''))
        self.assertIn('there is no device roci9', done.stderr)

    def test_without_a_daemon_it_says_so(self):
        done = subprocess.run([PROGRAMS.roci, '--runtime-dir', '/nowhere', 'top'], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('/nowhere', done.stderr)

    def open_in_terminal(self, *arguments):
        child, terminal = pty.fork()
        if child == 0:
            os.execv(PROGRAMS.roci, self.command(*arguments))
        self.addCleanup(os.close, terminal)
        return child, terminal

    @staticmethod
    def read_until(terminal, wanted):
        said, deadline = '', time.monotonic() + LIMIT_S
        while not re.search(wanted, said) and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1)[0]:
                try:
                    said += os.read(terminal, 65536).decode(errors='replace')
                except OSError:  # the program has ended
                    break
        return said

    def ends(self, child, terminal):
        said = self.read_until(terminal, r'\x1b\[\?1049l')
        self.assertIn('\x1b[?1049l', said, 'leaves the alternate screen')
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_keys_in_a_terminal(self):
        child, terminal = self.open_in_terminal('--interval', '100ms')
        said = self.read_until(terminal, 'ib_send_lat')
        self.assertIn('\x1b[?1049h', said)
        self.assertIn('by tx', said)
        os.write(terminal, b'p')
        self.assertIn('by program', self.read_until(terminal, 'by program'))
        os.write(terminal, b'q')
        self.ends(child, terminal)

    def test_an_interrupt_leaves_the_terminal_as_it_was(self):
        child, terminal = self.open_in_terminal('--interval', '60s')
        self.read_until(terminal, 'ib_send_lat')
        os.kill(child, signal.SIGINT)
        self.ends(child, terminal)


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
