#!/usr/bin/env python3
"""RDMA programs of another Debian release, with its own libibverbs, use the devices of a daemon of this machine.

Usage: programs_test.py RELEASE ROCI ROCID PLUGIN

`roci run` and every program run among the files of a minimal system of that release (make_system.sh), in both ways of `roci run`.
Prints a TAP line per test. Skipped without root, mmdebstrap, or a mirror that has the release.
"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / 'integration')]
# pylint: disable=wrong-import-position
import tap  # noqa: E402
from harness import LIMIT_S, Daemon, Pair, Programs, await_, ended_well, outcome  # noqa: E402
from system import System  # noqa: E402
from two_ends import V4  # noqa: E402

ARGUMENTS = [argument for argument in sys.argv[1:] if argument != '--list']
RELEASE, PATHS = ARGUMENTS[0], [os.path.abspath(path) for path in ARGUMENTS[1:4]]
# The private ABI number of the release's libibverbs.
NUMBER = {'bookworm': 34, 'trixie': 34, 'sid': 65}[RELEASE]
# Releases whose public verbs tests pass; sid changes daily.
TESTED = ('bookworm', 'trixie')
DEVICES = ('roci0', 'roci1')
WAYS = ('--require-namespace', '--no-namespace')
PAIRS = ('ibv_rc_pingpong -g 1 -c', 'ibv_rc_pingpong -g 1 -c -e', 'ibv_rc_pingpong -g 1 -N', 'ibv_uc_pingpong -g 1 -c',
         'ibv_ud_pingpong -g 1 -c', 'ibv_srq_pingpong -g 1 -c', 'ibv_xsrq_pingpong -g 1',
         'ib_write_bw -F -x 1 -n 1000', 'ib_read_bw -F -x 1 -n 1000', 'ib_send_bw -F -x 1 -n 1000', 'ib_send_bw -F -x 1 -n 1000 -c UD',
         'ib_atomic_bw -F -x 1 -n 1000', 'ib_write_lat -F -x 1 -n 500', 'ib_read_lat -F -x 1 -n 500', 'ib_send_lat -F -x 1 -n 500 -e')
CONNECTIONS = ((f'rping -s -a {V4[1]} -C 10 -v', f'rping -c -a {V4[1]} -I {V4[0]} -C 10 -V'),
               (f'ucmatose -b {V4[1]}', f'ucmatose -s {V4[1]} -b {V4[0]}'), (f'udaddy -b {V4[1]}', f'udaddy -s {V4[1]} -b {V4[0]}'))
PYVERBS = '''
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.cq import CQ
from pyverbs.mr import MR
LOCAL_WRITE = 1
for name in ('roci0', 'roci1'):
    with Context(name=name) as context:
        assert context.query_device().max_qp > 0 and context.query_port(1).state == 4
        with PD(context) as pd, CQ(context, 10), MR(pd, 4096, LOCAL_WRITE) as mr:
            mr.write(b'data', 4)
            assert mr.read(4, 0) == b'data'
'''
HOST = '/host'  # where programs of a system see this machine's files
CONFORMANCE = f'{HOST}{HERE.parent}/conformance'


class SystemPrograms(Programs):
    """Programs whose clients run in a system."""

    def environment(self, command):
        return {}  # the system has a /tmp of its own


class SystemDaemon(Daemon):
    """A daemon of this machine. Its clients run in `system`, each started by this machine's `roci` in there."""

    def __init__(self, system, programs):
        super().__init__(programs)
        self.system = system
        self.way = WAYS[0]
        # `roci` needs this machine's libraries.
        self.loader = os.path.realpath('/lib64/ld-linux-x86-64.so.2')

    def command(self, *command):
        return self.system.command(f'{HOST}{self.loader}', '--library-path', f'{HOST}{os.path.dirname(self.loader)}',
                                   f'{HOST}{self.programs.roci}', 'run', '-v', '--runtime-dir', self.runtime_dir,
                                   '--plugin', f'{HOST}{self.programs.plugin}', self.way, *command, shared=(f'/:{HOST}', self.runtime_dir))

    def run(self, *command, limit_s=LIMIT_S):
        """Exit status and output."""
        with self.start(*command) as process:
            try:
                output, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return process.returncode, output


class ProgramsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.system = System(f'{RELEASE}/programs')
        cls.addClassCleanup(cls.system.remove)

    def setUp(self):
        self.daemon = SystemDaemon(self.system, SystemPrograms(*PATHS))
        self.addCleanup(self.daemon.stop)

    def succeed(self, *command):
        status, output = self.daemon.run(*command)
        self.assertEqual(status, 0, output)
        return output

    def in_each_way(self, check, *arguments):
        for way in WAYS:
            self.daemon.way = way
            with self.subTest(f'{way} {arguments}'):
                check(*arguments)

    def check_nothing_is_left(self):
        self.assertTrue(self.daemon.alive())
        self.assertTrue(await_(lambda: not self.daemon.show('qps') and not self.daemon.show('mrs')))
        self.assertEqual(self.daemon.stop(), 0, self.daemon.last_output)

    def check_devices(self):
        output = self.succeed('ibv_devinfo')
        self.assertIn('/usr/bin/ibv_devinfo loads', output)
        self.assertIn(f'(private ABI {NUMBER})', output)
        self.assertEqual(re.findall(r'hca_id:\s+(\S+)', output), list(DEVICES))
        self.assertEqual(output.count('PORT_ACTIVE'), 2, output)

    def test_the_system_is_of_the_release(self):
        if RELEASE != 'sid':  # which has the name of the next release
            text = pathlib.Path(self.system.root, 'etc/os-release').read_text(encoding='utf-8')
            self.assertIn(f'VERSION_CODENAME={RELEASE}\n', text)

    def test_devices(self):
        self.in_each_way(self.check_devices)

    def check_pair(self, command):
        pair = Pair(self.daemon, DEVICES, command.split())
        try:
            self.assertEqual(pair.connect().result(), '')
        finally:
            pair.kill()

    def test_pairs(self):
        for command in PAIRS:
            self.in_each_way(self.check_pair, command)
        self.check_nothing_is_left()

    def check_connection(self, server, client):
        listener = self.daemon.start(*server.split())
        try:
            await_(lambda: listener.poll() is not None or any(c['state'] == 'listen' for c in self.daemon.show('connections')))
            status, output = self.daemon.run(*client.split())
            self.assertTrue(ended_well(status, output), output)
            wrong = outcome('server', listener, LIMIT_S)
            self.assertTrue(ended_well(listener.returncode, wrong), wrong)
        finally:
            listener.kill()
            listener.wait()

    def test_connections(self):
        for server, client in CONNECTIONS:
            self.in_each_way(self.check_connection, server, client)
        self.check_nothing_is_left()

    def test_pyverbs(self):
        self.in_each_way(self.succeed, 'python3', '-c', PYVERBS)

    def test_public_verbs_tests(self):
        if RELEASE not in TESTED:
            self.skipTest(f'the tests of {RELEASE} change daily')
        status, output = self.daemon.run('python3', f'{CONFORMANCE}/pyverbs_test.py', DEVICES[0], f'{CONFORMANCE}/skips.txt')
        self.assertEqual(status, 0, '\n'.join(line for line in output.splitlines() if not line.startswith('ok ')))
        self.assertGreater(len(re.findall(r'(?m)^ok \d+ - tests\.[^#\n]+$', output)), 100)


if __name__ == '__main__':
    tap.main(sys.modules['__main__'])
