#!/usr/bin/env python3
"""tools/quickstart as a newcomer runs it, and with another daemon running in its folder.

Usage: quickstart_test.py ROCI ROCID PLUGIN QUICKSTART [unittest arguments]     (what is built must be in build/)
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
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
        self.check_table(self.run_quickstart())

    def test_measures_again_what_perftest_could_not(self):
        # The output of perftest if load prevented the calibration of its clock.
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, 'ib_write_bw')
            program.write_text(f'''#!/bin/bash
real={shutil.which('ib_write_bw')}
[[ " $* " == *" 127.0.0.1 "* ]] && [ ! -e {folder}/done ] || exec "$real" "$@"
touch {folder}/done
"$real" "$@" >/dev/null && echo "64 5000 0.000000 0.000000 0.000000"
''', encoding='ascii')
            program.chmod(0o755)
            done = self.run_quickstart(PATH=f'{folder}:{os.environ["PATH"]}')
        self.assertIn('ib_write_bw printed no speed', done.stderr)
        self.check_table(done)

    def check_table(self, done):
        lines = done.stdout.splitlines()
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
