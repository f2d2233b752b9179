#!/usr/bin/env python3
"""The daemon shares processors with other programs: real-time priority, its limit, and the report of a waiting daemon.

Usage: scheduling_test.py ROCI ROCID PLUGIN POLLING_THREADS [unittest arguments]
"""
import json
import os
import pathlib
import subprocess
import sys
import time
import unittest

from harness import Daemon, Programs, await_, free_port, listening

PROGRAMS = None
POLLING_THREADS = None
LCORE_PRIORITY = 2
CONTROL_PRIORITY = 1
WARNING = 'waited'


def policy(thread):
    """The scheduling policy of a thread without flags, and its real-time priority."""
    return os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK, os.sched_getparam(thread).sched_priority


def may_be_realtime():
    done = subprocess.run(['chrt', '-f', '1', 'true'], capture_output=True, check=False)
    return done.returncode == 0


class SchedulingTest(unittest.TestCase):

    def make_daemon(self, config='', prefix=()):
        daemon = Daemon(PROGRAMS, config=config, prefix=prefix)
        self.addCleanup(daemon.stop)
        return daemon

    def compute_on(self, processor):
        """Starts a process that never sleeps."""
        process = subprocess.Popen(['taskset', '-c', str(processor), sys.executable, '-c', 'while True: pass'])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def ordinary_prefix(self):
        """A prefix of commands that removes the privilege of real-time priority."""
        return ['prlimit', '--rtprio=0:0', *self.without_capability()]

    @staticmethod
    def without_capability():
        return ['setpriv', '--bounding-set=-sys_nice', '--inh-caps=-sys_nice'] if os.getuid() == 0 else []

    @staticmethod
    def lcore(daemon):
        return daemon.show('lcores')[0]

    @staticmethod
    def other_threads(daemon, lcore):
        def name(task):
            return pathlib.Path(f'/proc/{daemon.pid}/task/{task}/comm').read_text(encoding='ascii').strip()

        tasks = (int(task.name) for task in pathlib.Path(f'/proc/{daemon.pid}/task').iterdir())
        return [task for task in tasks if task not in (daemon.pid, lcore['thread'])
                and name(task) != 'roci-priority']

    @unittest.skipUnless(may_be_realtime(), 'this user may not have real-time priority')
    def test_lcores_and_the_control_thread_are_realtime_if_permitted(self):
        daemon = self.make_daemon()
        lcore = self.lcore(daemon)
        self.assertEqual(lcore['realtime_priority'], LCORE_PRIORITY)
        # A thread has a lower priority only while it yields.
        self.assertTrue(await_(lambda: policy(lcore['thread']) == (os.SCHED_FIFO, LCORE_PRIORITY)))
        self.assertTrue(await_(lambda: policy(daemon.pid) == (os.SCHED_FIFO, CONTROL_PRIORITY)))
        for thread in self.other_threads(daemon, lcore):
            self.assertEqual(policy(thread)[0], os.SCHED_OTHER)

    @unittest.skipUnless(may_be_realtime(), 'this user may not have real-time priority')
    def test_a_resource_limit_is_enough_and_bounds_the_priority(self):
        if subprocess.run(['prlimit', '--rtprio=1:1', 'true'], capture_output=True, check=False).returncode != 0:
            self.skipTest('this user may not raise the limit')
        daemon = self.make_daemon(prefix=['prlimit', '--rtprio=1:1', *self.without_capability()])
        self.assertEqual(self.lcore(daemon)['realtime_priority'], 1)

    def test_threads_without_the_privilege_are_ordinary(self):
        daemon = self.make_daemon(prefix=self.ordinary_prefix())
        lcore = self.lcore(daemon)
        self.assertEqual(lcore['realtime_priority'], 0)
        for thread in (daemon.pid, lcore['thread']):
            self.assertEqual(policy(thread), (os.SCHED_OTHER, 0))

    def test_off_keeps_threads_ordinary(self):
        daemon = self.make_daemon('[daemon]\nrealtime = "off"\n')
        self.assertEqual(policy(self.lcore(daemon)['thread']), (os.SCHED_OTHER, 0))

    def test_on_without_the_privilege_does_not_start_and_reports_what_is_missing(self):
        with self.assertRaises(RuntimeError) as raised:
            self.make_daemon('[daemon]\nrealtime = "on"\n', prefix=self.ordinary_prefix())
        self.assertIn('RLIMIT_RTPRIO', str(raised.exception))

    # A spinning lcore never sleeps.
    def test_a_spinning_lcore_leaves_its_processor_to_others_at_times(self):
        processor = max(os.sched_getaffinity(0))
        daemon = self.make_daemon(f'[daemon]\nspin = true\npin = [{processor}]\n')
        self.check_bound(daemon, processor)

    @unittest.skipUnless(may_be_realtime() and len(os.sched_getaffinity(0)) > 1, 'no real-time priority, or one processor')
    def test_a_busy_lcore_leaves_its_processor_to_others_at_times(self):
        elsewhere, *_, processor = sorted(os.sched_getaffinity(0))
        daemon = self.make_daemon(f'[daemon]\npin = [{processor}]\n')
        traffic = ['taskset', '-c', str(elsewhere), 'ib_write_bw', '-F', '-x', '1', '-D', '1000']
        port = free_port()
        for arguments in (['-d', 'roci0', '-p', str(port)], ['-d', 'roci1', '-p', str(port), '127.0.0.1']):
            program = daemon.start(*traffic, *arguments)
            self.addCleanup(program.communicate)
            self.addCleanup(program.kill)
            self.assertTrue(await_(lambda: listening(port)))
        self.assertTrue(await_(lambda: self.lcore(daemon)['rx_packets'] > 100_000))
        self.check_bound(daemon, processor)
        self.assertTrue(await_(lambda: policy(self.lcore(daemon)['thread'])[0] == os.SCHED_FIFO))

    def check_bound(self, daemon, processor):
        """The bound holds under any load, and leaves a little more than the kernel's own throttling does."""
        other = self.compute_on(processor)

        def used_s():
            fields = pathlib.Path(f'/proc/{other.pid}/stat').read_text(encoding='ascii').rsplit(')', 1)[1].split()
            return int(fields[11]) / os.sysconf('SC_CLK_TCK')

        self.assertTrue(await_(lambda: used_s() > 0.1), 'the other program does not run')
        before, begin = self.lcore(daemon), time.monotonic()
        self.assertTrue(await_(lambda: time.monotonic() - begin > 3))
        ran_s, elapsed_s = (self.lcore(daemon)['ran_ms'] - before['ran_ms']) / 1000, time.monotonic() - begin
        self.assertLess(ran_s, 0.94 * elapsed_s)

    def test_a_daemon_that_waits_for_a_processor_reports_it_and_warns_once(self):
        processor = max(os.sched_getaffinity(0))
        daemon = self.make_daemon(f'[daemon]\nspin = true\nrealtime = "off"\npin = [{processor}]\n')
        before = self.lcore(daemon)
        self.assertNotIn(WARNING, daemon.output())
        for _ in range(4):
            self.compute_on(processor)
        self.assertTrue(await_(lambda: WARNING in daemon.output(), 60), 'no warning')
        self.assertGreater(self.lcore(daemon)['waited_for_processor_ms'], before['waited_for_processor_ms'])
        begin = time.monotonic()
        self.assertTrue(await_(lambda: time.monotonic() - begin > 5))
        warnings = [line for line in daemon.output().splitlines() if WARNING in line]
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn('Real-time priority is off', warnings[0])

    def check_polling_threads(self, daemon):
        """Each of 64 polling threads makes progress beside four busy loops, and the daemon answers."""
        before, begin = self.lcore(daemon), time.monotonic()
        program = daemon.start(POLLING_THREADS, '64', '3', '4')
        answers = 0
        while program.poll() is None:
            daemon.show('lcores')
            answers += 1
        output, _ = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 0, output)
        result = json.loads(output)
        waited_s = (self.lcore(daemon)['waited_for_processor_ms'] - before['waited_for_processor_ms']) / 1000
        share = waited_s / (time.monotonic() - begin)
        print('#', output.strip(), f'answers {answers}, lcore waited {share:.0%}')
        if before['realtime_priority'] != 0:
            self.assertLess(share, 0.5, 'of the time the lcore waited for a processor')
        self.assertGreaterEqual(result['least_completions'], 1, output)
        self.assertGreater(answers, 0)

    def test_polling_threads_and_busy_loops_do_not_stop_the_daemon(self):
        self.check_polling_threads(self.make_daemon())

    def test_polling_threads_do_not_stop_a_daemon_without_priority(self):
        self.check_polling_threads(self.make_daemon(prefix=self.ordinary_prefix()))


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    POLLING_THREADS = os.path.abspath(sys.argv[4])
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2)
