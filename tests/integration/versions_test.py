#!/usr/bin/env python3
"""A plugin and a daemon of different major versions of the session ABI: program and daemon say which of the two is too old.

Usage: versions_test.py ROCI ROCID PLUGIN

A relay between them changes the version in the first message and in its answer; so each takes the other for another version.
"""
import os
import pathlib
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / 'tests'), str(TOP / 'tests/integration')]
import tap  # pylint: disable=wrong-import-position
from harness import LIMIT_S, Daemon, Programs, await_  # pylint: disable=wrong-import-position

PATHS = sys.argv[1:4]
CONFIG = '[daemon]\nlog_level = "info"\n'
HELLO = 1
MAGIC = int.from_bytes(b'roci', 'little')
# Request: head (command, size, serial, reserved), magic, major. Answer: head (serial, error, descriptors, reserved), magic, major.
START = struct.Struct('<IIIIIH')


class Relay(threading.Thread):
    """Listens at `path` for programs of a plugin that is `newer` versions above the daemon behind `daemon_path`."""

    def __init__(self, path, daemon_path, newer):
        super().__init__(daemon=True)
        self.daemon_path, self.newer = daemon_path, newer
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen(8)

    def run(self):
        while True:
            try:
                program, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(program,), daemon=True).start()

    def serve(self, program):
        with program, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
            daemon.connect(self.daemon_path)
            while True:
                for end in select.select([program, daemon], [], [])[0]:
                    message, descriptors, _flags, _address = socket.recv_fds(end, 65536, 8)
                    if not message:
                        return
                    from_program = end is program
                    try:
                        socket.send_fds(daemon if from_program else program, [self.changed(message, from_program)], descriptors)
                    finally:
                        for descriptor in descriptors:
                            os.close(descriptor)

    def changed(self, message, from_program):
        if len(message) < START.size:
            return message
        *head, magic, major = START.unpack_from(message)
        if magic != MAGIC or (from_program and head[0] != HELLO):
            return message
        return START.pack(*head, magic, major + (self.newer if from_program else -self.newer)) + message[START.size:]

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class VersionsTest(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon(Programs(*PATHS), config=CONFIG)
        self.addCleanup(self.daemon.stop)

    def relay(self, newer):
        """A runtime directory whose socket is the relay's."""
        folder = tempfile.mkdtemp(prefix='roci-relay.')
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, 'rocid.sock')
        tree = os.path.join(folder, 'sysfs')
        # The daemon writes each new value in .staging first.
        shutil.copytree(os.path.join(self.daemon.runtime_dir, 'sysfs'), tree, symlinks=True, ignore=shutil.ignore_patterns('.staging'))
        for attribute in pathlib.Path(tree).rglob('roci_socket'):
            attribute.unlink()
            attribute.write_text(path + '\n', encoding='ascii')
        relay = Relay(path, os.path.join(self.daemon.runtime_dir, 'rocid.sock'), newer)
        relay.start()
        self.addCleanup(relay.stop)
        return folder

    def open_device(self, newer):
        """Exit status of ibv_devinfo, and its errors."""
        done = subprocess.run([self.daemon.programs.roci, 'run', '--runtime-dir', self.relay(newer), '--plugin', self.daemon.programs.plugin,
                               'ibv_devinfo', '-d', 'roci0'], capture_output=True, text=True, check=False, timeout=LIMIT_S,
                              env={**os.environ, 'VERBS_LOG_LEVEL': '1'})
        return done.returncode, done.stderr

    def check_log(self, text):
        self.assertTrue(await_(lambda: text in self.daemon.output()), self.daemon.output())
        self.assertTrue(self.daemon.alive())

    def test_an_old_plugin(self):
        status, said = self.open_device(-1)
        self.assertNotEqual(status, 0)
        self.assertIn('the plugin is too old', said)
        self.assertIn('roci cdi', said)
        self.check_log('the plugin is too old')

    def test_an_old_daemon(self):
        status, said = self.open_device(1)
        self.assertNotEqual(status, 0)
        self.assertIn('the daemon is too old', said)
        self.check_log('this daemon is too old')

    def test_the_same_version(self):
        # (The daemon may refuse the relay for another reason: it passes on a descriptor of another process' memory.)
        _status, said = self.open_device(0)
        self.assertNotIn('version', said)


if __name__ == '__main__':
    tap.main(sys.modules[__name__])
