#!/usr/bin/env python3
"""Two daemons on one network: over a veth pair between two network namespaces by net_af_packet and net_af_xdp, over
net_memif, and over net_vhost with net_virtio_user.

The kernel has the same address on its side of the veth pair, kept quiet as docs/ports.md says. Namespaces and interfaces
are made here, and go with the test; without the rights for it those cases are skipped.

Usage: networks_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import ctypes
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from harness import LIMIT_S, Daemon, Pair, Programs, await_, free_port, listening

PROGRAMS = None
CLONE_NEWNET = 0x40000000
V4 = ('192.0.2.1', '192.0.2.2')
V6 = ('2001:db8::1', '2001:db8::2')
ROCE_PORT = 4791
ETH_P_ALL = 3
AF_XDP = 44


def ip(*arguments, namespace=None):
    command = ['ip', *(['-n', namespace] if namespace else []), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)


def inside(namespace, call):
    """What `call()` returns in the network namespace; sockets made there stay in it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open('/proc/self/ns/net', 'rb') as here, open(f'/run/netns/{namespace}', 'rb') as there:
        if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), 'setns')
        try:
            return call()
        finally:
            libc.setns(here.fileno(), CLONE_NEWNET)


class Ends(Pair):
    """A server at one daemon and a client at another. TCP of the programs goes over this machine's loopback."""

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
    """What every kind of network has to carry. Derived classes make `daemons` in set_up_network."""

    daemons = ()

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
        config = (f'[[device]]\nname = "roci0"\nport = "{port}"\n'
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
                self.assertEqual(client.returncode, 0, said)
                self.assertEqual(server.wait(timeout=LIMIT_S), 0)


class OnVeth(TwoDaemons):
    """The daemons' ports are the ends of a veth pair; derived classes name DPDK's driver."""
    driver = None
    mtu = 1500
    names = tuple(f'roci-{os.getpid()}-{end}' for end in 'ab')
    interfaces = ('roci-veth-a', 'roci-veth-b')

    @classmethod
    def set_up_network(cls):
        if cls.driver is None:
            raise unittest.SkipTest('no network of its own')
        try:
            for name in cls.names:
                ip('netns', 'add', name)
                cls.addClassCleanup(subprocess.run, ['ip', 'netns', 'delete', name], capture_output=True, check=False)
            ip('link', 'add', cls.interfaces[0], 'netns', cls.names[0], 'type', 'veth', 'peer', 'name', cls.interfaces[1],
               'netns', cls.names[1])
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            raise unittest.SkipTest(f'no network namespaces here: {getattr(error, "stderr", error)}') from error
        daemons = []
        for number, (name, interface) in enumerate(zip(cls.names, cls.interfaces)):
            ip('link', 'set', interface, 'mtu', str(cls.mtu), 'up', namespace=name)
            cls.quieten_kernel(name, interface, number)
            daemons.append(cls.start_daemon(f'{cls.driver}0,iface={interface}', number, ('ip', 'netns', 'exec', name)))
        cls.daemons = daemons

    @classmethod
    def quieten_kernel(cls, name, interface, number):
        """As docs/ports.md has it. The address is the kernel's, too; else it would have nothing to say at all. The
        daemon holds UDP port 4791 by itself."""
        ip('address', 'add', f'{V4[number]}/24', 'dev', interface, namespace=name)
        inside(name, lambda: cls.write(f'/proc/sys/net/ipv4/conf/{interface}/arp_ignore', '8'))

    @staticmethod
    def write(path, text):
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)


class XdpTest(OnVeth):
    """Its buffers are no larger than a page."""
    driver = 'net_af_xdp'
    mtu = 3400

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

    def test_mtu_is_that_of_the_buffers_at_most(self):
        self.assertEqual([daemon.show('ports')[0]['mtu'] for daemon in self.daemons], [self.mtu] * 2)


class VethTest(OnVeth):
    driver = 'net_af_packet'

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

    def test_the_kernel_keeps_quiet(self):
        # A new address of the peer's, so that somebody has to ask.
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
        # Where they arrive: what a daemon sends itself passes by the listeners on its own interface.
        answers = [frame for frame in self.frames(asker) if frame[12:14] == b'\x08\x06' and frame[20:22] == b'\x00\x02' and
                   frame[38:42] == socket.inet_aton('192.0.2.77')]
        self.assertEqual(len(answers), 1, self.daemons[0].show('ports'))
        roce = [frame for frame in frames if frame[12:14] == b'\x08\x00' and frame[23] == 17]
        self.assertGreater(len(roce), 400)
        # ICMP "destination unreachable".
        unreachable = [frame for frame in frames if frame[12:14] == b'\x08\x00' and frame[23] == 1 and frame[34] == 3]
        self.assertEqual(unreachable, [])

    def test_malformed_frames_are_counted_by_reason(self):
        sender = self.listen(0)
        mac = bytes.fromhex(self.daemons[1].show('ports')[0]['mac'].replace(':', ''))
        before = self.drops(1)
        for frame in self.malformed(mac).values():
            for _ in range(5):
                sender.send(frame)
        expected = list(self.malformed(mac))
        def counted():
            now = self.drops(1)
            return all(now.get(reason, 0) - before.get(reason, 0) >= 5 for reason in expected)
        self.assertTrue(await_(counted), (before, self.drops(1)))
        self.run_ends('ibv_rc_pingpong', '-g', '1', '-n', '100', '-c')

    @staticmethod
    def malformed(mac):
        """Frames by the reason for which they must be dropped. (The kernel keeps fragments to itself, to join them.)"""
        bth = bytes.fromhex('0400ffff00abcdef80000000')

        def frame(transport, icrc=bytes(4), udp_extra=0, ip_extra=0, checksum_extra=0):
            udp = struct.pack('!HHHH', 0xC000, ROCE_PORT, 8 + len(transport) + 4 + udp_extra, 0)
            head = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + 8 + len(transport) + 4 + ip_extra, 0, 0x4000, 64, 17, 0,
                               socket.inet_aton(V4[0]), socket.inet_aton(V4[1]))
            total = sum(struct.unpack('!10H', head))
            total = (total & 0xFFFF) + (total >> 16)
            checksum = (~((total & 0xFFFF) + (total >> 16)) + checksum_extra) & 0xFFFF
            head = head[:10] + struct.pack('!H', checksum) + head[12:]
            return mac + b'\x02\x00\x00\x00\x00\x77\x08\x00' + head + udp + transport + icrc

        return {
            'icrc': frame(bth + b'data'),
            'transport_version': frame(b'\x04\x03' + bth[2:]),
            'reserved_opcode': frame(b'\x5f' + bth[1:]),
            'length_not_multiple_of_4': frame(bth + b'x'),
            'pad_count': frame(b'\x04\x30' + bth[2:]),
            'headers_truncated': frame(b'\x06' + bth[1:]),
            'udp_length': frame(bth, udp_extra=4),
            'ip_length': frame(bth, ip_extra=400),
            'ipv4_checksum': frame(bth, checksum_extra=1),
        }


class MemifTest(TwoDaemons):

    @classmethod
    def set_up_network(cls):
        folder = tempfile.TemporaryDirectory(prefix='roci-memif.')
        cls.addClassCleanup(folder.cleanup)
        options = f'socket={folder.name}/memif.sock,socket-abstract=no,bsize=4608'
        cls.daemons = [cls.start_daemon(f'net_memif0,role={role},{options}', number)
                       for number, role in enumerate(('server', 'client'))]
        cls.await_link()

    @classmethod
    def extra_config(cls, number):
        return f'mac = "02:72:6f:63:69:1{number}"\nmtu = 4200\n'


class VhostTest(MemifTest):
    """The first daemon is what QEMU would be the guest of, the second the guest."""

    @classmethod
    def set_up_network(cls):
        folder = tempfile.TemporaryDirectory(prefix='roci-vhost.')
        cls.addClassCleanup(folder.cleanup)
        cls.daemons = [cls.start_daemon(f'net_vhost0,iface={folder.name}/vhost.sock', 0),
                       cls.start_daemon(f'net_virtio_user0,path={folder.name}/vhost.sock,mrg_rxbuf=1', 1)]
        cls.await_link()


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
