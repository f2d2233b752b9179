#!/usr/bin/env python3
"""Debian's rdma(8) under `roci run`, compared with `roci show`; programs that speak RDMA netlink themselves; hostile datagrams.

Usage: netlink_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import array
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import harness

PROGRAMS = harness.Programs(*sys.argv[1:4], copied=True)
IS_ROOT = os.geteuid() == 0
NLDEV = 5
GET, PORT_GET, RES_QP_GET = 1, 5, 10
REQUEST, ACK, DUMP = 1, 4, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
DEV_INDEX, DEV_NAME = 1, 2
SOCKETS_OF_USER = 256
QPS = 300

# A program with more queue pairs, regions and completion queues than a datagram describes.
OBJECTS = f'''
import signal
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.srq import SRQ, SrqInitAttr, SrqAttr
from pyverbs.qp import QP, QPInitAttr, QPCap
import pyverbs.enums as e
context = Context(name='roci1')
pd = PD(context)
cqs = [CQ(context, 10) for _ in range(60)]
srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=8)))
caps = QPCap(max_send_wr=1, max_recv_wr=1)
qps = [QP(pd, QPInitAttr(qp_type=e.IBV_QPT_UD, scq=cqs[0], rcq=cqs[1], cap=caps)) for _ in range({QPS} - 2)]
qps += [QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cqs[0], rcq=cqs[1], srq=srq, cap=caps)) for _ in range(2)]
mrs = [MR(pd, 100 + i, e.IBV_ACCESS_LOCAL_WRITE) for i in range(100)]
print('ready', flush=True)
signal.pause()
'''


def attribute(number, value):
    data = struct.pack('<HH', 4 + len(value), number) + value
    return data + b'\0' * (-len(data) % 4)


def request(command, flags, attributes=b'', sequence=1):
    return struct.pack('<IHHII', 16 + len(attributes), NLDEV << 10 | command, REQUEST | flags, sequence, 0) + attributes


def u32(value):
    return struct.pack('<I', value)


def messages(datagram):
    """(type, flags, sequence, port, payload) of each message."""
    while datagram:
        size, kind, flags, sequence, port = struct.unpack_from('<IHHII', datagram)
        yield kind, flags, sequence, port, datagram[16:size]
        datagram = datagram[(size + 3) & ~3:]


def by_key(rows, *keys):
    return sorted(tuple(row.get(key) for key in keys) for row in rows)


class NetlinkCase(unittest.TestCase):
    """A daemon with programs on its devices, for all tests of a class."""

    daemon = None

    @classmethod
    def setUpClass(cls):
        cls.daemon = harness.Daemon(PROGRAMS)
        cls.addClassCleanup(cls.daemon.stop)

    def execute(self, *command, options=(), user=None, **arguments):
        return subprocess.run([PROGRAMS.roci, 'run', '--runtime-dir', self.daemon.runtime_dir, '--plugin', PROGRAMS.plugin, *options,
                               *command], capture_output=True, text=True, timeout=harness.LIMIT_S, check=False,
                              **{'stdin': subprocess.DEVNULL, 'cwd': '/', **harness.as_user(user), **arguments})

    def rdma(self, *command, **arguments):
        done = self.execute('rdma', *command, **arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ''), command)
        return done.stdout

    def rows(self, *command, **arguments):
        """The objects that rdma -j prints, which the plain output has as well."""
        said = self.rdma('-j', *command, **arguments)
        return json.loads(said) if said.strip() else []

    def connect(self):
        """A connection to the daemon without the preloaded library."""
        end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(end.close)
        end.settimeout(harness.LIMIT_S)
        end.bind('')
        end.connect(os.path.join(self.daemon.runtime_dir, 'rdma_netlink.sock'))
        magic, version, error, _ = struct.unpack('<IIiI', end.recv(100))
        self.assertEqual((magic, version), (0x69636f72, 1))
        return end, error

    def await_(self, condition):
        self.assertTrue(harness.await_(condition))


class RdmaToolTest(NetlinkCase):
    """rdma(8) beside running programs."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        daemon = cls.daemon
        cls.programs = [daemon.start(harness.DEBIAN_PYTHON, '-c', OBJECTS)]
        cls.addClassCleanup(cls.end)
        if cls.programs[0].stdout.readline() != 'ready\n':
            raise RuntimeError(cls.programs[0].communicate()[0])
        port = str(harness.free_port())
        cls.programs.append(daemon.start('rping', '-s', '-a', '0.0.0.0', '-p', port, '-P'))
        listen = harness.await_(lambda: any(row['state'] == 'listen' for row in daemon.show('connections')))
        server = next(gid['address'].split('/')[0] for gid in daemon.show('devices')[0]['gids'] if '.' in gid['address'])
        # Stopped once it is connected: its connection stays as it is.
        cls.programs.append(daemon.start('rping', '-c', '-a', server, '-p', port, '-C', '100000000'))
        connected = harness.await_(lambda: sum(row['state'] == 'established' for row in daemon.show('connections')) == 2)
        if not listen or not connected:
            raise RuntimeError(f'rping does not connect: {daemon.show("connections")}')
        for program in cls.programs[1:]:
            harness.stop(program)

    @classmethod
    def end(cls):
        for program in cls.programs:
            program.kill()
            program.communicate()

    def test_devices(self):
        shown = {device['name']: device for device in self.daemon.show('devices')}
        rows = self.rows('dev')
        self.assertEqual([row['ifname'] for row in rows], list(shown))
        for row in rows:
            self.assertEqual(row['node_guid'].replace(':', ''), shown[row['ifname']]['node_guid'])
            self.assertEqual((row['node_type'], row['fw']), ('ca', '0.1.0'))
        self.assertIn('MEM_WINDOW', self.rdma('-d', 'dev'))
        self.assertEqual(len(self.rows('dev', 'show', 'roci1')), 1)
        plain = self.rdma('dev')
        self.assertIn('0: roci0: node_type ca', plain)

    def test_links(self):
        self.assertEqual(by_key(self.rows('link'), 'ifname', 'port', 'state', 'physical_state'),
                         [('roci0', 1, 'ACTIVE', 'LINK_UP'), ('roci1', 1, 'ACTIVE', 'LINK_UP')])
        self.assertIn('link roci1/1 state ACTIVE', self.rdma('link'))
        self.assertEqual(len(self.rows('-d', 'link', 'show', 'roci0/1')), 1)

    def test_summary(self):
        apps = self.daemon.show('apps')
        for row in self.rows('resource', 'show'):
            own = [app for app in apps if app['device'] == row['ifname']]
            for kind in ('pd', 'cq', 'qp', 'mr', 'srq'):
                self.assertEqual(row[kind], sum(app[kind + 's'] for app in own), kind)
            self.assertEqual(row['ctx'], len(own))
            self.assertGreater(row['cm_id'], 0)
        self.assertIn('1: roci1: pd ', self.rdma('resource', 'show', 'roci1'))

    def test_queue_pairs(self):
        shown = self.daemon.show('qps')
        rows = self.rows('resource', 'show', 'qp')
        self.assertEqual(by_key(rows, 'ifname', 'lqpn', 'type', 'state', 'pid', 'sq-psn'),
                         by_key(shown, 'device', 'qpn', 'type', 'state', 'pid', 'sq_psn'))
        connected = [row for row in rows if row['type'] == 'RC' and row['state'] == 'RTS']
        self.assertEqual(len(connected), 2)
        self.assertEqual(connected[0]['rqpn'], connected[1]['lqpn'])
        self.assertEqual({row['port'] for row in connected}, {1})
        self.assertFalse(any('port' in row for row in rows if row['state'] == 'RESET'))
        plain = self.rdma('-d', 'resource', 'show', 'qp').splitlines()
        self.assertEqual(len(plain), len(shown))
        # One by its number, without a dump.
        one = connected[0]
        self.assertEqual([row['pid'] for row in self.rows('resource', 'show', 'qp', 'link', one['ifname'] + '/1', 'lqpn',
                                                          str(one['lqpn']))], [one['pid']])
        self.assertEqual(self.rows('resource', 'show', 'qp', 'link', 'roci1', 'lqpn', '16'), [])
        self.assertEqual(len(self.rows('resource', 'show', 'qp', 'link', 'roci1', 'type', 'UD')), QPS - 2)

    def test_completion_queues(self):
        shown = self.daemon.show('cqs')
        rows = self.rows('resource', 'show', 'cq')
        self.assertEqual(by_key(rows, 'ifname', 'cqe', 'users', 'ctxn', 'pid'),
                         by_key(shown, 'device', 'capacity', 'qp_queues', 'session', 'pid'))
        self.assertEqual(len({row['cqn'] for row in rows}), len(rows))
        again = self.rows('resource', 'show', 'cq', 'dev', rows[0]['ifname'], 'cqn', str(rows[0]['cqn']))
        self.assertEqual(again, rows[:1])
        self.assertEqual(len(self.rdma('resource', 'show', 'cq').splitlines()), len(shown))

    def test_memory_regions(self):
        shown = self.daemon.show('mrs')
        rows = self.rows('resource', 'show', 'mr')
        self.assertEqual(sorted((row['ifname'], int(row['rkey'], 16), row['mrlen'], row['pid']) for row in rows),
                         sorted((mr['device'], int(mr['key'], 16), mr['length'], mr['pid']) for mr in shown))
        self.assertGreater(len(rows), 100)
        again = self.rows('resource', 'show', 'mr', 'dev', rows[-1]['ifname'], 'mrn', str(rows[-1]['mrn']))
        self.assertEqual(again, rows[-1:])

    def test_protection_domains_contexts_and_receive_queues(self):
        apps = {app['session']: app for app in self.daemon.show('apps')}
        contexts = self.rows('resource', 'show', 'ctx')
        self.assertEqual(by_key(contexts, 'ctxn', 'ifname', 'pid'), by_key(apps.values(), 'session', 'device', 'pid'))
        pds = self.rows('resource', 'show', 'pd')
        for session, app in apps.items():
            self.assertEqual(sum(pd['ctxn'] == session for pd in pds), app['pds'])
        numbers = {pd['pdn'] for pd in pds}
        self.assertEqual(len(numbers), len(pds))
        self.assertLessEqual({qp['pdn'] for qp in self.rows('resource', 'show', 'qp')}, numbers)
        (srq,) = self.rows('resource', 'show', 'srq')
        self.assertEqual((srq['ifname'], srq['type'], srq['pid']), ('roci1', 'BASIC', self.programs[0].pid))
        self.assertEqual(len(srq['lqpn']), 2)
        self.assertIn('comm python3', self.rdma('resource', 'show', 'srq'))

    def test_connections(self):
        shown = [row for row in self.daemon.show('connections') if row['state'] == 'established']
        rows = self.rows('resource', 'show', 'cm_id')
        connected = [row for row in rows if row['state'] == 'CONNECT']
        self.assertEqual(by_key(connected, 'ifname', 'cm-idn', 'pid'), by_key(shown, 'device', 'id', 'pid'))
        for row in connected:
            (own,) = [entry for entry in shown if entry['id'] == row['cm-idn']]
            self.assertEqual((own['source'], own['destination']), (row['src-addr'], row['dst-addr']))
        listening = [row for row in rows if row['state'] == 'LISTEN']
        self.assertEqual({row['ifname'] for row in listening}, {'roci0', 'roci1'})
        self.assertIn('ps TCP', self.rdma('resource', 'show', 'cm_id'))

    def test_statistics_are_those_of_sysfs(self):
        folder = '/sys/class/infiniband/roci0/ports/1/hw_counters'
        names = self.execute('ls', folder).stdout.split()
        before = self.rows('statistic', 'show', 'link', 'roci0/1')
        (values,) = before  # one message
        self.assertEqual(sorted(set(values) - {'ifname', 'port'}), sorted(names))
        shown = next(port for port in self.daemon.show('counters') if port['device'] == 'roci0')
        self.assertGreater(values['rcvd_pkts'], 0)
        self.assertEqual(values['rx_send_requests'], shown['transport']['rx_send_requests'])
        self.assertIn('link roci1/1', self.rdma('statistic'))
        self.assertEqual(self.rdma('statistic', 'mode'), '')  # no optional counters

    def test_counters_of_queue_pairs(self):
        def modes():
            return {row['ifname']: row['mode'] for row in self.rows('statistic', 'qp', 'mode')}
        self.assertEqual(self.rows('statistic', 'qp', 'show'), [])
        self.rdma('statistic', 'qp', 'set', 'link', 'roci0/1', 'auto', 'type,pid', 'on')
        self.addCleanup(self.rdma, 'statistic', 'qp', 'set', 'link', 'roci0/1', 'auto', 'off')
        self.assertEqual(modes(), {'roci0': 'qp auto type,pid on', 'roci1': 'qp auto off'})
        rows = self.rows('statistic', 'qp', 'show')
        shown = [qp for qp in self.daemon.show('qps') if qp['device'] == 'roci0' and qp['state'] == 'RTS']
        self.assertEqual(sorted((row['pid'], row['sent_pkts'], row['rcvd_pkts'], *row['lqpn']) for row in rows),
                         sorted((qp['pid'], qp['tx_packets'], qp['rx_packets'], qp['qpn']) for qp in shown))
        self.assertIn('LQPN: <', self.rdma('statistic', 'qp', 'show'))
        done = self.execute('rdma', 'statistic', 'qp', 'bind', 'link', 'roci0/1', 'lqpn', str(shown[0]['qpn']))
        self.assertIn('Operation not supported', done.stderr)

    def test_what_the_configuration_decides_is_refused(self):
        for command in (('link', 'add', 'rxe0', 'type', 'rxe', 'netdev', 'lo'), ('dev', 'set', 'roci0', 'name', 'x'),
                        ('system', 'set', 'netns', 'exclusive')):
            done = self.execute('rdma', *command)
            self.assertIn('Operation not supported', done.stderr, command)
        self.assertIn('netns shared', self.rdma('system'))

    @unittest.skipUnless(IS_ROOT, 'needs a second user')
    def test_users_see_their_own_objects_only(self):
        for kind in ('qp', 'cq', 'mr', 'pd', 'cm_id', 'ctx', 'srq'):
            self.assertEqual(self.rows('resource', 'show', kind, user='nobody'), [], kind)
        self.assertEqual({row['qp'] for row in self.rows('resource', 'show', user='nobody')}, {0})
        lqpn = next(qp['qpn'] for qp in self.daemon.show('qps') if qp['device'] == 'roci0')
        self.assertEqual(self.rows('resource', 'show', 'qp', 'link', 'roci0', 'lqpn', str(lqpn), user='nobody'), [])
        self.assertEqual(len(self.rows('link', user='nobody')), 2)
        done = self.execute('rdma', 'statistic', 'qp', 'set', 'link', 'roci0/1', 'auto', 'type', 'on', user='nobody')
        self.assertIn('Operation not permitted', done.stderr)
        # Its own.
        own = self.daemon.start('ibv_ud_pingpong', '-d', 'roci0', '-g', '0', '-p', str(harness.free_port()), **harness.as_user('nobody'))
        self.addCleanup(own.communicate)
        self.addCleanup(own.kill)
        self.await_(lambda: [row['pid'] for row in self.rows('resource', 'show', 'qp', user='nobody')] == [own.pid])

    @unittest.skipUnless(IS_ROOT, 'needs a PID namespace')
    def test_another_pid_namespace_gets_names(self):
        done = subprocess.run(['unshare', '--pid', '--fork', *self.daemon.command('rdma', '-j', 'resource', 'show', 'srq')],
                              capture_output=True, text=True, timeout=harness.LIMIT_S, check=True)
        (srq,) = json.loads(done.stdout)
        self.assertEqual(srq['comm'], 'python3')
        self.assertNotIn('pid', srq)


class ProgramTest(NetlinkCase):
    """Programs under `roci run`, by how they use netlink."""

    def python(self, script, **arguments):
        return self.execute(harness.DEBIAN_PYTHON, '-c', script, **arguments)

    def test_both_ways_of_showing_devices(self):
        for options in ((), ('--no-namespace',)):
            self.assertEqual(len(self.rows('link', options=options)), 2)
            done = self.execute('ibv_devinfo', '-v', options=options)
            self.assertEqual((done.returncode, done.stdout.count('hca_id')), (0, 2), done.stderr)
            self.assertEqual(done.stderr, '')

    def test_other_sockets_are_as_ever(self):
        self.assertEqual(self.execute('ip', '-o', 'link').stdout, subprocess.run(
            ['ip', '-o', 'link'], capture_output=True, text=True, check=True).stdout)
        script = ('import os, socket; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.send(b"x"); '
                  'assert b.recvfrom(9) == (b"x", None), b; d = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); d.bind(""); '
                  'e = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); e.connect(d.getsockname()); e.bind(""); e.send(b"y"); '
                  'assert d.recvfrom(9) == (b"y", e.getsockname()); assert e.getpeername() == d.getsockname(); print("good")')
        done = self.python(script)
        self.assertEqual((done.stdout, done.stderr), ('good\n', ''))

    def test_a_socket_behaves_as_one_of_netlink(self):
        script = '''
import os, select, socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 20)
other = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 20)
s.bind((0, 0))
s.setsockopt(270, 10, 1)  # SOL_NETLINK, NETLINK_CAP_ACK
port = s.getsockname()[0]
assert port and port != other.getsockname()[0] and s.getsockname()[1] == 0, s.getsockname()
assert not os.get_inheritable(s.fileno())
s.sendto(struct.pack('<IHHII', 16, 5 << 10 | 1, 0x305, 99, 0), (0, 0))
assert select.select([s], [], [], 60)[0]
peeked, _, flags, sender = s.recvmsg(8, 0, socket.MSG_PEEK | socket.MSG_TRUNC)
assert len(peeked) == 8 and flags & socket.MSG_TRUNC and sender == (0, 0), (flags, sender)
size = s.recv_into(bytearray(8), 8, socket.MSG_PEEK | socket.MSG_TRUNC)
twin = socket.socket(fileno=os.dup(s.fileno()), family=socket.AF_NETLINK, type=socket.SOCK_RAW, proto=20)
data, sender = twin.recvfrom(8192)
assert len(data) == size and sender == (0, 0), sender
length, kind, flags, sequence, to = struct.unpack_from('<IHHII', data)
assert (length, kind, flags & 2, sequence, to) == (len(data), 5 << 10 | 1, 2, 99, port)
s.setblocking(False)
kinds = []
while 3 not in kinds:
    select.select([s], [], [], 60)
    kinds.append(struct.unpack_from('<IH', s.recv(8192))[1])
assert kinds == [5 << 10 | 1, 3], kinds
try:
    s.recv(100)
except BlockingIOError:
    print('good')
try:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20).bind((0, 1))
except OSError as e:
    print(e.strerror)
'''
        for options in ((), ('--no-namespace',)):
            done = self.python(script, options=options)
            self.assertEqual((done.stdout, done.stderr), ('good\nOperation not supported\n', ''))

    def test_libnl(self):
        script = '''
import ctypes, sys
[ctypes.CDLL(name) for name in sys.argv[1:]]
nl = ctypes.CDLL('libnl-3.so.200')
nl.nl_socket_alloc.restype = ctypes.c_void_p
sock = ctypes.c_void_p(nl.nl_socket_alloc())
print(nl.nl_connect(sock, 20))
if not sys.argv[1:]:
    print(nl.nl_send_simple(sock, 5 << 10 | 1, 0x300, None, 0), nl.nl_recvmsgs_default(sock))
'''
        done = self.python(script)
        self.assertEqual((done.stdout, done.stderr), ('0\n16 0\n', ''))
        # libibverbs finds devices in /sys: it shows those of the kernel, too.
        done = self.execute(harness.DEBIAN_PYTHON, '-c', script, 'libibverbs.so.1')
        self.assertLess(int(done.stdout), 0)

    def test_programs_without_the_library_are_refused(self):
        by_hand = ('import ctypes, errno; libc = ctypes.CDLL(None, use_errno=True); '
                   'print(libc.syscall(%d, 16, 3, 20), errno.errorcode[ctypes.get_errno()])' % (41 if os.uname().machine == 'x86_64' else 198))
        self.assertEqual(self.python(by_hand).stdout, '-1 EPROTONOSUPPORT\n')
        done = self.execute('rdma', 'link', options=('--no-netlink',))
        self.assertIn('Failed to open NETLINK_RDMA socket', done.stderr)
        environment = self.execute('env', options=('--no-netlink',)).stdout
        self.assertNotIn('libroci-netlink', environment)

    def test_nested(self):
        done = self.execute(PROGRAMS.roci, 'run', '--plugin', PROGRAMS.plugin, 'sh', '-c', 'rdma -j link; echo $LD_PRELOAD')
        links, preloaded = done.stdout.splitlines()
        self.assertEqual((len(json.loads(links)), preloaded.count('libroci-netlink')), (2, 1))

    @unittest.skipUnless(shutil.which('gcc'), 'needs a compiler')
    def test_programs_under_address_sanitizer_start(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, 'program')
            built = subprocess.run(['gcc', '-fsanitize=address', '-x', 'c', '-', '-o', program], text=True, check=False,
                                   input='#include <sys/socket.h>\nint main() { return socket(16, 3, 20) < 0; }')
            if built.returncode != 0:
                self.skipTest('needs AddressSanitizer')
            done = self.execute(program)
            self.assertEqual((done.returncode, done.stderr), (0, ''))

    def test_the_daemon_may_be_gone(self):
        daemon = harness.Daemon(PROGRAMS)
        self.addCleanup(daemon.stop)
        with tempfile.TemporaryDirectory() as folder:
            script = f'touch {folder}/runs; until [ -e {folder}/go ]; do sleep 0.1; done; rdma link; ip -o link show lo'
            program = daemon.start('sh', '-c', script)
            self.await_(lambda: os.path.exists(folder + '/runs'))
            daemon.stop()
            with open(folder + '/go', 'w', encoding='ascii'):
                said, _ = program.communicate(timeout=harness.LIMIT_S)
        self.assertIn('Failed to open NETLINK_RDMA socket', said)
        self.assertIn('LOOPBACK', said)


class HostileTest(NetlinkCase):
    """Datagrams that no library sends."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if IS_ROOT:  # what the daemon opens once to find a user's account
            subprocess.run(cls.daemon.command('rdma', 'link'), check=True, capture_output=True, cwd='/', **harness.as_user('nobody'))

    def setUp(self):
        self.descriptors = self.daemon.descriptors()

    def tearDown(self):
        self.doCleanups()
        self.await_(lambda: self.daemon.descriptors() <= self.descriptors)
        self.assertTrue(self.daemon.alive())
        self.assertEqual(len(self.rows('link')), 2)

    def ask(self, end, datagram):
        end.send(datagram)
        return list(messages(end.recv(8192)))

    def test_errors(self):
        end, _ = self.connect()
        for datagram, error in ((request(99, ACK), 22), (request(PORT_GET, ACK), 22), (request(GET, ACK, attribute(DEV_INDEX, u32(7))), 22),
                                (request(GET, ACK, attribute(DEV_INDEX, b'x')), 22), (request(RES_QP_GET, DUMP), 22),
                                (request(RES_QP_GET, ACK, attribute(DEV_INDEX, u32(0)) + attribute(21, u32(5))), 2),
                                (struct.pack('<IHHII', 16, 3 << 10 | 1, REQUEST, 5, 0), 22)):
            ((kind, _, _, _, payload),) = self.ask(end, datagram)
            self.assertEqual((kind, -struct.unpack_from('<i', payload)[0]), (NLMSG_ERROR, error))
            self.assertEqual(payload[4:20], datagram[:16])

    def test_datagrams_that_ask_for_nothing_are_ignored(self):
        end, _ = self.connect()
        whole = request(GET, ACK, attribute(DEV_INDEX, u32(0)))
        for datagram in [whole[:size] for size in range(1, len(whole), 3)] + [
                b'\xff' * 4096, struct.pack('<IHHII', 4096, NLDEV << 10 | GET, REQUEST, 1, 0), struct.pack('<IHHII', 0, 1, 1, 1, 1) * 100,
                struct.pack('<IHHII', 16, NLDEV << 10 | GET, 0, 1, 0)]:
            end.send(datagram)
        (kind, *_), = self.ask(end, whole)
        self.assertEqual(kind, NLDEV << 10 | GET)

    def test_random_datagrams(self):
        generator = random.Random(1)
        for _ in range(20):
            end, _ = self.connect()
            end.settimeout(0)
            try:
                for _ in range(100):
                    attributes = b''.join(attribute(generator.choice((1, 3, 21, 55, 69, 74, 75, 76)), generator.randbytes(
                        generator.choice((0, 1, 4, 4, 4, 8, 100)))) for _ in range(generator.randrange(6)))
                    datagram = bytearray(request(generator.randrange(24), generator.choice((0, ACK, DUMP)), attributes))
                    for _ in range(generator.choice((0, 0, 1, 5))):
                        datagram[generator.randrange(len(datagram))] = generator.randrange(256)
                    end.send(datagram)
            except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                pass
            end.close()

    def test_many_requests_in_a_datagram_are_all_answered(self):
        end, _ = self.connect()
        end.send(b''.join(request(GET, ACK, attribute(DEV_INDEX, u32(0)), sequence) for sequence in range(100)))
        answers = [next(messages(end.recv(8192))) for _ in range(200)]
        self.assertEqual([answer[2] for answer in answers], [n // 2 for n in range(200)])

    def test_who_does_not_read_holds_up_nobody(self):
        ends = [self.connect()[0] for _ in range(20)]
        dump = request(GET, DUMP) * 200
        for end in ends:
            end.settimeout(0)
            try:
                for _ in range(10000):
                    end.send(dump)
            except BlockingIOError:
                continue
            self.fail('the daemon reads on although its answers are not taken')
        begin = time.monotonic()
        self.assertEqual(len(self.rows('link')), 2)
        self.assertLess(time.monotonic() - begin, 60)
        # An answer is there for each, in order.
        ends[0].settimeout(harness.LIMIT_S)
        self.assertEqual([next(messages(ends[0].recv(8192)))[0] for _ in range(3)],
                         [NLDEV << 10 | GET, NLDEV << 10 | GET, NLMSG_DONE])

    def test_descriptors_and_long_datagrams_end_the_connection(self):
        end, _ = self.connect()
        end.sendmsg([request(GET, DUMP)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0]))])
        self.assertIn(self.rest_of(end), (b'', None))
        end, _ = self.connect()
        end.send(b'\0' * 5000)
        self.assertIn(self.rest_of(end), (b'', None))

    def rest_of(self, end):
        try:
            return end.recv(100)
        except ConnectionResetError:
            return None

    @unittest.skipUnless(IS_ROOT, 'needs a second user')
    def test_a_user_has_a_limit_of_sockets(self):
        script = f'''
import errno, socket
socks = []
try:
    while len(socks) < 2000:
        socks.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20))
except OSError as e:
    print(len(socks), errno.errorcode[e.errno])
'''
        limit = ['prlimit', '--nofile=4096', harness.DEBIAN_PYTHON, '-c', script]
        done = self.execute(*limit, user='nobody')
        self.assertEqual(done.stdout, f'{SOCKETS_OF_USER} EMFILE\n', done.stderr)
        self.assertEqual(len(self.rows('link', user='nobody')), 2)


if __name__ == '__main__':
    try:
        unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
    finally:
        PROGRAMS.remove()
