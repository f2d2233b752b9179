"""Two daemons connected by virtual ports, and the kernel's TCP over a veth pair for comparison."""
import contextlib
import json
import os
import re
import subprocess
import tempfile
import time
import typing

from .perftest import parse_latency
from .processes import BenchmarkError, Daemon, is_listening, perftest_pair, run_client, stop

KERNEL_ADDRESSES = ('198.51.100.1', '198.51.100.2')
DAEMON_ADDRESSES = ('198.51.100.11', '198.51.100.12')
DEVICE = 'roci0'
LARGEST_MTU = 4200  # of a device
LARGE_MTU = 4400  # of a veth pair
MAPPED = '[memory]\npolicy = "map"\n'
QPERF_PORT, IPERF_PORT = 19765, 5201


def ip(*arguments):
    done = subprocess.run(['ip', *arguments], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f'ip {" ".join(arguments)}: {done.stderr.strip()}')


class Veth:
    """A veth pair between two network namespaces, as a context manager. Kernel and daemons have different addresses."""

    interfaces = ('roci-bench-a', 'roci-bench-b')

    def __init__(self, mtu):
        self.mtu = mtu
        self.names = tuple(f'roci-bench-{os.getpid()}-{end}' for end in 'ab')

    def __enter__(self):
        try:
            for name in self.names:
                ip('netns', 'add', name)
            ip('link', 'add', self.interfaces[0], 'netns', self.names[0], 'type', 'veth', 'peer', 'name', self.interfaces[1], 'netns',
               self.names[1])
            for name, interface, address in zip(self.names, self.interfaces, KERNEL_ADDRESSES):
                ip('-n', name, 'address', 'add', f'{address}/24', 'dev', interface)
                ip('-n', name, 'link', 'set', interface, 'mtu', str(self.mtu), 'up')
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(['ip', 'netns', 'delete', name], capture_output=True, timeout=20, check=False)

    def inside(self, end):
        """Command prefix to run in that namespace."""
        return ('ip', 'netns', 'exec', self.names[end])


class Joined:
    """Two connected daemons, each with one device. Has the interface of Daemon for perftest.measure_*."""

    def __init__(self, daemons):
        self.daemons = daemons

    def await_link(self):
        deadline = time.monotonic() + 20
        while any(port['state'] != 'active' for daemon in self.daemons for port in daemon.show('ports')):
            if time.monotonic() > deadline:
                raise BenchmarkError('the link between the daemons did not come up')
            time.sleep(0.1)

    def run_pair(self, program, *arguments, limit_s=90):
        with perftest_pair((self.daemons[0], DEVICE), (self.daemons[1], DEVICE), program, *arguments) as client:
            return run_client(client, program, limit_s, self.describe_failure)

    def describe_failure(self):
        return ''.join(daemon.describe_failure() for daemon in self.daemons)


def config(port, end, mtu, extra=''):
    return f'[[device]]\nname = "{DEVICE}"\nport = "{port}"\naddresses = ["{DAEMON_ADDRESSES[end]}/24"]\nmtu = {mtu}\n{extra}'


@contextlib.contextmanager
def join(build, configs, prefixes=((), ())):
    """Starts daemons with these configurations; yields a Joined once the link is up."""
    with Daemon(build, config=configs[0], prefix=prefixes[0]) as one, Daemon(build, config=configs[1], prefix=prefixes[1]) as other:
        joined = Joined((one, other))
        joined.await_link()
        yield joined


@contextlib.contextmanager
def over_veth(build, port, mtu, extra=''):
    """`port` has {} in the place of the interface's name."""
    with Veth(mtu) as veth:
        configs = [config(port.format(interface), end, min(mtu, LARGEST_MTU), extra) for end, interface in enumerate(veth.interfaces)]
        with join(build, configs, (veth.inside(0), veth.inside(1))) as joined:
            yield joined


@contextlib.contextmanager
def over_memif(build):
    with tempfile.TemporaryDirectory(prefix='roci-bench.') as folder:
        options = f'socket={folder}/memif.sock,socket-abstract=no,bsize=4608'
        with join(build, [config(f'net_memif0,role={role},{options}', end, 4200, f'mac = "02:72:6f:63:69:1{end}"\n')
                          for end, role in enumerate(('server', 'client'))]) as joined:
            yield joined


@contextlib.contextmanager
def over_vhost(build):
    with tempfile.TemporaryDirectory(prefix='roci-bench.') as folder:
        path = f'{folder}/vhost.sock'
        with join(build, [config(f'net_vhost0,iface={path}', 0, 4200),
                          config(f'net_virtio_user0,path={path},mrg_rxbuf=1', 1, 4200)]) as joined:
            yield joined


class Network(typing.NamedTuple):
    """What connects two daemons."""
    join: typing.Callable  # starts them
    mtu: int = LARGE_MTU  # of the kernel's TCP that it is compared with
    times_tcp: float | None = None  # wanted bandwidth; None: no target
    latency_of_tcp: bool = False  # wanted


# AF_XDP's buffers have at most one page.
NETWORKS = {
    f'veth, packet, MTU {LARGE_MTU}': Network(lambda build: over_veth(build, 'packet:{}', LARGE_MTU), times_tcp=1.5, latency_of_tcp=True),
    f'veth, packet, MTU {LARGE_MTU}, memory mapped': Network(lambda build: over_veth(build, 'packet:{}', LARGE_MTU, MAPPED), times_tcp=1.5),
    'veth, packet, MTU 1500': Network(lambda build: over_veth(build, 'packet:{}', 1500), mtu=1500, times_tcp=1.0),
    'veth, packet, MTU 1500, memory mapped': Network(lambda build: over_veth(build, 'packet:{}', 1500, MAPPED), mtu=1500, times_tcp=1.0),
    'veth, net_af_packet': Network(lambda build: over_veth(build, 'net_af_packet0,iface={}', LARGE_MTU), latency_of_tcp=True),
    'veth, net_af_xdp': Network(lambda build: over_veth(build, 'net_af_xdp0,iface={}', 3400), latency_of_tcp=True),
    'memif': Network(over_memif, times_tcp=2.0),
    'vhost-user': Network(over_vhost, times_tcp=2.0),
}


def parse_qperf(text, what):
    """The number of a line of `qperf -uu`: bytes a second, or nanoseconds."""
    match = re.search(rf'^\s*{what}\s*=\s*(\d+(?:\.\d+)?)\s', text, re.MULTILINE)
    if not match:
        raise BenchmarkError(f'no {what} in what qperf printed:\n{text[-400:]}')
    return float(match[1])


def run_in(veth, end, *command, limit_s=60):
    words = [*veth.inside(end), *map(str, command)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f'{command[0]}: {(done.stderr or done.stdout).strip()[-400:]}')
    return done.stdout


@contextlib.contextmanager
def server_in(veth, port, *command):
    """A listening TCP server at the first end."""
    process = subprocess.Popen([*veth.inside(0), *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 10
        while not is_listening(port, process.pid):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f'{command[0]} did not start as a server')
            time.sleep(0.02)
        yield
    finally:
        stop(process, 1.0)


def measure_tcp(mtu, seconds, repetitions, progress):
    """TCP over a veth pair of that MTU, medians: Gb/s (iperf3), million 64-byte messages per second and half a round trip of 8
    bytes in microseconds (qperf)."""
    found = {'gbps': [], 'million_per_s': [], 'latency_us': []}
    duration_s = max(1, round(seconds))
    with Veth(mtu) as veth, server_in(veth, IPERF_PORT, 'iperf3', '-s'), server_in(veth, QPERF_PORT, 'qperf'):
        for _ in range(repetitions):
            report = json.loads(run_in(veth, 1, 'iperf3', '-c', KERNEL_ADDRESSES[0], '-t', duration_s, '-J'))
            found['gbps'].append(report['end']['sum_received']['bits_per_second'] * 1e-9)
            qperf = ('qperf', KERNEL_ADDRESSES[0], '-t', duration_s, '-uu')
            found['million_per_s'].append(parse_qperf(run_in(veth, 1, *qperf, '-m', 64, 'tcp_bw'), 'bw') / 64e6)
            found['latency_us'].append(parse_qperf(run_in(veth, 1, *qperf, '-m', 8, 'tcp_lat'), 'latency') * 1e-3)
            progress(f'TCP over veth, MTU {mtu}: ' + ', '.join(f'{name} {values[-1]:.3g}' for name, values in found.items()))
    return {name: sorted(values)[(len(values) - 1) // 2] for name, values in found.items()}


# Half a round trip of 8 bytes by TCP after pauses, as ib_send_lat --latency_gap measures it.
TCP_AFTER_PAUSES = """
import socket, sys, time
connected = socket.create_connection((sys.argv[1], int(sys.argv[2])))
connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
halves = []
for _ in range(int(sys.argv[3])):
    time.sleep(float(sys.argv[4]))
    begin = time.perf_counter()
    connected.sendall(bytes(8))
    connected.recv(8, socket.MSG_WAITALL)
    halves.append((time.perf_counter() - begin) / 2e-6)
print(sorted(halves)[len(halves) // 2])
"""
TCP_ECHO = """
import socket, sys
with socket.create_server(('', int(sys.argv[1]))) as listener:
    while True:
        connected = listener.accept()[0]
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connected.recv(8, socket.MSG_WAITALL):
            connected.sendall(data)
"""
ECHO_PORT = 19767
PAUSES, PAUSE_US = 100, 50_000


def measure_tcp_after_pauses():
    """Half a round trip of TCP over the veth pair in microseconds: without pauses, and after pauses."""
    with Veth(LARGE_MTU) as veth, server_in(veth, ECHO_PORT, 'python3', '-c', TCP_ECHO, str(ECHO_PORT)):
        return tuple(float(run_in(veth, 1, 'python3', '-c', TCP_AFTER_PAUSES, KERNEL_ADDRESSES[0], ECHO_PORT, count, pause_us * 1e-6))
                     for count, pause_us in ((PAUSES * 20, 0), (PAUSES, PAUSE_US)))


def measure_after_pauses(joined):
    """ib_send_lat of two Joined daemons in microseconds: without pauses, after pauses, and how often a second their lcores woke while
    nothing was sent."""
    typical = parse_latency(joined.run_pair('ib_send_lat', '-s', 8, '-n', PAUSES * 20))['typical_us']
    # Both ends pause before each message, and perftest counts the pauses.
    after = parse_latency(joined.run_pair('ib_send_lat', '-s', 8, '-n', PAUSES, f'--latency_gap={PAUSE_US}'))['typical_us'] - PAUSE_US
    time.sleep(1)  # ARP entries are refreshed

    def sleeps():
        return [daemon.show('lcores')[0]['sleeps'] for daemon in joined.daemons]
    before, seconds = sleeps(), 3
    time.sleep(seconds)
    return typical, after, max(now - then for now, then in zip(sleeps(), before)) / seconds
