#!/usr/bin/python3
"""The public verbs tests of python3-pyverbs, on one device.

Usage: pyverbs_test.py [--only TEXT] [--gid N] DEVICE SKIPS

Run it with visible devices (`roci run`, with_daemon.sh), with the interpreter of Debian's pyverbs. Unpacks the package's
tests, leaves out those for one vendor's NIC, runs their run_tests.py, and prints a TAP line per case. A case must pass, or
be listed in SKIPS with its reason. A listed case that passes, or that the package does not have, is a failure as well, so
that the list stays correct; if it depends on the machine, both passing and skipping are accepted. Cases for root only must
pass for root, and skip themselves for other users. --only runs the cases whose name contains TEXT.
"""
import argparse
import faulthandler
import gc
import glob
import gzip
import inspect
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import unittest

PACKAGE = 'python3-pyverbs'
TESTS = 'usr/share/doc/rdma-core/tests'
VENDORS = ('test_mlx5', 'test_efa')
KINDS = ('machine', 'root', 'device', 'not built yet', 'not run')
CASE_TIMEOUT_S = 120


class Unavailable(Exception):
    """The tests are not here. The text says why."""


def packed_tests(scratch):
    """The folder with the tests: the installed one, or, where documentation is not installed, one from the package."""
    installed = os.path.join('/', TESTS)
    if glob.glob(os.path.join(installed, 'run_tests.py*')):
        return installed
    done = subprocess.run(['apt-get', '-qq', 'download', PACKAGE], cwd=scratch, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f'{installed} is missing, and apt-get cannot download {PACKAGE}: {" ".join(done.stderr.split())}')
    package, = glob.glob(os.path.join(scratch, PACKAGE + '_*.deb'))
    subprocess.run(['dpkg-deb', '-x', package, os.path.join(scratch, 'package')], check=True)
    return os.path.join(scratch, 'package', TESTS)


def unpack(scratch):
    source = packed_tests(scratch)
    target = os.path.join(scratch, 'tests')
    os.mkdir(target)
    for name in sorted(os.listdir(source)):
        if name.startswith(VENDORS):
            continue
        path = os.path.join(source, name)
        if name.endswith('.gz'):
            with gzip.open(path) as packed, open(os.path.join(target, name[:-3]), 'wb') as plain:
                shutil.copyfileobj(packed, plain)
        elif os.path.isfile(path):
            shutil.copy(path, target)
    return target


def installed_version():
    """The release of the package, e.g. 44."""
    done = subprocess.run(['dpkg-query', '-W', '-f', '${Version}', PACKAGE], capture_output=True, text=True, check=True)
    return int(re.match(r'\d+', done.stdout).group())


def read_skips(path, version):
    """{test: (kind, reason)}. A line is "TEST: KIND: REASON", or "TEST [N]: KIND: REASON" for a test that rdma-core has since release N;
    # begins a remark."""
    skips = {}
    with open(path, encoding='utf-8') as lines:
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if not line or line.startswith('#'):
                continue
            fields = re.fullmatch(r'([\w.]+)(?: \[(\d+)\])?: ([\w ]+): (.+)', line)
            if not fields or fields[3] not in KINDS or fields[1] in skips:
                raise SystemExit(f'{path}:{number}: wanted "TEST: KIND: REASON", each test once')
            if int(fields[2] or 0) <= version:
                skips[fields[1]] = (fields[3], fields[4])
    return skips


class Results:
    """What became of each case, printed as it comes."""

    def __init__(self, skips, out):
        self.skips = skips
        self.out = out
        self.count = 0
        self.failed = 0
        self.seen = set()

    def say(self, good, name, directive=''):
        self.count += 1
        self.failed += not good
        print(f'{"ok" if good else "not ok"} {self.count} - {name}{directive}', file=self.out, flush=True)

    def remark(self, text):
        for line in text.splitlines():
            print('#', line, file=self.out, flush=True)

    def note(self, name, outcome, detail):
        """`outcome` is pass, skip or fail."""
        self.seen.add(name)
        kind, reason = self.skips.get(name, ('', ''))
        if kind == 'root' and os.geteuid() == 0:
            kind = ''
        if outcome == 'pass':
            stale = kind not in ('', 'machine')
            self.say(not stale, name)
            if stale:
                self.remark('passes: it has no place in the list of skips any more')
        elif kind and (kind not in ('machine', 'root') or outcome == 'skip'):
            self.say(True, name, f' # SKIP {kind}: {reason}')
        else:
            self.say(False, name)
            self.remark(f'{outcome}: {detail}')

    def finish(self):
        for name in sorted(set(self.skips) - self.seen):
            self.say(False, name)
            self.remark('is in the list of skips, but there is no such test')
        print(f'1..{self.count}', file=self.out, flush=True)


def result_class(results, only):
    """A unittest result that reports to `results`; run_tests.py makes it through unittest.main."""

    class Result(unittest.TestResult):
        def startTest(self, test):
            super().startTest(test)
            self.outcome = ('pass', '')
            faulthandler.dump_traceback_later(CASE_TIMEOUT_S, exit=True)

        def stopTest(self, test):
            super().stopTest(test)
            faulthandler.cancel_dump_traceback_later()
            results.note(test.id(), *self.outcome)

        def worse(self, test, err):
            self.outcome = ('fail', self._exc_info_to_string(err, test))

        def addError(self, test, err):
            if not hasattr(test, '_testMethodName'):  # a module or class that cannot be set up
                results.note(str(test), 'fail', self._exc_info_to_string(err, test))
            self.worse(test, err)

        def addFailure(self, test, err):
            self.worse(test, err)

        def addSubTest(self, test, subtest, err):
            if err is not None:
                self.worse(test, err)

        def addSkip(self, test, reason):
            self.outcome = ('skip', reason)

        def wasSuccessful(self):
            return True  # `results` judge

    class Runner:
        """In place of unittest.TextTestRunner."""

        def __init__(self, **_):
            pass

        def run(self, tests):
            find_interfaces_without_netlink(sys.modules['tests.base'].RDMATestCase)
            result = Result()
            chosen = [case for case in flat(tests) if only in case.id()]
            for case in chosen:
                if results.skips.get(case.id(), ('', ''))[0] == 'not run':
                    results.note(case.id(), 'skip', '')
            unittest.TestSuite(case for case in chosen if case.id() not in results.seen).run(result)
            return result

    return Runner


def flat(tests):
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def net_name(device, _port=None):
    """The network device of an RDMA device, or None."""
    folder = f'/sys/class/infiniband/{device}/device/net'
    return next(iter(sorted(os.listdir(folder))), None) if os.path.isdir(folder) else None


def find_interfaces_without_netlink(case):
    """Newer tests (rdma-core 56) ask `rdma link` for the network device, which needs RDMA netlink. Where it fails, they find the
    network device in /sys, as older tests do."""
    takes_port = 'port' in inspect.signature(case.get_net_name).parameters
    if takes_port and subprocess.run(['rdma', 'link', 'show', '-j'], capture_output=True, check=False).returncode != 0:
        case.get_net_name = staticmethod(net_name)


def run(folder, device, gid, runner):
    sys.path.insert(0, folder)
    os.chdir(os.path.dirname(folder))
    sys.argv = ['run_tests.py', '--dev', device, '--port', '1', '--gid', gid]
    unittest.runner.TextTestRunner = runner  # what unittest.main uses
    try:
        runpy.run_path(os.path.join(folder, 'run_tests.py'), run_name='__main__')
    except SystemExit:
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', default='', metavar='TEXT')
    parser.add_argument('--gid', default='1', metavar='N')
    parser.add_argument('device', metavar='DEVICE')
    parser.add_argument('skips', metavar='SKIPS')
    options = parser.parse_args()
    skips = {name: why for name, why in read_skips(options.skips, installed_version()).items() if options.only in name}
    # Tests print as they like; the TAP lines have a descriptor of their own.
    out = os.fdopen(os.dup(1), 'w', encoding='utf-8')
    os.dup2(2, 1)
    faulthandler.enable()
    # The collector clears objects of a cycle in any order; pyverbs then uses freed ones (with Python 3.13).
    gc.disable()
    scratch = tempfile.mkdtemp(prefix='roci-pyverbs.')
    results = Results(skips, out)
    try:
        folder = unpack(scratch)
        run(folder, options.device, options.gid, result_class(results, options.only))
    except Unavailable as error:
        print(f'1..0 # SKIP {error}', file=out, flush=True)
        return 0
    finally:
        os.chdir('/')
        shutil.rmtree(scratch, ignore_errors=True)
    results.finish()
    return 1 if results.failed or not results.count else 0


if __name__ == '__main__':
    exit_status = main()
    sys.stdout.flush()
    os._exit(exit_status)  # without a last collection
