#!/usr/bin/env python3
"""Debian's programs over a wire that reorders and loses frames, between devices with reorder = "tolerate" or "selective".

Goodput depends on the machine's load: tests/sim/reorder_sim_test.cc checks it in simulated time, tools/bench measures it.

Usage: reorder_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import subprocess
import sys
import unittest

from harness import LIMIT_S, Daemon, Pair, Programs, await_, ended_well

PROGRAMS = None
DEVICES = ('roci0', 'roci1')
ADDRESSES = ('10.99.0.1', '10.99.0.2')
PERFTEST = ['-x', '1', '-F', '-u', '16', '-s', '65536', '-n', '1000']


# A wait so long that a daemon without a processor does not give up frames that are only late. `reorder`: of each device.
def config(reorder=('tolerate', 'tolerate'), policy='auto', wait_us=50000):
    devices = ''.join(f'[[device]]\nname = "{name}"\nwire = "w"\naddresses = ["{address}/24"]\nreorder = "{use}"\n' +
                      ('' if use == 'go_back_n' else f'reorder_wait_us = {wait_us}\n')
                      for name, address, use in zip(DEVICES, ADDRESSES, reorder))
    return f'[memory]\npolicy = "{policy}"\n[[wire]]\nname = "w"\n{devices}'


class ReorderTest(unittest.TestCase):

    def start(self, *impairment, **settings):
        self.daemon = Daemon(PROGRAMS, config=config(**settings))
        self.addCleanup(self.daemon.stop)
        for device in DEVICES:
            self.roci('impair', device, '--seed', '5', *impairment)

    def roci(self, *arguments):
        done = subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, *arguments], capture_output=True,
                              text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def run_pair(self, *command):
        pair = Pair(self.daemon, DEVICES, list(command))
        self.addCleanup(pair.kill)
        self.assertEqual(pair.connect().result(), '', command)

    def start_rping(self, count):
        server = self.daemon.start('rping', '-s', '-a', ADDRESSES[0], '-C', str(count), '-S', '60000', '-V')
        self.addCleanup(server.kill)
        self.assertTrue(await_(lambda: any(each['state'] == 'listen' for each in self.daemon.show('connections'))))
        client = self.daemon.start('rping', '-c', '-a', ADDRESSES[0], '-I', ADDRESSES[1], '-C', str(count), '-S', '60000', '-V')
        self.addCleanup(client.kill)
        return server, client

    def run_rping(self):
        server, client = self.start_rping(50)
        output, _ = client.communicate(timeout=LIMIT_S)
        self.assertTrue(ended_well(client.returncode, output), (client.returncode, output))
        server.communicate(timeout=LIMIT_S)

    def count(self, name):
        return sum(port['transport'].get(name, 0) for port in self.daemon.show('ports'))

    def dropped(self, name):
        return sum(port['drops'].get(name, 0) for port in self.daemon.show('ports'))

    def test_bulk_goes_on_in_spite_of_late_packets(self):
        for policy in ('auto', 'map'):
            with self.subTest(policy=policy):
                self.start('--reorder', '5%', policy=policy)
                for program in ('ib_write_bw', 'ib_read_bw', 'ib_send_bw'):
                    before = self.count('kept_requests') + self.count('kept_responses')
                    self.run_pair(program, *PERFTEST)
                    self.assertGreater(self.count('kept_requests') + self.count('kept_responses'), before, program)
                # Nothing was lost, so nothing is sent again.
                names = ('sequence_naks_sent', 'implied_nak_seq_err', 'retransmitted_packets', 'local_ack_timeout_err')
                self.assertEqual([self.count(name) for name in names], [0, 0, 0, 0])
                self.daemon.stop()

    def test_without_the_key_late_packets_are_sent_again(self):
        self.start('--reorder', '5%', reorder=('go_back_n', 'go_back_n'))
        self.run_pair('ib_write_bw', *PERFTEST)
        self.assertEqual(self.count('kept_requests'), 0)
        self.assertGreater(self.count('sequence_naks_sent'), 0)
        self.assertGreater(self.dropped('out_of_sequence'), 0)

    def test_bytes_are_right_with_reordering_loss_and_duplicates(self):
        for policy in ('auto', 'map'):
            with self.subTest(policy=policy):
                self.start('--reorder', '5%', '--reorder-delay', '50us', '--loss', '0.3%', '--duplicate', '1%', policy=policy)
                self.run_pair('ibv_rc_pingpong', '-c', '-g', '1', '-s', '200000', '-n', '100')
                self.run_rping()
                self.run_pair('ib_atomic_bw', '-x', '1', '-F', '-u', '16', '-n', '500')
                self.assertGreater(self.count('kept_requests'), 0)
                self.assertGreater(self.count('kept_responses'), 0)
                self.assertGreater(self.count('retransmitted_packets'), 0)
                self.daemon.stop()

    def lost(self):
        return sum(each['counters']['lost'] for port in self.daemon.show('ports') for each in port['impairments'])

    def test_selective_repeat_sends_again_what_was_lost(self):
        for program in ('ib_write_bw', 'ib_send_bw', 'ib_read_bw'):
            with self.subTest(program=program):
                self.start('--loss', '1%', reorder=('selective', 'selective'), wait_us=5000)
                self.run_pair(program, *PERFTEST)
                repeated = self.count('retransmitted_packets')
                asked = 'implied_nak_seq_err' if program == 'ib_read_bw' else 'selective_naks_received'
                self.assertGreater(self.count(asked), 0)
                self.assertGreater(repeated, 50, '1% of 16,000 packets')
                # A frame that is late by more than the wait is repeated as well. Go-back-N repeats all that is in flight.
                self.assertLess(repeated, 2 * self.lost() + 50)
                self.daemon.stop()

    def test_bytes_are_right_with_selective_repeat(self):
        # Few losses: ibv_rc_pingpong ends without waiting for the peer's last ACK.
        self.start('--reorder', '5%', '--reorder-delay', '50us', '--loss', '0.3%', '--duplicate', '1%',
                   reorder=('selective', 'selective'), wait_us=5000)
        self.run_pair('ibv_rc_pingpong', '-c', '-g', '1', '-s', '200000', '-n', '100')
        self.run_rping()
        self.run_pair('ib_read_bw', *PERFTEST)
        self.run_pair('ib_atomic_bw', '-x', '1', '-F', '-u', '16', '-n', '500')
        self.assertGreater(self.count('selective_naks_received'), 0)

    def test_a_peer_without_selective_repeat_goes_back(self):
        for reorder in (('selective', 'go_back_n'), ('go_back_n', 'selective'), ('selective', 'tolerate')):
            with self.subTest(reorder=reorder):
                self.start('--loss', '0.3%', reorder=reorder, wait_us=5000)
                self.run_pair('ib_write_bw', *PERFTEST)
                self.assertEqual(self.count('selective_naks_received'), 0)
                self.assertGreater(self.count('retransmitted_packets'), 0)
                if reorder[0] == 'selective':  # the server's device
                    self.assertGreater(self.count('selective_naks_sent'), 0)
                    self.assertGreater(self.count('sequence_naks_sent'), 0)
                self.daemon.stop()

    def test_ends_that_tolerate_agree_on_it_through_the_connection_manager(self):
        for reorder in (('tolerate', 'tolerate'), ('tolerate', 'selective'), ('tolerate', 'go_back_n')):
            with self.subTest(reorder=reorder):
                self.start('--loss', '1%', reorder=reorder, wait_us=5000)
                programs = self.start_rping(1000000)
                self.assertTrue(await_(lambda: [qp['state'] for qp in self.daemon.show('qps')] == ['RTS', 'RTS']))
                shown = {qp['device']: qp['selective_repeat'] for qp in self.daemon.show('qps')}
                agrees = reorder[1] != 'go_back_n'
                self.assertEqual(shown, {'roci0': agrees, 'roci1': agrees})
                if agrees:
                    self.assertTrue(await_(lambda: self.count('selective_naks_received') > 0))
                for program in programs:
                    self.assertIsNone(program.poll())
                    program.kill()
                self.daemon.stop()

    def test_queue_pairs_show_it(self):
        self.start('--reorder', '5%', reorder=('selective', 'go_back_n'))
        pair = Pair(self.daemon, DEVICES, ['ib_write_bw', '-x', '1', '-F', '-D', '2'])
        self.addCleanup(pair.kill)
        pair.connect()
        self.assertTrue(await_(lambda: len(self.daemon.show('qps')) == 2))
        shown = {qp['device']: qp['selective_repeat'] for qp in self.daemon.show('qps')}
        self.assertEqual(shown, {'roci0': True, 'roci1': False})
        self.assertRegex(self.roci('show', 'qps'), 'LOSS(.|\n)*selective')
        self.assertEqual(pair.result(), '')

    def test_the_setting_is_shown(self):
        self.start('--reorder', '5%')
        self.assertEqual([device['reorder'] for device in self.daemon.show('devices')], ['tolerate'] * 2)
        self.assertRegex(self.roci('show', 'devices'), 'REORDER(.|\n)*tolerate')


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
