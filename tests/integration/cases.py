"""The main program of tests that run a table of cases against one daemon and speak TAP."""
import argparse
import sys
import time

from harness import Daemon, Programs


def parse(description, names):
    """What the command line asks for; `--list` is answered at once."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--list', action='store_true', help='print the names of the cases and end')
    parser.add_argument('--only', default='', metavar='TEXT', help='only cases whose name contains TEXT')
    parser.add_argument('paths', nargs='*', metavar='ROCI ROCID PLUGIN')
    options = parser.parse_args()
    if options.list:
        print('\n'.join(name for name in names if options.only in name))
        sys.exit(0)
    if len(options.paths) != 3:
        parser.error('three paths wanted')
    return options


def tell(is_good, number, name, *remarks):
    print(f'{"ok" if is_good else "not ok"} {number} - {name}')
    for remark in remarks:
        print('#', remark[:200])
    sys.stdout.flush()


def run(description, cases, run_case, left=lambda _daemon: []):
    """Runs those of `cases` (by name) that are asked for; `run_case(daemon, case)` says what was wrong, or ''. `left`: what
    a daemon still has that should be gone at the end. The exit status."""
    options = parse(description, cases)
    cases = {name: case for name, case in cases.items() if options.only in name}
    try:
        daemon = Daemon(Programs(*options.paths))
    except RuntimeError as error:
        raise SystemExit(f'Bail out! {error}') from error
    print(f'1..{len(cases) + 1}')
    failed = 0
    for number, (name, case) in enumerate(cases.items(), 1):
        started = time.monotonic()
        wrong = run_case(daemon, case)
        failed += bool(wrong)
        tell(not wrong, number, name, f'{time.monotonic() - started:.1f} s', *wrong.splitlines()[-25:])
        if daemon.process.poll() is not None:
            break
    remains = [] if daemon.process.poll() is not None else left(daemon)
    status = daemon.stop()
    is_good = status == 0 and not remains
    remarks = [] if is_good else [f'status {status}, left {remains}', *daemon.last_output.splitlines()[-20:]]
    tell(is_good, len(cases) + 1, 'nothing is left, and the daemon ends with status 0', *remarks)
    return 0 if is_good and not failed else 1
