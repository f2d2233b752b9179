#!/usr/bin/env python3
"""Counts the results of `meson test`: each GoogleTest case and TAP point, any other test program as one.

Usage: count_tests.py LOGBASE [EXPECTED]    (the folder and --logbase of the run: reads LOGBASE.json and LOGBASE.junit.xml)

Prints `PASSED FAILED SKIPPED` and, on stderr, the name of each failure, the reasons of skipped tests, and the tests' lines
`left out: ...`. EXPECTED is the output of `meson test --list`: a program in it that has not run is a failure. Meson's verdict
on a program counts as well: a program that crashed, reached its time limit or ended with a bad status is a failure even if
all reported cases passed.
"""
import collections
import json
import re
import sys
import xml.etree.ElementTree

BAD_RESULTS = ('FAIL', 'TIMEOUT', 'INTERRUPT', 'ERROR', 'UNEXPECTEDPASS')


def reported_cases(junit_file):
    """The cases that the programs reported: program -> [(case, 'passed' | 'failed' | 'skipped')]."""
    cases = collections.defaultdict(list)
    for suite in xml.etree.ElementTree.parse(junit_file).getroot().iter('testsuite'):
        # 'PROJECT.PROGRAM' or 'PROJECT.PROGRAM.SUITE', where PROGRAM is 'PROJECT:FOLDERS / NAME'; plain programs share 'PROJECT'.
        _, _, program = suite.get('name').partition('.')
        for case in suite.iter('testcase'):
            if case.find('failure') is not None or case.find('error') is not None:
                verdict = 'failed'
            elif case.find('skipped') is not None or case.get('status') == 'notrun':
                verdict = 'skipped'
            else:
                verdict = 'passed'
            if program:
                cases[program].append((f'{case.get("classname")}.{case.get("name")}', verdict))
    return cases


def both_outputs(run):
    return run.get('stdout', '') + run.get('stderr', '')


def skipped_inside(run):
    """Number of cases that a program of Python's unittest skipped; the program itself counts as one."""
    match = re.search(r'^OK \(skipped=(\d+)\)$', both_outputs(run), re.MULTILINE)
    return int(match[1]) if match else 0


def reasons_of(run):
    """The reasons for skipping in a program's output."""
    output = run.get('stdout', '')
    yield from re.findall(r'# SKIP\b:?(.*)', output)
    # (GoogleTest prints the reason below the place.)
    yield from re.findall(r': Skipped\n(.*)', output)
    # Python's unittest, verbose.
    yield from (match[1] for match in re.findall(r"\.\.\. skipped (['\"])(.*)\1$", both_outputs(run), re.MULTILINE))
    if run['result'] == 'SKIP' and '# SKIP' not in output:
        yield (output.strip().splitlines() or ['no reason given'])[-1]


def skip_reasons(runs):
    """The reasons for skipping: reason -> programs, once per case."""
    reasons = collections.defaultdict(list)
    for run in runs:
        for reason in reasons_of(run):
            reasons[reason.strip()].append(run['name'].rpartition(' / ')[2])
    return dict(reasons)


def remarks(runs):
    """The lines `left out: ...` of the programs."""
    return [line for run in runs for line in run.get('stdout', '').splitlines() if line.startswith('left out: ')]


def missing(runs, expected):
    """The programs of `meson test --list` that have not run."""
    ran = {run['name'] for run in runs}
    return [name for name in expected if name not in ran]


def cases_of(name, reported):
    return [case for program, cases in reported.items() if program == name or program.startswith(name + '.') for case in cases]


def count(runs, reported):
    """(Counter of verdicts, names of failures) of Meson's records `runs` and the reported cases."""
    totals, failures = collections.Counter(), []
    for run in runs:
        cases = cases_of(run['name'], reported)
        bad = run['result'] in BAD_RESULTS
        for case, verdict in cases:
            totals[verdict] += 1
            if verdict == 'failed':
                failures.append(f'{run["name"]}: {case}')
        if bad and not any(verdict == 'failed' for _, verdict in cases):
            totals['failed'] += 1
            failures.append(f'{run["name"]}: {run["result"]}, exit status {run["returncode"]}')
        elif not bad and not cases:
            totals['skipped' if run['result'] == 'SKIP' else 'passed'] += 1
            totals['skipped'] += skipped_inside(run)
    return totals, failures


def main():
    base = sys.argv[1]
    with open(base + '.json', encoding='utf-8') as log:
        runs = [json.loads(line) for line in log]
    totals, failures = count(runs, reported_cases(base + '.junit.xml'))
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding='utf-8') as expected:
            absent = missing(runs, [line.strip() for line in expected if ' / ' in line])
        totals['failed'] += len(absent)
        failures += [f'{name}: did not run' for name in absent]
    for failure in failures:
        print('FAILED ' + failure, file=sys.stderr)
    for reason, programs in skip_reasons(runs).items():
        print(f'skipped {len(programs)}: {reason} ({", ".join(sorted(set(programs)))})', file=sys.stderr)
    for remark in remarks(runs):
        print(remark, file=sys.stderr)
    print(totals['passed'], totals['failed'], totals['skipped'])


if __name__ == '__main__':
    main()
