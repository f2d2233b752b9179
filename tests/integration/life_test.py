#!/usr/bin/env python3
"""Start and end of programs and daemons: what is left behind, what the peer sees, and permissions.

Usage: life_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import os
import select
import signal
import subprocess
import sys
import time
import unittest

from harness import LIMIT_S, Daemon, Pair, Programs, await_

OBJECTS = ('qps', 'cqs', 'srqs', 'mrs', 'apps')
NOTHING = {what: 0 for what in OBJECTS}
PROGRAMS = None


def thread_times(pid):
    """Seconds of processor time of each thread: [(name, seconds)]."""
    times = []
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/comm', encoding='utf-8') as name, \
             open(f'/proc/{pid}/task/{task}/schedstat', encoding='ascii') as spent:
            times.append((name.read().strip(), int(spent.read().split()[0]) * 1e-9))
    return times


def descendants(pid):
    """Processes that its main thread has started."""
    with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as children:
        return [int(child) for child in children.read().split()]


def is_alive(pid):
    """Not a process that has ended and waits for its parent."""
    try:
        with open(f'/proc/{pid}/stat', encoding='utf-8') as stat:
            return stat.read().rpartition(')')[2].split()[0] not in 'ZX'
    except (FileNotFoundError, ProcessLookupError):
        return False


class LifeTest(unittest.TestCase):

    def make_daemon(self, **options):
        daemon = Daemon(PROGRAMS, **options)
        self.addCleanup(daemon.stop)
        return daemon

    @staticmethod
    def leftovers(daemon):
        return {what: len(daemon.show(what)) for what in OBJECTS}

    def traffic(self, daemon, *options):
        """A server and a client that write until they are killed."""
        pair = Pair(daemon, ('roci0', 'roci1'), ['ib_write_bw', '-F', '-x', '1', '-D', '50', *options]).connect()
        self.addCleanup(pair.kill)
        self.assertTrue(await_(lambda: any(qp['tx_packets'] > 1000 for qp in daemon.show('qps'))), 'no traffic')
        return pair

    def test_killed_programs_leave_nothing_behind(self):
        daemon = self.make_daemon()
        self.assertEqual(self.leftovers(daemon), NOTHING)
        before = None
        for _ in range(4):
            pair = self.traffic(daemon, '-q', '4')
            pair.server.kill()
            pair.client.kill()
            self.assertTrue(await_(lambda: self.leftovers(daemon) == NOTHING), self.leftovers(daemon))
            pair.kill()
            now = (daemon.descriptors(), *daemon.mappings())
            before = before or now  # the first round may leave objects that are made once
        # The daemon may still have the connection of the last `roci show`; another thread unmaps memory.
        self.assertTrue(await_(lambda: daemon.descriptors() <= before[0]), f'descriptors left behind: {now} {before}')
        self.assertTrue(await_(lambda: daemon.mappings()[0] <= before[1]), f'mappings of files left behind: {now} {before}')
        # An ended helper thread's stack and heap (two mappings) are kept for reuse. Few run at a time.
        self.assertLessEqual(daemon.mappings()[1], before[2] + 16, f'anonymous mappings left behind: {now} {before}')
        self.assertEqual(daemon.stop(), 0)

    def test_killed_programs_leave_no_domain_behind(self):
        daemon = self.make_daemon()
        for _ in range(2):
            pair = self.traffic(daemon, '-c', 'XRC', '-q', '2')
            self.assertTrue(daemon.show('srqs'))
            pair.client.kill()
            pair.server.kill()
            self.assertTrue(await_(lambda: self.leftovers(daemon) == NOTHING), self.leftovers(daemon))
            pair.kill()
        self.assertEqual(daemon.stop(), 0)

    def test_the_peer_of_a_killed_program_sees_retry_exceeded(self):
        daemon = self.make_daemon()
        pair = self.traffic(daemon)
        pair.server.kill()
        output, _ = pair.client.communicate(timeout=LIMIT_S)
        self.assertNotEqual(pair.client.returncode, 0)
        # perftest prints the status of the completion: 12 is IBV_WC_RETRY_EXC_ERR.
        self.assertIn('Failed status 12', output)

    def test_programs_survive_the_end_of_the_daemon(self):
        daemon = self.make_daemon()
        pair = self.traffic(daemon)
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.process.wait()
        for process in (pair.server, pair.client):
            if process is pair.server:
                process.terminate()  # it waits for the client's TCP messages
            process.communicate(timeout=LIMIT_S)
            self.assertNotIn(process.returncode, (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT))
        # A new daemon can use the directory.
        again = self.make_daemon(runtime_dir=daemon.runtime_dir)
        self.assertEqual(again.stop(), 0)

    def test_a_killed_daemon_leaves_no_process_behind(self):
        # At once after a program: the daemon's processes still have threads that close its descriptors. Wrong uses of freed
        # memory show, because Meson sets MALLOC_PERTURB_.
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            daemon = self.make_daemon()
            processes = descendants(daemon.pid)
            self.assertTrue(processes, 'it has a process that receives descriptors')
            subprocess.run(daemon.command('ibv_devinfo', '-d', 'roci0'), capture_output=True, timeout=LIMIT_S, check=True)
            os.kill(daemon.pid, number)
            daemon.process.wait()
            self.assertTrue(await_(lambda left=processes: not any(is_alive(pid) for pid in left)), f'left behind: {processes}')

    def test_a_second_daemon_is_refused(self):
        daemon = self.make_daemon()
        second = subprocess.run([PROGRAMS.rocid, '--runtime-dir', daemon.runtime_dir], capture_output=True,
                                text=True, timeout=LIMIT_S, check=False)
        self.assertNotEqual(second.returncode, 0)
        self.assertEqual(len(second.stderr.strip().splitlines()), 1, second.stderr)
        self.assertIn(daemon.runtime_dir, second.stderr)
        self.assertIsNone(daemon.process.poll())
        self.assertEqual(len(daemon.show('devices')), 2)

    def pingpong(self, daemon, *options, devices=('roci0', 'roci1')):
        pair = Pair(daemon, devices, ['ibv_rc_pingpong', '-g', '1', '-c', *options]).connect()
        self.assertEqual(pair.result(), '')

    def test_no_process_outlives_the_daemon(self):
        daemon = self.make_daemon()
        with open(f'/proc/{daemon.pid}/task/{daemon.pid}/children', encoding='ascii') as children:
            broker, = (os.pidfd_open(int(pid)) for pid in children.read().split())
        self.addCleanup(os.close, broker)
        self.pingpong(daemon, '-n', '10')
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(select.select([broker], [], [], LIMIT_S)[0], [broker], 'the descriptor broker still runs')

    def test_two_daemons_side_by_side(self):
        daemons = [self.make_daemon(), self.make_daemon()]
        for daemon in daemons:
            self.pingpong(daemon)
        for daemon in daemons:
            self.assertEqual(daemon.stop(), 0)

    @unittest.skipIf(os.geteuid() != 0, 'only root can become another user')
    def test_as_an_ordinary_user(self):
        daemon = self.make_daemon(user='nobody')
        self.pingpong(daemon)
        self.assertTrue(await_(lambda: self.leftovers(daemon) == NOTHING), self.leftovers(daemon))

    @unittest.skipIf(os.geteuid() != 0, 'only root can become another user')
    def test_ordinary_programs_with_roots_daemon(self):
        daemon = self.make_daemon()
        daemon.user = 'nobody'
        self.pingpong(daemon)

    def test_an_idle_daemon_sleeps(self):
        daemon = self.make_daemon()
        self.pingpong(daemon)
        used = []

        def sleeps():
            before = daemon.cpu_s()
            time.sleep(3)
            used.append(daemon.cpu_s() - before)
            return used[-1] < 0.06
        if not await_(sleeps):
            self.fail(f'seconds of processor time in 3 idle seconds: {used}; of its threads: {thread_times(daemon.pid)}; '
                      f'lcores: {daemon.show("lcores")}, programs: {daemon.show("apps")}')


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4], copied=True)
    try:
        unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
    finally:
        PROGRAMS.remove()
