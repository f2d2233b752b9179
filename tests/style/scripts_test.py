#!/usr/bin/env python3
"""Tests of the scripts under tools/ that judge the tree, count the tests and fetch headers. Speaks TAP."""
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

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


check_includes = load(TOP / 'tools/check-includes')
count_tests = load(TOP / 'tools/lib/count_tests.py')


class IncludeDirection(unittest.TestCase):
    """Each rule of tools/check-includes, in a tree of a few files."""

    def complaints(self, path, line):
        with tempfile.TemporaryDirectory() as top:
            root = pathlib.Path(top)
            for name in ('memory/m.h', 'roce/r.h', 'dataplane/d.h', 'control/c.h', 'verbs_provider/p.h', 'verbs_provider/abi/a.h', path):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text('#pragma once\n')
            (root / path).write_text(line + '\n')
            return check_includes.check_file(root, root / path)

    def allowed(self, path, line):
        self.assertEqual(self.complaints(path, line), [])

    def forbidden(self, path, line):
        self.assertEqual(len(self.complaints(path, line)), 1, f'{path}: {line}')

    def test_inner_folders_are_open_to_outer_ones_only(self):
        chain = [('memory', 'm'), ('roce', 'r'), ('dataplane', 'd'), ('control', 'c')]
        for outer, (folder, _) in enumerate(chain):
            for inner, (target, header) in enumerate(chain):
                expect = self.allowed if inner <= outer else self.forbidden
                expect(f'{folder}/x.cc', f'#include "{target}/{header}.h"')

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


class ProviderHeaders(unittest.TestCase):
    """tools/fetch-provider-headers, without a network."""

    def run_script(self, cache, *arguments):
        return subprocess.run([TOP / 'tools/fetch-provider-headers', *arguments], capture_output=True, text=True, timeout=50,
                              check=False, env={**os.environ, 'ROCI_CACHE_DIR': str(cache)})

    def make_archive(self, path, abi):
        """An archive that has of rdma-core what the script reads."""
        names = ['libibverbs/driver.h', 'libibverbs/kern-abi.h', 'libibverbs/cmd_ioctl.h', 'libibverbs/cmd_write.h',
                 'ccan/list.h', 'util/compiler.h', 'kernel-headers/rdma/ib_user_verbs.h', 'kernel-headers/rdma/rdma_user_rxe.h']
        contents = {name: '/* ' + name + ' */\n' for name in names}
        contents['CMakeLists.txt'] = f'set(IBVERBS_PABI_VERSION "{abi}")\n'
        contents['buildlib/make_abi_structs.py'] = 'import shutil, sys\nshutil.copy(sys.argv[1], sys.argv[2])\n'
        with tarfile.open(path, 'w:gz') as archive:
            for name, text in contents.items():
                member = tarfile.TarInfo('rdma-core/' + name)
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        return path

    def test_says_what_to_run_where_they_are_missing(self):
        with tempfile.TemporaryDirectory() as top:
            run = self.run_script(top, '--print')
        self.assertEqual(run.returncode, 1)
        self.assertIn('tools/setup', run.stderr)
        self.assertEqual(run.stdout, '')

    def test_takes_an_archive_of_the_right_abi_once(self):
        with tempfile.TemporaryDirectory() as top:
            archive = self.make_archive(top + '/a.tar.gz', 34)
            run = self.run_script(top, '--tarball', archive)
            self.assertEqual(run.returncode, 0, run.stderr)
            include = pathlib.Path(run.stdout.strip())
            self.assertTrue((include / 'infiniband/driver.h').is_file())
            self.assertTrue((include / 'kernel-abi/ib_user_verbs.h').is_file())
            self.assertFalse((include / 'infiniband/verbs.h').exists())
            self.assertIn('IBVERBS_PABI_VERSION 34', (include / 'config.h').read_text())
            again = self.run_script(top)
            self.assertEqual((again.returncode, again.stdout), (0, run.stdout))

    def test_refuses_another_abi_and_a_broken_archive(self):
        with tempfile.TemporaryDirectory() as top:
            other = self.run_script(top, '--tarball', self.make_archive(top + '/a.tar.gz', 65))
            self.assertEqual(other.returncode, 1)
            self.assertIn('private ABI 65, not 34', other.stderr)
            pathlib.Path(top, 'b.tar.gz').write_bytes(b'no archive')
            self.assertEqual(self.run_script(top, '--tarball', top + '/b.tar.gz').returncode, 1)
            self.assertEqual(self.run_script(top, '--print').returncode, 1)


class Packages(unittest.TestCase):
    """tools/packages.txt."""

    def test_is_a_list_of_names_without_repetition(self):
        lines = (TOP / 'tools/packages.txt').read_text().splitlines()
        names = [word for line in lines for word in line.split('#')[0].split()]
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            self.assertRegex(name, r'^[a-z0-9][a-z0-9+.-]+$')


class Bounds(unittest.TestCase):
    """What Meson was told about the tests of this build."""

    SUITES = {'unit', 'sim', 'fuzz', 'integration', 'conformance', 'style', 'interop', 'bench'}
    LONGEST_S = 900

    def setUp(self):
        # Meson's test passes its build folder; by hand, it is the one that tools/test makes.
        build = pathlib.Path(os.environ.get('ROCI_BUILD', TOP / 'build'))
        self.tests = json.loads((build / 'meson-info/intro-tests.json').read_text())

    def test_every_test_has_a_time_limit(self):
        for test in self.tests:
            self.assertTrue(0 < test['timeout'] <= self.LONGEST_S, f'{test["name"]}: {test["timeout"]} s')

    def test_every_test_is_in_a_known_suite(self):
        for test in self.tests:
            suites = {suite.rpartition(':')[2] for suite in test['suite']}
            self.assertTrue(suites & self.SUITES, f'{test["name"]}: {suites}')


if __name__ == '__main__':
    tap.main(sys.modules['__main__'])
