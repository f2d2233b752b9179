#!/usr/bin/env python3
"""What libibverbs answers past the provider, with the real daemon: discovery_probe in a mount namespace and without one.

Usage: discovery_test.py ROCI ROCID PLUGIN DISCOVERY_PROBE [unittest arguments]
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROCI, ROCID, PLUGIN, PROBE = (os.path.abspath(path) for path in sys.argv[1:5])
TIMEOUT_S = 60
WAYS = ('--require-namespace', '--no-namespace')


class DiscoveryTest(unittest.TestCase):

    def setUp(self):
        self.runtime_dir = tempfile.mkdtemp(prefix='roci-discovery.')
        self.addCleanup(shutil.rmtree, self.runtime_dir, True)
        self.start()
        self.addCleanup(self.kill)

    def start(self):
        # Its standard error says "rocid: ready", among other things.
        self.daemon = subprocess.Popen([ROCID, '--runtime-dir', self.runtime_dir], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.daemon.stdout:
            if 'ready' in line:
                return
        self.fail('the daemon did not start')

    def kill(self):
        self.daemon.kill()
        self.daemon.wait(TIMEOUT_S)
        self.daemon.stdout.close()

    def command(self, way, *command):
        return [ROCI, 'run', '--runtime-dir', self.runtime_dir, '--plugin', PLUGIN, way, *command]

    def probe(self, what):
        for way in WAYS:
            with self.subTest(way):
                done = subprocess.run(self.command(way, PROBE, what), capture_output=True, text=True, timeout=TIMEOUT_S,
                                      check=False)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''))

    def test_tables(self):
        self.probe('tables')

    def test_reopen(self):
        self.probe('reopen')

    def test_loss_of_the_daemon(self):
        for way in WAYS:
            with self.subTest(way):
                if self.daemon.poll() is not None:
                    self.start()
                with subprocess.Popen(self.command(way, PROBE, 'loss'), stdout=subprocess.PIPE, text=True) as probe:
                    self.assertEqual(probe.stdout.readline(), 'ready\n')
                    self.kill()
                    self.assertEqual(probe.stdout.read(), '')
                    self.assertEqual(probe.wait(TIMEOUT_S), 0)

    def test_the_daemon_leaves_no_device_behind(self):
        self.daemon.terminate()
        self.daemon.wait(TIMEOUT_S)
        for folder in ('infiniband', 'infiniband_verbs'):
            self.assertEqual(os.listdir(os.path.join(self.runtime_dir, 'sysfs/class', folder)), [])


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
