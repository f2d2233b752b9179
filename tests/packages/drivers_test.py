#!/usr/bin/env python3
"""DPDK's drivers as its runtime packages install them: without the links *.so, which belong to the -dev package. Prints TAP.

Usage: drivers_test.py ROCI ROCID PLUGIN
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / 'tests'), str(TOP / 'tests/integration')]
import harness  # pylint: disable=wrong-import-position
import tap  # pylint: disable=wrong-import-position

CONFIG = '''[[device]]
name = "roci0"
port = "net_af_packet0,iface=roci-t0"
addresses = ["10.98.0.1/24"]
'''


class RuntimePackages(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        harness.require_network_namespaces()
        cls.scratch = tempfile.TemporaryDirectory(prefix='roci-drivers.')
        cls.addClassCleanup(cls.scratch.cleanup)
        folders = list(pathlib.Path('/usr/lib').glob('*/dpdk/pmds-*'))
        if not folders:
            raise unittest.SkipTest('there are no DPDK drivers in /usr/lib/*/dpdk')
        for folder in folders:
            cls.hide_links(folder)
        subprocess.run(['ip', 'link', 'add', 'roci-t0', 'type', 'veth', 'peer', 'name', 'roci-t1'], check=True)
        for end in ('roci-t0', 'roci-t1'):
            subprocess.run(['ip', 'link', 'set', end, 'up'], check=True)

    @classmethod
    def hide_links(cls, folder):
        """Mounts a copy of the folder over it, in this test's namespace."""
        copy = pathlib.Path(cls.scratch.name, folder.name)
        copy.mkdir()
        for file in folder.iterdir():
            if file.name.endswith('.so'):
                continue
            if file.is_symlink():
                (copy / file.name).symlink_to(os.readlink(file))
            else:
                (copy / file.name).write_bytes(file.read_bytes())
        subprocess.run(['mount', '--bind', copy, folder], check=True)
        cls.addClassCleanup(subprocess.run, ['umount', folder], check=True)

    def test_a_daemon_starts_with_a_port_of_a_driver(self):
        programs = harness.Programs(*sys.argv[1:4])
        daemon = harness.Daemon(programs, config=CONFIG)
        self.addCleanup(daemon.stop)
        shown = subprocess.run(daemon.command('ibv_devinfo', '-d', 'roci0'), capture_output=True, text=True, check=False, timeout=60)
        self.assertIn('PORT_ACTIVE', shown.stdout, shown.stderr)

    def test_configuration_check_knows_the_drivers(self):
        config = pathlib.Path(self.scratch.name, 'config.toml')
        for driver in ('net_af_packet0,iface=roci-t0', 'net_memif0,role=server', 'net_null0'):
            config.write_text(CONFIG.replace('net_af_packet0,iface=roci-t0', driver), encoding='utf-8')
            done = subprocess.run([sys.argv[2], '--check-config', '--config', config], capture_output=True, text=True, check=False)
            self.assertEqual(done.stderr, '', driver)


if __name__ == '__main__':
    tap.main(sys.modules[__name__])
