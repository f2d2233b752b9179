#!/usr/bin/env python3
"""rocid against the soft-RoCE of a Linux kernel: a guest under QEMU, joined to a port of rocid by a tap device.

Usage: rxe_test.py [--list] [--only TEXT] ROCI ROCID PLUGIN FOLDER

Makes a network namespace, a tap device, a daemon and a guest of its own, runs every pair of Debian's programs in the table
below with the server at one end and at the other, and prints a TAP line for each. FOLDER keeps the guest's kernel for the
next run. Skips everything where QEMU, the kernel's package or the right to make namespaces is missing.
"""
import argparse
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'integration'))
sys.dont_write_bytecode = True
from ends import LIMIT_S, Network, RociEnd, RxeEnd, settle  # pylint: disable=wrong-import-position
from guest import Unavailable, make_image  # pylint: disable=wrong-import-position
from harness import Programs  # pylint: disable=wrong-import-position

PORT = 18600
FAMILIES = ('v4', 'v6')


class Case:
    """A pair of programs. In the commands {device}, {gid}, {port} and {address} are the own device, its GID index for the
    family, a TCP port, and the own address; {peer} and {tcp} are the server's address as the connection manager and as
    TCP know it. `cm`: by the connection manager. `joins`: nobody listens, the server joins a group. `impair`: of rocid's
    port meanwhile, both ways. `killed`: the client is, and the server must notice. `fails`: what the client must say.
    `servers`: the ends that may be one."""

    def __init__(self, server, client=None, family='v4', cm=False, joins=False, impair=(), killed=False, fails=None,
                 servers=('roci', 'rxe')):
        self.server = server
        self.client = client or f'{server} {{tcp}}'
        self.family = family
        self.servers = servers
        self.cm, self.joins, self.impair, self.killed, self.fails = cm, joins, impair, killed, fails
        self.name = f'{family} {server}' + (f' [{" ".join(impair)}]' if impair else '') + (' [killed]' if killed else '')


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


def all_cases():
    for kind in (pingpong_cases, perftest_cases, connection_cases, fault_cases):
        yield from kind()


def command_for(end, peer, text, family):
    return text.format(device=end.device, gid=end.gids[family], port=PORT, address=end.addresses[family],
                       peer=peer.addresses[family], tcp=peer.tcp_address)


def run_case(case, server_end, client_end):
    """What went wrong, or ''."""
    server = server_end.start(command_for(server_end, client_end, case.server, case.family))
    if case.joins:
        time.sleep(2)
    else:
        server_end.await_listener(server, None if case.cm else PORT)
    client = client_end.start(command_for(client_end, server_end, case.client, case.family))
    if case.killed:
        time.sleep(2)
        client.kill()
        status = server.wait(LIMIT_S)
        if status is None:
            return f'server: did not notice that the client was killed\n{server.output()}'
        return ''
    client_status = client.wait(LIMIT_S)
    if case.fails is not None:
        server.kill()
        said = client.output()
        return '' if case.fails in said else f'client: "{case.fails}" was to be said\n{said}'
    server_status = server.wait(LIMIT_S if client_status == 0 else 5)
    wrong = ''
    for role, program, status in (('client', client, client_status), ('server', server, server_status)):
        said = program.output()
        if status != 0 or 'invalid data' in said:
            wrong += f'{role}: exit status {status}\n{said}'
    return wrong


def run_again(case, roci, server_end, client_end):
    """What went wrong twice, or ''. A guest without a processor of its own may be late."""
    wrong = run_impaired(case, roci, server_end, client_end)
    if not wrong:
        return ''
    print('# once more, after:\n# ' + '\n# '.join(wrong.splitlines()[-5:]))
    settle()
    return run_impaired(case, roci, server_end, client_end)


def run_impaired(case, roci, server_end, client_end):
    directions = ('in', 'out') if case.impair else ()
    for direction in directions:
        roci.impair('--direction', direction, *case.impair)
    try:
        return run_case(case, server_end, client_end)
    finally:
        if directions:
            roci.impair('--clear')


class Report:
    """TAP lines."""

    def __init__(self, count):
        self.number = self.failed = 0
        print(f'1..{count}')

    def add(self, name, wrong, seconds):
        self.number += 1
        self.failed += bool(wrong)
        print(f'{"not ok" if wrong else "ok"} {self.number} - {name}\n# {seconds:.1f} s')
        for line in wrong.splitlines()[-25:]:
            print('#', line[:200])
        sys.stdout.flush()


def run_all(cases, roci, rxe, report):
    for case, (server_end, client_end) in cases:
        started = time.monotonic()
        wrong = run_again(case, roci, server_end, client_end)
        report.add(f'{server_end.name} serves: {case.name}', wrong, time.monotonic() - started)
        if roci.daemon.process.poll() is not None or not rxe.guest.alive():
            return
        settle()
    left = {**roci.left(), **rxe.left()}
    status = roci.daemon.stop()
    wrong = f'left {left}, status {status}\n{roci.daemon.last_output}' if left or status != 0 else ''
    report.add('nothing is left, and the daemon ends with status 0', wrong, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--list', action='store_true', help='print the names of the cases and end')
    parser.add_argument('--only', default='', metavar='TEXT', help='only cases whose name contains TEXT')
    parser.add_argument('paths', nargs='*', metavar='ROCI ROCID PLUGIN FOLDER')
    options = parser.parse_args()
    cases = [case for case in all_cases() if options.only in case.name]
    if options.list:
        print('\n'.join(case.name for case in cases))
        return 0
    if len(options.paths) != 4:
        parser.error('four paths wanted')
    try:
        make_image(options.paths[3])
        network = Network()
    except (Unavailable, subprocess.CalledProcessError, FileNotFoundError) as error:
        print(f'1..0 # SKIP {getattr(error, "stderr", None) or error}')
        return 0
    # Ended by its time limit, it leaves nothing behind either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    ends = []
    try:
        ends.append(RociEnd(Programs(*options.paths[:3]), network.name))
        try:
            ends.append(RxeEnd(options.paths[3], network.name))
        except Unavailable as error:
            print(f'1..0 # SKIP {error}')
            return 0
        roci, rxe = ends
        both = [(case, pair) for case in cases for pair in ((roci, rxe), (rxe, roci)) if pair[0].name in case.servers]
        report = Report(len(both) + 1)
        run_all(both, roci, rxe, report)
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


if __name__ == '__main__':
    sys.exit(main())
