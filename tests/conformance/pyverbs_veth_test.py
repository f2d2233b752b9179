#!/usr/bin/env python3
"""The connection manager cases of the public verbs tests, which need a device with a kernel interface: on a veth pair.

Usage: pyverbs_veth_test.py ROCI ROCID PLUGIN

Creates a network namespace with a veth pair. One end has a kernel address as in docs/kernel-devices.md, and a daemon uses it by
net_af_packet. Then runs pyverbs_test.py there; no case may be skipped. Skipped without permission to create namespaces.
"""
import os
import subprocess
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'integration'))
# pylint: disable=wrong-import-position
from harness import Daemon, Programs, require_network_namespaces  # noqa: E402

ADDRESS = '192.0.2.1/24'
INTERFACE = 'roci-veth'
# Not Meson's Python: the bindings are built for the system's.
PYTHON = '/usr/bin/python3'
LIMIT_S = 200


def ip(*arguments):
    return subprocess.run(['ip', *arguments], capture_output=True, text=True, timeout=60, check=True)


def make_network(name):
    ip('netns', 'add', name)
    ip('link', 'add', INTERFACE, 'netns', name, 'type', 'veth', 'peer', 'name', 'roci-peer', 'netns', name)
    for interface in (INTERFACE, 'roci-peer', 'lo'):
        ip('-n', name, 'link', 'set', interface, 'up')
    ip('-n', name, 'address', 'add', ADDRESS, 'dev', INTERFACE)
    subprocess.run(['ip', 'netns', 'exec', name, 'sysctl', '-qw', 'net.ipv4.conf.all.arp_ignore=8'], check=True,
                   timeout=60)


def run(name, programs):
    enter = ('ip', 'netns', 'exec', name)
    config = f'[[device]]\nname = "roci0"\nport = "net_af_packet0,iface={INTERFACE}"\naddresses = ["{ADDRESS}"]\n'
    daemon = Daemon(programs, config=config, prefix=enter)
    tests = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'pyverbs_test.py')
    command = daemon.command(PYTHON, tests, '--only', 'tests.test_rdmacm.', 'roci0', os.devnull)
    try:
        status = subprocess.run([*enter, *command], check=False, timeout=LIMIT_S).returncode
    except subprocess.TimeoutExpired:
        status = 124
    ended = daemon.stop()
    if status or ended:
        print(f'status {status}; the daemon ended with {ended}, and said:\n{daemon.last_output[-8000:]}', file=sys.stderr)
    return status or ended


def main():
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    name = f'roci-pyverbs-{os.getpid()}'
    try:
        try:
            require_network_namespaces()
        except unittest.SkipTest as error:
            print(f'1..0 # SKIP {error}')
            return 0
        make_network(name)
        return run(name, Programs(*sys.argv[1:]))
    finally:
        subprocess.run(['ip', 'netns', 'delete', name], capture_output=True, check=False)


if __name__ == '__main__':
    sys.exit(main())
