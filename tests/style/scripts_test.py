#!/usr/bin/env python3
"""Tests of the scripts in tools/ that check the tree and count tests. Prints TAP."""
import contextlib
import fcntl
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOP / 'tests'))
import tap  # pylint: disable=wrong-import-position


def load(path):
    """A script under tools/ as a module; it has no .py in its name where people run it."""
    loader = importlib.machinery.SourceFileLoader(path.stem.replace('-', '_'), str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


PRIVATE_MOUNTS = ('unshare', '--map-root-user', '--mount')  # for ordinary users, too
SLEEPER = f'roci-{os.getpid()}'  # at most 15 characters


def make_sleeper(folder):
    """A program in `folder` that sleeps, and that is_sleeping() finds."""
    return shutil.copy(shutil.which('sleep'), pathlib.Path(folder) / SLEEPER)


def is_sleeping():
    """Whether a program of make_sleeper() runs. By its name: a process's arguments lie in its memory, and hostile programs
    of other tests let the reader wait there."""
    names = subprocess.run(['ps', 'axo', 'comm'], capture_output=True, text=True, check=True).stdout.splitlines()
    return SLEEPER in names


def sleeps_on():
    """Whether a program of make_sleeper() still runs some time later. A process closes its pipes before it is gone, so the
    test that reads them to their end may see it for a moment."""
    deadline = time.monotonic() + 30
    while is_sleeping():
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False


check_includes = load(TOP / 'tools/check-includes')
check_tidy = load(TOP / 'tools/check-tidy')
changes = sys.modules['changes']
count_tests = load(TOP / 'tools/lib/count_tests.py')
test_plan = load(TOP / 'tools/lib/test_plan.py')


class IncludeDirection(unittest.TestCase):
    """Each rule of tools/check-includes, in a tree of a few files."""

    def complaints(self, path, line):
        with tempfile.TemporaryDirectory() as top:
            root = pathlib.Path(top)
            for name in ('memory/m.h', 'roce/r.h', 'dataplane/shard/dataplane.h', 'dataplane/shard/worker.h', 'control/c.h', 'verbs_provider/p.h', 'verbs_provider/abi/a.h', path):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text('#pragma once\n')
            (root / path).write_text(line + '\n')
            return check_includes.check_file(root, root / path)

    def allowed(self, path, line):
        self.assertEqual(self.complaints(path, line), [])

    def forbidden(self, path, line):
        self.assertEqual(len(self.complaints(path, line)), 1, f'{path}: {line}')

    def test_inner_folders_are_open_to_outer_ones_only(self):
        chain = [('memory', 'm'), ('roce', 'r'), ('dataplane', 'shard/dataplane'), ('control', 'c')]
        for outer, (folder, _) in enumerate(chain):
            for inner, (target, header) in enumerate(chain):
                expect = self.allowed if inner <= outer else self.forbidden
                expect(f'{folder}/x.cc', f'#include "{target}/{header}.h"')

    def test_a_shard_is_reached_by_commands(self):
        self.allowed('dataplane/x.cc', '#include "dataplane/shard/worker.h"')
        self.forbidden('control/x.cc', '#include "dataplane/shard/worker.h"')
        self.allowed('control/x.cc', '#include "dataplane/shard/dataplane.h"')

    def test_the_shared_declarations_are_a_leaf(self):
        for folder in ('dataplane', 'control', 'verbs_provider'):
            self.allowed(f'{folder}/x.cc', '#include "verbs_provider/abi/a.h"')
        for folder in ('memory', 'roce'):
            self.forbidden(f'{folder}/x.cc', '#include "verbs_provider/abi/a.h"')
        self.forbidden('verbs_provider/abi/x.h', '#include "memory/m.h"')
        self.forbidden('verbs_provider/abi/x.h', '#include "verbs_provider/p.h"')
        self.forbidden('verbs_provider/abi/x.h', '#include <infiniband/verbs.h>')
        self.allowed('verbs_provider/abi/x.h', '#include <stdint.h>')

    def test_the_core_is_without_input_and_output(self):
        for folder in ('memory', 'roce'):
            for header in ('rte_mbuf.h', 'infiniband/verbs.h', 'rdma/rdma_user_cm.h', 'chrono', 'time.h', 'unistd.h',
                           'sys/mman.h', 'sys/uio.h', 'linux/types.h', 'thread', 'iostream', 'cstdio'):
                self.forbidden(f'{folder}/x.h', f'#include <{header}>')
            for header in ('array', 'cstdint', 'span', 'immintrin.h', 'isa-l/crc.h', 'absl/container/flat_hash_map.h'):
                self.allowed(f'{folder}/x.h', f'#include <{header}>')
        self.allowed('dataplane/x.cc', '#include <rte_mbuf.h>')

    def test_the_provider_needs_nothing_of_the_daemon(self):
        for line in ('"control/c.h"', '"roce/r.h"', '<absl/status/status.h>', '<rte_mbuf.h>', '<thread>'):
            self.forbidden('verbs_provider/x.cc', '#include ' + line)
        self.allowed('verbs_provider/x.cc', '#include <infiniband/verbs.h>')

    def test_own_headers_exist_and_are_named_from_the_top(self):
        self.forbidden('roce/x.cc', '#include "r.h"')
        self.forbidden('roce/x.cc', '#include "roce/absent.h"')
        self.forbidden('roce/x.cc', '  #  include <dataplane/d.h>  // in angle brackets')


class Counting(unittest.TestCase):
    """tools/lib/count_tests.py."""

    def test_a_crash_is_a_failure_although_every_reported_case_passed(self):
        runs = [{'name': 'p:unit / a', 'result': 'FAIL', 'returncode': -11}]
        totals, failures = count_tests.count(runs, {'p:unit / a.S': [('S.x', 'passed'), ('S.y', 'skipped')]})
        self.assertEqual((totals['passed'], totals['failed'], totals['skipped']), (1, 1, 1))
        self.assertEqual(len(failures), 1)

    def test_a_failed_case_is_not_counted_twice(self):
        runs = [{'name': 'p:unit / a', 'result': 'FAIL', 'returncode': 1}]
        totals, _ = count_tests.count(runs, {'p:unit / a.S': [('S.x', 'failed')], 'p:unit / ab.S': [('S.x', 'passed')]})
        self.assertEqual((totals['passed'], totals['failed']), (0, 1))

    def test_plain_programs_count_one_each(self):
        runs = [{'name': n, 'result': r, 'returncode': 0} for n, r in (('a', 'OK'), ('b', 'SKIP'), ('c', 'TIMEOUT'))]
        totals, _ = count_tests.count(runs, {})
        self.assertEqual((totals['passed'], totals['failed'], totals['skipped']), (1, 1, 1))

    def test_reads_what_meson_writes(self):
        report = ('<testsuites><testsuite name="p.p:unit / a.S"><testcase name="x" classname="S"/><testcase name="y" '
                  'classname="S"><failure/></testcase><testcase name="z" classname="S" status="notrun"/></testsuite>'
                  '<testsuite name="p"><testcase name="p:style / b" classname="p"/></testsuite></testsuites>')
        self.assertEqual(count_tests.reported_cases(io.StringIO(report)),
                         {'p:unit / a.S': [('S.x', 'passed'), ('S.y', 'failed'), ('S.z', 'skipped')]})


    def test_what_was_expected_and_did_not_run_is_named(self):
        runs = [{'name': 'p:unit / a', 'result': 'OK', 'returncode': 0}]
        self.assertEqual(count_tests.missing(runs, ['p:unit / a', 'p:sim / b']), ['p:sim / b'])

    def test_reasons_for_skipping_are_told(self):
        runs = [{'name': 'a', 'result': 'OK', 'stdout': 'ok 1 x # SKIP no root\nok 2 y # SKIP no root\n'},
                {'name': 'b', 'result': 'SKIP', 'stdout': 'begin\nno such module\n'},
                {'name': 'c', 'result': 'OK', 'stdout': 'x_test.cc:12: Skipped\nno hugepages\n'}]
        self.assertEqual(count_tests.skip_reasons(runs), {'no root': ['a', 'a'], 'no such module': ['b'], 'no hugepages': ['c']})

    def test_what_a_test_leaves_out_is_told(self):
        runs = [{'name': 'a', 'result': 'OK', 'stdout': 'clean\nleft out: the rest\n'}, {'name': 'b', 'result': 'OK'}]
        self.assertEqual(count_tests.remarks(runs), ['left out: the rest'])


class Runs(unittest.TestCase):
    """tools/test where something goes wrong, with a Meson and a Ninja that do what a case says."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name)
        for name in ('tools/test', 'tools/lib', 'tests/isolated'):
            (self.top / name).parent.mkdir(exist_ok=True)
            copy = shutil.copytree if (TOP / name).is_dir() else shutil.copy
            copy(TOP / name, self.top / name)
        (self.top / 'scratch').mkdir()
        self.set_up('meson', 'mkdir -p build && touch build/build.ninja')
        self.set_up('ninja', 'exit 0')

    def set_up(self, program, script):
        """What a program shall do."""
        file = self.top / 'bin' / program
        file.parent.mkdir(exist_ok=True)
        file.write_text('#!/bin/bash\n' + script + '\n')
        file.chmod(0o755)

    def environment(self, **more):
        return {**os.environ, 'PATH': f'{self.top}/bin:{os.environ["PATH"]}', 'TMPDIR': str(self.top / 'scratch'), **more}

    def start(self, *arguments, **environment):
        return subprocess.Popen([self.top / 'tools/test', '--no-setup', *arguments], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment(**environment))

    def assert_not_green(self, run, *told):
        output, errors = run.communicate(timeout=50)
        self.assertNotEqual(run.returncode, 0)
        self.assertRegex(output.splitlines()[-1], r'^0 passed, [1-9]\d* failed$')
        for text in told:
            self.assertIn(text, output + errors)
        self.assertEqual(list((self.top / 'scratch').iterdir()), [])

    def test_a_folder_that_cannot_be_configured(self):
        self.set_up('meson', 'exit 1')
        self.assert_not_green(self.start(), 'everything', 'did not run: meson could not configure build/')

    def test_a_build_that_fails(self):
        self.set_up('ninja', 'echo "No space left on device" >&2; exit 1')
        self.assert_not_green(self.start('--quick'), 'No space left on device', 'build', 'its build failed (status 1)')

    def test_no_time_left(self):
        self.set_up('ninja', 'sleep 40')
        self.assert_not_green(self.start('--quick', ROCI_TEST_LIMIT_S='1'), 'no time left (ROCI_TEST_LIMIT_S)')

    def test_no_room_for_files(self):
        self.assert_not_green(self.start('--quick', TMPDIR='/proc/self'), 'cannot write to /proc/self')

    @unittest.skipIf(subprocess.run([*PRIVATE_MOUNTS, 'true'], capture_output=True, check=False).returncode,
                     'no user and mount namespaces here')
    def test_a_full_disk(self):
        (self.top / 'build').mkdir()
        self.set_up('ninja', 'head -c 1M /dev/zero >build/object')
        mount = 'mount -t tmpfs -o size=64k roci-test build && exec tools/test --no-setup --quick'
        run = subprocess.Popen([*PRIVATE_MOUNTS, 'bash', '-c', mount], cwd=self.top, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment())
        self.assert_not_green(run, 'No space left on device', 'the disk of build is full, or nearly: 0 MiB are left')

    def test_a_build_folder_that_cannot_be_written(self):
        (self.top / 'build').write_text('')
        self.assert_not_green(self.start('--quick'), 'cannot write to build/')

    def test_a_second_run_in_the_same_clone(self):
        (self.top / 'build').mkdir()
        with open(self.top / 'build/.tools-test', 'w', encoding='ascii') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assert_not_green(self.start('--quick'), 'another tools/test is running in this clone')

    def test_meson_runs_nothing(self):
        self.assert_not_green(self.start('--quick'), 'did not run')

    def test_a_list_runs_nothing(self):
        walk = '[{\\"name\\": \\"a_walk\\", \\"suite\\": [\\"roci:walk\\"], \\"cmd\\": [], \\"depends\\": []}]'
        self.set_up('meson', f'echo "$@" >>{self.top}/calls\n'
                    'for folder in build build-asan build-tsan; do [[ " $* " = *" $folder "* ]] || continue\n'
                    'mkdir -p $folder/meson-info; touch $folder/build.ninja\n'
                    'for what in tests targets; do echo "[]" >$folder/meson-info/intro-$what.json; done; done\n'
                    f'[ ! -d build-asan ] || echo "{walk}" >build-asan/meson-info/intro-tests.json')
        for extent in ('--list',), ('--list', '--all'), ('--list', '--suite', 'walk'):
            run = self.start(*extent)
            output, errors = run.communicate(timeout=50)
            self.assertEqual((run.returncode, output), (0, 'build-asan: walk/a_walk\n'), errors)
        self.assertEqual((self.top / 'calls').read_text().count('\n'), 3)  # the configurations
        self.set_up('ninja', '[[ $* == *build.ninja ]] || exit 3')
        run = self.start('--list')
        self.assertIn('the build failed (status 3)', run.communicate(timeout=50)[1])
        self.assertEqual(run.returncode, 1)

    def test_options_that_exclude_each_other(self):
        for options in ('--quick', '--all'), ('--changed', '--list'), ('--changed=HEAD', '--suite', 'unit'), ('--list', '--all', '--quick'):
            run = self.start(*options)
            self.assertEqual(run.communicate(timeout=50)[0], '', options)
            self.assertEqual(run.returncode, 1, options)

    def test_a_suite_that_the_extent_leaves_out(self):
        run = self.start('--quick', '--suite', 'walk')
        output, _ = run.communicate(timeout=50)
        self.assertIn('nothing to run', output)
        self.assertEqual((run.returncode, output.splitlines()[-1]), (1, '0 passed, 0 failed'))

    def test_an_interrupted_set_up_leaves_no_process(self):
        shutil.copy(TOP / 'tools/setup', self.top / 'tools')
        (self.top / 'tools/packages.txt').write_text('roci-no-such-package\n')
        self.set_up('sudo', 'shift; exec "$@"')
        self.set_up('apt-cache', 'echo "Candidate: 1"')
        self.set_up('apt-get', 'echo begun >&2; exec ' + SLEEPER + ' 97')
        make_sleeper(self.top / 'bin')
        run = subprocess.Popen([self.top / 'tools/test'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=self.environment())
        while run.stderr.readline() not in ('begun\n', ''):
            pass
        while not is_sleeping() and run.poll() is None:
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        self.assert_not_green(run, 'interrupted by SIGINT')
        self.assertFalse(sleeps_on())

    def test_a_configuration_that_was_interrupted(self):
        self.set_up('meson', 'mkdir -p build/meson-private; touch build/meson-private/coredata.dat; echo begun >&2; sleep 40')
        run = self.start()
        run.stderr.readline()  # 'configuring'
        run.stderr.readline()
        run.send_signal(signal.SIGTERM)
        self.assert_not_green(run, 'meson could not configure build/ (interrupted)')
        # As Meson does where it finds options.
        self.set_up('meson', '[ -e build/meson-private/coredata.dat ] || touch build/build.ninja; exit 0')
        self.start().communicate(timeout=50)
        self.assertTrue((self.top / 'build/build.ninja').exists())

    def test_nothing_begins_after_an_interruption(self):
        self.set_up('meson', f'echo "$@" >>{self.top}/calls; mkdir -p build && touch build/build.ninja')
        self.set_up('ninja', 'echo begun >&2; sleep 40')
        run = self.start()
        while run.stderr.readline() != 'begun\n':
            pass
        run.send_signal(signal.SIGTERM)
        self.assert_not_green(run, 'interrupted by SIGTERM')
        self.assertNotIn('build-asan', (self.top / 'calls').read_text())

    def test_an_unknown_suite(self):
        run = self.start('--suite', 'units')
        output, errors = run.communicate(timeout=50)
        self.assertEqual((run.returncode, output), (1, ''))
        self.assertIn('no suite units', errors)

    def test_limits_are_numbers(self):
        for name in ('ROCI_TEST_LIMIT_S', 'ROCI_JOBS', 'ROCI_TEST_JOBS'):
            for value in ('', '0', 'abc', '-1'):
                output, errors = self.start(**{name: value}).communicate(timeout=50)
                self.assertEqual(output, '')
                self.assertIn(f"{name} is '{value}'", errors)

    def test_a_commit_to_compare_with_has_a_name(self):
        self.assertIn('--changed= needs a commit', self.start('--changed=').communicate(timeout=50)[1])

    def test_an_interruption_ends_the_children(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.set_up('ninja', f'echo $$ >{self.top}/pid; exec sleep 40')
            run = self.start()
            while not (self.top / 'pid').exists() or not (self.top / 'pid').read_text().strip():
                time.sleep(0.02)
            child = int((self.top / 'pid').read_text())
            run.send_signal(number)
            self.assert_not_green(run, 'interrupted by SIG' + number.name[3:])
            for _ in range(100):  # its end, and that somebody takes note of it
                if not os.path.exists(f'/proc/{child}'):
                    break
                time.sleep(0.1)
            self.assertFalse(os.path.exists(f'/proc/{child}'), number)
            (self.top / 'pid').unlink()


class Subreaper(unittest.TestCase):
    """tools/lib/subreaper.py."""

    def run_in(self, script):
        with tempfile.TemporaryDirectory() as folder:
            make_sleeper(folder)
            with subprocess.Popen([TOP / 'tools/lib/subreaper.py', 'bash', '-c', script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env={**os.environ, 'PATH': f'{folder}:{os.environ["PATH"]}'}) as run:
                run.stdout.readline()
                yield run
                self.errors = run.communicate(timeout=50)[1]
        self.assertFalse(sleeps_on())

    def test_the_exit_status_is_the_commands(self):
        for script, status in ('exit 3', 3), ('kill -9 $$', 137), ('true', 0):
            for run in self.run_in(script):
                pass
            self.assertEqual((run.returncode, self.errors), (status, ''))

    def test_processes_in_other_sessions_end_with_it(self):
        for run in self.run_in(f'setsid {SLEEPER} 97 >/dev/null 2>&1 & setsid bash -c "trap : TERM; {SLEEPER} 98 & wait; wait" & '
                               'sleep 0.5; kill -9 $$'):
            pass
        self.assertEqual(run.returncode, 137)
        self.assertIn(SLEEPER, self.errors)

    def test_a_signal_is_passed_on(self):
        for run in self.run_in(f'trap "exit 4" TERM; echo; setsid {SLEEPER} 97 & wait'):
            run.terminate()
        self.assertEqual(run.returncode, 4)

    def test_orphans_are_reaped_meanwhile(self):
        for run in self.run_in('pid=$(sleep 0.1 >/dev/null & echo $!); sleep 1; [ ! -e /proc/$pid ]'):
            pass
        self.assertEqual(run.returncode, 0)


needs_namespaces = unittest.skipIf(subprocess.run([TOP / 'tests/isolated', '--check'], check=False).returncode,
                                   'no namespaces here (not root?)')


class Isolation(unittest.TestCase):
    """tests/isolated."""

    def run_in(self, *command):
        return subprocess.run([TOP / 'tests/isolated', *command], capture_output=True, text=True, timeout=30, check=False)

    def test_the_exit_status_and_the_output_are_the_commands(self):
        done = self.run_in('sh', '-c', 'echo here; exit 77')
        self.assertEqual((done.returncode, done.stdout), (77, 'here\n'))

    def test_a_program_runs_outside_before(self):
        with tempfile.TemporaryDirectory() as folder:
            first = pathlib.Path(folder, 'first')
            first.write_text('#!/bin/sh\nreadlink /proc/self/ns/net; echo $1; exit 3\n')
            first.chmod(0o755)
            done = self.run_in('--first', first, 'word', 'sh', '-c', 'exit 0')
        self.assertEqual((done.returncode, done.stderr.split()), (0, [os.readlink('/proc/self/ns/net'), 'word']))

    @needs_namespaces
    def test_ports_namespaces_and_processes_are_private(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_in('sh', '-c', f'ip netns add roci-x; ip link add roci-v type veth; ls /run/netns; {make_sleeper(folder)} 97 & '
                               'ping -c1 -W2 127.0.0.1 >/dev/null 2>&1 || ip -br address show lo; readlink /proc/self/ns/net')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.split()[0], 'roci-x')
        self.assertNotIn(os.readlink('/proc/self/ns/net'), done.stdout)
        self.assertFalse(os.path.exists('/run/netns/roci-x'))
        self.assertFalse(os.path.exists('/sys/class/net/roci-v'))
        self.assertFalse(sleeps_on())

    def test_it_ends_with_a_signal_to_its_group(self):
        with subprocess.Popen([TOP / 'tests/isolated', 'sleep', '40'], start_new_session=True) as run:
            time.sleep(0.5)
            os.killpg(run.pid, signal.SIGTERM)
            self.assertNotEqual(run.wait(20), 0)

    @needs_namespaces
    def test_nothing_outlives_it(self):
        read, write = os.pipe()
        with subprocess.Popen([TOP / 'tests/isolated', 'sh', '-c', 'sleep 40 & echo; sleep 40'], stdout=write) as run:
            os.close(write)
            os.read(read, 1)
            run.kill()
        # The pipe ends when every process that holds it has ended.
        self.assertEqual(select.select([read], [], [], 20)[0], [read])
        self.assertEqual(os.read(read, 1), b'')
        os.close(read)


class Plans(unittest.TestCase):
    """tools/lib/test_plan.py: what a change concerns, in a plan of four tests."""

    def setUp(self):
        self.plan = test_plan.Plan.__new__(test_plan.Plan)
        self.plan.folder = TOP / 'build'
        inputs = {'roce': ['../tests/unit/roce/pacer_test.cc', '../roce/icrc.cc', 'roce/libroce.a'],
                  'control': ['../tests/unit/control/device/users_test.cc', '../roce/icrc.cc', 'control/libcontrol.a'],
                  'cm_api': ['../tests/integration/cm_end.cc', '../roce/icrc.cc', 'control/libcontrol.a'],
                  'format': [], 'tidy_1': []}
        suites = {'roce': ['unit'], 'control': ['unit'], 'cm_api': ['integration'], 'format': ['style'], 'tidy_1': ['style', 'night']}
        self.plan.tests = [{'name': name, 'suite': ['p:' + each for each in suites[name]], 'cmd': [], 'depends': []} for name in inputs]
        self.plan.inputs = lambda test: inputs[test['name']]

    def chosen(self, *changed):
        chosen, left = test_plan.choose(self.plan, changed)
        return [test['name'] for test in chosen], {test['name']: why for test, why in left}

    def test_an_inner_file_concerns_what_is_near_it(self):
        self.assertEqual(self.chosen('roce/icrc.cc'),
                         (['roce', 'format'], {'control': 'farther out than the change', 'cm_api': 'needs the daemon'}))

    def test_a_header_concerns_who_includes_it(self):
        self.assertEqual(self.chosen('roce/pacer.h')[0], ['roce', 'format'])

    def test_a_test_of_whole_programs_is_chosen_by_its_own_files(self):
        self.assertEqual(self.chosen('tests/integration/cm_end.h')[0], ['cm_api', 'format'])

    def test_a_file_of_no_test_concerns_style_only(self):
        self.assertEqual(self.chosen('README.md'), (['format'], {}))


class Changes(unittest.TestCase):
    """tools/lib/changes.py and tools/check-tidy --changed, in a repository of a few files."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name).resolve()
        for module, name in (changes, 'TOP'), (test_plan, 'TOP'), (check_tidy, 'ROOT'):
            patch = unittest.mock.patch.object(module, name, self.top)
            patch.start()
            self.addCleanup(patch.stop)
        environment = unittest.mock.patch.dict(os.environ)
        environment.start()
        self.addCleanup(environment.stop)
        os.environ.pop('ROCI_TEST_BASE', None)  # of the run that this test is part of
        for name, text in {'roce/a.h': '', 'roce/b.h': '#include "roce/a.h"', 'roce/b.cc': '#include "roce/b.h"', 'roce/c.cc': ''}.items():
            (self.top / name).parent.mkdir(exist_ok=True)
            (self.top / name).write_text(text + '\n')
        self.git('init', '-q', '-b', 'main')
        self.git('add', '.')
        self.git('commit', '-q', '-m', 'first')

    def git(self, *arguments):
        subprocess.run(['git', '-c', 'user.name=x', '-c', 'user.email=x', '-c', 'commit.gpgsign=false', *arguments], cwd=self.top, check=True)

    @staticmethod
    def changed(base=None):
        return changes.changed_files(base)

    def test_deleted_and_renamed_files_are_changes(self):
        (self.top / 'roce/a.h').unlink()
        self.git('mv', 'roce/c.cc', 'roce/d.cc')
        self.assertEqual(self.changed()[1], ['roce/a.h', 'roce/c.cc', 'roce/d.cc'])
        self.git('commit', '-q', '-a', '-m', 'second')
        self.assertEqual(self.changed('HEAD~1')[1], ['roce/a.h', 'roce/c.cc', 'roce/d.cc'])

    def test_a_base_that_is_no_commit(self):
        self.assertIsNone(self.changed('nosuch'))

    def test_a_deleted_header_concerns_who_still_includes_it(self):
        (self.top / 'roce/a.h').unlink()
        self.assertIn(self.top / 'roce/a.h', test_plan.with_headers([self.top / 'roce/b.cc']))

    def tidied(self):
        database = [{'file': str(self.top / f'roce/{name}.cc'), 'directory': str(self.top), 'command': 'c++'} for name in 'bc']
        with contextlib.redirect_stdout(io.StringIO()) as said:
            chosen = check_tidy.select_changed(database)
        return list(chosen), said.getvalue()

    def test_a_header_is_read_by_a_source_that_includes_it_indirectly(self):
        (self.top / 'roce/a.h').write_text('#pragma once\n')
        self.assertEqual(self.tidied()[0], ['roce/b.cc'])

    def test_a_header_that_no_source_includes_is_told(self):
        (self.top / 'roce/e.h').write_text('#pragma once\n')
        chosen, said = self.tidied()
        self.assertEqual(chosen, [])
        self.assertIn('left out: clang-tidy of roce/e.h', said)

    def test_deleted_sources_are_not_read(self):
        (self.top / 'roce/b.cc').unlink()
        self.assertEqual(self.tidied()[0], [])


class SetUp(unittest.TestCase):
    """tools/setup with one package missing, and an apt-get that takes long."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name)
        shutil.copytree(TOP / 'tools/lib', self.top / 'tools/lib')
        shutil.copy(TOP / 'tools/setup', self.top / 'tools')
        (self.top / 'tools/packages.txt').write_text('roci-no-such-package\n')
        (self.top / 'bin').mkdir()
        for name, script in {'sudo': 'shift; exec "$@"', 'apt-cache': 'echo "Candidate: 1"',
                             'apt-get': f'trap "echo interrupted >>{self.top}/log; sleep 0.5; echo ended >>{self.top}/log; exit 100" INT\n'
                                        'echo begun >&2; sleep 40 >/dev/null 2>&1 & wait'}.items():
            file = self.top / 'bin' / name
            file.write_text('#!/bin/bash\n' + script + '\n')
            file.chmod(0o755)

    def test_a_signal_lets_apt_get_end_in_order(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with subprocess.Popen([self.top / 'tools/setup'], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  start_new_session=True, env={**os.environ, 'PATH': f'{self.top}/bin:{os.environ["PATH"]}'}) as run:
                while run.stderr.readline() not in ('begun\n', ''):
                    pass
                os.killpg(run.pid, number)
                errors = run.communicate(timeout=50)[1]
            self.assertEqual(run.returncode, 1, errors)
            self.assertIn('interrupted', errors)
            # timeout(1) sends the signal to apt-get and then to its group.
            self.assertRegex((self.top / 'log').read_text(), r'\A(interrupted\n)+ended\n\Z')
            (self.top / 'log').unlink()


class Packages(unittest.TestCase):
    """tools/packages.txt."""

    RELEASES = ('bookworm', 'trixie', 'forky')

    def listed(self, release, text=None):
        """The names for a release; of the list `text` in place of tools/packages.txt."""
        with tempfile.TemporaryDirectory() as top:
            top = pathlib.Path(top)
            shutil.copytree(TOP / 'tools/lib', top / 'tools/lib')
            (top / 'tools/packages.txt').write_text(text or (TOP / 'tools/packages.txt').read_text())
            run = subprocess.run(['bash', '-euc', '. "$0/tools/lib/common.sh"; listed_packages "$1"', top, release],
                                 capture_output=True, text=True, timeout=20, check=True)
        return run.stdout.splitlines()

    def test_is_a_list_of_names_without_repetition(self):
        for release in self.RELEASES:
            names = self.listed(release)
            self.assertEqual(len(names), len(set(names)))
            self.assertGreater(len(names), 40)
            for name in names:
                self.assertRegex(name, r'^[a-z0-9][a-z0-9+.-]+$')

    def test_brackets_restrict_a_name_to_releases(self):
        text = ('all  # every [release]\n\n# [bookworm]\nold [bookworm]\nboth [trixie bookworm] # two\n'
                'new [!bookworm]\nneither [!bookworm trixie]\n')
        self.assertEqual(self.listed('bookworm', text), ['all', 'old', 'both'])
        self.assertEqual(self.listed('trixie', text), ['all', 'both', 'new'])
        self.assertEqual(self.listed('forky', text), ['all', 'new', 'neither'])
        self.assertEqual(self.listed('book', text), ['all', 'new', 'neither'])


class Bounds(unittest.TestCase):
    """What Meson was told about the tests of this build."""

    SUITES = {'unit', 'sim', 'fuzz', 'integration', 'conformance', 'style', 'interop', 'systems', 'bench', 'walk'}
    LONGEST_S = 900
    LONGEST_AT_NIGHT_S = 1200

    def setUp(self):
        # Meson's test passes its build folder; by hand, it is the one that tools/test makes.
        build = pathlib.Path(os.environ.get('ROCI_BUILD', TOP / 'build'))
        self.tests = json.loads((build / 'meson-info/intro-tests.json').read_text())

    def test_every_test_has_a_time_limit(self):
        for test in self.tests:
            longest_s = self.LONGEST_AT_NIGHT_S if any(s.endswith('night') for s in test['suite']) else self.LONGEST_S
            self.assertTrue(0 < test['timeout'] <= longest_s, f'{test["name"]}: {test["timeout"]} s')

    def test_every_test_is_in_a_known_suite(self):
        for test in self.tests:
            suites = {suite.rpartition(':')[2] for suite in test['suite']}
            self.assertTrue(suites & self.SUITES, f'{test["name"]}: {suites}')


if __name__ == '__main__':
    tap.main(sys.modules['__main__'])
