#!/usr/bin/env python3
"""`roci test`: what it says of scenarios that hold, that fail, that do not end, and that are wrong; what it leaves behind.

Usage: scenario_test.py ROCI ROCID PLUGIN SCENARIOS_MD [unittest arguments]
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import xml.etree.ElementTree

from harness import LIMIT_S, Programs, await_

PROGRAMS, DOCUMENT = None, None
HEAD = 'title = "t"\ntext = "t"\n'


def program(name, command, *more):
    return '\n'.join(['[[program]]', f'name = "{name}"', f'command = {json.dumps(command)}', *more, ''])


class ScenarioTest(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='roci-scenario-test.')
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.temporary = self.folder / 'tmp'
        self.temporary.mkdir()
        self.environment = {**os.environ, 'TMPDIR': str(self.temporary)}

    def write(self, name, text):
        file = self.folder / f'{name}.toml'
        file.write_text(text, encoding='utf-8')
        return str(file)

    def command(self, *arguments):
        return [PROGRAMS.roci, 'test', '--rocid', PROGRAMS.rocid, '--plugin', PROGRAMS.plugin, *arguments]

    def run_test(self, *arguments):
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=LIMIT_S, check=False, env=self.environment)
        self.assertEqual(list(self.temporary.iterdir()), [], 'folders left behind')
        return done

    def verdicts(self, name, text, *arguments):
        """The exit status, and {expectation: (ok, found)}."""
        done = self.run_test('--json', *arguments, self.write(name, text))
        self.assertIn(done.returncode, (0, 1), done.stderr)
        (run,) = json.loads(done.stdout)['runs']
        return done.returncode, {each['expectation']: (each['ok'], each['found']) for each in run['expectations']}

    def test_the_example_of_the_document(self):
        text = pathlib.Path(DOCUMENT).read_text(encoding='utf-8').split('## An example')[1]
        example, printed = text.split('It prints:')
        blocks = [re.sub(r'(?m)^(?!    ).*$', '', part) for part in (example, printed.split('\n## ')[0])]
        example, printed = (textwrap.dedent(block).strip() + '\n' for block in blocks)
        done = self.run_test(self.write('example', example))
        lines = done.stdout.splitlines()
        # The status of a failure is perftest's own affair.
        said = re.sub(r'(other than 0; found: exit status) \d+', r'\1 17', '\n'.join(lines[:-1]) + '\n')
        self.assertEqual((said, done.returncode), (printed, 0), done.stderr)
        self.assertRegex(lines[-1], r'^1 scenario, 0 failed; 7 expectations, 0 failed; ')

    def test_what_does_not_hold(self):
        status, found = self.verdicts('fails', HEAD + program('one', 'sh -c "echo hello; exit 3"', 'prints = ["hello", "by+e"]', 'prints_not = "ell"',
                                                              'lasts = ">= 3600s"') +
                                      '[[step]]\nroci = "fault add roci0 --drop"\n'
                                      '[[expect]]\nshow = "counters"\nvalue = "/0/transport/acks_sent"\nis = ">= 1"\n'
                                      '[[expect]]\nshow = "counters"\nvalue = "/0/no/such"\nis = 0\n'
                                      '[[expect]]\nlog = "^rocid: ready$"\n'
                                      '[[expect]]\nfault = "roci0"\nnumber = 7\nis = 0\n'
                                      '[[expect]]\nfile = "{dir}/none"\nbytes = 0\n')
        self.assertEqual(status, 1)
        self.assertEqual(found['one exits with 0'], (False, 'exit status 3, last line: hello'))
        self.assertEqual(found['one prints /hello/'], (True, 'printed'))
        self.assertEqual(found['one prints /by+e/'], (False, 'not printed, last line: hello'))
        self.assertEqual(found['one does not print /ell/'][0], False)
        self.assertEqual(found['one lasts >= 3600s'][0], False)
        self.assertEqual(found['step 1: its fault hits >= 1'], (False, '0'))
        self.assertEqual(found['counters /0/transport/acks_sent >= 1'], (False, '0'))
        self.assertEqual(found['counters /0/no/such == 0'], (False, 'nothing is there'))
        self.assertEqual(found['the log has /^rocid: ready$/'], (True, 'printed'))
        self.assertEqual(found['fault 7 of roci0: hit == 0'], (False, 'roci0 has no fault 7'))
        self.assertEqual(found['bytes of {dir}/none == 0'][0], False)
        self.assertEqual(found['the daemon runs until it is stopped'], (True, 'exit status 0'))

    def test_what_is_missing_at_the_time_limit(self):
        began = time.monotonic()
        status, found = self.verdicts('hangs', HEAD + 'time_limit = "1s"\n' + program('sleeper', 'sh -c "echo begin; sleep 600 & wait"') +
                                      program('later', 'true', 'when = {ended = "sleeper"}') +
                                      '[[step]]\nwhen = {program = "sleeper", prints = "end"}\nroci = "link down roci0"\n')
        self.assertEqual(status, 1)
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual(found['ends within 1.00s'], (False, 'missing: the end of sleeper; the start of later, which waits for: sleeper has '
                                                      'ended; step 1, which waits for: sleeper prints /end/'))
        self.assertEqual(found['sleeper exits with 0'], (False, 'still running, last line: begin'))
        self.assertEqual(found['later exits with 0'], (False, 'not started'))

    def test_what_can_never_happen_fails_at_once(self):
        began = time.monotonic()
        status, found = self.verdicts('never', HEAD + 'time_limit = "600s"\n' + program('server', 'false', 'ready = {listens = "{port}"}') +
                                      program('client', 'true', 'when = {ready = "server"}') +
                                      '[[step]]\nwhen = {program = "server", prints = "x"}\nroci = "link down roci0"\n')
        self.assertEqual(status, 1)
        self.assertLess(time.monotonic() - began, 120)
        self.assertEqual(found['step 1 is reached (server prints /x/)'], (False, 'server ended before: exit status 1'))

    def test_a_program_that_crashes_or_does_not_exist(self):
        status, found = self.verdicts('crash', HEAD + program('one', 'sh -c "echo last words; kill -SEGV $$"') + program('two', 'no_such_program') +
                                      program('three', 'sh -c "kill -SEGV $$"', 'exit = "SEGV"'))
        self.assertEqual(status, 1)
        self.assertEqual(found['one exits with 0'], (False, 'ended by SIGSEGV, last line: last words'))
        self.assertEqual(found['two exits with 0'][0], False)
        self.assertIn('exit status 127, last line: ', found['two exits with 0'][1])
        self.assertEqual(found['three is ended by SIGSEGV'], (True, 'ended by SIGSEGV'))

    def test_a_daemon_that_does_not_start_or_ends(self):
        status, found = self.verdicts('daemon', HEAD + "rocid = '[daemon]\nlcores = 0'\n".replace("'", "'''") + program('one', 'true'))
        self.assertEqual(status, 1)
        self.assertRegex(found['the daemon runs until it is stopped'][1], r'^it did not start: exit status \d+, last words: .*lcores')
        status, found = self.verdicts('ends', HEAD + program('one', 'sh -c "kill -KILL $(pgrep -P $PPID rocid)"',
                                                             'exit = "any"') + program('two', 'sleep 600'))
        self.assertEqual(status, 1)
        self.assertRegex(found['the daemon runs until it is stopped'][1], '^ended by SIGKILL')

    def test_steps_and_conditions(self):
        status, found = self.verdicts('steps', HEAD + '[[step]]\nshow = "devices"\nis = 2\n' +
                                      program('first', 'sh -c "sleep 0.2; echo ready; sleep 600"', 'ready = {prints = "^ready$"}', 'exit = "TERM"') +
                                      program('second', 'sh -c "echo {port} {port2} {port} > {dir}/ports; printf %s {devices roci1 /0/name}"',
                                              'when = {ready = "first", done = "down"}', 'prints = "^roci1$"') +
                                      program('stopped', 'sleep 600', 'stop = "INT"') +
                                      '[[step]]\nname = "down"\nat = "300ms"\nroci = "link down {devices /0/name}"\n'
                                      '[[step]]\nwhen = {show = "ports", device = "roci0", value = "/0/state", is = "down", ended = "second"}\n'
                                      'signal = "TERM"\nprogram = "first"\n'
                                      '[[expect]]\nfile = "{dir}/ports"\nbytes = 18\n'
                                      '[[expect]]\nlasts = [">= 300ms", "<= 60s"]\n')
        self.assertEqual({each: verdict for each, verdict in found.items() if not verdict[0]}, {})
        self.assertEqual(status, 0)
        self.assertEqual(found['step 1 finds devices == 2'], (True, '2'))
        self.assertEqual(found['stopped runs until it is stopped'], (True, 'stopped'))

    def test_a_step_that_fails_ends_the_scenario(self):
        status, found = self.verdicts('refused', HEAD + program('one', 'sleep 600') +
                                      '[[step]]\nat = "1ms"\nroci = "link down roci7"\n[[step]]\nroci = "link down roci0"\n')
        self.assertEqual(status, 1)
        self.assertEqual(found['step 1 runs roci link down roci7'][0], False)
        self.assertIn('no device', found['step 1 runs roci link down roci7'][1])
        self.assertNotIn('step 2 runs roci link down roci0', found)

    def test_wrong_files_are_named_and_nothing_runs(self):
        right = self.write('right', HEAD + program('one', 'true'))
        for text, says in ((HEAD + program('one', 'true', 'exti = 1'), r':6: program\[0\]\.exti: unknown key; the nearest is exit$'),
                           ('title = "t\n', r':1: '), (HEAD, 'program: is missing')):
            wrong = self.write('wrong', text)
            done = self.run_test(right, wrong)
            self.assertEqual((done.returncode, done.stdout), (2, ''))
            self.assertRegex(done.stderr.splitlines()[0], f'^{re.escape(wrong)}.*{says}')
        for arguments, says in ((['no_such'], 'neither a file nor an installed scenario'), ([], 'which scenario'), ([right, right], 'another scenario has this name'),
                                (['--jobs', '0', right], '--jobs'), (['/nowhere.toml'], 'cannot be read')):
            done = self.run_test(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(says, done.stderr)

    def flaky(self):
        """Fails in every second run."""
        counter = self.folder / 'counter'
        counter.write_text('', encoding='ascii')
        return self.write('flaky', HEAD + program('one', f'sh -c "echo x >> {counter}; exit $(( $(wc -l < {counter}) % 2 ))"'))

    def test_repetition_tells_flakes(self):
        good = self.write('good', HEAD + program('one', 'true'))
        bad = self.write('bad', HEAD + program('one', 'false'))
        done = self.run_test('--repeat', '4', '--jobs', '1', good, bad, self.flaky())
        self.assertEqual(done.returncode, 1)
        self.assertIn('failed: bad, 4 of 4 runs\nflaky: flaky, 2 of 4 runs\n3 scenarios, 2 failed; 12 runs; ', done.stdout)
        self.assertIn('not ok  bad run 3: one exits with 0; found: exit status 1\n', done.stdout)
        self.assertNotIn('good', done.stdout)

    def test_reports_are_well_formed(self):
        files = [self.write('good', HEAD + program('one', 'true')), self.write('bad', HEAD + program('one', 'sh -c "echo \'<&\\"#\'; exit 1"'))]
        report = self.folder / 'report.xml'
        done = self.run_test('--tap', '--junit', str(report), '--jobs', '2', *files)
        self.assertEqual(done.returncode, 1)
        lines = done.stdout.splitlines()
        self.assertEqual((lines[0], lines[-1]), ('TAP version 13', '1..4'))
        tests = [line for line in lines if re.match(r'(not )?ok \d+ - ', line)]
        self.assertEqual([int(re.search(r'\d+', line)[0]) for line in tests], [1, 2, 3, 4])
        self.assertEqual(sum(line.startswith('not ok') for line in tests), 1)
        suites = {suite.get('name'): suite for suite in xml.etree.ElementTree.parse(report).getroot().iter('testsuite')}
        self.assertEqual({name: (suite.get('tests'), suite.get('failures')) for name, suite in suites.items()},
                         {'good': ('2', '0'), 'bad': ('2', '1')})
        self.assertEqual(suites['bad'].find('testcase/failure').get('message'), 'exit status 1, last line: <&"#')

    def test_failures_are_kept(self):
        bad = self.write('bad', HEAD + program('one', 'sh -c "echo out; exec ibv_rc_pingpong -d roci0 -g 1 -p {port}"', 'ready = {listens = "{port}"}',
                                               'prints = "nothing"') +
                         program('two', 'ibv_rc_pingpong -d roci1 -g 1 -p {port} 127.0.0.1', 'when = {ready = "one"}'))
        good = self.write('good', HEAD + program('one', 'true'))
        kept = self.folder / 'kept'
        done = self.run_test('--keep', str(kept), bad, good)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f'kept in {kept}/bad\n', done.stdout)
        self.assertEqual([path.name for path in kept.iterdir()], ['bad'])
        self.assertEqual(sorted(path.name for path in (kept / 'bad').iterdir()),
                         ['one.out', 'roci0.pcapng', 'roci1.pcapng', 'rocid.log', 'scenario.toml', 'two.out'])
        self.assertIn('out\n', (kept / 'bad/one.out').read_text(encoding='utf-8'))
        decoded = subprocess.run([PROGRAMS.roci, 'decode', str(kept / 'bad/roci1.pcapng')], capture_output=True, text=True, check=False, timeout=LIMIT_S)
        self.assertIn('RC_SEND', decoded.stdout)

    def test_an_endless_output_is_cut(self):
        status, found = self.verdicts('endless', HEAD + program('one', 'sh -c "yes | head -c 50000000; echo end"', 'prints = "^end$"', 'prints_not = "no"'))
        self.assertEqual((status, found['one prints /^end$/']), (0, (True, 'printed')))

    def interrupted(self, number):
        marks = [f'{number} {i} {os.getpid()}' for i in range(3)]
        files = [self.write(f'long{i}', HEAD + program('one', f'sh -c "echo {marks[i]} > {self.folder}/mark{i}; setsid sleep 12345 & sleep 12345"'))
                 for i in range(3)]
        with subprocess.Popen(self.command('--jobs', '2', *files), stdout=subprocess.PIPE, text=True, env=self.environment) as process:
            self.assertTrue(await_(lambda: sum((self.folder / f'mark{i}').exists() for i in range(3)) == 2, LIMIT_S))
            began = set(self.descendants(process.pid))
            self.assertGreaterEqual(len(began), 8)  # two workers, daemons and programs with their children
            process.send_signal(number)
            output, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, output, began

    @staticmethod
    def descendants(pid):
        """Processes that it has started, and those that these have started."""
        parents = {}
        for folder in pathlib.Path('/proc').glob('[0-9]*'):
            try:
                fields = (folder / 'stat').read_text(encoding='utf-8', errors='replace').rpartition(')')[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
        found = list(parents.get(pid, []))
        for each in found:
            found += parents.get(each, [])
        return found

    def test_an_interruption_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            for mark in self.folder.glob('mark*'):
                mark.unlink()
            status, output, began = self.interrupted(number)
            self.assertEqual(status, 1)
            self.assertIn('interrupted: 3 runs did not end\n', output)
            self.assertEqual(list(self.temporary.iterdir()), [])
            self.assertEqual([pid for pid in began if pathlib.Path(f'/proc/{pid}').exists()], [])

    def test_the_list(self):
        done = self.run_test('--list', self.write('one', HEAD + program('one', 'true')))
        self.assertEqual((done.returncode, done.stdout), (0, 'one  t\n'))
        done = self.run_test('--list')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreaterEqual(len(done.stdout.splitlines()), 40)
        self.assertRegex(done.stdout, r'(?m)^retry_exceeded +Retry exceeded at exactly the 1,000th message$')
        installed = {line.split()[0] for line in done.stdout.splitlines()}
        for page in ('laboratory.md', 'scenarios.md'):
            text = pathlib.Path(DOCUMENT).with_name(page).read_text(encoding='utf-8')
            named = {word for names in re.findall(r'\broci test ((?:[a-z]+_[a-z_]+ ?)+)', text) for word in names.split()}
            self.assertEqual(named - installed, set())
            self.assertNotEqual(named, set())
        done = self.run_test('cm_rejectd')
        self.assertIn('the nearest is cm_rejected', done.stderr)


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    DOCUMENT = sys.argv[4]
    unittest.main(argv=[sys.argv[0]] + sys.argv[5:])
