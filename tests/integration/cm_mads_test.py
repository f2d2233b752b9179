#!/usr/bin/env python3
"""Invalid messages to the connection manager, on the wire: each is counted by its reason, answered as the IBTA requires or
not at all, and does not affect existing connections.

The daemon has one end of a veth pair, the test the other. Skipped without permission to create them.

Usage: cm_mads_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import os
import random
import select
import socket
import struct
import subprocess
import sys
import unittest

import mads
from harness import LIMIT_S, Daemon, Programs, await_, require_network_namespaces, stop
from networks_test import ETH_P_ALL, inside, ip

PROGRAMS = None
OURS, THEIRS, STRANGER = '192.0.2.2', '192.0.2.1', '192.0.2.3'
RC, RD = 0, 2
NOBODY = mads.TCP_SPACE | 9  # no listener
PORT = 7174
SERVICE = mads.TCP_SPACE | PORT
BACKLOG = 3  # rping's
REJ_CONSUMER, REJ_SERVICE, REJ_COMMUNICATION_ID = 28, 8, 6


class CmMads(unittest.TestCase):
    name = f'roci-{os.getpid()}-mads'
    interfaces = ('roci-mads-a', 'roci-mads-b')

    @classmethod
    def setUpClass(cls):
        try:
            cls.set_up_network()
        except BaseException:
            cls.doClassCleanups()
            raise

    @classmethod
    def set_up_network(cls):
        require_network_namespaces()
        ip('netns', 'add', cls.name)
        cls.addClassCleanup(subprocess.run, ['ip', 'netns', 'delete', cls.name], capture_output=True, check=False)
        ip('link', 'add', cls.interfaces[0], 'netns', cls.name, 'type', 'veth', 'peer', 'name', cls.interfaces[1],
           'netns', cls.name)
        for interface in cls.interfaces:
            ip('link', 'set', interface, 'up', namespace=cls.name)
        # The kernel answers ARP for the test's address.
        ip('address', 'add', f'{OURS}/24', 'dev', cls.interfaces[1], namespace=cls.name)
        config = f'[[device]]\nname = "roci0"\nport = "net_af_packet0,iface={cls.interfaces[0]}"\naddresses = ["{THEIRS}/24"]\n'
        cls.daemon = Daemon(PROGRAMS, config=config, prefix=('ip', 'netns', 'exec', cls.name))
        cls.addClassCleanup(cls.daemon.stop)
        if not await_(lambda: cls.daemon.show('ports')[0]['state'] == 'active'):
            raise AssertionError('the link did not come up')

        def make():
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            made.bind((cls.interfaces[1], 0))
            return made
        cls.wire = inside(cls.name, make)
        cls.addClassCleanup(cls.wire.close)
        theirs = bytes.fromhex(cls.daemon.show('ports')[0]['mac'].replace(':', ''))
        cls.macs = (theirs, cls.wire.getsockname()[4])
        cls.last_id = 0x1000

    def setUp(self):
        self.answers(0.2)

    def new_id(self):
        """Also usable as a queue pair number."""
        CmMads.last_id += 1
        return CmMads.last_id

    def send(self, payload, source=OURS, **options):
        self.wire.send(mads.frame(self.macs, source, THEIRS, payload, **options))

    def answer(self, attribute=None, transaction=None):
        """The next MAD of that kind that the daemon sends."""
        while select.select([self.wire], [], [], LIMIT_S)[0]:
            data = self.wire.recv(65536)
            found = mads.mad_of(data) if data[6:12] == self.macs[0] else None
            if found and attribute in (None, found.attribute) and transaction in (None, found.transaction):
                return found
        raise AssertionError('no answer')

    def answers(self, quiet_s):
        """Attributes of the MADs that arrive until the link is quiet."""
        found = []
        while select.select([self.wire], [], [], quiet_s)[0]:
            data = self.wire.recv(65536)
            each = mads.mad_of(data) if data[6:12] == self.macs[0] else None
            found += [each.attribute] if each else []
        return found

    def counters(self, what='counters'):
        return self.daemon.show(what)[0]['connection_manager']

    def grown(self, before):
        now = self.counters()
        return {name: now[name] - before[name] for name in now if now[name] != before[name]}

    def assert_grown(self, before, expected):
        self.assertTrue(await_(lambda: self.grown(before) == expected), (self.grown(before), expected))

    def listen(self):
        server = self.daemon.start('rping', '-s', '-a', THEIRS, '-p', str(PORT))
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.assertTrue(await_(lambda: server.poll() is not None or self.states() == ['listen']))
        return server

    def states(self):
        return sorted(each['state'] for each in self.daemon.show('connections'))

    def request(self, **options):
        return mads.mad(mads.REQ, mads.req(self.new_id(), SERVICE, OURS, THEIRS, self.new_id(), **options))

    def test_each_reason_has_its_counter(self):
        good = mads.mad(mads.RTU, mads.ids(1, 2))
        elsewhere = mads.mad(mads.REQ, mads.req(5, NOBODY, STRANGER, THEIRS, 6))
        cases = {
            'opcode': (bytes(4) + good, {'opcode': mads.UD_SEND_IMMEDIATE}, None),
            'qkey': (good, {'qkey': 0x11111111}, None),
            'length': (good[:252], {}, None),
            'base_version': (mads.mad(mads.RTU, base=2), {}, None),
            'management_class': (mads.mad(mads.RTU, kind=3), {}, None),
            'class_version': (mads.mad(mads.RTU, version=1), {}, None),
            'method': (mads.mad(mads.RTU, method=0x81), {}, None),
            'attribute': (mads.mad(mads.APR + 1), {}, None),
            'source_address': (good, {'source_qpn': 2}, None),
            'unknown_connection': (good, {}, None),
            'unexpected_in_this_state': (self.request(transport=RD), {}, mads.REJ),
            'no_listener': (self.request(), {}, mads.REJ),
        }
        for reason, (payload, options, answer) in cases.items():
            with self.subTest(reason):
                before = self.counters()
                for _ in range(3):
                    self.send(payload, **options)
                self.assert_grown(before, {reason: 3})
                for _ in range(3 if answer else 0):
                    self.assertEqual(self.answer().attribute, answer)
                self.assertEqual(self.answers(0.2), [])
                self.assertGreaterEqual(self.counters('ports')[reason], 3)
                for what in ('counters', 'ports'):
                    table = subprocess.run([PROGRAMS.roci, '--runtime-dir', self.daemon.runtime_dir, 'show', what],
                                           capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
                    self.assertRegex(table, rf'messages to the connection manager:\n(    .*\n)*    {reason} +[0-9]+\n')
        before = self.counters()
        self.send(elsewhere)  # the address in the message is not its source
        self.assert_grown(before, {'source_address': 1})

    def test_no_listener(self):
        before = self.counters()
        ours = self.new_id()
        self.send(mads.mad(mads.REQ, mads.req(ours, NOBODY, OURS, THEIRS, 5), transaction=0x1234))
        rej = self.answer(transaction=0x1234)
        self.assertEqual((rej.attribute, rej.receiver, rej.number(10, 2)), (mads.REJ, ours, REJ_SERVICE))
        self.send(mads.mad(mads.SIDR_REQ, mads.sidr_req(ours, 0x01110000 | 9, OURS, THEIRS), transaction=0x1235))
        rep = self.answer(transaction=0x1235)
        self.assertEqual((rep.attribute, rep.sender, rep.number(4, 1)), (mads.SIDR_REP, ours, 1))
        self.assert_grown(before, {'no_listener': 2})

    def test_messages_of_unknown_connections_are_rejected(self):
        before = self.counters()
        for attribute, answer in ((mads.DREQ, mads.DREP), (mads.REP, mads.REJ), (mads.LAP, mads.APR)):
            self.send(mads.mad(attribute, mads.ids(11, 22), transaction=attribute))
            told = self.answer(transaction=attribute)
            self.assertEqual((told.attribute, told.sender, told.receiver), (answer, 22, 11))
            if answer == mads.REJ:
                self.assertEqual(told.number(10, 2), REJ_COMMUNICATION_ID)
        self.assert_grown(before, {'unknown_connection': 3})

    def test_a_full_backlog(self):
        server = self.listen()
        stop(server)
        before = self.counters()
        for _ in range(BACKLOG + 2):
            self.send(self.request())
        self.assert_grown(before, {'taken': BACKLOG, 'backlog_full': 2})
        self.assertEqual(self.answers(0.2), [])
        server.kill()
        for _ in range(BACKLOG):
            self.assertEqual(self.answer(mads.REJ).number(10, 2), REJ_CONSUMER)

    def test_others_cannot_touch_a_connection(self):
        self.listen()
        ours, qpn = self.new_id(), self.new_id()
        self.send(mads.mad(mads.REQ, mads.req(ours, SERVICE, OURS, THEIRS, qpn)))
        rep = self.answer(mads.REP)
        theirs, their_qpn = rep.sender, rep.number(12, 3)
        self.assertEqual(rep.receiver, ours)
        self.send(mads.mad(mads.RTU, mads.ids(ours, theirs)))
        self.assertTrue(await_(lambda: self.states() == ['established', 'listen']), self.states())

        def forged(reason, payload, source=OURS):
            before = self.counters()
            self.send(payload, source)
            self.assert_grown(before, {reason: 1})
            self.assertEqual(self.states(), ['established', 'listen'])
        forged('unknown_connection', mads.mad(mads.DREQ, mads.dreq(ours, theirs, their_qpn)), STRANGER)
        forged('unknown_connection', mads.mad(mads.DREQ, mads.dreq(ours + 1000, theirs, their_qpn)))
        forged('unknown_connection', mads.mad(mads.DREQ, mads.dreq(ours, theirs ^ 1, their_qpn)))
        forged('unexpected_in_this_state', mads.mad(mads.DREQ, mads.dreq(ours, theirs, their_qpn ^ 1)))
        forged('unexpected_in_this_state', mads.mad(mads.RTU, mads.ids(ours, theirs)))
        forged('unexpected_in_this_state', mads.mad(mads.DREP, mads.ids(ours, theirs)))
        forged('unknown_connection', mads.mad(mads.REJ, mads.ids(ours, theirs)), STRANGER)
        # A request with the same ID and adapter from another address.
        forged('source_address', mads.mad(mads.REQ, mads.req(ours, SERVICE, STRANGER, THEIRS, qpn)), STRANGER)

        self.send(mads.mad(mads.DREQ, mads.dreq(ours, theirs, their_qpn), transaction=0x1236))
        drep = self.answer(transaction=0x1236)
        self.assertEqual((drep.attribute, drep.sender, drep.receiver), (mads.DREP, theirs, ours))

    def test_offers_of_another_vendor_are_answered_with_none(self):
        """librdmacm answers with the vendor ID of the request."""
        self.listen()
        ours, qpn = self.new_id(), self.new_id()
        body = mads.req(ours, SERVICE, OURS, THEIRS, qpn, vendor=0x123456)
        self.send(mads.mad(mads.REQ, body, transaction=0x1237, modifier=0xABCD))
        rep = self.answer(mads.REP, 0x1237)
        self.assertEqual([rep.number(offset, 1) for offset in (15, 19, 23)], [0x12, 0x34, 0x56])
        self.assertEqual(rep.modifier, 0)
        self.send(mads.mad(mads.REJ, mads.ids(ours, rep.sender, (8, b'\x40'), (10, struct.pack('!H', REJ_CONSUMER)))))

    def test_noise(self):
        """Every message type with random contents, while a program listens."""
        server = self.listen()
        stop(server)
        chance = random.Random(4711)
        before = sum(self.counters().values())
        sent = 0
        for _ in range(20):
            for _ in range(50):
                attribute = chance.randrange(mads.REQ - 1, mads.APR + 2)
                body = bytearray(chance.randbytes(mads.MAD_BYTES - mads.HEADER_BYTES))
                if attribute == mads.REQ and chance.random() < 0.8:  # more likely to pass the first checks
                    valid = mads.req(self.new_id(), SERVICE, OURS, THEIRS, self.new_id())
                    kept = chance.randrange(len(valid))
                    body[:kept] = valid[:kept]
                self.send(mads.mad(attribute, bytes(body), transaction=sent))
                sent += 1
            # Losses at a full ring are outside this test.
            self.assertTrue(await_(lambda: sum(self.counters().values()) == before + sent),
                            (before, sent, self.counters()))
        server.kill()
        self.assertTrue(await_(lambda: self.states() == []), self.states())
        self.answers(0.5)
        self.test_no_listener()


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
