#!/usr/bin/env python3
"""Debian's own RDMA programs, unmodified, against each other over emulated devices.

Usage: programs_test.py [--list] [--only TEXT] ROCI ROCID PLUGIN

Starts a daemon of its own, runs every pair of programs in the table below, and prints a TAP line for each: server and
client must both exit with 0 in time. --only runs the cases whose name contains TEXT.
"""
import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

CASE_TIMEOUT_S = 60
ACROSS, BACK, SELF = ('roci0', 'roci1'), ('roci1', 'roci0'), ('roci0', 'roci0')


def free_port():
    with socket.socket() as probe:
        probe.bind(('', 0))
        return probe.getsockname()[1]


def pingpong_cases():
    base = ['ibv_rc_pingpong', '-g', '1']
    for devices in (ACROSS, BACK, SELF):
        yield devices, base
        yield devices, base + ['-c']
    for options in (['-e'], ['-c', '-e'], ['-c', '-s', '1'], ['-c', '-s', '65537'], ['-n', '100000'],
                    ['-c', '-s', '1000000', '-n', '200'], ['-r', '1'], ['-c', '-r', '2', '-s', '9000']):
        yield ACROSS, base + options
    for mtu in ('256', '512', '1024', '2048', '4096'):
        yield ACROSS, base + ['-c', '-m', mtu]
    for gid in ('0', '2'):
        yield ACROSS, ['ibv_rc_pingpong', '-c', '-g', gid]
        yield SELF, ['ibv_rc_pingpong', '-c', '-g', gid]


def bandwidth_cases():
    for program in ('ib_send_bw', 'ib_write_bw', 'ib_read_bw', 'ib_atomic_bw'):
        base = [program, '-F', '-x', '1']
        sized = program != 'ib_atomic_bw'
        few = ['-n', '1000'] if sized else ['-n', '20000']
        yield ACROSS, base
        yield SELF, base + few
        if sized:
            yield ACROSS, base + ['-a', '-n', '200']
            yield ACROSS, base + ['-a', '-b', '-n', '100']
            yield ACROSS, base + ['-s', '1', '-n', '20000']
            for mtu in ('256', '1024', '4096'):
                yield ACROSS, base + few + ['-m', mtu]
        yield ACROSS, base + few + ['-b']
        yield ACROSS, base + few + ['-q', '16']
        yield ACROSS, base + few + ['-q', '16', '-b']
        if program != 'ib_write_bw':  # which has no completion to wait for at the server, and refuses
            yield ACROSS, base + few + ['-e']
        yield ACROSS, base + few + ['-t', '1']
        yield ACROSS, base + few + ['-t', '512']
        for gid in ('0', '2'):
            yield ACROSS, [program, '-F', '-x', gid] + few
    yield ACROSS, ['ib_send_bw', '-F', '-x', '1', '-n', '1000', '-r', '2']
    yield ACROSS, ['ib_send_bw', '-F', '-x', '1', '-n', '1000', '-r', '1024']
    for program in ('ib_send_bw', 'ib_write_bw'):
        yield ACROSS, [program, '-F', '-x', '1', '-s', '64', '-n', '20000', '-I', '64']
    yield ACROSS, ['ib_atomic_bw', '-F', '-x', '1', '-A', 'CMP_AND_SWAP', '-n', '20000']


def latency_cases():
    # ib_write_lat spins on memory in both programs, without a verbs call in which it would yield: few rounds.
    for program, rounds in (('ib_send_lat', '1000'), ('ib_write_lat', '60'), ('ib_read_lat', '1000'),
                            ('ib_atomic_lat', '1000')):
        base = [program, '-F', '-x', '1', '-n', rounds]
        yield ACROSS, base
        yield SELF, base
        if program in ('ib_send_lat', 'ib_read_lat'):
            yield ACROSS, base[:-1] + ['100', '-a']
        if program != 'ib_write_lat':
            yield ACROSS, base + ['-e']
        if program in ('ib_send_lat', 'ib_write_lat'):
            yield ACROSS, base + ['-s', '64', '-I', '64']
        for gid in ('0', '2'):
            yield ACROSS, [program, '-F', '-x', gid, '-n', rounds]


def all_cases():
    for devices, command in [*pingpong_cases(), *bandwidth_cases(), *latency_cases()]:
        yield [(devices, command)]
    # Two pairs at the same time, over both devices and over one.
    yield [(ACROSS, ['ib_write_bw', '-F', '-x', '1']), (BACK, ['ib_read_bw', '-F', '-x', '2'])]
    yield [(ACROSS, ['ibv_rc_pingpong', '-c', '-g', '1', '-n', '5000']), (SELF, ['ib_send_bw', '-F', '-x', '1'])]


def name_of(pairs):
    return ' and '.join(f'{" ".join(command)} {server} <- {client}' for (server, client), command in pairs)


class Daemon:
    """A daemon in a runtime directory of its own."""

    def __init__(self, rocid, roci, plugin):
        self.runtime_dir = tempfile.mkdtemp(prefix='roci-programs.')
        self.run = [roci, 'run', '--runtime-dir', self.runtime_dir, '--plugin', plugin]
        self.log = open(os.path.join(self.runtime_dir, 'rocid.log'), 'w+', encoding='utf-8')
        self.process = subprocess.Popen([rocid, '--runtime-dir', self.runtime_dir], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 30
        while not os.path.exists(os.path.join(self.runtime_dir, 'rocid.sock')) or 'ready' not in self.output():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit('Bail out! the daemon did not start:\n' + self.output())
            time.sleep(0.05)

    def output(self):
        with open(self.log.name, encoding='utf-8') as log:
            return log.read()

    def stop(self):
        self.process.terminate()
        try:
            status = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        output = self.output()
        self.log.close()
        shutil.rmtree(self.runtime_dir)
        return status, output


def listening(port):
    """Whether somebody listens on the TCP port, without connecting: the server takes one connection only."""
    wanted = f':{port:04X}'
    for table in ('/proc/net/tcp', '/proc/net/tcp6'):
        with open(table, encoding='ascii') as rows:
            for row in rows:
                fields = row.split()
                if fields[1].endswith(wanted) and fields[3] == '0A':
                    return True
    return False


class Pair:
    """A server and a client of the same program."""

    def __init__(self, daemon, devices, command):
        self.port = free_port()
        self.daemon = daemon
        self.client_command = self.command(devices[1], command) + ['127.0.0.1']
        self.server = self.start(self.command(devices[0], command))
        self.client = None

    def command(self, device, command):
        return self.daemon.run + [command[0], '-d', device, '-p', str(self.port), *command[1:]]

    @staticmethod
    def start(command):
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, errors='replace')

    def connect(self):
        deadline = time.monotonic() + 20
        while not listening(self.port) and self.server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        self.client = self.start(self.client_command)

    def result(self):
        """What went wrong, or ''."""
        wrong = ''
        for role, process in (('client', self.client), ('server', self.server)):
            try:
                output, _ = process.communicate(timeout=CASE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                wrong += f'{role}: not done in {CASE_TIMEOUT_S} s\n{output}'
                continue
            if process.returncode != 0 or 'invalid data' in output:
                wrong += f'{role}: exit status {process.returncode}\n{output}'
        return wrong


def run_case(daemon, pairs):
    running = [Pair(daemon, devices, command) for devices, command in pairs]
    for pair in running:
        pair.connect()
    return ''.join(pair.result() for pair in running)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--list', action='store_true', help='print the names of the cases and end')
    parser.add_argument('--only', default='', metavar='TEXT', help='only cases whose name contains TEXT')
    parser.add_argument('paths', nargs='*', metavar='ROCI ROCID PLUGIN')
    options = parser.parse_args()
    cases = [case for case in all_cases() if options.only in name_of(case)]
    if options.list:
        print('\n'.join(name_of(case) for case in cases))
        return 0
    if len(options.paths) != 3:
        parser.error('three paths wanted')
    roci, rocid, plugin = (os.path.abspath(path) for path in options.paths)
    daemon = Daemon(rocid, roci, plugin)
    print(f'1..{len(cases) + 1}')
    failed = 0
    for number, case in enumerate(cases, 1):
        started = time.monotonic()
        wrong = run_case(daemon, case)
        failed += bool(wrong)
        print(f'{"not ok" if wrong else "ok"} {number} - {name_of(case)}')
        print(f'# {time.monotonic() - started:.1f} s')
        for line in wrong.splitlines()[-25:]:
            print('#', line)
        sys.stdout.flush()
        if daemon.process.poll() is not None:
            break
    status, output = daemon.stop()
    failed += status != 0
    print(f'{"ok" if status == 0 else "not ok"} {len(cases) + 1} - the daemon lives and ends with status 0')
    if status != 0:
        print(f'# status {status}\n# ' + '\n# '.join(output.splitlines()[-20:]))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
