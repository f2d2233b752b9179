#!/usr/bin/env python3
"""What ends the sleep of an idle lcore: frames of its ports, by the port's descriptor or interrupt, and not the time. By the
daemon's own counters, over a veth pair, a tap device, net_memif, and net_vhost with net_virtio_user.

The test creates namespaces and interfaces and removes them; without permission for that its cases are skipped.

Usage: waking_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import os
import subprocess
import sys
import tempfile
import time
import unittest

from harness import LIMIT_S, Daemon, Programs, await_, require_network_namespaces
from networks_test import Ends, inside, ip
from ports_test import answers_ping

PROGRAMS = None
DEVICE_V4, KERNEL_V4, SECOND_V4 = '192.0.2.1', '192.0.2.2', '192.0.2.3'
# An idle lcore wakes once a second. A port that is polled at intervals wakes it a thousand times.
QUIET_S, QUIET_SLEEPS = 3, 30
PINGS, PAUSE_S = 40, 0.05


def lcores(daemon):
    return daemon.show('lcores')


def sleeps(daemon):
    return sum(lcore['sleeps'] for lcore in lcores(daemon))


def port_wakes(daemon):
    return sum(lcore['wakes_by_port'] for lcore in lcores(daemon))


def is_quiet(daemon):
    before = sleeps(daemon)
    time.sleep(QUIET_S)
    return sleeps(daemon) - before <= QUIET_SLEEPS


class Waking(unittest.TestCase):

    def start(self, port, number=0, prefix=(), config='', more=''):
        has_address = 'af_' in port or 'packet:' in port or 'mac' in more
        mac = '' if has_address else f'mac = "02:72:6f:63:69:1{number}"\n'
        address = (DEVICE_V4, SECOND_V4)[number]
        daemon = Daemon(PROGRAMS, prefix=prefix,
                        config=f'{config}[[device]]\nname = "roci0"\nport = "{port}"\n{mac}addresses = ["{address}/24"]\n{more}')
        self.addCleanup(daemon.stop)
        return daemon

    def check_idle(self, daemon):
        """Frames may come at first (duplicate address detection, router solicitations)."""
        self.assertTrue(await_(lambda: is_quiet(daemon)), lcores(daemon))
        self.assertFalse(daemon.show('ports')[0]['polled_at_intervals'])


class BesideTheKernel(Waking):
    """The kernel at the other end of the link pings, with pauses."""

    def setUp(self):
        self.name = f'roci-waking-{os.getpid()}'
        self.prefix = ('ip', 'netns', 'exec', self.name)
        require_network_namespaces()
        ip('netns', 'add', self.name)
        self.addCleanup(subprocess.run, ['ip', 'netns', 'delete', self.name], capture_output=True, check=False)
        ip('link', 'add', 'roci-link', 'type', 'veth', 'peer', 'name', 'roci-peer', namespace=self.name)
        # Otherwise the kernel goes on to speak IPv6 for some time.
        subprocess.run([*self.prefix, 'sysctl', '-q', 'net.ipv6.conf.all.disable_ipv6=1'], timeout=LIMIT_S, check=False)
        for interface in ('roci-link', 'roci-peer'):
            ip('link', 'set', interface, 'mtu', '1500', 'up', namespace=self.name)

    def use_kernel_address(self, interface):
        ip('address', 'add', f'{KERNEL_V4}/24', 'dev', interface, namespace=self.name)
        ip('link', 'set', interface, 'up', namespace=self.name)

    def ping(self, count):
        for _ in range(count):
            self.assertTrue(inside(self.name, lambda: answers_ping(DEVICE_V4, timeout_s=60)))
            time.sleep(PAUSE_S)

    def check(self, port, kernel_interface, config='', more=''):
        daemon = self.start(port, prefix=self.prefix, config=config, more=more)
        self.use_kernel_address(kernel_interface)
        self.assertTrue(await_(lambda: daemon.show('ports')[0]['state'] == 'active'))
        self.ping(1)  # the addresses are resolved
        self.check_idle(daemon)
        woken, slept = port_wakes(daemon), sleeps(daemon)
        begin = time.monotonic()
        self.ping(PINGS)
        took_s = time.monotonic() - begin
        woken, slept = port_wakes(daemon) - woken, sleeps(daemon) - slept
        # On a busy machine two pings may find the lcore awake.
        self.assertGreater(woken, PINGS * 3 // 4, lcores(daemon))
        # A sleep after each ping, some for yields that took long, and one a second: intervals would be a thousand a second.
        self.assertLess(slept, 6 * PINGS + 10 * took_s, lcores(daemon))
        self.check_after_link_down(daemon, kernel_interface if kernel_interface in port else 'roci-link')
        self.assertEqual(daemon.stop(), 0, daemon.last_output)

    def check_after_link_down(self, daemon, interface):
        """Sockets on the network device then have an error, for which they are readable."""
        for state in ('down', 'up'):
            ip('link', 'set', interface, state, namespace=self.name)
        self.assertTrue(await_(lambda: daemon.show('ports')[0]['state'] == 'active'))
        self.ping(1)
        self.check_idle(daemon)

    def test_af_packet(self):
        self.check('net_af_packet0,iface=roci-link', 'roci-peer')

    def test_af_packet_with_an_address_of_its_own(self):
        """The daemon then has other sockets on the network device."""
        self.check('net_af_packet0,iface=roci-link', 'roci-peer', more='mac = "02:72:6f:63:69:20"\n')

    def test_two_lcores(self):
        """Each lcore waits for its own queue."""
        self.check('net_af_packet0,iface=roci-link,qpairs=2', 'roci-peer', config='[daemon]\nlcores = 2\n')

    def test_packet_sockets(self):
        self.check('packet:roci-link', 'roci-peer')

    def test_packet_sockets_of_two_lcores(self):
        self.check('packet:roci-link', 'roci-peer', config='[daemon]\nlcores = 2\n', more='mac = "02:72:6f:63:69:20"\n')

    def test_af_xdp(self):
        try:
            self.check('net_af_xdp0,iface=roci-link', 'roci-peer')
        except RuntimeError as error:
            self.skipTest(f'no AF_XDP here: {error}')

    def test_tap(self):
        if not os.path.exists('/dev/net/tun'):
            self.skipTest('no /dev/net/tun here')
        self.check('net_tap0,iface=roci-tap', 'roci-tap')

    def test_a_port_that_offers_nothing(self):
        """It says so, and the lcore keeps polling."""
        daemon = self.start('net_pcap0,iface=roci-link', prefix=self.prefix)
        self.assertTrue(daemon.show('ports')[0]['polled_at_intervals'])
        before = sleeps(daemon)
        self.assertTrue(await_(lambda: sleeps(daemon) - before > 300), lcores(daemon))
        self.use_kernel_address('roci-peer')
        self.ping(3)


class BetweenDaemons(Waking):
    """Datagrams between two daemons, with pauses."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='roci-waking.')
        self.addCleanup(folder.cleanup)
        self.socket = f'{folder.name}/port.sock'

    def start_both(self, ports, more=('', '')):
        daemons = [self.start(port, number, more=more[number]) for number, port in enumerate(ports)]
        self.assertTrue(await_(lambda: all(daemon.show('ports')[0]['state'] == 'active' for daemon in daemons)))
        return daemons

    def send(self, daemons):
        ends = Ends(daemons, ['ibv_ud_pingpong', '-g', '1', '-n', '1', '-e'])
        self.addCleanup(ends.kill)
        self.assertEqual(ends.connect().result(), '')

    def check(self, ports):
        daemons = self.start_both(ports)
        self.assertTrue(await_(lambda: self.are_waited_for(daemons)), [daemon.show('ports') for daemon in daemons])
        for daemon in daemons:
            self.check_idle(daemon)
        self.check_wakes(daemons)
        return daemons

    def are_waited_for(self, daemons):
        """Ports with interrupts are polled until one has come."""
        self.send(daemons)
        return not any(daemon.show('ports')[0]['polled_at_intervals'] for daemon in daemons)

    def check_wakes(self, daemons):
        """The lcore at the receiving end of pings sleeps in the pauses; so do both afterwards."""
        messages = 30
        for receiver, sender in (daemons, reversed(daemons)):
            before = port_wakes(receiver)
            ends = Ends((receiver, sender), ['ib_send_lat', '-x', '1', '-F', '-s', '8', '-n', str(messages), '-u', '20',
                                             f'--latency_gap={int(PAUSE_S * 1e6)}'])
            self.addCleanup(ends.kill)
            self.assertEqual(ends.connect().result(), '')
            # On a busy machine some find it awake.
            self.assertGreater(port_wakes(receiver) - before, messages // 3, lcores(receiver))
        for daemon in daemons:
            self.check_idle(daemon)

    def check_burst(self, ports):
        """A message of 64 MiB, as fast as the link is, after ten seconds of silence: no frame is lost."""
        daemons = self.start_both(ports, ('mtu = 4200\n',) * 2)
        self.send(daemons)
        time.sleep(10)
        ends = Ends(daemons, ['ib_write_bw', '-x', '1', '-F', '-s', str(64 << 20), '-n', '5', '-u', '20'])
        self.addCleanup(ends.kill)
        self.assertEqual(ends.connect().result(), '')
        for daemon in daemons:
            port = daemon.show('ports')[0]
            self.assertEqual(port['lost_by_port'], {})
            self.assertEqual(port['counters']['tx_dropped'], 0)
            for loss in ('packet_seq_err', 'out_of_sequence', 'local_ack_timeout_err'):
                self.assertNotIn(loss, port['transport'])

    def memif(self):
        return [f'net_memif0,role={role},socket={self.socket},socket-abstract=no,bsize=4608' for role in ('server', 'client')]

    def test_memif_keeps_a_burst(self):
        self.check_burst(self.memif())

    def test_vhost_keeps_a_burst(self):
        self.check_burst(self.vhost())

    def test_deep_rings(self):
        daemons = self.start_both(self.memif(), ('rx_ring = 4000\nmtu = 4200\n',) * 2)
        self.assertEqual([daemon.show('ports')[0]['rx_ring'] for daemon in daemons], [4096] * 2)
        self.send(daemons)

    def test_deep_rings_of_virtio(self):
        ports = self.vhost()
        daemons = self.start_both(ports, ('', 'rx_ring = 4096\n'))
        self.assertEqual(daemons[1].show('ports')[0]['rx_ring'], 4096)
        self.send(daemons)

    def test_a_ring_for_which_there_is_no_memory(self):
        self.start(self.vhost()[0])
        with self.assertRaises(RuntimeError) as refusal:
            self.start(self.vhost()[1], 1, config='[daemon]\nmemory_mib = 80\nhugepages = "off"\n',
                       more='rx_ring = 16384\n')
        self.assertIn('no memory for receive rings of 16384 frames', str(refusal.exception))
        self.assertIn('lower rx_ring', str(refusal.exception))

    def test_flow_control_that_the_port_lacks(self):
        for setting, what in (('pause = "on"', 'pause'), ('pfc = [3]', 'PFC')):
            with self.assertRaises(RuntimeError) as refusal:
                self.start(self.memif()[0], more=f'{setting}\n')
            self.assertIn(f'{what} cannot be switched on: the driver of the port does not offer it', str(refusal.exception))
        daemon = self.start(self.memif()[0], more='pause = "auto"\n')
        self.assertEqual(daemon.show('ports')[0]['flow_control'], [])

    def test_a_receiver_that_lags_tells_its_senders(self):
        """A ring that fills faster than the lcore reads it has the effect of CE marks."""
        daemons = self.start_both(self.vhost(), ('mtu = 4200\nrx_backlog_percent = 15\n', 'mtu = 4200\n'))
        self.assertEqual([daemon.show('ports')[0]['rx_backlog_mark'] for daemon in daemons], [38, 0])
        ends = Ends(daemons, ['ib_write_bw', '-x', '1', '-F', '-s', '65536', '-D', '1000', '-u', '20'])
        self.addCleanup(ends.kill)
        ends.connect()

        def told():
            receiver, sender = (daemon.show('ports')[0] for daemon in daemons)
            return (receiver['counters']['rx_backlog_marked'] > 0 and receiver['transport'].get('np_cnp_sent', 0) > 0 and
                    sender['transport'].get('rp_cnp_handled', 0) > 0)
        self.assertTrue(await_(told, LIMIT_S), [daemon.show('ports') for daemon in daemons])
        self.assertEqual(daemons[1].show('ports')[0]['counters']['rx_backlog_marked'], 0)

    def vhost(self):
        return f'net_vhost0,iface={self.socket}', f'net_virtio_user0,path={self.socket},mrg_rxbuf=1'

    def test_vhost(self):
        self.check(self.vhost())

    def test_vhost_with_a_new_peer(self):
        """Its queues have interrupts disabled at first."""
        daemons = self.check(self.vhost())
        daemons[1].process.kill()
        daemons[1].process.wait()
        self.assertTrue(await_(lambda: daemons[0].show('ports')[0]['state'] == 'down'))
        self.check_idle(daemons[0])
        daemons[1] = self.start(self.vhost()[1], 1)
        self.assertTrue(await_(lambda: all(daemon.show('ports')[0]['state'] == 'active' for daemon in daemons)))
        self.check_wakes(daemons)


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
