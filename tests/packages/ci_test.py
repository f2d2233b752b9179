#!/usr/bin/env python3
"""The recipes of docs/ci.md: their lines run in a minimal system as an ordinary user without any privilege, `cargo test` included. Only
the tarball's address is another one, and packages are installed before. Prints TAP.

Usage: ci_test.py [TARBALL]     (default: makes it by tools/package)
"""
import functools
import http.server
import os
import pathlib
import re
import shutil
import sys
import threading
import time
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / 'tests'), str(TOP / 'tests/systems'), str(TOP / 'tests/packages')]
import built  # pylint: disable=wrong-import-position
import readme  # pylint: disable=wrong-import-position
import system  # pylint: disable=wrong-import-position
import tap  # pylint: disable=wrong-import-position

try:
    import yaml
except ImportError:
    yaml = None

USER = 1000
HOME = '/home/runner'
# The recipes take less than 20 s on a quiet machine (docs/ci.md); this one may be busy.
LIMIT_S = 200
PASSED = 'test registers_memory_with_every_device ... ok'


def recipe(heading):
    """The YAML below a heading of the document."""
    text = (TOP / 'docs/ci.md').read_text(encoding='utf-8')
    return yaml.safe_load(re.search(rf'^## {heading}\n+```yaml\n(.*?)^```', text, re.MULTILINE | re.DOTALL)[1])


def split(lines):
    """(packages that the lines install, the other lines)."""
    installing = [line for line in lines if 'apt-get install' in line]
    packages = {word for line in installing for word in line.split('apt-get install')[1].split() if not word.startswith('-')}
    return packages, [line for line in lines if line not in installing]


class Quiet(http.server.SimpleHTTPRequestHandler):

    def log_message(self, *_arguments):
        pass


@unittest.skipUnless(yaml, 'needs python3-yaml')
class Recipes(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.system = system.System('bookworm/ci')
        cls.addClassCleanup(cls.system.remove)
        cls.tarball = built.tarball(sys.argv[1:])
        cls.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Quiet, directory=cls.tarball.parent))
        cls.addClassCleanup(cls.server.server_close)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.shutdown)

    def setUp(self):
        project = os.path.join(self.system.root, HOME[1:], 'project')
        self.addCleanup(shutil.rmtree, os.path.dirname(project))
        shutil.copytree(TOP / 'tests/packages/ci_project', project)
        for folder, _folders, files in os.walk(os.path.dirname(project)):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                os.chown(path, USER, USER)

    def as_user(self, script):
        """A script of bash in the project's folder, as a user without capabilities, also in set-user-ID programs."""
        address = f'http://127.0.0.1:{self.server.server_port}/{self.tarball.name}'
        return self.system.run(f'cd {HOME}/project && exec setpriv --reuid={USER} --regid={USER} --clear-groups --inh-caps=-all --bounding-set=-all '
                               f'--no-new-privs env HOME={HOME} ROCINANTE={address} bash -e <<"EOF"\n{script}\nEOF\n')

    def check(self, name, lines):
        packages, lines = split(lines)
        self.assertTrue(packages)
        status, said = self.system.run('dpkg-query -W ' + ' '.join(packages))
        self.assertEqual(status, 0, said)
        begin = time.monotonic()
        status, said = self.as_user('\n'.join(lines))
        elapsed = time.monotonic() - begin
        self.assertEqual(status, 0, said)
        self.assertIn(PASSED, said)
        print(f'# {name}: {elapsed:.1f} s, with the build of the project', flush=True)
        self.assertLess(elapsed, LIMIT_S)
        # The test of the project does fail without devices.
        status, said = self.as_user(lines[-1][lines[-1].index('cargo'):])
        self.assertNotEqual(status, 0, said)
        self.assertNotIn(PASSED, said)

    def test_github_actions(self):
        job, = recipe('GitHub Actions')['jobs'].values()
        self.check('GitHub Actions', [step['run'].rstrip() for step in job['steps'] if 'run' in step])

    def test_gitlab_ci(self):
        job, = recipe('GitLab CI').values()
        self.check('GitLab CI', [*job['before_script'], *job['script']])

    def test_the_line_of_the_readme(self):
        job, = recipe('GitLab CI').values()
        status, said = self.as_user('\n'.join([*split(job['before_script'])[1][:2], readme.line('CI')]))
        self.assertEqual(status, 0, said)
        self.assertIn(PASSED, said)

    def test_both_name_the_same_tarball(self):
        names = {next(iter(recipe('GitHub Actions')['jobs'].values()))['env']['ROCINANTE'],
                 next(iter(recipe('GitLab CI').values()))['variables']['ROCINANTE']}
        self.assertEqual({name.rpartition('/')[2] for name in names}, {self.tarball.name})


if __name__ == '__main__':
    tap.main(sys.modules[__name__])
