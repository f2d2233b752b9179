#!/usr/bin/env python3
"""rocid on NICs bound to userspace drivers in a guest under QEMU, connected to a rocid on the host.

Usage: nic_test.py [--all] [--only TEXT] ROCI ROCID PLUGIN FOLDER RAW_FRAMES

The guest has an IOMMU and a NIC of each kind in the table below. The other end of each NIC is a tap device with a port of the
host's daemon. One after the other the NICs are bound as in docs/adapters.md, a daemon in the guest drives them, and pairs of
Debian's programs run; the ends take turns to serve, with --all each serves. The NIC fills in and checks the checksums of raw packets, if it can.
Prints a TAP line per pair. FOLDER keeps the guest's kernel for the next run. RAW_FRAMES is the compiled
../integration/raw_frames.cc. Skipped without QEMU, the kernel's package or permission to create namespaces.
"""
import argparse
import itertools
import json
import os
import shlex
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'integration'))
sys.dont_write_bytecode = True
from ends import (GUEST_MACS, LIMIT_S, MTU, PORT, RXE, TAP, Network,  # pylint: disable=wrong-import-position
                  RociEnd, device_config, listening_row, other, run_in_network)
from guest import Guest  # pylint: disable=wrong-import-position
import checksums_test as checksums  # pylint: disable=wrong-import-position
from harness import Programs, await_  # pylint: disable=wrong-import-position
from pairs import Case, Report, report_end, run_all  # pylint: disable=wrong-import-position

MEMORY_MIB = 1024
USER = 65534  # nobody
FOLDER = '/tmp/programs'


class Nic:
    """A NIC in the guest: QEMU's `model`, the `driver` that it is bound to, the `user` of the daemon, the number of 2 MiB huge
    pages that it needs, the `cases` to run and those for --all, the number of `queues` (the daemon has an lcore for each), and
    the `offloads` that its port must have."""

    count = 0

    def __init__(self, model, driver, user, huge_pages, cases, more=(), queues=1, offloads=('tx_udp_checksum', 'tx_tcp_checksum')):
        self.model, self.driver, self.user, self.huge_pages, self.cases, self.more = model, driver, user, huge_pages, cases, more
        self.queues, self.offloads = queues, list(offloads)
        self.number = Nic.count
        Nic.count += 1
        self.name = model.split(',')[0] + (f'-{queues}-queues' if queues > 1 else '')
        self.tap = f'roci-nic{self.number}'
        self.device = f'roci{self.number}'
        self.address = f'0000:00:{16 + self.number:02x}.0'
        self.here, self.there = ({'v4': f'198.51.100.{host + 16 * self.number}', 'v6': f'2001:db8:{self.number + 1}::{host}'}
                                 for host in (1, 2))

    def hardware(self):
        queues = f',queues={self.queues}' if self.queues > 1 else ''
        return ['-netdev', f'tap,id={self.tap},ifname={self.tap},script=no,downscript=no,vhost=off{queues}', '-device',
                f'{self.model},netdev={self.tap},mac=02:72:6f:63:6e:0{self.number},addr=0x{16 + self.number:x}']

    def config(self, port, addresses):
        return device_config(self.device, port, addresses).replace('/24', '/28')

    def bind(self, guest):
        """Binds the NIC and prepares what a daemon needs. docs/adapters.md has the same steps for a real NIC."""
        group = f'/dev/vfio/$(basename $(readlink {self.path()}/iommu_group))'
        guest.run(f"""set -e
            [ ! -e {self.path()}/driver ] || echo {self.address} >{self.path()}/driver/unbind
            echo {self.driver} >{self.path()}/driver_override
            echo {self.address} >/sys/bus/pci/drivers_probe
            [ {self.driver} != vfio-pci ] || chown {self.user} {group}
            echo {self.huge_pages} >/proc/sys/vm/nr_hugepages""")

    def path(self):
        return f'/sys/bus/pci/devices/{self.address}'


def full_cases():
    own = '-d {device} -g {gid} -p {port}'
    perftest = '-d {device} -x {gid} -p {port} -F -u 18'
    for family, mtu in (('v4', 1024), ('v6', 4096)):
        yield Case(f'ibv_rc_pingpong {own} -e -c -m {mtu} -s 65537 -n 20', family=family)
        yield Case('rping -s -a {address} -C 10 -V', 'rping -c -a {peer} -C 10 -V', family, cm=True)
    for test in ('write', 'read', 'send'):
        yield Case(f'ib_{test}_bw {perftest} -s 65536 -n 100', family='v6')
    yield Case('ucmatose -b {address} -c 5 -C 20', 'ucmatose -s {peer} -c 5 -C 20', cm=True)
    yield Case('stdbuf -oL mckey -m 224.0.0.77 -b {address} -C 10', 'mckey -m 224.0.0.77 -b {address} -s -C 10',
               awaits='joined')


def few_cases():
    yield Case('ibv_rc_pingpong -d {device} -g {gid} -p {port} -e -c -m 4096 -s 65537 -n 20')
    yield Case('ib_write_bw -d {device} -x {gid} -p {port} -F -u 18 -b -s 65536 -n 100')
    yield Case('rping -s -a {address} -C 10 -V', 'rping -c -a {peer} -C 10 -V', 'v6', cm=True)


def parallel_cases():
    """Two programs at each end, so that both lcores of the daemon have queue pairs. Not ibv_rc_pingpong: it gives up after half a
    second, and an emulated guest may stall longer on a busy machine."""
    own = '-C 25 -S 50000 -V'
    for family in ('v4', 'v6'):
        yield Case(f'rping -s -a {{address}} -p 18599 {own} & rping -s -a {{address}} {own} && wait $!',
                   f'sleep 3; rping -c -a {{peer}} -p 18599 {own} & rping -c -a {{peer}} {own} && wait $!', family, cm=True)


# The first is behind the IOMMU and needs neither root nor huge pages; the second is not, and needs both.
NICS = (Nic('e1000e', 'vfio-pci', USER, 0, list(full_cases()),
            offloads=[f'{way}_{sum_}_checksum' for way in ('rx', 'tx') for sum_ in ('ipv4', 'udp', 'tcp')]),
        Nic(f'virtio-net-pci,host_mtu={MTU}', 'uio_pci_generic', 0, 160, list(few_cases())),
        Nic(f'virtio-net-pci,host_mtu={MTU},mq=on,rss=on,vectors=6', 'uio_pci_generic', 0, 200, list(parallel_cases()), list(few_cases()), 2))


class NicEnd:
    """A daemon in the guest that drives a NIC."""

    tcp_address = RXE['v4']
    tcp_port = PORT
    path_mtu = 4096
    programs = '/run/host'
    gids = {'v4': 1, 'v6': 2}

    def __init__(self, guest, nic):
        self.guest, self.device, self.addresses = guest, nic.device, nic.there
        self.name = f'{nic.name} with {nic.driver}'
        self.queues = nic.queues
        self.as_user = f'setpriv --reuid={nic.user} --regid={nic.user} --clear-groups'
        self.runtime = f'/tmp/run-{nic.name}'
        nic.bind(guest)
        config = f'/run/host/{nic.name}.toml'
        (guest.share / f'{nic.name}.toml').write_text(f'[daemon]\nlcores = {nic.queues}\n' +
                                                        nic.config(nic.address, nic.there), encoding='ascii')
        rocid = f'{self.as_user} {FOLDER}/rocid --runtime-dir {self.runtime} --config {config}'
        guest.run(f'mkdir {self.runtime} && chown {nic.user} {self.runtime} && {rocid} --check-config')
        self.daemon = guest.start(f'echo $BASHPID >{self.runtime}.pid; exec {rocid}')
        if not await_(lambda: 'rocid: ready\n' in self.daemon.output() or self.daemon.status() is not None, 2 * LIMIT_S) or \
                self.daemon.status() is not None:
            raise RuntimeError(f'the daemon on {self.name} does not start ({self.daemon.status()}):\n{self.daemon.output()}')

    def start(self, command):
        return self.guest.start(f'{self.as_user} {FOLDER}/roci run --runtime-dir {self.runtime} --plugin '
                                f'{FOLDER}/libroci-rdmav34.so bash -c {shlex.quote(command)}')

    def show(self, what):
        return f'{FOLDER}/roci --runtime-dir {self.runtime} show --json {what}'

    def await_listener(self, server, port, by_cm=False):
        """As in RociEnd, but only False if the server has ended."""
        there = f'await_row "{listening_row(port)}" /proc/net/tcp /proc/net/tcp6'
        if by_cm:
            there = f'until [[ $({self.show("connections")}) == *listen* ]]; do pause 0.2; done'
        self.guest.start(there).wait(LIMIT_S)
        return server.status() is None

    def left(self):
        return {what: rows for what in ('qps', 'connections') if (rows := json.loads(self.guest.run(self.show(what))))}

    def stop(self):
        """Stops the daemon. Returns what went wrong, or ''."""
        ports = json.loads(self.guest.run(self.show('ports')))[0]
        left = self.left()
        lcores = json.loads(self.guest.run(self.show('lcores')))
        self.guest.run(f'kill $(cat {self.runtime}.pid)')
        status = self.daemon.wait(LIMIT_S)
        # Drops of retransmissions for destroyed queue pairs are no error.
        came, scattered = (ports['counters'][name] for name in ('rx_roce_packets', 'rx_scattered_dropped'))
        right = not left and status == 0 and came > 0 and scattered == 0 and 'icrc' not in ports['drops'] and \
            ports['rx_queues'] == self.queues and all(each['rx_packets'] > each['rx_handed_off'] for each in lcores)
        return '' if right else (f'left {left}, status {status}, {came} RoCE packets, {scattered} in pieces, '
                                 f'{ports["drops"]}, {ports["rx_queues"]} queues, {lcores}\n{self.daemon.output()}')


def boot(options):
    network = ['-device', 'intel-iommu,intremap=on,caching-mode=on,device-iotlb=on',
               '-netdev', f'tap,id=n,ifname={TAP},script=no,downscript=no,vhost=off',
               '-device', f'virtio-net-pci,netdev=n,mac={GUEST_MACS[0]},addr=0xf']
    for nic in NICS:
        network += nic.hardware()
    guest = Guest(options.paths[3], network, ('ip', 'netns', 'exec', options.namespace), MEMORY_MIB, 'intel_iommu=on')
    try:
        folder = guest.share / 'programs'
        folder.mkdir()
        # (`roci run` without a namespace preloads libraries from the plugin's folder.)
        preloaded = [os.path.join(os.path.dirname(options.paths[2]), name) for name in ('libroci-preload.so', 'libroci-netlink.so')]
        for path in (*options.paths[:3], options.paths[4], *preloaded):
            shutil.copy(path, folder)
        # Unload rdma_ucm: `roci run` does not replace a connection manager of the kernel.
        guest.run(f'cp -r /run/host/programs {FOLDER} && rmmod rdma_ucm && ip link set eth0 up && '
                  f'ip address add {RXE["v4"]}/24 dev eth0', LIMIT_S)
    except BaseException:
        guest.stop()
        raise
    return guest


def frames_between(source, destination):
    """UDP frames with wrong checksums, one of them with a VLAN tag."""
    macs = [bytes.fromhex(mac.replace(':', '')) for mac in (source, destination)]
    return [checksums.frame(macs, checksums.udp(bytes([length % 251]) * length), vlan=vlan).hex()
            for length, vlan in ((1, None), (1000, None), (999, 7))]


def check_raw_packets(nic, roci, there, options):
    """Sends raw packets both ways. Returns what went wrong, or ''."""
    ports = json.loads(there.guest.run(there.show('ports')))[0]
    if ports['offloads'] != nic.offloads:
        return f'the port has {ports["offloads"]}'
    mine = next(port for port in roci.daemon.show('ports') if port['device'] == nic.device)
    here = options.paths[4]
    receiver = roci.daemon.start(here, nic.device, 'receive', str(checksums.PORT), '6')
    in_guest = f'{FOLDER}/{os.path.basename(here)} {nic.device}'
    try:
        if receiver.stdout.readline() != 'ready\n':
            return 'this side does not listen'
        frames = ' '.join(frames_between(ports['mac'], mine['mac']))
        if there.start(f'{in_guest} send {frames} && {in_guest} fill {frames}').wait(LIMIT_S) != 0:
            return 'the guest does not send'
        said, _ = receiver.communicate(timeout=LIMIT_S)
    finally:
        receiver.kill()
    # QEMU leaves the checksums that its NICs should fill in to the receiver, but a program that reads the tap device's frames
    # does not fill them in. The first frame is padded, so the daemon fills in its checksum.
    if [line[0] for line in said.splitlines()] != ['0'] * 3 + ['1'] + ['0'] * 2:
        return f'from the guest: {said}'
    process = there.start(f'{in_guest} receive {checksums.PORT} 6')
    if not await_(lambda: 'ready' in process.output()):
        return 'the guest does not listen'
    for how in ('send', 'fill'):
        sender = roci.daemon.start(here, nic.device, how, *frames_between(mine['mac'], ports['mac']))
        sender.communicate(timeout=LIMIT_S)
        if sender.returncode != 0:
            return 'this side does not send'
    status = process.wait(LIMIT_S)
    said = [line for line in process.output().splitlines() if line[:2] in ('0 ', '1 ')]
    right = status == 0 and [line[0] for line in said] == ['0'] * 3 + ['1'] * 3
    return '' if right else f'in the guest: {status}, {process.output()}'


def plan(options):
    """The cases of each NIC, each with the ends that serve. By default the NICs and the host take turns to serve."""
    turns = itertools.cycle(('there', 'here'))
    return {nic: [(case, ('there', 'here') if options.all else (next(turns),))
                  for case in (*nic.cases, *(nic.more if options.all else ())) if options.only in case.name]
            for nic in NICS}


def orders(there, here, servers):
    """Pairs of ends, the server first."""
    return [(there, here) if server == 'there' else (here, there) for server in servers]


def run_nics(roci, guest, options, report):
    for nic in NICS:
        here = other(roci, 'af_packet', nic.device, nic.here, roci.gids)
        there = NicEnd(guest, nic)
        cases = [(case, pair) for case, servers in options.cases[nic] for pair in orders(there, here, servers)]
        if not run_all(cases, here, guest, report, f'{nic.name}: '):
            return
        report.add(f'{there.name}: checksums of raw packets', check_raw_packets(nic, roci, there, options), 0)
        report.add(f'{there.name}: the guest\'s daemon ends with status 0', there.stop(), 0)
    report_end((roci,), report)


def run(options, network):
    options.namespace = network.name
    config = ''.join(nic.config(f'net_af_packet{nic.number},iface={nic.tap}', nic.here) for nic in NICS)
    roci = RociEnd(Programs(*options.paths[:3]), network.name, config)
    guest = None
    try:
        guest = boot(options)
        report = Report(sum(sum(len(servers) for _, servers in cases) + 2 for cases in options.cases.values()) + 1)
        run_nics(roci, guest, options, report)
        return 1 if report.failed else 0
    finally:
        if guest is not None:
            guest.stop()
        roci.daemon.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', default='', metavar='TEXT', help='only cases whose name contains TEXT')
    parser.add_argument('--all', action='store_true', default=os.environ.get('ROCI_TEST_ALL') == 'yes',
                        help='each pair with the server at either end (also by ROCI_TEST_ALL=yes)')
    parser.add_argument('paths', nargs=5, metavar='ROCI ROCID PLUGIN FOLDER RAW_FRAMES')
    options = parser.parse_args()
    options.cases = plan(options)
    taps = [(nic.tap, nic.queues, MTU) for nic in NICS]
    return run_in_network(options.paths[3], lambda: Network(taps), lambda network: run(options, network))


if __name__ == '__main__':
    sys.exit(main())
