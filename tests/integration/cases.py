"""Main program of tests that run a table of cases with one daemon, or one at each end of a network. Prints TAP."""
import argparse
import os
import signal
import sys
import time

from harness import Daemon, Programs
from two_ends import NETWORKS, TwoEnds, Unavailable


def covering(cases, features):
    """Of `cases` (by name), a small sample that shows every feature: in each round the case is taken that shows most of
    those not shown yet, the first of several. `features(case)`: a set."""
    missing = set().union(*map(features, cases.values()))
    sample = set()
    while missing:
        name = max(cases, key=lambda each: len(features(cases[each]) & missing))
        missing -= features(cases[name])
        sample.add(name)
    return {name: case for name, case in cases.items() if name in sample}


def parse(description):
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--list', action='store_true', help='print the names of the cases and end')
    parser.add_argument('--only', default='', metavar='TEXT', help='only cases whose name contains TEXT')
    parser.add_argument('--all', action='store_true', default=os.environ.get('ROCI_TEST_ALL') == 'yes',
                        help='every case over a network, not only a sample (also by ROCI_TEST_ALL=yes)')
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


def select(cases, options, fits, features):
    """The cases that the command line asks for. --only chooses among all of them."""
    fitting = {name: case for name, case in cases.items() if fits(options.over, case)}
    if options.over != 'wire' and not options.all and not options.only:
        fitting = covering(fitting, features)
    return {name: case for name, case in fitting.items() if options.only in name}


def run(description, cases, run_case, features, left=lambda _daemon: [], fits=lambda _network, _case: True):
    """Runs those of `cases` (by name) that are asked for; `run_case(daemon, case)` says what was wrong, or ''. `features`:
    what a sample of the cases has to show (covering()); `left`: what a daemon still has that should be gone at the end;
    `fits`: whether a network can carry a case. The exit status."""
    options = parse(description)
    cases = select(cases, options, fits, features)
    if not cases:
        raise SystemExit(f'error: no case contains {options.only!r}; --list prints the names')
    if options.list:
        print('\n'.join(cases))
        return 0
    # Ended by its time limit, it leaves nothing behind either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        daemon = start(options)
    except Unavailable as unavailable:
        print(f'1..0 # SKIP {unavailable}')
        return 0
    except RuntimeError as error:
        raise SystemExit(f'Bail out! {error}') from error
    try:
        return run_with(daemon, cases, run_case, left)
    finally:
        daemon.stop()


def run_with(daemon, cases, run_case, left):
    """The exit status."""
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
