#!/usr/bin/env python3
"""Personalities: what programs see of a device that is like another adapter, and what it then refuses.

Usage: personality_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from harness import LIMIT_S, Daemon, Pair, Programs

PROGRAMS = None
POSTS = str(pathlib.Path(__file__).with_name('personality_posts.py'))
CONFIG = '[[wire]]\nname = "w"\n' + ''.join(
    f'[[device]]\nname = "roci{i}"\nwire = "w"\naddresses = ["10.99.0.{i + 1}/24"]\npersonality = "@"\n' for i in range(2))

# Lines of `ibv_devinfo -v`: of the adapter where it has less than the emulator, else the emulator's.
SEEN = {
    'connectx-6': {'fw_ver': '20.24.4702', 'vendor_id': '0x02c9', 'vendor_part_id': '4123', 'hw_ver': '0x0',
                   'board_id': 'MT_0000000225', 'max_qp': '16384', 'max_qp_wr': '8192', 'device_cap_flags': '0x05321c02',
                   'max_sge': '30', 'max_sge_rd': '30', 'max_cqe': '1048576', 'max_qp_rd_atom': '16',
                   'atomic_cap': 'ATOMIC_HCA (1)', 'max_mcast_qp_attach': '240', 'max_srq_sge': '31', 'max_srq_wr': '16384',
                   'local_ca_ack_delay': '16', 'maximum available device memory': '131072Bytes'},
    'e810': {'fw_ver': '1.74', 'vendor_id': '0x8086', 'vendor_part_id': '5522', 'hw_ver': '0x2', 'board_id': None,
             'max_qp': '4092', 'max_qp_wr': '8127', 'device_cap_flags': '0x01221000', 'max_sge': '6', 'max_cq': '8189',
             'max_cqe': '1048574', 'max_qp_rd_atom': '8', 'atomic_cap': 'ATOMIC_NONE (0)', 'max_srq': '0',
             'max_mcast_qp_attach': '8', 'local_ca_ack_delay': '15', 'device_cap_flags_ex': '0x1221000'},
    'bnxt': {'vendor_id': '0x14e4', 'vendor_part_id': '5968', 'max_sge': '6', 'max_pd': '16384', 'max_mcast_grp': '0',
             'device_cap_flags': '0x01221c00', 'local_ca_ack_delay': '16', 'atomic_cap': 'ATOMIC_NONE (0)'},
    'rxe': {'fw_ver': '0.0.0', 'vendor_id': '0x0000', 'vendor_part_id': '0', 'board_id': None, 'max_qp': '16384',
            'device_cap_flags': '0x00203c02', 'max_sge': '32', 'max_cqe': '32767', 'max_mr': '65536', 'max_ah': '100',
            'max_srq': '960', 'max_srq_sge': '27', 'max_mw': '0', 'atomic_cap': 'ATOMIC_HCA (1)',
            'max_mcast_qp_attach': '56', 'local_ca_ack_delay': '15'},
    'efa-like': {'fw_ver': '0.0.0.0', 'vendor_id': '0x1d0f', 'vendor_part_id': '61346', 'hw_ver': '0xEFA2', 'board_id': None,
                 'device_cap_flags': '0x00000000', 'max_srq': '0', 'max_mcast_grp': '0', 'max_mw': '0',
                 'atomic_cap': 'ATOMIC_NONE (0)'},
}
# Programs that work with each, and those that fail, with the refusal.
WORKS = {
    'connectx-6': [['ibv_rc_pingpong', '-g', '1'], ['ibv_srq_pingpong', '-g', '1'], ['ibv_rc_pingpong', '-g', '1', '-o']],
    'e810': [['ibv_rc_pingpong', '-g', '1'], ['ibv_ud_pingpong', '-g', '1', '-s', '1000']],
    'bnxt': [['ibv_rc_pingpong', '-g', '1']],
    'rxe': [['ibv_uc_pingpong', '-g', '1'], ['ibv_srq_pingpong', '-g', '1']],
    'efa-like': [['ibv_ud_pingpong', '-g', '1', '-s', '1000']],
}
FAILS = {
    'e810': [(['ibv_uc_pingpong'], "Couldn't create QP"), (['ibv_srq_pingpong'], "Couldn't create SRQ"),
             (['ibv_rc_pingpong', '-o'], 'RC')],
    'bnxt': [(['ibv_uc_pingpong'], "Couldn't create QP")],
    'efa-like': [(['ibv_rc_pingpong'], "Couldn't create QP")],
}


class PersonalityTest(unittest.TestCase):

    def daemon_like(self, personality):
        daemon = Daemon(PROGRAMS, config=CONFIG.replace('@', personality))
        self.addCleanup(daemon.stop)
        return daemon

    @staticmethod
    def run_on(daemon, *command):
        return subprocess.run(daemon.command(*command), capture_output=True, text=True, check=False, timeout=LIMIT_S)

    def devinfo(self, daemon):
        result = self.run_on(daemon, 'ibv_devinfo', '-v', '-d', 'roci0')
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        lines = re.findall(r'^\s*([A-Za-z][\w ]*):\s+(\S.*?)\s*$', result.stdout, re.M)
        return dict(reversed(lines)), result.stdout  # the first of each name: tag matching has a max_sge, too

    def test_programs_see_the_adapter(self):
        for personality, lines in SEEN.items():
            with self.subTest(personality):
                daemon = self.daemon_like(personality)
                seen, text = self.devinfo(daemon)
                self.assertEqual({name: seen.get(name) for name in lines}, lines, text)
                odp = 'ODP_SUPPORT_IMPLICIT' in text
                self.assertEqual(odp, personality == 'connectx-6', text)
                self.assertEqual('core clock not supported' in text, personality != 'connectx-6', text)
                self.assertIn('tag matching not supported', text)
                sysfs = pathlib.Path(daemon.runtime_dir) / 'sysfs/class/infiniband/roci0'
                if 'fw_ver' in lines:
                    self.assertEqual((sysfs / 'fw_ver').read_text(), lines['fw_ver'] + '\n')
                for file in sorted(sysfs.iterdir()):
                    if file.is_file():
                        self.assertNotRegex(file.read_text(), 'rocinante|ROCI', file)
                self.assertEqual((sysfs / 'hw_rev').read_text(), f'{int(seen["hw_ver"], 16):x}\n')
                if personality == 'connectx-6':
                    self.assertEqual((sysfs / 'hca_type').read_text(), 'MT4123\n')
                daemon.stop()

    def test_programs_get_what_the_adapter_has_and_no_more(self):
        for personality, commands in WORKS.items():
            with self.subTest(personality):
                daemon = self.daemon_like(personality)
                for command in commands:
                    pair = Pair(daemon, ('roci0', 'roci1'), list(command))
                    self.addCleanup(pair.kill)
                    pair.connect()
                    self.assertEqual(pair.result(), '', command)
                for command, said in FAILS.get(personality, ()):
                    result = self.run_on(daemon, *command, '-d', 'roci0', '-g', '1')
                    self.assertNotEqual(result.returncode, 0, command)
                    self.assertIn(said, result.stdout + result.stderr, command)
                daemon.stop()

    def test_the_documents_list_where_a_device_differs(self):
        page = (pathlib.Path(__file__).parents[2] / 'docs/personalities.md').read_text(encoding='utf-8')
        rows = set(re.findall(r'^\| `([\w-]+)` \| `(\w+)` \| (\w+) \| (\w+) \|$', page, re.M))
        shown = set()
        for personality in SEEN:
            daemon = self.daemon_like(personality)
            device = daemon.show('devices')[0]
            self.assertEqual(device['personality'], personality)
            shown |= {(personality, line['attribute'], line['adapter'], line['device']) for line in device['differs_from_adapter']}
            daemon.stop()
        self.assertEqual(rows, shown)

    def test_posts_are_taken_as_the_adapter_takes_them(self):
        key = 'personality = "@"\n'
        strict = {'receive in RESET': '22', 'send in RESET': '22', 'atomic': '0 0/0', 'atomic of the peer': '0 0/0', 'flush': '0 5/5',
                  'READ on UD': '22', 'window': '0', 'ibv_wr_rdma_write': '0', 'ibv_wr_atomic_fetch_add': '0',
                  'ibv_wr_bind_mw': '0'}
        no_windows = {'window': '95', 'ibv_wr_bind_mw': '95'}
        file = tempfile.NamedTemporaryFile('w', suffix='.toml')
        self.addCleanup(file.close)
        file.write('lenient_posts = true\n[vendor_errors]\nloc_qp_op_err = 0x68\n')
        file.flush()
        for personality, differs in (('rxe', no_windows),
                                     ('e810', {'atomic': '22', 'atomic of the peer': '0 9/9', 'ibv_wr_atomic_fetch_add': '95'}),
                                     ('bnxt', {'atomic': '22', 'atomic of the peer': '0 9/9', 'ibv_wr_atomic_fetch_add': '95',
                                               **no_windows}),
                                     ('connectx-6', {'flush': '0 5/249'}),
                                     (file.name, {'receive in RESET': '0', 'send in RESET': '0', 'READ on UD': '0 2/104'})):
            with self.subTest(personality):
                daemon = Daemon(PROGRAMS, config=CONFIG.replace(key, key.replace('@', personality), 1).replace(key, ''))
                self.addCleanup(daemon.stop)
                # The system's Python, for which the bindings are built.
                done = self.run_on(daemon, '/usr/bin/python3', POSTS, 'roci0', 'roci1')
                self.assertEqual(dict(line.split(': ') for line in done.stdout.splitlines()), {**strict, **differs}, done.stderr)
                daemon.stop()

    def test_a_file_is_a_personality_too(self):
        with tempfile.NamedTemporaryFile('w', suffix='.toml') as file:
            file.write('vendor_id = 0x123\nfirmware = "9.8.7"\n[limits]\nmax_qp = 77\nmax_sge = 2\n')
            file.flush()
            daemon = self.daemon_like(file.name)
            seen, text = self.devinfo(daemon)
        self.assertEqual((seen['vendor_id'], seen['fw_ver'], seen['max_qp'], seen['max_sge']),
                         ('0x0123', '9.8.7', '77', '2'), text)


if __name__ == '__main__':
    PROGRAMS = Programs(*sys.argv[1:4])
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
