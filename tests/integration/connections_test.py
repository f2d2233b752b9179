#!/usr/bin/env python3
"""Sessions of hostile or careless users: limits per user, and a daemon without free descriptors.

Usage: connections_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import contextlib
import errno
import os
import pwd
import re
import socket
import struct
import subprocess
import sys
import time
import unittest

from harness import LIMIT_S, Daemon, Programs, as_user, await_, free_port

PROGRAMS = None
STRANGER = 'nobody'
HELLO_LIMIT_S = 5
MAGIC, MAJOR, CM_OPEN = 0x69636f72, 2, 1  # verbs_provider/abi/session_head.h and rdma_cm.h


def connect(daemon, user=None, name='rocid.sock'):
    """A silent connection, made as `user`."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own = os.geteuid()
    os.seteuid(pwd.getpwnam(user).pw_uid if user else own)
    try:
        connection.connect(os.path.join(daemon.runtime_dir, name))
    finally:
        os.seteuid(own)
    connection.settimeout(LIMIT_S)
    return connection


def open_channel(daemon, user):
    """An event channel. Unlike a connection that says nothing, the daemon does not close it in time."""
    channel = connect(daemon, user, 'rdma_cm.sock')
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused already
        channel.send(struct.pack('=4I I2H', CM_OPEN, 24, 1, 0, MAGIC, MAJOR, 0))
    return channel


def refusal(connection):
    """The errno of the daemon's refusal; None if it closed the connection without an answer."""
    for _ in range(2):  # the kernel first reports, once, a close with unread data
        with contextlib.suppress(ConnectionResetError):
            message = connection.recv(100)
            if message:
                serial, error, _, _ = struct.unpack('=IiII', message)
                assert serial == 0, serial
                return error
    return None


class ConnectionsTest(unittest.TestCase):

    def make_daemon(self, **options):
        daemon = Daemon(PROGRAMS, **options)
        self.addCleanup(daemon.stop)
        return daemon

    def open_device(self, daemon, user=None):
        return subprocess.run(daemon.command('ibv_devinfo', '-d', 'roci0'), capture_output=True, text=True,
                              timeout=LIMIT_S, check=False, env=dict(os.environ, VERBS_LOG_LEVEL='1'), **as_user(user))

    def test_connections_without_a_device_are_shown_and_closed(self):
        daemon = self.make_daemon()
        started = time.monotonic()
        with connect(daemon) as silent, connect(daemon) as speaker, connect(daemon, name='rdma_cm.sock') as channel:
            self.assertTrue(await_(lambda: len(daemon.show('apps')) == 2))
            self.assertEqual([app['device'] for app in daemon.show('apps')], [None, None])
            speaker.send(b'\0' * 16)  # no HELLO
            self.assertNotEqual(speaker.recv(100), b'')
            for connection in (silent, speaker, channel):
                self.assertEqual(connection.recv(100), b'')
            self.assertGreater(time.monotonic() - started, HELLO_LIMIT_S - 0.5)
        self.assertEqual(daemon.show('apps'), [])
        self.assertIn('has opened no device in time; closing', daemon.output())
        self.assertIn('sent no OPEN in time, closing it', daemon.output())

    def test_programs_stay_connected(self):
        daemon = self.make_daemon()
        server = daemon.start('ibv_rc_pingpong', '-d', 'roci0', '-g', '1', '-p', str(free_port()))
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        self.assertTrue(await_(lambda: [app['device'] for app in daemon.show('apps')] == ['roci0']))
        time.sleep(HELLO_LIMIT_S + 0.5)
        self.assertEqual([app['device'] for app in daemon.show('apps')], ['roci0'])

    def test_a_full_daemon_reports_it(self):
        daemon = self.make_daemon(config='[limits]\nmax_sessions = 3\n')
        with connect(daemon), connect(daemon), connect(daemon), connect(daemon) as fourth:
            self.assertEqual(refusal(fourth), errno.EUSERS)
            done = self.open_device(daemon)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn('cannot open roci0', done.stderr)
            self.assertIn(os.strerror(errno.EUSERS), done.stderr)
        self.assertTrue(await_(lambda: daemon.show('apps') == []))
        self.assertEqual(self.open_device(daemon).returncode, 0)

    @unittest.skipIf(os.geteuid() != 0, 'only root can become another user')
    def test_one_user_cannot_use_up_all_sessions(self):
        daemon = self.make_daemon(config='[limits]\nmax_sessions = 10\nuser_percent = 60\n')
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(connect(daemon, STRANGER)) for _ in range(9)]
            self.assertEqual([refusal(one) for one in connections[6:]], [errno.EAGAIN] * 3)
            self.assertEqual(len(daemon.show('apps')), 6)
            self.assertIn(os.strerror(errno.EAGAIN), self.open_device(daemon, STRANGER).stderr)
            self.assertEqual(self.open_device(daemon).returncode, 0)
            self.assertEqual(self.open_device(daemon, 'daemon').returncode, 0, 'another ordinary user')

    @unittest.skipIf(os.geteuid() != 0, 'only root can become another user')
    def test_two_users_leave_descriptors_to_root(self):
        daemon = self.make_daemon(config='[limits]\nuser_percent = 60\n', prefix=('prlimit', '--nofile=1024:1024'))
        with contextlib.ExitStack() as stack:
            for user in (STRANGER, 'daemon'):
                # Four descriptors each, of 872; event channels count like sessions.
                # While the daemon examines a program it uses one more descriptor, so a burst temporarily needs more.
                for burst in (200, 50, 20, 10):
                    channels = [stack.enter_context(open_channel(daemon, user)) for _ in range(burst)]
                    self.assertEqual(refusal(channels[-1]), errno.ENFILE)
                    time.sleep(0.1)
                self.assertIn(os.strerror(errno.ENFILE), self.open_device(daemon, user).stderr)
            self.assertEqual(self.open_device(daemon).returncode, 0)
            done = subprocess.run(daemon.command('rping', '-c', '-a', '10.99.0.2', '-I', '10.99.0.1'), check=False,
                                  capture_output=True, text=True, timeout=LIMIT_S)
            self.assertIn('REJECTED', done.stdout + done.stderr, 'it has an event channel, and there is no listener')

    def test_what_a_user_has_is_shown(self):
        daemon = self.make_daemon(config='[limits]\nmax_sessions = 10\nmax_qp = 1000\nuser_percent = 60\n')
        user, sessions, qps = (STRANGER, 6, 600) if os.geteuid() == 0 else (None, 10, 1000)
        program = subprocess.Popen(daemon.command('ibv_rc_pingpong', '-d', 'roci0', '-g', '1', '-p', str(free_port())),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_user(user))
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.assertTrue(await_(lambda: [app['qps'] for app in daemon.show('apps')] == [1]))
        with connect(daemon, user):
            self.assertTrue(await_(lambda: len(daemon.show('apps')) == 2))
            app = daemon.show('apps')[0]
            self.assertEqual(app['user']['trusted'], user is None)
            self.assertEqual(app['user']['sessions'], {'used': 2, 'limit': sessions})
            self.assertEqual(app['objects_of_user']['qps'], {'used': 1, 'limit': qps})
            self.assertEqual(set(app['user']['helper_threads']), {'used', 'limit'})
            self.assertGreaterEqual(app['user']['descriptors']['used'], 14)
            table = subprocess.run([PROGRAMS.roci, '--runtime-dir', daemon.runtime_dir, 'show', 'apps'], capture_output=True, text=True,
                                   timeout=LIMIT_S, check=True).stdout
            trusted = '' if user else ' (trusted)'
            self.assertRegex(table, rf'user {app["uid"]}{re.escape(trusted)}: .*\bsessions 2/{sessions}\b')
            self.assertRegex(table, rf'user {app["uid"]}{re.escape(trusted)} on roci0: .*\bqps 1/{qps}\b')

    def test_users_see_their_own_limits(self):
        daemon = self.make_daemon(config='[limits]\nmax_qp = 1000\nuser_percent = 30\n')
        for user, limit in ((None, 1000), (STRANGER, 300)):
            if user and os.geteuid() != 0:
                continue
            done = subprocess.run(daemon.command('ibv_devinfo', '-v', '-d', 'roci0'), capture_output=True, text=True,
                                  timeout=LIMIT_S, check=True, **as_user(user))
            self.assertRegex(done.stdout, rf'max_qp:\s+{limit}\n')

    def test_without_descriptors_the_daemon_lives_and_does_not_spin(self):
        # 256 - 128 - 8 for the lcore - 16 for the devices, seven a session: fourteen.
        daemon = self.make_daemon(prefix=('prlimit', '--nofile=256:256'))
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(connect(daemon)) for _ in range(200)]
            self.assertEqual([refusal(one) for one in connections[14:]], [errno.ENFILE] * 186)
            self.assertEqual(len(daemon.show('apps')), 14, 'management still works')
            self.assertIn(os.strerror(errno.ENFILE), self.open_device(daemon).stderr)
            before = daemon.cpu_s()
            time.sleep(1)
            self.assertLess(daemon.cpu_s() - before, 0.3)
        self.assertTrue(await_(lambda: daemon.show('apps') == []))
        self.assertEqual(self.open_device(daemon).returncode, 0)
        self.assertEqual(daemon.stop(), 0)

    def test_when_not_even_management_has_a_descriptor(self):
        daemon = self.make_daemon()
        free = 3
        subprocess.run(['prlimit', f'--pid={daemon.pid}', f'--nofile={daemon.descriptors() + free}:'], check=True)
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(connect(daemon)) for _ in range(20)]
            self.assertEqual(refusal(connections[-1]), errno.ENFILE)
            before = daemon.cpu_s()
            time.sleep(1)
            self.assertLess(daemon.cpu_s() - before, 0.3)
        subprocess.run(['prlimit', f'--pid={daemon.pid}', '--nofile=1024:'], check=True)
        self.assertTrue(await_(lambda: daemon.show('apps') == []))
        self.assertEqual(self.open_device(daemon).returncode, 0)


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4], copied=True)
    try:
        unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
    finally:
        PROGRAMS.remove()
