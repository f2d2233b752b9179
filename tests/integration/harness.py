"""Common parts of tests with whole programs: a daemon with its own runtime directory, and programs that use its devices."""
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

DEBIAN_PYTHON = '/usr/bin/python3'  # which has pyverbs and scapy
# Generous limits for events that never happen. A busy machine takes ten times as long as an idle one.
LIMIT_S = 180
START_LIMIT_S = 120
# Programs that need no privilege lie here, too (ibstat, mkfs.ext4), but Debian's PATH of ordinary users lacks the folders.
os.environ['PATH'] += ':/usr/sbin:/sbin'


class Programs:
    """The built programs. `copied` puts them where any user may run them: the build folder may be inside a private one."""

    def __init__(self, roci, rocid, plugin, copied=False):
        paths = [os.path.abspath(path) for path in (roci, rocid, plugin)]
        self.folder = None
        if copied:
            self.folder = tempfile.mkdtemp(prefix='roci-programs.')
            os.chmod(self.folder, 0o755)
            # `roci run` preloads libraries from the plugin's folder.
            for name in ('libroci-preload.so', 'libroci-netlink.so'):
                shutil.copy(os.path.join(os.path.dirname(paths[2]), name), self.folder)
            paths = [shutil.copy(path, self.folder) for path in paths]
        # Beside the other programs of the build.
        self.xrc_files = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(roci))), 'tests/integration/libxrc_files.so')
        self.xrc_folder = None
        self.roci, self.rocid, self.plugin = paths

    def remove(self):
        if self.folder:
            shutil.rmtree(self.folder)

    def environment(self, command):
        """What a program needs in addition, by its command. Those with XRC open files of fixed names in /tmp: in a folder of the
        test instead, as they leave them, and cannot open those of another user."""
        if 'XRC' not in command and 'ibv_xsrq_pingpong' not in command:
            return {}
        self.xrc_folder = self.xrc_folder or tempfile.TemporaryDirectory(prefix='roci-xrc.')
        return {'env': {**os.environ, 'LD_PRELOAD': self.xrc_files, 'ROCI_TEST_XRC_FOLDER': self.xrc_folder.name}}


def free_port():
    """A TCP port without a listener."""
    with socket.socket() as probe:
        probe.bind(('', 0))
        return probe.getsockname()[1]


def listening(port):
    """Whether the TCP port has a listener. Does not connect: the programs accept one connection only."""
    wanted = f':{port:04X}'
    for table in ('/proc/net/tcp', '/proc/net/tcp6'):
        with open(table, encoding='ascii') as rows:
            for row in rows:
                fields = row.split()
                if fields[1].endswith(wanted) and fields[3] == '0A':
                    return True
    return False


def require_network_namespaces():
    """Raises SkipTest unless this process may create network namespaces. (A network that cannot be made in one is a failure.)"""
    probe = subprocess.run(['unshare', '--net', '--mount', 'true'], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        raise unittest.SkipTest(f'needs a network namespace, which only root may create: {probe.stderr.strip()}')


def await_(condition, timeout_s=120):
    """Waits until `condition` is true; False after a timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def stop(process):
    """Stops a child with all its threads (SIGSTOP). On a busy machine they run on for a while after the signal alone."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


def cpu_s(pid):
    """Processor time that a process has used, seconds."""
    with open(f'/proc/{pid}/stat', encoding='ascii') as stat:
        fields = stat.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def members(daemon):
    """The number of mckey processes that wait for messages to a group: an address handle shows that they have joined."""
    return sum(device['ahs']['used'] for device in daemon.show('devices'))


# The last words of rping if it ends as late as its peer: its thread asks for events after the main thread has destroyed their
# channel. It happens on any device.
RPING_RACE = 'DISCONNECT EVENT...\nrdma_get_cm_event: Bad file descriptor\n'


def ended_well(status, said):
    """Whether a program succeeded, by its exit status and output."""
    return status == 0 or (status == 255 and RPING_RACE in said)


def as_user(user):
    """Arguments of Popen to run a program as `user` (a name; None: the current user)."""
    if not user:
        return {}
    entry = pwd.getpwnam(user)
    return {'user': entry.pw_uid, 'group': entry.pw_gid, 'extra_groups': []}


class Daemon:
    """rocid in a temporary runtime directory. `user` runs it; `config` is text for --config."""

    def __init__(self, programs, arguments=(), user=None, config=None, runtime_dir=None, prefix=()):
        self.programs = programs
        self.user = user  # user of the programs
        self.own_dir = runtime_dir is None
        self.runtime_dir = runtime_dir or tempfile.mkdtemp(prefix='roci-daemon.')
        if self.own_dir:
            os.chmod(self.runtime_dir, 0o755)
            if user:
                shutil.chown(self.runtime_dir, user)
        # (Outside of the runtime directory, which belongs to the daemon.)
        self.log = tempfile.NamedTemporaryFile('w+', prefix='roci-log.')
        command = [*prefix, programs.rocid, '--runtime-dir', self.runtime_dir, *arguments]
        if config is not None:
            self.config = tempfile.NamedTemporaryFile('w', prefix='roci-config.', suffix='.toml')
            self.config.write(config)
            self.config.flush()
            os.chmod(self.config.name, 0o644)
            command += ['--config', self.config.name]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
                                        **as_user(user))
        self.ready = await_(lambda: 'rocid: ready\n' in self.output() or self.process.poll() is not None,
                            START_LIMIT_S) and self.process.poll() is None
        if not self.ready:
            self.stop()
            raise RuntimeError('the daemon did not start:\n' + self.last_output)

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def at(self, _end):
        """The daemon at an end of the wire; here one daemon has both ends (two_ends.py has two)."""
        return self

    def output(self):
        with open(self.log.name, encoding='utf-8', errors='replace') as log:
            return log.read()

    def command(self, *command):
        return [self.programs.roci, 'run', '--runtime-dir', self.runtime_dir, '--plugin', self.programs.plugin, *command]

    def start(self, *command, **options):
        """Starts a program with the daemon's devices."""
        return subprocess.Popen(self.command(*command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors='replace', **as_user(self.user),
                                **{**self.programs.environment(command), **options})

    def roci(self, *arguments):
        """Runs a command of `roci`, which may fail."""
        return subprocess.run([self.programs.roci, '--runtime-dir', self.runtime_dir, *arguments], capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)

    def show(self, what):
        done = subprocess.run([self.programs.roci, '--runtime-dir', self.runtime_dir, 'show', '--json', '--timeout', str(LIMIT_S), what],
                              capture_output=True, text=True, timeout=LIMIT_S, check=True)
        return json.loads(done.stdout)

    def descriptors(self):
        return len(os.listdir(f'/proc/{self.pid}/fd'))

    def mappings(self):
        """The number of its mappings of files (memfds too), and of its anonymous ones."""
        with open(f'/proc/{self.pid}/maps', encoding='utf-8') as maps:
            of_files = ['/' in line for line in maps]
        return sum(of_files), len(of_files) - sum(of_files)

    def cpu_s(self):
        return cpu_s(self.pid)

    def stop(self):
        """Sends SIGTERM and returns the exit status. May be called repeatedly."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if not self.log.closed:
            self.last_output = self.output()
            self.log.close()
            if self.own_dir:
                shutil.rmtree(self.runtime_dir, True)
        return self.process.returncode


def outcome(role, process, limit_s):
    """The error of one side of a pair, or ''."""
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        return f'{role}: not done in {limit_s} s\n{output}'
    if process.returncode != 0 or 'invalid data' in output:
        return f'{role}: exit status {process.returncode}\n{output}'
    return ''


class Pair:
    """A server and a client of the same program, which connect through a TCP port of this machine."""

    def __init__(self, daemon, devices, command):
        self.daemon = daemon
        self.port = free_port()
        self.client_command = self.on(devices[1], command) + ['127.0.0.1']
        self.server = daemon.start(*self.on(devices[0], command))
        self.client = None

    def on(self, device, command):
        return [command[0], '-d', device, '-p', str(self.port), *command[1:]]

    def connect(self):
        await_(lambda: listening(self.port) or self.server.poll() is not None)
        return self.connect_client()

    def connect_client(self):
        self.client = self.daemon.start(*self.client_command)
        return self

    def result(self, limit_s=LIMIT_S):
        """The error, or ''."""
        return outcome('client', self.client, limit_s) + outcome('server', self.server, limit_s)

    def kill(self):
        for process in (self.server, self.client):
            if process is None:
                continue
            if process.poll() is None:
                process.kill()
            if not process.stdout.closed:
                process.communicate()
