#!/usr/bin/env python3
"""Life and death of programs and daemons: what is left behind, what the peer sees, who may start what.

Usage: life_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ROCI, ROCID, PLUGIN = (os.path.abspath(path) for path in sys.argv[1:4])
TIMEOUT_S = 60
OBJECTS = ('qps', 'cqs', 'mrs', 'apps')


def free_port():
    with socket.socket() as probe:
        probe.bind(('', 0))
        return str(probe.getsockname()[1])


class Daemon:
    """rocid in a runtime directory; `user` runs it (and what it is asked to run) as that user."""

    def __init__(self, runtime_dir, arguments=(), user=None):
        self.runtime_dir = runtime_dir
        self.user = user
        self.process = subprocess.Popen(self.as_user([ROCID, '--runtime-dir', runtime_dir, *arguments]),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)
        self.said = []
        for line in self.process.stdout:
            self.said.append(line)
            if line.strip() == 'rocid: ready':
                return

    def as_user(self, command):
        return ['runuser', '-u', self.user, '--', *command] if self.user else command

    def pid(self):
        if not self.user:
            return self.process.pid
        # runuser stays in between.
        with open(f'/proc/{self.process.pid}/task/{self.process.pid}/children', encoding='ascii') as children:
            return int(children.read().split()[0])

    def command(self, *command):
        return self.as_user([ROCI, 'run', '--runtime-dir', self.runtime_dir, '--plugin', PLUGIN, *command])

    def start(self, *command):
        return subprocess.Popen(self.command(*command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors='replace')

    def show(self, what):
        done = subprocess.run(self.as_user([ROCI, '--runtime-dir', self.runtime_dir, 'show', '--json', what]),
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        return json.loads(done.stdout)

    def leftovers(self):
        return {what: len(self.show(what)) for what in OBJECTS}

    def descriptors(self):
        return len(os.listdir(f'/proc/{self.pid()}/fd'))

    def mappings(self):
        with open(f'/proc/{self.pid()}/maps', encoding='utf-8') as maps:
            return sum(1 for _ in maps)

    def stop(self):
        """The exit status after SIGTERM."""
        os.kill(self.pid(), signal.SIGTERM)
        try:
            return self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


def await_(condition, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def readable_copies():
    """The programs where any user may run them: the build folder may lie below a private directory."""
    global ROCI, ROCID, PLUGIN
    folder = tempfile.mkdtemp(prefix='roci-life.')
    os.chmod(folder, 0o755)
    ROCI, ROCID, PLUGIN = (shutil.copy(path, folder) for path in (ROCI, ROCID, PLUGIN))
    return folder


class LifeTest(unittest.TestCase):

    def make_dir(self):
        path = tempfile.mkdtemp(prefix='roci-life.')
        os.chmod(path, 0o755)
        self.addCleanup(shutil.rmtree, path, True)
        return path

    def make_daemon(self, *arguments, user=None):
        path = self.make_dir()
        if user:
            shutil.chown(path, user)
        daemon = Daemon(path, arguments, user)
        self.assertEqual(daemon.said[-1:], ['rocid: ready\n'], daemon.said)
        self.addCleanup(lambda: daemon.process.poll() is not None or daemon.stop())
        return daemon

    def traffic(self, daemon, *options):
        """A server and a client that write until they are ended."""
        port = free_port()
        command = ['ib_write_bw', '-F', '-x', '1', '-p', port, '-D', '50', *options]
        server = daemon.start(*command, '-d', 'roci0')
        time.sleep(0.7)
        client = daemon.start(*command, '-d', 'roci1', '127.0.0.1')
        self.addCleanup(lambda: [self.end(process) for process in (server, client)])
        running = lambda: any(qp['tx_packets'] > 1000 for qp in daemon.show('qps'))
        self.assertTrue(await_(running), 'no traffic')
        return server, client

    @staticmethod
    def end(process):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if not process.stdout.closed:
            process.communicate()

    def test_killed_programs_leave_nothing_behind(self):
        daemon = self.make_daemon()
        nothing = {what: 0 for what in OBJECTS}
        self.assertEqual(daemon.leftovers(), nothing)
        before = None
        for _ in range(4):
            server, client = self.traffic(daemon, '-q', '4')
            server.kill()
            client.kill()
            self.assertTrue(await_(lambda: daemon.leftovers() == nothing), daemon.leftovers())
            self.end(server)
            self.end(client)
            now = (daemon.descriptors(), daemon.mappings())
            before = before or now  # the first round may leave what is made once
        self.assertEqual(now[0], before[0], 'descriptors left behind')
        self.assertLessEqual(now[1], before[1] + 4, 'mappings left behind')
        self.assertEqual(daemon.stop(), 0)

    def test_the_peer_of_a_killed_program_sees_retry_exceeded(self):
        daemon = self.make_daemon()
        server, client = self.traffic(daemon)
        server.kill()
        output, _ = client.communicate(timeout=TIMEOUT_S)
        self.assertNotEqual(client.returncode, 0)
        # perftest prints the status of the completion: 12 is IBV_WC_RETRY_EXC_ERR.
        self.assertIn('Failed status 12', output)

    def test_programs_survive_the_end_of_the_daemon(self):
        daemon = self.make_daemon()
        server, client = self.traffic(daemon)
        os.kill(daemon.pid(), signal.SIGKILL)
        daemon.process.wait()
        for process in (server, client):
            if process is server:
                process.terminate()  # it only waits for the client's words
            process.communicate(timeout=TIMEOUT_S)
            self.assertNotIn(process.returncode, (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT))
        daemon.process.stdout.close()
        # Its place is free for the next one.
        again = Daemon(daemon.runtime_dir)
        self.assertEqual(again.said[-1], 'rocid: ready\n')
        self.assertEqual(again.stop(), 0)

    def test_a_second_daemon_is_refused(self):
        daemon = self.make_daemon()
        second = subprocess.run([ROCID, '--runtime-dir', daemon.runtime_dir], capture_output=True, text=True,
                                timeout=TIMEOUT_S, check=False)
        self.assertNotEqual(second.returncode, 0)
        self.assertEqual(len(second.stderr.strip().splitlines()), 1, second.stderr)
        self.assertIn(daemon.runtime_dir, second.stderr)
        self.assertIsNone(daemon.process.poll())
        self.assertEqual(len(daemon.show('devices')), 2)

    def pingpong(self, daemon, *options):
        port = free_port()
        command = ['ibv_rc_pingpong', '-g', '1', '-c', '-p', port, *options]
        server = daemon.start(*command, '-d', 'roci0')
        time.sleep(0.7)
        client = daemon.start(*command, '-d', 'roci1', '127.0.0.1')
        for process in (client, server):
            output, _ = process.communicate(timeout=TIMEOUT_S)
            self.assertEqual(process.returncode, 0, output)

    def test_two_daemons_side_by_side(self):
        daemons = [self.make_daemon(), self.make_daemon()]
        for daemon in daemons:
            self.pingpong(daemon)
        for daemon in daemons:
            self.assertEqual(daemon.stop(), 0)

    def test_several_lcores(self):
        config = os.path.join(self.make_dir(), 'rocid.toml')
        with open(config, 'w', encoding='utf-8') as file:
            file.write('[daemon]\nlcores = 2\n')
        daemon = self.make_daemon('--config', config)
        self.assertEqual(len(daemon.show('lcores')), 2)
        self.pingpong(daemon, '-n', '5000')

    @unittest.skipIf(os.geteuid() != 0, 'only root can become another user')
    def test_as_an_ordinary_user(self):
        daemon = self.make_daemon(user='nobody')
        self.pingpong(daemon)
        self.assertEqual(daemon.leftovers(), {what: 0 for what in OBJECTS})

    @unittest.skipIf(os.geteuid() != 0, 'only root can become another user')
    def test_ordinary_programs_with_roots_daemon(self):
        daemon = self.make_daemon()
        daemon.user = 'nobody'
        self.pingpong(daemon)
        daemon.user = None

    def test_an_idle_daemon_sleeps(self):
        daemon = self.make_daemon()
        self.pingpong(daemon)
        ticks = os.sysconf('SC_CLK_TCK')

        def cpu_s():
            with open(f'/proc/{daemon.pid()}/stat', encoding='ascii') as stat:
                fields = stat.read().rsplit(')', 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / ticks

        time.sleep(1)
        before = cpu_s()
        time.sleep(3)
        self.assertLess(cpu_s() - before, 0.06, 'seconds of processor time in 3 idle seconds')


if __name__ == '__main__':
    copies = readable_copies()
    try:
        unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
    finally:
        shutil.rmtree(copies)
