#!/usr/bin/env python3
"""Asynchronous events on demand: `roci event` while a program waits for them.

Usage: event_test.py ROCI ROCID PLUGIN EVENT_PROBE [unittest arguments]
"""
import json
import re
import socket
import subprocess
import sys
import unittest

from harness import LIMIT_S, Daemon, Programs, await_

PROGRAMS, PROBE = None, None
DEVICE = 'roci0'


class EventTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(PROGRAMS)
        cls.addClassCleanup(cls.daemon.stop)

    def event(self, *arguments):
        return subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'event', DEVICE, *arguments], capture_output=True,
                              text=True, timeout=LIMIT_S, check=False)

    def probe(self, count):
        """A program that awaits so many events, and the numbers of its queue pairs: without and with SRQ."""
        probe = self.daemon.start(PROBE, DEVICE, str(count))
        self.addCleanup(probe.communicate)
        self.addCleanup(probe.kill)
        word, *numbers = probe.stdout.readline().split()
        self.assertEqual(word, 'ready')
        return probe, numbers

    def handle(self, what):
        (only,) = self.daemon.show(what)
        return str(only['handle'])

    def ends_well(self, probe):
        self.assertEqual(probe.stdout.readline(), 'destroyed\n')
        self.assertEqual(probe.wait(LIMIT_S), 0)
        self.assertTrue(await_(lambda: not self.daemon.show('apps')))

    def expect(self, probe, arguments, event_of, states=('not ERR', 'not ERR')):
        done = self.event(*arguments)
        self.assertEqual((done.returncode, done.stdout), (0, f'{DEVICE}: {arguments[0]} in 1 program\n'), done.stderr)
        self.assertEqual(probe.stdout.readline(), f'{event_of}; qp {states[0]}, qp with srq {states[1]}\n')

    def test_the_help_lists_events_that_the_daemon_knows(self):
        text = subprocess.run([PROGRAMS.roci, 'event', '--help'], capture_output=True, text=True, check=True).stdout
        rows = re.findall(r'^ {4}([a-z_]+(?:, [a-z_]+)*)(?: {2}.*)?$', text.split('one of these:')[1].split('Examples:')[0], re.MULTILINE)
        names = [name for row in rows for name in row.split(', ')]
        self.assertEqual((len(names), len(set(names))), (20, 20))
        for name in names:
            # No event has this object: each is refused for it, not for its name.
            self.assertRegex(self.event(name, '--qp', '16777215').stderr, 'no program has qp|has no "qp"', name)

    def test_events_of_queue_pairs(self):
        only_events = {'comm_est': 'communication established', 'sq_drained': 'SQ drained', 'path_mig': 'path migration successful',
                       'path_mig_err': 'path migration failed', 'qp_last_wqe_reached': 'last WQE reached'}
        failures = {'qp_fatal': 'QP fatal', 'qp_req_err': 'QP invalid request', 'qp_access_err': 'QP access error'}
        names = {}
        for line in subprocess.run([PROGRAMS.roci, 'event', '--help'], capture_output=True, text=True, check=True).stdout.splitlines():
            names.update({word.strip(','): line for word in line.split()})
        probe, (plain, with_srq) = self.probe(len(only_events) + 1)
        for name in only_events:
            self.assertIn(name, names)
            done = self.event(name, '--qp', plain)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(probe.stdout.readline(), ' of qp; qp not ERR, qp with srq not ERR\n$')
        done = self.event('qp_fatal', '--qp', with_srq)
        self.assertRegex(probe.stdout.readline(), ' of qp with srq; qp not ERR, qp with srq ERR\n$')
        self.ends_well(probe)
        for name in failures:
            probe, (plain, _) = self.probe(1)
            self.assertEqual(self.event(name, '--qp', plain).returncode, 0)
            self.assertRegex(probe.stdout.readline(), ' of qp; qp ERR, qp with srq not ERR\n$')
            self.ends_well(probe)

    def test_a_completion_queue_overflows(self):
        probe, _ = self.probe(3)
        done = self.event('cq_err', '--cq', self.handle('cqs'))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [probe.stdout.readline() for _ in range(3)]
        self.assertEqual(sum(' of cq;' in line for line in lines), 1, lines)
        self.assertEqual(sum(' of qp' in line for line in lines), 2, lines)
        self.assertTrue(lines[-1].endswith('qp ERR, qp with srq ERR\n'), lines)
        self.ends_well(probe)

    def test_events_of_shared_receive_queues(self):
        probe, _ = self.probe(2)
        for name in ('srq_limit_reached', 'srq_err'):
            done = self.event(name, '--srq', self.handle('srqs'))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(probe.stdout.readline(), ' of srq; ')
        self.ends_well(probe)

    def test_events_of_the_port(self):
        names = ['gid_change', 'pkey_change', 'sm_change', 'lid_change', 'client_reregister', 'port_err', 'port_active']
        probe, _ = self.probe(len(names))
        for name in names:
            done = self.event(name)
            self.assertEqual((done.returncode, done.stdout), (0, f'{DEVICE}: {name} in 1 program\n'), done.stderr)
            self.assertRegex(probe.stdout.readline(), ' of port; qp not ERR')
            state = next(port['state'] for port in self.daemon.show('ports') if port['device'] == DEVICE)
            self.assertEqual(state, 'down' if name == 'port_err' else 'active')
        self.ends_well(probe)

    def test_a_fatal_device_is_dead_until_it_is_opened_again(self):
        probe, _ = self.probe(1)
        done = self.event('device_fatal')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(probe.stdout.readline(), ' of device; ')
        self.assertEqual(probe.stdout.readline(), 'open again\n')
        self.assertEqual(probe.wait(LIMIT_S), 0)

    def test_what_names_nothing_is_refused(self):
        one, _ = self.probe(1)
        two, _ = self.probe(1)
        handles = {item['handle'] for item in self.daemon.show('srqs')}
        for arguments, says in ((['qp_fatel'], 'nearest is qp_fatal'), (['qp_fatal'], 'needs its object: "qp"'),
                                (['qp_fatal', '--qp', '16777215'], 'no program has qp 16777215'), (['cq_err', '--qp', '1'], 'no "qp"'),
                                (['wq_fatal', '--wq', '16777215'], 'no program has wq'), (['port_active'], 'is up already'),
                                (['gid_change', '--pid', '1'], 'no "pid"'), (['qp_fatal', '--qp', 'x'], 'not a number')):
            done = self.event(*arguments)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertIn(says, done.stderr)
        if len(handles) == 1:
            done = self.event('srq_limit_reached', '--srq', str(handles.pop()))
            self.assertIn('--pid', done.stderr)
        srqs = self.daemon.show('srqs')
        done = self.event('srq_limit_reached', '--srq', str(srqs[0]['handle']), '--pid', str(srqs[0]['pid']), '--json')
        self.assertEqual(json.loads(done.stdout), {'device': DEVICE, 'event': 'srq_limit_reached', 'programs': 1})
        lines = [probe for probe in (one, two) if probe.pid == srqs[0]['pid']]
        for probe in lines:
            self.assertRegex(probe.stdout.readline(), ' of srq; ')


    def ask(self, request):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(LIMIT_S)
            client.connect(f'{self.daemon.runtime_dir}/manage.sock')
            client.sendall(json.dumps(request).encode() + b'\n')
            return json.loads(client.makefile().readline())

    def test_values_of_wrong_types_are_refused(self):
        right = {'command': 'event', 'device': DEVICE, 'event': 'qp_fatal', 'qp': 1, 'pid': 1}
        fault = {'command': 'fault', 'device': DEVICE}
        adds = [{'verb': 'reg_mr', 'errno': 'EIO', 'program': 'a', 'delay_ns': 1, 'nth': 2}, {'completion': 'send', 'status': 'fatal_err', 'qps': [1]},
                {'cm': 'req', 'drop': True}]
        requests = [(right, key) for key in right if key != 'command']
        for request, key in requests:
            for wrong in (None, True, -1, 1.5, 2 ** 64, '', [], {}, ['qp_fatal']):
                self.assertFalse(self.ask({**request, key: wrong})['ok'], (key, wrong))
        for add in adds:
            for key in add:
                for wrong in (None, -1, 1.5, 2 ** 64, '', {}, ['x']):
                    self.assertFalse(self.ask({**fault, 'add': {**add, key: wrong}})['ok'], (key, wrong))
        self.assertEqual(self.ask(fault), {'ok': True, 'result': []})


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    PROBE = sys.argv[4]
    unittest.main(argv=[sys.argv[0]] + sys.argv[5:])
