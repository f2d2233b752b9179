#!/usr/bin/env python3
"""Lists tests, their build targets, and the tests near a change.

Usage: test_plan.py targets [--suite NAME]... BUILD_FOLDER      print the Ninja targets of the tests of these suites
       test_plan.py list [--all] [--programs] [--suite NAME]... BUILD_FOLDER  print the name of every case (or, with --programs,
           of every test program, with the folder's name in front); builds nothing
       test_plan.py changed [--base COMMIT] BUILD_FOLDER         print the tests near a change; see below

Reads Meson's meson-info. `targets` and `changed` print lines `KIND NAME`: `target` for Ninja, `test` for `meson test`;
`changed` prints on stderr what it leaves out and why. A test is near a change if a changed file is among its sources, the
headers that these include, or its scripts. Programs that need the daemon depend on every source: they are selected only if
one of their files under tests/ has changed. Other programs are left out if they are linked with a library of an outer folder
that has not changed, unless one of their files under tests/ has changed.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from changes import TOP, changed_files  # pylint: disable=wrong-import-position

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
IMPORT = re.compile(r'^(?:import|from) (\w+)', re.MULTILINE)
# A script with a --list option: its own, or that of tap.main() or cases.run().
LISTS_CASES = re.compile(r"\b(?:cases\.run|tap\.main)\(|'--list'")
# Folders of the product, from the innermost to the outermost.
ORDER = ('memory', 'roce', 'dataplane', 'control', 'verbs_provider', 'tools')
WITH_DAEMON = {'integration', 'conformance', 'interop', 'systems', 'walk'}
# Suites that select when a test runs, not its kind.
SELECTORS = {'night', 'threads'}
# Run for every change.
ALWAYS = ('format', 'includes', 'tidy_changed')


class Plan:
    """The tests of a build folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.tests = [test for test in self.read('tests') if 'bench' not in self.suites(test)]
        self.targets = {target['id']: target for target in self.read('targets')}

    def read(self, what):
        return json.loads((self.folder / f'meson-info/intro-{what}.json').read_text(encoding='utf-8'))

    @staticmethod
    def suites(test):
        return {suite.rpartition(':')[2] for suite in test['suite']}

    def of_suites(self, names):
        return [test for test in self.tests if not names or self.suites(test) & set(names)]

    def outputs(self, test):
        """The Ninja targets of a test, relative to the folder."""
        return [os.path.relpath(name, self.folder) for target in test['depends'] for name in self.targets[target]['filename']]

    def inputs(self, test):
        """The inputs of a test's outputs, direct or not, by their Ninja names."""
        outputs = self.outputs(test)
        found = lines(['ninja', '-C', self.folder, '-t', 'inputs', *outputs]) if outputs else []
        return [line for line in found if not line.startswith('ninja:')]

    def sources(self, inputs):
        """The project's files among the inputs, without headers, including deleted ones."""
        names = ((self.folder / name).resolve() for name in inputs)
        return {name for name in names if name.is_relative_to(TOP) and not name.is_relative_to(self.folder)}


def closure(files, pattern, resolve):
    """The files and all files that they name by `pattern`, directly or not, including missing ones."""
    seen, todo = set(), list(files)
    while todo:
        file = todo.pop()
        if file in seen or file.suffix not in ('.c', '.cc', '.h', '.py'):
            continue
        seen.add(file)
        if file.is_file():
            todo += [resolve(file, name) for name in pattern.findall(file.read_text(encoding='utf-8'))]
    return seen


def with_headers(sources):
    return closure(sources, INCLUDE, lambda _file, name: TOP / name)


def scripts(test, folder):
    """The files of the tree among a test's arguments, and the modules that these import from their folders."""
    given = {(folder / word).resolve() for word in test['cmd'] if '/' in word}
    given = {file for file in given if file.is_relative_to(TOP) and not file.is_relative_to(folder) and file.is_file()}
    return given | closure(given, IMPORT, lambda file, name: file.parent / f'{name}.py')


def names_of(paths):
    return {path.relative_to(TOP).as_posix() for path in paths}


def too_far(inputs, changed):
    """Whether a program is linked with a library of a folder outside of all changed product folders."""
    def tops(names, suffixes):
        return [ORDER.index(name.split('/')[0]) for name in names if name.endswith(suffixes) and name.split('/')[0] in ORDER]

    linked, touched = tops(inputs, ('.a',)), tops(changed, ('.cc', '.h', '.c'))
    return bool(linked and touched) and max(linked) > max(touched)


def choose(plan, changed):
    """(tests near the changed files, [(test, reason for leaving it out)])."""
    changed = set(changed)
    chosen, left = [], []
    for test in plan.tests:
        if 'night' in plan.suites(test):
            continue
        inputs = plan.inputs(test)
        concerned = changed & (names_of(with_headers(plan.sources(inputs))) | names_of(scripts(test, plan.folder)))
        own = any(name.startswith('tests/') for name in concerned)
        if own or test['name'] in ALWAYS or ('style' in plan.suites(test) and any(
                name.startswith('tools/') for name in changed)):
            chosen.append(test)
        elif not concerned:
            continue
        elif plan.suites(test) & WITH_DAEMON:
            left.append((test, 'needs the daemon'))
        elif too_far(inputs, changed):
            left.append((test, 'farther out than the change'))
        else:
            chosen.append(test)
    return chosen, left


def print_targets(plan, tests):
    for output in sorted({output for test in tests for output in plan.outputs(test)}):
        print('target', output)


def say(*words):
    print(*words, file=sys.stderr)


def print_changed(plan, base):
    compared = changed_files(base)
    if compared is None:
        base = base or os.environ.get('ROCI_TEST_BASE')
        raise SystemExit(f'error: {base} is no commit here' if base else 'error: no git repository: what has changed?')
    against, changed = compared
    say(f'changed since {against}:', ' '.join(changed) or 'nothing')
    if not changed:
        return
    chosen, left = choose(plan, changed)
    print_targets(plan, chosen)
    for test in chosen:
        print('test', test['name'])
    for reason in sorted({reason for _, reason in left}):
        say(f'left out ({reason}):', ' '.join(test['name'] for test, why in left if why == reason))
    say('left out: sanitizers, clang-tidy of unchanged files, tests that no changed file is part of')
    builds = [name for name in changed if name.endswith(('meson.build', 'meson_options.txt'))]
    if builds:
        say('left out: what only the build files tell:', ' '.join(builds))


def lines(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)
    if done.returncode != 0:
        raise SystemExit(f'error: {" ".join(map(str, command))}: exit status {done.returncode}\n{done.stderr}')
    return done.stdout.splitlines()


def gtest_cases(program, filters):
    suite = ''
    for line in lines([program, '--gtest_list_tests', *filters]):
        if line.startswith('  '):
            yield suite + line.split('#')[0].strip()
        elif line.split('#')[0].strip().endswith('.'):
            suite = line.split('#')[0].strip()


def cases(plan, test, everything):
    """The names of a test's cases; empty: the test is a single case."""
    words = [str((plan.folder / word)) if os.path.exists(plan.folder / word) else word for word in test['cmd']]
    if test['protocol'] == 'gtest':
        programs = {str(plan.folder / output) for output in plan.outputs(test)}
        program = next(word for word in reversed(words) if word in programs)
        # Its own options too: some add cases.
        return gtest_cases(program, [word for word in words[words.index(program) + 1:] if word.startswith('--')])
    script = next((word for word in words if word.endswith('.py')), None)
    if test['protocol'] == 'tap' and script and LISTS_CASES.search(pathlib.Path(script).read_text(encoding='utf-8')):
        environment = {**os.environ, 'ROCI_TEST_ALL': 'yes' if everything else 'no', 'PYTHONDONTWRITEBYTECODE': '1'}
        return lines([sys.executable, script, '--list', *words[words.index(script) + 1:]], env=environment)
    return []


def print_cases(plan, suites, everything, programs):
    for test in plan.of_suites(suites):
        if not everything and 'night' in plan.suites(test):
            continue
        name = f'{min(plan.suites(test) - SELECTORS)}/{test["name"]}'
        if programs:
            print(f'{plan.folder.name}: {name}')
            continue
        for case in list(cases(plan, test, everything)) or ['']:
            print(f'{name}: {case}' if case else name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=['targets', 'list', 'changed'])
    parser.add_argument('--suite', action='append', default=[])
    parser.add_argument('--base')
    parser.add_argument('--all', action='store_true')
    parser.add_argument('--programs', action='store_true')
    parser.add_argument('folder')
    options = parser.parse_args()
    plan = Plan(options.folder)
    if options.what == 'targets':
        print_targets(plan, plan.of_suites(options.suite))
    elif options.what == 'list':
        print_cases(plan, options.suite, options.all, options.programs)
    else:
        print_changed(plan, options.base)


if __name__ == '__main__':
    main()
