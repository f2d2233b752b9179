#!/usr/bin/env python3
"""Programs started with `roci run` find the devices: as root and as an ordinary user, nested, with devices of the kernel,
while the daemon restarts, and if namespaces are refused.

Usage: run_namespace_test.py ROCI TREE_SERVER PLUGIN [unittest arguments]

tree_server replaces the daemon. The libibverbs programs (ibv_devices, ibstat) are those installed on the machine.
"""
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROCI, TREE_SERVER, PLUGIN = (os.path.abspath(path) for path in sys.argv[1:4])
os.environ['PATH'] += ':/usr/sbin:/sbin'  # ibstat and ibstatus: not in Debian's PATH of ordinary users
IS_ROOT = os.geteuid() == 0
TIMEOUT_S = 60


class Server:
    """The replacement of the daemon, in a directory that every user can read."""

    def __init__(self, directory, *options):
        self.command = [TREE_SERVER, directory, *options]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == 'ready\n'

    def obey(self, line):
        self.process.stdin.write(line + '\n')
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def stop(self):
        self.process.stdin.close()
        self.process.wait(TIMEOUT_S)
        self.process.stdout.close()

    def crash(self):
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        self.process.stdin.close()
        self.process.stdout.close()


class RunTest(unittest.TestCase):
    server_options = ()

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix='roci-run-test.')
        os.chmod(self.directory, 0o755)
        # An ordinary user may not be able to enter the build tree.
        self.roci = shutil.copy(ROCI, self.directory)
        self.plugin = shutil.copy(PLUGIN, self.directory)
        for library in ('libroci-preload.so', 'libroci-netlink.so'):
            shutil.copy(os.path.join(os.path.dirname(PLUGIN), library), self.directory)
        self.runtime_dir = os.path.join(self.directory, 'run')
        self.server = Server(self.runtime_dir, *self.server_options)
        self.addCleanup(shutil.rmtree, self.directory, True)
        self.addCleanup(self.server.stop)

    def run_command(self, *command, options=()):
        return [self.roci, 'run', '--runtime-dir', self.runtime_dir, '--plugin', self.plugin, *options, *command]

    def execute(self, *command, options=('--require-namespace',), user=None, prefix=(), **arguments):
        """Runs a program under `roci run`; the completed process."""
        if user is not None:
            arguments.update(user=user.pw_uid, group=user.pw_gid, extra_groups=[])
        arguments.setdefault('cwd', '/')
        return subprocess.run([*prefix, *self.run_command(*command, options=options)], capture_output=True, text=True,
                              timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, check=False, **arguments)

    def shell(self, script, **arguments):
        done = self.execute('sh', '-c', script, **arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def assert_devices_are_shown(self, **arguments):
        listing = self.shell('cd /; echo /sys/class/infiniband/* /sys/class/infiniband_verbs/* /dev/infiniband/*', **arguments)
        self.assertEqual(listing.split(), [
            '/sys/class/infiniband/roci0', '/sys/class/infiniband/roci1',
            '/sys/class/infiniband_verbs/abi_version', '/sys/class/infiniband_verbs/uverbs0',
            '/sys/class/infiniband_verbs/uverbs1', '/dev/infiniband/uverbs0', '/dev/infiniband/uverbs1'])

    def assert_libibverbs_lists(self, devices, *command, **arguments):
        done = self.execute(*(command or ('ibv_devices',)), **arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, '')
        self.assertEqual(sorted(line.split()[0] for line in done.stdout.splitlines()[2:]), devices)


def users():
    """The users to try: the one that runs the test, and as root an ordinary one."""
    yield None
    if IS_ROOT:
        yield pwd.getpwnam('nobody')


def as_each_user(test):
    """Runs a test method, which takes the user, once for each of users()."""
    def run(self):
        for user in users():
            with self.subTest(user=user.pw_name if user else 'own'):
                test(self, user)
    return run


class NamespaceTest(RunTest):

    @as_each_user
    def test_devices_are_shown(self, user):
        self.assert_devices_are_shown(user=user)

    @as_each_user
    def test_libibverbs_finds_the_plugin_even_with_an_empty_environment(self, user):
        self.assert_libibverbs_lists(['roci0', 'roci1'], user=user)
        self.assert_libibverbs_lists(['roci0', 'roci1'], 'env', '-i', shutil.which('ibv_devices'), user=user)

    def test_a_plugin_path_with_spaces_works(self):
        place = os.path.join(self.directory, 'a b')
        os.mkdir(place)
        self.plugin = shutil.copy(self.plugin, place)
        self.assert_libibverbs_lists(['roci0', 'roci1'])

    @as_each_user
    def test_tools_that_read_sysfs_themselves_work(self, user):
        done = self.execute('ibstat', 'roci1', user=user)
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in ('Number of ports: 1', 'State: Active', 'Physical state: LinkUp', 'Rate: 100', 'Link layer: Ethernet'):
            self.assertIn(line, done.stdout)
        done = self.execute('ibstatus', user=user)
        self.assertIn("Infiniband device 'roci0' port 1 status:", done.stdout)
        self.assertIn('100 Gb/sec (4X EDR)', done.stdout)

    @as_each_user
    def test_everything_else_stays_visible(self, user):
        script = 'ls /dev /sys/class /etc/libibverbs.d; cat /sys/class/net/lo/ifindex; echo x > /dev/null; test -r /dev/zero'
        before = subprocess.run(['sh', '-c', script], capture_output=True, text=True, check=True).stdout.split()
        after = self.shell(script, user=user).split()
        added = {'infiniband', 'infiniband_verbs', 'roci.driver'}
        self.assertEqual([name for name in after if name not in added], [name for name in before if name not in added])

    @as_each_user
    def test_nodes_fail_all_writes(self, user):
        self.assertEqual(self.shell('stat -c %t:%T /dev/infiniband/uverbs0; cat /sys/class/infiniband_verbs/uverbs0/dev',
                                    user=user).split(), ['1:7', '1:7'])
        done = self.execute('sh', '-c', 'echo x | tee /dev/infiniband/uverbs1', user=user)
        self.assertIn('No space left', done.stderr)

    @as_each_user
    def test_exit_status_and_signals_are_the_programs(self, user):
        self.assertEqual(self.execute('sh', '-c', 'exit 7', user=user).returncode, 7)
        self.assertEqual(self.execute('sh', '-c', 'kill -9 $$', user=user).returncode, -signal.SIGKILL)
        self.assertEqual(self.execute('no-such-program', user=user, env={'PATH': '/usr/bin'}).returncode, 127)
        refused = self.execute('/etc/passwd', user=user)
        self.assertEqual(refused.returncode, 126)
        self.assertIn('not executable for this user', refused.stderr)

    def test_the_program_replaces_the_launcher(self):
        process = subprocess.Popen(self.run_command('sh', '-c', 'echo $$ $PPID'), stdout=subprocess.PIPE, text=True)
        output, _ = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(output.split(), [str(process.pid), str(os.getpid())])

    @as_each_user
    def test_identity_directory_descriptors_and_privileges_stay(self, user):
        script = 'id -u; id -g; pwd; ls /proc/self/fd; grep ^Cap /proc/self/status; grep NoNewPrivs /proc/self/status'
        identity = {} if user is None else {'user': user.pw_uid, 'group': user.pw_gid, 'extra_groups': []}
        with tempfile.TemporaryDirectory() as place, open('/etc/passwd', encoding='ascii') as file:
            os.chmod(place, 0o711)  # not readable, but user nobody may use it as working directory
            same = {'cwd': place, 'pass_fds': (file.fileno(),)}
            before = subprocess.run(['sh', '-c', script], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                    check=True, **same, **identity).stdout
            self.assertEqual(self.shell(script, user=user, **same), before)

    @unittest.skipUnless(IS_ROOT, 'needs root to prepare')
    def test_a_directory_that_the_user_cannot_enter_stays_the_working_directory(self):
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o700)
            # The process enters the directory before it changes its user ID.
            done = self.execute('pwd', cwd=place, user=pwd.getpwnam('nobody'))
            self.assertEqual(done.stdout.strip(), place, done.stderr)

    @as_each_user
    def test_runs_nest(self, user):
        listing = self.execute(*self.run_command(*self.run_command('ibv_devices')), user=user)
        self.assertEqual(listing.returncode, 0, listing.stderr)
        self.assertIn('roci1', listing.stdout)
        inner = self.run_command('sh', '-c', 'echo /dev/infiniband/* /sys/class/infiniband/*')
        self.assertEqual(self.execute(*inner, user=user).stdout.split(), [
            '/dev/infiniband/uverbs0', '/dev/infiniband/uverbs1', '/sys/class/infiniband/roci0',
            '/sys/class/infiniband/roci1'])

    def test_an_inner_run_shows_its_own_daemon_alone(self):
        other_dir = os.path.join(self.directory, 'other')
        other = Server(other_dir)
        self.addCleanup(other.stop)
        self.assertEqual(other.obey('remove roci0'), 'ok')
        inner = [self.roci, 'run', '--runtime-dir', other_dir, '--plugin', self.plugin, 'sh', '-c',
                 'echo /sys/class/infiniband/* /sys/class/infiniband_verbs/u* /dev/infiniband/*; echo $ROCI_RUNTIME_DIR']
        self.assertEqual(self.execute(*inner).stdout.split(), [
            '/sys/class/infiniband/roci1', '/sys/class/infiniband_verbs/uverbs1', '/dev/infiniband/uverbs1', other_dir])

    @as_each_user
    def test_values_are_live(self, user):
        identity = {} if user is None else {'user': user.pw_uid, 'group': user.pw_gid, 'extra_groups': []}
        with subprocess.Popen(self.run_command('sh'), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd='/',
                              **identity) as shell:
            def ask(command, shell=shell):
                shell.stdin.write(command + '\n')
                shell.stdin.flush()
                return shell.stdout.readline().strip()

            port = '/sys/class/infiniband/roci0/ports/1/'
            for value in (5, 123456, 7):
                self.assertEqual(self.server.obey(f'count port_xmit_data {value}'), 'ok')
                self.assertEqual(ask(f'cat {port}counters/port_xmit_data'), str(value))
            self.assertEqual(self.server.obey('down'), 'ok')
            self.assertEqual(ask(f'cat {port}state'), '1: DOWN')
            self.assertEqual(self.server.obey('up'), 'ok')
            self.assertEqual(self.server.obey('gid 3'), 'ok')
            self.assertEqual(ask(f'ls {port}gids | wc -l'), '3')
            self.assertEqual(self.server.obey('gid 2'), 'ok')
            # The same namespace shows a daemon started after a crash.
            self.server.crash()
            self.server.start()
            self.assertEqual(ask(f'cat {port}counters/port_xmit_data'), '0')
            self.assertEqual(ask("ibv_devices | grep -c roci"), '2')
            shell.stdin.close()

    def test_options_end_at_the_program(self):
        for command in (['echo', '--verbose', '-v', '--', 'x'], ['--', 'echo', '--verbose', '-v', '--', 'x']):
            self.assertEqual(self.execute(*command, options=()).stdout, '--verbose -v -- x\n')

    def test_verbose_says_which_way(self):
        done = self.execute('true', options=('-v',))
        self.assertEqual(done.stderr.count('\n'), 1)
        self.assertIn('mount namespace', done.stderr)
        self.assertEqual(self.execute('true', options=()).stderr, '')

    def test_nothing_leaks_into_the_callers_namespace(self):
        with open('/proc/self/mounts', encoding='utf-8') as mounts:
            before = mounts.read()
        self.assert_devices_are_shown()
        with open('/proc/self/mounts', encoding='utf-8') as mounts:
            self.assertEqual(mounts.read(), before)

    @unittest.skipUnless(IS_ROOT, 'needs root to prepare')
    def test_a_root_without_sys_admin_gains_no_capability(self):
        less = ('setpriv', '--bounding-set', '-sys_admin,-net_admin')
        bounding = subprocess.run([*less, 'grep', 'CapBnd', '/proc/self/status'], capture_output=True, text=True, check=True).stdout
        self.assertEqual(self.shell('grep CapBnd /proc/self/status', prefix=less), bounding)
        self.assert_devices_are_shown(prefix=less)


class KernelDevicesTest(RunTest):
    """Beside simulated devices of the kernel, from an outer mount namespace."""

    PREPARE = '''
        mount -t tmpfs kernel /sys/class
        mkdir -p /sys/class/infiniband/kern0/ports /sys/class/infiniband_verbs/uverbs7 /sys/class/net
        echo 6 > /sys/class/infiniband_verbs/abi_version
        echo kern0 > /sys/class/infiniband_verbs/uverbs7/ibdev
        mount -t tmpfs kernel /dev
        mknod -m 666 /dev/full c 1 7; mknod -m 666 /dev/null c 1 3
        mkdir /dev/infiniband; mknod /dev/infiniband/uverbs7 c 1 3; mknod /dev/infiniband/rdma_cm c 1 3
        exec "$@"
    '''
    server_options = ('--rdma-cm',)

    @unittest.skipUnless(IS_ROOT, 'needs root to prepare')
    def test_they_stay_visible(self):
        script = 'cd /sys/class; echo infiniband/* infiniband_verbs/* /dev/infiniband/*; cat infiniband_verbs/*/ibdev; ls misc'
        around = ('unshare', '-m', 'sh', '-ec', self.PREPARE, 'sh')
        done = self.execute('sh', '-c', script, prefix=around)
        expected = ['infiniband/kern0', 'infiniband/roci0', 'infiniband/roci1', 'infiniband_verbs/abi_version',
                    'infiniband_verbs/uverbs0', 'infiniband_verbs/uverbs1', 'infiniband_verbs/uverbs7',
                    '/dev/infiniband/rdma_cm', '/dev/infiniband/uverbs0', '/dev/infiniband/uverbs1',
                    '/dev/infiniband/uverbs7', 'roci0', 'roci1', 'kern0']
        self.assertEqual(done.stdout.split(), expected, done.stderr)
        nested = self.execute(*self.run_command('sh', '-c', script), prefix=around)
        self.assertEqual(nested.stdout.split(), expected, nested.stderr)


class ConnectionManagerTest(RunTest):
    server_options = ('--rdma-cm',)

    def test_its_device_is_shown(self):
        for user in users():
            found = self.shell('cat /sys/class/misc/rdma_cm/abi_version /sys/class/misc/rdma_cm/dev;'
                               'stat -c %t:%T /dev/infiniband/rdma_cm; ls /sys/class/misc | wc -l', user=user).split()
            self.assertEqual(found[:3], ['4', '1:7', '1:7'])
            self.assertEqual(int(found[3]), len(set(os.listdir('/sys/class/misc')) | {'rdma_cm'}))


class FallbackTest(RunTest):
    """Without a mount namespace: by environment variables."""

    # A user namespace that forbids nested ones, without CAP_SYS_ADMIN.
    REFUSE = 'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set -sys_admin "$@"'
    CONFINED = ('unshare', '-Ur', 'sh', '-ec', REFUSE, 'sh')

    def test_libibverbs_finds_the_devices(self):
        for user in users():
            self.assert_libibverbs_lists(['roci0', 'roci1'], options=('--no-namespace',), user=user)

    def test_it_is_the_fallback_if_namespaces_are_refused(self):
        self.assert_libibverbs_lists(['roci0', 'roci1'], options=(), prefix=self.CONFINED)
        done = self.execute('printenv', 'SYSFS_PATH', options=('-v',), prefix=self.CONFINED)
        self.assertEqual(done.stdout.strip(), self.runtime_dir + '/sysfs')
        self.assertEqual(done.stderr.count('\n'), 1)
        self.assertIn('falling back to SYSFS_PATH', done.stderr)

    def test_it_can_be_forbidden(self):
        done = self.execute('true', options=('--require-namespace',), prefix=self.CONFINED)
        self.assertEqual(done.returncode, 125)
        self.assertIn('refused', done.stderr)

    def test_a_namespace_within_it_works(self):
        inner = self.run_command('ibv_devices', options=('--require-namespace',))
        self.assert_libibverbs_lists(['roci0', 'roci1'], *inner, options=('--no-namespace',))

    def test_a_plugin_path_that_variables_cannot_hold_is_refused(self):
        place = os.path.join(self.directory, 'a b')
        os.mkdir(place)
        self.plugin = shutil.copy(self.plugin, place)
        shutil.copy(os.path.join(self.directory, 'libroci-preload.so'), place)
        done = self.execute('true', options=('--no-namespace',))
        self.assertEqual(done.returncode, 125)
        self.assertIn('free of spaces', done.stderr)


    def test_an_inner_run_replaces_the_outer_ones_variables(self):
        script = 'echo $LD_PRELOAD; echo $RDMAV_DRIVERS'
        plain = ('--no-netlink',)  # which preloads another library
        done = self.execute(*self.run_command('sh', '-c', script, options=('--no-namespace', *plain)), options=('--no-namespace', *plain),
                            env={**os.environ, 'LD_PRELOAD': 'libc.so.6', 'RDMAV_DRIVERS': '/none/libother'})
        self.assertEqual(done.stdout.split(), [f'{self.directory}/libroci-preload.so:libc.so.6', f'{self.directory}/libroci:/none/libother'],
                         done.stderr)
        done = self.execute(*self.run_command('sh', '-c', script, options=plain), options=('--no-namespace', *plain))
        self.assertEqual(done.stdout.split(), [], done.stderr)


class LibibverbsTest(RunTest):
    """Programs with a libibverbs of their own: it gets the plugin of its generation, or the user is told."""

    WAYS = (('--require-namespace',), ('--no-namespace',))
    BUILT = os.path.dirname(TREE_SERVER)

    def setUp(self):
        super().setUp()
        os.mkdir(os.path.join(self.directory, 'lib'))
        for name in ('library_user', 'library_user_rpath', 'library_user_runpath', 'library_opener'):
            setattr(self, name, shutil.copy(os.path.join(self.BUILT, name), self.directory))

    def give_libibverbs(self, release):
        """The programs' own libibverbs is that of a release of rdma-core."""
        shutil.copy(os.path.join(self.BUILT, f'libibverbs.so.1.of-{release}.so'), os.path.join(self.directory, 'lib/libibverbs.so.1'))

    def give_plugin(self, number):
        shutil.copy(os.path.join(os.path.dirname(PLUGIN), f'libroci-rdmav{number}.so'), self.directory)

    def assert_refused(self, *command, said, **arguments):
        for options in self.WAYS:
            done = self.execute(*command, options=options, **arguments)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count('\n')), (125, '', 1), done.stderr)
            for text in said:
                self.assertIn(text, done.stderr)

    def assert_has(self, *command, number, **arguments):
        """Without a namespace the program has the plugin of the number; with one, `roci run` names the number."""
        done = self.execute(*command, options=('--no-namespace',), **arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line for line in done.stdout.split() if 'rdmav' in line], [f'libroci-rdmav{number}.so'])
        done = self.execute(*command, options=('--require-namespace', '-v'), **arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f'/libibverbs.so.1 (private ABI {number})', done.stderr)

    def test_the_search_path_in_the_program_counts(self):
        self.give_libibverbs(65)
        self.give_plugin(65)
        self.assert_has(self.library_user_rpath, number=65)
        self.assert_has(self.library_user_runpath, number=65)

    def test_without_one_it_is_the_systems(self):
        self.give_libibverbs(65)
        self.give_plugin(65)
        self.assert_has(self.library_user, number=34)

    def test_the_search_path_in_the_environment_counts(self):
        self.give_libibverbs(58)
        self.give_plugin(57)
        self.assert_has(self.library_user, number=57, env={**os.environ, 'LD_LIBRARY_PATH': self.directory + '/lib'})

    def test_both_layouts_of_59(self):
        self.give_plugin(59)
        for release in (61, 62):
            self.give_libibverbs(release)
            self.assert_has(self.library_user_runpath, number=59)

    def test_scripts_count_as_their_interpreter(self):
        self.give_libibverbs(64)
        self.give_plugin(64)
        script = os.path.join(self.directory, 'script')
        outer = os.path.join(self.directory, 'outer')
        for line in (self.library_user_runpath, '/usr/bin/env library_user_runpath', '/usr/bin/env -S A=1 library_user_runpath'):
            with open(script, 'w', encoding='ascii') as file:
                file.write(f'#!{line}\n')
            with open(outer, 'w', encoding='ascii') as file:
                file.write(f'#! {script} x\n')
            os.chmod(script, 0o755)
            os.chmod(outer, 0o755)
            for name in ('script', 'outer', script):
                self.assert_has(name, number=64, env={**os.environ, 'PATH': f'{self.directory}:{os.environ["PATH"]}'})

    def test_a_generation_without_a_plugin_is_refused(self):
        self.give_libibverbs(65)
        library = f'{self.directory}/lib/libibverbs.so.1'
        for program in (self.library_user_rpath, self.library_user_runpath):
            self.assert_refused(program, said=('no plugin for ' + library, 'private ABI 65, IBVERBS_1.18', program, 'private ABIs 34'))

    def test_a_number_with_an_unknown_layout_is_refused(self):
        for release, said in ((35, 'private ABI 34, IBVERBS_1.13'), (66, 'private ABI 65, IBVERBS_1.19')):
            self.give_libibverbs(release)
            self.give_plugin(65)
            self.assert_refused(self.library_user_runpath, said=(said,))

    def test_a_child_gets_the_plugin_of_its_own_libibverbs(self):
        self.give_libibverbs(65)
        self.give_plugin(65)
        done = self.execute('sh', '-c', f'{self.library_user}; echo; {self.library_user_runpath}', options=('--no-namespace',))
        plugins = [line for line in done.stdout.split() if 'rdmav' in line]
        self.assertEqual(plugins, ['libroci-rdmav34.so', 'libroci-rdmav65.so'], done.stderr)

    def test_a_child_without_a_fitting_plugin_runs_without_one(self):
        self.give_libibverbs(66)
        self.give_plugin(65)
        done = self.execute('sh', '-c', self.library_user_runpath, options=('--no-namespace',))
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        os.unlink(os.path.join(self.directory, 'libroci-rdmav65.so'))
        done = self.execute('sh', '-c', self.library_user_runpath, options=('--no-namespace',))
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertNotIn('rdmav', done.stdout)

    def test_a_program_that_loads_libibverbs_later(self):
        self.give_libibverbs(65)
        self.give_plugin(65)
        done = self.execute(self.library_opener, options=('--no-namespace',))
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertIn('libroci-rdmav65.so', done.stdout.split())
        # The plugin is missing: the program may do without devices.
        os.unlink(os.path.join(self.directory, 'libroci-rdmav65.so'))
        for options in self.WAYS:
            done = self.execute(self.library_opener, options=options)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn('rdmav', done.stdout)
            self.assertIn('find no devices', done.stderr)

    def test_programs_without_libibverbs_load_none(self):
        done = self.execute('cat', '/proc/self/maps', options=('--no-namespace',))
        self.assertIn('libroci-preload.so', done.stdout)
        self.assertNotIn('libibverbs', done.stdout)
        self.assertNotIn('rdmav', done.stdout)

    def test_a_static_libibverbs_is_refused(self):
        program = os.path.join(self.BUILT, 'static_user')
        if not os.path.exists(program):
            self.skipTest('this system has no static libibverbs')
        self.assert_refused(shutil.copy(program, self.directory), said=('statically linked with libibverbs', 'shared library'))

    @unittest.skipUnless(IS_ROOT, 'needs root to prepare')
    def test_a_set_user_id_program_gets_no_environment(self):
        nobody = pwd.getpwnam('nobody')
        program = shutil.copy(shutil.which('printenv'), os.path.join(self.directory, 'printenv'))
        os.chmod(program, 0o4755)
        done = self.execute(program, 'HOME', options=('--no-namespace',), user=nobody)
        self.assertEqual((done.returncode, done.stdout), (125, ''))
        self.assertIn('set-user-ID', done.stderr)
        # In the user namespace of an ordinary user it has no privileges.
        done = self.execute(program, options=('--require-namespace',), user=nobody)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('without these privileges', done.stderr)
        for name in ('ROCI_RUNTIME_DIR', 'LD_PRELOAD', 'RDMAV_DRIVERS', 'SYSFS_PATH'):
            self.assertNotIn(name, done.stdout)
        # Root's own program, and one of another user in root's namespace.
        self.assertIn('ROCI_RUNTIME_DIR', self.execute(program).stdout)
        os.chown(program, nobody.pw_uid, nobody.pw_gid)
        os.chmod(program, 0o4755)
        done = self.execute(program)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertNotIn('ROCI_RUNTIME_DIR', done.stdout)


class ErrorTest(RunTest):

    def test_no_daemon(self):
        self.runtime_dir = os.path.join(self.directory, 'empty')
        done = self.execute('true')
        self.assertEqual(done.returncode, 125)
        self.assertIn('no daemon is running', done.stderr)
        self.assertIn('start rocid', done.stderr)
        self.assertIn('`roci doctor`', done.stderr)
        self.assertEqual(done.stderr.count('\n'), 1)

    def test_a_dead_daemons_socket(self):
        self.server.crash()
        done = self.execute('true')
        self.server.start()
        self.assertEqual(done.returncode, 125)
        self.assertIn('no daemon is running', done.stderr)

    def test_no_plugin(self):
        self.plugin = '/nowhere/libroci-rdmav34.so'
        done = self.execute('true')
        self.assertEqual(done.returncode, 125)
        self.assertIn('cannot read the plugin', done.stderr)

    def test_usage(self):
        self.assertEqual(subprocess.run([self.roci, 'run'], capture_output=True, check=False).returncode, 2)
        self.assertEqual(subprocess.run([self.roci, 'no-such'], capture_output=True, check=False).returncode, 2)
        self.assertEqual(subprocess.run([self.roci, 'run', '--help'], capture_output=True, check=False).returncode, 0)

    def test_the_runtime_directory_of_the_environment(self):
        done = subprocess.run([self.roci, 'run', '--plugin', self.plugin, 'printenv', 'ROCI_RUNTIME_DIR'], capture_output=True,
                              text=True, check=False, env={**os.environ, 'ROCI_RUNTIME_DIR': self.runtime_dir})
        self.assertEqual(done.stdout.strip(), self.runtime_dir, done.stderr)


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
