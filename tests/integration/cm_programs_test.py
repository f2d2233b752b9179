#!/usr/bin/env python3
"""Debian's programs that connect by librdmacm, unmodified, over emulated devices.

Usage: cm_programs_test.py [--list] [--all] [--only TEXT] [--over wire|memif|veth] ROCI ROCID PLUGIN

Starts a daemon, or one at each end of a network, runs every pair of programs in the table below, and prints a TAP line per
pair: server and client must both exit with 0 in time. At the end the daemon may have no objects left. Over a network a
sample of the cases runs, unless --all is given.
"""
import shutil
import subprocess
import sys
import tempfile
import time

import cases
from harness import LIMIT_S, await_, ended_well, free_port, listening, members
from two_ends import V4, V6, end_of

# Attempts for a case whose programs have a race.
RACE_RUNS = 20
OWN_OPTIONS = ('-b', '-d', '-D', '-I')  # options that name a program's own address or device
SCRATCH = tempfile.TemporaryDirectory()  # removed at exit


class Case:
    """Server and client commands. `stays`: the server does not exit by itself. `fails`: the client fails with this message
    (and the server does not exit). `joins`: the server joins a group instead of listening. `race`: the client's message
    after it lost a race between the programs; the case is run again. `port`: the server first listens on this TCP port."""

    def __init__(self, server, client, stays=False, fails=None, joins=False, race=None, port=None):
        self.server = server.split()
        self.client = client.split()
        self.stays, self.fails, self.joins, self.race, self.port = stays, fails, joins, race, port
        # The name is the same in every run.
        self.name = f'{server} <- {client}'.replace(SCRATCH.name, 'SCRATCH').replace(f'-lp {port}', '-lp PORT')

    def ends(self):
        """The ends (0 or 1) of server and client, by the local address or device in their options, or else by the client's
        target. Without any (the loopback address) both run at one end."""
        def own(words):
            named = (end_of(word) for option, word in zip(words, words[1:]) if option in OWN_OPTIONS)
            return next((end for end in named if end is not None), None)

        client = own(self.client)
        wanted = [end_of(word) for option, word in zip(self.client, self.client[1:]) if option not in OWN_OPTIONS]
        wanted = next((end for end in wanted if end is not None), None)
        server = next((end_of(word) for word in self.server if end_of(word) is not None), 1 if wanted is None else wanted)
        if client is None:
            client = server if wanted is None else 1 - server
        return server, client


def rping_cases():
    for a, b in (V4, V6, V4[::-1], V6[::-1]):
        yield Case(f'rping -s -a {b} -C 10 -v', f'rping -c -a {b} -I {a} -C 10')
    # A device connected to itself; a listener on all addresses.
    yield Case(f'rping -s -a {V4[0]} -C 10', f'rping -c -a {V4[0]} -C 10 -v')
    # Loopback addresses: a listener on all devices; the first device connected to itself.
    for own in ('127.0.0.1', '::1'):
        yield Case(f'rping -s -a {own} -C 10', f'rping -c -a {own} -C 10 -v')
    yield Case('rping -s -a 127.0.0.1 -C 10', f'rping -c -a {V4[1]} -I {V4[0]} -C 10')
    yield Case('rping -s -C 10 -S 30000', f'rping -c -a {V4[1]} -I {V4[0]} -C 10 -S 30000 -V')
    yield Case(f'rping -s -a {V4[1]} -P -v', f'rping -c -a {V4[1]} -I {V4[0]} -C 100', stays=True)
    yield Case(f'rping -s -a {V4[1]} -C 5 -q', f'rping -c -a {V4[1]} -I {V4[0]} -C 5 -q')


def cmtime_case():
    """Newer versions (rdma-core 56) also connect by TCP, for which a device's address is not enough, and then without queue pairs, by
    invented numbers, which must differ on the same device (-q)."""
    usage = subprocess.run(['cmtime', '-h'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=LIMIT_S).stdout
    if '[-q base_qpn]' in usage:
        return Case('cmtime -c 200 -q 4096', 'cmtime -s 127.0.0.1 -c 200 -q 8192', stays=True)
    return Case(f'cmtime -b {V4[1]} -c 200', f'cmtime -s {V4[1]} -b {V4[0]} -c 200', stays=True)


def connection_cases():
    for a, b in (V4, V6):
        yield Case(f'ucmatose -b {b}', f'ucmatose -s {b} -b {a}')
        yield Case(f'udaddy -b {b}', f'udaddy -s {b} -b {a}')
    yield Case(f'ucmatose -b {V4[1]} -c 50 -C 5 -S 1000', f'ucmatose -s {V4[1]} -b {V4[0]} -c 50 -C 5 -S 1000')
    yield Case(f'ucmatose -b {V4[1]} -m', f'ucmatose -s {V4[1]} -b {V4[0]} -m')
    yield Case(f'udaddy -b {V4[1]} -c 20', f'udaddy -s {V4[1]} -b {V4[0]} -c 20')
    yield Case('rdma_server', f'rdma_client -s {V4[1]}')
    yield Case('rdma_server -p 7500', f'rdma_client -s {V4[0]} -p 7500')
    yield Case('rdma_xserver -c r', f'rdma_xclient -s {V4[1]} -c r')
    yield Case('rdma_xserver -c x', f'rdma_xclient -s {V4[1]} -c x')
    yield cmtime_case()


def gid_cases():
    """AF_IB addresses."""
    for a, b in (tuple(f'::ffff:{address}' for address in V4), V6):
        yield Case(f'ucmatose -f gid -b {b}', f'ucmatose -f gid -s {b} -b {a}')
        yield Case(f'ucmatose -f gid -P ib -b {b}', f'ucmatose -f gid -P ib -s {b} -b {a}')
        yield Case(f'udaddy -f gid -b {b}', f'udaddy -f gid -s {b} -b {a}')
    # No source address; several connections at a time. A listener bound to an IP address does not get AF_IB requests.
    yield Case(f'ucmatose -f gid -b {V6[1]} -c 20', f'ucmatose -f gid -s {V6[1]} -c 20')
    yield Case(f'ucmatose -b {V6[1]}', f'ucmatose -f gid -s {V6[1]} -b {V6[0]}', stays=True,
               fails='RDMA_CM_EVENT_REJECTED, error: 8')


def multicast_cases():
    for group, (a, b) in (('239.1.2.3', V4), ('ff0e::4711', V6)):
        yield Case(f'mckey -m {group} -b {a} -p 0x0111', f'mckey -m {group} -b {b} -s -p 0x0111', joins=True)


def socket_cases():
    few = '-S 4096 -C 200'
    for a, b in (V4, V6):
        yield Case(f'rstream -b {b} {few}', f'rstream -s {b} -b {a} {few}')
    # Only the server polls. A polling client treats POLLHUP as a failure, and gets it together with POLLIN if the server,
    # which sends last, disconnects before the client has read everything.
    yield Case(f'rstream -b {V4[1]} {few} -T a', f'rstream -s {V4[1]} {few}')
    yield Case(f'rstream -b {V4[1]} -S 1048576 -C 20', f'rstream -s {V4[1]} -S 1048576 -C 20')
    yield Case(f'riostream -b {V4[1]} {few}', f'riostream -s {V4[1]} {few}')
    yield Case('rcopy', f'rcopy /usr/bin/rcopy {V4[1]}:{SCRATCH.name}/copy', stays=True)


def perftest_cases():
    # Both connect twice. Before the second connection the server signals the client first and listens afterwards. If the
    # server waits for a processor in between, the client finds no listener and crashes in its second attempt (it has destroyed
    # its identifier after the first). For datagram services the event differs.
    def case(server, client):
        return Case(server, client,
                    race='RDMA_CM_EVENT_UNREACHABLE; error: 1' if '-c UD' in client else 'RDMA_CM_EVENT_REJECTED; error: 8')

    for program in ('ib_write_bw', 'ib_read_bw', 'ib_send_bw', 'ib_read_lat', 'ib_send_lat'):
        yield case(f'{program} -F -d roci1 -R -n 500', f'{program} -F -d roci0 -R -n 500 {V4[1]}')
    yield case('ib_send_bw -F -d roci1 -R -c UD -n 500', f'ib_send_bw -F -d roci0 -R -c UD -n 500 {V4[1]}')
    yield case('ib_write_bw -F -d roci1 -R -q 4 -n 500', f'ib_write_bw -F -d roci0 -R -q 4 -n 500 {V4[1]}')


def application_cases():
    """The small cases of tests/apps/applications.py."""
    for verb in ('write', 'read'):
        common = '--thread --ioengine=rdma --port=7777 --bs=64k --size=4m --iodepth=16'
        yield Case(f'fio --name=receive {common} --rw=read',
                   f'fio --name=send {common} --hostname={V4[1]} --verb={verb} --rw=write --iodepth_batch_complete=1')
    port = free_port()
    for test in ('rc_bw', 'rc_rdma_read_bw', 'ver_rc_compare_swap', 'ver_rc_fetch_add'):
        # The server tells the client its port before it listens there.
        yield Case(f'qperf -lp {port}', f'qperf -lp {port} 127.0.0.1 -t 1 -cm1 {test}', stays=True, port=port,
                   race='unexpected event from RDMA CM: Event rejected')
    if shutil.which('dapltest') is None:  # Debian 13 has no DAPL
        return
    registry = f'{SCRATCH.name}/dat.conf'
    with open(registry, 'w', encoding='ascii') as file:
        for name, address in (('near-roci0', V4[0]), ('far-roci1', V4[1])):
            file.write(f'{name} u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "{address} 0" ""\n')
    dapl = f'env DAT_OVERRIDE={registry} dapltest -T'
    yield Case(f'{dapl} S -D far-roci1', f'{dapl} T -s {V4[1]} -D near-roci0 -d -i 20 -t 1 -w 1 -R BE client SR 1024 4 server SR 1024 4 '
               'client RR 4096 server RW 4096', stays=True)


def error_cases():
    # No listener; no host; no route; not a local address.
    yield Case('sleep 600', f'ucmatose -s {V4[1]} -b {V4[0]}', stays=True, fails='RDMA_CM_EVENT_REJECTED, error: 8')
    yield Case('sleep 600', f'rping -c -a 10.99.0.77 -I {V4[0]} -C 1', stays=True, fails='error -110')
    yield Case('sleep 600', 'rping -c -a 192.0.2.1 -C 1', stays=True, fails='Network is unreachable')
    yield Case('sleep 600', f'rping -c -a {V4[1]} -I 192.0.2.1 -C 1', stays=True, fails='Cannot assign requested address')


def all_cases():
    for kind in (rping_cases, connection_cases, gid_cases, multicast_cases, socket_cases, perftest_cases,
                 application_cases, error_cases):
        yield from kind()


def features(case):
    """Features that a sample over a network covers: each program, each option, each kind of address."""
    words = case.client + case.server
    family = 'IPv6' if any(':' in word for word in words) else 'IPv4'
    program = case.client[0]
    options = {word for word in words if word.startswith('-') and word not in OWN_OPTIONS}
    return {(program, family), ('fails', case.fails), *options}


def output_of(process, limit_s):
    try:
        return process.communicate(timeout=limit_s)[0], process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0], f'none in {limit_s} s'


def run_case(daemon, case):
    """The error, or ''."""
    for run in range(1, RACE_RUNS + 1):
        wrong, lost_race = run_once(daemon, case, run == RACE_RUNS)
        if not lost_race:
            break
        print(f'# run {run} lost the race')
    return wrong


def run_once(daemon, case, is_last):
    """The error or '', and whether the case lost its race and may run again."""
    server_end, client_end = (daemon.at(end) for end in case.ends())
    if case.joins:
        await_(lambda: members(server_end) == 0)  # of the previous case
    server = server_end.start(*case.server)
    listens = case.server[0] != 'sleep'
    if case.joins:
        await_(lambda: server.poll() is not None or members(server_end) > 0)
    elif case.port is not None:
        await_(lambda: server.poll() is not None or listening(case.port))
    elif listens:
        await_(lambda: server.poll() is not None or
               any(c['state'] == 'listen' and c['pid'] == server.pid for c in daemon.show('connections')))
    client_output, client = output_of(client_end.start(*case.client), LIMIT_S)
    if client != 0 and case.race is not None and case.race in client_output and not is_last:
        server.kill()
        server.communicate()
        return '', True
    if case.stays:
        alive = server.poll() is None
        server.kill()
        server_output, _ = server.communicate()
        status = 0 if alive else server.returncode
    else:
        server_output, status = output_of(server, LIMIT_S)
    wrong = ''
    if case.fails is not None:
        if case.fails not in client_output:
            wrong += f'client: "{case.fails}" was to be said\n{client_output}'
    elif not ended_well(client, client_output):
        wrong += f'client: exit status {client}\n{client_output}'
    if not ended_well(status, '' if case.stays else server_output):
        wrong += f'server: exit status {status}\n{server_output}'
    return wrong, False


if __name__ == '__main__':
    sys.exit(cases.run(__doc__, {case.name: case for case in all_cases()}, run_case, features,
                       lambda daemon: daemon.show('connections')))
