#!/usr/bin/env python3
"""Virtual time (`clock = "virtual"`): the same program and seed give the same captures, byte for byte; hours pass at once.

Usage: virtual_time_test.py ROCI ROCID PLUGIN PING_PONG LABORATORY [unittest arguments]

Compares 10 runs, each with a daemon of its own; with ROCI_TEST_OFTEN=N, N.
"""
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from harness import LIMIT_S, Daemon, Programs, await_

PROGRAMS, PING_PONG, LABORATORY = None, None, None
REPEATS = int(os.environ.get('ROCI_TEST_OFTEN', '10'))
# A program that does not get a processor for so long would be taken for one that does not poll.
PATIENT = 'virtual_quiet_ms = 60000\n'
LOSS = ('impair', 'roci1', '--loss', '5%', '--seed', '7')
PACKET, FIRST_TIME_NS = 6, 1_000_000_000


def configuration(seed=1, more=PATIENT):
    return f'[daemon]\nclock = "virtual"\nseed = {seed}\n{more}'


def packets(capture):
    """Time in ns and bytes of each frame of a pcapng file."""
    found, at = [], 0
    while at < len(capture):
        kind, length = (int.from_bytes(capture[at + i:at + i + 4], 'little') for i in (0, 4))
        if kind == PACKET:
            high, low, size = (int.from_bytes(capture[at + i:at + i + 4], 'little') for i in (12, 16, 20))
            found.append((high << 32 | low, capture[at + 28:at + 28 + size]))
        at += length
    return found


class Lab:
    """A daemon with virtual time, and a capture of roci1's packets."""

    def __init__(self, config, commands=()):
        self.daemon = Daemon(PROGRAMS, config=config)
        self.folder = tempfile.TemporaryDirectory(prefix='roci-virtual.')
        self.file = pathlib.Path(self.folder.name, 'run.pcapng')
        for command in commands:
            self.roci(*command)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.daemon.stop()
        self.folder.cleanup()

    def roci(self, *arguments):
        return subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, *arguments], capture_output=True, text=True,
                              timeout=LIMIT_S, check=True).stdout

    def run(self, *arguments):
        done = subprocess.run(self.daemon.command(PING_PONG, 'roci0', 'roci1', *arguments), capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
        if done.returncode != 0 or 'messages went and came back' not in done.stdout:
            raise RuntimeError(f'{done.stdout}{done.stderr}{self.daemon.output()}')

    def captured(self, *arguments):
        """The capture of one run of the program."""
        capture = subprocess.Popen([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'capture', 'roci1', '--opcode', 'RC_*',
                                    '-w', str(self.file)], stderr=subprocess.PIPE, text=True)
        # The file is made when the daemon has begun.
        await_(lambda: self.file.exists() or capture.poll() is not None)
        self.run(*arguments)
        self.await_end()
        capture.send_signal(signal.SIGINT)
        _, said = capture.communicate(timeout=LIMIT_S)
        if ', 0 dropped' not in said:
            raise RuntimeError(said)
        return self.file.read_bytes()

    def await_end(self):
        """Waits, after a program has ended, until the last frames have arrived: the lcore sleeps only if no time is awaited."""
        sleeps = self.lcore()['sleeps']
        if not await_(lambda: self.lcore()['sleeps'] != sleeps):
            raise RuntimeError('the time does not come to its end')

    def lcore(self):
        return self.daemon.show('lcores')[0]


def run_once(*arguments, seed=1, commands=(LOSS,), more=PATIENT):
    """The capture, and how often the daemon had to guess."""
    with Lab(configuration(seed, more), commands) as lab:
        capture = lab.captured(*arguments)
        return capture, lab.lcore()['virtual_guesses']


class RepeatTest(unittest.TestCase):

    def repeat(self, count, *arguments, **options):
        first, guesses = run_once(*arguments, **options)
        self.assertEqual(guesses, 0)
        for number in range(1, count):
            again, guesses = run_once(*arguments, **options)
            self.assertEqual(guesses, 0, number)
            if again != first:
                difference = next(((a[0], a[1].hex()[:140], b[0], b[1].hex()[:140])
                                   for a, b in zip(packets(first), packets(again)) if a != b), 'the length')
                self.fail(f'run {number} differs from the first: {difference}')
        return packets(first)

    def test_every_run_has_the_same_packets_at_the_same_times(self):
        found = self.repeat(REPEATS)
        times = [at for at, _ in found]
        self.assertGreater(len(found), 1000)
        self.assertEqual(times, sorted(times))
        self.assertGreater(times[0], FIRST_TIME_NS)
        self.assertGreater(len(set(times)), len(times) * 9 // 10)
        # Packets were lost, and found by timeouts of a millisecond.
        self.assertGreater(max(later - earlier for earlier, later in zip(times, times[1:])), 1_000_000)

    def test_the_same_with_many_messages_on_their_way(self):
        self.repeat(max(5, REPEATS // 10), '--window', '16', '--messages', '400')

    def test_the_same_with_a_process_for_each_end(self):
        self.repeat(max(5, REPEATS // 10), '--processes')

    def test_the_same_beside_busy_programs(self):
        busy = [subprocess.Popen(['sh', '-c', 'while :; do :; done']) for _ in range(2 * (os.cpu_count() or 1))]
        try:
            alone, _ = run_once('--messages', '50')
            for arguments in (), ('--processes',):
                self.repeat(2, '--messages', '50', *arguments)
        finally:
            for process in busy:
                process.kill()
                process.wait()
        self.assertEqual(alone, run_once('--messages', '50')[0])

    def test_a_pause_takes_no_more_time_than_frames_do(self):
        short, long = (run_once('--messages', '50', '--pause', pause, commands=(), more='virtual_quiet_ms = 20\n')
                       for pause in ('100', '300'))
        self.assertEqual(packets(short[0]), packets(long[0]))
        self.assertGreater(short[1], 0)

    def test_a_slow_reader_of_a_capture_is_waited_for(self):
        with Lab(configuration()) as lab:
            with subprocess.Popen([PROGRAMS.roci, '--runtime-dir', lab.daemon.runtime_dir, 'capture', 'roci1', '-w', '-'],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as capture:
                capture.stdout.read(8)
                program = subprocess.Popen(lab.daemon.command(PING_PONG, 'roci0', 'roci1', '--messages', '10000'),
                                           stdout=subprocess.DEVNULL)
                time.sleep(1)
                self.assertIsNone(program.poll())
                reader = threading.Thread(target=capture.stdout.read)
                reader.start()
                self.assertEqual(program.wait(LIMIT_S), 0)
                lab.await_end()
                capture.send_signal(signal.SIGINT)
                reader.join(LIMIT_S)
                self.assertIn(b', 0 dropped', capture.stderr.read())

    def test_another_seed_gives_other_numbers(self):
        first, second = (packets(run_once('--messages', '3', seed=seed, commands=())[0]) for seed in (1, 2))
        self.assertEqual([at for at, _ in first], [at for at, _ in second])
        numbers = [{frame[at + 5:at + 8] for _, frame in found for at in [14 + 20 + 8]} for found in (first, second)]
        self.assertEqual([len(each) for each in numbers], [2, 2])
        self.assertFalse(numbers[0] & numbers[1])

    def test_frames_take_their_time_on_the_wire(self):
        (begin, frame), *_ = found = packets(run_once('--messages', '1', commands=())[0])
        # Frame, FCS, preamble and gap at 100 Gb/s, and 1 us.
        self.assertEqual(len(frame), 62)
        sends_ns = -(-(62 + 24) * 8 // 100)
        self.assertEqual(begin - FIRST_TIME_NS, sends_ns + 1000)
        # The acknowledgement, of as many bytes, leaves at once.
        self.assertEqual(found[1][0] - begin, sends_ns)


class TimeTest(unittest.TestCase):

    def test_minutes_pass_at_once(self):
        with Lab(configuration(), [('fault', 'add', 'roci0', '--drop', '--opcode', 'RC_SEND_ONLY', '--nth', '1')]) as lab:
            begin = time.monotonic()
            lab.run('--messages', '3', '--timeout', '24')  # 4.096 us << 24 = 68.7 s
            took_s = time.monotonic() - begin
            lcore = lab.lcore()
        self.assertGreater(lcore['virtual_ns'] - FIRST_TIME_NS, 68_700_000_000)
        self.assertLess(took_s, 30)
        self.assertEqual(lcore['virtual_guesses'], 0)

    def test_a_delay_is_exact(self):
        spans = []
        for delay in [], ['--delay', '3us']:
            with Lab(configuration(), [('impair', 'roci0', *delay)] if delay else []) as lab:
                spans.append(packets(lab.captured('--messages', '1'))[0][0])
        self.assertEqual(spans[1] - spans[0], 3000)

    def test_programs_that_do_not_poll_are_guessed_at(self):
        with Lab(configuration(more='virtual_quiet_ms = 5\n')) as lab:
            server = lab.daemon.start('ibv_rc_pingpong', '-d', 'roci0', '-g', '1', '-e', '-n', '10')
            self.addCleanup(server.stdout.close)
            time.sleep(0.5)
            client = subprocess.run(lab.daemon.command('ibv_rc_pingpong', '-d', 'roci1', '-g', '1', '-e', '-n', '10', '127.0.0.1'),
                                    capture_output=True, text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(client.returncode, 0, client.stdout)
            self.assertEqual(server.wait(LIMIT_S), 0)
            self.assertGreater(lab.lcore()['virtual_guesses'], 0)

    def test_connections_of_librdmacm_work(self):
        with Lab(configuration(more='virtual_quiet_ms = 5\n')) as lab:
            server = lab.daemon.start('rping', '-s', '-C', '10')
            self.addCleanup(server.stdout.close)
            time.sleep(0.5)
            client = subprocess.run(lab.daemon.command('rping', '-c', '-a', '10.99.0.1', '-I', '10.99.0.2', '-C', '10'),
                                    capture_output=True, text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(client.returncode, 0, client.stdout)
            server.wait(LIMIT_S)

    def test_a_scenario_has_it(self):
        with tempfile.NamedTemporaryFile('w', suffix='.toml') as file:
            file.write(f'''title = "t"
text = "t"
[rocid.daemon]
clock = "virtual"
virtual_quiet_ms = 60000
[[step]]
roci = "fault add roci0 --drop --opcode RC_SEND_ONLY --nth 1"
[[program]]
name = "ends"
command = "{PING_PONG} roci0 roci1 --timeout 24 --messages 3"
[[expect]]
show = "lcores"
value = "/0/virtual_ns"
is = "> 69700000000"
[[expect]]
show = "lcores"
value = "/0/virtual_guesses"
is = 0
''')
            file.flush()
            done = subprocess.run([PROGRAMS.roci, 'test', '--rocid', PROGRAMS.rocid, '--plugin', PROGRAMS.plugin, file.name],
                                  capture_output=True, text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_without_it_time_is_real(self):
        daemon = Daemon(PROGRAMS)
        self.addCleanup(daemon.stop)
        lcore = daemon.show('lcores')[0]
        self.assertEqual([lcore[key] for key in ('clock', 'virtual_ns', 'virtual_jumps', 'virtual_guesses')], ['real', 0, 0, 0])


class ConfigurationTest(unittest.TestCase):

    def test_what_does_not_go_together_is_refused(self):
        for text, line, says in (
                ('[daemon]\nlcores = 2\nclock = "virtual"\n', 3, 'daemon.clock: "virtual" needs lcores = 1'),
                ('[daemon]\nspin = true\nclock = "virtual"\n', 3, 'daemon.clock: "virtual" cannot be used with spin = true'),
                ('[daemon]\nclock = "virtual"\nrealtime = "on"\n', 2, 'daemon.clock: "virtual" cannot be used with realtime = "on"'),
                ('[daemon]\nclock = "slow"\n', 2, 'daemon.clock: '), ('[daemon]\nseed = 3\n', 2, 'daemon.seed: needs clock = "virtual"'),
                ('[daemon]\nvirtual_quiet_ms = 3\n', 2, 'daemon.virtual_quiet_ms: needs clock = "virtual"'),
                ('[daemon]\nclock = "virtual"\nvirtual_quiet_ms = 0\n', 3, 'daemon.virtual_quiet_ms: '),
                ('[daemon]\nclock = "virtual"\nseed = -1\n', 3, 'daemon.seed: '),
                ('[daemon]\nclock = "virtual"\n[[device]]\nname = "a"\nport = "net_null0"\n', 5,
                 'device[0].port: clock = "virtual" of [daemon] is for devices on wires only')):
            with self.subTest(text=text), tempfile.NamedTemporaryFile('w', suffix='.toml') as file:
                file.write(text)
                file.flush()
                done = subprocess.run([PROGRAMS.rocid, '--check-config', '--config', file.name], capture_output=True, text=True,
                                      timeout=LIMIT_S, check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(f'{file.name}:{line}: {says}', done.stderr)


class DocumentTest(unittest.TestCase):
    """The commands of the document, as they are there."""

    def test_the_commands_of_the_laboratory(self):
        text = pathlib.Path(LABORATORY).read_text(encoding='utf-8')
        section = re.search(r'\n## Virtual time\n(.*?)\n## ', text, re.S).group(1)
        config = re.search(r'\n((?:    .*\n)*    clock = "virtual".*\n(?:    .*\n)*)', section).group(1)
        commands = [shlex.split(line) for line in re.findall(r'^    (roci .*)$', section, re.M)]
        captures = []
        for _ in range(2):
            with Lab(re.sub('^    ', '', config, flags=re.M) + PATIENT) as lab:
                captures.append(self.run_commands(lab, commands))
        self.assertGreater(len(packets(captures[0])), 100)
        self.assertEqual(*captures)

    def run_commands(self, lab, commands):
        background, said = None, ''
        for command in commands:
            words = [str(lab.file) if word == 'run.pcapng' else word for word in command[1:]]
            if words[-1] == '&':
                background = subprocess.Popen([PROGRAMS.roci, '--runtime-dir', lab.daemon.runtime_dir, *words[:-1]], stderr=subprocess.DEVNULL)
                await_(lab.file.exists)
            elif words[0] == 'run':
                lab.run()
            else:
                said = lab.roci(*words)
        lab.await_end()
        background.send_signal(signal.SIGINT)
        self.assertEqual(background.wait(LIMIT_S), 0)
        self.assertRegex(said, r'\bvirtual\b')
        return lab.file.read_bytes()


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    PING_PONG, LABORATORY = map(os.path.abspath, sys.argv[4:6])
    unittest.main(argv=sys.argv[:1] + sys.argv[6:], verbosity=2)
