"""A minimal Debian system in a folder, made by mmdebstrap from the machine's own mirror."""
import os
import shutil
import subprocess
import sys
import unittest

LIMIT_S = 900
FIND_UNIT = 'unit=$(ls /lib/systemd/system/rocid.service /usr/lib/systemd/system/rocid.service 2>/dev/null | head -1)\n'
PING_PONG = '''
ibv_rc_pingpong -d roci0 -g 1 -n 100 & server=$!
for i in $(seq 100); do grep -q ":4855 .* 0A " /proc/net/tcp /proc/net/tcp6 && break; sleep 0.1; done
ibv_rc_pingpong -d roci1 -g 1 -n 100 127.0.0.1 && wait $server
'''  # 0x4855: port 18515; 0A: listens


def own_release():
    """The code name of this machine's release."""
    with open('/etc/os-release', encoding='utf-8') as lines:
        return dict(line.rstrip().replace('"', '').split('=', 1) for line in lines if '=' in line)['VERSION_CODENAME']


def sources(release):
    """The lines of sources.list for a release: this machine's archives of its own one, with updates; the main archive of another."""
    targets = subprocess.run(['apt-get', 'indextargets', '--format', '$(REPO_URI)|$(CODENAME)|$(COMPONENT)', 'Created-By: Packages'],
                             capture_output=True, text=True, check=True).stdout
    own = own_release()
    archives = [line.split('|')[:2] for line in targets.splitlines() if line.endswith('|main')]
    chosen = [(uri, name) for uri, name in archives if name.startswith(own)] if release == own else \
        [(uri, release) for uri, name in archives if name == own]
    return [f'deb {uri} {name} main' for uri, name in dict.fromkeys(chosen)]


def require(**programs):
    """Raises SkipTest unless these programs are there; the values are their packages."""
    if os.geteuid() != 0:
        raise unittest.SkipTest('needs root')
    for program, package in programs.items():
        if not shutil.which(program):
            raise unittest.SkipTest(f'needs {package} (tools/setup --add {package})')


class System:
    """`root`: a folder that does not exist. `packages`: installed besides the essential ones."""

    def __init__(self, root, release, packages):
        self.root = root
        subprocess.run(['mmdebstrap', '--quiet', '--variant=minbase', '--mode=root', '--aptopt=Acquire::Retries "3"',
                        '--include=' + ','.join(packages), release, root, *sources(release)], check=True, stdout=sys.stderr, timeout=LIMIT_S)
        shutil.copy('/etc/resolv.conf', root / 'etc')

    def run(self, script, has_network=True):
        """Runs a script in the system, with processes and mounts of its own, and without `has_network` with interfaces of its own.
        Returns status and output."""
        network = [] if has_network else ['--net']
        mounts = f'mount -t proc proc {self.root}/proc && mount --rbind /sys {self.root}/sys && mount --rbind /dev {self.root}/dev && '
        done = subprocess.run(['unshare', *network, '--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child', 'bash', '-c',
                               mounts + f'exec chroot {self.root} bash -ec "$1"', 'bash', FIND_UNIT + script],
                              env={'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'DEBIAN_FRONTEND': 'noninteractive', 'LC_ALL': 'C'},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=LIMIT_S)
        return done.returncode, done.stdout
