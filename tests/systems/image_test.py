#!/usr/bin/env python3
"""The daemon's image is built by podman from its Containerfile, and the containers of docs/containers/ run as compose and Kubernetes
would run them: programs of another image use the daemon's devices. Prints TAP.

Usage: image_test.py [--list] [TARBALL]     (default: makes it by tools/package)

Base and program image are minimal systems (make_system.sh), not those of a registry. Skipped without root, podman, PyYAML or a mirror.
"""
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / 'packages')]
# pylint: disable=wrong-import-position
import built  # noqa: E402
import system  # noqa: E402
import tap  # noqa: E402

ARGUMENTS = [argument for argument in sys.argv[1:] if not argument.startswith('--')]
ROOM = '--inside'
LIMIT_S = 600
READY_LIMIT_S = 120
# Prefix of the images' names, as podman prints them.
LOCAL = 'localhost/'
try:
    import manifests
except ImportError:  # no PyYAML
    manifests = None


def podman(*arguments, limit_s=LIMIT_S):
    """Exit status and output."""
    done = subprocess.run([*shlex.split(os.environ['ROCI_PODMAN']), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors='replace', check=False, timeout=limit_s)
    return done.returncode, done.stdout


class Node:
    """Runs containers of manifests on this machine, whose folders are below `folder`."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        for name, files in manifests.config_maps().items():
            for file, text in files.items():
                path = self.folder / name / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding='utf-8')

    def source(self, mount):
        if mount.source.startswith('/dev/'):
            return mount.source
        folder = self.folder / mount.source.lstrip('/')
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def options(self, container):
        """Arguments of `podman run` up to the image."""
        options = shlex.split(os.environ['ROCI_PODMAN_RUN'])
        for mount in container.mounts:
            options += ['--volume', f'{self.source(mount)}:{mount.target}' + (':ro' if mount.readonly else '')]
        for name, value in container.environment.items():
            options += ['--env', f'{name}={value}']
        for flag, names in (('--cap-drop', container.dropped_capabilities), ('--cap-add', container.added_capabilities)):
            options += [word for name in sorted(names) for word in (flag, name)]
        if container.no_new_privileges:
            options += ['--security-opt', 'no-new-privileges']
        if container.command:
            options += ['--entrypoint', container.command[0]]
        return [*options, '--name', container.name, LOCAL + container.image]

    def run(self, container, command=None):
        """Exit status and output. `command`: instead of its own."""
        return podman(*self.options(container), *(command or [*(container.command or [])[1:], *(container.arguments or [])]))

    def start(self, container):
        """Returns when it is ready; its log."""
        log = tempfile.NamedTemporaryFile('w+', prefix='roci-log.')
        process = subprocess.Popen([*shlex.split(os.environ['ROCI_PODMAN']), *map(str, self.options(container)), *(container.arguments or [])],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + READY_LIMIT_S
        while podman('exec', container.name, *container.probe)[0] != 0:
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop(container, process)
                raise RuntimeError(f'{container.name} is not ready:\n{pathlib.Path(log.name).read_text(encoding="utf-8")}')
            time.sleep(0.1)
        return process

    @staticmethod
    def stop(container, process):
        podman('stop', '--ignore', container.name)
        process.wait(LIMIT_S)


class ImageTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        if not manifests:
            raise unittest.SkipTest('needs python3-yaml')
        base = system.archive(f'{system.own_release()}/minimal')
        programs = system.archive('trixie/programs')
        context = tempfile.TemporaryDirectory(prefix='roci-image.')
        cls.addClassCleanup(context.cleanup)
        shutil.copy(built.tarball(ARGUMENTS), context.name)
        cls.succeed('import', base, LOCAL + 'base')
        cls.succeed('import', programs, LOCAL + 'program')
        # No namespaces for its commands: the image is tested, not podman. The mirror is reached by the machine's network.
        print('#', cls.succeed('build', '--isolation=chroot', '--network=host', '--build-arg', f'BASE={LOCAL}base', '--tag', manifests.IMAGE,
                               '--file', manifests.CONTAINERFILE, context.name).splitlines()[-1], flush=True)

    @classmethod
    def succeed(cls, *arguments):
        status, said = podman(*arguments)
        if status != 0:
            raise RuntimeError(f'podman {arguments}: {said[-4000:]}')
        return said

    def check(self, containers):
        with tempfile.TemporaryDirectory(prefix='roci-node.') as folder:
            os.chmod(folder, 0o755)
            node = Node(folder)
            status, said = node.run(containers['plugins'])
            self.assertEqual(status, 0, said)
            process = node.start(containers['rocid'])
            try:
                program = containers['program']
                status, said = node.run(program)
                self.assertEqual((status, said.count('PORT_ACTIVE')), (0, 2), said)
                program.command = ['sh']
                status, said = node.run(program, ['-c', system.PING_PONG])
                self.assertEqual(status, 0, said)
                self.assertIn('200 iters', said)
                # A new version of the plugins is not written into the files of running programs.
                self.assertEqual(node.run(containers['plugins'])[0], 0)
            finally:
                node.stop(containers['rocid'], process)
            self.assertEqual(process.returncode, 0)

    def test_compose(self):
        self.check(manifests.compose())

    def test_kubernetes(self):
        self.check(manifests.kubernetes())

    def test_the_image_serves_metrics(self):
        status, said = podman(*shlex.split(os.environ['ROCI_PODMAN_RUN']), '--entrypoint', 'sh', LOCAL + manifests.IMAGE, '-c',
                              '/opt/rocinante/bin/rocid --metrics 9095 > /log & for i in $(seq 600); do grep -q ready /log && break; sleep 0.1; done\n'
                              'grep ready /log && grep -q ":2387 .* 0A" /proc/net/tcp')
        self.assertEqual(status, 0, said)


def enter_room():
    """Runs this program again where podman works."""
    if os.geteuid() != 0 or not (shutil.which('podman') and shutil.which('crun')):
        print('1..0 # SKIP needs root, podman and crun (tools/setup --add podman --add crun)')
        return 0
    with tempfile.TemporaryDirectory(prefix='roci-podman.', ignore_cleanup_errors=True) as state:
        os.chmod(state, 0o755)
        return subprocess.run([HERE / 'podman_room.sh', state, sys.executable, __file__, ROOM, *ARGUMENTS], check=False).returncode


if __name__ == '__main__':
    if ROOM not in sys.argv and '--list' not in sys.argv:
        sys.exit(enter_room())
    tap.main(sys.modules['__main__'])
