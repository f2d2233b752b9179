"""A minimal Debian system in a folder, unpacked from an archive of make_system.sh."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77  # exit status of make_system.sh
MAKE_LIMIT_S = 1000
UNPACK_LIMIT_S = 120
RUN_LIMIT_S = 900
# Both ends of a wire in one system or container, as a script of sh. The server listens when the client succeeds.
PING_PONG = """
ibv_rc_pingpong -d roci0 -g 1 -n 200 > /dev/null & server=$!
until ibv_rc_pingpong -d roci1 -g 1 -n 200 127.0.0.1; do kill -0 $server || exit 1; sleep 0.1; done
wait $server
"""
PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'


def own_release():
    """The code name of this machine's release."""
    with open('/etc/os-release', encoding='utf-8') as lines:
        return dict(line.rstrip().replace('"', '').split('=', 1) for line in lines if '=' in line)['VERSION_CODENAME']


def require(**programs):
    """Raises SkipTest unless these programs are there; the values are their packages."""
    for program, package in programs.items():
        if not shutil.which(program):
            raise unittest.SkipTest(f'needs {package} (tools/setup --add {package})')


def archive(name):
    """The path of the archive RELEASE/KIND, made if it is not there. Raises SkipTest if it cannot be had."""
    made = subprocess.run([HERE / 'make_system.sh', name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=MAKE_LIMIT_S, check=False)
    if made.returncode == SKIPPED:
        raise unittest.SkipTest(made.stderr.strip().rpartition('\n')[2])
    if made.returncode != 0:
        raise RuntimeError(made.stderr)
    return pathlib.Path(made.stdout.strip())


class System:
    """`name` is RELEASE/KIND."""

    def __init__(self, name):
        packed = archive(name)
        self.cache = packed.parent
        self.root = tempfile.mkdtemp(prefix='roci-system.')
        os.chmod(self.root, 0o755)
        try:
            subprocess.run(['tar', '-xpf', packed, '-C', self.root, '--numeric-owner', '--exclude=./dev/*'], timeout=UNPACK_LIMIT_S,
                           check=True)
        except BaseException:
            self.remove()
            raise
        # Names are resolved as on this machine.
        shutil.copy('/etc/resolv.conf', os.path.join(self.root, 'etc/resolv.conf'))

    def command(self, *command, shared=(), environment=None):
        """Arguments that run the command in the system. `shared`: folders and files of this machine that it sees at the same paths.
        `environment`: variables beside the usual ones. Those of the caller are passed on."""
        variables = {'HOME': '/root', 'PATH': PATH, 'LANG': 'C.UTF-8', **(environment or {})}
        return [str(HERE / 'enter.sh'), self.root, *map(str, shared), '--', 'env',
                *(f'{name}={value}' for name, value in variables.items()), *map(str, command)]

    def run(self, script, has_network=True):
        """Exit status and output of a script of bash in the system, which ends with its first failure. Without `has_network` it has
        interfaces of its own."""
        network = [] if has_network else ['unshare', '--net']
        command = self.command('bash', '-ec', script, environment={'DEBIAN_FRONTEND': 'noninteractive'})
        done = subprocess.run([*network, *command], env={'PATH': PATH}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors='replace', check=False, timeout=RUN_LIMIT_S)
        return done.returncode, done.stdout

    def remove(self):
        shutil.rmtree(self.root, ignore_errors=True)
