#!/usr/bin/env python3
"""tools/quickstart as a newcomer runs it, and with another daemon running in its folder.

Usage: quickstart_test.py ROCI ROCID PLUGIN QUICKSTART [unittest arguments]     (what is built must be in build/)
"""
import os
import subprocess
import sys
import unittest

from harness import Daemon, Programs

PROGRAMS = None
QUICKSTART = None
LIMIT_S = 120


class QuickstartTest(unittest.TestCase):

    def run_quickstart(self, **environment):
        done = subprocess.run([QUICKSTART, '--no-setup'], capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              env={**os.environ, **environment}, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def test_shows_devices_and_a_table(self):
        lines = self.run_quickstart().stdout.splitlines()
        for device in ('roci0', 'roci1'):
            self.assertTrue(any(device in line for line in lines), lines)
        header = next(i for i, line in enumerate(lines) if 'write Gb/s' in line)
        rows = [line.split() for line in lines[header + 1:] if len(line.split()) == 3 and line.split()[0].isdigit()]
        self.assertGreater(len(rows), 3, lines)
        for row in rows:
            self.assertGreater(float(row[1]), 0)
            self.assertGreater(float(row[2]), 0)
        self.assertTrue(any('roci run' in line for line in lines))

    def test_leaves_a_running_daemon_alone(self):
        daemon = Daemon(PROGRAMS)
        self.addCleanup(daemon.stop)
        done = self.run_quickstart(ROCI_RUNTIME_DIR=daemon.runtime_dir)
        self.assertIn('is already running', done.stderr)
        self.assertEqual(len(daemon.show('devices')), 2)
        self.assertEqual(daemon.stop(), 0)


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    QUICKSTART = os.path.abspath(sys.argv[4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[5:])
