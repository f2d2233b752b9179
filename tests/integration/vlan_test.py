#!/usr/bin/env python3
"""VLANs: separate GIDs, only tagged frames on the wire, and no communication between VLANs.

Usage: vlan_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import collections
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import networks_test
from harness import DEBIAN_PYTHON, LIMIT_S, Daemon, Pair, Programs, await_, ended_well, members
from networks_test import VethTest, add_optional, ip

PROGRAMS = None
HERE = os.path.dirname(os.path.abspath(__file__))
# Both devices have VLAN 100; the network 10.97.0.0/24 is in another VLAN at each.
VLAN = 100
LINK_LOCAL, V4, V6, APART = 2, 3, 4, 6  # GID indices in the VLAN; APART has no peer
BULK = '8'  # type of service
SOL_PACKET, PACKET_AUXDATA, TP_STATUS_VLAN_VALID = 263, 8, 0x10
MAP = 'egress_qos_map = ["0:1", "2:5"]\n'


def device(name, number, place):
    return (f'[[device]]\nname = "{name}"\n{place}\n'
            f'addresses = ["10.99.0.{number + 1}/24"]\n'
            f'[[device.vlan]]\nid = {VLAN}\naddresses = ["10.98.0.{number + 1}/24", "fd98::{number + 1}/64"]\n{MAP}'
            f'[[device.vlan]]\nid = {200 + number}\naddresses = ["10.97.0.{number + 1}/24"]\n')


class WireTest(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon(PROGRAMS, config='[[wire]]\nname = "w"\n' + device('roci0', 0, 'wire = "w"') +
                             device('roci1', 1, 'wire = "w"'))
        self.addCleanup(self.daemon.stop)
        self.folder = tempfile.mkdtemp(prefix='roci-vlan.')
        self.addCleanup(shutil.rmtree, self.folder)

    def roci(self, *arguments, check=True):
        return subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, *arguments], capture_output=True,
                              text=True, timeout=LIMIT_S, check=check)

    def start(self, *command):
        process = self.daemon.start(*command)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_pair(self, *command, good=True):
        pair = Pair(self.daemon, ('roci0', 'roci1'), list(command))
        self.addCleanup(pair.kill)
        pair.connect()
        if good:
            self.assertEqual(pair.result(), '', command)
        else:
            said, _ = pair.client.communicate(timeout=LIMIT_S)
            self.assertNotEqual(pair.client.returncode, 0, said)

    def run_cm(self, server, client):
        listener = self.start(*server)
        self.assertTrue(await_(lambda: listener.poll() is not None or
                               any(each['state'] == 'listen' for each in self.daemon.show('connections'))))
        asker = self.start(*client)
        said, _ = asker.communicate(timeout=LIMIT_S)
        self.assertTrue(ended_well(asker.returncode, said), (asker.returncode, said))
        self.assertEqual(listener.wait(timeout=LIMIT_S), 0)

    def capture(self, call, display_filter='infiniband'):
        """Counts frames by VLAN and priority while `call()` runs, as tshark sees them; ('', '') is untagged."""
        path = os.path.join(self.folder, f'{len(os.listdir(self.folder))}.pcapng')
        process = subprocess.Popen([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'capture', 'roci0', '-w', path],
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        self.assertTrue(await_(lambda: os.path.exists(path) and os.path.getsize(path) > 0))
        call()
        process.send_signal(signal.SIGINT)
        process.wait(timeout=LIMIT_S)
        return self.tags(path, display_filter), path

    @staticmethod
    def tags(path, display_filter):
        done = subprocess.run(['tshark', '-r', path, '-Y', display_filter, '-T', 'fields', '-e', 'vlan.id', '-e',
                               'vlan.priority'], capture_output=True, text=True, timeout=LIMIT_S, check=True)
        return collections.Counter(tuple(line.split('\t')) for line in done.stdout.splitlines())

    def drops(self, number):
        port = self.daemon.show('ports')[number]
        return collections.Counter(port['drops']) + collections.Counter(port['slow_path'])

    def test_every_vlan_has_its_gids(self):
        rows = json.loads(self.roci('addr', 'show', 'roci0', '--json').stdout)
        local = 'fe80::72:6fff:fe63:6900/64'
        self.assertEqual([(row['address'], row['vlan']) for row in rows],
                         [(local, 0), ('10.99.0.1/24', 0), (local, 100), ('10.98.0.1/24', 100), ('fd98::1/64', 100),
                          (local, 200), ('10.97.0.1/24', 200)])
        self.assertRegex(self.roci('addr', 'show', 'roci0').stdout, r'10\.98\.0\.1/24 +100')
        said, _ = self.start('ibv_devinfo', '-v', '-d', 'roci0').communicate(timeout=LIMIT_S)
        self.assertIn('GID[  3]:\t\t::ffff:10.98.0.1, RoCE v2', said)

    def test_frames_have_the_tag_and_the_service_level(self):
        for index, program, level, priority in ((V4, 'ibv_rc_pingpong', 0, '1'),  # none: priority from the map
                                                (V6, 'ibv_uc_pingpong', 2, '2'),
                                                (LINK_LOCAL, 'ibv_rc_pingpong', 7, '7'),
                                                (V4, 'ibv_ud_pingpong', 3, '3')):
            seen, path = self.capture(lambda: self.run_pair(program, '-g', str(index), '-n', '50', '-l', str(level)))
            self.assertEqual(set(seen), {(str(VLAN), priority)}, (index, program))
            self.assertGreater(sum(seen.values()), 90)
        # Of this VLAN's addresses: the daemon may ask again for what an earlier test has used without a VLAN.
        asked = self.tags(path, 'arp.dst.proto_ipv4 == 10.98.0.0/24 || icmpv6.nd.ns.target_address == fd98::/64')
        self.assertEqual(set(asked) - {(str(VLAN), '1')}, set())
        frames = [json.loads(line) for line in self.roci('decode', '--json', path).stdout.splitlines()]
        self.assertEqual({(tag['vid'], tag['priority']) for frame in frames for tag in frame['vlan']}, {(VLAN, 3)})
        seen, _ = self.capture(lambda: self.run_pair('ibv_rc_pingpong', '-g', '1', '-n', '50', '-l', '3'))
        self.assertEqual(set(seen), {('', '')}, 'no VLAN, no tag')

    def test_large_messages_have_room_for_the_tag(self):
        self.run_pair('ib_write_bw', '-x', str(V6), '-F', '-n', '100', '-s', '65536')
        shown = self.daemon.show('devices')[0]
        self.assertEqual(shown['path_mtu'], 4096)

    def test_no_peer_is_reachable_in_another_vlan(self):
        before = self.drops(1)
        self.run_pair('ibv_rc_pingpong', '-g', str(APART), '-n', '10', good=False)
        self.assertGreater(self.drops(1)['vlan_not_ours'], before['vlan_not_ours'])

    def test_completions_report_the_tag(self):
        script = [DEBIAN_PYTHON, os.path.join(HERE, 'vlan_datagrams.py')]
        said, _ = self.start(*script, '3', '1', str(LINK_LOCAL), str(V4), str(V6), '0').communicate(timeout=LIMIT_S)
        tag = f'{VLAN | 3 << 13:#x}'
        self.assertEqual(said.split(), ['0x0', tag, tag, tag, '0x0'])

    def test_connections_follow_the_type_of_service(self):
        a, b = '10.98.0.1', '10.98.0.2'
        for program, cases in (('ucmatose', (([], '1'), (['-t', BULK], '5'))), ('udaddy', ((['-t', BULK], '5'),))):
            for options, priority in cases:
                seen, _ = self.capture(lambda: self.run_cm([program, '-b', b], [program, '-s', b, '-b', a, *options]))
                self.assertEqual(set(seen), {(str(VLAN), priority)}, (program, options))
        for pair in ((a, b), ('fd98::1', 'fd98::2')):
            self.run_cm(['rping', '-s', '-a', pair[1], '-C', '5'], ['rping', '-c', '-a', pair[1], '-I', pair[0], '-C', '5'])
        # A listener on all addresses includes addresses in VLANs.
        self.run_cm(['rping', '-s', '-C', '5'], ['rping', '-c', '-a', b, '-I', a, '-C', '5'])

    def test_groups_are_joined_in_the_vlan(self):
        def run():
            self.assertTrue(await_(lambda: members(self.daemon) == 0))
            member = self.start('mckey', '-m', '239.1.2.3', '-b', '10.98.0.1', '-p', '0x0111')
            self.assertTrue(await_(lambda: member.poll() is not None or members(self.daemon) == 1))
            said, _ = self.start('mckey', '-m', '239.1.2.3', '-b', '10.98.0.2', '-s', '-p', '0x0111').communicate(timeout=LIMIT_S)
            self.assertNotIn('failed', said)
            self.assertEqual(member.wait(timeout=LIMIT_S), 0)
        seen, path = self.capture(run)
        self.assertEqual(set(seen), {(str(VLAN), '1')})
        # Reports for the identifier in its VLAN; for the queue pair in all.
        reports = self.tags(path, 'igmp')
        self.assertGreaterEqual(reports[(str(VLAN), '1')], 1)

    def test_addresses_come_and_go(self):
        for number in (0, 1):
            done = self.roci('addr', 'add', f'roci{number}', f'10.96.0.{number + 1}/24', '--vlan', '300')
            self.assertIn('is GID 8', done.stdout)
        seen, _ = self.capture(lambda: self.run_pair('ibv_rc_pingpong', '-g', '8', '-n', '50'))
        self.assertEqual(set(seen), {('300', '0')})
        seen, _ = self.capture(lambda: self.run_pair('ibv_rc_pingpong', '-g', '7', '-n', '50'))
        self.assertEqual(set(seen), {('300', '0')}, 'the link-local one')
        for arguments, words in ((['add', 'roci0', '10.96.0.1/24', '--vlan', '300'], 'the device has this address'),
                                 (['add', 'roci0', '10.96.0.2/24', '--vlan', '300'], 'belongs to roci1'),
                                 (['del', 'roci0', '10.96.0.1'], 'does not have this address'),
                                 (['del', 'roci0', 'fe80::72:6fff:fe63:6900', '--vlan', '300'], 'link-local address cannot be removed')):
            done = self.roci('addr', *arguments, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)
        self.assertNotEqual(self.roci('addr', 'add', 'roci0', '10.9.0.1/24', '--vlan', '4095', check=False).returncode, 0)
        self.roci('addr', 'del', 'roci0', '10.96.0.1', '--vlan', '300')
        self.assertEqual(len(self.daemon.show('devices')[0]['gids']), 7)
        self.run_pair('ibv_rc_pingpong', '-g', str(V4), '-n', '50')


class VethVlanTest(VethTest):
    """Two daemons on a veth pair, whose kernels strip the tags before listeners see the frames; and a kernel with an
    interface in the VLAN."""

    names = tuple(f'roci-{os.getpid()}-{end}' for end in 'cd')
    interfaces = ('roci-vlan-c', 'roci-vlan-d')
    test_the_configured_mtu_is_set = None  # no MTU is configured here
    test_an_address_of_its_own_beside_the_kernel = None  # tests a network without tags
    test_a_second_daemon_in_the_same_place_is_warned = None  # these have different MACs
    far_address = '10.98.0.2'

    @classmethod
    def start_daemon(cls, port, number, prefix=()):
        daemon = Daemon(PROGRAMS, config=device('roci0', number, f'port = "{port}"'), prefix=prefix)
        cls.addClassCleanup(daemon.stop)
        return daemon

    def test_programs(self):
        for gid in (1, LINK_LOCAL, V4, V6):
            for program in ('ibv_rc_pingpong', 'ibv_ud_pingpong'):
                self.run_ends(program, '-g', str(gid), '-n', '200')
        self.run_ends('ib_send_bw', '-x', str(V4), '-F', '-n', '100', '-s', '30000')

    def test_a_device_with_itself(self):
        for gid in (LINK_LOCAL, V4):
            pair = Pair(self.daemons[0], ('roci0', 'roci0'), ['ibv_rc_pingpong', '-g', str(gid), '-n', '200'])
            self.addCleanup(pair.kill)
            self.assertEqual(pair.connect().result(), '', gid)

    def test_connection_manager(self):
        server = self.daemons[0].start('rping', '-s', '-a', '10.98.0.1', '-C', '5', '-V')
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.kill)
        self.assertTrue(await_(lambda: server.poll() is not None or any(
            each['state'] == 'listen' for each in self.daemons[0].show('connections'))))
        client = self.daemons[1].start('rping', '-c', '-a', '10.98.0.1', '-C', '5', '-V')
        self.addCleanup(client.kill)
        said, _ = client.communicate(timeout=LIMIT_S)
        self.assertTrue(ended_well(client.returncode, said), (client.returncode, said))
        heard, _ = server.communicate(timeout=LIMIT_S)
        self.assertTrue(ended_well(server.returncode, heard), (server.returncode, heard))

    def test_the_kernel_is_a_neighbour_in_the_vlan(self):
        name, interface = self.names[1], 'roci-vl100'
        add_optional('link', self.interfaces[1], 'name', interface, 'type', 'vlan', 'id', str(VLAN), namespace=name)
        self.addCleanup(ip, 'link', 'delete', interface, namespace=name)
        ip('address', 'add', '10.98.0.9/24', 'dev', interface, namespace=name)
        ip('address', 'add', 'fd98::9/64', 'dev', interface, 'nodad', namespace=name)
        ip('link', 'set', interface, 'up', namespace=name)
        mac = self.daemons[0].show('devices')[0]['mac']
        for address in ('10.98.0.1', 'fd98::1'):
            # (The kernel's neighbour table is enough; the test needs no ICMP implementation.)
            family = socket.AF_INET6 if ':' in address else socket.AF_INET
            networks_test.inside(name, lambda: socket.socket(family, socket.SOCK_DGRAM).sendto(b'x', (address, 9)))
            found = lambda: mac in ip('neighbour', 'show', address, 'dev', interface, namespace=name).stdout
            self.assertTrue(await_(found), address)
        # An unused address.
        networks_test.inside(name, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('10.98.0.77', 9)))
        time.sleep(0.5)
        self.assertNotIn(mac, ip('neighbour', 'show', '10.98.0.77', 'dev', interface, namespace=name).stdout)

    def test_arp_replies_have_the_tag_of_the_request(self):
        listener = self.listen(1)
        listener.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        own, asker = b'\x02\x00\x00\x00\x00\x77', socket.inet_aton('10.98.0.77')
        request = (struct.pack('!HHBBH', 1, 0x0800, 6, 4, 1) + own + asker + bytes(6) + socket.inet_aton('10.98.0.1') +
                   bytes(18))
        for vlan in (VLAN, 0, VLAN + 1, 200):  # 0 is a priority tag; only VLAN has the address
            listener.send(b'\xff' * 6 + own + struct.pack('!HHH', 0x8100, vlan, 0x0806) + request)
        self.assertTrue(await_(lambda: self.daemons[0].show('ports')[0]['slow_path'].get('vlan_not_ours', 0) >= 1))
        time.sleep(0.5)
        self.assertEqual(self.answers(listener, own), [VLAN | 1 << 13])

    @staticmethod
    def answers(listener, to):
        """Tags of ARP replies, from the kernel's ancillary data."""
        found = []
        while select.select([listener], [], [], 0)[0]:
            frame, beside, _, _ = listener.recvmsg(65536, socket.CMSG_SPACE(20))
            if frame[:6] != to or frame[12:14] != b'\x08\x06' or frame[20:22] != b'\x00\x02':
                continue
            status, _, _, _, _, tag, _ = struct.unpack('=IIIHHHH', beside[0][2][:20])
            found.append(tag if status & TP_STATUS_VLAN_VALID else None)
        return found

    def test_the_kernel_keeps_quiet(self):
        self.skipTest('same as without VLANs')

    def test_malformed_frames_are_counted_by_reason(self):
        sender = self.listen(0)
        icrc_wrong = self.maker().by_reason()['icrc']
        arp = b'\xff' * 6 + icrc_wrong[6:12] + b'\x08\x06' + bytes(46)
        head, rest = icrc_wrong[:12], icrc_wrong[12:]
        tag, other = b'\x81\x00\x00\x64', b'\x81\x00\x0f\xa0'
        cases = {
            'icrc': head + tag + rest,
            'vlan_stack': head + tag + other + rest,
            'frame_truncated': head + tag + rest[:4],
            'vlan_not_ours': arp[:12] + other + arp[12:],
            'arp_malformed': arp[:12] + tag + arp[12:],
        }
        def counts():
            port = self.daemons[1].show('ports')[0]
            return {**port['slow_path'], **port['drops']}
        before = counts()
        for frame in cases.values():
            for _ in range(5):
                sender.send(frame)
        def counted():
            now = counts()
            return all(now.get(reason, 0) - before.get(reason, 0) >= 5 for reason in cases)
        self.assertTrue(await_(counted), (before, counts()))
        self.run_ends('ibv_rc_pingpong', '-g', str(V4), '-n', '100', '-c')


del VethTest  # its own cases are those of networks_test.py

if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    networks_test.PROGRAMS = PROGRAMS
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
