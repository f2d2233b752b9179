#!/usr/bin/env python3
"""rocid against the soft-RoCE of a Linux kernel: a guest under QEMU, joined to a port of rocid by a tap device, and to
another by vhost-user.

Usage: rxe_test.py [--list] [--only TEXT] ROCI ROCID PLUGIN FOLDER WINDOWS

Makes a network namespace, a tap device, a daemon and a guest of its own, runs every pair of programs in the table below
with the server at one end and at the other, and prints a TAP line for each. They are Debian's, but for memory windows,
which none of Debian's uses: WINDOWS is windows.cc, compiled. FOLDER keeps the guest's kernel for the next run. Skips everything where QEMU, the kernel's package or the right to make namespaces is missing.
"""
import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'integration'))
sys.dont_write_bytecode = True
from ends import (ROCI, ROCI_VHOST, RXE_VHOST, TAP, Network,  # pylint: disable=wrong-import-position
                  RociEnd, RxeEnd, device_config, other)
from guest import Unavailable, make_image  # pylint: disable=wrong-import-position
from harness import Programs  # pylint: disable=wrong-import-position
from pairs import Case, Report, report_end, run_all  # pylint: disable=wrong-import-position

FAMILIES = ('v4', 'v6')


def pingpong_cases():
    own = '-d {device} -g {gid} -p {port}'
    for family in FAMILIES:
        # -e: spinning keeps the guest's kernel from its own work.
        for mtu in (1024, 4096):
            yield Case(f'ibv_rc_pingpong {own} -e -c -m {mtu} -n 100', family=family)
        for size in (1, 65537):
            yield Case(f'ibv_rc_pingpong {own} -e -c -s {size} -n 20', family=family)
        yield Case(f'ibv_uc_pingpong {own} -e -c -n 100', family=family)
        yield Case(f'ibv_ud_pingpong {own} -e -s 1000 -n 100', family=family)
        yield Case(f'ibv_srq_pingpong {own} -e -c -q 4 -n 100', family=family)


def perftest_cases():
    own = '-d {device} -x {gid} -p {port} -F -u 18'
    for test in ('write', 'read', 'send', 'atomic'):
        size = '' if test == 'atomic' else '-s 65536 '
        # perftest wants of the server's device what the client's has: as much as both have.
        outs = '-o 16 ' if test in ('read', 'atomic') else ''
        for family, mtu in (('v4', 1024), ('v6', 4096)):
            yield Case(f'ib_{test}_bw {own} {size}{outs}-n 100 -m {mtu}', family=family)
            yield Case(f'ib_{test}_lat {own} {outs}-n 100 -m {mtu}', family=family)
    yield Case(f'ib_send_bw {own} -c UC -s 4096 -n 100')
    yield Case(f'ib_send_bw {own} -c UD -s 1000 -n 100')
    yield Case(f'ib_write_bw {own} -q 4 -s 10000 -n 100', family='v6')
    yield Case(f'ib_write_bw {own} -b -s 65536 -n 100')
    # Few receives: the sender runs into RNR NAKs.
    yield Case(f'ib_send_bw {own} -s 64 -n 500 -r 1 -t 16')


def connection_cases():
    for family in FAMILIES:
        yield Case('rping -s -a {address} -C 20 -V', 'rping -c -a {peer} -C 20 -V', family, cm=True)
        yield Case('rping -s -a {address} -C 5 -S 30000 -V', 'rping -c -a {peer} -C 5 -S 30000 -V', family, cm=True)
        yield Case('ucmatose -b {address} -c 5 -C 20', 'ucmatose -s {peer} -c 5 -C 20', family, cm=True)
        yield Case('udaddy -b {address}', 'udaddy -s {peer}', family, cm=True)
    # (Linux 6.1 cannot join groups of IPv6 here: error 524.)
    yield Case('mckey -m 224.0.0.77 -b {address} -C 10', 'mckey -m 224.0.0.77 -b {address} -s -C 10', cm=True, joins=True)
    yield Case('sleep 60', 'ucmatose -s {peer}', cm=True, joins=True, fails='RDMA_CM_EVENT_REJECTED, error: 8')


def fault_cases():
    own = '-d {device} -g {gid} -p {port}'
    loss = ('--loss', '3%', '--reorder', '3%', '--duplicate', '2%', '--seed', '5')
    yield Case(f'ibv_rc_pingpong {own} -e -c -s 20000 -n 100', impair=loss)
    yield Case('ib_write_bw -d {device} -x {gid} -p {port} -F -u 14 -s 65536 -n 50', impair=loss)
    yield Case('ib_read_bw -d {device} -x {gid} -p {port} -F -u 14 -o 16 -s 65536 -n 50', family='v6', impair=loss)
    yield Case('rping -s -a {address} -C 20 -V', 'rping -c -a {peer} -C 20 -V', cm=True, impair=('--loss', '5%', '--seed', '9'))
    # (For rxe a retry count of 7, which is perftest's, means for ever.)
    yield Case('ib_send_bw -d {device} -x {gid} -p {port} -F -u 12 -b -D 100', killed=True, servers=('roci',))
    yield Case('rping -s -a {address} -V', 'rping -c -a {peer} -V', cm=True, killed=True)


def window_cases():
    for family in FAMILIES:
        # (Linux's soft-RoCE does not hold what comes against the bounds of its windows.)
        for owner, rows in (('roci', 'all'), ('rxe', 'inside')):
            yield Case(f'{{programs}}/windows -s {{address}} {rows}', f'{{programs}}/windows -c {{peer}} {rows}', family, cm=True,
                       servers=(owner,))


def vhost_cases():
    own = '-d {device} -g {gid} -p {port}'
    for family, mtu in (('v4', 1024), ('v6', 4096)):
        yield Case(f'ibv_rc_pingpong {own} -e -c -m {mtu} -s 65537 -n 20', family=family)
        yield Case('rping -s -a {address} -C 20 -V', 'rping -c -a {peer} -C 20 -V', family, cm=True)
    yield Case('ib_write_bw -d {device} -x {gid} -p {port} -F -u 18 -b -s 65536 -n 100')


def all_cases():
    for kind in (pingpong_cases, perftest_cases, connection_cases, window_cases, fault_cases):
        yield from kind()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--list', action='store_true', help='print the names of the cases and end')
    parser.add_argument('--only', default='', metavar='TEXT', help='only cases whose name contains TEXT')
    parser.add_argument('paths', nargs='*', metavar='ROCI ROCID PLUGIN FOLDER WINDOWS')
    options = parser.parse_args()
    cases, over_vhost = ([case for case in each if options.only in case.name] for each in (all_cases(), vhost_cases()))
    if options.list:
        print('\n'.join(case.name for case in cases + over_vhost))
        return 0
    if len(options.paths) != 5:
        parser.error('five paths wanted')
    try:
        make_image(options.paths[3])
        network = Network()
    except (Unavailable, subprocess.CalledProcessError, FileNotFoundError) as error:
        print(f'1..0 # SKIP {getattr(error, "stderr", None) or error}')
        return 0
    # Ended by its time limit, it leaves nothing behind either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    ends = []
    folder = tempfile.TemporaryDirectory(prefix='roci-vhost.')
    vhost = f'{folder.name}/vhost.sock'
    try:
        config = (device_config('roci0', f'net_af_packet0,iface={TAP}', ROCI) +
                  device_config('roci1', f'net_vhost0,iface={vhost}', ROCI_VHOST))
        ends.append(RociEnd(Programs(*options.paths[:3]), network.name, config))
        try:
            ends.append(RxeEnd(options.paths[3], network.name, vhost))
        except Unavailable as error:
            print(f'1..0 # SKIP {error}')
            return 0
        roci, rxe = ends
        roci.programs = os.path.dirname(options.paths[4])
        shutil.copy(options.paths[4], rxe.guest.share)
        both = [(case, pair) for case in cases for pair in ((roci, rxe), (rxe, roci)) if pair[0].name in case.servers]
        over = (other(roci, 'roci over vhost-user', 'roci1', ROCI_VHOST, roci.gids),
                other(rxe, 'rxe over vhost-user', 'rxe1', RXE_VHOST, rxe.find_gids('rxe1', RXE_VHOST)))
        both += [(case, pair) for case in over_vhost for pair in (over, over[::-1])]
        report = Report(len(both) + 1)
        if run_all(both, roci, rxe.guest, report):
            report_end((roci, rxe), report)
        return 1 if report.failed else 0
    except RuntimeError as error:
        print(f'Bail out! {error}')
        return 1
    finally:
        if len(ends) > 1:
            ends[1].guest.stop()
        if ends:
            ends[0].daemon.stop()
        network.remove()
        folder.cleanup()


if __name__ == '__main__':
    sys.exit(main())
