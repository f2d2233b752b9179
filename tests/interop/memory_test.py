#!/usr/bin/env python3
"""Behaviour of registered memory: memory_table with the devices of a daemon, and with the soft-RoCE of a Linux guest, compared
with the table in docs/memory.md.

Usage: memory_test.py [--all] [--write] [--only TEXT] ROCI ROCID PLUGIN FOLDER MEMORY_TABLE WITH_DAEMON DOCUMENT

Prints a TAP line for each operation. Runs all rows with the daemon, and a sample of them with soft-RoCE (--all: all of them).
With --all, a daemon in the guest runs the rows for which this machine lacks the memory (huge pages, swap). WITH_DAEMON is the
script that runs a program with the devices of a daemon. FOLDER keeps the guest's kernel for the next run. Without QEMU or the
kernel's package the guest's part is skipped. --write writes the results to the table of DOCUMENT instead of comparing.
"""
import argparse
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'integration'))
sys.dont_write_bytecode = True
from guest import Guest, Unavailable, make_image  # pylint: disable=wrong-import-position
from harness import Daemon, Programs, as_user  # pylint: disable=wrong-import-position
from memory_document import NO_RESULT, UNNAMED, Document, Name, kinds_of, parse_rows, skipped  # pylint: disable=wrong-import-position

HERE_LIMIT_S = 600
PATIENCE = int(os.environ.get('ROCI_TEST_PATIENCE', '1'))
GUEST_LIMIT_S = 800 * PATIENCE  # the guest's processor is emulated
ROW_LIMIT_S = 60 * PATIENCE
DISK_BYTES = 256 << 20
PROCESSORS = 2  # of the guest
USER = 'nobody'
UNPRIVILEGED = 'an ordinary user\'s daemon'
SAMPLE = [(kind, moment) for kind in ('malloc', 'memfd') for moment in ('before', 'registered')]
NETWORK = ['-netdev', 'hubport,hubid=0,id=n0', '-device', 'virtio-net-pci,netdev=n0,mac=02:72:6f:63:69:77,host_mtu=4200']
PROGRAMS = '/tmp/disk/programs'  # on the disk, because rows also use the program's own file mappings
SET_UP = """set -e
    mkdir /tmp/disk; mount -t ext4 /dev/vda /tmp/disk; mkswap /dev/vdb; swapon /dev/vdb
    ip link set eth0 mtu 4200 up; ip address add 192.0.2.2/24 dev eth0
    rdma link add rxe0 type rxe netdev eth0
    for i in $(seq 100); do
      grep -l ffff:c000:0202 /sys/class/infiniband/rxe0/ports/1/gids/* && exit 0; sleep 0.3; done; exit 1"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--all', action='store_true', default=os.environ.get('ROCI_TEST_ALL') == 'yes',
                        help='every row in the guest, too: some 10 minutes (also by ROCI_TEST_ALL=yes)')
    parser.add_argument('--write', action='store_true', help='write the results into DOCUMENT')
    parser.add_argument('--only', default='', metavar='TEXT', help='only operations whose name contains TEXT')
    parser.add_argument('paths', nargs=7, metavar='PATH', help='ROCI ROCID PLUGIN FOLDER MEMORY_TABLE WITH_DAEMON DOCUMENT')
    options = parser.parse_args()
    (options.roci, options.rocid, options.plugin, options.folder, options.table, options.with_daemon,
     options.document) = options.paths
    return options


class Report:
    """Prints TAP, with the plan at the end."""

    def __init__(self):
        self.count, self.failed = 0, False

    def tell(self, name, problems=(), skip=''):
        self.count += 1
        self.failed |= bool(problems)
        print(f'{"not ok" if problems else "ok"} {self.count} - {name}{f" # SKIP {skip}" if skip else ""}')
        for problem in list(problems)[:40]:
            print(f'# {problem}')
        sys.stdout.flush()

    def compare(self, title, wanted, results, chosen):
        """Prints a line for each operation among the `chosen` rows."""
        for operation in kinds_of(chosen):
            rows = [name for name in chosen if name.operation == operation]
            there = [name for name in rows if not skipped(results.get(name, ''))]
            problems = [f'{name.kind}, {name.moment}: {results.get(name, NO_RESULT)!r}, documented is {wanted.get(name)!r}'
                        for name in there if results.get(name) != wanted.get(name)]
            self.tell(f'{title}: {operation}', problems, '' if there else f'this machine lacks what it takes: {operation}')

    def end(self):
        print(f'1..{self.count}')
        return 1 if self.failed else 0


def list_rows(options):
    done = subprocess.run([options.table, '-l'], capture_output=True, text=True, timeout=HERE_LIMIT_S, check=True)
    names = [Name(*line.split('\t')) for line in done.stdout.splitlines()]
    return names, [name for name in names if options.only in name.operation]


def rows_file(folder, names):
    path = pathlib.Path(folder) / 'rows'
    path.write_text(''.join('\t'.join(name) + '\n' for name in names), encoding='utf-8')
    return path


def may_open_map_files():
    """Whether daemons that we start can map shared memory of which the program has no descriptor."""
    with os.scandir('/proc/self/map_files') as mappings:
        mapping = next(mappings).path
    try:
        os.close(os.open(mapping, os.O_RDONLY))
    except PermissionError:
        return False
    return True


def run_here(options, names, user=None, daemon_user=None):
    """Runs the rows as `user` with the devices of a daemon of its own, which must survive. Returns the results."""
    programs = Programs(options.roci, options.rocid, options.plugin, copied=True)
    folder = options.folder if user is None else programs.folder
    os.makedirs(folder, exist_ok=True)  # the guest's: absent without QEMU
    with tempfile.TemporaryDirectory(prefix='roci-memory.', dir=folder) as scratch:
        daemon = None
        try:
            os.chmod(scratch, 0o777)
            table = shutil.copy(options.table, programs.folder)
            daemon = Daemon(programs, user=daemon_user)
            command = [table, '-d', 'roci0', '-g', '1', '-f', scratch, '-t', str(ROW_LIMIT_S), '-r', rows_file(scratch, names)]
            done = subprocess.run(daemon.command(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=HERE_LIMIT_S, check=False, **as_user(user))
            if not daemon.alive() or daemon.stop() != 0:
                raise RuntimeError(f'the daemon did not end well:\n{daemon.output() if daemon.alive() else daemon.last_output}')
            return parse_rows(done.stdout)
        finally:
            if daemon is not None:
                daemon.stop()
            programs.remove()


class RxeGuest:
    """A guest with soft-RoCE, a disk with ext4, swap and some huge pages."""

    def __init__(self, options):
        self.options = options
        self.scratch = tempfile.TemporaryDirectory(prefix='roci-memory.')
        disks = [os.path.join(self.scratch.name, name) for name in ('disk', 'swap')]
        for disk in disks:
            with open(disk, 'wb') as file:
                file.truncate(DISK_BYTES)
        subprocess.run(['mkfs.ext4', '-q', disks[0]], check=True, timeout=HERE_LIMIT_S, capture_output=True)
        drives = [word for disk in disks for word in ('-drive', f'if=virtio,format=raw,file={disk}')]
        self.guest = Guest(options.folder, NETWORK + drives, memory_mib=1536, kernel='hugepages=16')
        try:
            self.programs = self.guest.share / 'programs'
            self.programs.mkdir()
            for path in (options.rocid, options.roci, options.plugin, options.table, options.with_daemon):
                shutil.copy(path, self.programs)
            self.guest.run(SET_UP + '\n', GUEST_LIMIT_S)
            self.guest.run(f'cp -r /run/host/programs {PROGRAMS}', GUEST_LIMIT_S)
        except BaseException:
            self.stop()
            raise

    def stop(self):
        self.guest.stop()
        self.scratch.cleanup()

    def run(self, names, device, prefix=''):
        """Runs half of the rows on each of the guest's processors."""
        table = f'{PROGRAMS}/{os.path.basename(self.options.table)}'
        jobs = []
        for half in range(PROCESSORS):
            folder = self.guest.share / f'{device}.{half}'
            folder.mkdir()
            rows_file(folder, names[half::PROCESSORS])
            jobs.append(f'{table} -d {device} -g 1 -f /tmp/disk -t {ROW_LIMIT_S} -r /run/host/{folder.name}/rows')
        both = ' & '.join(jobs) + ' & wait'
        job = self.guest.start(f'cd {PROGRAMS} && {prefix} bash -c {shlex.quote(both)}')
        status = job.wait(GUEST_LIMIT_S)
        if status != 0:
            raise RuntimeError(f'memory_table in the guest: exit status {status}\n{job.output()[-2000:]}\n'
                               f'{self.guest.console_text()[-2000:]}')
        rows = parse_rows(job.output())
        return {name: rows.get(name, NO_RESULT) for name in names}

    def run_rxe(self, names):
        return self.run(names, 'rxe0')

    def run_daemon(self, names):
        """Returns the results of a daemon in the guest."""
        programs = [f'{PROGRAMS}/{os.path.basename(path)}'
                    for path in (self.options.with_daemon, self.options.rocid, self.options.roci, self.options.plugin)]
        return self.run(names, 'roci0', f'bash {shlex.join(programs)} {GUEST_LIMIT_S - 100}')


def run_guest(options, chosen, ours):
    """Returns the results of soft-RoCE, and those of Rocinante for rows that were skipped here, by Name. Raises Unavailable if no
    guest can run."""
    make_image(options.folder)
    names = chosen
    if not options.all and not options.write:
        names = [name for name in chosen if (name.kind, name.moment) in SAMPLE or name.moment == '-']
    left = [name for name in chosen if skipped(ours.get(name, ''))] if options.all or options.write else []
    guest = RxeGuest(options)
    try:
        theirs = guest.run_rxe(names)
        return theirs, guest.run_daemon(left) if left else {}
    finally:
        guest.stop()


def check_user(options, report, document, names):
    """Runs the rows with code of their own as an ordinary user's program with root's daemon, and those with memory that only a
    privileged daemon maps with a daemon of that user."""
    special = [name for name in names if name.moment == '-']
    if os.geteuid() != 0:
        report.tell(f'Rocinante, {USER}: rows by name', skip='only root can become another user')
        return
    report.compare(f'Rocinante, {USER}', document.ours, run_here(options, special, USER), special)
    shared = [name for name in names if name.kind in UNNAMED]
    report.compare(f'Rocinante, {UNPRIVILEGED}', document.unprivileged(), run_here(options, shared, USER, USER), shared)


def check(options):
    names, chosen = list_rows(options)
    document = Document(options.document, names)
    report = Report()
    ours = run_here(options, chosen)
    if not options.write:
        report.tell('the document names every row, explains every difference, and none loses data silently', document.check())
        if may_open_map_files():
            report.compare('Rocinante', document.ours, ours, chosen)
        else:
            report.compare(f'Rocinante, {UNPRIVILEGED}', document.unprivileged(), ours, chosen)
        check_user(options, report, document, chosen)
    try:
        theirs, in_guest = run_guest(options, chosen, ours)
    except Unavailable as error:
        report.tell('Linux soft-RoCE', skip=str(error))
        return report.end()
    if options.write:
        document.update({**ours, **in_guest}, theirs)
        document.write()
        return 0
    report.compare('Linux soft-RoCE', document.theirs, theirs, list(theirs))
    report.compare('Rocinante in the guest', document.ours, in_guest, list(in_guest))
    return report.end()


def main():
    options = parse_arguments()
    # Clean up also when the time limit ends the test.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        return check(options)
    except RuntimeError as error:
        print('Bail out! ' + str(error).replace('\n', '\n# '))
        return 1


if __name__ == '__main__':
    sys.exit(main())
