"""The two ends of the tests with guests: rocid in a network namespace, a guest, and tap devices or a vhost-user socket
between them."""
import copy
import ipaddress
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from guest import Guest, Unavailable, make_image
from harness import Daemon, await_, require_network_namespaces

LIMIT_S = 180
TAP = 'roci-tap'
MTU = 4200  # the largest path MTU and its headers
GUEST_MACS = ('02:72:6f:63:69:77', '02:72:6f:63:69:78', '02:72:6f:63:69:79', '02:72:6f:63:69:7a')
# Addresses of rocid; of the guest; of the host's kernel, over which programs without rdma_cm exchange their parameters by TCP.
ROCI = {'v4': '192.0.2.1', 'v6': '2001:db8::1'}
RXE = {'v4': '192.0.2.2', 'v6': '2001:db8::2'}
KERNEL = '192.0.2.3'
PORT = 18600  # for the TCP connections of programs
# Counters by Linux's name, and their name in `roci show counters`.
TRANSPORT_COUNTERS = {'rcvd_rnr_err': 'rnr_naks_received', 'send_rnr_err': 'rnr_naks_sent'}


def device_config(name, port, addresses, mtu=MTU):
    return f"""
[[device]]
name = "{name}"
port = "{port}"
mtu = {mtu}
addresses = ["{addresses['v4']}/24", "{addresses['v6']}/64"]
"""


class Link:
    """Connects the device roci<number> to the guest's rxe<number>. `kind` is the kind of port, 'tap' or 'vhost-user'."""

    def __init__(self, number, kind, path_mtu, net_mtu):
        self.number, self.kind, self.path_mtu, self.net_mtu = number, kind, path_mtu, net_mtu
        self.roci = {'v4': f'198.51.100.{64 * number + 1}', 'v6': f'2001:db8:{number}::1'} if number else ROCI
        self.rxe = {'v4': f'198.51.100.{64 * number + 2}', 'v6': f'2001:db8:{number}::2'} if number else RXE
        self.prefix = 26 if number else 24
        self.tap = f'{TAP}{number}' if number else TAP
        self.mac = GUEST_MACS[number]

    def socket(self, folder):
        return f'{folder}/vhost{self.number}.sock'

    def config(self, folder):
        """The daemon's configuration of the device. Sockets are in `folder`."""
        return device_config(f'roci{self.number}', self.port(folder), self.roci, self.net_mtu).replace('/24', f'/{self.prefix}')

    def port(self, folder):
        """Both ports on a network device of the kernel: with packet sockets the kernel makes the guest's frames of long ones."""
        if self.kind != 'tap':
            return f'net_vhost{self.number},iface={self.socket(folder)}'
        return f'packet:{self.tap}' if self.path_mtu == 1024 else f'net_af_packet{self.number},iface={self.tap}'

    def hardware(self, folder):
        """QEMU's options for the guest's NIC."""
        name = f'n{self.number}'
        nic = f'virtio-net-pci,netdev={name},mac={self.mac},host_mtu={self.net_mtu}'
        if self.kind == 'tap':
            return ['-netdev', f'tap,id={name},ifname={self.tap},script=no,downscript=no,vhost=off', '-device', nic]
        # QEMU 7.2 crashes on vhost-user with message-signaled interrupts and without KVM.
        return ['-chardev', f'socket,id=c{name},path={self.socket(folder)}', '-netdev', f'vhost-user,id={name},chardev=c{name}',
                '-device', f'{nic},vectors=0']


# Programs of both ends reach each other by TCP over the network device of the first link.
LINKS = (Link(0, 'tap', 4096, MTU), Link(1, 'vhost-user', 4096, MTU),
         Link(2, 'tap', 1024, 1500), Link(3, 'vhost-user', 1024, 1500))


def other(end, name, device, addresses, gids):
    """Another device of the same end."""
    made = copy.copy(end)
    made.name, made.device, made.addresses, made.gids = name, device, addresses, gids
    return made


def on_link(end, link, addresses, gids):
    """The end's device on that link."""
    made = other(end, f'{end.name} on {link.kind}', f'{end.name}{link.number}', addresses, gids)
    made.path_mtu, made.tcp_port = link.path_mtu, PORT + link.number
    return made


def listening_row(port):
    """A regular expression for the row of a listener in /proc/net/tcp*."""
    return f':{port:04X} 0*:0000 0A '


class HostProgram:
    """A program on the host that uses the daemon's devices."""

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
        """Returns the exit status, or None if the program was not done in time and was killed."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def has(self, pid):
        """Whether the process is one of this program's."""
        try:
            return os.getsid(pid) == self.process.pid
        except ProcessLookupError:
            return False

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()


class RociEnd:
    """The device roci0 of a daemon that this object runs."""

    name = 'roci'
    device = 'roci0'
    addresses = ROCI
    tcp_address = KERNEL
    tcp_port = PORT
    path_mtu = 4096
    gids = {'v4': 1, 'v6': 2}
    programs = None  # a folder, for commands that name it

    def __init__(self, programs, namespace, config):
        self.prefix = ('ip', 'netns', 'exec', namespace)
        self.daemon = Daemon(programs, config=config, prefix=self.prefix)

    def start(self, command):
        return HostProgram(self, command)

    def await_listener(self, server, port, by_cm=False):
        """Waits until the server listens on its TCP port or, `by_cm`, by the connection manager. False: it has ended, or does not
        listen in time."""
        def there():
            if by_cm:
                # The listener of the program before may still be there.
                return any(row['state'] == 'listen' and server.has(row['pid']) for row in self.daemon.show('connections'))
            return subprocess.run(['grep', '-q', listening_row(port), f'/proc/{self.daemon.pid}/net/tcp',
                                   f'/proc/{self.daemon.pid}/net/tcp6'], check=False).returncode == 0
        return await_(lambda: there() or server.status() is not None) and server.status() is None

    def left(self):
        """Queue pairs and connections that programs left behind. None are expected."""
        return {what: rows for what in ('qps', 'connections') if (rows := self.daemon.show(what))}

    def impair(self, *arguments):
        subprocess.run([self.daemon.programs.roci, '--runtime-dir', self.daemon.runtime_dir, 'impair', self.device,
                        *arguments], check=True, capture_output=True, timeout=LIMIT_S)

    def counters(self):
        return next(row for row in self.daemon.show('counters') if row['device'] == self.device)

    def counter(self, name):
        return self.counters()['transport'][TRANSPORT_COUNTERS[name]]

    def impaired(self):
        """The counts of impaired frames so far, of both directions together, by counter name."""
        rows = [row['counters'] for row in self.counters()['impairments']]
        return {name: sum(row[name] for row in rows) for name in (rows[0] if rows else ())}


class RxeEnd:
    """The devices rxe0, rxe1, ... in the guest, one for each link. Sockets of links are in `folder`."""

    name = 'rxe'
    tcp_address = RXE['v4']
    programs = '/run/host'

    def __init__(self, image, namespace, folder):
        hardware = [word for link in LINKS for word in link.hardware(folder)]
        self.guest = Guest(image, hardware, ('ip', 'netns', 'exec', namespace), shared_memory=True)
        try:
            self.guest.run('set -e\n' + '\n'.join(self.set_up(link) for link in LINKS))
        except BaseException:
            self.guest.stop()
            raise

    @staticmethod
    def set_up(link):
        return f"""ip link set eth{link.number} mtu {link.net_mtu} up
            ip address add {link.rxe['v4']}/{link.prefix} dev eth{link.number}
            ip address add {link.rxe['v6']}/64 dev eth{link.number} nodad
            rdma link add rxe{link.number} type rxe netdev eth{link.number}"""

    def find_gids(self, link):
        return {'v4': self.find_gid(link, ipaddress.ip_address(f'::ffff:{link.rxe["v4"]}')),
                'v6': self.find_gid(link, ipaddress.ip_address(link.rxe['v6']))}

    def find_gid(self, link, gid):
        table = f'/sys/class/infiniband/rxe{link.number}/ports/1/gids'
        return int(self.guest.run(f"""for i in {{1..100}}; do
            for file in {table}/*; do
                [ "$(<"$file")" != {gid.exploded} ] || {{ echo "${{file##*/}}"; exit 0; }}
            done 2>/dev/null
            pause 0.3; done; exit 1"""))

    def start(self, command):
        return self.guest.start(command)

    def await_listener(self, server, port, by_cm=False):
        """As in RociEnd."""
        there = f'await_row "{listening_row(port)}" /proc/net/tcp /proc/net/tcp6'
        if by_cm:
            ours = '|'.join((f':{port} ', *(address.replace('.', '[.]') for address in self.addresses.values())))
            there = f"""ours='src-addr [^ ]*({ours})'
                until [[ $(rdma resource show cm_id state LISTEN) =~ $ours ]]; do pause 0.1; done"""
        looks = self.guest.start(there)
        await_(lambda: looks.status() is not None or server.status() is not None or not self.guest.alive())
        looks.kill()
        return looks.status() == 0 and server.status() is None

    def counter(self, name):
        return int(self.guest.run(f'echo "$(</sys/class/infiniband/{self.device}/ports/1/hw_counters/{name})"'))

    def left(self):
        # The kernel's own queue pair (GSI) is always there.
        rows = json.loads(self.guest.run('rdma --json resource show qp type rc,uc,ud || echo "[]"'))
        return {'qps': rows} if rows else {}


class Network:
    """A network namespace with tap devices: TAP, and `more_taps` given by name, number of queues and MTU. Raises SkipTest for
    users who may not create one."""

    def __init__(self, more_taps=()):
        require_network_namespaces()
        self.name = f'roci-interop-{os.getpid()}'
        self.run('netns', 'add', self.name)
        try:
            for tap, queues, mtu in ((TAP, 1, MTU), *more_taps):
                self.run('-n', self.name, 'tuntap', 'add', tap, 'mode', 'tap', *(['multi_queue'] if queues > 1 else []))
                self.run('-n', self.name, 'link', 'set', tap, 'mtu', str(mtu), 'up')
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
    """Waits for the frames that the ends still exchange after a program has ended."""
    time.sleep(0.3)


def run_in_network(folder, make_network, run):
    """Makes the guest's image in `folder` and a network, and returns run(network), the exit status of the test. Says in TAP why
    the test is skipped or cannot go on. Removes the network, also when the test's time limit ends it."""
    try:
        make_image(folder)
        network = make_network()
    except (Unavailable, unittest.SkipTest) as error:
        print(f'1..0 # SKIP {error}')
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        return run(network)
    except Unavailable as error:
        print(f'1..0 # SKIP {error}')
        return 0
    except RuntimeError as error:
        print(f'Bail out! {error}')
        return 1
    finally:
        network.remove()
