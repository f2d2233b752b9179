"""The processes of a benchmark run: the daemon, and pairs of Debian's perftest programs. All end with the run."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[3]
SERVER_DEVICE, CLIENT_DEVICE, GID_INDEX = 'roci0', 'roci1', 1


class BenchmarkError(Exception):
    """A measurement failed; the message has the reason."""


def stop(process, patience_s=5.0):
    """Ends a process that was started in a new session, with all its descendants in that session."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tail(path, lines=15):
    """The end of a log, for a message."""
    return '\n'.join(pathlib.Path(path).read_text(errors='replace').splitlines()[-lines:])


def free_port():
    """A TCP port that is currently free."""
    with socket.socket() as probe:
        probe.bind(('', 0))
        return probe.getsockname()[1]


def is_listening(port, pid='self'):
    """Whether a process listens on the port, in the network namespace of process `pid`. Does not connect, since a perftest
    server would take that for a client."""
    listening = '0A'
    for table in (f'/proc/{pid}/net/tcp', f'/proc/{pid}/net/tcp6'):
        with contextlib.suppress(OSError), open(table, encoding='ascii') as lines:
            for fields in map(str.split, lines):
                if fields[3] == listening and int(fields[1].rpartition(':')[2], 16) == port:
                    return True
    return False


@contextlib.contextmanager
def perftest_pair(server_end, client_end, program, *arguments):
    """A perftest server and its client, each at one end (Daemon, device); yields the client's process, with its output in a
    pipe."""
    (server_daemon, server_device), (client_daemon, client_device) = server_end, client_end
    port = free_port()
    common = [program, '-p', port, '-x', GID_INDEX, '-F', *arguments]
    server_log = pathlib.Path(server_daemon.scratch.name, 'server.log')
    with open(server_log, 'wb') as log:
        server = subprocess.Popen(server_daemon.command(*common, '-d', server_device), stdout=log, stderr=log, start_new_session=True)
    client = None
    try:
        deadline = time.monotonic() + 10
        while not is_listening(port):
            if server.poll() is not None or time.monotonic() > deadline:
                failure = server_daemon.describe_failure()
                raise BenchmarkError(f'the server side of {program} did not start:\n{tail(server_log)}{failure}')
            time.sleep(0.02)
        client = subprocess.Popen(client_daemon.command(*common, '-d', client_device, '127.0.0.1'), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, start_new_session=True)
        yield client
    finally:
        for process in (client, server):
            if process is not None:
                stop(process, 1.0)


def run_client(client, program, limit_s, describe_failure):
    """The complete output of the client of a pair. `describe_failure()` describes the state of the daemons."""
    try:
        output, _ = client.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(f'{program} did not end within {limit_s} s{describe_failure()}') from error
    if client.returncode != 0:
        last = '\n'.join(output.splitlines()[-15:])
        raise BenchmarkError(f'{program} failed (status {client.returncode}):\n{last}{describe_failure()}')
    return output


class Daemon:
    """A new daemon, as a context manager. Default configuration: two devices on a wire. `prefix`: prefix of its command."""

    READY_WITHIN_S = 30

    def __init__(self, build, environment=None, config=None, prefix=()):
        self.build = pathlib.Path(build)
        self.environment = {**os.environ, **(environment or {})}
        self.config = config
        self.prefix = prefix
        self.process = None
        self.ran_s = self.waited_s = 0.0

    def __enter__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix='roci-bench.', dir=os.environ.get('XDG_RUNTIME_DIR'))
        self.runtime_dir = pathlib.Path(self.scratch.name, 'run')
        self.runtime_dir.mkdir(mode=0o700)
        self.log = pathlib.Path(self.scratch.name, 'rocid.log')
        command = [*self.prefix, self.build / 'control/rocid', '--runtime-dir', self.runtime_dir]
        if self.config is not None:
            config = pathlib.Path(self.scratch.name, 'rocid.toml')
            config.write_text(self.config)
            command += ['--config', config]
        with open(self.log, 'wb') as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, start_new_session=True)
        try:
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_ready(self):
        deadline = time.monotonic() + self.READY_WITHIN_S
        while 'rocid: ready' not in self.log.read_text(errors='replace').splitlines():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f'rocid did not become ready:\n{tail(self.log)}')
            time.sleep(0.05)

    def __exit__(self, *_):
        stop(self.process)
        self.scratch.cleanup()

    @property
    def pid(self):
        return self.process.pid

    def command(self, *arguments):
        """The command line that runs a program on the daemon's devices."""
        return [str(word) for word in (self.build / 'tools/roci', '--runtime-dir', self.runtime_dir, 'run', *arguments)]

    def describe_failure(self):
        if self.process.poll() is None:
            return ''
        return f'\nrocid has ended (status {self.process.returncode}):\n{tail(self.log)}'

    def pair(self, program, *arguments):
        """perftest_pair between the daemon's two devices."""
        return perftest_pair((self, SERVER_DEVICE), (self, CLIENT_DEVICE), program, *arguments)

    def show(self, what):
        """The result of `roci show --json`."""
        shown = subprocess.run([self.build / 'tools/roci', '--runtime-dir', self.runtime_dir, 'show', '--json', what],
                               stdout=subprocess.PIPE, timeout=20, check=True).stdout
        return json.loads(shown)

    def threads(self):
        """Running time and waiting time (runnable) of each thread of the daemon, seconds: {tid: (ran, waited)}."""
        found = {}
        for task in pathlib.Path(f'/proc/{self.pid}/task').iterdir():
            with contextlib.suppress(OSError, ValueError):
                ran, waited, _ = (task / 'schedstat').read_text().split()
                found[int(task.name)] = (int(ran) * 1e-9, int(waited) * 1e-9)
        return found

    @contextlib.contextmanager
    def note_waiting(self):
        """Adds the running and waiting time of the busiest thread (the dataplane's) in the block to `ran_s` and `waited_s`."""
        before = self.threads()
        yield
        spent = [(ran - before.get(tid, (0, 0))[0], waited - before.get(tid, (0, 0))[1]) for tid, (ran, waited) in self.threads().items()]
        ran, waited = max(spent, default=(0, 0))
        self.ran_s += ran
        self.waited_s += waited

    def run_pair(self, program, *arguments, limit_s=90):
        """Runs both sides to their end; returns the client's output."""
        with self.note_waiting(), self.pair(program, *arguments) as client:
            return run_client(client, program, limit_s, self.describe_failure)

    def admit_users(self):
        """Lets programs of other users reach the daemon."""
        for folder in self.scratch.name, self.runtime_dir:
            os.chmod(folder, 0o755)

    def run_program(self, *arguments, limit_s=300):
        """Runs another program on the devices; returns its standard output. Standard error is inherited."""
        try:
            with self.note_waiting():
                run = subprocess.run(self.command(*arguments), stdout=subprocess.PIPE, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise BenchmarkError(f'{arguments[0]} did not end within {limit_s} s{self.describe_failure()}') from error
        if run.returncode != 0:
            raise BenchmarkError(f'{arguments[0]} failed (status {run.returncode}){self.describe_failure()}')
        return run.stdout
