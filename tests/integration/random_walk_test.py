#!/usr/bin/env python3
"""Random walks over the verbs API, which must leave no objects in the daemon.

Usage: random_walk_test.py [--seconds N] [--seed N] [--processes N] [--threads N] ROCI ROCID PLUGIN WALK

Starts a daemon and PROCESSES processes with THREADS threads each, which create, use and destroy objects in any order and
check the results (walker.h). Half of them end without cleaning up. Then `roci show` must have no program, queue or region
left, and the daemon must end successfully. The seed is printed; with it a failure recurs, unless it depends on timing.

A long run, also with sanitizers (tools/test creates build-asan/):
    tests/integration/random_walk_test.py --seconds 600 build/tools/roci build/control/rocid \\
        build/verbs_provider/libroci-rdmav34.so build/tests/integration/random_walk
    ASAN_OPTIONS=handle_sigbus=0:detect_leaks=0 tests/integration/random_walk_test.py --seconds 600 \\
        build-asan/tools/roci build-asan/control/rocid build-asan/verbs_provider/libroci-rdmav34.so \\
        build-asan/tests/integration/random_walk
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

LEFT_PATIENCE_S = 120


class Daemon:
    """A daemon in a temporary runtime directory."""

    def __init__(self, rocid, roci, folder):
        self.roci = [roci]
        self.options = ['--runtime-dir', folder]
        self.log = open(os.path.join(folder, 'rocid.log'), 'w+', encoding='utf-8')
        self.process = subprocess.Popen([rocid, *self.options], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while 'rocid: ready' not in self.output():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit('the daemon did not start:\n' + self.output())
            time.sleep(0.05)

    def output(self):
        with open(self.log.name, encoding='utf-8') as log:
            return log.read()

    def show(self, what):
        command = [*self.roci, 'show', *self.options, '--json', what]
        return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)

    def leftovers(self):
        """Objects that exist although no program runs."""
        return {what: rows for what in ('apps', 'qps', 'cqs', 'mrs') if (rows := self.show(what))}

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return 'hangs'


def walk(daemon, options):
    command = [options.roci, 'run', *daemon.options, '--plugin', options.plugin, options.walk, str(options.seed),
               str(options.processes), str(options.threads), str(options.seconds)]
    try:
        status = subprocess.run(command, check=False, timeout=10 * options.seconds + 120).returncode
    except subprocess.TimeoutExpired:
        return ['the walk hangs']
    return [f'the walk ended with status {status}'] if status else []


def left_behind(daemon):
    deadline = time.monotonic() + LEFT_PATIENCE_S
    while (left := daemon.leftovers()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return [f'left behind: {json.dumps(left)[:2000]}'] if left else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=float, default=15)
    parser.add_argument('--seed', type=int, default=int(time.time() * 1000) % 1_000_000_000)
    parser.add_argument('--processes', type=int, default=3)
    parser.add_argument('--threads', type=int, default=2)
    for name in ('roci', 'rocid', 'plugin', 'walk'):
        parser.add_argument(name, metavar=name.upper(), type=os.path.abspath)
    options = parser.parse_args()
    print(f'seed {options.seed}', flush=True)
    with tempfile.TemporaryDirectory(prefix='roci-walk.') as folder:
        daemon = Daemon(options.rocid, options.roci, folder)
        wrong = walk(daemon, options)
        if daemon.process.poll() is None:
            wrong += left_behind(daemon)
        status = daemon.stop()
        if status != 0:
            wrong.append(f'the daemon ended with {status}:\n{daemon.output()[-8000:]}')
        elif wrong:
            wrong.append('the daemon said:\n' + daemon.output()[-8000:])
        daemon.log.close()
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
