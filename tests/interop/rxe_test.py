#!/usr/bin/env python3
"""rocid with the soft-RoCE of a Linux kernel: a guest under QEMU, connected to ports of rocid by tap devices and by
vhost-user, with path MTU 4096 and 1024.

Usage: rxe_test.py [--list] [--all] [--only TEXT] ROCI ROCID PLUGIN FOLDER PROGRAM...

Creates a network namespace, tap devices, a daemon and a guest. Runs the pairs of programs of rxe_cases.py with the server at
either end, and prints a TAP line per pair. Two pairs run at a time, on different links. Each program runs in one place: a
family, path MTU, link and server, which take turns from program to program. A guest whose kernel crashes in rdma_rxe (Linux 6.1 does, rarely, when packets of READs are
lost, repeated or overtaken) is replaced, and the pairs that were running run again. Programs that check every byte run with
every combination of any two of the four. With --all every program runs with every combination of all four.

The programs are Debian's, except for memory windows, checked data and faults, which no program of Debian covers: these are
the PROGRAMs. FOLDER keeps the guest's kernel for the next run. Skipped without QEMU, the kernel's package or permission to
create namespaces.
"""
import argparse
import os
import shutil
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'integration'))
sys.dont_write_bytecode = True
from ends import LINKS, TAP, Network, RociEnd, RxeEnd, on_link, run_in_network  # pylint: disable=wrong-import-position
from harness import Programs  # pylint: disable=wrong-import-position
from pairs import Report, report_end, run_all  # pylint: disable=wrong-import-position
from rxe_cases import all_cases  # pylint: disable=wrong-import-position

GUESTS = 4  # at most
AT_ONCE = 2  # more are not faster on two processors, because the guest is emulated


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--list', action='store_true', help='print the names of the cases and end')
    parser.add_argument('--all', action='store_true', default=os.environ.get('ROCI_TEST_ALL') == 'yes',
                        help='every program everywhere, some 20 minutes (also by ROCI_TEST_ALL=yes)')
    parser.add_argument('--only', default='', metavar='TEXT', help='only cases whose name contains TEXT')
    parser.add_argument('paths', nargs='*', metavar='ROCI ROCID PLUGIN FOLDER PROGRAM...')
    options = parser.parse_args()
    options.cases = [(case, place) for case, place in all_cases(options.all) if options.only in case.name]
    if not options.cases:
        parser.error(f'no case contains {options.only!r}; --list prints the names')
    if not options.list and len(options.paths) < 5:
        parser.error('five paths wanted, or more')
    return options


class Site:
    """A link with its two ends and the remaining cases for it."""

    def __init__(self, link, roci, rxe, cases):
        self.link = link
        self.busy = False
        self.prefix = f'MTU {link.path_mtu}: '
        self.roci = on_link(roci, link, link.roci, roci.gids)
        self.ends = {'roci': self.roci, 'rxe': on_link(rxe, link, link.rxe, rxe.find_gids(link))}
        self.left = [(case, place) for case, place in cases if (place.link_kind, place.path_mtu) == (link.kind, link.path_mtu)]

    def in_order(self, server):
        """Returns the ends, the server first."""
        return tuple(sorted(self.ends.values(), key=lambda end: not end.name.startswith(server)))


class Runs:
    """Runs the remaining cases of all sites, AT_ONCE at a time, at most one at each site."""

    def __init__(self, sites, guest, report):
        self.sites, self.guest, self.report = sites, guest, report
        self.change = threading.Condition()
        self.lived = True  # daemon and guest have survived, and no thread has failed
        self.crashed = False  # the guest's kernel has, in its own RDMA driver
        self.failed = False  # something else has ended the runs
        self.told = threading.Lock()

    def run(self):
        threads = [threading.Thread(target=self.work, daemon=True) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.lived

    def work(self):
        while (site := self.take()) is not None:
            lived, forgiven = False, []
            case, place = site.left.pop(0)
            try:
                lived = run_all([(case, site.in_order(place.server))], site.roci, self.guest, self.report, site.prefix,
                                lambda: forgiven.append(self.has_crashed()) or forgiven[-1])  # pylint: disable=cell-var-from-loop
            finally:
                with self.change:
                    if True in forgiven:
                        site.left.append((case, place))
                    else:
                        self.failed |= not lived
                    site.busy = False
                    self.lived &= lived
                    self.change.notify_all()

    def has_crashed(self):
        """Whether the guest's end is a crash of its kernel in rdma_rxe, which it tells."""
        with self.told:
            said = self.guest.crash_of('rdma_rxe')
            if said and not self.crashed:
                self.crashed = True
                self.report.say("the guest's kernel has crashed in rdma_rxe:\n" + '\n'.join(said.splitlines()[:60]))
            return self.crashed

    def take(self):
        """Waits for a free site and returns the one with the most remaining cases. None: no more cases may start."""
        with self.change:
            while self.lived and any(site.left for site in self.sites):
                free = [site for site in self.sites if site.left and not site.busy]
                if free:
                    site = max(free, key=lambda each: len(each.left))
                    site.busy = True
                    return site
                self.change.wait()
            return None


def run_cases(cases, roci, rxe, report, may_crash):
    """Runs the cases. Returns those that are to be run in another guest, and whether daemon and guest have survived."""
    sites = [Site(link, roci, rxe, cases) for link in LINKS]
    runs = Runs(sites, rxe.guest, report)
    lived = runs.run()
    if lived:
        report_end((roci, rxe), report)
    may_go_on = runs.crashed and may_crash and not runs.failed
    return ([each for site in sites for each in site.left] if may_go_on else []), lived


def run_guest(options, network, folder):
    """Runs the cases with a daemon and a guest. Returns the exit status."""
    config = ''.join(link.config(folder) for link in LINKS)
    roci = RociEnd(Programs(*options.paths[:3]), network.name, config)
    roci.programs = os.path.dirname(options.paths[4])
    report = Report(len(options.cases) + 1)
    left, lived = options.cases, False
    try:
        for number in range(1, GUESTS + 1):
            rxe = RxeEnd(options.paths[3], network.name, folder)
            try:
                for program in options.paths[4:]:
                    shutil.copy(program, rxe.guest.share)
                left, lived = run_cases(left, roci, rxe, report, number < GUESTS)
            finally:
                rxe.guest.stop()
            if not left:
                break
        return 1 if report.failed or not lived else 0
    finally:
        roci.daemon.stop()


def main():
    options = parse_arguments()
    if options.list:
        for case, place in options.cases:
            print(f'{place.server} on {place.link_kind} serves: MTU {place.path_mtu}: {case.name}')
        return 0
    def run(network):
        with tempfile.TemporaryDirectory(prefix='roci-vhost.') as folder:
            return run_guest(options, network, folder)

    taps = [(link.tap, 1, link.net_mtu) for link in LINKS if link.kind == 'tap' and link.tap != TAP]
    return run_in_network(options.paths[3], lambda: Network(taps), run)


if __name__ == '__main__':
    sys.exit(main())
