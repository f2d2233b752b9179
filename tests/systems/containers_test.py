#!/usr/bin/env python3
"""Containers of podman with the devices of this machine's daemon by `roci cdi`: the image has its own rdma-core and nothing of Rocinante.

Usage: containers_test.py [--list] RELEASE ROCI ROCID PLUGIN

The image is a minimal system of RELEASE (make_system.sh). Prints a TAP line per test. Skipped without root, podman, mmdebstrap, or a
mirror that has the release.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / 'integration')]
# pylint: disable=wrong-import-position
import readme  # noqa: E402
import tap  # noqa: E402
from harness import LIMIT_S, Daemon, Programs  # noqa: E402
from system import PING_PONG, SKIPPED, System  # noqa: E402

RELEASE, PATHS = None, ()
USER = 65534
KIND = 'rocinante/nic'
# Both ends in one container, as PING_PONG.
PING = """
rping -s -C 5 -a 0.0.0.0 & server=$!
until rping -c -C 5 -a 10.99.0.2 -I 10.99.0.1 -v; do kill -0 $server || exit 1; sleep 0.1; done
wait $server
"""


class ContainersTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.system = System(f'{RELEASE}/programs')
        cls.addClassCleanup(cls.system.remove)
        programs = Programs(*PATHS, copied=True)
        cls.addClassCleanup(programs.remove)
        for plugin in pathlib.Path(PATHS[2]).parent.glob('libroci-rdmav*.so'):
            shutil.copy(plugin, programs.folder)
        cls.daemon = Daemon(programs)
        cls.addClassCleanup(cls.daemon.stop)
        cls.state = tempfile.mkdtemp(prefix='roci-podman.')
        os.chmod(cls.state, 0o755)
        cls.addClassCleanup(shutil.rmtree, cls.state, ignore_errors=True)
        cls.file = os.path.join(cls.state, 'devices.json')
        subprocess.run([programs.roci, 'cdi', '--runtime-dir', cls.daemon.runtime_dir, '--plugin', programs.plugin, '--output', cls.file],
                       check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)

    def run_inside(self, devices, *command, user=0):
        """Output of a command in a container with these devices."""
        state = tempfile.mkdtemp(prefix='state.', dir=self.state)
        os.chmod(state, 0o755)
        as_user = ['--user', str(user)] if user else []
        names = [f'{KIND}={device}' for device in devices]
        done = subprocess.run([str(HERE / 'podman.sh'), *as_user, self.file, state, self.system.root, *names, '--', *command],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace',
                              timeout=LIMIT_S, check=False)
        if done.returncode == SKIPPED:
            self.skipTest(done.stdout.strip())
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def devices_in(self, devices, **options):
        lines = self.run_inside(devices, 'ibv_devices', **options).splitlines()
        return sorted(line.split()[0] for line in lines if line.split()[:1] and line.split()[0].startswith('roci'))

    def test_a_container_has_the_devices_that_it_asked_for(self):
        self.assertEqual(self.devices_in(['roci1']), ['roci1'])
        self.assertEqual(self.devices_in(['roci0', 'roci1']), ['roci0', 'roci1'])
        self.assertEqual(self.devices_in(['all']), ['roci0', 'roci1'])

    def test_the_line_of_the_readme(self):
        device, _image, *command = readme.line('podman').split('podman run --device ')[1].split()
        kind, name = device.split('=')
        self.assertEqual(kind, KIND)
        self.assertEqual(self.run_inside([name], *command).count('PORT_ACTIVE'), 2)

    def test_queue_pairs(self):
        self.assertIn('200 iters', self.run_inside(['all'], 'sh', '-c', PING_PONG))

    def test_connection_manager(self):
        self.assertIn('ping data: rdma-ping-4', self.run_inside(['roci0', 'roci1'], 'sh', '-c', PING))

    def test_an_ordinary_users_containers(self):
        self.assertEqual(self.devices_in(['all'], user=USER), ['roci0', 'roci1'])
        self.assertIn('200 iters', self.run_inside(['all'], 'sh', '-c', PING_PONG, user=USER))
        self.assertIn('ping data: rdma-ping-4', self.run_inside(['all'], 'sh', '-c', PING, user=USER))

    def test_the_daemon_sees_no_program_when_the_containers_are_gone(self):
        self.run_inside(['all'], 'ibv_devinfo')
        self.assertEqual(self.daemon.show('apps'), [], json.dumps(self.daemon.show('apps')))


if __name__ == '__main__':
    if '--list' not in sys.argv:
        RELEASE, PATHS = sys.argv[1], sys.argv[2:5]
    tap.main(sys.modules['__main__'])
