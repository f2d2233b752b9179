#!/usr/bin/env python3
"""Counts what `meson test` ran, one by one: GoogleTest cases and TAP points singly, any other test program as one.

Usage: count_tests.py LOGBASE       (the folder and --logbase of the run: reads LOGBASE.json and LOGBASE.junit.xml)

Prints `PASSED FAILED SKIPPED` and, on stderr, the name of each failure. Meson's own verdict on a program counts too: one
that crashed, ran out of time or left with a bad status is a failure even where every case that it reported had passed.
"""
import collections
import json
import sys
import xml.etree.ElementTree

BAD_RESULTS = ('FAIL', 'TIMEOUT', 'INTERRUPT', 'ERROR', 'UNEXPECTEDPASS')


def reported_cases(junit_file):
    """The cases that programs reported themselves: program -> [(case, 'passed' | 'failed' | 'skipped')]."""
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
    return totals, failures


def main():
    base = sys.argv[1]
    with open(base + '.json', encoding='utf-8') as log:
        runs = [json.loads(line) for line in log]
    totals, failures = count(runs, reported_cases(base + '.junit.xml'))
    for failure in failures:
        print('FAILED ' + failure, file=sys.stderr)
    print(totals['passed'], totals['failed'], totals['skipped'])


if __name__ == '__main__':
    main()
