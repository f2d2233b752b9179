#!/usr/bin/env python3
"""Checksums of raw packets on real ports: the kernel accepts datagrams and connections whose checksums rocid has filled in,
in software (veth) or by the port (a tap device, net_vhost and net_virtio_user), and completions report correct ones.

The test creates namespaces and interfaces and removes them; without permission for that its cases are skipped.

Usage: checksums_test.py ROCI ROCID PLUGIN RAW_FRAMES [unittest arguments]

RAW_FRAMES is raw_frames.cc, compiled.
"""
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import networks_test as networks
from harness import LIMIT_S, Daemon, Programs, await_
from networks_test import V4, V6, inside, ip

RAW_FRAMES = None
PORT = 5678
WRONG = 0x1234
IPPROTO_UDP, IPPROTO_TCP = 17, 6
BY_PORT = ['tx_ipv4_checksum', 'tx_udp_checksum', 'tx_tcp_checksum']


def mac_bytes(text):
    return bytes.fromhex(text.replace(':', ''))


def udp(payload):
    return struct.pack('!HHHH', 1234, PORT, 8 + len(payload), WRONG) + payload


def tcp_syn(source_port):
    return struct.pack('!HHIIBBHHH', source_port, PORT, 1000, 0, 0x50, 2, 1024, WRONG, 0)


def frame(macs, transport, protocol=IPPROTO_UDP, ipv6=False, vlan=None):
    """A packet from the first to the second address with wrong checksums."""
    if ipv6:
        source, destination = (socket.inet_pton(socket.AF_INET6, address) for address in V6)
        head = struct.pack('!IHBB', 0x60000000, len(transport), protocol, 64) + source + destination
    else:
        source, destination = (socket.inet_aton(address) for address in V4)
        head = struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(transport), 1, 0x4000, 64, protocol, WRONG) + source + destination
    tag = b'' if vlan is None else struct.pack('!HH', 0x8100, vlan)
    return macs[1] + macs[0] + tag + struct.pack('!H', 0x86DD if ipv6 else 0x0800) + head + transport


def sum_of(data):
    total = sum(struct.unpack(f'!{(len(data) + 1) // 2}H', data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def is_right(datagram, at=14):
    """Whether both checksums of an IPv4 packet without options are correct, computed without RAW_FRAMES."""
    total = struct.unpack_from('!H', datagram, at + 2)[0]
    packet = datagram[at:at + total]
    pseudo = packet[12:20] + struct.pack('!HH', packet[9], total - 20)
    return sum_of(packet[:20]) == 0xFFFF and sum_of(pseudo + packet[20:]) == 0xFFFF


def raw_frames(daemon, *arguments):
    return daemon.start(RAW_FRAMES, 'roci0', *arguments)


def send(test, daemon, how, *frames):
    sender = raw_frames(daemon, how, *(each.hex() for each in frames))
    said, _ = sender.communicate(timeout=LIMIT_S)
    test.assertEqual(sender.returncode, 0, said)


class Between:
    """Traffic between two daemons in both directions."""

    def macs(self, sender):
        macs = [mac_bytes(daemon.show('ports')[0]['mac']) for daemon in self.daemons]
        return macs if sender == 0 else macs[::-1]

    def test_receivers_get_the_checksum_flag(self):
        for sender in (0, 1):
            receiver = raw_frames(self.daemons[1 - sender], 'receive', str(PORT), '6')
            self.addCleanup(receiver.stdout.close)
            self.addCleanup(receiver.kill)
            self.assertEqual(receiver.stdout.readline(), 'ready\n')
            packets = [frame(self.macs(sender), udp(bytes([number]) * length), vlan=vlan)
                       for number, (length, vlan) in enumerate(((1, None), (999, None), (1000, 7)))]
            send(self, self.daemons[sender], 'send', *packets)
            send(self, self.daemons[sender], 'fill', *packets)
            said, _ = receiver.communicate(timeout=LIMIT_S)
            self.assertEqual(receiver.returncode, 0, said)
            received = [(flag, bytes.fromhex(digits)) for flag, digits in map(str.split, said.splitlines())]
            self.assertEqual([flag for flag, _ in received], ['0'] * 3 + ['1'] * 3)
            for made, (_, as_made), (_, filled) in zip(packets, received, received[3:]):
                self.assertEqual(as_made, made.ljust(60, b'\0'))
                at = 18 if made[12:14] == b'\x81\x00' else 14
                self.assertTrue(is_right(filled, at), filled.hex())
                self.assertEqual(filled[at + 28:], as_made[at + 28:])


class ToKernel:
    """The kernel is the peer, at `interface` in `namespace`, and checks the checksums."""

    def kernel_socket(self, family, kind):
        def make():
            listener = socket.socket(family, kind)
            self.addCleanup(listener.close)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(('', PORT))
            return listener
        return inside(self.namespace, make)

    def to_kernel(self):
        said = ip('link', 'show', self.interface, namespace=self.namespace).stdout
        return [mac_bytes(self.sender.show('ports')[0]['mac']), mac_bytes(said.split('link/ether ')[1][:17])]

    def test_the_kernel_accepts_datagrams(self):
        for family, ipv6 in ((socket.AF_INET, False), (socket.AF_INET6, True)):
            listener = self.kernel_socket(family, socket.SOCK_DGRAM)
            payloads = [bytes([number]) * length for number, length in enumerate((1, 2, 999, 1400))]
            packets = [frame(self.to_kernel(), udp(payload), ipv6=ipv6) for payload in payloads]
            send(self, self.sender, 'send', *packets)  # the kernel drops them
            send(self, self.sender, 'fill', *packets)
            received = []
            while len(received) < len(payloads) and select.select([listener], [], [], 10)[0]:
                received.append(listener.recv(2048))
            self.assertEqual(received, payloads, ipv6)

    def test_the_kernel_accepts_connections(self):
        listener = self.kernel_socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.listen(5)

        def make():
            watch = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(networks.ETH_P_ALL))
            watch.bind((self.interface, 0))
            self.addCleanup(watch.close)
            return watch
        watch = inside(self.namespace, make)
        send(self, self.sender, 'send', frame(self.to_kernel(), tcp_syn(1111), IPPROTO_TCP))
        send(self, self.sender, 'fill', frame(self.to_kernel(), tcp_syn(2222), IPPROTO_TCP))

        def answered():
            while select.select([watch], [], [], 0)[0]:
                seen = watch.recv(2048)
                if seen[12:14] == b'\x08\x00' and seen[23] == IPPROTO_TCP and seen[47] == 0x12:  # SYN, ACK
                    ports.add(struct.unpack_from('!H', seen, 36)[0])
            return 2222 in ports
        ports = set()
        self.assertTrue(await_(answered))
        self.assertEqual(ports, {2222})


def only_network(base):
    """The network of the base class without its tests."""
    return type(base.__name__, (base,), {name: None for name in dir(base) if name.startswith('test_')})


class VethTest(Between, ToKernel, only_network(networks.VethTest)):
    """Checksums in software on both sides."""

    @classmethod
    def set_up_network(cls):
        super().set_up_network()
        cls.namespace, cls.interface, cls.sender = cls.names[1], cls.interfaces[1], cls.daemons[0]
        ip('address', 'add', f'{V6[1]}/64', 'dev', cls.interface, 'nodad', namespace=cls.namespace)

    def test_the_port_has_no_checksum_offload(self):
        self.assertEqual([daemon.show('ports')[0]['offloads'] for daemon in self.daemons], [[], []])

    def test_captures_and_impairments_see_the_frame_on_the_link(self):
        impair = [networks.PROGRAMS.roci, '--runtime-dir', self.sender.runtime_dir, 'impair', 'roci0']
        subprocess.run([*impair, '--delay', '1ms'], check=True, capture_output=True)
        self.addCleanup(subprocess.run, [*impair, '--clear'], check=True, capture_output=True)
        self.test_the_kernel_accepts_datagrams()


class TapTest(ToKernel, unittest.TestCase):
    """net_tap computes the checksums."""
    namespace = f'roci-{os.getpid()}-sums'
    interface = 'roci-sums'

    @classmethod
    def setUpClass(cls):
        try:
            ip('netns', 'add', cls.namespace)
            cls.addClassCleanup(subprocess.run, ['ip', 'netns', 'delete', cls.namespace], capture_output=True, check=False)
            inside(cls.namespace, lambda: os.close(os.open('/dev/net/tun', os.O_RDWR)))
        except (subprocess.CalledProcessError, OSError) as error:
            raise unittest.SkipTest(f'no taps in network namespaces here: {getattr(error, "stderr", error)}') from error
        config = (f'[[device]]\nname = "roci0"\nport = "net_tap0,iface={cls.interface}"\n'
                  f'addresses = ["{V4[0]}/24", "{V6[0]}/64"]\n')
        cls.sender = Daemon(networks.PROGRAMS, config=config, prefix=('ip', 'netns', 'exec', cls.namespace))
        cls.addClassCleanup(cls.sender.stop)
        for address in (f'{V4[1]}/24', f'{V6[1]}/64'):
            ip('address', 'add', address, 'dev', cls.interface, *(['nodad'] if ':' in address else []),
               namespace=cls.namespace)
        ip('link', 'set', cls.interface, 'up', namespace=cls.namespace)

    def test_the_port_computes_checksums(self):
        self.assertEqual(self.sender.show('ports')[0]['offloads'], BY_PORT)
        table = subprocess.run([networks.PROGRAMS.roci, '--runtime-dir', self.sender.runtime_dir, 'show', 'ports'],
                               capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
        self.assertIn(f'offloads: {",".join(BY_PORT)}\n', table)


class VhostTest(Between, only_network(networks.VhostTest)):

    def test_offloads_of_the_port(self):
        self.assertEqual([daemon.show('ports')[0]['offloads'] for daemon in self.daemons], [BY_PORT[1:]] * 2)


if __name__ == '__main__':
    networks.PROGRAMS = Programs(*sys.argv[1:4])
    RAW_FRAMES = os.path.abspath(sys.argv[4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[5:])
