#!/usr/bin/env python3
"""Exact faults while Debian's programs run: `roci fault`, and the commands of docs/laboratory.md.

Usage: fault_test.py ROCI ROCID PLUGIN LABORATORY [unittest arguments]
"""
import json
import os
import pathlib
import re
import shlex
import signal
import struct
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from harness import LIMIT_S, Daemon, Pair, Programs, await_, ended_well

PROGRAMS, LABORATORY = None, None
ACROSS = ('roci0', 'roci1')  # server, client
ADDRESSES = ('10.99.0.1', '10.99.0.2')
# Each message is acknowledged and reported, and timeouts are short.
SEND = ['ib_send_bw', '-x', '1', '-F', '-s', '8', '-Q', '1', '-u', '8']
RETRY_EXCEEDED, ACCESS_ERROR = 12, 10  # IBV_WC_RETRY_EXC_ERR, IBV_WC_REM_ACCESS_ERR


def recipes():
    """The faults, links and events of docs/laboratory.md, as lists of arguments. (check_test.py has the other commands.)"""
    text = pathlib.Path(LABORATORY).read_text(encoding='utf-8')
    return [shlex.split(line.strip())[1:] for line in text.splitlines() if line.startswith(('    roci fault ', '    roci link ', '    roci event '))]


class FaultTest(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon(PROGRAMS)
        self.addCleanup(self.daemon.stop)

    def roci(self, *arguments, check=True):
        done = self.daemon.roci(*arguments)
        if check:
            self.assertEqual(done.returncode, 0, (arguments, done.stderr))
        return done

    def recipe(self, *words):
        """Runs the command of the document that has these words, and returns its device."""
        (command,) = [each for each in recipes() if set(words) <= set(each)]
        self.roci(*command)
        return command[2]

    def counters(self, device, number=0):
        return json.loads(self.roci('fault', 'list', device, '--json').stdout)[number]['counters']

    def add_many(self, device, faults):
        """Adds them by the management socket. Returns the last answer."""
        answer = None
        for fault in faults:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as manage:
                manage.connect(os.path.join(self.daemon.runtime_dir, 'manage.sock'))
                manage.sendall(json.dumps({'command': 'fault', 'device': device, 'add': fault}).encode() + b'\n')
                answer = json.loads(manage.makefile().readline())
        return answer

    def run_pair(self, *command):
        pair = Pair(self.daemon, ACROSS, list(command))
        self.addCleanup(pair.kill)
        self.assertEqual(pair.connect().result(), '', command)

    def client_of(self, *command):
        """What the client prints before it fails."""
        pair = Pair(self.daemon, ACROSS, list(command))
        self.addCleanup(pair.kill)
        pair.connect()
        output, _ = pair.client.communicate(timeout=LIMIT_S)
        self.assertNotEqual(pair.client.returncode, 0, output)
        return output

    def total(self, name):
        """The sum of a counter over all devices."""
        return sum(device['counters'].get(name, 0) for device in self.daemon.show('counters'))

    def test_retry_exceeded_at_exactly_the_thousandth_message(self):
        device = self.recipe('+999')
        output = self.client_of(*SEND, '-n', '5000')
        self.assertIn(f'Failed status {RETRY_EXCEEDED}', output)
        self.assertRegex(output, r'ccnt=999\b')
        self.assertGreater(self.counters(device)['hit'], 1)

    def test_an_acknowledgement_becomes_a_nak(self):
        device = self.recipe('aeth.syndrome=nak_access')
        self.assertIn(f'Failed status {ACCESS_ERROR}', self.client_of(*SEND, '-n', '2000'))
        self.assertEqual(self.counters(device), {'matched': self.counters(device)['matched'], 'hit': 1, 'not_there': 0, 'no_room': 0,
                                                 'untracked': 0})

    def test_a_slow_receiver(self):
        device = self.recipe('aeth.syndrome=0x24')
        self.run_pair(*SEND, '-n', '200')
        self.assertEqual(self.counters(device)['hit'], 20)

    def test_one_packet_is_lost_once(self):
        device = self.recipe('--pass', '*SEND*')
        self.run_pair(*SEND, '-n', '200')
        counters = self.counters(device)
        self.assertEqual((counters['matched'], counters['hit']), (1, 1))

    def test_a_late_packet(self):
        device = self.recipe('--reorder')
        self.run_pair('ib_send_bw', '-x', '1', '-F', '-s', '65536', '-n', '20')
        counters = self.counters(device)
        self.assertEqual((counters['hit'], counters['no_room']), (1, 0))

    def test_damage_with_and_without_a_right_icrc(self):
        device = self.recipe('payload:0', '5')
        self.run_pair('ibv_rc_pingpong', '-g', '1', '-c', '-n', '20')
        self.assertEqual(self.counters(device)['hit'], 1)
        self.roci('fault', 'del', device, 'all')
        self.recipe('payload:0', '6')
        # Programs check the last message only.
        pair = Pair(self.daemon, ACROSS, ['ibv_rc_pingpong', '-g', '1', '-c', '-n', '6'])
        self.addCleanup(pair.kill)
        self.assertIn('invalid data', pair.connect().result())

    def test_stale_duplicates(self):
        device = self.recipe('--duplicate')
        self.run_pair(*SEND, '-n', '200')
        self.assertGreaterEqual(self.counters(device)['hit'], 20)

    def test_faults_of_the_configuration_are_those_of_the_command(self):
        devices = ''.join(f'[[device]]\nname = "{name}"\nwire = "w"\naddresses = ["{address}/24"]\n%s'
                          for name, address in zip(ACROSS, ADDRESSES))
        faults = ('[[device.fault]]\nverb = "reg_mr"\nerrno = "ENOMEM"\nnth = 2\n'
                  '[[device.fault]]\nset = ["aeth.syndrome=nak_access"]\nopcode = "RC_ACKNOWLEDGE"\nnth = 3\nicrc = "fix"\n'
                  '[[device.fault]]\ncompletion = "*"\nprogram = "rping"\ndelay = "1.5ms"\nchance = "1%"\nseed = 7\n')
        daemon = Daemon(PROGRAMS, config='[[wire]]\nname = "w"\n' + devices % (faults, ''))
        self.addCleanup(daemon.stop)
        self.daemon = daemon
        first = json.loads(self.roci('fault', 'list', 'roci0', '--json').stdout)
        self.roci('fault', 'add', 'roci1', '--verb', 'reg_mr', '--errno', 'ENOMEM', '--nth', '2')
        self.roci('fault', 'add', 'roci1', '--set', 'aeth.syndrome=nak_access', '--opcode', 'RC_ACKNOWLEDGE', '--nth', '3', '--icrc', 'fix')
        second = json.loads(self.roci('fault', 'add', 'roci1', '--completion', '*', '--program', 'rping', '--delay', '1.5ms', '--chance', '1%',
                                      '--seed', '7', '--json').stdout)
        self.assertEqual(len(first), 3)
        self.assertEqual(first, second)
        self.roci('fault', 'del', 'roci1', 'all')
        self.roci('fault', 'del', 'roci0', '1')
        self.assertIn(f'Failed status {ACCESS_ERROR}', self.client_of(*SEND, '-n', '2000'))
        self.assertEqual([fault['counters']['hit'] for fault in json.loads(self.roci('fault', 'list', 'roci0', '--json').stdout)], [1, 0])

    def test_contradictory_faults_of_the_configuration_are_refused(self):
        head = '[[wire]]\nname = "w"\n[[device]]\nname = "a"\nwire = "w"\n[[device.fault]]\ndrop = true\n[[device.fault]]\n'
        for lines, says in (('nth = 1', 'the fault does nothing'),
                            ('delay = "1us"\nreorder = 1', 'a packet waits either for a time ("delay") or for others ("reorder")'),
                            ('verb = "reg_mrs"\nerrno = "ENOMEM"', 'reg_mr'), ('cm = "rek"\ndrop = true', 'the nearest is req')):
            with self.subTest(lines=lines), tempfile.NamedTemporaryFile('w', suffix='.toml') as file:
                file.write(head + lines + '\n')
                file.flush()
                for extra in [], ['--check-config']:
                    done = subprocess.run([PROGRAMS.rocid, '--runtime-dir', self.daemon.runtime_dir + '.other', '--config', file.name, *extra],
                                          capture_output=True, text=True, timeout=LIMIT_S, check=False)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(f'{file.name}: device[0].fault[1]: ', done.stderr)
                    self.assertIn(says, done.stderr)

    def test_an_empty_value_is_refused(self):
        for option in ('--program', '--peer', '--cm', '--qp', '--opcode', '--verb', '--nth'):
            done = self.roci('fault', 'add', 'roci0', '--drop', option, '', check=False)
            self.assertEqual(done.returncode, 2, option)
            self.assertIn(option, done.stderr)
        self.assertEqual(self.roci('fault', 'list', 'roci0').stdout, 'none\n')

    def test_faults_are_numbered_listed_and_deleted(self):
        self.roci('fault', 'add', 'roci0', '--drop', '--opcode', 'RC_SEND_ONLY', '--nth', '1000')
        listed = self.roci('fault', 'add', 'roci0', '--ecn', '--chance', '1%', '--direction', 'in').stdout
        self.assertEqual(listed, '1: out drop=yes nth=1000 opcodes=4 times=1\n  matched 0\n2: in chance=0.01 ecn=yes\n  matched 0\n')
        self.assertEqual(self.roci('fault', 'list', 'roci1').stdout, 'none\n')
        self.assertEqual(self.roci('fault', 'del', 'roci0', '1').stdout, '2: in chance=0.01 ecn=yes\n  matched 0\n')
        done = self.roci('fault', 'del', 'roci0', '1', check=False)
        self.assertEqual((done.returncode, done.stderr), (1, 'roci: roci0 has no fault 1\n'))
        self.assertEqual(self.roci('fault', 'del', 'roci0', 'all').stdout, 'none\n')
        answer = self.add_many('roci0', [{'ecn': True}] * 1024)
        self.assertEqual(len(answer['result']), 1024)
        done = self.roci('fault', 'add', 'roci0', '--ecn', check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('1024 faults, the most possible', done.stderr)
        self.assertEqual(self.roci('fault', 'del', 'roci0', 'all').stdout, 'none\n')

    def test_wrong_words_get_the_nearest_right_one(self):
        for arguments, status, says in (
                (['add', 'roci9', '--drop'], 1, 'no device roci9'), (['add', 'roci0'], 1, 'does nothing'),
                (['add', 'roci0', '--set', 'bth.pns+=1'], 1, 'nearest is bth.psn'), (['add', 'roci0', '--drop', '--nth', '0'], 1, '1 or more'),
                (['add', 'roci0', '--drop', '--nth', 'x'], 2, 'x is not a number'), (['add', 'roci0', '--drop', '--psn', '+'], 2, 'PSN'),
                (['add', 'roci\udcff', '--drop'], 1, 'no device'), (['add', 'roci0', '--drop', '--for', '0s'], 2, 'not a time'),
                (['add', 'roci0', '--drop', '--after', '86401s'], 2, 'not a time'), (['add', 'roci0', '--delay', '6s'], 2, '5s'),
                (['add', 'roci0', '--drop', '--opcode', 'RC_SENT'], 2, 'RC_SENT'), (['del', 'roci0', 'each'], 2, 'each'), (['list'], 2, 'DEV'),
                (['add', 'roci0', '--verb', 'reg_mt', '--errno', 'EIO'], 1, 'nearest is reg_mr'),
                (['add', 'roci0', '--verb', 'reg_mr', '--drop'], 1, 'no "drop"'), (['add', 'roci0', '--cm', 'rpe', '--drop'], 1, 'nearest is re'),
                (['add', 'roci0', '--errno', 'EIO'], 1, 'no "errno"'),
                (['add', 'roci0', '--completion', 'read', '--status', 'rem_op_err'], 1, 'nearest is'),
                (['add', 'roci0', '--completion', 'send', '--status', 'rem_err'], 1, 'nearest is rem_op_err'),
                (['add', 'roci0', '--completion', 'send'], 1, '"status"'), (['add', 'roci0', '--verb', 'reg_mr', '--delay', '21s'], 2, '20s'),
                (['add', 'roci0', '--verb', 'reg_mr', '--errno', 'EIO', '--program', 'a_very_long_name'], 1, '15 bytes'),
                (['add', 'roci0', '--inject', 'nak_acess'], 1, 'nearest is nak_access'),
                (['add', 'roci0', '--cm', 'req', '--reject', 'stale'], 1, 'nearest is stale_conn'),
                (['add', 'roci0', '--reject', '8'], 1, '"cm"'), (['add', 'roci0', '--drop', '--peer', 'nobody'], 1, 'address'),
                (['add', 'roci0', '--verb', 'rdma_conect', '--errno', 'EIO'], 1, 'nearest is rdma_connect'),
                (['add', 'roci0', '--verb', 'rdma_connect', '--delay', '1s'], 1, 'can only fail'),
                (['add', 'roci0', '--verb', 'query_device', '--limit', 'max_pq=1'], 1, 'nearest is max_'),
                (['add', 'roci0', '--completion', 'send', '--overflow', '--delay', '1s'], 1, 'nothing else'),
                (['add', 'roci0', '--completion', 'send', '--vendor-error', '1'], 1, '"status"')):
            done = self.roci('fault', *arguments, check=False)
            self.assertIn(says, done.stderr, arguments)
            self.assertEqual(done.returncode, status, arguments)
        fields = self.roci('fault', 'add', 'roci0', '--set', 'help').stdout
        self.assertRegex(fields, re.compile(r'^aeth\.syndrome +8 bits$', re.MULTILINE))

    def test_a_fault_of_a_queue_pair_is_deleted_with_it(self):
        pair = Pair(self.daemon, ACROSS, ['ib_send_lat', '-x', '1', '-F', '-D', '20', '-s', '8'])
        self.addCleanup(pair.kill)
        pair.connect()
        self.assertTrue(await_(lambda: any(qp['tx_packets'] > 100 for qp in self.daemon.show('qps') if qp['device'] == 'roci1')))
        (qp,) = [qp for qp in self.daemon.show('qps') if qp['device'] == 'roci1' and qp['tx_packets'] > 100]
        self.roci('fault', 'add', 'roci1', '--delay', '1us', '--qp', str(qp['qpn']))
        self.assertTrue(await_(lambda: self.counters('roci1')['hit'] > 10))
        pair.kill()
        self.assertTrue(await_(lambda: self.roci('fault', 'list', 'roci1').stdout == 'none\n'))

    def port(self, device):
        return next(port for port in self.daemon.show('ports') if port['device'] == device)

    def test_a_link_that_flaps(self):
        watch = self.daemon.start('stdbuf', '-oL', 'ibv_asyncwatch', '-d', 'roci1')
        self.addCleanup(watch.communicate)
        self.addCleanup(watch.kill)
        self.assertIn('async event', watch.stdout.readline())
        self.recipe('flap')
        self.assertIn('IBV_EVENT_PORT_ERR', watch.stdout.readline())
        self.assertEqual(self.port('roci1')['state'], 'down')
        self.assertEqual(self.port('roci0')['state'], 'active')
        self.assertIn('IBV_EVENT_PORT_ACTIVE', watch.stdout.readline())
        self.assertEqual(self.port('roci1')['state'], 'active')
        self.run_pair(*SEND, '-n', '10')

    def test_queue_pairs_outlast_a_link_that_is_down_for_a_short_time(self):
        pair = Pair(self.daemon, ACROSS, ['ib_send_bw', '-x', '1', '-F', '-s', '64', '-n', '2000000', '-u', '18'])
        self.addCleanup(pair.kill)
        pair.connect()
        self.assertTrue(await_(lambda: self.port('roci1')['counters']['tx_roce_packets'] > 1000))
        for device in ACROSS:
            self.assertEqual(self.roci('link', 'down', device).stdout, f'{device}: link down\n')
        lost = self.port('roci1')['counters']['tx_link_down'] + self.port('roci0')['counters']['rx_link_down']
        stands = self.port('roci0')['counters']['rx_roce_packets']
        self.assertTrue(await_(lambda: self.port('roci1')['counters']['tx_link_down'] +
                               self.port('roci0')['counters']['rx_link_down'] > lost))
        self.assertEqual(self.port('roci0')['counters']['rx_roce_packets'], stands)
        for device in ACROSS:
            self.assertEqual(self.roci('link', 'up', device).stdout, f'{device}: link active\n')
        self.assertEqual(pair.result(120), '')

    def test_links_are_set_with_sense_only(self):
        for arguments, says in ((['down', 'roci9'], 'no device roci9'), (['sideways', 'roci0'], 'subcommand is required'),
                                (['down', 'roci0', '--for', '3601s'], '3600s'), (['up', 'roci0', '--for', '1s'], '--for')):
            done = self.roci('link', *arguments, check=False)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertIn(says, done.stderr)
        self.assertEqual(json.loads(self.roci('link', 'down', 'roci0', '--json').stdout), {'device': 'roci0', 'state': 'down'})
        # A later command replaces the time of an earlier one.
        self.roci('link', 'down', 'roci0', '--for', '1ms')
        self.assertTrue(await_(lambda: self.port('roci0')['state'] == 'active'))

    def test_a_completion_reports_an_error(self):
        device = self.recipe('--completion', '--status')
        output = self.client_of(*SEND, '-n', '5000')
        self.assertIn('Failed status 11', output)
        self.assertRegex(output, r'ccnt=99\b')
        self.assertEqual(self.counters(device), {'matched': 100, 'hit': 1})
        self.roci('fault', 'del', device, 'all')
        # A receive; the client would wait for the server without end.
        self.roci('fault', 'add', 'roci0', '--completion', 'recv', '--status', 'loc_prot_err', '--nth', '7')
        pair = Pair(self.daemon, ACROSS, ['ibv_rc_pingpong', '-g', '1', '-n', '20'])
        self.addCleanup(pair.kill)
        output, _ = pair.connect().server.communicate(timeout=LIMIT_S)
        self.assertIn('Failed status local protection error (4)', output)
        self.assertEqual(self.counters('roci0')['hit'], 1)

    def test_a_call_fails(self):
        device = self.recipe('--errno', 'ENOMEM')
        output = self.client_of(*SEND, '-n', '10')
        self.assertIn('allocate MR', output)
        self.assertEqual(self.counters(device)['hit'], 1)
        self.run_pair(*SEND, '-n', '10')
        self.roci('fault', 'del', device, 'all')
        self.roci('fault', 'add', device, '--verb', 'open_device', '--errno', '13', '--program', 'ibv_devinfo')
        done = self.daemon.start('ibv_devinfo', '-d', device)
        self.assertIn('Failed to open device', done.communicate(timeout=LIMIT_S)[0])
        self.assertNotEqual(done.returncode, 0)
        self.run_pair(*SEND, '-n', '10')

    def test_a_call_takes_longer(self):
        device = self.recipe('--verb', '--delay')
        began = time.monotonic()
        self.run_pair(*SEND, '-n', '10')
        self.assertGreater(time.monotonic() - began, 0.5)
        self.assertEqual(self.counters(device)['hit'], 1)
        # A program that is killed while its call is delayed leaves nothing.
        self.roci('fault', 'add', device, '--verb', 'query_device', '--delay', '20s')
        waits = self.daemon.start('ibv_devinfo', '-d', device)
        self.assertTrue(await_(lambda: json.loads(self.roci('fault', 'list', device, '--json').stdout)[1]['counters']['hit'] == 1))
        waits.kill()
        waits.communicate(timeout=LIMIT_S)
        self.assertTrue(await_(lambda: not self.daemon.show('apps')))

    def test_a_lost_message_of_the_connection_manager_is_repeated(self):
        device = self.recipe('--cm', '--drop')
        server = self.daemon.start('rping', '-s', '-a', ADDRESSES[0], '-C', '3')
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        self.assertTrue(await_(lambda: any(each['state'] == 'listen' for each in self.daemon.show('connections'))))
        client = self.daemon.start('rping', '-c', '-a', ADDRESSES[0], '-I', ADDRESSES[1], '-C', '3', '-v')
        self.addCleanup(client.kill)
        output, _ = client.communicate(timeout=LIMIT_S)
        self.assertTrue(ended_well(client.returncode, output), (client.returncode, output))
        self.assertEqual((self.counters(device)['hit'], self.counters(device)['matched'] >= 2), (1, True))

    def test_a_connection_is_rejected_with_a_chosen_reason(self):
        device = self.recipe('--reject')
        client = self.daemon.start('ucmatose', '-s', ADDRESSES[0], '-b', ADDRESSES[1])
        self.addCleanup(client.kill)
        self.assertIn('RDMA_CM_EVENT_REJECTED, error: 10', client.communicate(timeout=LIMIT_S)[0])
        self.assertEqual(self.counters(device)['hit'], 1)
        # The answer of a server: it is told so.
        self.roci('fault', 'del', device, 'all')
        self.roci('fault', 'add', 'roci0', '--cm', 'rep', '--reject', '4')
        server = self.daemon.start('ucmatose', '-b', ADDRESSES[0])
        self.addCleanup(server.kill)
        self.assertTrue(await_(lambda: any(each['state'] == 'listen' for each in self.daemon.show('connections'))))
        client = self.daemon.start('ucmatose', '-s', ADDRESSES[0], '-b', ADDRESSES[1])
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        self.assertIn('RDMA_CM_EVENT_REJECTED, error: 4', server.communicate(timeout=LIMIT_S)[0])

    def test_a_connection_is_ended_by_a_forged_message(self):
        self.roci('fault', 'add', 'roci0', '--cm', 'rep', '--inject', 'dreq', '--times', '1')
        server = self.daemon.start('ucmatose', '-b', ADDRESSES[0])
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        self.assertTrue(await_(lambda: any(each['state'] == 'listen' for each in self.daemon.show('connections'))))
        client = self.daemon.start('ucmatose', '-s', ADDRESSES[0], '-b', ADDRESSES[1])
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        self.assertTrue(await_(lambda: self.counters('roci0')['hit'] == 1))
        self.assertEqual(self.counters('roci0')['not_there'], 0)
        # The server takes the DREQ, so that it does not expect the RTU.
        (device,) = [each for each in self.daemon.show('counters') if each['device'] == 'roci0']
        (reasons,) = [each for each in device.values() if isinstance(each, dict) and 'unknown_connection' in each]
        self.assertEqual(reasons['taken'], 2, reasons)

    def test_addresses_and_routes_are_refused(self):
        self.recipe('rdma_resolve_addr')
        for event in ('RDMA_CM_EVENT_ADDR_ERROR, error: -113', 'RDMA_CM_EVENT_ROUTE_ERROR, error: -22'):
            client = self.daemon.start('ucmatose', '-s', ADDRESSES[0], '-b', ADDRESSES[1])
            self.addCleanup(client.kill)
            self.assertIn(event, client.communicate(timeout=LIMIT_S)[0])
            self.assertEqual(self.counters('roci1')['hit'], 1)
            self.roci('fault', 'del', 'roci1', 'all')
            self.roci('fault', 'add', 'roci1', '--verb', 'rdma_resolve_route', '--errno', 'EINVAL')

    def test_an_injected_nak(self):
        device = self.recipe('nak_access', '--inject')
        self.assertIn(f'Failed status {ACCESS_ERROR}', self.client_of(*SEND, '-n', '2000'))
        self.assertEqual((self.counters(device)['hit'], self.counters(device)['not_there']), (1, 0))

    def test_an_injected_stale_packet(self):
        device = self.recipe('stale')
        self.run_pair(*SEND, '-n', '200')
        self.assertEqual((self.counters(device)['hit'], self.counters(device)['not_there']), (1, 0))

    def test_a_recorded_frame_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'run.pcapng')
            command = [PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'capture', 'roci1', '--opcode', 'RC_SEND_ONLY', '-w', path]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as capture:
                self.assertTrue(await_(lambda: os.path.exists(path) and os.path.getsize(path) > 0))
                self.run_pair(*SEND, '-n', '20')
                capture.send_signal(signal.SIGINT)
                capture.communicate(timeout=LIMIT_S)
            (recipe,) = [each for each in recipes() if '--replay' in each]
            self.roci(*[os.path.join(folder, word) if word.startswith('run.pcapng') else word for word in recipe])
            self.run_pair(*SEND, '-n', '100')
            self.assertEqual((self.counters('roci1')['hit'], self.counters('roci1')['not_there']), (1, 0))
            with open(os.path.join(folder, 'jumbo.pcap'), 'wb') as jumbo:
                jumbo.write(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65536, 1) + struct.pack('<IIII', 1, 0, 9000, 9000) +
                            bytes(9000))
            for word, says in (('run.pcapng', 'FILE:N'), ('run.pcapng:0', 'FILE:N'), ('run.pcapng:99999', 'no frame 99999'), ('none:1', 'No such file'),
                               ('jumbo.pcap:1', 'has 9000 bytes; one of 14 to 4352')):
                done = self.roci('fault', 'add', 'roci1', '--replay', os.path.join(folder, word), check=False)
                self.assertEqual(done.returncode, 2)
                self.assertIn(says, done.stderr)

    def test_the_first_queue_pair_of_a_program(self):
        device = self.recipe('--created')
        self.run_pair('ib_write_bw', '-x', '1', '-F', '-n', '50')
        self.assertEqual(self.counters(device)['matched'], 0)
        self.run_pair(*SEND, '-n', '200')
        self.assertTrue(await_(lambda: self.roci('fault', 'list', device).stdout == 'none\n'), 'deleted with the queue pair')
        # By process number; of all its queue pairs.
        pair = Pair(self.daemon, ACROSS, ['ib_send_lat', '-x', '1', '-F', '-D', '20', '-s', '8'])
        self.addCleanup(pair.kill)
        pair.connect()

        def apps():
            return [each for each in self.daemon.show('apps') if each['device'] == 'roci1']

        self.assertTrue(await_(apps))
        (app,) = apps()
        self.roci('fault', 'add', 'roci1', '--delay', '1us', '--program', str(app['pid']))
        self.roci('fault', 'add', 'roci1', '--drop', '--program', '4194303')
        self.assertTrue(await_(lambda: self.counters('roci1')['hit'] > 10))
        self.assertEqual(self.counters('roci1', 1)['matched'], 0)

    def test_a_completion_is_late_or_has_no_event_or_does_not_fit(self):
        late, lost, full = (each for each in recipes() if '--completion' in each and '--status' not in each)
        self.roci(*late)
        began = time.monotonic()
        self.run_pair(*SEND, '-n', '100')
        self.assertGreater(time.monotonic() - began, 0.3)
        self.assertEqual(self.counters('roci1')['hit'], 1)
        self.roci('fault', 'del', 'roci1', 'all')
        self.roci(*lost)
        pair = Pair(self.daemon, ACROSS, ['ibv_rc_pingpong', '-g', '1', '-e', '-n', '100'])
        self.addCleanup(pair.kill)
        pair.connect()
        self.assertTrue(await_(lambda: self.counters('roci0')['hit'] == 1))
        self.assertEqual([cq['comp_events'] for cq in self.daemon.show('cqs') if cq['device'] == 'roci0'], [0])
        pair.kill()
        self.roci('fault', 'del', 'roci0', 'all')
        self.roci(*full)
        pair = Pair(self.daemon, ACROSS, [*SEND, '-n', '1000'])
        self.addCleanup(pair.kill)
        pair.connect()
        self.assertTrue(await_(lambda: any(cq['overflowed'] for cq in self.daemon.show('cqs') if cq['device'] == 'roci1')))
        self.assertEqual(self.counters('roci1')['hit'], 1)

    def test_a_vendor_error(self):
        self.roci('fault', 'add', 'roci1', '--completion', 'send', '--status', 'rem_op_err', '--vendor-error', '0x77', '--nth', '10')
        self.assertRegex(self.client_of(*SEND, '-n', '100'), r'Failed status 11.*0x77')

    def test_smaller_limits(self):
        device = self.recipe('--limit')
        output, _ = self.daemon.start('ibv_devinfo', '-v', '-d', device).communicate(timeout=LIMIT_S)
        self.assertRegex(output, r'max_qp:\s+16\n')
        self.assertRegex(output, r'max_cqe:\s+255\n')

    def test_every_command_of_the_document_is_accepted(self):
        commands = [each for each in recipes() if '--replay' not in each]  # it needs a capture
        self.assertGreater(len(commands), 10)
        for command in commands:
            self.roci(*command)


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    LABORATORY = sys.argv[4]
    unittest.main(argv=[sys.argv[0]] + sys.argv[5:])
