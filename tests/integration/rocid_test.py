#!/usr/bin/env python3
"""The daemon from the operator's view: command line, files, signals, `roci show`.

Usage: rocid_test.py ROCID ROCI [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import unittest

from harness import stop

ROCID, ROCI = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
START_LIMIT_S = 120


class Daemon:
    """A running rocid. `arguments` come after --runtime-dir; `user` is a uid to run `program` as."""

    def __init__(self, runtime_dir, *arguments, env=None, user=None, program=ROCID):
        self.runtime_dir = pathlib.Path(runtime_dir)
        self.out_file = tempfile.TemporaryFile()
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [program, '--runtime-dir', str(runtime_dir), *arguments], stdout=self.out_file, stderr=self.log,
            env=env, **({'user': user, 'group': user, 'extra_groups': []} if user else {}))
        deadline = time.monotonic() + START_LIMIT_S
        while not self.ready() and time.monotonic() < deadline and self.process.poll() is None:
            time.sleep(0.01)

    def ready(self):
        return 'rocid: ready\n' in self.out()

    # Reads the whole file without moving the offset at which the daemon writes.
    def out(self):
        return os.pread(self.out_file.fileno(), 1 << 20, 0).decode()

    def said(self):
        return os.pread(self.log.fileno(), 1 << 20, 0).decode()

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(START_LIMIT_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.out_file.close()
        self.log.close()


def may_open_raw_sockets():
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    except PermissionError:
        return False
    return True


def rocid(*arguments):
    return subprocess.run([ROCID, *arguments], capture_output=True, text=True, timeout=START_LIMIT_S)


def show(runtime_dir, *arguments):
    return subprocess.run([ROCI, '--runtime-dir', str(runtime_dir), 'show', *arguments], capture_output=True,
                          text=True, timeout=START_LIMIT_S)


class RocidTest(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix='roci-test.'))
        self.scratch.chmod(0o755)
        self.run_dir = self.scratch / 'run'
        self.addCleanup(shutil.rmtree, self.scratch, True)

    def config(self, text):
        path = self.scratch / 'rocid.toml'
        path.write_text(text)
        return str(path)

    def test_serves_and_cleans_up(self):
        for how in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            with self.subTest(how), Daemon(self.run_dir) as daemon:
                self.assertTrue(daemon.ready(), daemon.said())
                names = os.listdir(self.run_dir / 'sysfs/class/infiniband')
                self.assertEqual(sorted(names), ['roci0', 'roci1'])
                for name in 'rocid.sock', 'manage.sock':
                    self.assertTrue(stat.S_ISSOCK((self.run_dir / name).stat().st_mode))
                self.assertEqual(stat.S_IMODE((self.run_dir / 'manage.sock').stat().st_mode), 0o600)
                self.assertEqual(stat.S_IMODE((self.run_dir / 'rocid.sock').stat().st_mode),
                                 0o666 if os.geteuid() == 0 else 0o600)
                self.assertEqual(daemon.end(how), 0, daemon.said())
                self.assertEqual(daemon.out(), 'rocid: ready\n', 'exactly one line')
                self.assertEqual(daemon.said(), '', 'no messages without an error')
                self.assertEqual(sorted(os.listdir(self.run_dir)), ['rocid.lock', 'sysfs'])
                self.assertEqual(os.listdir(self.run_dir / 'sysfs/class/infiniband'), [])

    def test_one_daemon_per_directory(self):
        with Daemon(self.run_dir) as first, Daemon(self.run_dir) as second:
            self.assertTrue(first.ready(), first.said())
            self.assertEqual(second.process.wait(START_LIMIT_S), 1)
            self.assertEqual(second.said().count('\n'), 1)
            self.assertIn(f'another rocid (process {first.process.pid})', second.said())
            self.assertEqual(show(self.run_dir).returncode, 0, 'the first daemon still works')

    @unittest.skipUnless(os.geteuid() == 0, 'needs root to become another user')
    def test_other_users_cannot_hold_the_lock(self):
        with Daemon(self.run_dir) as daemon:
            self.assertTrue(daemon.ready(), daemon.said())
            self.assertEqual(daemon.end(), 0)
        for mode in (0o600, 0o644):  # as older daemons left it
            os.chmod(self.run_dir / 'rocid.lock', mode)
            with Daemon(self.run_dir) as daemon:
                self.assertTrue(daemon.ready(), daemon.said())
                taken = subprocess.run(['flock', '--nonblock', '--shared', self.run_dir / 'rocid.lock', 'true'], user='nobody',
                                       capture_output=True, text=True, timeout=START_LIMIT_S, check=False)
                self.assertNotEqual(taken.returncode, 0)
                self.assertIn('Permission denied', taken.stderr)

    def test_two_daemons_in_two_directories(self):
        with Daemon(self.run_dir) as first, Daemon(self.scratch / 'other') as second:
            self.assertTrue(first.ready(), first.said())
            self.assertTrue(second.ready(), second.said())

    def test_starts_after_a_crash(self):
        with Daemon(self.run_dir) as daemon:
            self.assertTrue(daemon.ready())
            daemon.end(signal.SIGKILL)
        self.assertTrue((self.run_dir / 'rocid.sock').exists())
        with Daemon(self.run_dir) as daemon:
            self.assertTrue(daemon.ready(), daemon.said())
            self.assertEqual(daemon.end(), 0)

    def test_long_runtime_dir(self):
        path = self.scratch / ('d' * 100) / ('e' * 100)
        path.mkdir(parents=True)
        with Daemon(path) as daemon:
            self.assertTrue(daemon.ready(), daemon.said())
            self.assertEqual(show(path).returncode, 0)

    def test_directory_that_is_not_safe(self):
        self.run_dir.mkdir()
        self.run_dir.chmod(0o777)
        result = rocid('--runtime-dir', str(self.run_dir))
        self.assertEqual(result.returncode, 1)
        self.assertIn('writable by every user', result.stderr)
        self.assertEqual(result.stderr.count('\n'), 1)

    @unittest.skipUnless(os.geteuid() == 0, 'needs root to become another user')
    def test_ordinary_user(self):
        user = 65432
        self.run_dir.mkdir()
        os.chown(self.run_dir, user, user)
        program = shutil.copy(ROCID, self.scratch)  # the build folder may be inside a private one
        with Daemon(self.run_dir, user=user, program=program) as daemon:
            self.assertTrue(daemon.ready(), daemon.said())
            self.assertEqual(stat.S_IMODE((self.run_dir / 'rocid.sock').stat().st_mode), 0o600)
            self.assertEqual(show(self.run_dir).returncode, 0, 'root may ask')
            self.assertEqual(daemon.end(), 0, daemon.said())
        result = subprocess.run([program, '--runtime-dir', str(self.scratch / 'no')], user=user, group=user,
                                extra_groups=[], capture_output=True, text=True, timeout=START_LIMIT_S)
        self.assertEqual(result.returncode, 1)
        self.assertIn('Permission denied', result.stderr)

    def test_tells_the_service_manager(self):
        path = str(self.scratch / 'notify')
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(START_LIMIT_S)
            with Daemon(self.run_dir, env=dict(os.environ, NOTIFY_SOCKET=path)) as daemon:
                self.assertEqual(manager.recv(100), b'READY=1')
                self.assertEqual(daemon.end(), 0)
                self.assertEqual(manager.recv(100), b'STOPPING=1')

    def test_configuration_faults(self):
        path = self.config('[daemon]\nlcores = "two"\n')
        for check in [], ['--check-config']:
            result = rocid('--runtime-dir', str(self.run_dir), '--config', path, *check)
            self.assertEqual(result.returncode, 1)
            self.assertEqual(result.stderr,
                             f'rocid: {path}:2: daemon.lcores: must be a whole number from 1 to 16\n')
            self.assertEqual(result.stdout, '')
        self.assertFalse(self.run_dir.exists())
        result = rocid('--config', str(self.scratch / 'none'))
        self.assertEqual(result.returncode, 1)
        self.assertIn('No such file', result.stderr)
        result = rocid('--config', str(self.scratch))
        self.assertEqual(result.returncode, 1)

    def test_check_config(self):
        result = rocid('--runtime-dir', str(self.run_dir), '--check-config')
        self.assertEqual((result.returncode, result.stderr), (0, ''))
        self.assertTrue(result.stdout.startswith('defaults: ok\n'), result.stdout)
        for word in (str(self.run_dir), 'roci0 on wire wire0', 'MTU 4200', '10.99.0.2/24'):
            self.assertIn(word, result.stdout)
        result = rocid('--config', self.config('[daemon]\nfairness = "user"\n'), '--check-config')
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('1 dataplane thread, shared by users\n', result.stdout)
        faults = {'[daemon]\nlcores = 1\npin = [1023]\n': 'daemon.pin: processor 1023 does not exist',
                  '[daemon]\nfairness = "device"\n': 'daemon.fairness: "device" is not one of "queue_pair", "user"',
                  '[[device]]\nname = "a"\nport = "net_nonsense0"\n': 'DPDK has no driver for "net_nonsense0"',
                  '[[device]]\nname = "a"\nport = "eth1"\n': 'DPDK has no driver for "eth1"',
                  '[[device]]\nname = "a"\nport = "net_af_packet0,iface=nosuch0"\n':
                  'device[0].port: "net_af_packet0,iface=nosuch0": there is no network interface "nosuch0"',
                  '[[device]]\nname = "a"\nport = "net_af_packet0"\n': 'names no interface (add iface=NAME)',
                  '[[device]]\nname = "a"\nport = "packet:"\n': 'names no interface (write packet:NAME)',
                  '[[device]]\nname = "a"\nport = "packet:nosuch0"\n': 'there is no network interface "nosuch0"',
                  '[[device]]\nname = "a"\nport = "packet:lo,qpairs=2"\n': 'packet has no argument "qpairs" (it has gso)',
                  '[[device]]\nname = "a"\nport = "net_pcap0"\n': 'names neither interface nor file',
                  '[[device]]\nname = "a"\nport = "net_pcap0,iface=nosuch0"\n':
                  'there is no network interface "nosuch0"',
                  '[[device]]\nname = "a"\nport = "net_pcap0,rx_pcap=/nosuch"\n': '/nosuch: No such file or directory',
                  '[[device]]\nname = "a"\nport = "net_tap0,iface=an-interface-name"\n': 'longer than 15 characters',
                  '[[device]]\nname = "a"\nport = "net_ring0,nodeaction=x:0:CREATE"\n': 'takes no arguments',
                  '[[device]]\nname = "a"\nport = "net_vhost0"\n': 'names no socket (add iface=PATH)',
                  '[[device]]\nname = "a"\nport = "net_virtio_user0,path=/nosuch/x.sock"\n': 'there is no folder /nosuch for',
                  '[[device]]\nname = "a"\nport = "net_memif0,socket=/nosuch/x.sock,socket-abstract=no"\n':
                  'there is no folder /nosuch for',
                  '[[device]]\nname = "a"\nport = "ff:1f.7"\n': '"ff:1f.7": there is no such PCI device'}
        for text, fault in faults.items():
            path = self.config(text)
            result = rocid('--runtime-dir', str(self.run_dir), '--config', path, '--check-config')
            self.assertEqual((result.returncode, result.stdout), (1, ''))
            self.assertIn(fault, result.stderr)
            self.assertEqual(result.stderr.count('\n'), 1, result.stderr)
        for port in 'net_tap0,iface=x', 'net_af_packet0,iface=lo', 'net_memif0', 'net_memif0,socket=/nosuch/abstract':
            path = self.config(f'[[device]]\nname = "a"\nport = "{port}"\n')
            result = rocid('--config', path, '--check-config')
            if port.startswith('net_af_packet') and not may_open_raw_sockets():
                self.assertEqual((result.returncode, result.stdout), (1, ''))
                self.assertIn('needs raw sockets: grant rocid CAP_NET_RAW', result.stderr)
            else:
                self.assertEqual(result.returncode, 0, result.stderr)
        self.assertFalse(self.run_dir.exists())

    def test_port_that_does_not_exist(self):
        path = self.config('[[device]]\nname = "roci0"\nport = "net_nonsense0"\n')
        result = rocid('--runtime-dir', str(self.run_dir), '--config', path)
        self.assertEqual(result.returncode, 1)
        self.assertIn('roci0', result.stderr)
        self.assertEqual(result.stdout, '')

    def test_configured_devices(self):
        path = self.config('''
            [daemon]
            lcores = 2
            hugepages = "off"
            [[wire]]
            name = "a"
            [[wire]]
            name = "b"
            [[device]]
            name = "left"
            wire = "a"
            addresses = ["192.0.2.1/24"]
            mtu = 1500
            [[device]]
            name = "right"
            wire = "b"
            mac = "02:00:00:00:00:77"
        ''')
        with Daemon(self.run_dir, '--config', path) as daemon:
            self.assertTrue(daemon.ready(), daemon.said())
            left, right = json.loads(show(self.run_dir, 'devices', '--json').stdout)
            self.assertEqual([left['name'], right['name']], ['left', 'right'])
            self.assertEqual([left['path_mtu'], right['path_mtu']], [1024, 4096])
            self.assertEqual(left['gids'][1]['address'], '192.0.2.1/24')
            self.assertEqual(right['mac'], '02:00:00:00:00:77')
            self.assertEqual(len(right['gids']), 1, 'the link-local one')
            self.assertEqual(len(json.loads(show(self.run_dir, 'lcores', '--json').stdout)), 2)
            gid = (self.run_dir / 'sysfs/class/infiniband/left/ports/1/gids/1').read_text()
            self.assertEqual(gid, '0000:0000:0000:0000:0000:ffff:c000:0201\n')

    def test_show(self):
        with Daemon(self.run_dir) as daemon:
            self.assertTrue(daemon.ready(), daemon.said())
            for kind in ('devices', 'ports', 'apps', 'qps', 'cqs', 'srqs', 'mrs', 'counters', 'lcores', 'neighbours',
                         'device', 'port', 'app', 'qp', 'cq', 'mr', 'lcore'):
                with self.subTest(kind):
                    self.assertIsInstance(json.loads(show(self.run_dir, kind, '--json').stdout), list)
                    self.assertEqual(show(self.run_dir, kind).returncode, 0)
            self.assertIn('roci0', show(self.run_dir).stdout)
            self.assertEqual(show(self.run_dir, 'nonsense').returncode, 2)
        result = show(self.run_dir)
        self.assertEqual(result.returncode, 1)
        self.assertIn(f'no daemon is running at {self.run_dir} (start rocid', result.stderr)

    def test_show_of_a_stopped_daemon(self):
        with Daemon(self.run_dir) as daemon:
            self.assertTrue(daemon.ready(), daemon.said())
            stop(daemon.process)
            started = time.monotonic()
            result = show(self.run_dir, '--timeout', '1')
            self.assertLess(time.monotonic() - started, START_LIMIT_S / 2)
            self.assertEqual((result.returncode, result.stdout), (1, ''))
            self.assertIn('the daemon does not answer', result.stderr)
            daemon.process.send_signal(signal.SIGCONT)
            self.assertEqual(show(self.run_dir).returncode, 0)

    def test_drops_have_reasons(self):
        with Daemon(self.run_dir) as daemon:
            self.assertTrue(daemon.ready(), daemon.said())
            for port in json.loads(show(self.run_dir, 'counters', '--json').stdout):
                self.assertNotIn('none', port['drops'])
                self.assertIn('icrc', port['drops'])

    def test_log_lines_that_users_can_provoke_are_limited(self):
        path = self.config('[limits]\nmax_sessions = 1\n')
        with Daemon(self.run_dir, '--config', path) as daemon:
            self.assertTrue(daemon.ready(), daemon.said())
            for _ in range(100):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first, \
                        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as second:
                    first.connect(str(self.run_dir / 'rocid.sock'))
                    second.connect(str(self.run_dir / 'rocid.sock'))
            self.assertEqual(daemon.end(), 0)
            self.assertLessEqual(daemon.said().count('connection refused'), 11, daemon.said())
            self.assertIn(' similar suppressed: "session socket: connection refused', daemon.said())

    def test_roci_command_line(self):
        def roci(*arguments):
            return subprocess.run([ROCI, '--runtime-dir', str(self.run_dir), *arguments], capture_output=True, text=True,
                                  timeout=START_LIMIT_S)
        result = roci('bogus')
        self.assertEqual(result.returncode, 2)
        self.assertIn('no command "bogus"; there are: run, show', result.stderr)
        self.assertIn('roci run [OPTIONS] [--] PROGRAM [ARGS...]', roci('run', '--help').stdout)
        for arguments in ('--bogus',), ('run', '--bogus', 'ls'), ('run', '-x', 'ls'), ('run', '--bogus=1', 'ls'):
            result = roci(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertIn('unknown option -', result.stderr)
        self.assertIn('WINDOW', roci('show', 'qps', '--help').stdout)
        self.assertIn('neighbours', roci('show', '--help').stdout)

    def test_sleeps_when_idle(self):
        with Daemon(self.run_dir) as daemon:
            self.assertTrue(daemon.ready(), daemon.said())
            status = pathlib.Path(f'/proc/{daemon.process.pid}/task')

            def switches():
                return sum(int(line.split()[1]) for task in status.iterdir()
                           for line in (task / 'status').read_text().splitlines()
                           if line.startswith('voluntary_ctxt_switches'))
            # After the start the daemon publishes counters, and probes and announces addresses.
            deadline = time.monotonic() + START_LIMIT_S
            wakes = 10
            while wakes >= 10:
                self.assertLess(time.monotonic(), deadline, f'{wakes} wakes of an idle daemon in two seconds')
                before = switches()
                time.sleep(2)
                wakes = switches() - before

    def test_command_line(self):
        version = rocid('--version')
        self.assertEqual(version.returncode, 0)
        self.assertRegex(version.stdout, r'^rocid \d+\.\d+\.\d+\n$')
        text = rocid('--help')
        self.assertEqual(text.returncode, 0)
        for word in ('--config', '--runtime-dir', '--log-level', '--check-config', 'FILES', 'SIGNALS', 'EXIT STATUS'):
            self.assertIn(word, text.stdout)
        for wrong in ['--nonsense'], ['argument'], ['--log-level', 'loud'], ['--config']:
            with self.subTest(wrong):
                result = rocid(*wrong)
                self.assertEqual(result.returncode, 2)
                self.assertNotEqual(result.stderr, '')


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
