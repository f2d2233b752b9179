#!/usr/bin/env python3
"""More virtual ports of DPDK than in networks_test.py: net_pcap on a veth pair and with files, net_tap through a bridge and
to the kernel, net_ring with itself.

The test creates namespaces and interfaces and removes them; without permission for that its cases are skipped.

Usage: ports_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import json
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
from harness import LIMIT_S, Daemon, Pair, Programs, await_
from networks_test import V4, ip

NOBODY = bytes.fromhex('027200000077')  # an address that no station has
NOBODY_V4 = '192.0.2.77'


def arp_request(target):
    return (b'\xff' * 6 + NOBODY + b'\x08\x06' + struct.pack('!HHBBH', 1, 0x0800, 6, 4, 1) + NOBODY +
            socket.inet_aton(NOBODY_V4) + bytes(6) + socket.inet_aton(target) + bytes(18))


def is_arp_answer(frame, sender):
    return frame[12:14] == b'\x08\x06' and frame[20:22] == b'\x00\x02' and frame[28:32] == socket.inet_aton(sender)


def answers_ping(address, timeout_s=10):
    """Whether the kernel gets an answer to an echo request; it sends several."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as icmp:
        icmp.connect((address, 0))
        message = struct.pack('!BBHHH', 8, 0, 0, 0x726F, 1)
        total = sum(struct.unpack('!4H', message))
        message = message[:2] + struct.pack('!H', ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + message[4:]
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            icmp.send(message)
            if not select.select([icmp], [], [], 1)[0]:
                continue
            answer = icmp.recv(2048)[20:]
            if answer[0] == 0 and answer[4:] == message[4:]:
                return True
    return False


class PcapTest(networks.OnVeth):
    driver = 'net_pcap'
    test_frames_lost_at_a_full_ring_are_counted = None  # the length of libpcap's ring is unknown

    def test_addresses_are_those_of_the_interfaces(self):
        for daemon, name, interface in zip(self.daemons, self.names, self.interfaces):
            self.assertIn(daemon.show('ports')[0]['mac'], ip('link', 'show', interface, namespace=name).stdout)

    def test_mtu_is_that_of_the_interface(self):
        self.assertEqual([daemon.show('ports')[0]['mtu'] for daemon in self.daemons], [1500] * 2)


class TapTest(networks.DamagedFrames, networks.TwoDaemons):
    """The kernel's ends of both taps are in one bridge, which has a MAC address."""
    name = f'roci-{os.getpid()}-taps'
    kernel = '192.0.2.9'

    @classmethod
    def set_up_network(cls):
        try:
            ip('netns', 'add', cls.name)
            cls.addClassCleanup(subprocess.run, ['ip', 'netns', 'delete', cls.name], capture_output=True, check=False)
            ip('link', 'add', 'roci-br', 'type', 'bridge', namespace=cls.name)
            ip('address', 'add', f'{cls.kernel}/24', 'dev', 'roci-br', namespace=cls.name)
            ip('link', 'set', 'roci-br', 'up', namespace=cls.name)
            networks.inside(cls.name, lambda: os.close(os.open('/dev/net/tun', os.O_RDWR)))
        except (subprocess.CalledProcessError, OSError) as error:
            raise unittest.SkipTest(f'no taps in network namespaces here: {getattr(error, "stderr", error)}') from error
        daemons = []
        for number in range(2):
            prefix = ('ip', 'netns', 'exec', cls.name)
            daemons.append(cls.start_daemon(f'net_tap0,iface=roci-tap{number}', number, prefix))
            ip('link', 'set', f'roci-tap{number}', 'master', 'roci-br', namespace=cls.name)
        cls.daemons = daemons
        cls.await_link()

    @classmethod
    def extra_config(cls, number):
        # One port has a configured MAC address, the other a random one.
        return 'mac = "02:72:6f:63:69:10"\n' if number == 0 else ''

    def damage(self):
        def make():
            sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            sender.bind(('roci-br', 0))
            return sender
        sender = networks.inside(self.name, make)
        self.addCleanup(sender.close)
        return sender

    def test_the_kernel_is_a_peer(self):
        self.assertEqual(self.daemons[0].show('ports')[0]['mac'], '02:72:6f:63:69:10')
        for number, daemon in enumerate(self.daemons):
            link = ip('link', 'show', f'roci-tap{number}', namespace=self.name).stdout
            self.assertNotIn(daemon.show('ports')[0]['mac'], link)
            self.assertTrue(networks.inside(self.name, lambda: answers_ping(V4[number])))

    def test_the_mtu_is_limited_by_the_driver(self):
        self.assertEqual([daemon.show('ports')[0]['mtu'] for daemon in self.daemons], [1500] * 2)

    def test_a_flood_is_harmless(self):
        """Each frame wakes the daemon."""
        def flood():
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
                sender.bind(('roci-br', 0))
                mac = bytes.fromhex(self.daemons[1].show('ports')[0]['mac'].replace(':', ''))
                for _ in range(50_000):
                    sender.send(mac + NOBODY + b'\x88\xb5' + bytes(46))
        networks.inside(self.name, flood)
        self.run_ends('ibv_rc_pingpong', '-g', '1', '-n', '200', '-c')


def rx_packets(daemon):
    return daemon.show('ports')[0]['counters']['rx_packets']


class Alone(unittest.TestCase):
    """One daemon on a port without a peer."""

    def start_daemon(self, port):
        daemon = Daemon(networks.PROGRAMS, config=f'[[device]]\nname = "roci0"\nport = "{port}"\n'
                                                  f'addresses = ["{V4[0]}/24"]\n')
        self.addCleanup(daemon.stop)
        return daemon

    def test_a_ring_joins_a_device_with_itself(self):
        daemon = self.start_daemon('net_ring0')
        before = rx_packets(daemon)
        for program in ('ibv_rc_pingpong', 'ibv_uc_pingpong', 'ibv_ud_pingpong', 'ibv_srq_pingpong', 'ib_read_bw'):
            gid = '-x' if program.startswith('ib_') else '-g'
            pair = Pair(daemon, ('roci0', 'roci0'), [program, gid, '1', '-n', '200'])
            self.addCleanup(pair.kill)
            self.assertEqual(pair.connect().result(), '', program)
        self.assertGreater(rx_packets(daemon) - before, 5 * 400)
        # The daemon receives its own neighbour solicitations and must not detect a duplicate address.
        shown = subprocess.run([daemon.programs.roci, '--runtime-dir', daemon.runtime_dir, 'addr', 'show', '--json'],
                               capture_output=True, text=True, timeout=LIMIT_S, check=True)
        self.assertEqual([each.get('claimed_by') for each in json.loads(shown.stdout)], [None, None])

    def test_files_are_replayed_and_written(self):
        with tempfile.TemporaryDirectory(prefix='roci-pcap.') as folder:
            with open(f'{folder}/in.pcap', 'wb') as file:
                file.write(struct.pack('<IHHiIII', 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
                for frame in (arp_request(V4[0]), bytes(10), arp_request('192.0.2.5')):
                    file.write(struct.pack('<IIII', 1, 0, len(frame), len(frame)) + frame)
            daemon = self.start_daemon(f'net_pcap0,rx_pcap={folder}/in.pcap,tx_pcap={folder}/out.pcap')
            self.assertTrue(await_(lambda: rx_packets(daemon) == 3))

            def answers():
                return [frame for frame in read_pcap(f'{folder}/out.pcap') if is_arp_answer(frame, V4[0])]
            self.assertTrue(await_(answers))
            self.assertEqual([frame[:6] for frame in answers()], [NOBODY])
            self.assertEqual(daemon.show('ports')[0]['drops'].get('frame_truncated'), 1)
            self.assertEqual(daemon.stop(), 0)


def read_pcap(path):
    with open(path, 'rb') as file:
        data = file.read()
    at, frames = 24, []
    while at + 16 <= len(data):
        length = struct.unpack_from('<I', data, at + 8)[0]
        frames.append(data[at + 16:at + 16 + length])
        at += 16 + length
    return frames


if __name__ == '__main__':
    networks.PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
