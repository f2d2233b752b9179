#!/usr/bin/env python3
"""The counters of a device with traffic in sysfs and in older tools: counters, hw_counters, ibstat, ibstatus.

Usage: counters_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import subprocess
import sys
import unittest

from harness import LIMIT_S, Daemon, Pair, Programs, await_

PROGRAMS = None
PORT = '/sys/class/infiniband/roci0/ports/1'
ROUNDS = 500
BYTES = 5000  # per message: five packets of at most 1024 bytes


class CountersTest(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon(PROGRAMS)
        self.addCleanup(self.daemon.stop)

    def output(self, *command):
        done = subprocess.run(self.daemon.command(*command), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def counters(self, folder):
        rows = self.output('grep', '-r', '', f'{PORT}/{folder}').splitlines()
        return {path.rsplit('/', 1)[1]: int(value) for path, value in (row.split(':', 1) for row in rows)}

    def run_pair(self, *command):
        pair = Pair(self.daemon, ('roci0', 'roci1'), list(command))
        self.addCleanup(pair.kill)
        self.assertEqual(pair.connect().result(), '')

    def test_counters_count_what_was_sent_and_received(self):
        before = self.counters('counters')
        hw_before = self.counters('hw_counters')
        self.run_pair('ibv_rc_pingpong', '-g', '1', '-m', '1024', '-s', str(BYTES), '-n', str(ROUNDS))
        packets = ROUNDS * 5

        def grown(name, folder='counters'):
            now, then = (self.counters(folder), before if folder == 'counters' else hw_before)
            return now[name] - then[name]
        # The files are updated with a delay, and count acknowledgements as well.
        self.assertTrue(await_(lambda: grown('port_xmit_packets') >= packets), self.counters('counters'))
        for name in ('port_xmit_packets', 'port_rcv_packets', 'unicast_xmit_packets', 'unicast_rcv_packets'):
            self.assertGreaterEqual(grown(name), packets, name)
            self.assertLess(grown(name), 3 * packets, name)
        for name in ('port_xmit_data', 'port_rcv_data'):  # in words of four bytes
            self.assertGreaterEqual(grown(name), ROUNDS * BYTES // 4, name)
            self.assertLess(grown(name), ROUNDS * BYTES // 2, name)
        for name in ('sent_pkts', 'rcvd_pkts'):
            self.assertGreaterEqual(grown(name, 'hw_counters'), packets, name)
        self.assertEqual(grown('retry_exceeded_err', 'hw_counters'), 0)
        self.assertEqual(grown('port_rcv_errors'), 0)

    def test_old_tools_show_an_active_port(self):
        status = self.output('ibstat', 'roci0')
        for line in ('State: Active', 'Physical state: LinkUp', 'Link layer: Ethernet', 'Rate: 100'):
            self.assertIn(line, status)
        status = self.output('ibstatus', 'roci0')
        for line in ('state:\t\t 4: ACTIVE', 'link_layer:\t Ethernet', '100 Gb/sec'):
            self.assertIn(line, status)


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
