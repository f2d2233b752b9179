#!/usr/bin/env python3
"""The daemon as its service runs it: an ordinary user with the unit's capabilities, which serves all users. Prints TAP.

Usage: service_test.py ROCI ROCID PLUGIN UNIT
"""
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / 'tests'), str(TOP / 'tests/integration')]
import harness  # pylint: disable=wrong-import-position
import tap  # pylint: disable=wrong-import-position

UNIT = pathlib.Path(sys.argv[4]).read_text(encoding='utf-8')
DAEMON_USER = 64321  # has no name, as no account has it
OTHER = 'nobody'
WITH_PORT = '''[[wire]]
name = "w"
[[device]]
name = "roci0"
wire = "w"
addresses = ["10.99.0.1/24"]
[[device]]
name = "roci1"
wire = "w"
addresses = ["10.99.0.2/24"]
[[device]]
name = "roci2"
port = "packet:roci-t0"
addresses = ["10.98.0.1/24"]
'''
# The service manager makes these, or DPDK does without what they would give (iopl: I/O ports of old virtio devices).
NOT_NEEDED = {'setresuid', 'setresgid', 'setgroups', 'setuid', 'setgid', 'iopl'}


def setting(name):
    """The words of all lines `name=` of the unit."""
    return [line.split() for line in re.findall(rf'^{name}=(.*)$', UNIT, re.MULTILINE)]


def as_service():
    """The command before rocid that gives it the unit's user and capabilities."""
    capabilities = ','.join('+' + name.removeprefix('CAP_').lower() for name in setting('AmbientCapabilities')[0])
    return ['setpriv', f'--reuid={DAEMON_USER}', f'--regid={DAEMON_USER}', '--clear-groups', f'--inh-caps=-all,{capabilities}',
            f'--ambient-caps=-all,{capabilities}', f'--bounding-set=-all,{capabilities}', '--no-new-privs']


def allowed_calls():
    """The system calls that the unit permits."""
    text = subprocess.run(['systemd-analyze', 'syscall-filter', '--no-pager'], capture_output=True, text=True, check=True).stdout
    groups, name = {}, None
    for line in text.splitlines():
        name = line if line.startswith('@') else name
        word = line.strip()
        if word and not word.startswith('#') and word != name and name:
            groups.setdefault(name, []).append(word)

    def members(word):
        return {call for member in groups[word] for call in members(member)} if word.startswith('@') else {word}

    allowed = members('@default')
    for words in setting('SystemCallFilter'):
        is_denied = words[0].startswith('~')
        calls = {call for word in words for call in members(word.lstrip('~'))}
        allowed = allowed - calls if is_denied else allowed | calls
    return allowed


@unittest.skipUnless(os.geteuid() == 0 and shutil.which('setpriv'), 'needs root and setpriv')
class AsService(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(*sys.argv[1:4], copied=True)
        cls.addClassCleanup(cls.programs.remove)
        cls.scratch = tempfile.TemporaryDirectory(prefix='roci-service.')
        cls.addClassCleanup(cls.scratch.cleanup)
        os.chmod(cls.scratch.name, 0o755)

    def daemon(self, *arguments, before=(), config=None):
        """A daemon of the service's user. The runtime directory is the user's, and outlives the daemon."""
        # Short: the path of a socket has 108 bytes at most.
        folder = os.path.join(self.scratch.name, self._testMethodName[5:25])
        os.makedirs(folder, exist_ok=True)
        os.chown(folder, DAEMON_USER, DAEMON_USER)
        daemon = harness.Daemon(self.programs, arguments, runtime_dir=folder, config=config, prefix=(*before, *as_service()))
        self.addCleanup(daemon.stop)
        return daemon

    def run_as(self, user, daemon, *command):
        return subprocess.run(daemon.command(*command), capture_output=True, text=True, check=False, timeout=harness.LIMIT_S,
                              **harness.as_user(user))

    def ping_pong(self, daemon, server_user, client_user):
        port = str(harness.free_port())
        command = ['ibv_rc_pingpong', '-g', '1', '-p', port, '-c']
        server = subprocess.Popen(daemon.command(*command, '-d', 'roci0'), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  **harness.as_user(server_user))
        self.assertTrue(harness.await_(lambda: harness.listening(int(port)) or server.poll() is not None))
        client = self.run_as(client_user, daemon, *command, '-d', 'roci1', 'localhost')
        said, _ = server.communicate(timeout=harness.LIMIT_S)
        self.assertEqual((client.returncode, server.returncode), (0, 0), said + client.stdout + client.stderr + daemon.output())

    def test_serves_root_and_other_users(self):
        daemon = self.daemon('--all-users')
        self.ping_pong(daemon, None, OTHER)

    def test_without_the_option_only_its_own_user(self):
        daemon = self.daemon()
        refused = self.run_as(OTHER, daemon, 'ibv_devinfo')
        self.assertNotEqual(refused.returncode, 0, refused.stdout)
        self.assertIn('Permission denied', refused.stdout + refused.stderr)

    def test_answers_roci_show_of_root_only(self):
        daemon = self.daemon('--all-users')
        self.assertEqual([device['name'] for device in daemon.show('devices')], ['roci0', 'roci1'])
        show = [self.programs.roci, '--runtime-dir', daemon.runtime_dir, 'show', 'devices']
        refused = subprocess.run(show, capture_output=True, text=True, check=False, **harness.as_user(OTHER))
        self.assertEqual(refused.returncode, 1, refused.stdout)

    def test_counts_other_users_apart(self):
        daemon = self.daemon('--all-users')
        program = daemon.start('sleep', '0', **harness.as_user(OTHER))
        program.communicate(timeout=harness.LIMIT_S)
        holder = daemon.start('ibv_asyncwatch', '-d', 'roci0', **harness.as_user(OTHER))
        try:
            uid = pwd.getpwnam(OTHER).pw_uid
            self.assertTrue(harness.await_(lambda: [app['uid'] for app in daemon.show('apps')] == [uid]), daemon.show('apps'))
        finally:
            holder.kill()
            holder.communicate()

    def test_starts_again_after_a_crash(self):
        daemon = self.daemon('--all-users')
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.process.wait()
        self.ping_pong(self.daemon('--all-users'), OTHER, None)

    def test_has_no_more_than_the_unit_s_capabilities(self):
        daemon = self.daemon('--all-users')
        status = pathlib.Path(f'/proc/{daemon.pid}/status').read_text(encoding='utf-8')
        sets = dict(re.findall(r'^Cap(\w+):\s*(\w+)$', status, re.MULTILINE))
        self.assertEqual(sets['Eff'], sets['Bnd'])
        self.assertEqual(bin(int(sets['Eff'], 16)).count('1'), len(setting('CapabilityBoundingSet')[0]))

    @unittest.skipUnless(shutil.which('systemd-analyze') and shutil.which('strace'), 'needs systemd-analyze and strace')
    def test_makes_only_permitted_system_calls(self):
        trace = os.path.join(self.scratch.name, 'trace')
        harness.require_network_namespaces()
        subprocess.run(['ip', 'link', 'add', 'roci-t0', 'type', 'veth', 'peer', 'name', 'roci-t1'], check=True)
        self.addCleanup(subprocess.run, ['ip', 'link', 'del', 'roci-t0'], check=True)
        for end in ('roci-t0', 'roci-t1'):
            subprocess.run(['ip', 'link', 'set', end, 'up'], check=True)
        daemon = self.daemon('--all-users', before=('strace', '--follow-forks', '--summary-only', '--output', trace), config=WITH_PORT)
        self.assertEqual([device['name'] for device in daemon.show('devices')], ['roci0', 'roci1', 'roci2'])
        self.ping_pong(daemon, OTHER, None)
        daemon.show('lcores')
        child = pathlib.Path(f'/proc/{daemon.pid}/task/{daemon.pid}/children').read_text(encoding='ascii')
        os.kill(int(child), signal.SIGTERM)
        daemon.process.wait(harness.LIMIT_S)
        rows = pathlib.Path(trace).read_text(encoding='utf-8').splitlines()
        calls = {row.split()[-1] for row in rows if re.match(r'\s*[0-9.]+\s', row)} - {'total'}
        self.assertIn('sendmsg', calls)
        self.assertEqual(calls - allowed_calls() - NOT_NEEDED, set())


if __name__ == '__main__':
    tap.main(sys.modules[__name__])
