"""What nfs_test.py does: shell commands of the guest in a mounted folder, kinds of mounts, and calls of our client to the guest."""
import typing

from ends import LINKS, Link

MOUNT = '/tmp/mount'
SOURCE = '/tmp/source'
TCP_PORT, RDMA_PORT = 2049, 20049
# By path MTU 4096, and by 1024.
NFS_LINKS = (LINKS[0], Link(1, 'tap', 1024, 1500))
EACH_IMPAIRMENT = (('--loss', '1%'), ('--reorder', '1%'), ('--duplicate', '1%'))
ALL_IMPAIRMENTS = tuple(word for words in EACH_IMPAIRMENT for word in words)

# In $SOURCE: files of many sizes, a tree with links, modes and times. Made once in each guest.
MAKE_SOURCE = f"""set -e
mkdir -p {SOURCE}/files {SOURCE}/tree/empty {SOURCE}/tree/deep/deeper {MOUNT}
cd {SOURCE}/files
for size in 0 1 3 4 1000 4096 4097 65536 70001 1048576 1048577 3145731; do head -c $size /dev/urandom >f.$size; done
cd ../tree
for i in $(seq 40); do echo "number $i" >"deep/file $i"; done
head -c 100000 /dev/urandom >deep/deeper/data
ln -s ../file deep/deeper/up; ln -s /etc/hostname absolute; ln -s missing dangling
ln deep/deeper/data second-name
chmod 640 'deep/file 1'; chmod 755 'deep/file 2'; chmod 500 deep/deeper
touch -d '2001-02-03 04:05:06.789' 'deep/file 3'; touch -h -d '2002-03-04' dangling"""

# Lets the kernel forget what it has cached of the files, so that they are read from the server.
FORGET = 'echo 3 >/proc/sys/vm/drop_caches'
# (Sizes and link counts of folders differ between file systems.)
LIST = "find . -mindepth 1 \\( -type d -printf '%P %y %m %T@\\n' \\) -o -printf '%P %y %m %n %s %T@ %l\\n' | sort"


class Work(typing.NamedTuple):
    """Commands in the mounted folder. `checked`: files that the host then compares by the checksums that the guest printed.
    `meanwhile`: what happens when the file `large` grows (a method of Run). `program`: without it the work is left out."""
    name: str
    commands: str
    checked: bool = False
    meanwhile: str = ''
    program: str = ''


FILES = Work('files of 0 bytes to 3 MiB are written, read back and the same on both sides', f"""
cp {SOURCE}/files/* . && sync && {FORGET}
for file in {SOURCE}/files/*; do cmp "$file" "$(basename "$file")"; done
sha256sum f.*""", True)

TREE = Work('cp -a and find keep a tree', f"""
cp -a {SOURCE}/tree copy && {FORGET}
diff -r --no-dereference {SOURCE}/tree copy
(cd {SOURCE}/tree && {LIST}) >/tmp/wanted
(cd copy && {LIST}) >/tmp/there
diff /tmp/wanted /tmp/there
cp -a copy /tmp/back
(cd /tmp/back && {LIST}) | diff /tmp/wanted -
[ "$(find copy -type f | wc -l)" = 42 ]
rm -r copy /tmp/back
[ ! -e copy ]""")

DD = Work('dd writes and reads without the cache', """
dd if=/dev/urandom of=/tmp/random bs=64k count=24 status=none
dd if=/tmp/random of=direct bs=100000 oflag=direct status=none
dd if=direct bs=131072 iflag=direct status=none | cmp - /tmp/random
dd if=/tmp/random of=direct bs=4096 count=3 seek=7 conv=notrunc,fsync status=none
dd if=direct bs=4096 skip=7 count=3 iflag=direct status=none | cmp -n 12288 - /tmp/random
sha256sum direct""", True)

ENTRIES = Work('names come and go', """
mkdir many && cd many
for i in $(seq 80); do : >"file $i"; done
[ "$(ls | wc -l)" = 80 ]
for i in $(seq 1 8 80); do mv "file $i" "moved $i"; done
[ "$(find . -name 'moved *' | wc -l)" = 10 ]
ln 'file 2' linked && [ "$(stat -c %h linked)" = 2 ]
ln -s 'file 2' soft && [ "$(readlink soft)" = 'file 2' ]
(set -C; echo mine >exclusive); ! (set -C; echo other >exclusive) 2>/dev/null
[ "$(cat exclusive)" = mine ]
truncate -s 100000 exclusive && [ "$(stat -c %s exclusive)" = 100000 ]
cd .. && rm -r many && [ ! -e many ]""")

APPENDS = Work('two writers append to one file', """
for writer in 1 2; do (for i in $(seq 50); do echo "$writer $i" >>log; done) & done
wait
[ "$(wc -l <log)" = 100 ]
sha256sum log""", True)

LARGE = Work('a file of 64 MiB is written and read back', f"""
head -c 67108864 /dev/urandom >large && {FORGET}
sha256sum large
head -c 67108864 /dev/zero | tr '\\0' x | dd of=zero bs=1M iflag=fullblock status=none
sha256sum zero""", True)

PARALLEL = Work('16 jobs write and read side by side', f"""
for job in $(seq 16); do
  (head -c 600000 /dev/urandom >"job$job" && cp "job$job" "copy$job" && cmp "job$job" "copy$job" || exit 1) &
  jobs="${{jobs:-}} $!"
done
for job in $jobs; do wait "$job"; done
{FORGET}
sha256sum job* copy*""", True)

RESTARTED = Work('the server is killed and started again while a file is written', LARGE.commands, True, 'restart_server')
CUT = Work('the link is down for 10 s while a file is written', LARGE.commands, True, 'cut_link')

GIT = Work('git clones a repository and commits', f"""
export HOME=/tmp GIT_CONFIG_GLOBAL=/tmp/git.config
git config --global user.name guest && git config --global user.email guest@localhost && git config --global init.defaultBranch main
[ -e /tmp/repository ] || {{ cp -a {SOURCE} /tmp/repository && rmdir /tmp/repository/tree/empty && git -C /tmp/repository init -q &&
  git -C /tmp/repository add . && git -C /tmp/repository commit -q -m first; }}
git clone -q --no-local /tmp/repository clone && {FORGET}
[ "$(git -C clone rev-parse HEAD)" = "$(git -C /tmp/repository rev-parse HEAD)" ]
[ -z "$(git -C clone status --porcelain)" ]
diff -r --no-dereference -x .git /tmp/repository clone
echo more >>clone/files/f.4 && git -C clone commit -q -a -m second && git -C clone repack -q -a -d && {FORGET}
git -C clone fsck --full --strict
[ "$(git -C clone rev-list --count HEAD)" = 2 ]""", program='git')

FIO = Work('fio writes blocks in two jobs, and verifies them', """
fio --name=verify --rw=randwrite --bsrange=4k-64k --size=4m --ioengine=psync --direct=1 --fallocate=none --numjobs=2 \\
  --verify=crc32c --verify_fatal=1 --do_verify=1 --output=/tmp/fio || { cat /tmp/fio; exit 1; }
fio --name=verify --rw=randwrite --bsrange=4k-64k --size=4m --ioengine=psync --direct=1 --fallocate=none --numjobs=2 \\
  --verify=crc32c --verify_only --output=/tmp/fio || { cat /tmp/fio; exit 1; }""", program='fio')

# Small: tshark reads the frames.
CAPTURED = Work('files, links and listings while frames are captured', f"""
cp {SOURCE}/files/f.[0134] {SOURCE}/files/f.4096 {SOURCE}/files/f.4097 {SOURCE}/files/f.70001 . && ln -s f.1 link && ls -l && {FORGET}
[ "$(readlink link)" = f.1 ]
sha256sum f.*""", True)

SHORT = (FILES, TREE, DD, ENTRIES)
LONG = (*SHORT, APPENDS, PARALLEL, LARGE)


def where(link, impair):
    """How a case's name says over which link it goes and what impairs it."""
    return (f' path MTU {link.path_mtu}' if link is not NFS_LINKS[0] else '') + (f' [{" ".join(impair)}]' if impair else '')


class Mount(typing.NamedTuple):
    """How the guest mounts the folder: `proto` as in nfs(5), and more options; over which link, and what impairs its frames."""
    proto: str
    options: str = ''
    link: Link = NFS_LINKS[0]
    impair: tuple = ()

    @property
    def name(self):
        return ','.join(filter(None, (self.proto, self.options))) + where(self.link, self.impair)

    @property
    def rdma(self):
        return self.proto.startswith('rdma')

    def command(self, path, mount_address):
        """Mounts without helpers (mount.nfs, rpcbind): MOUNT is called by TCP, at `mount_address`."""
        address = self.link.roci['v6' if self.proto.endswith('6') else 'v4'] if self.rdma else mount_address
        port = RDMA_PORT if self.rdma else TCP_PORT
        options = (f'vers=3,proto={self.proto},port={port},addr={address},mountproto=tcp,mountport={TCP_PORT},'
                   f'mountaddr={mount_address},nolock,hard')
        source = f'[{address}]' if ':' in address else address
        return f'mount -i -t nfs -o {",".join(filter(None, (options, self.options)))} {source}:{path} {MOUNT}'


def cases(everything):
    """Pairs of a mount and the works to do on it."""
    if not everything:
        return [(Mount('rdma'), SHORT)]
    return [(Mount('tcp'), (*LONG, RESTARTED)), (Mount('rdma'), (*LONG, GIT, FIO)), (Mount('rdma6'), (*SHORT, PARALLEL)),
            (Mount('rdma', link=NFS_LINKS[1]), (FILES, DD, PARALLEL, LARGE, FIO)),
            *((Mount('rdma', f'rsize={size},wsize={size}'), (FILES, DD)) for size in (4096, 32768, 262144, 1048576)),
            *((Mount('rdma', impair=words), (FILES, DD, PARALLEL)) for words in EACH_IMPAIRMENT),
            (Mount('rdma', impair=ALL_IMPAIRMENTS, link=NFS_LINKS[1]), (FILES, TREE, FIO, PARALLEL)),
            (Mount('rdma6', impair=ALL_IMPAIRMENTS), (FILES, TREE)),
            (Mount('rdma', 'ac'), (RESTARTED, CUT))]


class Calls(typing.NamedTuple):
    """Tests of our client against the guest's server. `keeps`: they leave files. `captured`: tshark
    reads the frames. `meanwhile` as in Work, when the load begins."""
    name: str
    tests: str
    family: str = 'v4'
    link: Link = NFS_LINKS[0]
    impair: tuple = ()
    rounds: int = 10
    keeps: bool = True
    captured: bool = False
    meanwhile: str = ''

    @property
    def title(self):
        return f'to the guest by {self.family}{where(self.link, self.impair)}: {self.name}'


NAMES = Calls('names, attributes, links, listings', 'RemoteNames*:RemoteAttributes*:RemoteListing*:RemoteFileSystem*', keeps=False, captured=True)
DATA = Calls('data of 0 bytes to 1 MiB by every kind of chunk is the same on both sides', '*RemoteData*:RemoteFile.*')
LOAD = Calls('16 jobs on one connection', 'RemoteLoad*')
KILLED = 'our client is killed under load, and nothing of it is left'


def calls(everything):
    if not everything:
        return [NAMES, DATA._replace(tests='*RemoteData*/0:*RemoteData*/1:*RemoteData*/3:RemoteFile.*'), LOAD]
    each = (NAMES, DATA, LOAD)
    return [*each, *(one._replace(family='v6') for one in each), *(one._replace(link=NFS_LINKS[1], captured=False) for one in each),
            *(one._replace(impair=words) for words in EACH_IMPAIRMENT for one in (DATA, LOAD)),
            *(one._replace(impair=ALL_IMPAIRMENTS, family='v6', link=NFS_LINKS[1], captured=False) for one in each),
            LOAD._replace(name='the server ends and starts again under load', rounds=150, meanwhile='restart_kernel_server'),
            LOAD._replace(name='the link is down for 10 s under load', rounds=150, meanwhile='cut_link')]
