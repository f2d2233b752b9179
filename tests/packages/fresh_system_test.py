#!/usr/bin/env python3
"""The packages of tools/package in a fresh system of this machine's Debian release: install, use, repair, purge. Prints TAP.

Usage: fresh_system_test.py [PACKAGES_DIR]     (default: builds them in a temporary folder)

The system is a minimal one (tests/systems/make_system.sh). Packages that ours need come from the machine's mirror. Needs root.
"""
import os
import pathlib
import shutil
import sys
import tempfile
import time
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / 'tests'), str(TOP / 'tests/systems'), str(TOP / 'tests/packages')]
import built  # pylint: disable=wrong-import-position
import readme  # pylint: disable=wrong-import-position
import system  # pylint: disable=wrong-import-position
import tap  # pylint: disable=wrong-import-position

PACKAGES = [argument for argument in sys.argv[1:] if not argument.startswith('-')]
# As the unit's: user and capabilities. The chroot has no service manager.
START = '''
unit=$(ls /lib/systemd/system/rocid.service /usr/lib/systemd/system/rocid.service 2>/dev/null | head -1)
mkdir -p /run/roci && chown rocinante: /run/roci
capabilities=$(sed -n 's/^AmbientCapabilities=//p' "$unit" | tr A-Z a-z | sed 's/cap_/+/g; s/ /,/g')
command=$(sed -n 's/^ExecStart=//p' "$unit")
setpriv --reuid=rocinante --regid=rocinante --clear-groups --inh-caps=-all,$capabilities --ambient-caps=-all,$capabilities \\
    --bounding-set=-all,$capabilities --no-new-privs $command >/tmp/rocid.log 2>&1 & daemon=$!
for i in $(seq 600); do grep -q 'rocid: ready' /tmp/rocid.log && break; sleep 0.1; done
grep 'rocid: ready' /tmp/rocid.log || { cat /tmp/rocid.log; exit 1; }
'''
# As an interrupted update, and lost files. Prints what dpkg says of it.
BREAK = '''
dpkg --unpack /packages/rocinante_*.deb >/dev/null
rm /usr/bin/roci
for plugin in /usr/lib/*/libibverbs/libroci-rdmav*.so; do : >"$plugin"; done
dpkg --audit
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
        system.require(dh='debhelper', lintian='lintian')
        cls.system = system.System(f'{system.own_release()}/minimal')
        cls.addClassCleanup(cls.system.remove)
        cls.root = pathlib.Path(cls.system.root)
        folder = cls.root / 'packages'
        folder.mkdir()
        with tempfile.TemporaryDirectory(prefix='roci-packages.') as scratch:
            made = pathlib.Path(PACKAGES[0]).glob('*.deb') if PACKAGES else built.make(scratch)
            for package in made:
                shutil.copy(package, folder)

    def inside(self, script):
        """Runs a script in the system; fails if it does. Returns its output."""
        status, said = self.system.run(script)
        self.assertEqual(status, 0, said)
        return said

    def test_install_use_repair_purge(self):
        self.inside('apt-get -q update')
        before = files_in(self.root)
        # (There are no sudo and no service manager, which starts the daemon during the installation.)
        install, use = readme.line('Debian packages').removeprefix('sudo ').split(' && ')
        begin = time.monotonic()
        self.inside(f'cd /packages && {install} -q -y')
        said = self.inside(START + f"{use}\nroci run bash -ec '{system.PING_PONG}'")
        self.assertEqual(said.count('PORT_ACTIVE'), 2, said)
        print(f'# from the packages to the first ping-pong: {time.monotonic() - begin:.1f} s', flush=True)
        with self.subTest('nothing is left half installed'):
            self.assertEqual(self.inside('dpkg --audit'), '')
            self.inside('apt-get -q -y install --no-install-recommends man-db && man -w rocid && man -w roci-run && man -w rocid.toml\n'
                        'getent passwd rocinante && rocid --check-config -c /etc/rocinante/rocid.toml')
        with self.subTest('programs of other users and roci show'):
            self.inside(START + "setpriv --reuid=nobody --regid=nogroup --clear-groups roci run ibv_devinfo | grep PORT_ACTIVE && roci show devices")
        with self.subTest('drivers of ports, from packages without -dev'):
            self.inside('printf "[[device]]\\nname = \\"roci0\\"\\nport = \\"net_af_packet0,iface=lo\\"\\n" >/tmp/port.toml\n'
                        'rocid --check-config -c /tmp/port.toml\n! dpkg-query -W -f \'${db:Status-Status}\' libdpdk-dev | grep ^installed')
        with self.subTest('a half-installed state is repaired'):
            self.assertNotEqual(self.inside(BREAK), '')
            self.inside('cd /packages && apt install --reinstall ./*.deb -q -y')
            self.assertEqual(self.inside('dpkg --audit\ndpkg --verify rocinante\ndpkg --verify libroci-verbs'), '')
            self.inside(START + f"roci run bash -ec '{system.PING_PONG}'")
        with self.subTest('purge'):
            self.inside('apt-get -q -y purge $(dpkg-query -W -f "${Package} " "rocinante*" "libroci*") && apt-get -q -y autoremove --purge')
            left = {path for path in files_in(self.root) - before if 'roci' in path}
            self.assertEqual(left, set())
            self.assertFalse((self.root / 'etc/rocinante').exists())


if __name__ == '__main__':
    tap.main(sys.modules[__name__])
