"""The two ends of the tests with guests: rocid in a network namespace, a guest, and tap devices or a vhost-user socket
between them."""
import copy
import ipaddress
import json
import os
import subprocess
import tempfile
import time

from guest import Guest
from harness import Daemon, await_

LIMIT_S = 60
TAP = 'roci-tap'
MTU = 4200  # the largest path MTU and its headers
GUEST_MACS = ('02:72:6f:63:69:77', '02:72:6f:63:69:78')
# Of rocid; of the guest; of this side's kernel, over which programs exchange what they need to connect by themselves.
ROCI = {'v4': '192.0.2.1', 'v6': '2001:db8::1'}
RXE = {'v4': '192.0.2.2', 'v6': '2001:db8::2'}
KERNEL = '192.0.2.3'
# The same, of the second devices, which vhost-user joins.
ROCI_VHOST = {'v4': '198.51.100.1', 'v6': '2001:db8:1::1'}
RXE_VHOST = {'v4': '198.51.100.2', 'v6': '2001:db8:1::2'}


def device_config(name, port, addresses):
    return f"""
[[device]]
name = "{name}"
port = "{port}"
mtu = {MTU}
addresses = ["{addresses['v4']}/24", "{addresses['v6']}/64"]
"""


def other(end, name, device, addresses, gids):
    """Another device of the same end."""
    made = copy.copy(end)
    made.name, made.device, made.addresses, made.gids = name, device, addresses, gids
    return made


def listening_row(port):
    """A pattern of grep for the row of a listener in /proc/net/tcp*."""
    return f':{port:04X} 0*:0000 0A '


class HostProgram:
    """A program among the daemon's devices."""

    def __init__(self, end, command):
        self.log = tempfile.TemporaryFile('w+', encoding='utf-8', errors='replace')
        self.process = subprocess.Popen([*end.prefix, *end.daemon.command('bash', '-c', command)], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def status(self):
        return self.process.poll()

    def wait(self, limit_s):
        """The exit status; None: not done in time, and killed."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()


class RociEnd:
    """The device roci0 of a daemon of its own."""

    name = 'roci'
    device = 'roci0'
    addresses = ROCI
    tcp_address = KERNEL
    gids = {'v4': 1, 'v6': 2}
    programs = None  # a folder, for commands that name it

    def __init__(self, programs, namespace, config):
        self.prefix = ('ip', 'netns', 'exec', namespace)
        self.daemon = Daemon(programs, config=config, prefix=self.prefix)

    def start(self, command):
        return HostProgram(self, command)

    def await_listener(self, server, port):
        def there():
            if port is None:
                return any(row['state'] == 'listen' for row in self.daemon.show('connections'))
            return subprocess.run(['grep', '-q', listening_row(port), f'/proc/{self.daemon.pid}/net/tcp',
                                   f'/proc/{self.daemon.pid}/net/tcp6'], check=False).returncode == 0
        await_(lambda: there() or server.status() is not None)

    def left(self):
        """What programs left behind; nothing is expected."""
        return {what: rows for what in ('qps', 'connections') if (rows := self.daemon.show(what))}

    def impair(self, *arguments):
        subprocess.run([self.daemon.programs.roci, '--runtime-dir', self.daemon.runtime_dir, 'impair', self.device,
                        *arguments], check=True, capture_output=True, timeout=LIMIT_S)


class RxeEnd:
    """The device rxe0 in the guest; and rxe1, on a NIC whose other side is the vhost-user socket `vhost`."""

    name = 'rxe'
    device = 'rxe0'
    addresses = RXE
    tcp_address = RXE['v4']
    programs = '/run/host'

    def __init__(self, image, namespace, vhost):
        # With interrupts by messages QEMU 7.2 crashes on vhost-user without KVM.
        network = ['-netdev', f'tap,id=n,ifname={TAP},script=no,downscript=no,vhost=off',
                   '-device', f'virtio-net-pci,netdev=n,mac={GUEST_MACS[0]},host_mtu={MTU}',
                   '-chardev', f'socket,id=c,path={vhost}', '-netdev', 'vhost-user,id=v,chardev=c',
                   '-device', f'virtio-net-pci,netdev=v,mac={GUEST_MACS[1]},host_mtu={MTU},vectors=0']
        self.guest = Guest(image, network, ('ip', 'netns', 'exec', namespace), shared_memory=True)
        try:
            self.set_up()
        except BaseException:
            self.guest.stop()
            raise

    def set_up(self):
        for number, addresses in enumerate((RXE, RXE_VHOST)):
            self.guest.run(f"""set -e
                ip link set eth{number} mtu {MTU} up
                ip address add {addresses['v4']}/24 dev eth{number}
                ip address add {addresses['v6']}/64 dev eth{number} nodad
                rdma link add rxe{number} type rxe netdev eth{number}""")
        self.gids = self.find_gids('rxe0', RXE)

    def find_gids(self, device, addresses):
        return {'v4': self.find_gid(device, ipaddress.ip_address(f'::ffff:{addresses["v4"]}')),
                'v6': self.find_gid(device, ipaddress.ip_address(addresses['v6']))}

    def find_gid(self, device, gid):
        found = self.guest.run(f"""for i in 1 2 3 4 5 6 7 8 9 10; do
            grep -l {gid.exploded} /sys/class/infiniband/{device}/ports/1/gids/* && exit 0; sleep 0.3; done; exit 1""")
        return int(found.split('/')[-1])

    def start(self, command):
        return self.guest.start(command)

    def await_listener(self, server, port):
        there = 'rdma resource show cm_id | grep -q LISTEN'
        if port is not None:
            there = f'grep -q "{listening_row(port)}" /proc/net/tcp /proc/net/tcp6'
        self.guest.start(f'for i in $(seq 200); do {there} && exit 0; sleep 0.05; done').wait(20)
        del server

    def left(self):
        # The kernel's own queue pair (GSI) is always there.
        rows = json.loads(self.guest.run('rdma --json resource show qp type rc,uc,ud || echo "[]"'))
        return {'qps': rows} if rows else {}


class Network:
    """A namespace with tap devices, more of them by name and number of queues. CalledProcessError or FileNotFoundError where
    that cannot be had."""

    def __init__(self, more_taps=()):
        self.name = f'roci-interop-{os.getpid()}'
        self.run('netns', 'add', self.name)
        try:
            for tap, queues in ((TAP, 1), *more_taps):
                self.run('-n', self.name, 'tuntap', 'add', tap, 'mode', 'tap', *(['multi_queue'] if queues > 1 else []))
                self.run('-n', self.name, 'link', 'set', tap, 'mtu', str(MTU), 'up')
            self.run('-n', self.name, 'link', 'set', 'lo', 'up')
            self.run('-n', self.name, 'address', 'add', f'{KERNEL}/24', 'dev', TAP)
        except BaseException:
            self.remove()
            raise

    @staticmethod
    def run(*arguments):
        subprocess.run(['ip', *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=True)

    def remove(self):
        subprocess.run(['ip', 'netns', 'delete', self.name], capture_output=True, check=False)


def settle():
    """Room for what the ends still have to tell each other after a program has gone."""
    time.sleep(0.3)
