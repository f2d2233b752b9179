"""Main program of tests that run a table of cases with one daemon, or one at each end of a network. Prints TAP."""
import argparse
import os
import signal
import sys
import time
import unittest

from harness import Daemon, Programs
from two_ends import NETWORKS, TwoEnds


def covering(cases, features):
    """A small sample of `cases` (by name) that shows every feature. Each round takes the first case that shows the most
    features not shown yet. `features(case)` returns a set."""
    missing = set().union(*map(features, cases.values()))
    sample = set()
    while missing:
        name = max(cases, key=lambda each: len(features(cases[each]) & missing))
        missing -= features(cases[name])
        sample.add(name)
    return {name: case for name, case in cases.items() if name in sample}


def parse(description):
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--list', action='store_true', help='print the names of the cases and end')
    parser.add_argument('--only', default='', metavar='TEXT', help='only cases whose name contains TEXT')
    parser.add_argument('--all', action='store_true', default=os.environ.get('ROCI_TEST_ALL') == 'yes',
                        help='every case, over networks too, not only a sample (also by ROCI_TEST_ALL=yes)')
    parser.add_argument('--over', choices=['wire', *NETWORKS], default='wire',
                        help='what joins the devices: the wire of one daemon, or a network between two')
    parser.add_argument('paths', nargs='*', metavar='ROCI ROCID PLUGIN')
    options = parser.parse_args()
    if not options.list and len(options.paths) != 3:
        parser.error('three paths wanted')
    return options


def start(options):
    """The daemon, or both."""
    programs = Programs(*options.paths)
    return Daemon(programs) if options.over == 'wire' else TwoEnds(programs, options.over)


def tell(is_good, number, name, *remarks):
    print(f'{"ok" if is_good else "not ok"} {number} - {name}')
    for remark in remarks:
        print('#', remark[:200])
    sys.stdout.flush()


def select(cases, options, fits, features, night):
    """The cases that the command line selects. --only selects from all cases."""
    everything = options.all or options.only
    fitting = {name: case for name, case in cases.items() if fits(options.over, case) and (everything or not night(case))}
    if options.over != 'wire' and not everything:
        fitting = covering(fitting, features)
    return {name: case for name, case in fitting.items() if options.only in name}


def run(description, cases, run_case, features, left=lambda _daemon: [], fits=lambda _network, _case: True,
        night=lambda _case: False):
    """Runs the selected `cases` (by name) and returns the exit status. `run_case(daemon, case)` returns the error, or ''.
    `features`: see covering(), for the sample. `left` returns objects of a daemon that should not exist at the end. `fits`:
    whether a network can carry a case. `night`: whether only --all takes a case."""
    options = parse(description)
    cases = select(cases, options, fits, features, night)
    if not cases:
        raise SystemExit(f'error: no case contains {options.only!r}; --list prints the names')
    if options.list:
        print('\n'.join(cases))
        return 0
    # SIGTERM (a time limit) runs the cleanup as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        daemon = start(options)
    except unittest.SkipTest as unavailable:
        print(f'1..0 # SKIP {unavailable}')
        return 0
    except RuntimeError as error:
        raise SystemExit(f'Bail out! {error}') from error
    try:
        return run_with(daemon, cases, run_case, left)
    finally:
        daemon.stop()


def run_with(daemon, cases, run_case, left):
    """Returns the exit status."""
    print(f'1..{len(cases) + 1}')
    failed = 0
    for number, (name, case) in enumerate(cases.items(), 1):
        started = time.monotonic()
        wrong = run_case(daemon, case)
        failed += bool(wrong)
        tell(not wrong, number, name, f'{time.monotonic() - started:.1f} s', *wrong.splitlines()[-25:])
        if not daemon.alive():
            break
    remains = left(daemon) if daemon.alive() else []
    status = daemon.stop()
    is_good = status == 0 and not remains
    remarks = [] if is_good else [f'status {status}, left {remains}', *daemon.last_output.splitlines()[-20:]]
    tell(is_good, len(cases) + 1, 'nothing is left, and the daemon ends with status 0', *remarks)
    return 0 if is_good and not failed else 1
