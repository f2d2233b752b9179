#!/usr/bin/env python3
"""The tarball of tools/package in a system that has none of its libraries (Debian 13, with its own libibverbs). Prints TAP.

Usage: tarball_test.py [TARBALL]     (default: makes it)

tools/package checks which libraries and symbols of the C library the programs need.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / 'tests'), str(TOP / 'tests/systems'), str(TOP / 'tests/packages')]
import built  # pylint: disable=wrong-import-position
import system  # pylint: disable=wrong-import-position
import readme  # pylint: disable=wrong-import-position
import tap  # pylint: disable=wrong-import-position

PORTS = ('net_af_packet0,iface=lo', 'net_af_xdp0,iface=lo', 'net_memif0,role=server', 'net_vhost0,iface=/tmp/v', 'net_virtio_user0,path=/tmp/v',
         'net_tap0', 'net_null0')
START = '''
/opt/rocinante/bin/rocid >/tmp/rocid.log 2>&1 & daemon=$!
for i in $(seq 600); do grep -q 'rocid: ready' /tmp/rocid.log && break; sleep 0.1; done
grep 'rocid: ready' /tmp/rocid.log || { cat /tmp/rocid.log; exit 1; }
'''


class Tarball(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        system.require(nasm='nasm')
        cls.system = system.System('trixie/programs')
        cls.addClassCleanup(cls.system.remove)
        target = pathlib.Path(cls.system.root, 'opt/rocinante')
        target.mkdir()
        cls.tarball = built.tarball(sys.argv[1:])
        subprocess.run(['tar', '-xf', cls.tarball, '-C', target, '--strip-components=1'], check=True)

    def inside(self, script):
        status, said = self.system.run('ip link set lo up\n' + script, has_network=False)
        self.assertEqual(status, 0, said)
        return said

    def test_system_has_none_of_the_libraries(self):
        self.assertEqual(self.inside('ls /usr/lib/*/ | grep -E "^lib(rte_|absl|isal|tomlplusplus|subid)" || true'), '')

    def test_the_line_of_the_readme(self):
        folder = pathlib.Path(self.system.root, 'home/somebody')
        folder.mkdir()
        shutil.copy(self.tarball, folder)
        os.chown(folder, 1000, 1000)
        said = self.inside('cd /home/somebody && exec setpriv --reuid=1000 --regid=1000 --clear-groups --inh-caps=-all --bounding-set=-all '
                           f'--no-new-privs env HOME=$PWD bash -ec "{readme.line("a tarball")}"')
        self.assertEqual(said.count('PORT_ACTIVE'), 2, said)

    def test_programs_use_the_devices(self):
        self.inside(START + f"/opt/rocinante/bin/roci run bash -ec '{system.PING_PONG}'")

    def test_drivers_are_linked_in(self):
        for port in PORTS:
            said = self.inside(f'printf \'[[device]]\\nname = "roci0"\\nport = "%s"\\n\' {port} >/tmp/port.toml\n'
                               '/opt/rocinante/bin/rocid --check-config -c /tmp/port.toml 2>&1 || true')
            self.assertNotIn('has no driver', said, port)

    def test_a_driver_s_port_works(self):
        self.inside('ip link add roci-t0 type veth peer name roci-t1 && ip link set roci-t0 up && ip link set roci-t1 up\n'
                    'printf \'[[device]]\\nname = "roci0"\\nport = "net_af_packet0,iface=roci-t0"\\n\' >/tmp/port.toml\n'
                    + START.replace('bin/rocid', 'bin/rocid --config /tmp/port.toml')
                    + '/opt/rocinante/bin/roci run ibv_devinfo -d roci0 | grep PORT_ACTIVE')


if __name__ == '__main__':
    tap.main(sys.modules[__name__])
