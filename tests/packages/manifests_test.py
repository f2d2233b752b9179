#!/usr/bin/env python3
"""docs/containers/: the files name only programs, options, folders and images that exist, and give programs what `roci cdi` gives.
Prints TAP.

Usage: manifests_test.py ROCI ROCID PLUGIN UNIT BUILD_DIR
"""
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / 'tests'), str(TOP / 'tests/integration'), str(TOP / 'tests/packages')]
import harness  # pylint: disable=wrong-import-position
import tap  # pylint: disable=wrong-import-position

try:
    import manifests
except ImportError:  # no PyYAML
    manifests = None

ROCI, ROCID, PLUGIN, UNIT, BUILD = sys.argv[1:6] if '--list' not in sys.argv else [''] * 5
PLACE = '/opt/rocinante'  # of a tarball's files in the image
OTHER_IMAGES = {'ghcr.io/squat/generic-device-plugin'}
DEVICES = '/dev/infiniband/'


def introspect(what):
    return json.loads(subprocess.run(['meson', 'introspect', what, BUILD], check=True, capture_output=True, text=True, timeout=60).stdout)


def installed():
    """The paths of an installation's files below its prefix, with the libraries' folder as tools/package names it."""
    options = {option['name']: option['value'] for option in introspect('--buildoptions')}
    libraries = re.search(r'-Dlibdir=(\S+)', (TOP / 'tools/package').read_text(encoding='utf-8'))[1]
    below = [os.path.relpath(path, options['prefix']) for path in introspect('--installed').values()]
    return {re.sub(f"^{re.escape(options['libdir'])}/", libraries + '/', path) for path in below}


def instruction(name):
    """The list of an instruction of the Containerfile."""
    return json.loads(re.search(rf'^{name} (\[.*\])$', manifests.CONTAINERFILE.read_text(encoding='utf-8'), re.MULTILINE)[1])


@unittest.skipUnless(manifests, 'needs python3-yaml')
class Manifests(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.daemon = harness.Daemon(harness.Programs(ROCI, ROCID, PLUGIN))
        cls.addClassCleanup(cls.daemon.stop)
        made = subprocess.run([ROCI, 'cdi', '--runtime-dir', cls.daemon.runtime_dir, '--plugin', PLUGIN, '--output', '-'], check=True,
                              capture_output=True, text=True, timeout=harness.LIMIT_S)
        file = json.loads(made.stdout)
        every = next(device for device in file['devices'] if device['name'] == 'all')
        edits = [file['containerEdits'], every['containerEdits']]
        mounts = [manifests.Mount(mount['hostPath'], mount['containerPath']) for edit in edits for mount in edit.get('mounts', [])]
        # What a container of podman gets.
        cls.cdi = manifests.Container('cdi', 'program', environment=dict(text.split('=', 1) for edit in edits for text in edit.get('env', [])),
                                      mounts=mounts)
        cls.files = installed()
        cls.systems = {'compose': manifests.compose(), 'kubernetes': manifests.kubernetes()}

    def each(self):
        return [container for containers in self.systems.values() for container in containers.values()]

    def check_command(self, command):
        """A program or folder of the image is one that is installed; rocid and roci know the arguments."""
        for word in command:
            if word.startswith(PLACE):
                path = os.path.normpath(word).removeprefix(PLACE + '/')
                self.assertTrue(path in self.files or any(file.startswith(path + '/') for file in self.files), word)
        name = os.path.basename(command[0])
        if name in ('roci', 'rocid'):
            with tempfile.TemporaryDirectory() as folder:
                config = pathlib.Path(folder, 'rocid.toml')
                config.write_text(manifests.config_maps()['rocid']['rocid.toml'], encoding='utf-8')
                words = [{'/run/roci': self.daemon.runtime_dir, '/etc/rocinante/rocid.toml': str(config)}.get(word, word) for word in command[1:]]
                program = [ROCI] if name == 'roci' else [ROCID, '--check-config']
                done = subprocess.run([*program, *words], capture_output=True, text=True, check=False, timeout=harness.LIMIT_S)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_containerfile_fits_a_tarball(self):
        version = introspect('--projectinfo')['version']
        name = re.search(r'name=(rocinante-)\$\(.*\)(-\S+)$', (TOP / 'tools/package').read_text(encoding='utf-8'), re.MULTILINE)
        pattern = re.search(r'^ADD (\S+)', manifests.CONTAINERFILE.read_text(encoding='utf-8'), re.MULTILINE)[1]
        self.assertTrue(fnmatch.fnmatch(f'{name[1]}{version}{name[2]}.tar.gz', pattern))
        self.check_command(instruction('ENTRYPOINT') + instruction('CMD'))

    def test_commands_exist(self):
        for container in self.each():
            if container.image == manifests.IMAGE:
                self.check_command(container.command or instruction('ENTRYPOINT') + (container.arguments or instruction('CMD')))
            if container.probe:
                self.check_command(container.probe)

    def test_images_are_known(self):
        for container in [*self.each(), *manifests.daemon_set('device-plugin')]:
            self.assertIn(container.image, {manifests.IMAGE, 'program', *OTHER_IMAGES})

    def test_the_daemon_has_the_capabilities_of_the_service(self):
        unit = pathlib.Path(UNIT).read_text(encoding='utf-8')
        wanted = set(re.search('^CapabilityBoundingSet=(.*)$', unit, re.MULTILINE)[1].replace('CAP_', '').split())
        for containers in self.systems.values():
            self.assertEqual(containers['rocid'].added_capabilities, wanted)
            self.assertEqual(containers['rocid'].dropped_capabilities, {'ALL'})
            self.assertTrue(containers['rocid'].no_new_privileges)

    def test_programs_have_the_variables_of_cdi(self):
        for containers in self.systems.values():
            self.assertEqual(set(containers['program'].environment), set(self.cdi.environment))

    def test_programs_find_the_daemon_and_its_tree(self):
        tree = os.path.relpath(self.cdi.source_of(self.cdi.environment['SYSFS_PATH']), self.daemon.runtime_dir)
        for containers in self.systems.values():
            program, rocid = containers['program'], containers['rocid']
            folder = program.environment['ROCI_RUNTIME_DIR']
            # Its path is the daemon's, because the tree names the socket by it.
            arguments = rocid.arguments or instruction('CMD')
            self.assertEqual(arguments[arguments.index('--runtime-dir') + 1], folder)
            self.assertEqual(program.source_of(folder), rocid.source_of(folder))
            self.assertEqual(program.source_of(program.environment['SYSFS_PATH']), os.path.join(rocid.source_of(folder), tree))

    def test_programs_find_the_plugins_of_the_image(self):
        driver = os.path.basename(self.cdi.environment['RDMAV_DRIVERS'])
        for containers in self.systems.values():
            program, copier = containers['program'], containers['plugins']
            folder, name = os.path.split(program.environment['RDMAV_DRIVERS'])
            self.assertEqual(name, driver)
            source, target = copier.command[-2:]
            self.assertEqual(program.source_of(folder), copier.source_of(target))
            for plugin in (mount.target for mount in self.cdi.mounts if driver + '-' in mount.target):
                self.assertIn(os.path.normpath(f'{source}/{os.path.basename(plugin)}'), {f'{PLACE}/{file}' for file in self.files})

    def test_programs_have_the_device_files_of_cdi(self):
        wanted = {mount.target: mount.source for mount in self.cdi.mounts if mount.target.startswith(DEVICES)}
        self.assertGreater(len(wanted), 1)
        for containers in self.systems.values():
            mounts = containers['program'].mounts
            self.assertEqual({mount.target: mount.source for mount in mounts if mount.target.startswith(DEVICES)}, wanted)

    def test_the_device_plugin_sees_what_it_gives(self):
        plugin = manifests.daemon_set('device-plugin')[-1]
        for mount in manifests.resource()[1]:
            self.assertEqual(plugin.source_of(mount.source), mount.source)


if __name__ == '__main__':
    tap.main(sys.modules[__name__])
