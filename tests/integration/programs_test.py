#!/usr/bin/env python3
"""Pairs of Debian's RDMA programs, unmodified, over emulated devices.

Usage: programs_test.py [--list] [--all] [--only TEXT] [--over wire|memif|veth] ROCI ROCID PLUGIN

Starts a daemon, or one at each end of a network, runs every pair of programs in the table below, and prints a TAP line per
pair: server and client must both exit with 0 in time. --only runs the cases whose name contains TEXT. Over a network a
sample of the cases runs, unless --all is given.
"""
import sys

import cases
from harness import LIMIT_S, Pair, await_, cpu_s, outcome
from two_ends import TwoEnds, Veth

ACROSS, BACK, SELF = ('roci0', 'roci1'), ('roci1', 'roci0'), ('roci0', 'roci0')


def pingpong_cases():
    base = ['ibv_rc_pingpong', '-g', '1']
    for devices in (ACROSS, BACK, SELF):
        yield devices, base
        yield devices, base + ['-c']
    for options in (['-e'], ['-c', '-e'], ['-c', '-s', '1'], ['-c', '-s', '65537'], ['-n', '20000'],
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
        few = ['-n', '1000'] if sized else ['-n', '2000']
        yield ACROSS, base
        yield BACK, base + few
        yield SELF, base + few
        if sized:
            # All sizes up to 8 MiB.
            yield ACROSS, base + ['-a', '-n', '10']
            yield ACROSS, base + ['-a', '-b', '-n', '10']
            yield ACROSS, base + ['-s', '1', '-n', '20000']
            for mtu in ('256', '512', '1024', '2048', '4096'):
                yield ACROSS, base + few + ['-m', mtu]
        yield ACROSS, base + few + ['-b']
        yield BACK, base + few + ['-b', '-q', '4']
        yield ACROSS, base + ['-n', '200', '-q', '16']
        yield ACROSS, base + ['-n', '200', '-q', '16', '-b']
        if program != 'ib_write_bw':  # its server has no completion to wait for, so it refuses the option
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
    # ib_write_lat polls memory in both programs without a verbs call that could yield: few rounds.
    for program, rounds in (('ib_send_lat', '1000'), ('ib_write_lat', '60'), ('ib_read_lat', '1000'),
                            ('ib_atomic_lat', '1000')):
        base = [program, '-F', '-x', '1', '-n', rounds]
        for devices in (ACROSS, BACK, SELF):
            yield devices, base
        large = ['-s', '5000'] if program != 'ib_atomic_lat' else []
        for mtu in ('256', '512', '1024', '2048', '4096'):
            yield ACROSS, base[:-1] + ['50', *large, '-m', mtu]
        if program in ('ib_send_lat', 'ib_read_lat'):
            yield ACROSS, base[:-1] + ['20', '-a']
        if program != 'ib_write_lat':
            yield ACROSS, base + ['-e']
        if program in ('ib_send_lat', 'ib_write_lat'):
            yield ACROSS, base + ['-s', '64', '-I', '64']
        for gid in ('0', '2'):
            yield ACROSS, [program, '-F', '-x', gid, '-n', rounds]


def unreliable_cases():
    for program in ('ibv_uc_pingpong', 'ibv_ud_pingpong'):
        for devices in (ACROSS, SELF):
            yield devices, [program, '-g', '1']
        yield ACROSS, [program, '-g', '2', '-e']
    yield ACROSS, ['ibv_uc_pingpong', '-g', '1', '-s', '65537']
    yield ACROSS, ['ibv_ud_pingpong', '-g', '1', '-s', '2048']
    for program, rounds in (('ib_send_bw', '1000'), ('ib_send_lat', '500')):
        for service in ('UC', 'UD'):
            yield ACROSS, [program, '-F', '-x', '1', '-c', service, '-n', rounds]
            yield ACROSS, [program, '-F', '-x', '2', '-c', service, '-n', rounds, '-e']
        # A multicast group, which perftest names by an IPv6 address.
        yield ACROSS, [program, '-F', '-x', '2', '-c', 'UD', '-g', '-n', rounds]
    yield ACROSS, ['ib_send_bw', '-F', '-x', '1', '-c', 'UD', '-b', '-q', '4', '-n', '1000']
    yield ACROSS, ['ib_write_bw', '-F', '-x', '1', '-c', 'UC', '-n', '1000']


def interface_cases():
    """Each program with the newer calls, and with the options that change its calls."""
    for options in (['-N'], ['-t'], ['-N', '-t', '-c'], ['-N', '-e', '-c'], ['-N', '-c', '-s', '1000000', '-n', '100'],
                    ['-j', '-c'], ['-N', '-j', '-t', '-c'], ['-o', '-c'], ['-O', '-c'], ['-o', '-P', '-c'],
                    ['-N', '-o', '-e', '-c']):
        yield ACROSS, ['ibv_rc_pingpong', '-g', '1', *options]
    for program in ('ib_send_bw', 'ib_write_bw', 'ib_read_bw', 'ib_atomic_bw'):
        base = [program, '-F', '-x', '1', '-n', '1600']
        yield ACROSS, base + ['--use_old_post_send']
        yield ACROSS, base + ['-l', '16', '-Q', '16']
    base = ['ib_send_bw', '-F', '-x', '1', '-n', '1600']
    for options in (['--recv_post_list', '16'], ['--mr_per_qp', '-q', '4'], ['--tclass', '96'], ['-N'],
                    ['-b', '--report-both'], ['--reversed'], ['--perform_warm_up']):
        yield ACROSS, base + options


def shared_receive_cases():
    base = ['ibv_srq_pingpong', '-g', '1']
    for devices in (ACROSS, SELF):
        yield devices, base
    for options in (['-e'], ['-s', '1'], ['-s', '65537', '-m', '1024'], ['-q', '64', '-n', '200'], ['-r', '64']):
        yield ACROSS, base + options
    for service in ('RC', 'UD'):
        for program in ('ib_send_bw', 'ib_send_lat'):
            yield ACROSS, [program, '-F', '-x', '1', '-c', service, '--use-srq', '-n', '1000']
    yield ACROSS, ['ib_send_bw', '-F', '-x', '1', '--use-srq', '-n', '1000', '-q', '8', '-b']


def extended_reliable_cases():
    yield ACROSS, ['ibv_xsrq_pingpong', '-g', '1', '-c', '1']
    for options in ([], ['-e'], ['-s', '65537'], ['-o']):
        yield ACROSS, ['ibv_xsrq_pingpong', '-g', '1', '-c', '2', *options]
    yield SELF, ['ibv_xsrq_pingpong', '-g', '1', '-c', '1', '-e']
    for program in ('ib_send_bw', 'ib_write_bw', 'ib_read_bw', 'ib_atomic_bw'):
        base = [program, '-F', '-x', '1', '-c', 'XRC', '-n', '1000']
        yield ACROSS, base
        yield ACROSS, base + ['-q', '4', '-b']
    for program in ('ib_send_lat', 'ib_read_lat', 'ib_atomic_lat'):
        yield ACROSS, [program, '-F', '-x', '1', '-c', 'XRC', '-n', '500']
    # (Polls memory; see latency_cases.)
    for service in ('UC', 'XRC'):
        yield ACROSS, ['ib_write_lat', '-F', '-x', '1', '-c', service, '-n', '60']


def raw_packet_cases():
    # A receive for every frame: frames that arrive without a receive are lost, and the program waits for them.
    base = ['raw_ethernet_bw', '-F', '-s', '1024', '-n', '1000', '-r', '1024']
    for options in ([], ['-b'], ['--vlan_en'], ['--promiscuous'],
                    ['-J', '10.99.0.1', '-j', '10.99.0.2', '-K', '2000', '-k', '3000'],
                    ['-J', '10.99.0.1', '-j', '10.99.0.2', '-K', '2000', '-k', '3000', '--tcp'],
                    ['-q', '4'],  # equal rules: each queue pair gets every frame
                    ['--rate_limit_type=PP', '--rate_units=M', '--rate_limit=10']):
        yield ACROSS, base + options
    for devices in (ACROSS, BACK):
        yield devices, ['raw_ethernet_lat', '-F', '-s', '64', '-n', '500']
        yield devices, ['raw_ethernet_fs_rate', '-F', '-s', '64', '-n', '500']
    # perftest 4.5 can run raw_ethernet_burst_lat in one way only, on any RoCE adapter: without --rate_limit_type it uses SW,
    # which its own check refuses before it opens a device (exit 1); HW needs an InfiniBand link; PP does not poll without
    # --burst_size, and gets no completions without -Q 1. Its server exits with the last message, even if its answers are not
    # sent yet, so the last answered message must come earlier.
    yield ACROSS, ['raw_ethernet_burst_lat', '-F', '-s', '64', '-n', '1999', '-r', '2048', '--reply_every=500', '-Q', '1',
                   '--burst_size=32', '--rate_limit_type=PP', '--rate_units=M', '--rate_limit=1']


def all_cases():
    for devices, command in [*pingpong_cases(), *bandwidth_cases(), *latency_cases(), *unreliable_cases(),
                             *interface_cases(), *shared_receive_cases(), *extended_reliable_cases(),
                             *raw_packet_cases()]:
        yield [(devices, command)]
    # Two pairs at the same time, over two devices and over one.
    yield [(ACROSS, ['ib_write_bw', '-F', '-x', '1']), (BACK, ['ib_read_bw', '-F', '-x', '2'])]
    yield [(ACROSS, ['ibv_rc_pingpong', '-c', '-g', '1', '-n', '5000']), (SELF, ['ib_send_bw', '-F', '-x', '1'])]


def name_of(pairs):
    return ' and '.join(f'{" ".join(command)} {server} <- {client}' for (server, client), command in pairs)


class RawPair(Pair):
    """A pair that exchanges raw frames only, so that the server must be ready first."""

    def __init__(self, daemon, devices, command):
        macs = {row['name']: row['mac'] for row in daemon.show('devices')}
        self.daemon = daemon
        self.device = devices[0]

        def side(role, own, peer):
            return [command[0], role, '-d', own, '-B', macs[own], '-E', macs[peer], *command[1:]]

        self.client_command = side('--client', devices[1], devices[0])
        self.server = daemon.start(*side('--server', devices[0], devices[1]))
        self.client = None

    def connect(self):
        await_(lambda: self.server.poll() is not None or any(
            row['device'] == self.device and row['type'] == 'RAW' and row['state'] in ('RTR', 'RTS')
            for row in self.daemon.show('qps')))
        # It posts its receives in RTR, which is not visible outside, and then polls.
        begin = self.cpu_s()
        await_(lambda: self.server.poll() is not None or self.cpu_s() > begin + 0.1, 10)
        return self.connect_client()

    def cpu_s(self):
        return cpu_s(self.server.pid) if self.server.poll() is None else 0


class SeveralClients(Pair):
    """ibv_xsrq_pingpong -c N: an option of the server, which N clients connect to."""

    def __init__(self, daemon, devices, command):
        super().__init__(daemon, devices, command)
        at = command.index('-c')
        self.count = int(command[at + 1])
        self.client_command = self.on(devices[1], command[:at] + command[at + 2:]) + ['127.0.0.1']
        self.others = []

    def connect_client(self):
        self.others = [self.daemon.start(*self.client_command) for _ in range(self.count - 1)]
        return super().connect_client()

    def result(self, limit_s=LIMIT_S):
        return super().result(limit_s) + ''.join(outcome('client', other, limit_s) for other in self.others)


def suited(daemon, command):
    """READs are repeated slowly if responses are lost, as on a loaded veth pair. `-a` goes up to eight million bytes per
    message, so few of each size."""
    over_veth = isinstance(daemon, TwoEnds) and isinstance(daemon.network, Veth)
    if command[0] == 'ib_read_bw' and '-a' in command and over_veth:
        at = command.index('-n')
        return [*command[:at], '-n', '5', *command[at + 2:]]
    return command


def pair_of(daemon, devices, command):
    command = suited(daemon, command)
    kind = Pair
    if command[0].startswith('raw_ethernet'):
        kind = RawPair
    elif command[0] == 'ibv_xsrq_pingpong':
        kind = SeveralClients
    return kind(daemon, devices, command)


def run_case(daemon, pairs):
    running = [pair_of(daemon, devices, command) for devices, command in pairs]
    for pair in running:
        pair.connect()
    return ''.join(pair.result() for pair in running)


def fits(network, pairs):
    """The ring of net_af_packet overflows without acknowledgements, and these programs wait for each message."""
    def is_flood(command):
        unreliable = 'UC' in command or 'UD' in command or command[0].startswith('raw')
        return unreliable and command[0].endswith('_bw')
    return network != 'veth' or not any(is_flood(command) for _, command in pairs)


def for_the_night(pairs):
    """Programs that go through all sizes while both ends spin, which takes long on few processors."""
    return any('-a' in command and (command[0].endswith('_lat') or '-b' in command) for _, command in pairs)


def features(pairs):
    """Features that a sample over a network covers: each program with each service; each option with each kind of program;
    large and small messages; each direction; several pairs at once."""
    found = {('pairs', len(pairs))}
    for devices, command in pairs:
        program, options = command[0], command[1:]
        service = 'RC'
        if '-c' in options and not program.startswith('ibv_'):
            service = options[options.index('-c') + 1]
        found |= {(program, service), (devices, program.rpartition('_')[2])}
        for option, value in zip(options, options[1:] + ['']):
            if option == '-s':
                found.add((option, 'small' if int(value) < 256 else 'large'))
            elif option.startswith('-') and option not in ('-F', '-x', '-n', '-c', '-d'):
                found.add(option)
            elif option == '-m' or (option == '-x' and value != '1'):
                found.add((option, value))
        if '-e' in options:
            found.add(('-e', service))
    return found


if __name__ == '__main__':
    sys.exit(cases.run(__doc__, {name_of(case): case for case in all_cases()}, run_case, features, fits=fits, night=for_the_night))
