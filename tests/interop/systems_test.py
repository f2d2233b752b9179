#!/usr/bin/env python3
"""Programs of other Debian releases, with their own libibverbs, use the devices of a daemon of this machine: Debian 13 (rdma-core 56)
and sid. `roci run` runs among their files, in both of its ways, and so does every program.

Usage: systems_test.py FOLDER ROCI ROCID PLUGIN     (FOLDER: of make_systems.sh)
"""
import os
import subprocess
import sys
import unittest

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ('../integration', '..')]
# pylint: disable=wrong-import-position
from harness import LIMIT_S, Daemon, Pair, Programs
import tap

DEVICES = ('roci0', 'roci1')
WAYS = ('--require-namespace', '--no-namespace')
# The private ABI number of each release.
NUMBERS = {'trixie': 34, 'sid': 65}
# enter ROOT FOLDER COMMAND...: runs the command in a system, with this machine's /proc, /sys and /dev, FOLDER at its path, and
# all of this machine's files in /host. The mounts end with the command.
ENTER = '''
root=$1 folder=$2
shift 2
mount --make-rslave / && mount --bind "$root" "$root"
for name in proc sys dev; do mkdir -p "$root/$name"; mount --rbind "/$name" "$root/$name"; done
mkdir -p "$root/host" "$root$folder"
mount --rbind / "$root/host" && mount --bind "$folder" "$root$folder"
exec chroot "$root" "$@"
'''
PAIRS = ('ibv_rc_pingpong -g 1', 'ibv_rc_pingpong -g 1 -N', 'ibv_uc_pingpong -g 1', 'ibv_ud_pingpong -g 1', 'ibv_srq_pingpong -g 1',
         'ibv_xsrq_pingpong -g 1', 'ib_write_bw -x 1 -n 1000', 'ib_read_bw -x 1 -n 1000', 'ib_send_lat -x 1 -n 500 -e',
         'ib_atomic_bw -x 1 -n 500')
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


class DaemonForSystem(Daemon):
    """A daemon of this machine, whose programs run in another system. They start by this machine's `roci`."""

    def __init__(self, programs, root):
        super().__init__(programs)
        self.root = root
        self.way = WAYS[0]
        # `roci` needs this machine's libraries.
        self.loader = os.path.realpath('/lib64/ld-linux-x86-64.so.2')

    def command(self, *command):
        return ['unshare', '--mount', 'bash', '-c', ENTER, 'enter', self.root, self.runtime_dir,
                f'/host{self.loader}', '--library-path', f'/host{os.path.dirname(self.loader)}', f'/host{self.programs.roci}',
                'run', '--runtime-dir', self.runtime_dir, '--plugin', f'/host{self.programs.plugin}', self.way, *command]

    def run(self, *command):
        return subprocess.run(self.command(*command), capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              stdin=subprocess.DEVNULL)


class Systems(unittest.TestCase):
    """Each test runs for every system; see add_systems."""

    def enter(self, suite):
        root = os.path.join(FOLDER, suite)
        if not os.path.exists(f'{root}/.stamp'):
            with open(f'{root}.log', encoding='utf-8', errors='replace') as log:
                said = log.read().strip().splitlines()
            self.skipTest(f'no system {suite}: {said[-1] if said else "it could not be made"}')
        self.daemon = DaemonForSystem(PROGRAMS, root)
        self.addCleanup(self.daemon.stop)

    def in_each_way(self, suite, check):
        self.enter(suite)
        for way in WAYS:
            self.daemon.way = way
            with self.subTest(way):
                check()

    def devices(self, suite):
        """`roci run` names the libibverbs, and ibv_devinfo shows both devices."""
        def check():
            done = self.daemon.run('-v', 'ibv_devinfo')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn('/usr/bin/ibv_devinfo loads', done.stderr)
            self.assertIn(f'(private ABI {NUMBERS[suite]})', done.stderr)
            self.assertEqual([line.split()[1] for line in done.stdout.splitlines() if line.startswith('hca_id')], list(DEVICES))
            self.assertEqual(done.stdout.count('PORT_ACTIVE'), 2)

        self.in_each_way(suite, check)

    def pairs(self, suite):
        """Servers and clients of that system move data."""
        def check():
            for command in PAIRS:
                with self.subTest(command):
                    pair = Pair(self.daemon, DEVICES, command.split())
                    try:
                        self.assertEqual(pair.connect().result(), '')
                    finally:
                        pair.kill()

        self.in_each_way(suite, check)

    def connections(self, suite):
        """Its librdmacm connects by the daemon's connection manager."""
        def check():
            script = ('rping -s -a 10.99.0.1 -C 20 & for i in $(seq 100); do rping -c -a 10.99.0.1 -C 20 && break; sleep 0.1; done; '
                      'wait $!')
            done = self.daemon.run('bash', '-c', script)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

        self.in_each_way(suite, check)

    def python(self, suite):
        """Its pyverbs opens the devices."""
        def check():
            done = self.daemon.run('python3', '-c', PYVERBS)
            self.assertEqual((done.returncode, done.stdout), (0, ''), done.stderr)

        self.in_each_way(suite, check)


def add_systems():
    for suite in NUMBERS:
        for name in ('devices', 'pairs', 'connections', 'python'):
            setattr(Systems, f'test_{name}_of_{suite}', lambda self, name=name, suite=suite: getattr(self, name)(suite))


add_systems()
if __name__ == '__main__':
    FOLDER = os.path.abspath(sys.argv[1])
    PROGRAMS = Programs(*sys.argv[2:5])
    tap.main(sys.modules['__main__'])
