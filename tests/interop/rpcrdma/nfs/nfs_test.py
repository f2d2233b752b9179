#!/usr/bin/env python3
"""NFS over RDMA between this machine and Linux in a QEMU guest, with rocid at this end and soft-RoCE at the other: Linux's client
mounts a folder of nfs_server (over TCP, too), and our client (nfs_client_test) calls Linux's server.

Usage: nfs_test.py [--list] [--all] [--only TEXT] ROCI ROCID PLUGIN FOLDER NFS_SERVER NFS_CLIENT_TEST

Creates a network namespace, tap devices, a daemon, the servers and a guest. Runs what nfs_cases.py lists: works in each kind of mount,
then calls, and prints a TAP line for each. Files are compared by checksums at both ends. --all adds IPv6, path MTU 1024, sizes of READ
and WRITE, more works, frames that are lost, reordered and duplicated, servers that end and start again meanwhile, a link that is down
for 10 s, and clients that are killed under load. FOLDER keeps the guest's kernel for the next run. Skipped without QEMU, the kernel's
package or permission to create namespaces.
"""
import argparse
import contextlib
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
from ends import KERNEL, LIMIT_S, Network, RociEnd, RxeEnd, on_link, run_in_network  # pylint: disable=wrong-import-position
from guest import Guest  # pylint: disable=wrong-import-position
from harness import Programs, await_  # pylint: disable=wrong-import-position
from kernel_server import KernelServer, OurClient, prepare  # pylint: disable=wrong-import-position
from nfs_cases import CAPTURED, KILLED, MAKE_SOURCE, MOUNT, NFS_LINKS, RDMA_PORT, TCP_PORT, Mount, calls, cases  # pylint: disable=wrong-import-position
from pairs import IMPAIRED, Report, ended  # pylint: disable=wrong-import-position

WORK_LIMIT_S = 400
CUT_S = 10
KERNEL_RESTARTS = 4
SUM = re.compile(r'^([0-9a-f]{64})  (\S.*)$', re.M)
READ_BY_TSHARK = 'tshark reads the frames, and none is malformed'
# Replies to READLINK, READDIR and READDIRPLUS: tshark 4.0 cannot put them together if the server has placed a part by RDMA WRITE.
PLACED = 'nfs.procedure_v3 in {5, 16, 17}'
GUEST_KILLED = 'the guest is killed while it writes, and nothing of it is left'
CONNECTIONS = re.compile(r'(\d+) connections')


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
    """The guest, with soft-RoCE on the links and the files that it copies."""

    def __init__(self, image, namespace, links):  # pylint: disable=super-init-not-called
        hardware = [word for link in links for word in link.hardware(None)]
        self.guest = Guest(image, hardware, ('ip', 'netns', 'exec', namespace), kernel='modules=nfs')
        try:
            self.guest.run('\n'.join(['set -e', *map(self.set_up, links), MAKE_SOURCE]), LIMIT_S)
            for link in links:
                self.find_gids(link)
        except BaseException:
            self.guest.stop()
            raise

    def mount(self, kind, path):
        """Mounts the folder. Raises RuntimeError if that fails."""
        self.guest.run(kind.command(path, KERNEL), LIMIT_S)
        mounted = self.guest.run(f'grep " {MOUNT} " /proc/mounts')
        if f'proto={kind.proto}' not in mounted or 'vers=3' not in mounted:
            raise RuntimeError(f'mounted is: {mounted}')

    def transport(self):
        """What the kernel counts of the mount's transport."""
        return self.guest.run("sed -n 's/^[[:space:]]*xprt:/xprt:/p' /proc/self/mountstats")


class Impaired:
    """The frames of a link are impaired within this context, in both directions."""

    def __init__(self, roci, kind):
        self.end, self.options = on_link(roci, kind.link, kind.link.roci, {}), kind.impair
        self.wrong = ''

    def __enter__(self):
        if self.options:
            self.end.impair(*self.options, '--seed', '1813')
        return self

    def __exit__(self, *_):
        if not self.options:
            return
        done = self.end.impaired()
        self.end.impair('--clear')
        idle = [name for option, name in IMPAIRED.items() if option in self.options and not done[name]]
        self.wrong = f'no frame was {" or ".join(idle)}' if idle else ''


class Run:
    """The works and calls on one daemon, server and guest."""

    def __init__(self, roci, server, client, report):
        self.roci, self.server, self.client, self.report = roci, server, client, report
        self.number = 0
        self.kernel_server = None

    def alive(self):
        return self.roci.daemon.alive() and self.client.guest.alive()

    def add(self, name, wrong, started):
        """Reports a case. False: no more can run."""
        self.report.add(name, wrong and f'{wrong}\n{self.state()}', time.monotonic() - started)
        return self.alive()

    def on_mount(self, kind, works):
        """Runs the works on a mount. False: no more can run."""
        started = time.monotonic()
        try:
            self.client.mount(kind, self.server.export)
        except RuntimeError as error:
            self.add(f'{kind.name}: mount', str(error), started)
            return False
        self.add(f'{kind.name}: mount', '', started)
        with Impaired(self.roci, kind) as impaired:
            if not all(self.work(kind, work) for work in works):
                return False
        self.report.say(self.client.transport())
        started = time.monotonic()
        status = self.client.guest.start(f'umount {MOUNT}').wait(LIMIT_S)
        wrong = '' if status == 0 else f'exit status {status}'
        return self.add(f'{kind.name}: umount', wrong + impaired.wrong, started) and status == 0

    @contextlib.contextmanager
    def capturing(self, name, wanted=True, but=''):
        """Captures the device's frames within this context, and reports what tshark reads; `but`: a filter for those that may be
        malformed. (The data of READ replies is in other frames than the replies, which tshark puts together in a second pass.)"""
        if not wanted:
            yield
            return
        with tempfile.TemporaryDirectory(prefix='roci-capture.') as folder:
            file = os.path.join(folder, 'frames.pcapng')
            with subprocess.Popen(self.command('capture', self.roci.device, '-w', file), stderr=subprocess.DEVNULL) as capture:
                try:
                    await_(lambda: os.path.exists(file) and os.path.getsize(file) > 0, LIMIT_S)
                    yield
                finally:
                    capture.terminate()
            started = time.monotonic()
            seen, malformed = (dissect(file, which) for which in ('rpcordma && nfs', f'_ws.malformed{but and f" && !({but})"}'))
            wrong = '' if len(seen) > 30 and not malformed else '\n'.join([f'{len(seen)} frames of NFS over RDMA', *malformed])
            self.report.add(f'{name}: {READ_BY_TSHARK}', wrong, time.monotonic() - started)

    def captured(self, kind):
        """A mount from its first frame to its last. False: no more can run."""
        with self.capturing(kind.name):
            return self.on_mount(kind, (CAPTURED,))

    def command(self, *arguments):
        return [self.roci.daemon.programs.roci, '--runtime-dir', self.roci.daemon.runtime_dir, *arguments]

    def work(self, kind, work):
        started = time.monotonic()
        self.number += 1
        folder = f'work{self.number}'
        job = self.client.guest.start(f'set -e\ncd {MOUNT}\nmkdir {folder}\ncd {folder}\n{work.commands}')
        if work.meanwhile:
            growing = self.server.export / folder / 'large'
            await_(lambda: job.status() is not None or (growing.exists() and growing.stat().st_size > 4 << 20), LIMIT_S)
            getattr(self, work.meanwhile)()
        status = job.wait(WORK_LIMIT_S)
        wrong = '' if status == 0 else f'exit status {status}\n{job.output()}'
        if status == 0 and work.checked:
            wrong = self.compare(folder, job.output())
        goes_on = self.add(f'{kind.name}: {work.name}', wrong + ended(self.roci.daemon, self.client.guest), started)
        return status is not None and goes_on

    # ---- What happens meanwhile.

    def restart_server(self):
        self.server.process.kill()
        self.server.start()

    def restart_kernel_server(self):
        for _ in range(KERNEL_RESTARTS):
            self.kernel_server.stop()
            self.kernel_server.start()
            time.sleep(2)

    def cut_link(self):
        subprocess.run(self.command('link', 'down', self.roci.device), check=True, capture_output=True, timeout=LIMIT_S)
        time.sleep(CUT_S)
        subprocess.run(self.command('link', 'up', self.roci.device), check=True, capture_output=True, timeout=LIMIT_S)

    # ---- Calls to the guest.

    def calls(self, program, all_calls, kills):
        """Runs our client against the guest's server. False: no more can run."""
        started = time.monotonic()
        try:
            self.kernel_server = KernelServer(self.client.guest, [address for link in NFS_LINKS for address in link.roci.values()])
        except RuntimeError as error:
            self.add('the guest serves', str(error), started)
            return False
        self.add('the guest serves', '', started)
        ours = OurClient(self.roci, program, self.kernel_server)
        if not all(self.call(ours, each) for each in all_calls):
            return False
        if kills:
            started = time.monotonic()
            wrong = ours.killed(NFS_LINKS[0].rxe['v4'])
            if not wrong and not await_(lambda: not self.client.left(), LIMIT_S):
                wrong = f'left in the guest: {self.client.left()}'
            if not self.add(KILLED, wrong, started):
                return False
        self.kernel_server.stop()
        return True

    def call(self, ours, each):
        started = time.monotonic()
        meanwhile = getattr(self, each.meanwhile) if each.meanwhile else None
        with self.capturing(each.title, is_captured(each), PLACED), Impaired(self.roci, each) as impaired:
            wrong, said = ours.run(each, meanwhile)
        if not wrong and meanwhile == self.restart_kernel_server and CONNECTIONS.findall(said) == ['1']:
            wrong = f'the connection was not lost\n{said}'
        for line in filter(CONNECTIONS.search, said.splitlines()):
            self.report.say(line)
        return self.add(each.title, wrong + impaired.wrong + ended(self.roci.daemon, self.client.guest), started)

    def kill_guest(self):
        """Kills the guest while it reads and writes. Reports whether our server gives everything back."""
        started = time.monotonic()
        kind = Mount('rdma')
        try:
            self.client.mount(kind, self.server.export)
        except RuntimeError as error:
            self.add(GUEST_KILLED, str(error), started)
            return
        jobs = ' '.join(f'dd if=/dev/zero of={MOUNT}/killed{number} bs=1M count=1000 oflag=direct status=none &' for number in range(8))
        self.client.guest.start(f'{jobs} wait')
        flows = await_(lambda: (self.server.export / 'killed7').exists(), LIMIT_S)
        time.sleep(2)
        self.client.guest.process.kill()
        wrong = '' if flows else 'no load'
        if not await_(lambda: not self.roci.daemon.show('qps'), LIMIT_S):
            wrong += f'left: {self.roci.daemon.show("qps")}'
        self.add(GUEST_KILLED, wrong, started)

    def compare(self, folder, said):
        sums = SUM.findall(said)
        wrong = [name for wanted, name in sums if self.server.checksum(f'{folder}/{name}') != wanted]
        return '' if sums and not wrong else f'other contents here: {wrong} of {len(sums)} files\n{said}'

    def state(self):
        return f'the server:\n{self.server.process.output()}\nthe guest:\n' + '\n'.join(self.client.guest.console_text().splitlines()[-15:])


def is_captured(each):
    """Whether the frames of these calls are captured."""
    return each.captured and bool(shutil.which('tshark'))


def dissect(file, which):
    """The lines of tshark for the frames that match the filter."""
    done = subprocess.run(['tshark', '-2', '-r', file, '-Y', which], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return done.stdout.splitlines()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--list', action='store_true', help='print the names of the cases and end')
    parser.add_argument('--all', action='store_true', default=os.environ.get('ROCI_TEST_ALL') == 'yes',
                        help='all kinds of mounts and works (also by ROCI_TEST_ALL=yes)')
    parser.add_argument('--only', default='', metavar='TEXT', help='only mounts and calls whose name contains TEXT')
    parser.add_argument('paths', nargs='*', metavar='ROCI ROCID PLUGIN FOLDER NFS_SERVER NFS_CLIENT_TEST')
    options = parser.parse_args()
    options.cases = [(kind, [work for work in works if not work.program or shutil.which(work.program)])
                     for kind, works in cases(options.all) if options.only in kind.name]
    kinds = [Mount('rdma'), Mount('rdma6')] if options.all else [Mount('rdma')]
    options.captured = [kind for kind in kinds if options.only in kind.name and shutil.which('tshark')]
    options.calls = [each for each in calls(options.all) if options.only in each.title]
    options.kills = [name for name in (KILLED, GUEST_KILLED) if options.all and options.only in name]
    options.serves = bool(options.calls) or KILLED in options.kills  # the guest
    if not options.list and len(options.paths) != 6:
        parser.error('six paths wanted')
    return options


def names(options):
    """Of all cases, as Run reports them, but for mounting, starting and ending."""
    yield from (f'{kind.name}: {work.name}' for kind, works in options.cases for work in works)
    yield from (f'{kind.name}: {CAPTURED.name}' for kind in options.captured)
    yield from (f'{name}: {READ_BY_TSHARK}' for name in [kind.name for kind in options.captured] +
                [each.title for each in options.calls if is_captured(each)])
    yield from (each.title for each in options.calls)
    yield from options.kills


def run_all(options, works):
    """False: no more can run."""
    if not all(works.on_mount(kind, each) for kind, each in options.cases) or not all(map(works.captured, options.captured)):
        return False
    if options.serves and not works.calls(options.paths[5], options.calls, KILLED in options.kills):
        return False
    if GUEST_KILLED in options.kills:
        works.kill_guest()
    return True


def run(options, network):
    """Runs everything with a daemon, a server and a guest. Returns the exit status."""
    links = NFS_LINKS if options.all else NFS_LINKS[:1]
    roci = RociEnd(Programs(*options.paths[:3]), network.name, ''.join(link.config(None) for link in links))
    server = client = None
    try:
        server = Server(roci, options.paths[4])
        client = Client(options.paths[3], network.name, links)
        if options.serves:
            prepare(client.guest)
        report = Report(len(list(names(options))) + 2 * len(options.cases + options.captured) + options.serves + 1)
        if not shutil.which('tshark'):
            report.say('tshark is not installed: captures are not read')
        if not run_all(options, Run(roci, server, client, report)):
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
        print('\n'.join(names(options)))
        return 0
    more_taps = [(link.tap, 1, link.net_mtu) for link in NFS_LINKS[1:]] if options.all else []
    return run_in_network(options.paths[3], lambda: Network(more_taps), lambda network: run(options, network))


if __name__ == '__main__':
    sys.exit(main())
