#!/usr/bin/env python3
"""Checks that pairs.py detects failures: runs pairs of shell commands that fail in each way, without guest and daemon.

Usage: pairs_test.py [unittest arguments]
"""
import os
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'integration'))
sys.dont_write_bytecode = True
import pairs  # pylint: disable=wrong-import-position
from ends import HostProgram  # pylint: disable=wrong-import-position
from guest import Guest  # pylint: disable=wrong-import-position


class Shell:
    """An end for HostProgram whose programs need no device."""

    prefix = ()

    @staticmethod
    def command(*command):
        return list(command)


Shell.daemon = Shell


class End:
    """An end whose counters and impairments are scripted by the test."""

    name = device = 'end'
    gids, addresses, tcp_address, tcp_port, path_mtu, programs = {'v4': 1}, {'v4': '192.0.2.1'}, '192.0.2.1', 1, 1024, ''

    def __init__(self, counters=(), impaired=None):
        self.counters, self.done = list(counters), impaired if isinstance(impaired, list) else [impaired]
        self.starts, self.cleared = 0, False

    def start(self, command):
        self.starts += 1
        return HostProgram(Shell, command)

    def counter(self, _):
        return self.counters.pop(0) if len(self.counters) > 1 else self.counters[0]

    def impair(self, *arguments):
        self.cleared = '--clear' in arguments

    def impaired(self):
        return self.done.pop(0) if len(self.done) > 1 else self.done[0]


class Said:
    """A report that records the text."""

    def __init__(self):
        self.text = ''

    def say(self, text):
        self.text += text


class PairsTest(unittest.TestCase):

    def setUp(self):
        self.server, self.client, self.report = End(), End(), Said()
        limits = (pairs.LIMIT_S, pairs.NO_OTHER_LIMIT_S)
        pairs.LIMIT_S, pairs.NO_OTHER_LIMIT_S = 3, 0.5

        def put_back():
            pairs.LIMIT_S, pairs.NO_OTHER_LIMIT_S = limits
        self.addCleanup(put_back)

    def run_pair(self, server, client, **about):
        case = pairs.Case(server, client, **{'awaits': '', **about})
        return pairs.run_patiently(case, self.server, self.server, self.client, self.report)

    def assert_wrong(self, wrong, text, starts=1):
        self.assertIn(text, wrong)
        self.assertEqual(self.server.starts, starts, wrong)

    def test_both_good(self):
        self.assertEqual(self.run_pair('true', 'true'), '')
        self.assertEqual(self.report.text, '')

    def test_a_wrong_exit_is_not_tried_again(self):
        self.assert_wrong(self.run_pair('true', 'exit 3'), 'client: exit status 3')
        self.assert_wrong(self.run_pair('exit 4', 'true'), 'server: exit status 4', 2)

    def test_bad_data_is_wrong_whatever_the_status_is_and_not_tried_again(self):
        self.assert_wrong(self.run_pair('echo invalid data in page 1', 'true'), 'invalid data')
        self.assert_wrong(self.run_pair('echo invalid data; sleep 9', 'true'), 'invalid data', 2)

    def test_a_late_pair_is_tried_again(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.run_pair('true', f'if [ ! -e {folder}/x ]; then touch {folder}/x; sleep 9; fi'), '')
        self.assertIn('once more', self.report.text)
        self.assert_wrong(self.run_pair('true', 'sleep 9'), 'exit status None', 4)

    def test_a_server_error_while_its_client_is_late_is_a_failure(self):
        self.assert_wrong(self.run_pair('exit 5', 'sleep 9'), 'server: exit status 5')

    def test_a_server_that_is_never_ready(self):
        self.assert_wrong(self.run_pair('exit 0', 'true', awaits='ready'), 'not ready')
        self.assertEqual(self.client.starts, 0)

    def run_killed(self, victim, survivor):
        """Kills the client. `PID` in the commands is a file for the victim's process ID."""
        with tempfile.TemporaryDirectory() as folder:
            server, client = (text.replace('PID', f'{folder}/pid') for text in (survivor, victim))
            return self.run_pair(server, client, killed='client', flows='flows', gone='gone')

    def test_a_killed_peer(self):
        victim = 'echo $$ >PID; echo flows; exec sleep 9'
        survivor = 'echo flows; until [ -s PID ]; do sleep 0.05; done; while kill -0 $(cat PID); do sleep 0.05; done; echo '
        self.assertEqual(self.run_killed(victim, survivor + 'gone'), '')
        self.assert_wrong(self.run_killed(victim, survivor + 'done'), '"gone" was to be said', 2)
        self.assert_wrong(self.run_killed(victim, survivor + 'gone; exec sleep 9'), 'exit status None', 3)
        self.assert_wrong(self.run_killed(victim, 'echo flows; echo gone; exit 1'), 'no traffic before the kill', 4)

    def test_a_kill_without_traffic(self):
        self.assert_wrong(self.run_killed('false', 'false'), 'no traffic before the kill')
        self.assert_wrong(self.run_killed('echo flows; exec sleep 9', 'exec sleep 9'), 'no traffic before the kill', 3)

    def test_a_client_that_must_fail(self):
        self.assertEqual(self.run_pair('exec sleep 9', 'echo refused; exit 1', fails='refused'), '')
        self.assert_wrong(self.run_pair('exec sleep 9', 'echo refused', fails='refused'), 'exit status 0', 2)
        self.assert_wrong(self.run_pair('exec sleep 9', 'exit 1', fails='refused'), 'was to be said', 3)

    def test_an_impairment_must_do_something(self):
        for done, wrong in (({'lost': 2, 'reordered': 1}, ''), ({'lost': 2, 'reordered': 0}, 'no frame was reordered')):
            self.server = End(impaired=done)
            self.assertEqual(self.run_pair('true', 'true', impair=('--loss', '5%', '--reorder', '1%')), wrong)
            self.assertTrue(self.server.cleared)

    def test_another_seed_is_tried(self):
        self.server = End(impaired=[{'lost': 1, 'reordered': 0}, {'lost': 0, 'reordered': 1}, {'lost': 1, 'reordered': 1}])
        self.assertEqual(self.run_pair('true', 'true', impair=('--loss', '5%', '--reorder', '1%')), '')
        self.assertEqual(self.server.starts, 3)

    def test_rnr_naks_must_pass(self):
        self.server, self.client = End(counters=(3, 4)), End(counters=(0, 0, 1))
        self.assertEqual(self.run_pair('true', 'true', rnr=True), '')
        self.server = End(counters=(3,))
        self.assertIn('send_rnr_err', self.run_pair('true', 'true', rnr=True))

    def test_a_crash_of_the_guests_own_driver_is_no_failure_of_the_pair(self):
        guest, report = mock.Mock(), mock.Mock()
        self.server.daemon = mock.Mock()
        guest.alive.return_value, self.server.daemon.alive.return_value = False, True
        guest.console_text.return_value = self.server.daemon.output.return_value = ''
        cases = [(pairs.Case('true', 'exit 3', awaits=''), (self.server, self.client))]
        self.assertFalse(pairs.run_all(cases, self.server, guest, report, forgives=lambda: True))
        report.add.assert_not_called()
        self.assertFalse(pairs.run_all(cases, self.server, guest, report))
        report.add.assert_called_once()
        self.server.daemon.alive.return_value = False
        self.assertFalse(pairs.run_all(cases, self.server, guest, report, forgives=lambda: True))
        self.assertEqual(report.add.call_count, 2)

    def test_finds_a_crash_in_the_kernels_module(self):
        guest = Guest.__new__(Guest)
        oops = 'eth0: up\nBUG: unable to handle page fault\nRIP: 0010:__rxe_put+0xb/0x50 [rdma_rxe]\nKernel panic - not syncing'
        for said, found in ((oops, True), (oops.replace('rdma_rxe', 'virtio_net'), False), (oops.replace('Kernel panic', ''), False),
                            (oops.replace('BUG: ', 'WARNING: ').replace('Kernel', 'BUG: other\nRIP: 0010:x+0xb [virtio_net]\nKernel'), False),
                            ('', False)):
            with mock.patch.object(guest, 'console_text', create=True, return_value=said):
                crash = guest.crash_of('rdma_rxe')
            self.assertEqual(bool(crash), found, said)
            self.assertTrue(not found or crash.startswith('BUG: '), crash)

    def test_tells_what_has_ended(self):
        guest, daemon = mock.Mock(), mock.Mock()
        guest.alive.return_value = daemon.alive.return_value = True
        self.assertEqual(pairs.ended(daemon, guest), '')
        guest.alive.return_value, guest.console_text.return_value = False, 'Kernel panic'
        self.assertIn('Kernel panic', pairs.ended(daemon, guest))
        guest.alive.return_value, daemon.alive.return_value = True, False
        daemon.process.returncode, daemon.output.return_value = -11, 'rocid: ready'
        self.assertIn('status -11', pairs.ended(daemon, guest))


if __name__ == '__main__':
    unittest.main(verbosity=2)
