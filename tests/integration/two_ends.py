"""Two daemons connected by a network instead of one whose devices share a wire, with the same devices and addresses."""
import os
import subprocess
import tempfile

from harness import LIMIT_S, Daemon, await_, require_network_namespaces

V4 = ('10.99.0.1', '10.99.0.2')
V6 = ('fd72:6f63:6900::1', 'fd72:6f63:6900::2')
MTU = 4200  # for path MTU 4096


def end_of(word):
    """The end whose device or address `word` contains, or None."""
    for end in (0, 1):
        if any(name in word for name in (f'roci{end}', V4[end], V6[end])):
            return end
    return None


class Memif:
    """Shared memory, by net_memif."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix='roci-ends.')
        self.prefixes = ((), ())

    def port(self, end):
        role = ('server', 'client')[end]
        return f'net_memif0,role={role},socket={self.folder.name}/memif.sock,socket-abstract=no,bsize=4608'

    def remove(self):
        self.folder.cleanup()


class Veth:
    """A veth pair between two network namespaces, by net_af_packet. Raises SkipTest for users who may not create them."""

    def __init__(self):
        self.names = tuple(f'roci-ends-{os.getpid()}-{end}' for end in 'ab')
        self.prefixes = tuple(('ip', 'netns', 'exec', name) for name in self.names)
        require_network_namespaces()
        try:
            for name in self.names:
                self.ip('netns', 'add', name)
            self.ip('link', 'add', 'roci-a', 'netns', self.names[0], 'type', 'veth', 'peer', 'name', 'roci-b', 'netns', self.names[1])
            for name, interface in zip(self.names, ('roci-a', 'roci-b')):
                self.ip('-n', name, 'link', 'set', interface, 'mtu', str(MTU), 'up')
        except BaseException:
            self.remove()
            raise

    @staticmethod
    def ip(*arguments):
        subprocess.run(['ip', *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=True)

    @staticmethod
    def port(end):
        return f'net_af_packet0,iface={("roci-a", "roci-b")[end]}'

    def remove(self):
        for name in self.names:
            subprocess.run(['ip', 'netns', 'delete', name], capture_output=True, check=False)


NETWORKS = {'memif': Memif, 'veth': Veth}


class TwoEnds:
    """As harness.Daemon, for both. Programs run at the daemon whose device they name."""

    def __init__(self, programs, kind):
        self.network = NETWORKS[kind]()
        self.last_output = ''
        self.daemons = []
        try:
            for end in (0, 1):
                self.daemons.append(Daemon(programs, config=self.config(end), prefix=self.network.prefixes[end]))
            if not await_(lambda: all(port['state'] == 'active' for port in self.show('ports'))):
                raise RuntimeError('the link does not come up')
        except BaseException:
            self.stop()
            raise

    def config(self, end):
        return (f'[[device]]\nname = "roci{end}"\nport = "{self.network.port(end)}"\nmtu = {MTU}\n'
                f'mac = "02:72:6f:63:69:0{end}"\naddresses = ["{V4[end]}/24", "{V6[end]}/64"]\n')

    def at(self, end):
        return self.daemons[end]

    def start(self, *command, **options):
        end = next((end_of(device) for option, device in zip(command, command[1:]) if option == '-d'), None)
        return self.daemons[end or 0].start(*command, **options)

    def show(self, what):
        return [row for daemon in self.daemons for row in daemon.show(what)]

    def alive(self):
        return all(daemon.alive() for daemon in self.daemons)

    def stop(self):
        """Stops both; returns the exit status of one that failed, else 0."""
        statuses = [daemon.stop() for daemon in self.daemons]
        self.last_output = '\n'.join(daemon.last_output for daemon in self.daemons)
        self.network.remove()
        return next((status for status in statuses if status != 0), 0)
