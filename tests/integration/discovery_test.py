#!/usr/bin/env python3
"""Calls that libibverbs answers without the provider, with the real daemon: discovery_probe with and without a mount namespace.

Usage: discovery_test.py ROCI ROCID PLUGIN DISCOVERY_PROBE [unittest arguments]
"""
import os
import subprocess
import sys
import unittest

from harness import LIMIT_S, Daemon, Programs

PROGRAMS = Programs(*sys.argv[1:4])
PROBE = os.path.abspath(sys.argv[4])
WAYS = ('--require-namespace', '--no-namespace')


class DiscoveryTest(unittest.TestCase):

    def setUp(self):
        self.start()

    def start(self):
        self.daemon = Daemon(PROGRAMS)
        self.addCleanup(self.daemon.stop)

    def probe(self, what):
        for way in WAYS:
            with self.subTest(way):
                done = subprocess.run(self.daemon.command(way, PROBE, what), capture_output=True, text=True, timeout=LIMIT_S,
                                      check=False)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''))

    def test_tables(self):
        self.probe('tables')

    def test_reopen(self):
        self.probe('reopen')

    def test_loss_of_the_daemon(self):
        for way in WAYS:
            with self.subTest(way):
                if self.daemon.process.poll() is not None:
                    self.start()
                with subprocess.Popen(self.daemon.command(way, PROBE, 'loss'), stdout=subprocess.PIPE, text=True) as probe:
                    self.assertEqual(probe.stdout.readline(), 'ready\n')
                    self.daemon.process.kill()
                    self.assertEqual(probe.stdout.read(), '')
                    self.assertEqual(probe.wait(LIMIT_S), 0)

    def test_the_daemon_leaves_no_device_behind(self):
        self.daemon.process.terminate()
        self.daemon.process.wait(LIMIT_S)
        for folder in ('infiniband', 'infiniband_verbs'):
            self.assertEqual(os.listdir(os.path.join(self.daemon.runtime_dir, 'sysfs/class', folder)), [])


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
