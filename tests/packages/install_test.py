#!/usr/bin/env python3
"""`meson install` into a folder: what is there, and that the installed programs find each other. Prints TAP.

Usage: install_test.py BUILD_DIR
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOP / 'tests'))
import tap  # pylint: disable=wrong-import-position

BUILD = pathlib.Path(sys.argv[1])


def build_option(name):
    options = json.loads((BUILD / 'meson-info/intro-buildoptions.json').read_text(encoding='utf-8'))
    return next(option['value'] for option in options if option['name'] == name)


class Installed(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.destination = pathlib.Path(cls.scratch.name, 'root')
        cls.prefix = cls.destination / build_option('prefix').lstrip('/')
        cls.config = cls.prefix / build_option('sysconfdir').lstrip('/') / 'rocinante/rocid.toml'
        cls.install()

    @classmethod
    def install(cls):
        subprocess.run(['meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet', '--destdir', cls.destination], check=True,
                       stdout=sys.stderr, timeout=60)

    def test_has_everything(self):
        libraries = build_option('libdir')
        for name in ('bin/rocid', 'bin/roci', f'{libraries}/libibverbs/libroci-rdmav34.so', f'{libraries}/librocidv.so.1',
                     f'{libraries}/pkgconfig/rocidv.pc', 'include/infiniband/rocidv.h', 'lib/systemd/system/rocid.service',
                     'lib/sysusers.d/rocinante.conf', 'share/man/man8/rocid.8', 'share/man/man5/rocid.toml.5', 'share/man/man1/roci-run.1',
                     'share/bash-completion/completions/roci', 'share/bash-completion/completions/rocid',
                     'share/zsh/site-functions/_roci', 'share/fish/vendor_completions.d/roci.fish', 'share/doc/rocinante/running.md',
                     'share/doc/rocinante/rocid.toml', 'share/rocinante/scenarios/retry_exceeded.toml'):
            self.assertTrue((self.prefix / name).is_file(), name)
        self.assertTrue(self.config.is_file())

    def test_finds_its_scenarios(self):
        listed = subprocess.run([self.prefix / 'bin/roci', 'test', '--list'], check=True, capture_output=True, text=True, timeout=30).stdout
        self.assertEqual(sorted(line.split()[0] for line in listed.splitlines()), sorted(file.stem for file in (TOP / 'scenarios').glob('*.toml')))

    def test_has_nothing_outside_of_the_prefix(self):
        outside = [path for path in self.destination.rglob('*') if path.is_file() and self.prefix not in path.parents]
        self.assertEqual([path for path in outside if path != self.config], [])

    def test_service_starts_with_the_installed_paths(self):
        unit = (self.prefix / 'lib/systemd/system/rocid.service').read_text(encoding='utf-8')
        start = next(line for line in unit.splitlines() if line.startswith('ExecStart='))
        program, _option, config = start.removeprefix('ExecStart=').split()[:3]
        for path in (program, config):
            self.assertTrue((self.destination / path.lstrip('/')).is_file(), path)

    def test_configuration_is_accepted_and_kept(self):
        subprocess.run([self.prefix / 'bin/rocid', '--check-config', '--config', self.config], check=True, stdout=sys.stderr, timeout=30)
        self.config.write_text('# changed\n', encoding='utf-8')
        self.install()
        self.assertEqual(self.config.read_text(encoding='utf-8'), '# changed\n')

    def test_programs_find_the_devices(self):
        with tempfile.TemporaryDirectory() as runtime_dir:
            environment = {**os.environ, 'ROCI_RUNTIME_DIR': runtime_dir}
            daemon = subprocess.Popen([self.prefix / 'bin/rocid', '--config', self.config], env=environment, text=True, stdout=subprocess.PIPE)
            try:
                self.assertEqual(daemon.stdout.readline(), 'rocid: ready\n')
                shown = subprocess.run([self.prefix / 'bin/roci', 'run', 'ibv_devinfo', '-d', 'roci1'], env=environment, text=True,
                                       capture_output=True, check=False, timeout=60)
            finally:
                daemon.terminate()
                daemon.wait(60)
                daemon.stdout.close()
            self.assertIn('PORT_ACTIVE', shown.stdout, shown.stderr)


if __name__ == '__main__':
    tap.main(sys.modules[__name__])
