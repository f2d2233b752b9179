#!/usr/bin/env python3
"""Addresses added and removed while programs use the devices: `roci addr`, the GID table, events, connections.

Usage: addr_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import errno
import json
import os
import re
import subprocess
import sys
import unittest

from harness import DEBIAN_PYTHON, LIMIT_S, Daemon, Programs, as_user, await_, ended_well

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = None
MOST_GIDS = 64
LINK_LOCAL = 'fe80::72:6fff:fe63:6900'  # of roci0's MAC


class AddrTest(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon(PROGRAMS)
        self.addCleanup(self.daemon.stop)

    def addr(self, *arguments, user=None):
        return subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'addr', *arguments], capture_output=True,
                              text=True, timeout=LIMIT_S, check=False, **as_user(user))

    def change(self, *arguments):
        done = self.addr(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return done.stdout

    def refused(self, *arguments):
        """The error message of a refused command."""
        before = self.gids('roci0'), self.gids('roci1')
        done = self.addr(*arguments)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual((self.gids('roci0'), self.gids('roci1')), before)
        return done.stderr

    def gids(self, device):
        """Its GIDs by index."""
        return [each['address'].partition('/')[0] for each in json.loads(self.addr('show', device, '--json').stdout)]

    def program_gids(self, device):
        """The GIDs as programs see them."""
        output, status = self.run_program('ibv_devinfo', '-v', '-d', device)
        self.assertEqual(status, 0, output)
        return re.findall(r'GID\[\s*\d+\]:\s*(\S+?),', output)

    def run_program(self, *command):
        process = self.daemon.start(*command)
        self.addCleanup(process.stdout.close)
        try:
            return process.communicate(timeout=LIMIT_S)[0], process.returncode
        finally:
            process.kill()

    def background(self, *command):
        process = self.daemon.start(*command)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_the_gid_table_follows_and_keeps_its_indices(self):
        first = self.gids('roci0')
        self.assertIn('is GID 3', self.change('add', 'roci0', '10.99.7.1/24'))
        self.assertIn('is GID 4', self.change('add', 'roci0', 'fd72:7::1/64'))
        self.assertEqual(self.gids('roci0'), first + ['10.99.7.1', 'fd72:7::1'])
        seen = self.program_gids('roci0')
        self.assertEqual((len(seen), seen[3], seen[4]), (5, '::ffff:10.99.7.1', 'fd72:7::1'))
        # Removal in the middle keeps the indices of the other entries.
        self.change('del', 'roci0', '10.99.0.1')
        self.assertEqual(self.gids('roci0'), [first[0], first[0], first[2], '10.99.7.1', 'fd72:7::1'])
        self.assertEqual(self.program_gids('roci0')[1:4], [LINK_LOCAL, seen[2], seen[3]])
        self.assertIn('is GID 1', self.change('add', 'roci0', '10.99.8.1/24'))
        # Removal at the end shortens the table.
        self.change('del', 'roci0', 'fd72:7::1/64')
        self.assertEqual(len(self.program_gids('roci0')), 4)

    def test_programs_get_events(self):
        watch = self.background('stdbuf', '-oL', 'ibv_asyncwatch', '-d', 'roci0')
        self.assertIn('roci0: async event FD', watch.stdout.readline())  # from here on it has the device open
        self.change('add', 'roci0', '10.99.7.1/24')
        self.change('del', 'roci0', '10.99.7.1')
        self.change('add', 'roci1', '10.99.7.2/24')  # another device: no event
        for _ in range(2):
            self.assertRegex(watch.stdout.readline(), r'event_type IBV_EVENT_GID_CHANGE \(18\), port 1')

    def test_cached_address_handles_follow_the_table(self):
        command = self.daemon.command(DEBIAN_PYTHON, os.path.join(HERE, 'short_lived_ahs.py'))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            self.addCleanup(program.kill)

            def make(index):
                program.stdin.write(f'{index}\n')
                program.stdin.flush()
                return program.stdout.readline().strip()

            self.change('add', 'roci0', '10.99.0.7/24')
            self.assertEqual([make(3), make(3), make(1)], ['made'] * 3)
            self.change('del', 'roci0', '10.99.0.7')
            self.assertEqual([make(3), make(1)], [str(errno.EINVAL), 'made'])
            self.change('add', 'roci0', '10.99.0.7/24')
            self.assertEqual(make(3), 'made')
            program.stdin.close()
            self.assertEqual(program.wait(timeout=LIMIT_S), 0)

    def test_listeners_on_all_addresses_follow_changes(self):
        server = self.background('rping', '-s', '-P')
        self.assertTrue(await_(lambda: any(each['state'] == 'listen' for each in self.daemon.show('connections'))))
        self.change('add', 'roci0', '10.99.7.1/24')
        self.change('add', 'roci1', '10.99.7.2/24')
        for server_address, own in (('10.99.7.2', '10.99.7.1'), ('10.99.0.2', '10.99.0.1')):
            output, status = self.run_program('rping', '-c', '-a', server_address, '-I', own, '-C', '5')
            self.assertTrue(ended_well(status, output), (status, output))
        self.change('del', 'roci1', '10.99.7.2')
        output, status = self.run_program('rping', '-c', '-a', '10.99.7.1', '-I', '10.99.7.2', '-C', '1')
        self.assertIn('Cannot assign requested address', output)
        output, status = self.run_program('rping', '-c', '-a', '10.99.0.2', '-I', '10.99.0.1', '-C', '5')
        self.assertTrue(ended_well(status, output), (status, output))
        self.assertIsNone(server.poll())

    def test_refusals_have_a_reason(self):
        for words, arguments in {
                'there is no device roci7': ('add', 'roci7', '10.99.7.1/24'),
                'not an IPv4 or IPv6 address': ('add', 'roci0', '10.99.7.1/33'),
                'the prefix length is missing, as in 10.99.7.1/24': ('add', 'roci0', '10.99.7.1'),
                'the prefix length is missing, as in fd72:7::1/64': ('add', 'roci0', 'fd72:7::1'),
                'the device has this address': ('add', 'roci0', '10.99.0.1/24'),
                'belongs to roci1 on the same wire': ('add', 'roci0', '10.99.0.2/24'),
                'not a unicast address': ('add', 'roci0', '239.1.2.3/24'),
                'a network or broadcast address': ('add', 'roci0', '10.99.7.0/24'),
                'the device does not have this address': ('del', 'roci0', '10.99.7.1'),
                'the link-local address cannot be removed': ('del', 'roci0', LINK_LOCAL),
        }.items():
            self.assertIn(words, self.refused(*arguments))

    def test_the_table_is_bounded(self):
        for number in range(len(self.gids('roci0')), MOST_GIDS):
            self.change('add', 'roci0', f'10.98.0.{number}/24')
        self.assertIn('the GID table is full', self.refused('add', 'roci0', '10.98.1.1/24'))
        self.assertEqual(len(self.program_gids('roci0')), MOST_GIDS)

    @unittest.skipUnless(os.geteuid() == 0, 'only root can become another user')
    def test_other_users_may_not(self):
        done = self.addr('add', 'roci0', '10.99.7.1/24', user='nobody')
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, 'may|ermission|user')
        self.assertNotIn('10.99.7.1', self.gids('roci0'))


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4], copied=True)
    try:
        unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
    finally:
        PROGRAMS.remove()
