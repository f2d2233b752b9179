#!/usr/bin/env python3
"""Routes: input of `roci route` and of the configuration's `routes`; traffic uses the named gateway.

The second part runs two daemons in separate networks, connected by a kernel that routes between them and has two addresses
with different MACs on the first's side. The test creates namespaces and interfaces and removes them; without permission for
that this part is skipped.

Usage: route_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import json
import os
import select
import socket
import struct
import subprocess
import sys
import unittest

import networks_test
from harness import (LIMIT_S, Daemon, Pair, Programs, as_user, await_, ended_well, outcome,
                     require_network_namespaces)
from networks_test import Ends, inside, ip

PROGRAMS = None
MOST_ROUTES = 64
ROCE_PORT = 4791
ETH_P_ALL = 3
USAGE_ERROR = 2


def route(daemon, *arguments, user=None):
    return subprocess.run([PROGRAMS.roci, '--runtime-dir', daemon.runtime_dir, 'route', *arguments], capture_output=True,
                          text=True, timeout=LIMIT_S, check=False, **as_user(user))


def result(pair):
    """The error, or ''. Does not wait for the server if the client could not start, since it would wait forever."""
    fault = outcome('client', pair.client, LIMIT_S)
    if fault:
        pair.kill()
    return fault or outcome('server', pair.server, LIMIT_S)


class WireTest(unittest.TestCase):
    """roci1 is the gateway, and also has addresses in the routed networks."""

    def setUp(self):
        self.daemon = Daemon(PROGRAMS, config='''
[[wire]]
name = "w"
[[device]]
name = "roci0"
wire = "w"
addresses = ["10.99.0.1/24", "fd99::1/64"]
gateway4 = "10.99.0.254"
routes = ["10.1.0.0/16 via 10.99.0.2"]
[[device.vlan]]
id = 7
addresses = ["10.7.0.1/24"]
routes = ["10.1.0.0/16 via 10.7.0.2"]
[[device]]
name = "roci1"
wire = "w"
addresses = ["10.99.0.2/24", "10.1.0.2/24", "10.2.0.2/24", "fd99::2/64", "fd01::2/64"]
''')
        self.addCleanup(self.daemon.stop)

    def change(self, *arguments):
        done = route(self.daemon, *arguments)
        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, '', ''))

    def routes(self, *device):
        done = route(self.daemon, 'show', *device, '--json')
        self.assertEqual(done.returncode, 0, done.stderr)
        return [(each['device'], each['network'], each['gateway'], each['vlan'], each['usable'])
                for each in json.loads(done.stdout)]

    def refused(self, *arguments, status=1):
        """The error message of a refused command."""
        before = self.routes()
        done = route(self.daemon, *arguments)
        self.assertEqual(done.returncode, status, done.stdout)
        self.assertEqual(self.routes(), before)
        return done.stderr

    def ping(self, client_gid, server_gid):
        """The error of queue pairs of roci0 and roci1, or ''."""
        pair = Pair(self.daemon, ('roci1', 'roci0'), ['ibv_rc_pingpong', '-n', '20', '-c', '-g', str(server_gid)])
        pair.client_command += ['-g', str(client_gid)]  # the last option counts
        self.addCleanup(pair.kill)
        return result(pair.connect())

    def test_routes_are_added_shown_and_removed(self):
        configured = [('roci0', '10.1.0.0/16', '10.99.0.2', 0, True), ('roci0', '0.0.0.0/0', '10.99.0.254', 0, True),
                      ('roci0', '10.1.0.0/16', '10.7.0.2', 7, True)]
        self.assertEqual(self.routes(), configured)
        self.assertEqual((self.routes('roci0'), self.routes('roci1')), (configured, []))
        self.change('add', 'roci0', '10.1.2.0/24', 'via', '10.99.0.3')
        self.change('add', 'roci0', 'default', 'via', 'fe80::9')
        self.change('add', 'roci0', 'default', 'via', '10.7.0.3', '--vlan', '7')
        self.change('del', 'roci0', 'default')
        self.change('del', 'roci0', '10.1.0.0/16', 'via', '10.7.0.2', '--vlan', '7')
        self.assertEqual(self.routes(), [('roci0', '10.1.2.0/24', '10.99.0.3', 0, True), configured[0],
                                         ('roci0', '::/0', 'fe80::9', 0, True), ('roci0', '0.0.0.0/0', '10.7.0.3', 7, True)])
        lines = route(self.daemon, 'show', 'roci0').stdout.splitlines()
        self.assertEqual(lines[0].split(), ['DEVICE', 'NETWORK', 'VIA', 'VLAN', 'STATE'])
        self.assertEqual(lines[1].split(), ['roci0', '10.1.2.0/24', '10.99.0.3', '-', 'up'])
        self.assertEqual(lines[4].split(), ['roci0', '0.0.0.0/0', '10.7.0.3', '7', 'up'])

    def test_queue_pairs_follow(self):
        server_gids = {each['address'].partition('/')[0]: each['index']
                       for each in self.daemon.show('devices')[1]['gids']}
        self.assertEqual(self.ping(1, server_gids['10.1.0.2']), '')
        self.assertIn('Failed to modify QP to RTR', self.ping(2, server_gids['fd01::2']))
        self.change('add', 'roci0', 'fd01::/64', 'via', 'fd99::2')
        self.assertEqual(self.ping(2, server_gids['fd01::2']), '')
        self.change('del', 'roci0', 'fd01::/64')
        self.assertIn('Failed to modify QP to RTR', self.ping(2, server_gids['fd01::2']))

    def test_connections_come_from_the_gateways_network(self):
        for device, own in (('roci0', '10.6.0.1/24'), ('roci1', '10.6.0.2/24')):
            subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'addr', 'add', device, own], check=True,
                           capture_output=True, timeout=LIMIT_S)
        self.change('add', 'roci0', '10.8.0.0/16', 'via', '10.6.0.2')
        # The destination does not exist; the gateway does.
        client = self.daemon.start('rping', '-c', '-a', '10.8.0.5', '-C', '1')
        self.addCleanup(client.stdout.close)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        sources = []

        def connecting():
            sources[:] = [each['source'] for each in self.daemon.show('connections')
                          if each['destination'].startswith('10.8.0.5:') and each['state'] == 'req_sent']
            return sources
        self.assertTrue(await_(connecting), self.daemon.show('connections'))
        self.assertEqual(sources[0].partition(':')[0], '10.6.0.1')

    def test_a_route_without_a_reachable_gateway_is_dead(self):
        address = [PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'addr']
        subprocess.run([*address, 'add', 'roci0', '10.6.0.1/24'], check=True, capture_output=True, timeout=LIMIT_S)
        self.change('add', 'roci0', '10.2.0.0/16', 'via', '10.6.0.9')
        subprocess.run([*address, 'del', 'roci0', '10.6.0.1'], check=True, capture_output=True, timeout=LIMIT_S)
        self.assertIn(('roci0', '10.2.0.0/16', '10.6.0.9', 0, False), self.routes())
        self.assertRegex(route(self.daemon, 'show').stdout, r'10\.2\.0\.0/16 +10\.6\.0\.9 +- +dead')

    def test_refusals_have_a_reason(self):
        for words, arguments in {
                'there is no device roci7': ('add', 'roci7', '10.5.0.0/16', 'via', '10.99.0.2'),
                'the route exists, via 10.99.0.2': ('add', 'roci0', '10.1.0.0/16', 'via', '10.99.0.3'),
                'the route exists, via 10.99.0.254': ('add', 'roci0', 'default', 'via', '10.99.0.3'),
                'the route exists: the device has an address': ('add', 'roci0', '10.99.0.0/24', 'via', '10.99.0.3'),
                'nexthop has invalid gateway: 10.98.0.2 is in none': ('add', 'roci0', '10.5.0.0/16', 'via', '10.98.0.2'),
                'nexthop has invalid gateway: 10.99.0.1 is the device': ('add', 'roci0', '10.5.0.0/16', 'via', '10.99.0.1'),
                'nexthop has invalid gateway: 239.1.1.1 is not': ('add', 'roci0', '10.5.0.0/16', 'via', '239.1.1.1'),
                'invalid prefix for its length; is 10.5.0.0/16': ('add', 'roci0', '10.5.0.1/16', 'via', '10.99.0.2'),
                'not an IPv4 or IPv6 network': ('add', 'roci0', '10.5.0.0/33', 'via', '10.99.0.2'),
                'of different families': ('add', 'roci0', '10.5.0.0/16', 'via', 'fe80::9'),
                'groups need no route': ('add', 'roci0', '239.0.0.0/8', 'via', '10.99.0.2'),
                'the device has no VLAN 8': ('add', 'roci0', '10.5.0.0/16', 'via', '10.99.0.2', '--vlan', '8'),
                '10.5.0.0/16: there is no such route': ('del', 'roci0', '10.5.0.0/16'),
                'via 10.99.0.3: there is no such route': ('del', 'roci0', '10.1.0.0/16', 'via', '10.99.0.3'),
                '::/0: there is no such route': ('del', 'roci0', '::/0'),
        }.items():
            self.assertIn(words, self.refused(*arguments))
        self.assertIn('there is no device roci7', self.refused('show', 'roci7'))
        for wrong in (('add', 'roci0', '10.5.0.0/16'), ('add', 'roci0', '10.5.0.0/16', '10.99.0.2'),
                      ('add', 'roci0', '10.5.0.0/16', 'dev', '10.99.0.2'), ('del', 'roci0', '10.1.0.0/16', 'via'),
                      ('add', 'roci0', '10.5.0.0/16', 'via', '10.99.0.2', '--vlan', '4095'), ()):
            self.refused(*wrong, status=USAGE_ERROR)

    def test_the_number_of_routes_is_limited(self):
        for number in range(len(self.routes('roci0')), MOST_ROUTES):
            self.change('add', 'roci0', f'10.5.{number}.0/24', 'via', '10.99.0.2')
        self.assertIn('64 routes', self.refused('add', 'roci0', '10.6.0.0/24', 'via', '10.99.0.2'))
        self.assertEqual(len(self.routes()), MOST_ROUTES)

    def test_help(self):
        text = ' '.join(route(self.daemon, '--help').stdout.split())
        for word in ('EXAMPLES', 'EXIT STATUS', 'longest', 'address handle', 'add', 'del', 'show'):
            self.assertIn(word, text)

    @unittest.skipUnless(os.geteuid() == 0, 'only root can become another user')
    def test_other_users_may_not(self):
        before = self.routes()
        done = route(self.daemon, 'del', 'roci0', '10.1.0.0/16', user='nobody')
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, 'may|ermission|user')
        self.assertEqual(self.routes(), before)


class RouterTest(unittest.TestCase):
    """Daemons 0 and 1 behind interfaces of a router: the ports x0 and x1 lead to the bridges at its two sides. Its
    interfaces g8 and g9 are at the first side, b8 at the other."""
    spaces = tuple(f'roci-{os.getpid()}-{name}' for name in ('route-a', 'route-b', 'route-r'))
    gateways = ('g8', 'g9')

    @classmethod
    def setUpClass(cls):
        require_network_namespaces()
        try:
            cls.make_network()
        except BaseException:
            cls.doClassCleanups()
            raise

    @classmethod
    def make_network(cls):
        for space in cls.spaces:
            ip('netns', 'add', space)
            cls.addClassCleanup(subprocess.run, ['ip', 'netns', 'delete', space], capture_output=True, check=False)
        router = cls.spaces[2]
        for key in ('ipv4/ip_forward', 'ipv6/conf/all/forwarding', 'ipv4/conf/all/arp_ignore', 'ipv4/conf/all/arp_announce'):
            inside(router, lambda key=key: cls.write(f'/proc/sys/net/{key}', '1'))
        # Two interfaces in one network: each answers for its own address and accepts all frames.
        for key in ('all', 'default'):
            inside(router, lambda key=key: cls.write(f'/proc/sys/net/ipv4/conf/{key}/rp_filter', '0'))
        for number in (0, 1):
            ip('link', 'add', f's{number}', 'type', 'bridge', 'mcast_snooping', '0', namespace=router)
            ip('link', 'set', f's{number}', 'up', namespace=router)
            ip('link', 'add', f'x{number}', 'netns', cls.spaces[number], 'type', 'veth', 'peer', 'name', f'p{number}', 'netns',
               router)
            ip('link', 'set', f'x{number}', 'up', namespace=cls.spaces[number])
            cls.plug(f'p{number}', number)
        for name, number, v4, v6 in (('g8', 0, '10.91.1.8', 'fe80::8'), ('g9', 0, '10.91.1.9', 'fe80::9'),
                                     ('b8', 1, '10.91.2.8', 'fe80::8')):
            ip('link', 'add', name, 'type', 'veth', 'peer', 'name', f'{name}p', namespace=router)
            cls.plug(f'{name}p', number)
            ip('address', 'add', f'{v4}/24', 'dev', name, namespace=router)
            ip('address', 'add', f'{v6}/64', 'dev', name, 'nodad', namespace=router)
            ip('link', 'set', name, 'up', namespace=router)
            if name != 'g9':
                ip('-6', 'route', 'add', f'fd91:{number + 1}::/64', 'dev', name, namespace=router)

    @classmethod
    def plug(cls, port, bridge):
        ip('link', 'set', port, 'master', f's{bridge}', 'up', namespace=cls.spaces[2])

    @staticmethod
    def write(path, text):
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)

    def setUp(self):
        back = 'routes = ["10.91.1.0/24 via 10.91.2.8", "fd91:1::/64 via fe80::8"]\n'
        self.daemons = []
        for number in (0, 1):
            config = (f'[[device]]\nname = "roci0"\nport = "net_af_packet0,iface=x{number}"\n'
                      f'addresses = ["10.91.{number + 1}.1/24", "fd91:{number + 1}::1/64"]\n{back if number else ""}')
            self.daemons.append(Daemon(PROGRAMS, config=config, prefix=('ip', 'netns', 'exec', self.spaces[number])))
            self.addCleanup(self.daemons[-1].stop)

    def change(self, *arguments):
        done = route(self.daemons[0], *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ''))

    def listen(self, interface):
        def make():
            # Protocol 0 until bind: otherwise the socket would receive frames of all interfaces.
            listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            listener.bind((interface, ETH_P_ALL))
            return listener
        listener = inside(self.spaces[2], make)
        self.addCleanup(listener.close)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        return listener

    @staticmethod
    def roce_frames(listener):
        """The number of frames received for the router's interface."""
        count = 0
        while select.select([listener], [], [], 0)[0]:
            frame, address = listener.recvfrom(65536)
            at = {b'\x08\x00': 34, b'\x86\xdd': 54}.get(frame[12:14])
            if at and address[2] == socket.PACKET_HOST and frame[at + 2:at + 4] == struct.pack('!H', ROCE_PORT):
                count += 1
        return count

    def ways(self, call):
        """The gateways that RoCE packets used while `call()` ran."""
        listeners = {name: self.listen(name) for name in self.gateways}
        call()
        return {name for name, listener in listeners.items() if self.roce_frames(listener) > 0}

    def ping(self, gid):
        ends = Ends((self.daemons[1], self.daemons[0]), ['ibv_rc_pingpong', '-g', str(gid), '-n', '50', '-c'])
        self.addCleanup(ends.kill)
        return result(ends.connect())

    def good_ping(self, gid):
        self.assertEqual(self.ping(gid), '')

    def connect(self, address):
        """The exit status and output of a librdmacm client."""
        server = self.listener(address)
        client = self.daemons[0].start('rping', '-c', '-a', address, '-C', '5', '-S', '2000', '-V')
        self.addCleanup(client.kill)
        said, _ = client.communicate(timeout=LIMIT_S)
        done = ended_well(client.returncode, said)
        if done:
            server.wait(timeout=LIMIT_S)
        server.kill()
        heard, _ = server.communicate()
        if done:
            self.assertTrue(ended_well(server.returncode, heard), (server.returncode, heard))
        return 0 if done else client.returncode, said

    def listener(self, address):
        server = self.daemons[1].start('rping', '-s', '-a', address, '-S', '2000', '-V')
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.assertTrue(await_(lambda: server.poll() is not None or any(
            each['state'] == 'listen' for each in self.daemons[1].show('connections'))))
        return server

    def good_connect(self, address):
        status, said = self.connect(address)
        self.assertEqual(status, 0, said)

    def test_queue_pairs_take_the_longest_prefix(self):
        for gid, wide, narrow, vias in ((1, '10.91.2.0/24', '10.91.2.1', ('10.91.1.8', '10.91.1.9')),
                                        (2, 'fd91:2::/64', 'fd91:2::1', ('fe80::8', 'fe80::9'))):
            self.assertIn('Failed to modify QP to RTR', self.ping(gid))
            self.change('add', 'roci0', wide, 'via', vias[0])
            self.assertEqual(self.ways(lambda gid=gid: self.good_ping(gid)), {'g8'})
            self.change('add', 'roci0', narrow, 'via', vias[1])
            self.assertEqual(self.ways(lambda gid=gid: self.good_ping(gid)), {'g9'})
            self.change('del', 'roci0', narrow)
            self.assertEqual(self.ways(lambda gid=gid: self.good_ping(gid)), {'g8'})
            self.change('del', 'roci0', wide)
            self.assertIn('Failed to modify QP to RTR', self.ping(gid))

    def test_connections_take_the_longest_prefix(self):
        for address, vias in (('10.91.2.1', ('10.91.1.8', '10.91.1.9')), ('fd91:2::1', ('fe80::8', 'fe80::9'))):
            self.assertNotEqual(self.connect(address)[0], 0)
            self.change('add', 'roci0', 'default', 'via', vias[0])
            self.assertEqual(self.ways(lambda address=address: self.good_connect(address)), {'g8'})
            self.change('add', 'roci0', address, 'via', vias[1])
            self.assertEqual(self.ways(lambda address=address: self.good_connect(address)), {'g9'})
            self.change('del', 'roci0', address)
            self.assertEqual(self.ways(lambda address=address: self.good_connect(address)), {'g8'})
            self.change('del', 'roci0', 'default' if '.' in address else '::/0')
            self.assertNotEqual(self.connect(address)[0], 0)

    def test_connected_queue_pairs_keep_their_path(self):
        self.change('add', 'roci0', '10.91.2.0/24', 'via', '10.91.1.8')
        self.listener('10.91.2.1')
        client = self.daemons[0].start('rping', '-c', '-a', '10.91.2.1', '-S', '2000')
        self.addCleanup(client.stdout.close)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)

        def sent():
            return sum(each['tx_packets'] for each in self.daemons[0].show('qps'))

        self.assertTrue(await_(lambda: sent() > 50))
        self.change('add', 'roci0', '10.91.2.1', 'via', '10.91.1.9')
        self.change('del', 'roci0', '10.91.2.0/24')
        before = sent()
        self.assertEqual(self.ways(lambda: self.assertTrue(await_(lambda: sent() > before + 200))), {'g8'})
        self.assertIsNone(client.poll())
        # A queue pair created now, while the old one exists.
        self.assertEqual(self.ways(lambda: self.good_ping(1)), {'g8', 'g9'})


if __name__ == '__main__':
    PROGRAMS = networks_test.PROGRAMS = Programs(*sys.argv[1:4], copied=True)
    try:
        unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
    finally:
        PROGRAMS.remove()
