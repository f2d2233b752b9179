#!/usr/bin/env python3
"""`roci doctor`: each finding while the thing is there, and while it is not: taken away by namespaces, mounts, limits, a system
call filter. What cannot be taken away (hugepages, control groups, RDMA in the kernel) is judged by unit tests.

Usage: doctor_test.py ROCI ROCID PLUGIN [unittest arguments]
"""
import ctypes
import glob
import json
import os
import platform
import pwd
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from harness import LIMIT_S, Daemon, Pair, Programs, stop

PROGRAMS = None
NAMES = {'kernel', 'memory_access', 'userfaultfd', 'hugepages', 'mount_namespace', 'pid_namespace', 'seccomp', 'kernel_rdma', 'memlock',
         'cgroup_memory', 'shm', 'realtime', 'capabilities', 'dpdk_drivers', 'libibverbs', 'plugin', 'daemon', 'devices'}
IS_ROOT = os.geteuid() == 0
NOBODY = pwd.getpwnam('nobody')

SYSTEM_CALLS = {  # by machine
    'x86_64': {'process_vm_readv': 310, 'process_vm_writev': 311, 'kcmp': 312, 'memfd_create': 319, 'userfaultfd': 323, 'unshare': 272,
               'seccomp': 317, 'sched_setattr': 314},
    'aarch64': {'process_vm_readv': 270, 'process_vm_writev': 271, 'kcmp': 272, 'memfd_create': 279, 'userfaultfd': 282, 'unshare': 97,
                'seccomp': 277, 'sched_setattr': 274},
}


def refuse(*names):
    """Installs a filter in this process that answers EPERM to these system calls: for preexec_fn."""
    load_number, equals, returns = 0x20, 0x15, 0x06
    allow, error = 0x7fff0000, 0x00050000 | 1
    code = [(load_number, 0, 0, 0)]
    for name in names:
        code += [(equals, 0, 1, SYSTEM_CALLS[platform.machine()][name]), (returns, 0, 0, error)]
    code.append((returns, 0, 0, allow))
    instructions = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *each) for each in code))
    program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(code), ctypes.addressof(instructions)))
    libc = ctypes.CDLL(None, use_errno=True)
    set_no_new_privileges, set_seccomp, filter_mode = 38, 22, 2
    assert libc.prctl(set_no_new_privileges, 1, 0, 0, 0) == 0
    assert libc.prctl(set_seccomp, filter_mode, ctypes.c_void_p(ctypes.addressof(program)), 0, 0) == 0, os.strerror(ctypes.get_errno())


class Report:
    """What one run said. A finding is a dict; `status` the exit status."""

    def __init__(self, done):
        self.status = done.returncode
        self.said = done.stdout + done.stderr
        self.whole = json.loads(done.stdout)
        self.findings = {finding['name']: finding for finding in self.whole['findings']}

    def verdict(self, name):
        return self.findings[name]['verdict']


class Doctor(unittest.TestCase):
    """How to ask."""

    def setUp(self):
        self.nowhere = tempfile.mkdtemp(prefix='roci-doctor.')
        os.chmod(self.nowhere, 0o755)
        self.addCleanup(shutil.rmtree, self.nowhere)

    def make_daemon(self, **options):
        daemon = Daemon(PROGRAMS, **options)
        self.addCleanup(daemon.stop)
        return daemon

    def command(self, daemon, *arguments):
        return [PROGRAMS.roci, '--runtime-dir', daemon.runtime_dir if daemon else self.nowhere, 'doctor', *arguments]

    def ask(self, daemon=None, prefix=(), **options):
        done = subprocess.run([*prefix, *self.command(daemon, '--json')], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=LIMIT_S, check=False, **options)
        try:
            report = Report(done)
        except ValueError:
            self.fail(f'exit status {done.returncode}: {done.stdout}{done.stderr}')
        self.assertEqual(set(report.findings), NAMES)
        for finding in report.findings.values():
            costs = finding['verdict'] != 'ok'
            self.assertEqual((finding['cost'] != '', finding['remedy'] != ''), (costs, costs), finding)
        self.assertEqual(report.status, 0 if report.whole['works'] else 1)
        return report

    def assert_finding(self, report, name, verdict, *words):
        finding = report.findings[name]
        self.assertEqual(finding['verdict'], verdict, report.said)
        for word in words:
            self.assertIn(word, finding['found'] + finding['cost'] + finding['remedy'])

    def in_mounts(self, script):
        """A command prefix: the shell `script` in a mount namespace of its own, then the command."""
        return ('unshare', '--mount', 'sh', '-ec', script + '; exec "$@"', 'sh')


class DoctorTest(Doctor):

    def test_a_whole_machine(self):
        daemon = self.make_daemon()
        report = self.ask(daemon)
        self.assertEqual(report.status, 0, report.said)
        for name in ('kernel', 'memory_access', 'pid_namespace', 'libibverbs', 'plugin', 'daemon'):
            self.assert_finding(report, name, 'ok')
        self.assert_finding(report, 'daemon', 'ok', f'process {daemon.pid}', 'session ABI')
        self.assertIn(report.verdict('devices'), ('ok', 'slow'), report.said)
        self.assertIn('roci0, roci1 open under `roci run`', report.findings['devices']['found'])
        self.assertEqual(daemon.show('apps'), [], 'it leaves no session behind')

    def test_text_has_a_line_for_each_finding(self):
        done = subprocess.run(self.command(None), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        lines = done.stdout.splitlines()
        self.assertEqual({line.split()[1] for line in lines[:-1]}, NAMES)
        for line in lines[:-1]:
            self.assertRegex(line, r'^(ok +\S+ +\S.*|(slow|missing) +\S+ +\S.*\. Cost: .*\. To do: .*)$')
        self.assertRegex(lines[-1], r'^\d+ ok, \d+ slow, \d+ missing')

    def test_no_daemon_is_no_failure(self):
        report = self.ask()
        self.assertEqual(report.status, 0, report.said)
        self.assert_finding(report, 'daemon', 'missing', 'is installed', 'start rocid')
        self.assert_finding(report, 'devices', 'missing')
        self.assertNotIn('not known', report.findings['dpdk_drivers']['found'], 'the program rocid is asked')

    def test_a_stopped_daemon_is_one(self):
        daemon = self.make_daemon()
        stop(daemon.process)
        try:
            started = time.monotonic()
            report = self.ask(daemon)
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        self.assertLess(time.monotonic() - started, LIMIT_S / 2)
        self.assertEqual(report.status, 1)
        self.assert_finding(report, 'daemon', 'missing', 'does not answer')

    @unittest.skipUnless(IS_ROOT, 'needs root to become another user')
    def test_the_daemon_of_another_user(self):
        daemon = self.make_daemon()
        report = self.ask(daemon, user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[])
        self.assertEqual(report.status, 0, report.said)
        self.assert_finding(report, 'daemon', 'ok', 'Only its user and root')
        self.assert_finding(report, 'capabilities', 'ok', 'not known')
        self.assertIn('roci0, roci1 open', report.findings['devices']['found'])

    def test_a_library_that_cannot_be_loaded(self):
        if not IS_ROOT:
            self.skipTest('needs root to mount')
        path = self.ask().findings['libibverbs']['found'].split()[0]
        report = self.ask(prefix=self.in_mounts(f'mount --bind /dev/null {path}'))
        self.assertEqual(report.status, 1)
        self.assert_finding(report, 'libibverbs', 'missing', 'libibverbs')

    def test_no_plugin(self):
        alone = shutil.copy(PROGRAMS.roci, self.nowhere)
        done = subprocess.run([alone, '--runtime-dir', self.nowhere, 'doctor', '--json'], capture_output=True, text=True, timeout=LIMIT_S,
                              check=False)
        report = Report(done)
        if report.verdict('plugin') == 'ok':
            self.skipTest('a plugin is installed')
        self.assertEqual(report.status, 1)
        self.assert_finding(report, 'plugin', 'missing', 'libroci-rdmav')


@unittest.skipUnless(IS_ROOT, 'needs root to take things away')
class MissingThingsTest(Doctor):

    def as_nobody(self, **options):
        return {'user': NOBODY.pw_uid, 'group': NOBODY.pw_gid, 'extra_groups': [], **options}

    def test_mount_namespaces(self):
        # A user namespace that forbids nested ones, without CAP_SYS_ADMIN.
        confined = ('unshare', '-Ur', 'sh', '-ec',
                    'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set -sys_admin "$@"', 'sh')
        daemon = self.make_daemon()
        report = self.ask(daemon, prefix=confined)
        self.assertEqual(report.status, 0, report.said)
        self.assert_finding(report, 'mount_namespace', 'slow', 'user.max_user_namespaces = 0', 'LD_PRELOAD')
        self.assert_finding(report, 'devices', 'slow', 'roci0, roci1 open', 'LD_PRELOAD')

    def test_pid_namespaces(self):
        beside = ('unshare', '--pid', '--fork', '--kill-child=SIGTERM', '--mount', '--mount-proc')
        daemon = self.make_daemon(prefix=beside)
        self.addCleanup(daemon.process.kill)  # unshare(1) does not forward SIGTERM
        report = self.ask(daemon)
        self.assert_finding(report, 'pid_namespace', 'slow', 'rocid does not see', '/proc/PID/mem')
        within = self.ask(self.make_daemon(), prefix=('unshare', '--pid', '--fork', '--mount', '--mount-proc'))
        self.assert_finding(within, 'pid_namespace', 'ok')

    def test_system_calls(self):
        report = self.ask(preexec_fn=lambda: refuse('process_vm_readv', 'process_vm_writev', 'kcmp'))
        self.assert_finding(report, 'seccomp', 'slow', 'a filter refuses process_vm_readv, process_vm_writev, kcmp')
        self.assert_finding(report, 'memory_access', 'slow', 'process_vm_readv')
        # Programs work all the same.
        daemon = self.make_daemon(prefix=(sys.executable, os.path.abspath(__file__), '--refuse', 'process_vm_readv,process_vm_writev'))
        self.assert_finding(self.ask(daemon), 'memory_access', 'slow', 'process_vm_readv by rocid', '/proc/PID/mem')
        pair = Pair(daemon, ('roci0', 'roci1'), ['ibv_rc_pingpong', '-g', '1', '-n', '100', '-c'])
        self.addCleanup(pair.kill)
        self.assertEqual(pair.connect().result(), '')
        self.assertEqual(self.ask(preexec_fn=refuse).findings['seccomp']['found'], 'a filter, which permits the system calls needed')

    def test_memory_files(self):
        report = self.ask(preexec_fn=lambda: refuse('memfd_create'))
        self.assertEqual(report.status, 1)
        self.assert_finding(report, 'kernel', 'missing', 'memfd_create')

    def test_userfaultfd(self):
        if os.path.exists('/dev/userfaultfd') and os.stat('/dev/userfaultfd').st_mode & 0o006:
            self.skipTest('everybody may open /dev/userfaultfd')
        report = self.ask(preexec_fn=lambda: refuse('userfaultfd'), **self.as_nobody())
        self.assert_finding(report, 'userfaultfd', 'slow', 'vm.unprivileged_userfaultfd=1', 'memory.policy')

    def test_limits_of_locked_memory(self):
        report = self.ask(prefix=('prlimit', '--memlock=65536:65536'), **self.as_nobody())
        self.assert_finding(report, 'memlock', 'slow', '64 KiB', 'vfio-pci')
        self.assert_finding(self.ask(), 'memlock', 'ok', 'CAP_IPC_LOCK')

    def test_realtime_priority(self):
        def limit(priority):
            return ('prlimit', f'--rtprio={priority}:{priority}', 'setpriv', f'--reuid={NOBODY.pw_uid}', f'--regid={NOBODY.pw_gid}',
                    '--clear-groups')
        self.assert_finding(self.ask(prefix=limit(0)), 'realtime', 'slow', 'ordinary priority', 'CAP_SYS_NICE')
        if subprocess.run([*limit(3), 'true'], capture_output=True, check=False).returncode == 0:  # CAP_SYS_RESOURCE
            self.assert_finding(self.ask(prefix=limit(3)), 'realtime', 'ok')
        daemon = self.make_daemon(config='[daemon]\nrealtime = "off"\n')
        self.assert_finding(self.ask(daemon), 'realtime', 'slow', 'configuration turns it off')

    def test_shared_memory(self):
        report = self.ask(prefix=self.in_mounts('mount -t tmpfs -o size=1m roci-test /dev/shm'))
        self.assert_finding(report, 'shm', 'slow', '0 MiB free')
        report = self.ask(prefix=self.in_mounts('mount -t tmpfs -o ro roci-test /dev/shm'))
        self.assert_finding(report, 'shm', 'missing', 'Read-only')

    def test_capabilities(self):
        whole = self.ask(self.make_daemon())
        lost = ('net_raw', 'net_admin', 'sys_admin', 'checkpoint_restore', 'linux_immutable')
        without = ('setpriv', '--bounding-set', ','.join('-' + name for name in lost), '--inh-caps', ','.join('-' + name for name in lost))
        report = self.ask(self.make_daemon(prefix=without))
        self.assert_finding(report, 'capabilities', 'slow', 'raw sockets', 'map_files', 'queues without holes', 'CAP_NET_RAW')
        self.assertNotIn('raw sockets (', whole.findings['capabilities']['found'])

    def test_drivers(self):
        folders = glob.glob('/usr/lib/*/dpdk/pmds-*')
        if len(folders) != 1:
            self.skipTest('DPDK is not installed as Debian does it')
        hidden = os.path.join(self.nowhere, 'pmds')

        def without(drivers):
            return self.in_mounts(f'rm -rf {hidden}; cp -a {folders[0]} {hidden}; rm {hidden}/{drivers}; '
                                  f'mount --bind {hidden} {folders[0]}')
        self.assert_finding(self.ask(self.make_daemon()), 'dpdk_drivers', 'ok', 'net_af_packet')
        report = self.ask(self.make_daemon(prefix=without('librte_net_af_packet*')))
        self.assert_finding(report, 'dpdk_drivers', 'slow', 'no ports net_af_packet')
        report = self.ask(prefix=without('librte_mempool_ring*'))
        self.assertEqual(report.status, 1)
        self.assert_finding(report, 'dpdk_drivers', 'missing', 'rocid does not start')
        with self.assertRaisesRegex(RuntimeError, '`roci doctor`'):
            self.make_daemon(prefix=without('librte_mempool_ring*'))

    def test_devices_of_the_kernel_with_our_names(self):
        daemon = self.make_daemon()
        script = 'mount -t tmpfs roci-test /sys/class; mkdir -p /sys/class/infiniband/roci1'
        report = self.ask(daemon, prefix=self.in_mounts(script))
        self.assert_finding(report, 'kernel_rdma', 'missing', 'roci1', 'rdma dev set')
        self.assert_finding(self.ask(daemon), 'kernel_rdma', 'ok')

    def test_devices_that_do_not_open(self):
        daemon = self.make_daemon(config='[limits]\nmax_sessions = 1\n')
        holder = daemon.start('ibv_asyncwatch', '-d', 'roci0')
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        deadline = time.monotonic() + LIMIT_S
        while not daemon.show('apps') and time.monotonic() < deadline:
            time.sleep(0.05)
        report = self.ask(daemon)
        self.assertEqual(report.status, 1, report.said)
        self.assert_finding(report, 'devices', 'missing', 'roci0: ', 'limits.max_sessions')


def build_tree(roci, rocid, plugin):
    """Copies of the programs as they lie in a build folder, where any user may run them: roci finds the others itself."""
    top = tempfile.mkdtemp(prefix='roci-programs.')
    os.chmod(top, 0o755)
    copies = []
    for path in (roci, rocid, plugin):
        folder = os.path.join(top, os.path.basename(os.path.dirname(os.path.abspath(path))))
        os.mkdir(folder)
        copies.append(shutil.copy(path, folder))
    # `roci run` preloads libraries from the plugin's folder.
    for library in glob.glob(os.path.join(os.path.dirname(os.path.abspath(plugin)), 'libroci-*.so')):
        shutil.copy(library, os.path.dirname(copies[-1]))
    return top, Programs(*copies)


if __name__ == '__main__':
    if sys.argv[1] == '--refuse':  # NAMES PROGRAM ARGUMENTS: runs it under a filter
        refuse(*sys.argv[2].split(','))
        os.execv(sys.argv[3], sys.argv[3:])
    TOP, PROGRAMS = build_tree(*(sys.argv[i] for i in (1, 2, 3)))
    try:
        unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
    finally:
        shutil.rmtree(TOP)
