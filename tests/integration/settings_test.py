#!/usr/bin/env python3
"""The daemon's settings under traffic: lcores and their processors, spinning, memory policy, hugepages.

Usage: settings_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import contextlib
import ctypes
import os
import pathlib
import platform
import re
import sys
import unittest

from harness import Daemon, Pair, Programs, await_, free_port

PROGRAMS = None
ACROSS = ('roci0', 'roci1')


def free_hugepage_bytes():
    total = 0
    for folder in pathlib.Path('/sys/kernel/mm/hugepages').glob('hugepages-*kB'):
        size = int(folder.name[len('hugepages-'):-len('kB')]) * 1024
        total += size * int((folder / 'free_hugepages').read_text())
    return total


def may_migrate_pages():
    """Whether a program gets a userfaultfd for page faults of the kernel: by the system call, or from a device that the daemon
    opens for it."""
    userfaultfd = ctypes.CDLL(None).syscall({'x86_64': 323, 'aarch64': 282}[platform.machine()], os.O_CLOEXEC)
    if userfaultfd < 0:
        with contextlib.suppress(OSError):
            userfaultfd = os.open('/dev/userfaultfd', os.O_RDWR | os.O_CLOEXEC)
    if userfaultfd >= 0:
        os.close(userfaultfd)
    return userfaultfd >= 0


class SettingsTest(unittest.TestCase):

    def make_daemon(self, config):
        daemon = Daemon(PROGRAMS, config=config)
        self.addCleanup(daemon.stop)
        return daemon

    def run_pairs(self, daemon, *commands):
        """Runs the programs at the same time; they verify the data themselves."""
        pairs = [Pair(daemon, ACROSS, list(command)) for command in commands]
        for pair in pairs:
            self.addCleanup(pair.kill)
            pair.connect()
        for pair in pairs:
            self.assertEqual(pair.result(), '')

    @staticmethod
    def lcore_processors(daemon):
        """The processors of each dataplane thread, found by the EAL's thread names, which depend on its version."""
        found = {}
        for task in pathlib.Path(f'/proc/{daemon.pid}/task').iterdir():
            name = re.fullmatch(r'(?:lcore-worker-|rte-worker-|dpdk-worker)(\d+)', (task / 'comm').read_text().strip())
            if name:
                found[int(name[1])] = os.sched_getaffinity(int(task.name))
        return found

    def test_pinned_lcores_stay_where_they_are_put(self):
        processors = sorted(os.sched_getaffinity(0))
        pins = [processors[-1], processors[0]]
        daemon = self.make_daemon(f'[daemon]\nlcores = 2\npin = {pins}\n')
        self.assertEqual(self.lcore_processors(daemon), {1: {pins[0]}, 2: {pins[1]}})
        # A pinned lcore without real-time priority may wait long for its processor, so the timeout is long.
        self.run_pairs(daemon, ['ib_send_lat', '-F', '-x', '1', '-n', '500', '-u', '20'])

    def test_lcores_without_a_pin_float(self):
        daemon = self.make_daemon('[daemon]\nlcores = 2\n')
        everywhere = os.sched_getaffinity(0)
        self.assertEqual(self.lcore_processors(daemon), {1: everywhere, 2: everywhere})

    def test_spinning_lcores_never_sleep(self):
        daemon = self.make_daemon('[daemon]\nspin = true\n')
        self.run_pairs(daemon, ['ibv_rc_pingpong', '-g', '1', '-c'])
        before = daemon.show('lcores')[0]
        self.assertTrue(await_(lambda: daemon.show('lcores')[0]['loops'] > before['loops'] + 1000))
        self.assertEqual(daemon.show('lcores')[0]['sleeps'], 0)

    def test_three_lcores_share_sessions_and_reach_each_other(self):
        daemon = self.make_daemon('[daemon]\nlcores = 3\n')
        self.run_pairs(daemon, ['ibv_rc_pingpong', '-g', '1', '-c', '-n', '2000'],
                       ['ib_write_bw', '-F', '-x', '1', '-q', '4', '-n', '500'],
                       ['ib_read_bw', '-F', '-x', '2', '-n', '500'])
        lcores = daemon.show('lcores')
        self.assertEqual([lcore['lcore'] for lcore in lcores], [0, 1, 2])
        for lcore in lcores:
            self.assertGreater(lcore['rx_packets'], 0, lcore)
        for port in daemon.show('counters'):
            self.assertEqual(port['drops']['unknown_qp'], 0)

    def test_memory_is_reached_as_the_policy_says(self):
        # A pingpong's buffer is private memory.
        migrated = {'mapped', 'mixed'} if may_migrate_pages() else {'process_vm'}
        for policy, wanted in (('process_vm', {'process_vm'}), ('map', migrated), ('auto', {'process_vm'})):
            with self.subTest(policy):
                daemon = self.make_daemon(f'[memory]\npolicy = "{policy}"\n')
                for program in (['ibv_rc_pingpong', '-g', '1', '-c', '-s', '300000', '-n', '200'],
                                ['ibv_ud_pingpong', '-g', '1', '-c', '-s', '1000', '-n', '200'],
                                ['ib_read_bw', '-F', '-x', '1', '-s', '1000000', '-n', '20'],
                                ['ib_atomic_bw', '-F', '-x', '1', '-n', '200']):
                    self.run_pairs(daemon, program)
                server = daemon.start('ibv_rc_pingpong', '-d', 'roci0', '-g', '1', '-p', str(free_port()), '-s', '1000000')
                self.addCleanup(server.stdout.close)
                self.addCleanup(server.kill)
                self.assertTrue(await_(lambda: daemon.show('mrs')), 'the program has ended')
                advice = self.assert_reach_is_explained(daemon, wanted)
                if policy == 'map' and not may_migrate_pages():
                    self.assertIn('a /dev/userfaultfd that rocid can open', advice)
                server.kill()  # the next server needs its TCP port
                server.wait()
                daemon.stop()

    def assert_reach_is_explained(self, daemon, wanted):
        """`roci show` and the log say how the memory of a pingpong, the only program, is accessed, and why. Returns their advice."""
        mr, app = daemon.show('mrs')[0], daemon.show('apps')[0]
        self.assertIn(mr['reached_by'], wanted)
        lines = [line for line in daemon.output().splitlines() if f"[{mr['pid']}]" in line and 'is accessed' in line]
        if mr['reached_by'] == 'mapped':
            self.assertEqual(lines, [])
            self.assertIsNone(mr['why_not_mapped'])
            return ''
        self.assertEqual(len(lines), 1, daemon.output())
        for key in ('why_not_mapped', 'faster_with'):
            self.assertTrue(mr[key], mr)
            self.assertIn(mr[key], lines[0])
            self.assertEqual(app['memory'][key], mr[key])
        return mr['faster_with']

    def test_without_hugepages(self):
        daemon = self.make_daemon('[daemon]\nhugepages = "off"\n')
        self.run_pairs(daemon, ['ibv_rc_pingpong', '-g', '1', '-c'])
        with open(f'/proc/{daemon.pid}/smaps_rollup', encoding='ascii') as rollup:
            self.assertRegex(rollup.read(), r'Private_Hugetlb: +0 kB')

    @unittest.skipIf(free_hugepage_bytes() < 128 << 20, 'no 128 MiB of free hugepages (/proc/sys/vm/nr_hugepages)')
    def test_with_hugepages(self):
        daemon = self.make_daemon('[daemon]\nhugepages = "on"\nmemory_mib = 64\n')
        self.run_pairs(daemon, ['ibv_rc_pingpong', '-g', '1', '-c'])
        with open(f'/proc/{daemon.pid}/smaps_rollup', encoding='ascii') as rollup:
            self.assertNotRegex(rollup.read(), r'(Private|Shared)_Hugetlb: +0 kB\n.*_Hugetlb: +0 kB')


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
