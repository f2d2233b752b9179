#!/usr/bin/env python3
"""Rocinante for arm64: cross-built with a sysroot of Debian's packages, its unit tests and simulations, and two programs, under
qemu-user.

Usage: arm64_test.py [--list] RELEASE SOURCE

Skipped without root, a mirror, g++-aarch64-linux-gnu or qemu-user-static (`tools/setup --add g++-aarch64-linux-gnu
qemu-user-static`). The compiler's results are kept beside the sysroot's archive.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
# pylint: disable=wrong-import-position
import tap  # noqa: E402
from system import System  # noqa: E402

RELEASE, SOURCE = None, None
COMPILER, EMULATOR = 'aarch64-linux-gnu-g++', 'qemu-aarch64-static'
BUILD_LIMIT_S = 5000
TESTS_LIMIT_S = 3000
START_LIMIT_S = 120
PROGRAM_LIMIT_S = 300
PORT = 19875  # on the loopback of the test's network namespace
CROSS_FILE = """
[binaries]
c = ['ccache', 'aarch64-linux-gnu-gcc']
cpp = ['ccache', 'aarch64-linux-gnu-g++']
ar = 'aarch64-linux-gnu-gcc-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = {emulator}
[properties]
sys_root = '{root}'
pkg_config_libdir = '{root}/usr/lib/aarch64-linux-gnu/pkgconfig:{root}/usr/share/pkgconfig'
[built-in options]
c_args = ['--sysroot={root}']
cpp_args = ['--sysroot={root}']
c_link_args = ['--sysroot={root}']
cpp_link_args = ['--sysroot={root}']
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'armv8-a'
endian = 'little'
"""


class Arm64Test(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        for program in (COMPILER, EMULATOR):
            if shutil.which(program) is None:
                raise unittest.SkipTest(f'{program} is not installed')
        cls.system = System(f'{RELEASE}/arm64')
        cls.addClassCleanup(cls.system.remove)
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix='roci-arm64.'))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.build = cls.folder / 'build'
        cls.emulator = [EMULATOR, '-L', cls.system.root, '-E', 'ROCI_EMULATED=1']
        (cls.folder / 'cross.ini').write_text(CROSS_FILE.format(root=cls.system.root, emulator=cls.emulator), encoding='ascii')
        cls.environment = {**os.environ, 'CCACHE_DIR': str(cls.system.cache / 'ccache-arm64'), 'CCACHE_MAXSIZE': '500M',
                           'CCACHE_BASEDIR': str(SOURCE), 'CCACHE_NOHASHDIR': '1', 'CCACHE_SLOPPINESS': 'pch_defines,time_macros',
                           'ROCI_SIM_SEEDS': '20'}
        cls.run_here(300, 'meson', 'setup', '--cross-file', cls.folder / 'cross.ini', cls.build, SOURCE)
        cls.run_here(BUILD_LIMIT_S, 'ninja', '-C', cls.build)

    @classmethod
    def run_here(cls, limit_s, *command):
        """Runs the command and returns what it prints; fails with the end of that."""
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors='replace', timeout=limit_s, check=False, env=cls.environment)
        if done.returncode != 0:
            raise AssertionError(f'{command}: exit status {done.returncode}\n{done.stdout[-8000:]}')
        return done.stdout

    def emulated(self, *command):
        """Arguments that run a program of the build, or of the sysroot, with the daemon's devices."""
        variables = {'SYSFS_PATH': self.folder / 'run/sysfs', 'ROCI_RUNTIME_DIR': self.folder / 'run',
                     'LD_PRELOAD': self.build / 'verbs_provider/libroci-rdmav34.so'}
        return [*self.emulator, *(word for name, value in variables.items() for word in ('-E', f'{name}={value}')), *map(str, command)]

    def test_unit_tests_and_simulations(self):
        output = self.run_here(TESTS_LIMIT_S, 'meson', 'test', '-C', self.build, '--no-rebuild', '--setup', 'default', '--suite', 'unit',
                               '--suite', 'sim', '--timeout-multiplier', '30', '--print-errorlogs')
        self.assertRegex(output, r'Ok: +[1-9]')

    def test_the_icrc_uses_the_multiplier(self):
        output = self.run_here(PROGRAM_LIMIT_S, *self.emulator, self.build / 'tests/unit/roce/roce_test', '--gtest_filter=Kernels/*')
        self.assertIn('/pmull', output)

    def test_a_pingpong(self):
        (self.folder / 'run').mkdir(mode=0o700, exist_ok=True)
        log = self.folder / 'rocid.log'
        with open(log, 'wb') as out:
            daemon = subprocess.Popen([*self.emulator, self.build / 'control/rocid', '--runtime-dir', self.folder / 'run'],
                                      stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.addCleanup(daemon.wait, 60)
        self.addCleanup(daemon.terminate)
        end = time.monotonic() + START_LIMIT_S
        while 'ready' not in log.read_text(encoding='utf-8', errors='replace'):
            self.assertIsNone(daemon.poll(), log.read_text(encoding='utf-8', errors='replace'))
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        pingpong = [pathlib.Path(self.system.root) / 'usr/bin/ibv_rc_pingpong', '-g', '0', '-c', '-n', '100', '-p', PORT]
        server = subprocess.Popen(self.emulated(*pingpong, '-d', 'roci0'), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.kill)
        while not re.search(f':{PORT:04X} 0+:0000 0A', pathlib.Path('/proc/net/tcp').read_text(encoding='ascii') +
                            pathlib.Path('/proc/net/tcp6').read_text(encoding='ascii')):
            self.assertIsNone(server.poll())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        client = self.run_here(PROGRAM_LIMIT_S, *self.emulated(*pingpong, '-d', 'roci1', '127.0.0.1'))
        served, _ = server.communicate(timeout=PROGRAM_LIMIT_S)
        self.assertEqual(server.returncode, 0, served)
        self.assertIn('100 iters', client)
        self.assertNotIn('invalid data', client + served)


if __name__ == '__main__':
    if '--list' not in sys.argv:
        RELEASE, SOURCE = sys.argv[1:3]
        SOURCE = os.path.abspath(SOURCE)
    tap.main(sys.modules['__main__'])
