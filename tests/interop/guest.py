"""A Linux guest with soft-RoCE in QEMU's software emulation, and programs in the guest."""
import itertools
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time

from harness import await_

HERE = pathlib.Path(__file__).resolve().parent
# Of one attempt after the other. Usually 10 to 60 s; QEMU 7.2 rarely stands still before the kernel's first message, or the
# guest's clock runs wrong.
BOOT_LIMITS_S = (100, 200, 300)
NO_NETWORK = ['-nic', 'none']
OOPS = re.compile(r'BUG: |Oops: |general protection fault')


class Unavailable(Exception):
    """The machine cannot run a guest. The text says why."""


def make_image(folder):
    """Creates the kernel and initrd that guests boot in `folder`, unless they exist."""
    if shutil.which('qemu-system-x86_64') is None:
        raise Unavailable('qemu-system-x86_64 is not installed')
    done = subprocess.run([HERE / 'make_guest.sh', folder], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 77:
        raise Unavailable(done.stderr.strip().splitlines()[-1])  # TAP requires one line
    if done.returncode != 0:
        raise RuntimeError(f'make_guest.sh: {done.stderr}')


class Job:
    """A shell command in the guest."""

    def __init__(self, guest, name, command):
        self.guest, self.name, self.command = guest, name, command
        self.file = guest.share / 'output' / name
        self.file.touch()
        (guest.share / 'commands' / f'{name}.sh').write_text(command + '\n', encoding='utf-8')
        guest.agent.send(f'run {name}')

    def output(self):
        return self.file.read_text(encoding='utf-8', errors='replace')

    def status(self):
        """The exit status, or None while it runs."""
        return self.guest.agent.statuses().get(self.name)

    def wait(self, limit_s):
        """Returns the exit status, or None if the command was not done in time and was killed."""
        if await_(lambda: self.status() is not None or not self.guest.alive(), limit_s):
            return self.status()
        self.kill()
        return None

    def kill(self):
        """Kills the command and waits until it has ended."""
        if self.status() is None:
            self.guest.agent.send(f'end {self.name}')
            await_(lambda: self.status() is not None or not self.guest.alive())


class Agent:
    """The host's end of the serial port of guest_agent.sh. Any thread."""

    def __init__(self, port):
        port.setblocking(False)
        self.port = port
        self.lock = threading.Lock()
        self.unread = ''
        self.known = {}

    def send(self, order):
        try:
            self.port.sendall(f'{order}\n'.encode('ascii'))
        except OSError:
            pass  # the guest has ended, which the callers notice

    def statuses(self):
        """The exit statuses so far, by the name of the job."""
        with self.lock:
            try:
                self.unread += self.port.recv(65536).decode('ascii', errors='replace')
            except OSError:
                pass  # nothing new, or the guest has ended
            *lines, self.unread = self.unread.split('\n')
            self.known.update((name, int(status)) for name, status in map(str.split, lines))
            return self.known


def boots(image):
    """Whether a guest without a network boots on this machine."""
    try:
        Guest(image, NO_NETWORK).stop()
    except Unavailable:
        return False
    return True


class Guest:
    """A guest that runs until stop(). `prefix` precedes QEMU's command (to enter a network namespace). `network` are QEMU's
    network options. `kernel` is added to the kernel's command line. `shared_memory`: vhost-user processes can map the memory."""

    def __init__(self, image, network, prefix=(), memory_mib=512, kernel='', shared_memory=False):
        self.folder = tempfile.TemporaryDirectory(prefix='roci-guest.')
        self.share = pathlib.Path(self.folder.name) / 'share'
        for folder in ('commands', 'output'):
            (self.share / folder).mkdir(parents=True)
        shutil.copy(HERE / 'guest_agent.sh', self.share)
        self.console = pathlib.Path(self.folder.name) / 'console'
        self.jobs = itertools.count(1)  # atomic: several threads may start jobs
        kernel = ('console=ttyS0 panic=-1 quiet mitigations=off nokaslr tsc=reliable random.trust_cpu=on net.ifnames=0 '
                  f'no_timer_check {kernel}')
        memory = ['-m', str(memory_mib)]
        if shared_memory:
            memory += ['-object', f'memory-backend-memfd,id=memory,size={memory_mib}M,share=on',
                       '-machine', 'memory-backend=memory']
        command = [*prefix, 'qemu-system-x86_64', '-machine', 'q35', '-accel', 'tcg,thread=multi', '-cpu', 'max', '-smp', '2',
                   *memory, '-display', 'none', '-no-reboot', '-nodefaults', '-serial', f'file:{self.console}',
                   '-kernel', f'{image}/vmlinuz', '-initrd', f'{image}/initrd', '-append', kernel,
                   '-virtfs', 'local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap',
                   '-virtfs', f'local,path={self.share},mount_tag=host,security_model=none',
                   '-object', 'rng-random,filename=/dev/urandom,id=rng', '-device', 'virtio-rng-pci,rng=rng', *network]
        for limit_s in BOOT_LIMITS_S:
            seconds = self.boot(command, limit_s)
            if seconds is not None and self.uptime() <= seconds:
                return
            self.end()
        if seconds is None:
            self.give_up(image, network)
        self.folder.cleanup()
        raise RuntimeError(f'the clock of the guest runs too fast, {len(BOOT_LIMITS_S)} times in a row')

    def boot(self, command, limit_s):
        """Starts QEMU and waits for the guest. Returns the seconds that it took; None: it does not come up."""
        (self.share / 'ready').unlink(missing_ok=True)
        begin = time.monotonic()
        ours, theirs = socket.socketpair()
        self.agent = Agent(ours)
        with theirs:
            serial = ['-chardev', f'socket,id=agent,fd={theirs.fileno()}', '-serial', 'chardev:agent']
            self.process = subprocess.Popen([*command, *serial], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=subprocess.STDOUT, text=True, pass_fds=[theirs.fileno()])
        await_(lambda: (self.share / 'ready').exists() or not self.alive(), limit_s)
        return time.monotonic() - begin if self.alive() and (self.share / 'ready').exists() else None

    def uptime(self):
        """Seconds since the guest's start by its own clock, when it was ready. On a busy machine Linux may take its emulated
        processor for a much slower one than it is; its seconds are shorter then, and programs in it run out of time."""
        return float((self.share / 'ready').read_text(encoding='ascii').split()[0])

    def give_up(self, image, network):
        said = self.console_text()
        self.folder.cleanup()
        last = ' '.join(f'{said}\n{self.last_output}'.split()[-30:])
        if network != NO_NETWORK and boots(image):
            raise RuntimeError(f'the guest comes up without its network, but not with {" ".join(network)}; it said last: {last}')
        raise Unavailable(f'QEMU does not bring the guest up here within {BOOT_LIMITS_S[-1]} s; it said last: {last}')

    def alive(self):
        return self.process.poll() is None

    def console_text(self):
        return self.console.read_text(encoding='utf-8', errors='replace') if self.console.exists() else ''

    def crash_of(self, module):
        """What the kernel says of its crash in `module`: from the first oops on; '' if it has not crashed, or elsewhere."""
        before, panics, after = self.console_text().partition('Kernel panic')
        begins = [match.start() for match in OOPS.finditer(before)]
        if not panics or not begins:
            return ''
        last = before[begins[-1]:]
        at = re.search(r'RIP: \S+ .*', last) or re.search(r'RIP: .*', last)
        return before[begins[0]:] + panics + after if at and f'[{module}]' in at.group() else ''

    def start(self, command):
        return Job(self, str(next(self.jobs)), command)

    def run(self, command, limit_s=60):
        """Returns the output of the command. Raises RuntimeError if it fails."""
        job = self.start(command)
        status = job.wait(limit_s)
        if status != 0:
            raise RuntimeError(f'guest: {command}: exit status {status}\n{job.output()}')
        return job.output()

    def end(self):
        """Ends QEMU."""
        if self.alive():
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.last_output, _ = self.process.communicate()
        self.agent.port.close()

    def stop(self):
        self.end()
        self.folder.cleanup()
