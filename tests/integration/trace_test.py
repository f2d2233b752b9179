#!/usr/bin/env python3
"""What queue pairs do, live: `roci trace` while Debian's programs run.

Usage: trace_test.py ROCI ROCID PLUGIN LABORATORY [unittest arguments]
"""
import collections
import json
import os
import pathlib
import pty
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from harness import LIMIT_S, Daemon, Pair, Programs, await_, stop

PROGRAMS, LABORATORY = None, None
ACROSS = ('roci0', 'roci1')
MESSAGES = 20
# Waits only a few milliseconds for an acknowledgement; the server is at roci0, the client sends from roci1.
SEND = ['ib_send_bw', '-x', '1', '-F', '-s', '8', '-n', str(MESSAGES), '-Q', '1', '-u', '8']


class TraceTest(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon(PROGRAMS)
        self.addCleanup(self.daemon.stop)

    def roci(self, *arguments):
        return subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, *arguments], capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)

    def start_trace(self, *arguments):
        """A running trace, whose output goes to a file."""
        output = tempfile.TemporaryFile('w+')
        self.addCleanup(output.close)
        process = subprocess.Popen([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'trace', *arguments], stdout=output,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        devices = {argument.split('/')[0] for argument in arguments if argument.startswith('roci')}
        self.assertTrue(await_(lambda: devices <= set(self.traced()) or process.poll() is not None))
        self.assertIsNone(process.poll())
        return process, output

    def traced(self):
        """The devices that are traced."""
        return [port['device'] for port in self.daemon.show('ports') if port['traced']]

    def end_trace(self, trace):
        """The lines of a trace that is told to end."""
        process, output = trace
        process.send_signal(signal.SIGINT)
        return self.lines_of(process, output)

    def lines_of(self, process, output):
        _, said = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0, said)
        self.assertRegex(said, r'^\d+ records, 0 lost\n$')
        output.seek(0)
        lines = output.read().splitlines()
        self.assertGreaterEqual(len(lines), int(said.split()[0]))
        return lines

    def run_pair(self, command=None):
        pair = Pair(self.daemon, ACROSS, list(command or SEND))
        self.addCleanup(pair.kill)
        return pair.connect().result()

    def records(self, *arguments, command=None, problem=''):
        trace = self.start_trace(*arguments, '--json')
        self.assertEqual(self.run_pair(command), problem)
        return [json.loads(line) for line in self.end_trace(trace)]

    @staticmethod
    def only(records, **members):
        return [record for record in records if all(record.get(key) == value for key, value in members.items())]

    def test_each_post_packet_and_completion_appears_once_in_order_at_both_ends(self):
        records = self.records('roci0', 'roci1')
        client, server = (self.only(records, device=device) for device in ('roci1', 'roci0'))
        times = [record['time_ns'] for record in records]
        self.assertEqual(times, sorted(times))

        posts = self.only(client, kind='post', opcode='SEND')
        self.assertEqual([post['len'] for post in posts], [8] * MESSAGES)
        sent = self.only(client, kind='packet', direction='out', opcode='RC_SEND_ONLY')
        first = sent[0]['psn']
        psns = [(first + i) % (1 << 24) for i in range(MESSAGES)]
        self.assertEqual([packet['psn'] for packet in sent], psns)
        self.assertFalse(any('again' in packet for packet in sent))
        received = self.only(server, kind='packet', direction='in', opcode='RC_SEND_ONLY')
        self.assertEqual([packet['psn'] for packet in received], psns)
        self.assertEqual([done['len'] for done in self.only(server, kind='complete', opcode='RECV', status='SUCCESS')], [8] * MESSAGES)
        self.assertEqual(len(self.only(client, kind='complete', opcode='SEND', status='SUCCESS')), MESSAGES)
        self.assertGreaterEqual(len(self.only(server, kind='post', opcode='RECV')), MESSAGES)

        acks = [[(packet['psn'], packet['msn']) for packet in self.only(end, kind='packet', direction=way, opcode='ACK')]
                for end, way in ((server, 'out'), (client, 'in'))]
        self.assertEqual(acks[0], acks[1])
        self.assertEqual(acks[0][-1], (psns[-1], MESSAGES))
        # Each message is posted before it is sent, and so on.
        for i in range(MESSAGES):
            steps = [posts[i], sent[i], received[i], self.only(server, kind='complete', opcode='RECV')[i]]
            self.assertEqual([records.index(step) for step in steps], sorted(records.index(step) for step in steps))

    def test_records_of_several_lcores_are_in_the_order_of_their_times(self):
        self.daemon.stop()
        self.daemon = Daemon(PROGRAMS, config='[daemon]\nlcores = 2\n')
        self.addCleanup(self.daemon.stop)
        records = self.records('roci0', 'roci1')
        self.assertEqual(len({qp % 2 for qp in (record['qp'] for record in records)}), 2, 'both lcores have a queue pair')
        times = [record['time_ns'] for record in records]
        self.assertEqual(times, sorted(times))
        sent = self.only(records, device='roci1', kind='packet', direction='out', opcode='RC_SEND_ONLY')
        received = self.only(records, device='roci0', kind='packet', direction='in', opcode='RC_SEND_ONLY')
        self.assertEqual([packet['psn'] for packet in sent], [packet['psn'] for packet in received])
        self.assertEqual(len(sent), MESSAGES)

    def test_states_are_shown(self):
        changes = collections.defaultdict(list)
        for record in self.only(self.records('roci0', 'roci1', '--kind', 'state'), kind='state'):
            changes[record['device']].append((record.get('from'), record['to']))
        # ib_send_bw's server needs no RTS.
        up = [('RESET', 'INIT'), ('INIT', 'RTR'), ('RTR', 'RTS')]
        client, server = (changes[device] for device in ('roci1', 'roci0'))
        self.assertEqual(client, [*up, ('RTS', 'DESTROYED')])
        self.assertEqual(server[:2], up[:2])
        self.assertEqual(server[-1][1], 'DESTROYED')

    def test_a_lost_packet_shows_the_timer_and_the_repeat(self):
        added = self.roci('fault', 'add', 'roci1', '--drop', '--opcode', '*SEND*', '--psn', f'+{MESSAGES - 1}', '--pass', '1')
        self.assertEqual(added.returncode, 0, added.stderr)
        records = self.records('roci0', 'roci1')
        (timer,) = self.only(records, kind='timer')
        self.assertEqual((timer['device'], timer['what'], timer['retry'], timer['of']), ('roci1', 'retry', 1, '7'))
        sends = self.only(records, device='roci1', kind='packet', direction='out', opcode='RC_SEND_ONLY')
        lost = sends[0]['psn'] + MESSAGES - 1
        twice = self.only(sends, psn=lost % (1 << 24))
        self.assertEqual([packet.get('again', False) for packet in twice], [False, True])
        self.assertTrue(records.index(twice[0]) < records.index(timer) < records.index(twice[1]))
        self.assertEqual(len(self.only(records, device='roci0', kind='packet', direction='in', psn=lost % (1 << 24), opcode='RC_SEND_ONLY')),
                         1)

    def test_a_request_that_fails_shows_its_error_and_the_state(self):
        added = self.roci('fault', 'add', 'roci1', '--drop', '--opcode', '*SEND*', '--psn', '+3')
        self.assertEqual(added.returncode, 0, added.stderr)
        trace = self.start_trace('roci1', '--kind', 'timer', '--kind', 'complete', '--kind', 'state')
        pair = Pair(self.daemon, ACROSS, SEND)
        self.addCleanup(pair.kill)
        pair.connect()
        # The server waits for the rest.
        said, _ = pair.client.communicate(timeout=LIMIT_S)
        self.assertIn('Failed status 12', said)
        lines = [line.split(maxsplit=2)[2] for line in self.end_trace(trace)]
        timers = [line for line in lines if line.startswith('timer')]
        expected = [f'timer retry {i} of 7' for i in range(1, 8)] + ['timer retry none left of 7']
        # The NAK that packets behind the lost one cause uses up a retry.
        self.assertIn(timers, (expected, expected[1:]))
        errors = [i for i, line in enumerate(lines) if 'status=RETRY_EXC_ERR vendor_err=0xc' in line]
        self.assertEqual(len(errors), 1, lines)
        # What was behind the request is flushed in the new state.
        self.assertEqual(lines[errors[0] + 1], 'state RTS -> ERR', lines)
        self.assertTrue(all('status=WR_FLUSH_ERR' in line for line in lines[errors[0] + 2:-1]), lines)
        self.assertEqual(lines[-1], 'state ERR -> DESTROYED', lines)

    def test_filters(self):
        records = self.records('roci1', '--kind', 'packet', '--opcode', '*ACK*')
        self.assertEqual({(record['kind'], record['opcode'], record['direction']) for record in records}, {('packet', 'ACK', 'in')})

    def test_one_queue_pair_and_its_peer(self):
        pair = self.send_for(100)
        self.assertTrue(await_(lambda: sum(qp['tx_packets'] > 100 for qp in self.daemon.show('qps')) == 2))
        numbers = {qp['device']: qp['qpn'] for qp in self.daemon.show('qps')}
        done = self.roci('trace', f'roci1/{numbers["roci1"]}', '--count', '5000', '--json')
        self.assertEqual(done.returncode, 0, done.stderr)
        records = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual({(record['device'], record['qp']) for record in records}, set(numbers.items()))
        self.assertEqual(len(records), 5000)
        alone = self.roci('trace', hex(numbers['roci1']), '--one-end', '--count', '50')
        self.assertEqual({line.split()[1] for line in alone.stdout.splitlines()}, {f'roci1/{numbers["roci1"]:#x}'}, alone.stderr)
        self.check_ends(numbers, pair)

    def check_ends(self, numbers, pair):
        """Traces of queue pairs end with them, whatever they print; one of a device goes on."""
        named = [self.start_trace(f'roci1/{numbers["roci1"]}', '--one-end', '--kind', 'event')[0]]
        of_device, output = self.start_trace('roci0', '--kind', 'state')
        pair.kill()
        for process in named:
            _, said = process.communicate(timeout=LIMIT_S)
            self.assertEqual((process.returncode, said), (0, '0 records, 0 lost\n'))
        self.assertIn('DESTROYED', self.end_trace((of_device, output))[-1])

    def send_for(self, seconds):
        """A pair that sends, as fast as it can."""
        pair = Pair(self.daemon, ACROSS, ['ib_send_bw', '-x', '1', '-F', '-s', '8', '-D', str(seconds)])
        self.addCleanup(pair.kill)
        pair.connect()
        return pair

    def test_a_reader_that_stops_loses_records_that_are_counted_where_they_are_missing(self):
        # Unbuffered, so that communicate() gets all that follows the first line.
        with subprocess.Popen([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'trace', 'roci1', '--json'], bufsize=0,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as slow:
            pair = self.send_for(3)
            self.assertTrue(slow.stdout.readline())
            self.assertEqual(pair.result(), '')
            slow.send_signal(signal.SIGINT)
            lines, said = (text.decode() for text in slow.communicate(timeout=LIMIT_S))
        records = [json.loads(line) for line in lines.splitlines()]
        times = [record['time_ns'] for record in records]
        self.assertEqual(times, sorted(times))
        lost = sum(record['records'] for record in self.only(records, kind='lost'))
        self.assertRegex(said, rf'^\d+ records, {lost} lost\n$')
        self.assertGreater(lost, 0)
        # The memory that waits for a reader is bounded: far from all that was sent is here.
        self.assertLess(len(records), 200_000)

    def test_two_signals_end_a_trace_whose_reader_takes_nothing(self):
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        process = subprocess.Popen([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'trace', 'roci1'], stdout=write,
                                   stderr=subprocess.DEVNULL)
        os.close(write)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(self.send_for(2).result(), '')
        process.send_signal(signal.SIGTERM)
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(LIMIT_S), -signal.SIGTERM)
        self.assertTrue(await_(lambda: not self.traced()))

    def test_a_stopped_tool_holds_up_nobody(self):
        process, _ = self.start_trace('roci0', 'roci1')
        stop(process)
        self.assertEqual(self.send_for(2).result(), '')
        self.assertEqual(self.traced(), list(ACROSS))
        refused = self.roci('trace', 'roci0', '--for', '1ms')
        self.assertEqual((refused.returncode, 'is being traced' in refused.stderr), (1, True), refused.stderr)
        process.kill()
        process.send_signal(signal.SIGCONT)
        self.assertTrue(await_(lambda: not self.traced()))

    def test_traces_of_two_devices_at_once(self):
        traces = [self.start_trace('roci0', '--kind', 'state')]
        traces.append(self.start_trace('roci1', '--kind', 'state'))
        self.assertTrue(await_(lambda: self.traced() == list(ACROSS)))
        self.assertEqual(self.run_pair(), '')
        for trace, device in zip(traces, ACROSS):
            self.assertEqual({line.split()[1].split('/')[0] for line in self.end_trace(trace)}, {device})

    def test_a_daemon_that_ends_ends_the_trace(self):
        process, output = self.start_trace('roci0', 'roci1', '--kind', 'state')
        self.assertEqual(self.run_pair(), '')
        self.daemon.stop()
        _, said = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(said, r'^\d+ records, 0 lost\nroci: the daemon ended the trace\n$')
        output.seek(0)
        self.assertEqual(output.read().count('DESTROYED'), 2)

    def test_a_chrome_trace_has_each_request_from_post_to_completion(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'trace.json')
            process, output = self.start_trace('roci0', 'roci1', '--chrome', path)
            self.assertEqual(self.run_pair(), '')
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=LIMIT_S)
            self.assertEqual(process.returncode, 0, said)
            output.seek(0)
            self.assertEqual(output.read(), '')
            events = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
        phases = {phase: [event for event in events if event['ph'] == phase and event.get('name') == 'SEND'] for phase in 'be'}
        self.assertEqual([len(phases['b']), len(phases['e'])], [MESSAGES, MESSAGES])
        ends = {event['id']: event['ts'] for event in phases['e']}
        self.assertTrue(all(ends[event['id']] >= event['ts'] for event in phases['b']))
        self.assertEqual({event['args']['name'] for event in events if event['name'] == 'process_name'}, {'roci0', 'roci1'})
        self.assertEqual(len([event for event in events if event['name'] == 'send RC_SEND_ONLY']), MESSAGES)

    def test_a_killed_trace_leaves_nothing(self):
        process, _ = self.start_trace('roci0')
        process.kill()
        process.wait()
        self.assertTrue(await_(lambda: not self.traced()))
        again = self.roci('trace', 'roci0', '--for', '1ms')
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(self.run_pair(), '')

    def test_a_reader_that_goes_away_ends_the_trace(self):
        shell = f'{shlex.quote(PROGRAMS.roci)} --runtime-dir {shlex.quote(self.daemon.runtime_dir)} trace roci0 | true'
        self.assertEqual(subprocess.run(['sh', '-c', shell], timeout=LIMIT_S, check=False, stderr=subprocess.DEVNULL).returncode, 0)

    def test_an_interrupt_in_a_terminal_ends_live_output_with_a_summary(self):
        child, terminal = pty.fork()
        if child == 0:
            os.execv(PROGRAMS.roci, [PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'trace', 'roci1'])
        self.addCleanup(os.close, terminal)
        self.assertTrue(await_(self.traced))
        self.assertEqual(self.run_pair(), '')
        # Live: the lines are here while the trace runs.
        said = self.read_until(terminal, 'DESTROYED')
        self.assertEqual(self.traced(), ['roci1'])
        os.write(terminal, b'\x03')
        said += self.read_until(terminal, 'lost\r\n')
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        lines = said.replace('^C', '').split('\r\n')[:-1]
        self.assertRegex(lines[-1], rf'^{len(lines) - 1} records, 0 lost$')
        for line in lines[:-1]:
            self.assertRegex(line, r'^ *\d+\.\d{6} roci1/0x[0-9a-f]+ +(->|<-|post|complete|state) [A-Z]')

    @staticmethod
    def read_until(terminal, wanted):
        said, deadline = '', time.monotonic() + LIMIT_S
        while wanted not in said and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1)[0]:
                try:
                    said += os.read(terminal, 65536).decode()
                except OSError:  # the program has ended
                    break
        return said

    def test_wrong_targets_are_refused(self):
        for arguments, said in ((['roci7'], 'there is no device roci7'), (['77'], 'there is no queue pair 77'),
                                (['roci0', '--kind', 'frame'], 'frame'), (['roci0', '--opcode', 'NOPE'], 'there is no opcode NOPE'),
                                (['roci0', '--for', '3'], 'is not a time')):
            done = self.roci('trace', *arguments)
            self.assertIn(said, done.stderr)
            self.assertIn(done.returncode, (1, 2))

    def test_a_full_disk_is_told(self):
        self.send_for(100)
        for command in (['trace', 'roci0', '--for', '10s'], ['trace', 'roci0', '--for', '10s', '--json'], ['show', 'qps'],
                        ['top', '--interval', '100ms']):
            with open('/dev/full', 'wb') as full:
                done = subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, *command], stdout=full,
                                      stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(done.returncode, 1, command)
            self.assertIn('cannot write standard output', done.stderr)

    def test_a_refused_trace_leaves_files_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, 'trace.json')
            path.write_text('of an earlier trace', encoding='utf-8')
            done = self.roci('trace', 'roci7', '--chrome', str(path))
            self.assertEqual(done.returncode, 1)
            self.assertEqual(path.read_text(encoding='utf-8'), 'of an earlier trace')

    @unittest.skipIf(os.geteuid() != 0, 'only root can become another user')
    def test_other_users_are_refused_as_for_a_capture(self):
        answers = []
        for command in (['trace', 'roci0', '--for', '1ms'], ['capture', 'roci0', '--seconds', '0.001', '-w', '-']):
            done = subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, *command], capture_output=True,
                                  timeout=LIMIT_S, check=False, user=65534)
            answers.append((done.returncode, done.stdout, done.stderr))
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(answers[0][:2], (1, b''))

    def test_the_commands_of_the_laboratory(self):
        text = pathlib.Path(LABORATORY).read_text(encoding='utf-8')
        commands = [shlex.split(line.strip())[1:] for line in text.splitlines() if line.startswith('    roci trace ')]
        self.assertGreaterEqual(len(commands), 3)
        with tempfile.TemporaryDirectory() as folder:
            for command in commands:
                done = subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, *command], capture_output=True, text=True,
                                      timeout=LIMIT_S, check=False, cwd=folder)
                self.assertEqual(done.returncode, 0, (command, done.stderr))


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    LABORATORY = sys.argv[4]
    try:
        unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
    finally:
        PROGRAMS.remove()
