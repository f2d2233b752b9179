#!/usr/bin/env python3
"""Ports that are connected to another process by a socket: the peer starts later, ends, is killed, and starts again.

Usage: reconnect_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import os
import socket
import struct
import sys
import tempfile
import threading
import unittest

import networks_test as networks
from harness import LIMIT_S, Daemon, Programs, await_
from networks_test import V4, Ends

PROGRAMS = None


class VhostPeer(threading.Thread):
    """A minimal vhost-user back end: connects to `path`, answers net_virtio_user, and ignores the rings."""

    HEADER = struct.Struct('<III')  # request, flags, bytes of payload
    GET_FEATURES, GET_VRING_BASE = 1, 11
    VERSION_1 = 1 << 32  # feature bit
    REPLY = 1 | 4  # protocol version, "this is a reply"

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.leaves_at_end = path, False
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.start()

    def run(self):
        if not await_(self.connects, LIMIT_S):
            return
        while header := self.socket.recv(self.HEADER.size, socket.MSG_WAITALL):
            request, _, size = self.HEADER.unpack(header)
            payload = self.socket.recv(size, socket.MSG_WAITALL) if size else b''
            if request == self.GET_FEATURES:
                payload = struct.pack('<Q', self.VERSION_1)
            elif request != self.GET_VRING_BASE:
                continue
            self.socket.send(self.HEADER.pack(request, self.REPLY, len(payload)) + payload)
            if self.leaves_at_end and payload[0] == 1:
                break
        self.socket.close()

    def connects(self):
        return self.socket.connect_ex(self.path) == 0

    def leave(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.join()


class ReconnectTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='roci-peers.')
        self.addCleanup(folder.cleanup)
        self.socket = f'{folder.name}/port.sock'
        self.daemons = [None, None]

    def start(self, number, port):
        daemon = Daemon(PROGRAMS, config=f'[[device]]\nname = "roci0"\nport = "{port}"\nmac = "02:72:6f:63:69:1{number}"\n'
                                         f'mtu = 4200\naddresses = ["{V4[number]}/24"]\n')
        self.addCleanup(daemon.stop)
        self.daemons[number] = daemon

    def kill(self, number):
        self.daemons[number].process.kill()
        self.daemons[number].process.wait()
        self.daemons[number].stop()

    def end(self, number):
        self.assertEqual(self.daemons[number].stop(), 0, self.daemons[number].last_output)

    def port(self, number):
        return self.daemons[number].show('ports')[0]

    def await_state(self, number, state):
        self.assertTrue(await_(lambda: self.port(number)['state'] == state), self.port(number))

    def check_traffic(self):
        for number in (0, 1):
            self.await_state(number, 'active')
            self.assertEqual(self.port(number)['mtu'], 4200)
        ends = Ends(self.daemons, ['ibv_rc_pingpong', '-g', '1', '-n', '200', '-c'])
        self.addCleanup(ends.kill)
        self.assertEqual(ends.connect().result(), '')

    def check_silence(self, number):
        """Frames to a link that is down are neither sent nor queued."""
        self.await_state(number, 'down')
        before = self.port(number)['counters']
        client = self.daemons[number].start('rping', '-c', '-a', V4[1 - number], '-C', '1')
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        dropped = await_(lambda: self.port(number)['counters']['tx_link_down'] > before['tx_link_down'])
        client.kill()
        self.assertTrue(dropped, self.port(number))
        self.assertEqual(self.port(number)['counters']['tx_blocked'], before['tx_blocked'])

    def come_and_go(self, *ports):
        """`ports[0]` listens."""
        for number in (1, 0):
            self.start(number, ports[number])
        self.check_traffic()
        for number, ends in ((0, self.kill), (1, self.kill), (0, self.end), (1, self.end)):
            was_there = os.path.exists(self.socket)
            ends(number)
            self.check_silence(1 - number)
            self.assertTrue(was_there)
            self.start(number, ports[number])
            self.check_traffic()

    def kill_under_traffic(self, *ports):
        """Queue pairs of the remaining daemon report errors to their programs, and the daemon continues."""
        for number in (1, 0):
            self.start(number, ports[number])
        for number in (0, 1):
            for each in (0, 1):
                self.await_state(each, 'active')
            ends = Ends(self.daemons, ['ib_write_bw', '-x', '1', '-F', '-b', '-s', '65536', '-D', '1000']).connect()
            self.addCleanup(ends.kill)
            self.assertTrue(await_(lambda: self.port(1 - number)['counters']['rx_packets'] > 10000))
            self.kill(number)
            left = (ends.server, ends.client)[1 - number]
            output = left.communicate(timeout=LIMIT_S)[0]
            self.assertNotEqual(left.returncode, 0, output)
            self.assertIn('Failed status 12', output)  # IBV_WC_RETRY_EXC_ERR
            ends.kill()
            self.check_silence(1 - number)
            self.start(number, ports[number])
            self.check_traffic()

    def memif(self):
        return [f'net_memif0,role={role},socket={self.socket},socket-abstract=no,bsize=4608' for role in ('server', 'client')]

    def vhost(self):
        return f'net_virtio_user0,path={self.socket},server=1,mrg_rxbuf=1', f'net_vhost0,iface={self.socket},client=1'

    def test_memif(self):
        self.come_and_go(*self.memif())

    def test_memif_under_traffic(self):
        self.kill_under_traffic(*self.memif())

    def test_vhost(self):
        self.come_and_go(*self.vhost())

    def test_vhost_under_traffic(self):
        self.kill_under_traffic(*self.vhost())

    def test_a_virtio_user_port_ends_while_its_peer_leaves(self):
        """The driver is notified on DPDK's interrupt thread while the port is being closed."""
        for _ in range(8):
            peer = VhostPeer(self.socket)
            self.start(0, self.vhost()[0])
            self.await_state(0, 'active')
            peer.leave()
            self.await_state(0, 'down')
            peer = VhostPeer(self.socket)
            self.await_state(0, 'active')
            peer.leaves_at_end = True
            self.end(0)
            peer.join()

    def test_a_vhost_socket_of_a_daemon_that_was_killed(self):
        for _ in range(2):
            self.start(0, f'net_vhost0,iface={self.socket}')
            self.assertEqual(self.port(0)['mtu'], 4200)
            self.kill(0)
            self.assertTrue(os.path.exists(self.socket))

    def test_a_socket_in_use(self):
        """The second daemon leaves the socket to the first."""
        port = f'net_memif0,role=server,socket={self.socket},socket-abstract=no,bsize=4608'
        self.start(0, port)
        with self.assertRaisesRegex(RuntimeError, 'did not start'):
            self.start(1, port)
        self.start(1, port.replace('server', 'client'))
        self.check_traffic()


if __name__ == '__main__':
    PROGRAMS = networks.PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
