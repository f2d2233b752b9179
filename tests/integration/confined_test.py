#!/usr/bin/env python3
"""Programs that are confined, by themselves or by others, before they open a device: other users, other roots, system call
filters, containers other than the daemon's.

Usage: confined_test.py ROCI ROCID PLUGIN CONFINED_PROGRAM [unittest arguments]
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from harness import LIMIT_S, Daemon, Programs

os.environ['VERBS_LOG_LEVEL'] = '1'  # the plugin says why a device cannot be opened
PROGRAMS = PROGRAM = None

# As a container engine does: new namespaces, root in a new user namespace.
CONTAINER = ('unshare', '--user', '--map-root-user', '--pid', '--fork', '--kill-child', '--mount', '--mount-proc')
# The daemon in a PID namespace that does not contain the programs.
BESIDE = ('unshare', '--pid', '--fork', '--kill-child=SIGTERM', '--mount', '--mount-proc')


@unittest.skipUnless(os.geteuid() == 0, 'needs root')
class ConfinedTest(unittest.TestCase):

    def make_daemon(self, **options):
        daemon = Daemon(PROGRAMS, **options)
        self.addCleanup(daemon.stop)
        return daemon

    def make_daemon_beside(self):
        daemon = self.make_daemon(prefix=BESIDE)
        self.addCleanup(daemon.process.kill)  # unshare(1) does not forward SIGTERM
        return daemon

    def run_confined(self, daemon, *arguments, prefix=(), **options):
        """Runs the program with the devices of `daemon`."""
        return subprocess.run([*prefix, *daemon.command(PROGRAM, *arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False, **options)

    def assert_served(self, done, daemon):
        self.assertEqual(done.returncode, 0, f'{done.stdout}\n{daemon.output()}')

    def assert_reach_is_logged(self, daemon, *words):
        """One line of the log, for both devices of the program, says how its memory is accessed and what would be faster."""
        lines = [line for line in daemon.output().splitlines() if 'registered memory is accessed' in line]
        self.assertEqual(len(lines), 1, daemon.output())
        for word in (*words, 'Reason: the memory is private', 'Faster: shared memory', '`roci doctor`'):
            self.assertIn(word, lines[0])

    def make_root(self, *shown):
        """A folder for chroot, and a command prefix that bind-mounts the machine's folders `shown` into it."""
        root = tempfile.mkdtemp(prefix='roci-root.')
        os.chmod(root, 0o755)
        self.addCleanup(shutil.rmtree, root)
        mounts = ' && '.join(f'mkdir {root}/{folder} && mount --rbind /{folder} {root}/{folder}' for folder in shown)
        return root, f'{mounts or ":"} && exec "$0" "$@"'

    def test_a_program_without_confinement(self):
        daemon = self.make_daemon()
        self.assert_served(self.run_confined(daemon, 'plain'), daemon)
        self.assert_reach_is_logged(daemon, 'process_vm_readv', 'memory.policy = "map"')

    def test_another_user_without_exec(self):
        daemon = self.make_daemon()
        self.assert_served(self.run_confined(daemon, 'setuid'), daemon)
        self.assert_reach_is_logged(daemon, '/proc/PID/mem', "a rocid that runs as the program's user")

    def chroot(self, daemon, how, *shown):
        root, mounts = self.make_root(*shown)
        # Inside the mount namespace of `roci run`.
        command = daemon.command('unshare', '--mount', 'sh', '-c', mounts, PROGRAM, how, root)
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=LIMIT_S, check=False)

    def test_another_root_without_the_daemons_folder(self):
        daemon = self.make_daemon()
        self.assert_served(self.chroot(daemon, 'chroot', 'dev', 'proc', 'sys'), daemon)

    def test_another_root_after_the_devices_are_open(self):
        daemon = self.make_daemon()
        self.assert_served(self.chroot(daemon, 'open-chroot', 'dev', 'sys'), daemon)

    def test_an_inaccessible_path_from_another_root_is_reported(self):
        daemon = self.make_daemon()
        done = self.chroot(daemon, 'chroot', 'dev', 'sys')
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('chroot', done.stdout)

    def test_a_system_call_filter(self):
        daemon = self.make_daemon()
        self.assert_served(self.run_confined(daemon, 'filter'), daemon)

    def test_a_container_within_the_daemons_process_numbers(self):
        daemon = self.make_daemon()
        self.assert_served(self.run_confined(daemon, 'plain', prefix=CONTAINER), daemon)

    def test_a_container_beside_the_daemons(self):
        daemon = self.make_daemon_beside()
        done = self.run_confined(daemon, 'raw', prefix=CONTAINER)
        self.assert_served(done, daemon)
        self.assertIn('raw packets: Operation not permitted', done.stdout)

    def test_a_filtered_program_in_a_container_beside_the_daemons(self):
        daemon = self.make_daemon_beside()
        self.assert_served(self.run_confined(daemon, 'filter', prefix=CONTAINER), daemon)
        self.assert_reach_is_logged(daemon, '/proc/PID/mem', 'PID namespace')

    def test_a_process_namespace_beside_the_daemons(self):
        daemon = self.make_daemon_beside()
        done = self.run_confined(daemon, 'raw')
        self.assert_served(done, daemon)
        self.assertIn('raw packets: Operation not permitted', done.stdout)


if __name__ == '__main__':
    PROGRAMS = Programs(*(sys.argv[i] for i in (1, 2, 3)), copied=True)
    PROGRAM = shutil.copy(os.path.abspath(sys.argv[4]), PROGRAMS.folder)
    try:
        unittest.main(argv=sys.argv[:1] + sys.argv[5:], verbosity=2)
    finally:
        PROGRAMS.remove()
