#!/usr/bin/env python3
"""The packages of tools/package in a fresh system of this machine's Debian release: install, use, repair, purge. Prints TAP.

Usage: fresh_system_test.py [PACKAGES_DIR]     (default: builds them in a temporary folder)

Makes the system with mmdebstrap from the machine's own mirror, in a folder of TMPDIR. Needs root.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / 'tests'), str(TOP / 'tests/packages')]
import system  # pylint: disable=wrong-import-position
import tap  # pylint: disable=wrong-import-position

PACKAGES = [argument for argument in sys.argv[1:] if not argument.startswith('-')]
BUILD_LIMIT_S = 3000
# As the unit's: user and capabilities. The chroot has no service manager.
START = '''
mkdir -p /run/roci && chown rocinante: /run/roci
capabilities=$(sed -n 's/^AmbientCapabilities=//p' "$unit" | tr A-Z a-z | sed 's/cap_/+/g; s/ /,/g')
command=$(sed -n 's/^ExecStart=//p' "$unit")
setpriv --reuid=rocinante --regid=rocinante --clear-groups --inh-caps=-all,$capabilities --ambient-caps=-all,$capabilities \\
    --bounding-set=-all,$capabilities --no-new-privs $command >/tmp/rocid.log 2>&1 & daemon=$!
for i in $(seq 600); do grep -q 'rocid: ready' /tmp/rocid.log && break; sleep 0.1; done
grep 'rocid: ready' /tmp/rocid.log || { cat /tmp/rocid.log; exit 1; }
'''


def files_in(root):
    """All paths but those that change in any case."""
    changing = ('var/cache', 'var/lib/apt', 'var/log', 'proc', 'sys', 'dev', 'tmp', 'run', 'root', 'var/lib/dpkg', 'packages')
    found = set()
    for folder, folders, files in os.walk(root):
        inside = os.path.relpath(folder, root)
        folders[:] = [name for name in folders if os.path.normpath(os.path.join(inside, name)) not in changing]
        found |= {os.path.normpath(os.path.join(inside, name)) for name in files}
    return found


class FreshSystem(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        system.require(dh='debhelper', lintian='lintian', mmdebstrap='mmdebstrap')
        scratch = tempfile.TemporaryDirectory(prefix='roci-system.', ignore_cleanup_errors=True)
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        os.chmod(cls.scratch, 0o755)
        cls.packages = pathlib.Path(PACKAGES[0]) if PACKAGES else cls.scratch / 'packages'
        if not PACKAGES:
            subprocess.run([TOP / 'tools/package', '--no-setup', '--output', cls.packages], check=True, stdout=sys.stderr,
                           timeout=BUILD_LIMIT_S)
        cls.system = system.System(cls.scratch / 'root', system.own_release(), ['ibverbs-utils', 'iproute2', 'man-db'])
        cls.root = cls.system.root
        (cls.root / 'packages').mkdir()
        for package in cls.packages.glob('*.deb'):
            shutil.copy(package, cls.root / 'packages')

    def inside(self, script):
        """Runs a script in the system; fails if it does. Returns its output."""
        status, said = self.system.run(script)
        self.assertEqual(status, 0, said)
        return said

    def test_install_use_repair_purge(self):
        self.inside('apt-get -q update')
        before = files_in(self.root)
        begin = time.monotonic()
        self.inside('apt-get -q -y install --no-install-recommends /packages/rocinante_*.deb /packages/lib*.deb')
        self.inside(START + f"roci run bash -ec '{system.PING_PONG}'")
        print(f'# from the packages to the first ping-pong: {time.monotonic() - begin:.1f} s', flush=True)
        with self.subTest('nothing is left half installed'):
            self.assertEqual(self.inside('dpkg --audit'), '')
            self.inside('getent passwd rocinante && man -w rocid && man -w roci-run && man -w rocid.toml && rocid --check-config -c /etc/rocinante/rocid.toml')
        with self.subTest('programs of other users and roci show'):
            self.inside(START + "setpriv --reuid=nobody --regid=nogroup --clear-groups roci run ibv_devinfo | grep PORT_ACTIVE && roci show devices")
        with self.subTest('drivers of ports, from packages without -dev'):
            self.inside('apt-get -q -y install --no-install-recommends $(dpkg-query -W -f \'${Recommends}\' rocinante | tr -d ,)\n'
                        'printf "[[device]]\\nname = \\"roci0\\"\\nport = \\"net_af_packet0,iface=lo\\"\\n" >/tmp/port.toml\n'
                        'rocid --check-config -c /tmp/port.toml\n! dpkg-query -W -f \'${db:Status-Status}\' libdpdk-dev | grep ^installed')
        with self.subTest('a removed file comes back'):
            self.inside('rm /usr/bin/roci && apt-get -q -y install --reinstall --no-install-recommends /packages/rocinante_*.deb && roci --version')
        with self.subTest('purge'):
            self.inside('apt-get -q -y purge rocinante libroci-verbs librocidv1 librocidv-dev && apt-get -q -y autoremove --purge')
            left = {path for path in files_in(self.root) - before if 'roci' in path}
            self.assertEqual(left, set())
            self.assertFalse((self.root / 'etc/rocinante').exists())


if __name__ == '__main__':
    tap.main(sys.modules[__name__])
