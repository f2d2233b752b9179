#!/usr/bin/env python3
"""Linux's NFS client in a QEMU guest mounts a folder of nfs_server on this machine: over TCP, and over RDMA with rocid at this end
and soft-RoCE at the other.

Usage: nfs_test.py [--list] [--all] [--only TEXT] ROCI ROCID PLUGIN FOLDER NFS_SERVER

Creates a network namespace, a tap device, a daemon, the server and a guest. Runs the works of nfs_cases.py in each kind of mount
and prints a TAP line for each. Files are compared by checksums at both ends. --all adds IPv6, sizes of READ and WRITE, larger files,
parallel jobs, and a server that is killed and started again meanwhile. FOLDER keeps the guest's kernel for the next run. Skipped
without QEMU, the kernel's package or permission to create namespaces.
"""
import argparse
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, *up) for up in (['..', '..', '..', 'integration'], ['..', '..'])]
sys.dont_write_bytecode = True
from ends import KERNEL, LINKS, LIMIT_S, Network, RociEnd, RxeEnd, run_in_network  # pylint: disable=wrong-import-position
from guest import Guest  # pylint: disable=wrong-import-position
from harness import Programs, await_  # pylint: disable=wrong-import-position
from nfs_cases import CAPTURED, LARGE, MAKE_SOURCE, MOUNT, RDMA_PORT, TCP_PORT, Mount, Work, cases  # pylint: disable=wrong-import-position
from pairs import Report, ended  # pylint: disable=wrong-import-position

LINK = LINKS[0]
WORK_LIMIT_S = 400
SUM = re.compile(r'^([0-9a-f]{64})  (\S.*)$', re.M)
RESTARTED = Work('the server is killed and started again while a file is written', LARGE.commands, True)


class Server:
    """nfs_server with the daemon's device, and the folder that it exports."""

    def __init__(self, roci, program):
        self.roci, self.program = roci, program
        self.folder = tempfile.TemporaryDirectory(prefix='roci-nfs.')
        self.export = pathlib.Path(os.path.realpath(self.folder.name)) / 'export'
        self.export.mkdir()
        self.start()

    def start(self):
        self.process = self.roci.start('exec ' + shlex.join([
            self.program, '--tcp', f'{KERNEL}:{TCP_PORT}', '--rdma', f'[::]:{RDMA_PORT}', '--key', f'{self.folder.name}/key', str(self.export)]))
        if not await_(lambda: 'ready' in self.process.output() or self.process.status() is not None, LIMIT_S) or \
                self.process.status() is not None:
            raise RuntimeError(f'nfs_server does not start:\n{self.process.output()}')

    def checksum(self, name):
        return hashlib.sha256((self.export / name).read_bytes()).hexdigest()

    def stop(self):
        """Returns what went wrong, or ''."""
        os.killpg(self.process.process.pid, signal.SIGTERM)
        status = self.process.wait(LIMIT_S)
        self.folder.cleanup()
        return '' if status == 0 else f'nfs_server ended with status {status}'


class Client(RxeEnd):
    """The guest, with soft-RoCE on one link and the files that it copies."""

    def __init__(self, image, namespace):  # pylint: disable=super-init-not-called
        self.guest = Guest(image, LINK.hardware(None), ('ip', 'netns', 'exec', namespace), kernel='modules=nfs')
        try:
            self.guest.run(f'set -e\n{self.set_up(LINK)}\n{MAKE_SOURCE}', LIMIT_S)
            self.find_gids(LINK)
        except BaseException:
            self.guest.stop()
            raise

    def mount(self, kind, path):
        """Mounts the folder. Raises RuntimeError if that fails."""
        self.guest.run(kind.command(path, LINK.roci, KERNEL), LIMIT_S)
        mounted = self.guest.run(f'grep " {MOUNT} " /proc/mounts')
        if f'proto={kind.proto}' not in mounted or 'vers=3' not in mounted:
            raise RuntimeError(f'mounted is: {mounted}')

    def transport(self):
        """What the kernel counts of the mount's transport."""
        return self.guest.run("sed -n 's/^[[:space:]]*xprt:/xprt:/p' /proc/self/mountstats")


class Run:
    """The works on one daemon, server and guest."""

    def __init__(self, roci, server, client, report):
        self.roci, self.server, self.client, self.report = roci, server, client, report
        self.number = 0

    def alive(self):
        return self.roci.daemon.alive() and self.client.guest.alive()

    def on_mount(self, kind, works):
        """Runs the works on a mount. False: no more can run."""
        started = time.monotonic()
        try:
            self.client.mount(kind, self.server.export)
        except RuntimeError as error:
            self.report.add(f'{kind.name}: mount', f'{error}\n{self.state()}', time.monotonic() - started)
            return False
        self.report.add(f'{kind.name}: mount', '', time.monotonic() - started)
        for work in works:
            if not self.work(kind, work):
                return False
        self.report.say(self.client.transport())
        started = time.monotonic()
        status = self.client.guest.start(f'umount {MOUNT}').wait(LIMIT_S)
        self.report.add(f'{kind.name}: umount', '' if status == 0 else f'exit status {status}\n{self.state()}', time.monotonic() - started)
        return status == 0

    def captured(self, kind):
        """A mount from its first frame to its last, read by tshark. (The data of READ replies is in other frames than the replies,
        which tshark puts together in a second pass.) False: no more can run."""
        with tempfile.TemporaryDirectory(prefix='roci-capture.') as folder:
            file = os.path.join(folder, 'frames.pcapng')
            with subprocess.Popen([self.roci.daemon.programs.roci, '--runtime-dir', self.roci.daemon.runtime_dir, 'capture', self.roci.device,
                                   '-w', file], stderr=subprocess.DEVNULL) as capture:
                await_(lambda: os.path.exists(file) and os.path.getsize(file) > 0, LIMIT_S)
                goes_on = self.on_mount(kind, (CAPTURED,))
                capture.terminate()
            started = time.monotonic()
            calls, malformed = (dissect(file, which) for which in ('rpcordma && nfs', '_ws.malformed'))
            wrong = '' if len(calls) > 30 and not malformed else '\n'.join([f'{len(calls)} frames of NFS over RDMA', *malformed])
            self.report.add(f'{kind.name}: tshark reads the frames, and none is malformed', wrong, time.monotonic() - started)
            return goes_on

    def work(self, kind, work):
        started = time.monotonic()
        self.number += 1
        folder = f'work{self.number}'
        job = self.client.guest.start(f'set -e\ncd {MOUNT}\nmkdir {folder}\ncd {folder}\n{work.commands}')
        if work is RESTARTED:
            self.restart(folder)
        status = job.wait(WORK_LIMIT_S)
        wrong = '' if status == 0 else f'exit status {status}\n{job.output()}\n{self.state()}'
        if status == 0 and work.checked:
            wrong = self.compare(folder, job.output())
        self.report.add(f'{kind.name}: {work.name}', wrong + ended(self.roci.daemon, self.client.guest), time.monotonic() - started)
        return status is not None and self.alive()

    def restart(self, folder):
        """Kills the server when some of the file has arrived, and starts it again."""
        growing = self.server.export / folder / 'large'
        if await_(lambda: growing.exists() and growing.stat().st_size > 4 << 20, LIMIT_S):
            self.server.process.kill()
            self.server.start()

    def compare(self, folder, said):
        sums = SUM.findall(said)
        wrong = [name for wanted, name in sums if self.server.checksum(f'{folder}/{name}') != wanted]
        return '' if sums and not wrong else f'other contents here: {wrong} of {len(sums)} files\n{said}'

    def state(self):
        return f'the server:\n{self.server.process.output()}\nthe guest:\n' + '\n'.join(self.client.guest.console_text().splitlines()[-15:])


def dissect(file, which):
    """The lines of tshark for the frames that match the filter."""
    done = subprocess.run(['tshark', '-2', '-r', file, '-Y', which], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return done.stdout.splitlines()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--list', action='store_true', help='print the names of the cases and end')
    parser.add_argument('--all', action='store_true', default=os.environ.get('ROCI_TEST_ALL') == 'yes',
                        help='all kinds of mounts and works (also by ROCI_TEST_ALL=yes)')
    parser.add_argument('--only', default='', metavar='TEXT', help='only mounts whose name contains TEXT')
    parser.add_argument('paths', nargs='*', metavar='ROCI ROCID PLUGIN FOLDER NFS_SERVER')
    options = parser.parse_args()
    options.cases = cases(options.all)
    if options.all:
        options.cases += [(Mount(proto, 'ac'), (RESTARTED,)) for proto in ('tcp', 'rdma')]
    options.cases = [(kind, works) for kind, works in options.cases if options.only in kind.name]
    kinds = [Mount('rdma'), Mount('rdma6')] if options.all else [Mount('rdma')]
    options.captured = [kind for kind in kinds if options.only in kind.name and shutil.which('tshark')]
    if not options.list and len(options.paths) != 5:
        parser.error('five paths wanted')
    return options


def run(options, network):
    """Runs everything with a daemon, a server and a guest. Returns the exit status."""
    roci = RociEnd(Programs(*options.paths[:3]), network.name, LINK.config(None))
    server = client = None
    try:
        server = Server(roci, options.paths[4])
        client = Client(options.paths[3], network.name)
        report = Report(sum(2 + len(works) for _, works in options.cases) + 4 * len(options.captured) + 1)
        if not shutil.which('tshark'):
            report.say('tshark is not installed: captures are not read')
        works = Run(roci, server, client, report)
        if not all(works.on_mount(kind, each) for kind, each in options.cases) or not all(map(works.captured, options.captured)):
            return 1
        wrong = server.stop()
        report.say(server.process.output())
        server = None
        left = {} if wrong else roci.left()
        status = roci.daemon.stop()
        report.add('server and daemon end with status 0, and nothing is left', wrong or
                   (f'left {left}, status {status}\n{roci.daemon.last_output}' if left or status != 0 else ''), 0)
        return 1 if report.failed else 0
    finally:
        if client is not None:
            client.guest.stop()
        if server is not None:
            server.process.kill()
            server.folder.cleanup()
        roci.daemon.stop()


def main():
    options = parse_arguments()
    if options.list:
        for kind, works in options.cases:
            print('\n'.join(f'{kind.name}: {work.name}' for work in works))
        print('\n'.join(f'{kind.name}: {CAPTURED.name}' for kind in options.captured))
        return 0
    return run_in_network(options.paths[3], Network, lambda network: run(options, network))


if __name__ == '__main__':
    sys.exit(main())
