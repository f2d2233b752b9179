"""Linux's NFS server in a guest, which exports a folder over RDMA, and our client of it."""
import hashlib
import pathlib
import re
import shlex
import shutil
import tempfile
import time

from ends import LIMIT_S
from harness import await_

FOLDER = '/tmp/served'
REGISTRY = '/run/rpcbind.sock'
PORT = 20049
EXPIRES = 2147483647
# Of <linux/nfsd/export.h>: insecure ports, no subtree check, a file system with a number (1).
EXPORT_FLAGS = 0x2 | 0x400 | 0x2000
SUM = re.compile(r'^([0-9a-f]{64})  \./(\S.*)$', re.M)
CALL_LIMIT_S = 300

MAKE_FILES = f"""set -e
mkdir -p {FOLDER}/given/below/further && cd {FOLDER}/given/below
for size in 0 1 5 4096 70001 1048576 3145731; do head -c $size /dev/urandom >"size $size"; done
for i in $(seq 20); do echo "number $i" >further/$i; done
mount -t nfsd nfsd /proc/fs/nfsd
for i in $(seq 600); do [ ! -S {REGISTRY} ] || break; sleep 0.1; done
echo 1048576 >/proc/fs/nfsd/max_block_size
for version in 2 4; do echo "-$version" >/proc/fs/nfsd/versions || true; done"""
# Fills the tables that rpc.mountd fills elsewhere: which domain a client is in, what it may mount, which folder a handle means. (The
# end of a server empties the last two, and what is filled in within the same second.)
START = f"""set -e
for address in {{clients}}; do echo "nfsd $address {EXPIRES} lab" >/proc/net/rpc/auth.unix.ip/channel; done
cd /proc/net/rpc
for try in $(seq 50); do
  echo 'lab {FOLDER} {EXPIRES} {EXPORT_FLAGS} 65534 65534 1' >nfsd.export/channel
  echo 'lab 1 \\x01000000 {EXPIRES} {FOLDER}' >nfsd.fh/channel
  ! grep -q '^{FOLDER}' nfsd.export/content || ! grep -q '^lab' nfsd.fh/content || break
  sleep 0.2
done
echo 'rdma {PORT}' >/proc/fs/nfsd/portlist
echo 4 >/proc/fs/nfsd/threads"""
STOP = 'echo 0 >/proc/fs/nfsd/threads'
HANDLE = f'exec 3<>/proc/fs/nfsd/filehandle; echo "lab {FOLDER} 64" >&3; cat <&3'


def prepare(guest):
    """Starts what a KernelServer will need and takes a while, in the background."""
    shutil.copy(pathlib.Path(__file__).with_name('rpcbind_stand_in.py'), guest.share)
    guest.start(f'exec python3 -I -S /run/host/rpcbind_stand_in.py {REGISTRY}')


class KernelServer:
    """nfsd in the guest, after prepare(). `clients`: the addresses that may mount."""

    def __init__(self, guest, clients):
        self.guest, self.clients = guest, clients
        guest.run(MAKE_FILES, LIMIT_S)
        self.start()
        self.handle = re.sub(r'\\x|\s', '', guest.run(HANDLE))  # in hexadecimal

    def start(self):
        self.guest.run(START.format(clients=' '.join(self.clients)), LIMIT_S)

    def stop(self):
        """Ends the server with its connections."""
        self.guest.run(STOP, LIMIT_S)

    def sums(self):
        """Checksums of all files by their paths."""
        said = self.guest.run(f"cd {FOLDER} && find . -type f -print0 | xargs -0r sha256sum", CALL_LIMIT_S)
        return {name: checksum for checksum, name in SUM.findall(said)}

    def clear(self):
        self.guest.run(f'cd {FOLDER} && find . -mindepth 1 -maxdepth 1 ! -name given -exec rm -r {{}} +', LIMIT_S)


class OurClient:
    """Runs tests of `program`, nfs_client_test, by the daemon's device against a KernelServer."""

    def __init__(self, roci, program, server):
        self.roci, self.program, self.server = roci, program, server

    def start(self, tests, address, kept, rounds):
        settings = {'NFS_SERVER': address, 'NFS_PORT': PORT, 'NFS_HANDLE': self.server.handle, 'NFS_KEEP': kept, 'NFS_ROUNDS': rounds}
        return self.roci.start(' '.join([*(f'{name}={shlex.quote(str(value))}' for name, value in settings.items()), 'exec',
                                         shlex.quote(self.program), '--gtest_brief=1', f'--gtest_filter={shlex.quote(tests)}']))

    def run(self, calls, meanwhile=None):
        """Runs the tests of `calls` (Calls) and compares what they have left with what the server has. `meanwhile` is called when
        the load begins. Returns what went wrong, or '', and what the program said."""
        with tempfile.TemporaryDirectory(prefix='roci-kept.') as kept:
            program = self.start(calls.tests, calls.link.rxe[calls.family], kept, calls.rounds)
            if meanwhile and await_(lambda: 'load begins' in program.output() or program.status() is not None, LIMIT_S):
                meanwhile()
            status = program.wait(CALL_LIMIT_S)
            said = program.output()
            wrong = f'exit status {status}\n{said}' if status != 0 else self.compare(kept, calls.keeps)
            self.server.clear()
            return wrong, said

    def compare(self, kept, wanted):
        """`wanted`: whether there must be files."""
        here = {str(path.relative_to(kept)): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in pathlib.Path(kept).rglob('*') if path.is_file()}
        there = {name: checksum for name, checksum in self.server.sums().items() if not name.startswith('given/') or name in here}
        wrong = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
        if bool(here) != wanted:
            return f'the tests have kept {len(here)} files'
        return f'{len(wrong)} of {len(here)} files differ: {wrong[:10]}' if wrong else ''

    def killed(self, address):
        """Kills the program under load. Returns what went wrong, or ''."""
        with tempfile.TemporaryDirectory(prefix='roci-kept.') as kept:
            program = self.start('RemoteLoad*', address, kept, 1_000_000)
            if not await_(lambda: 'load begins' in program.output() or program.status() is not None, LIMIT_S):
                return f'no load\n{program.output()}'
            time.sleep(2)
            alive = program.status() is None
            program.kill()
            self.server.clear()
            return '' if alive else f'the load has ended before\n{program.output()}'
