#!/usr/bin/env python3
"""Devices that are unplugged and plugged in again while Debian's programs use them: `roci device`.

Usage: unplug_test.py ROCI ROCID PLUGIN LABORATORY [unittest arguments]
"""
import json
import pathlib
import shlex
import sys
import unittest

from harness import LIMIT_S, Daemon, Pair, Programs, await_

PROGRAMS, LABORATORY = None, None
ACROSS = ('roci0', 'roci1')
UNPLUG, PLUG = ('device', 'unplug'), ('device', 'plug')
ADDRESSES = {'roci0': '10.99.0.1', 'roci1': '10.99.0.2'}  # of a daemon without a configuration


def recipe(verb):
    """The command of docs/laboratory.md, without `roci`."""
    text = pathlib.Path(LABORATORY).read_text(encoding='utf-8')
    (line,) = [line for line in text.splitlines() if line.startswith(f'    roci device {verb} ')]
    return shlex.split(line)[1:]


class UnplugTest(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon(PROGRAMS)
        self.addCleanup(self.daemon.stop)

    def roci(self, *arguments, check=True):
        done = self.daemon.roci(*arguments)
        if check:
            self.assertEqual(done.returncode, 0, (arguments, done.stderr))
        return done

    def start(self, *command):
        program = self.daemon.start('stdbuf', '-oL', *command)
        self.addCleanup(program.communicate)
        self.addCleanup(program.kill)
        return program

    def output(self, *command):
        program = self.start(*command)
        return program.communicate(timeout=LIMIT_S)[0], program.returncode

    def names(self):
        """The devices that a program finds."""
        return {line.split()[0] for line in self.output('ibv_devices')[0].splitlines() if 'roci' in line}

    def state(self, device):
        (found,) = [each for each in self.daemon.show('devices') if each['name'] == device]
        return found['plugged'], found['link_up']

    def run_pair(self):
        pair = Pair(self.daemon, ACROSS, ['ibv_rc_pingpong', '-n', '10', '-g', '1'])
        self.addCleanup(pair.kill)
        self.assertEqual(pair.connect().result(), '')

    def test_an_unplugged_device_is_in_no_list_until_it_is_plugged_in(self):
        self.assertEqual(self.names(), {'roci0', 'roci1'})
        self.roci(*recipe('unplug'))
        self.assertEqual(self.names(), {'roci1'})
        self.assertEqual(self.state('roci0'), (False, False))
        self.assertNotEqual(self.output('ibv_devinfo', '-d', 'roci0')[1], 0)
        self.assertEqual(self.output('ibv_devinfo', '-d', 'roci1')[1], 0)
        self.assertNotIn('roci0', self.output('rdma', 'link')[0])
        self.assertIn('unplugged', self.roci('show', 'devices').stdout)
        self.roci(*recipe('plug'))
        self.assertEqual(self.names(), {'roci0', 'roci1'})
        self.assertEqual(self.state('roci0'), (True, True))
        self.assertIn('roci0', self.output('rdma', 'link')[0])
        self.run_pair()

    def test_programs_that_have_it_open_lose_it(self):
        watch = self.start('ibv_asyncwatch', '-d', 'roci0')
        self.assertIn('async event', watch.stdout.readline())
        done = json.loads(self.roci(*UNPLUG, 'roci0', '--json').stdout)
        self.assertEqual(done, {'device': 'roci0', 'state': 'unplugged', 'programs': 1})
        self.assertIn('IBV_EVENT_DEVICE_FATAL', watch.stdout.readline())
        self.assertTrue(await_(lambda: not self.daemon.show('apps')))
        # The program is stopped: it holds nothing that a device plugged in again could not have.
        self.roci(*PLUG, 'roci0')
        self.run_pair()

    def test_the_connection_manager_tells_of_the_removal(self):
        server = self.start('rping', '-s', '-v', '-a', ADDRESSES['roci0'])
        self.assertTrue(await_(lambda: any(each['state'] == 'listen' for each in self.daemon.show('connections'))))
        client = self.start('rping', '-c', '-v', '-a', ADDRESSES['roci0'], '-I', ADDRESSES['roci1'])
        self.assertIn('ping', client.stdout.readline())
        self.roci(*UNPLUG, 'roci0')
        self.assertIn('device removal', server.communicate(timeout=LIMIT_S)[0])
        client.kill()  # it may wait for the server's next message, which nothing ends
        self.assertTrue(await_(lambda: not self.daemon.show('connections')))
        self.roci(*PLUG, 'roci0')

    def test_listeners_on_all_addresses_outlast_it(self):
        server = self.start('ucmatose', '-c', '1')
        self.assertTrue(await_(lambda: any(each['state'] == 'listen' for each in self.daemon.show('connections'))))
        self.roci(*UNPLUG, 'roci0')
        text, status = self.output('ucmatose', '-s', ADDRESSES['roci0'], '-c', '1')
        self.assertNotEqual(status, 0, text)
        self.roci(*PLUG, 'roci0')
        text, status = self.output('ucmatose', '-s', ADDRESSES['roci0'], '-b', ADDRESSES['roci1'], '-c', '1')
        self.assertEqual(status, 0, text)
        self.assertEqual(server.wait(LIMIT_S), 0)

    def test_it_is_unplugged_again_and_again_under_traffic(self):
        for _ in range(10):
            pair = Pair(self.daemon, ACROSS, ['ib_write_bw', '-x', '1', '-F', '-s', '64', '-D', '30'])
            self.addCleanup(pair.kill)
            pair.connect()
            self.assertTrue(await_(lambda: all(qp['tx_packets'] > 0 for qp in self.daemon.show('qps'))))
            self.roci(*UNPLUG, 'roci1')
            pair.kill()
            self.assertTrue(await_(lambda: not self.daemon.show('apps')))
            self.roci(*PLUG, 'roci1')
        self.run_pair()
        for device in self.daemon.show('devices'):
            self.assertEqual((device['sessions'], device['qps']['used'], device['mrs']['used']), (0, 0, 0))

    def test_what_makes_no_sense_is_refused(self):
        for arguments, says in (((*UNPLUG, 'roci9'), 'no device roci9'), ((*PLUG, 'roci0'), 'plugged already'),
                                (('device', 'pull', 'roci0'), 'subcommand')):
            done = self.roci(*arguments, check=False)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertIn(says, done.stderr)
        self.roci(*UNPLUG, 'roci0')
        for arguments, says in (((*UNPLUG, 'roci0'), 'unplugged already'), (('link', 'up', 'roci0'), 'roci device plug roci0'),
                                (('event', 'roci0', 'gid_change'), 'roci device plug roci0')):
            done = self.roci(*arguments, check=False)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertIn(says, done.stderr)
        # Its configuration can be changed meanwhile.
        self.roci('addr', 'add', 'roci0', '10.99.0.77/24')
        self.roci(*PLUG, 'roci0')
        self.assertIn('10.99.0.77', json.dumps(self.daemon.show('devices')))


if __name__ == '__main__':
    PROGRAMS, LABORATORY = Programs(*sys.argv[1:4]), sys.argv[4]
    unittest.main(argv=sys.argv[:1] + sys.argv[5:], verbosity=2)
