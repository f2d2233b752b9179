"""The two ends of the tests with soft-RoCE: rocid in a network namespace, a guest, and a tap device between them."""
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
GUEST_MAC = '02:72:6f:63:69:77'
# Of rocid; of the guest; of this side's kernel, over which programs exchange what they need to connect by themselves.
ROCI = {'v4': '192.0.2.1', 'v6': '2001:db8::1'}
RXE = {'v4': '192.0.2.2', 'v6': '2001:db8::2'}
KERNEL = '192.0.2.3'
CONFIG = f"""
[[device]]
name = "roci0"
port = "net_af_packet0,iface={TAP}"
mtu = {MTU}
addresses = ["{ROCI['v4']}/24", "{ROCI['v6']}/64"]
"""


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

    def __init__(self, programs, namespace):
        self.prefix = ('ip', 'netns', 'exec', namespace)
        self.daemon = Daemon(programs, config=CONFIG, prefix=self.prefix)

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
        subprocess.run([self.daemon.programs.roci, '--runtime-dir', self.daemon.runtime_dir, 'impair', 'roci0', *arguments],
                       check=True, capture_output=True, timeout=LIMIT_S)


class RxeEnd:
    """The device rxe0 in the guest."""

    name = 'rxe'
    device = 'rxe0'
    addresses = RXE
    tcp_address = RXE['v4']

    def __init__(self, image, namespace):
        network = ['-netdev', f'tap,id=n,ifname={TAP},script=no,downscript=no,vhost=off',
                   '-device', f'virtio-net-pci,netdev=n,mac={GUEST_MAC},host_mtu={MTU}']
        self.guest = Guest(image, network, ('ip', 'netns', 'exec', namespace))
        try:
            self.set_up()
        except BaseException:
            self.guest.stop()
            raise

    def set_up(self):
        self.guest.run(f"""set -e
            ip link set eth0 mtu {MTU} up
            ip address add {RXE['v4']}/24 dev eth0
            ip address add {RXE['v6']}/64 dev eth0 nodad
            rdma link add rxe0 type rxe netdev eth0""")
        self.gids = {family: self.find_gid(address) for family, address in
                     (('v4', '0000:0000:0000:0000:0000:ffff:c000:0202'), ('v6', '2001:0db8:0000:0000:0000:0000:0000:0002'))}

    def find_gid(self, gid):
        found = self.guest.run(f"""for i in 1 2 3 4 5 6 7 8 9 10; do
            grep -l {gid} /sys/class/infiniband/rxe0/ports/1/gids/* && exit 0; sleep 0.3; done; exit 1""")
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
    """A namespace with a tap device. CalledProcessError or FileNotFoundError where that cannot be had."""

    def __init__(self):
        self.name = f'roci-interop-{os.getpid()}'
        self.run('netns', 'add', self.name)
        try:
            self.run('-n', self.name, 'tuntap', 'add', TAP, 'mode', 'tap')
            self.run('-n', self.name, 'link', 'set', TAP, 'mtu', str(MTU), 'up')
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
