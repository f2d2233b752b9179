#!/usr/bin/env python3
"""Two daemons on one network: over a veth pair between two network namespaces by the daemon's packet sockets, net_af_packet and
net_af_xdp, over net_memif, and over net_vhost with net_virtio_user.

The kernel has the same address on its side of the veth pair, silenced as in docs/kernel-devices.md. The test creates namespaces and
interfaces and removes them; without permission for that its cases are skipped.

Usage: networks_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import damaged_frames
import icrc
from harness import (LIMIT_S, Daemon, Pair, Programs, await_, ended_well, free_port, listening, members,
                     require_network_namespaces, stop)

PROGRAMS = None
CLONE_NEWNET = 0x40000000
V4 = ('192.0.2.1', '192.0.2.2')
V6 = ('2001:db8::1', '2001:db8::2')
ETH_P_ALL = 3
LOCAL_EXPERIMENT = 0x88B5  # an EtherType for local experiments (IEEE 802)
AF_XDP = 44
SIOCETHTOOL = 0x8946
ETHTOOL_GSET = 1
ETHTOOL_SSET = 2
ETHTOOL_STXCSUM = 0x17


def ip(*arguments, namespace=None):
    command = ['ip', *(['-n', namespace] if namespace else []), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)


def add_optional(*arguments, namespace):
    """`ip link add` of a type that not every kernel has. Raises SkipTest without it."""
    try:
        ip('link', 'add', *arguments, namespace=namespace)
    except subprocess.CalledProcessError as error:
        if 'Unknown device type' not in error.stderr:
            raise
        raise unittest.SkipTest(f'the kernel lacks an interface: ip link add {" ".join(arguments)}: {error.stderr}') from error


def inside(namespace, call):
    """Runs `call()` in the network namespace; sockets made there stay in it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open('/proc/self/ns/net', 'rb') as here, open(f'/run/netns/{namespace}', 'rb') as there:
        if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), 'setns')
        try:
            return call()
        finally:
            libc.setns(here.fileno(), CLONE_NEWNET)


class Ends(Pair):
    """A server at one daemon and a client at another. The programs' TCP connection uses this machine's loopback interface."""

    def __init__(self, daemons, command):
        self.daemons = daemons
        self.port = free_port()
        self.command = command
        self.server = daemons[0].start(*self.on('roci0', command))
        self.client = None

    def connect(self):
        await_(lambda: listening(self.port) or self.server.poll() is not None)
        self.client = self.daemons[1].start(*self.on('roci0', self.command), '127.0.0.1')
        return self


class TwoDaemons(unittest.TestCase):
    """Tests for every kind of network. Derived classes make `daemons` in set_up_network."""

    daemons = ()
    arguments = ''  # additional arguments of the ports

    @classmethod
    def setUpClass(cls):
        if cls is TwoDaemons:
            raise unittest.SkipTest('no network of its own')
        try:
            cls.set_up_network()
        except BaseException:
            cls.doClassCleanups()
            raise

    @classmethod
    def start_daemon(cls, port, number, prefix=()):
        config = (f'{cls.daemon_config(number)}[[device]]\nname = "roci0"\nport = "{port}{cls.arguments}"\n'
                  f'addresses = ["{V4[number]}/24", "{V6[number]}/64"]\n{cls.extra_config(number)}')
        daemon = Daemon(PROGRAMS, config=config, prefix=prefix)
        cls.addClassCleanup(daemon.stop)
        return daemon

    @classmethod
    def await_link(cls):
        def up():
            return all(port['state'] == 'active' for daemon in cls.daemons for port in daemon.show('ports'))
        if not await_(up):
            raise AssertionError('the link did not come up')

    @classmethod
    def daemon_config(cls, _number):
        return ''

    @classmethod
    def extra_config(cls, _number):
        return ''

    def run_ends(self, *command):
        ends = Ends(self.daemons, list(command))
        self.addCleanup(ends.kill)
        self.assertEqual(ends.connect().result(), '', command)

    def drops(self, number):
        return self.daemons[number].show('ports')[0]['drops']

    def test_programs(self):
        for gid in ('1', '2'):
            for program in ('ibv_rc_pingpong', 'ibv_uc_pingpong', 'ibv_ud_pingpong', 'ibv_srq_pingpong'):
                checks = [] if program == 'ibv_ud_pingpong' else ['-c']
                self.run_ends(program, '-g', gid, '-n', '200', *checks)
            for program in ('ib_write_bw', 'ib_read_bw', 'ib_send_bw', 'ib_atomic_bw', 'ib_send_lat'):
                size = [] if program == 'ib_atomic_bw' else ['-s', '30000']
                self.run_ends(program, '-x', gid, '-F', '-n', '100', *size)

    def test_a_device_with_itself(self):
        for program in ('ibv_rc_pingpong', 'ibv_uc_pingpong', 'ibv_ud_pingpong', 'ibv_srq_pingpong'):
            pair = Pair(self.daemons[0], ('roci0', 'roci0'), [program, '-g', '1', '-n', '200'])
            self.addCleanup(pair.kill)
            self.assertEqual(pair.connect().result(), '', program)

    def test_connection_manager(self):
        for addresses in (V4, V6):
            for a, b in ((0, 1), (1, 0)):
                server = self.daemons[a].start('rping', '-s', '-a', addresses[a], '-C', '5', '-S', '5000', '-V')
                self.addCleanup(server.stdout.close)
                self.addCleanup(server.kill)
                self.assertTrue(await_(lambda: server.poll() is not None or any(
                    each['state'] == 'listen' for each in self.daemons[a].show('connections'))))
                client = self.daemons[b].start('rping', '-c', '-a', addresses[a], '-C', '5', '-S', '5000', '-V')
                self.addCleanup(client.kill)
                said, _ = client.communicate(timeout=LIMIT_S)
                self.assertTrue(ended_well(client.returncode, said), (client.returncode, said))
                heard, _ = server.communicate(timeout=LIMIT_S)
                self.assertTrue(ended_well(server.returncode, heard), (server.returncode, heard))


class DamagedFrames:
    """Frames that the second daemon must drop, each counted by its reason, sent through the port that `damage()` opens a
    socket for. For classes derived from TwoDaemons."""

    joins_fragments = False  # the kernel reassembles IPv4 fragments before they arrive

    def maker(self):
        return damaged_frames.Maker(bytes.fromhex(self.daemons[1].show('ports')[0]['mac'].replace(':', '')), V4, V6)

    def arriving(self, reasons):
        return {reason: count for reason, count in reasons.items()
                if not (self.joins_fragments and reason == 'ipv4_fragment')}

    def send_slowly(self, frames):
        """Sends with pauses, so that every port accepts all frames."""
        sender = self.damage()
        for number, frame in enumerate(frames):
            sender.send(frame)
            if number % 50 == 49:
                time.sleep(0.05)

    def dropped_since(self, before):
        now = self.drops(1)
        return {reason: now[reason] - before.get(reason, 0) for reason in now if now[reason] != before.get(reason, 0)}

    def unaccounted(self):
        port = self.daemons[1].show('ports')[0]
        counters = port['counters']
        return (counters['rx_packets'] - counters['rx_slow_path'] - counters['rx_roce_packets'] -
                sum(port['drops'].values()))

    def test_every_fault_is_counted_by_its_reason(self):
        by_reason = self.maker().by_reason()
        expected = self.arriving({reason: 5 for reason in by_reason})
        before = self.drops(1)
        self.send_slowly([frame for frame in by_reason.values() for _ in range(5)])
        await_(lambda: self.dropped_since(before) == expected)
        self.assertEqual(self.dropped_since(before), expected)
        self.run_ends('ibv_rc_pingpong', '-g', '1', '-n', '100', '-c')

    def test_the_fuzz_corpus(self):
        frames = self.maker().corpus() + self.maker().mutations(600, seed=5)
        expected = self.arriving(damaged_frames.reasons_of(PROGRAMS.roci, frames))
        self.assertGreater(len(expected), 10, expected)
        before = self.drops(1)
        unaccounted = self.unaccounted()
        self.send_slowly(frames)

        def as_expected():
            now = self.dropped_since(before)
            return {reason: min(count, expected.get(reason, 0)) if reason in damaged_frames.IN_FRONT_OF_UDP else count
                    for reason, count in now.items() if reason in expected}
        await_(lambda: as_expected() == expected)
        self.assertEqual(as_expected(), expected)
        self.assertLessEqual(set(self.dropped_since(before)), {*expected, *damaged_frames.IN_FRONT_OF_UDP})
        # Every frame was dropped for a reason or passed to the control plane.
        self.assertTrue(await_(lambda: self.unaccounted() == unaccounted))

    def test_traffic_continues_beside_damaged_frames(self):
        frames = [*self.maker().by_reason().values(), *self.maker().mutations(200, seed=6)]
        sender = self.damage()
        before = self.drops(1)
        ends = Ends(self.daemons, ['ibv_rc_pingpong', '-g', '1', '-n', '2000', '-c'])
        self.addCleanup(ends.kill)
        ends.connect()
        rounds = 0
        while rounds < 3 or ends.client.poll() is None:
            self.assertLess(rounds, 1000)
            for frame in frames:
                sender.send(frame)
            rounds += 1
            time.sleep(0.02)
        self.assertEqual(ends.result(), '')
        for reason in self.arriving(self.maker().by_reason()):
            self.assertGreater(self.drops(1).get(reason, 0), before.get(reason, 0), reason)
        self.assertIsNone(self.daemons[1].process.poll())


class OnVeth(DamagedFrames, TwoDaemons):
    """The daemons' ports are the ends of a veth pair; derived classes name DPDK's driver."""
    driver = None
    mtu = 1500
    less = (1000, 512)  # another MTU, and the path MTU that fits it
    too_many_frames = 8192  # for the kernel's buffer
    names = tuple(f'roci-{os.getpid()}-{end}' for end in 'ab')
    far_address = V4[1]
    interfaces = ('roci-veth-a', 'roci-veth-b')

    @classmethod
    def set_up_network(cls):
        if cls.driver is None:
            raise unittest.SkipTest('no network of its own')
        require_network_namespaces()
        for name in cls.names:
            ip('netns', 'add', name)
            cls.addClassCleanup(subprocess.run, ['ip', 'netns', 'delete', name], capture_output=True, check=False)
        ip('link', 'add', cls.interfaces[0], 'netns', cls.names[0], 'type', 'veth', 'peer', 'name', cls.interfaces[1],
           'netns', cls.names[1])
        daemons = []
        for number, (name, interface) in enumerate(zip(cls.names, cls.interfaces)):
            ip('link', 'set', interface, 'mtu', str(cls.mtu), 'up', namespace=name)
            cls.quieten_kernel(name, interface, number)
            daemons.append(cls.start_daemon(cls.port_on(interface), number, ('ip', 'netns', 'exec', name)))
        cls.daemons = daemons

    @classmethod
    def port_on(cls, interface):
        return f'{cls.driver}0,iface={interface}'

    @classmethod
    def quieten_kernel(cls, name, interface, number):
        """Configured as docs/kernel-devices.md says. The kernel has the address, too; otherwise it would not respond at all. The
        daemon reserves UDP port 4791 itself."""
        ip('address', 'add', f'{V4[number]}/24', 'dev', interface, namespace=name)
        inside(name, lambda: cls.write(f'/proc/sys/net/ipv4/conf/{interface}/arp_ignore', '8'))

    @staticmethod
    def write(path, text):
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)

    def listen(self, number):
        """A socket that gets every frame of the interface, both ways."""
        def make():
            listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            listener.bind((self.interfaces[number], 0))
            return listener
        listener = inside(self.names[number], make)
        self.addCleanup(listener.close)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 20)
        return listener

    @staticmethod
    def frames(listener):
        found = []
        while select.select([listener], [], [], 0)[0]:
            found.append(listener.recv(65536))
        return found

    def damage(self):
        return self.listen(0)

    def port(self, number):
        return self.daemons[number].show('ports')[0]

    def sysfs(self, number, name):
        path = f'{self.daemons[number].runtime_dir}/sysfs/class/infiniband/roci0/ports/1/{name}'
        with open(path, encoding='ascii') as file:
            return file.read().strip()

    def set_link(self, number, *what):
        ip('link', 'set', self.interfaces[number], *what, namespace=self.names[number])

    def set_mtu(self, mtu):
        for number in (0, 1):
            self.set_link(number, 'mtu', str(mtu))
        self.assertTrue(await_(lambda: [self.port(number)['mtu'] for number in (0, 1)] == [mtu] * 2))

    def test_frames_lost_at_a_full_ring_are_counted(self):
        # A stopped daemon does not drain its ring, so that it overflows at any size.
        before = self.port(1)['lost_by_port'].get('rx_missed', 0)
        sender = self.listen(0)
        daemon = self.daemons[1].process
        self.addCleanup(daemon.send_signal, signal.SIGCONT)
        stop(daemon)
        frame = b'\xff' * 6 + b'\x02' + bytes(5) + struct.pack('!H', LOCAL_EXPERIMENT) + bytes(46)
        for _ in range(self.too_many_frames):
            sender.send(frame)
        daemon.send_signal(signal.SIGCONT)
        self.assertTrue(await_(lambda: self.port(1)['lost_by_port'].get('rx_missed', 0) > before), self.port(1))
        # Reading resets the kernel's counter, but not the daemon's.
        seen = self.port(1)['lost_by_port']['rx_missed']
        self.assertEqual(self.port(1)['lost_by_port']['rx_missed'], seen)
        table = subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemons[1].runtime_dir, 'show', 'ports'],
                               capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
        self.assertRegex(table, rf'lost by the port itself:\n( +\w+ +\d+\n)* +rx_missed +{seen}\n')

    def device_says(self, number):
        said, _ = self.daemons[number].start('ibv_devinfo', '-d', 'roci0').communicate(timeout=LIMIT_S)
        return said

    def connecting(self, number, address):
        """The output of rping. Resolving the neighbour takes up to three seconds, since caches are flushed."""
        client = self.daemons[number].start('rping', '-c', '-a', address, '-C', '1')
        self.addCleanup(client.kill)
        return client.communicate(timeout=LIMIT_S)[0]

    def test_link_state_follows_the_network_device(self):
        watch = self.daemons[0].start('stdbuf', '-oL', 'ibv_asyncwatch', '-d', 'roci0')
        self.addCleanup(lambda: (watch.kill(), watch.communicate()))
        self.assertIn('roci0', watch.stdout.readline())
        for down, states in ((1, ['2: Polling', '3: Disabled']), (0, ['3: Disabled', '2: Polling'])):
            self.addCleanup(self.set_link, down, 'up')
            self.set_link(down, 'down')
            self.assertTrue(await_(lambda: [self.port(number)['state'] for number in (0, 1)] == ['down'] * 2))
            self.assertIn('IBV_EVENT_PORT_ERR', watch.stdout.readline())
            self.assertIn('PORT_DOWN', self.device_says(0))
            self.assertTrue(await_(lambda: [self.sysfs(number, 'state') for number in (0, 1)] == ['1: DOWN'] * 2))
            self.assertTrue(await_(lambda: [self.sysfs(number, 'phys_state') for number in (0, 1)] == states))
            self.assertIn('ADDR_ERROR', self.connecting(0, self.far_address))
            self.set_link(down, 'up')
            self.assertTrue(await_(lambda: [self.port(number)['state'] for number in (0, 1)] == ['active'] * 2))
            self.assertIn('IBV_EVENT_PORT_ACTIVE', watch.stdout.readline())
            self.assertIn('PORT_ACTIVE', self.device_says(0))
            self.assertTrue(await_(lambda: [self.sysfs(number, 'phys_state') for number in (0, 1)] == ['5: LinkUp'] * 2))
            self.run_ends('ibv_rc_pingpong', '-g', '2', '-n', '100', '-c')

    def test_path_mtu_follows_the_network_device(self):
        self.addCleanup(self.set_mtu, self.mtu)
        before = self.port(0)['path_mtu']
        mtu, path_mtu = self.less
        self.assertGreater(before, path_mtu)
        self.set_mtu(mtu)

        def too_long():
            return [self.port(number)['counters']['tx_above_mtu'] for number in (0, 1)]
        counted = too_long()
        self.assertEqual([self.port(number)['path_mtu'] for number in (0, 1)], [path_mtu] * 2)
        self.assertRegex(self.device_says(0), rf'active_mtu:\s+{path_mtu} ')
        for program in ('ib_write_bw', 'ib_send_bw'):
            self.run_ends(program, '-x', '2', '-F', '-n', '100', '-s', '30000')
        self.assertEqual(too_long(), counted)
        self.set_mtu(self.mtu)
        self.assertEqual(self.port(0)['path_mtu'], before)
        self.run_ends('ib_write_bw', '-x', '2', '-F', '-n', '100', '-s', '30000')

    def test_a_queue_pair_gets_the_path_mtu_of_its_connection(self):
        """The server's is created while the MTU is small, and connected when it has grown."""
        self.addCleanup(self.set_mtu, self.mtu)
        path_mtu = self.port(0)['path_mtu']
        self.set_mtu(self.less[0])
        self.assertTrue(await_(lambda: self.port(0)['path_mtu'] == self.less[1]))
        ends = Ends(self.daemons, ['ibv_rc_pingpong', '-g', '2', '-m', str(path_mtu), '-n', '100', '-c'])
        self.addCleanup(ends.kill)
        self.assertTrue(await_(lambda: [qp['state'] for qp in self.daemons[0].show('qps')] == ['INIT']))
        self.set_mtu(self.mtu)
        self.assertTrue(await_(lambda: self.port(0)['path_mtu'] == path_mtu))
        ends.connect()
        self.assertEqual(ends.result(), '')

    def test_frames_above_the_mtu_are_counted(self):
        self.addCleanup(self.set_mtu, self.mtu)
        ends = Ends(self.daemons, ['ib_write_bw', '-x', '2', '-F', '-s', '30000', '-D', '60', '-u', '12'])
        self.addCleanup(ends.kill)
        before = self.port(1)['counters']['tx_roce_packets']
        counted = self.port(1)['counters']['tx_above_mtu']
        ends.connect()
        self.assertTrue(await_(lambda: self.port(1)['counters']['tx_roce_packets'] > before + 100))
        self.set_mtu(self.less[0])
        self.assertTrue(await_(lambda: self.port(1)['counters']['tx_above_mtu'] > counted))
        # Its queue pair has the previous path MTU.
        said, _ = ends.client.communicate(timeout=LIMIT_S)
        self.assertNotEqual(ends.client.returncode, 0, said)
        self.assertGreater(self.port(1)['transport']['retry_exceeded_err'], 0)


class MacvlanTest(TwoDaemons):
    """Network devices that filter as NICs do: the kernel passes frames only of groups in which it has members, and the
    daemons' groups are not among them."""
    driver = 'net_af_packet'
    names = tuple(f'roci-{os.getpid()}-m{end}' for end in 'ab')

    @classmethod
    def set_up_network(cls):
        require_network_namespaces()
        for name in cls.names:
            ip('netns', 'add', name)
            cls.addClassCleanup(subprocess.run, ['ip', 'netns', 'delete', name], capture_output=True, check=False)
        ip('link', 'add', 'below', 'type', 'veth', 'peer', 'name', 'unused', namespace=cls.names[0])
        for name in cls.names:
            add_optional('link', 'below', 'name', f'roci-{name[-1]}', 'type', 'macvlan', 'mode', 'bridge', namespace=cls.names[0])
        for interface in ('below', 'unused'):
            ip('link', 'set', interface, 'up', namespace=cls.names[0])
        ip('link', 'set', 'roci-b', 'netns', cls.names[1], namespace=cls.names[0])
        daemons = []
        for number, name in enumerate(cls.names):
            interface = f'roci-{name[-1]}'
            ip('link', 'set', interface, 'up', namespace=name)
            daemons.append(cls.start_daemon(f'{cls.driver}0,iface={interface}', number, ('ip', 'netns', 'exec', name)))
        cls.daemons = daemons
        cls.await_link()

    def test_groups(self):
        for group, addresses in (('239.1.2.3', V4), ('ff0e::4321', V6)):
            self.assertTrue(await_(lambda: members(self.daemons[0]) == 0))
            member = self.daemons[0].start('mckey', '-m', group, '-b', addresses[0], '-C', '20')
            self.addCleanup(member.communicate)
            self.addCleanup(member.kill)
            self.assertTrue(await_(lambda: members(self.daemons[0]) == 1))
            sender = self.daemons[1].start('mckey', '-m', group, '-b', addresses[1], '-s', '-C', '20')
            self.addCleanup(sender.kill)
            said, _ = sender.communicate(timeout=LIMIT_S)
            self.assertEqual(sender.returncode, 0, said)
            self.assertEqual(member.wait(timeout=LIMIT_S), 0)


class XdpTest(OnVeth):
    """Buffers of a page."""
    driver = 'net_af_xdp'
    mtu = 3400
    less = (1500, 1024)

    @classmethod
    def set_up_network(cls):
        try:
            socket.socket(AF_XDP, socket.SOCK_RAW).close()
        except OSError as error:
            raise unittest.SkipTest(f'no AF_XDP here: {error}') from error
        super().set_up_network()

    @classmethod
    def extra_config(cls, _number):
        return f'mtu = {cls.mtu}\n'

    def test_mtu_is_limited_by_the_buffers(self):
        self.assertEqual([daemon.show('ports')[0]['mtu'] for daemon in self.daemons], [self.mtu] * 2)


class VethTest(OnVeth):
    driver = 'net_af_packet'
    joins_fragments = True

    @classmethod
    def extra_config(cls, number):
        return 'mtu = 4200\n' if number == 1 else ''

    def test_the_configured_mtu_is_set(self):
        for number in (0, 1):
            self.addCleanup(self.set_link, number, 'mtu', str(self.mtu))
            self.set_link(number, 'mtu', '9000')
        self.assertTrue(await_(lambda: self.port(1)['mtu'] == 4200))
        self.assertEqual([self.port(number)['path_mtu'] for number in (0, 1)], [1024, 4096])

    def test_nothing_is_sent_to_a_link_that_is_down(self):
        ends = Ends(self.daemons, ['ib_write_bw', '-x', '2', '-F', '-s', '30000', '-D', '60', '-u', '14'])
        self.addCleanup(ends.kill)
        sent = self.port(1)['counters']['tx_roce_packets']
        ends.connect()
        self.assertTrue(await_(lambda: self.port(1)['counters']['tx_roce_packets'] > sent + 100))
        self.addCleanup(self.set_link, 1, 'up')
        before = self.port(1)['counters']
        self.set_link(1, 'down')
        self.assertTrue(await_(lambda: self.port(1)['counters']['tx_link_down'] > before['tx_link_down']), self.port(1))

    def test_an_address_of_its_own_beside_the_kernel(self):
        """A third daemon is another station on the network device of the second, which keeps its address."""
        def said_of_link():
            said = ip('-json', '-details', 'link', 'show', self.interfaces[1], namespace=self.names[1]).stdout
            return {key: json.loads(said)[0][key] for key in ('address', 'promiscuity')}
        before = said_of_link()
        config = (f'[[device]]\nname = "roci0"\nport = "{self.port_on(self.interfaces[1])}"\n'
                  f'mac = "02:00:00:00:00:03"\naddresses = ["192.0.2.3/24"]\n')
        third = Daemon(PROGRAMS, config=config, prefix=('ip', 'netns', 'exec', self.names[1]))
        self.addCleanup(third.stop)
        self.assertEqual(third.show('ports')[0]['mac'], '02:00:00:00:00:03')
        self.assertEqual(said_of_link(), {**before, 'promiscuity': before['promiscuity'] + 1})
        ends = Ends([third, self.daemons[0]], ['ibv_rc_pingpong', '-g', '1', '-n', '200', '-c'])
        self.addCleanup(ends.kill)
        self.assertEqual(ends.connect().result(), '')
        third.stop()
        self.assertEqual(said_of_link(), before)

    def test_a_second_daemon_in_the_same_place_is_warned(self):
        config = f'[[device]]\nname = "roci0"\nport = "{self.port_on(self.interfaces[1])}"\naddresses = ["192.0.2.3/24"]\n'
        third = Daemon(PROGRAMS, config=config, prefix=('ip', 'netns', 'exec', self.names[1]))
        self.addCleanup(third.stop)
        mac = third.show('ports')[0]['mac']
        self.assertIn(f'roci0: another daemon or device also uses MAC {mac} on {self.interfaces[1]}:', third.output())
        self.assertNotIn('another daemon', self.daemons[1].output())

    def test_a_rate_holds_on_a_port(self):
        ends = Ends(self.daemons, ['ib_write_bw', '-x', '2', '-F', '-s', '30000', '-t', '8', '-D', '1000', '-u', '16'])
        self.addCleanup(ends.kill)
        sent = self.port(1)['counters']['tx_bytes']
        ends.connect()
        self.assertTrue(await_(lambda: self.port(1)['counters']['tx_bytes'] > sent + 1_000_000))
        # Frames of the second daemon, limited at its egress, and at the ingress of the first.
        for number, direction in ((1, 'out'), (0, 'in')):
            def impair(*arguments):
                subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemons[number].runtime_dir, 'impair', 'roci0',
                                '--direction', direction, *arguments], stdout=subprocess.DEVNULL, timeout=LIMIT_S, check=True)
            impair('--rate', '50Mbit')
            self.addCleanup(impair, '--clear')
            self.assertTrue(await_(lambda: self.port(number)['impairments'][0]['counters']['rate_delayed'] > 300))
            begin, before = time.monotonic(), self.port(1)['counters']
            time.sleep(2)
            after = self.port(1)['counters']
            took_s = time.monotonic() - begin
            rate_bps = (after['tx_bytes'] - before['tx_bytes'] + 24 * (after['tx_packets'] - before['tx_packets'])) * 8 / took_s
            self.assertLess(rate_bps, 50e6 * 1.05, direction)
            self.assertTrue(await_(lambda: self.port(1)['counters']['tx_bytes'] > after['tx_bytes'] + 1_000_000))
            impair('--clear')
        before = self.port(1)['counters']['tx_bytes']
        self.assertTrue(await_(lambda: self.port(1)['counters']['tx_bytes'] > before + 50_000_000))

    def test_the_kernel_keeps_quiet(self):
        # A new address of the peer, so that it must be resolved.
        listener = self.listen(0)
        asker = self.listen(1)
        request = (b'\xff' * 6 + b'\x02\x00\x00\x00\x00\x77' + b'\x08\x06' +
                   struct.pack('!HHBBH', 1, 0x0800, 6, 4, 1) + b'\x02\x00\x00\x00\x00\x77' +
                   socket.inet_aton('192.0.2.77') + bytes(6) + socket.inet_aton(V4[0]) + bytes(18))
        asker.send(request)
        self.run_ends('ibv_rc_pingpong', '-g', '1', '-n', '200', '-c')
        self.run_ends('ibv_ud_pingpong', '-g', '1', '-n', '200')
        time.sleep(0.5)
        frames = self.frames(listener)
        # Listens at the receiving end: listeners on a daemon's own interface do not see the frames that it sends.
        answers = [frame for frame in self.frames(asker) if frame[12:14] == b'\x08\x06' and frame[20:22] == b'\x00\x02' and
                   frame[38:42] == socket.inet_aton('192.0.2.77')]
        self.assertEqual(len(answers), 1, self.daemons[0].show('ports'))
        roce = [frame for frame in frames if frame[12:14] == b'\x08\x00' and frame[23] == 17]
        self.assertGreater(len(roce), 400)
        # ICMP "destination unreachable".
        unreachable = [frame for frame in frames if frame[12:14] == b'\x08\x00' and frame[23] == 1 and frame[34] == 3]
        self.assertEqual(unreachable, [])


class PacketTest(VethTest):
    """The daemon's own packet sockets, which pass runs of frames as one."""
    driver = 'packet'
    joins_fragments = False
    too_many_frames = 100_000  # the kernel counts several hundred bytes for each

    @classmethod
    def port_on(cls, interface):
        return f'packet:{interface}'

    def transfer(self, number, *more):
        """Writes and reads that programs verify, by both IP versions; returns some of what a listener on that interface gets."""
        found = []
        before = [self.drops(end).get('icrc', 0) for end in (0, 1)]
        for gid in ('1', '2'):
            listener = self.listen(number)
            self.run_ends('ibv_rc_pingpong', '-g', gid, '-n', '20', '-s', '200000', '-c', *more)
            self.run_ends('ibv_uc_pingpong', '-g', gid, '-n', '20', '-s', '20000', '-c', *more)
            self.run_ends('ib_read_bw', '-x', gid, '-F', '-n', '20', '-s', '65536')
            found += self.frames(listener)[:300]
        self.assertEqual([self.drops(end).get('icrc', 0) for end in (0, 1)], before)
        return found

    def test_runs_pass_whole(self):
        longest = {4: 0, 6: 0}
        for frame in self.transfer(1):
            packet = icrc.network_part(frame)
            if icrc.is_roce(packet):
                longest[packet[0] >> 4] = max(longest[packet[0] >> 4], len(packet))
        # Eight or more packets.
        self.assertGreater(min(longest.values()), 8 * 1024, longest)

    def test_the_kernel_divides_runs_where_the_device_needs_it(self):
        """Its segments have correct checksums, and the ICRC is that of each."""
        for number in (0, 1):
            # Without this offload there is no UDP GSO.
            self.addCleanup(self.set_checksum_offload, number, 1)
            self.set_checksum_offload(number, 0)
        counts = {'divided': 0, 'single': 0}
        for number in (0, 1):
            for frame in self.transfer(number):
                packet = icrc.network_part(frame)
                if not icrc.is_roce(packet):
                    continue
                self.assertLessEqual(len(packet), self.mtu)
                self.assertEqual(icrc.icrc_of(packet), packet[-4:], packet[:60].hex())
                udp = 40 if packet[0] >> 4 == 6 else 20
                is_divided = packet[udp + 6:udp + 8] != b'\0\0'
                counts['divided' if is_divided else 'single'] += 1
                if is_divided:
                    self.assertEqual(udp_sum(packet), 0xFFFF, packet[:60].hex())
        self.assertGreater(min(counts.values()), 5, counts)

    def set_checksum_offload(self, number, on):
        """As `ethtool -K ... tx on|off` does."""
        def call():
            value = ctypes.create_string_buffer(struct.pack('=2I', ETHTOOL_STXCSUM, on), 8)
            request = struct.pack('16sP16x', self.interfaces[number].encode(), ctypes.addressof(value))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
                fcntl.ioctl(asker, SIOCETHTOOL, request)
        inside(self.names[number], call)

    def test_large_frames(self):
        """With a path MTU of 4096, whole and divided."""
        self.addCleanup(self.set_mtu_of_links, self.mtu)
        self.set_mtu_of_links(4400)
        for size in ('65536', '10000'):
            self.addCleanup(self.set_link, 0, 'gso_max_size', '65536')
            self.set_link(0, 'gso_max_size', size)
            self.transfer(1)

    def set_mtu_of_links(self, mtu):
        for number in (0, 1):
            self.set_link(number, 'mtu', str(mtu))
        self.assertTrue(await_(lambda: all(self.port(number)['mtu'] >= min(mtu, 1500) for number in (0, 1))))

    def test_long_frames_of_tcp_do_not_reach_the_daemon(self):
        """The kernels talk by TCP over the same devices."""
        before = [self.port(number)['lost_by_port'] for number in (0, 1)]
        server = inside(self.names[0], lambda: socket.create_server((V4[0], 0)))
        self.addCleanup(server.close)
        client = inside(self.names[1], lambda: socket.create_connection(server.getsockname()))
        self.addCleanup(client.close)
        other, _ = server.accept()
        self.addCleanup(other.close)
        for _ in range(200):
            client.sendall(bytes(60000))
            left = 60000
            while left > 0:
                left -= len(other.recv(left))
        self.run_ends('ibv_rc_pingpong', '-g', '1', '-n', '200', '-c')
        for number in (0, 1):
            lost = self.port(number)['lost_by_port']
            self.assertEqual(lost.get('rx_errors', 0), before[number].get('rx_errors', 0))


def udp_sum(packet):
    """The sum that the UDP checksum of an IP packet makes 0xFFFF."""
    v6 = packet[0] >> 4 == 6
    udp = packet[40 if v6 else 20:]
    data = packet[8 if v6 else 12:40 if v6 else 20] + struct.pack('!HH', 17, len(udp)) + udp + bytes(len(udp) % 2)
    total = sum(struct.unpack(f'!{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class LinkTest(unittest.TestCase):
    """Other kinds of port on a network device, alone; and a network device that is removed."""

    name = f'roci-{os.getpid()}-link'

    def setUp(self):
        require_network_namespaces()
        ip('netns', 'add', self.name)
        self.addCleanup(subprocess.run, ['ip', 'netns', 'delete', self.name], capture_output=True, check=False)
        ip('link', 'add', 'roci-link', 'up', 'type', 'veth', 'peer', 'name', 'roci-peer', namespace=self.name)
        ip('link', 'set', 'roci-peer', 'up', namespace=self.name)

    def follow(self, port, interface, prefix=()):
        config = f'[[device]]\nname = "roci0"\nport = "{port}"\nmac = "02:72:6f:63:69:77"\naddresses = ["192.0.2.1/24"]\n'
        daemon = Daemon(PROGRAMS, config=config, prefix=('ip', 'netns', 'exec', self.name, *prefix))
        self.addCleanup(daemon.stop)

        def becomes(state):
            return await_(lambda: daemon.show('ports')[0]['state'] == state)
        ip('link', 'set', interface, 'up', namespace=self.name)
        self.assertTrue(becomes('active'))
        ip('link', 'set', interface, 'down', namespace=self.name)
        self.assertTrue(becomes('down'))
        ip('link', 'set', interface, 'mtu', '1400', 'up', namespace=self.name)
        self.assertTrue(becomes('active'))
        self.assertTrue(await_(lambda: daemon.show('ports')[0]['mtu'] == 1400))
        return daemon, becomes

    def test_a_network_device_that_is_removed(self):
        daemon, becomes = self.follow('net_af_packet0,iface=roci-link', 'roci-link')
        ip('link', 'delete', 'roci-link', namespace=self.name)
        self.assertTrue(becomes('down'))
        # A new network device of the same name is not the one of the port.
        ip('link', 'add', 'roci-link', 'up', 'type', 'veth', 'peer', 'name', 'roci-peer', namespace=self.name)
        ip('link', 'set', 'roci-peer', 'up', namespace=self.name)
        time.sleep(1.5)
        self.assertEqual(daemon.show('ports')[0]['state'], 'down')
        self.assertEqual(daemon.stop(), 0)

    def test_packet_sockets(self):
        daemon, _ = self.follow('packet:roci-link', 'roci-link')
        self.assertEqual(daemon.show('ports')[0]['rx_ring'], 0)

    def test_packet_sockets_of_an_old_kernel(self):
        """That delivers no GSO frames to them (before Linux 6.2): net_af_packet takes their place, which has a ring."""
        daemon, _ = self.follow('packet:roci-link', 'roci-link', prefix=('setarch', '--uname-2.6'))
        self.assertEqual(daemon.show('ports')[0]['rx_ring'], 512)

    def test_libpcap(self):
        self.follow('net_pcap0,iface=roci-link', 'roci-link')

    def test_tap(self):
        if not os.path.exists('/dev/net/tun'):
            self.skipTest('no /dev/net/tun here')
        daemon, _ = self.follow('net_tap0,iface=roci-tap', 'roci-tap')
        for mbps in (25000, 2000):
            if not inside(self.name, lambda: self.set_speed('roci-tap', mbps)):
                self.skipTest("the kernel's tap devices have one speed only")

            def has_speed():
                port = daemon.show('ports')[0]
                return port['rate_mbps'] == port['line_rate_mbps'] == mbps
            self.assertTrue(await_(has_speed))

    @staticmethod
    def set_speed(interface, mbps):
        """As `ethtool -s` does; False if that is not possible."""
        command = ctypes.create_string_buffer(struct.pack('=3IH26x', ETHTOOL_GSET, 0, 0, 0), 44)
        request = struct.pack('16sP16x', interface.encode(), ctypes.addressof(command))
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
                fcntl.ioctl(asker, SIOCETHTOOL, request)
                struct.pack_into('=I8xH14xH', command, 0, ETHTOOL_SSET, mbps & 0xffff, mbps >> 16)
                fcntl.ioctl(asker, SIOCETHTOOL, request)
        except OSError:
            return False
        return True


class MemifTest(TwoDaemons):

    @classmethod
    def set_up_network(cls):
        folder = tempfile.TemporaryDirectory(prefix='roci-memif.')
        cls.addClassCleanup(folder.cleanup)
        cls.socket = f'{folder.name}/memif.sock'
        options = f'socket={cls.socket},socket-abstract=no,bsize=4608'
        cls.listener = f'net_memif0,role=server,{options}'
        cls.daemons = [cls.start_daemon(cls.listener, 0), cls.start_daemon(f'net_memif0,role=client,{options}', 1)]
        cls.await_link()

    def test_a_second_listener_is_refused(self):
        with self.assertRaises(RuntimeError) as refusal:
            self.start_daemon(self.listener, 0)
        self.assertIn(f'another process listens at {self.socket}', str(refusal.exception))
        self.run_ends('ibv_rc_pingpong', '-g', '1', '-n', '200', '-c')

    @classmethod
    def extra_config(cls, number):
        return f'mac = "02:72:6f:63:69:1{number}"\nmtu = 4200\n'


class VhostTest(MemifTest):
    """The first daemon is the vhost back end, the second acts as a QEMU guest."""

    @classmethod
    def set_up_network(cls):
        folder = tempfile.TemporaryDirectory(prefix='roci-vhost.')
        cls.addClassCleanup(folder.cleanup)
        cls.socket = f'{folder.name}/vhost.sock'
        cls.listener = f'net_vhost0,iface={cls.socket}'
        cls.daemons = [cls.start_daemon(cls.listener, 0),
                       cls.start_daemon(f'net_virtio_user0,path={cls.socket},mrg_rxbuf=1', 1)]
        cls.await_link()


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
