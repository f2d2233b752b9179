"""The scratch copy of the tree and its build folder: plants and removes bugs, builds test programs, runs them."""
import dataclasses
import filecmp
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time

# Files that tests read.
DATA = ('tests/vectors/', 'tests/fuzz/corpus/', 'tests/integration/', 'docs/')
# A build or a test program that hangs must not block the rest.
BUILD_LIMIT_S = 1800
END_LIMIT_S = 10


class BuildError(Exception):
    """A build failed; the message has the compiler's first error."""


class NotGreen(Exception):
    """A test fails without any bug."""


@dataclasses.dataclass(frozen=True)
class Test:
    """A Meson test, and the targets that it needs."""
    name: str
    suites: tuple
    command: tuple
    environment: dict
    folder: str
    limit_s: float
    targets: tuple


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Result of a test program: 'passed', 'failed', 'skipped' or 'hung'. `case`: the first failing test, or the one in which it
    `died` or hung."""
    word: str
    case: str
    died: bool
    seconds: float


def run_bounded(command, limit_s, log, **options):
    """Runs a command in its own process group, with the output in the file `log`. Returns its status; None: time limit."""
    with open(log, 'wb') as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                                 **options)
        try:
            return child.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # Ninja ends its compilers, which are in process groups of their own: one that went on would compile a file that has
            # changed meanwhile, and the compiler cache would keep that as the result for the bug.
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(timeout=END_LIMIT_S)
                except subprocess.TimeoutExpired:
                    pass
            # Also ends processes that the program has left.
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()


def first_failure(text):
    """(first failing case, False) from the output of GoogleTest or TAP; (last started case, True) if the program died."""
    failed = re.search(r'^\[  FAILED  \] ([\w/.-]+)', text, flags=re.M) or re.search(r'^not ok \d+ (?:- )?(\S+)', text, flags=re.M)
    if failed:
        return failed.group(1), False
    begun = re.findall(r'^\[ RUN      \] (\S+)', text, flags=re.M)
    return begun[-1] if begun else '', True


class Scratch:
    """build-mutate/source, a copy of the working tree, and build-mutate/build."""

    def __init__(self, top, folder, jobs):
        self.top, self.source, self.build, self.logs = top, folder / 'source', folder / 'build', folder / 'logs'
        self.jobs = jobs
        self.planted = {}  # file: its text without the bug
        self.logs.mkdir(parents=True, exist_ok=True)

    def refresh(self):
        """Makes the copy equal to the working tree. Returns a hash of the files that tests read (DATA)."""
        listing = subprocess.run(['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], cwd=self.top, check=True,
                                 stdout=subprocess.PIPE).stdout.decode()
        names = {name for name in listing.split('\0') if name and (self.top / name).is_file()}
        digest = hashlib.sha256()
        for name in sorted(names):
            origin, copy = self.top / name, self.source / name
            if not copy.is_file() or not filecmp.cmp(origin, copy, shallow=False):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(origin, copy)
            shutil.copymode(origin, copy)
            if name.startswith(DATA):
                digest.update(f'{name}\0'.encode() + hashlib.sha256(origin.read_bytes()).digest())
        for path in self.source.rglob('*'):
            if path.is_file() and str(path.relative_to(self.source)) not in names:
                path.unlink()
        return digest.hexdigest()

    def configure(self):
        """Configures the build folder if necessary: little optimisation and no debug information, for short compile times."""
        if (self.build / 'build.ninja').exists():
            return
        shutil.rmtree(self.build, ignore_errors=True)
        steps = ('set -euo pipefail; . "$1/tools/lib/common.sh"; . "$1/tools/lib/build.sh"; '
                 'configure "$2" g++ gcc -Dbuildtype=debug -Doptimization=1 -Ddebug=false')
        log = self.logs / 'configure.log'
        if run_bounded(['bash', '-c', steps, 'mutate', str(self.source), str(self.build)], BUILD_LIMIT_S, log) != 0:
            raise BuildError(f'meson could not configure {self.build}; see {log}')

    def tests(self):
        """All tests of the build folder, by name."""
        def introspect(what):
            answer = subprocess.run(['meson', 'introspect', what, str(self.build)], check=True, stdout=subprocess.PIPE)
            return json.loads(answer.stdout)

        # Ninja must regenerate the build first, in case a meson.build has changed.
        self.make(['build.ninja'], 'regenerate')
        files = {target['id']: target['filename'] for target in introspect('--targets')}
        tests = {}
        for entry in introspect('--tests'):
            targets = tuple(os.path.relpath(name, self.build) for depend in entry['depends'] for name in files[depend])
            tests[entry['name']] = Test(entry['name'], tuple(suite.split(':')[-1] for suite in entry['suite']), tuple(entry['cmd']),
                                        entry['env'], entry['workdir'] or str(self.build), float(entry['timeout'] or 0) or 3600,
                                        targets)
        return tests

    def make(self, targets, log_name, anew=False):
        """Builds Ninja targets. `anew`: compiles what the planted files change without an answer from the compiler cache."""
        log = self.logs / f'{log_name}.build.log'
        environment = dict(os.environ)
        if anew:
            environment['CCACHE_RECACHE'] = '1'
            for file in self.planted:
                (self.source / file).touch()
        status = run_bounded(['ninja', '-j', str(self.jobs), '-C', str(self.build), *targets], BUILD_LIMIT_S, log, env=environment)
        if status != 0:
            text = log.read_text(errors='replace')
            error = re.search(r'^.*\berror: .*$', text, flags=re.M)
            raise BuildError(f'{error.group(0) if error else "the build failed"} (see {log})')

    def hash_of(self, test):
        """A hash of the programs of `test`."""
        digest = hashlib.sha256()
        for target in test.targets:
            with open(self.build / target, 'rb') as program:
                digest.update(hashlib.file_digest(program, 'sha256').digest())
        return digest.hexdigest()

    def plant(self, texts):
        """Changes files of the copy: {file: text}."""
        for file, text in texts.items():
            path = self.source / file
            self.planted.setdefault(file, path.read_text(encoding='utf-8'))
            path.write_text(text, encoding='utf-8')

    def restore(self):
        """Removes the planted bug."""
        for file, text in self.planted.items():
            (self.source / file).write_text(text, encoding='utf-8')
        self.planted = {}

    def run(self, test, limit_s, log_name, case=''):
        """Runs a test program until its first failure, or one case of it."""
        environment = dict(os.environ, **test.environment, GTEST_FAIL_FAST='1', GTEST_COLOR='no')
        if case:
            environment['GTEST_FILTER'] = case
        log = self.logs / f'{log_name}.{test.name}.log'
        begin = time.monotonic()
        status = run_bounded(test.command, limit_s, log, cwd=test.folder, env=environment)
        seconds = time.monotonic() - begin
        if status == 0:
            return Outcome('passed', '', False, seconds)
        if status == 77:
            return Outcome('skipped', '', False, seconds)
        case, died = first_failure(log.read_text(errors='replace'))
        return Outcome('failed' if status is not None else 'hung', case, died, seconds)
