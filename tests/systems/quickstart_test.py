#!/usr/bin/env python3
"""tools/quickstart in a minimal Debian system, as a newcomer runs it: nothing is installed but apt.

Usage: quickstart_test.py [--list] RELEASE SOURCE

Copies the source tree SOURCE into the system. Packages come from the mirror; they are kept beside the system's archive
(make_system.sh), and so are the compiler's results. Skipped without root, mmdebstrap, or a mirror that has the release.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
# pylint: disable=wrong-import-position
import tap  # noqa: E402
from system import System  # noqa: E402

RELEASE, SOURCE = None, None
LIMIT_S = 3000  # for packages and compilers; Meson's limit ends the test earlier on a quiet machine


def not_source(folder, names):
    """What a copy of the tree leaves out: build folders and git's."""
    return [name for name in names if name == '.git' or pathlib.Path(folder, name, 'meson-info').is_dir()]


class QuickstartTest(unittest.TestCase):

    def setUp(self):
        self.system = System(f'{RELEASE}/minimal')
        self.addCleanup(self.system.remove)
        shutil.copytree(SOURCE, os.path.join(self.system.root, 'root/rocinante'), ignore=not_source, symlinks=True)
        self.packages, self.ccache = (self.system.cache / name for name in ('packages', 'ccache'))
        for folder in (self.packages / 'partial', self.ccache):
            folder.mkdir(parents=True, exist_ok=True)
        os.chmod(self.packages, 0o755)

    def run_inside(self, *command):
        """Runs it with the caches in place. Prints its output."""
        environment = {'CCACHE_DIR': str(self.ccache), 'CCACHE_MAXSIZE': '500M'}
        # As apt's folder the cache has another owner (_apt), so apt fetches as root.
        (pathlib.Path(self.system.root) / 'etc/apt/apt.conf.d/99cache').write_text(
            f'Dir::Cache::archives "{self.packages}/";\nAPT::Sandbox::User "root";\n', encoding='ascii')
        done = subprocess.run(self.system.command(*command, shared=(self.system.cache,), environment=environment), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace', timeout=LIMIT_S, check=False,
                              env={})
        print(*('# ' + line for line in done.stdout.splitlines()[-60:]), sep='\n', flush=True)
        self.assertEqual(done.returncode, 0, done.stdout[-8000:])
        return done.stdout

    def test_runs_from_nothing(self):
        output = self.run_inside('/root/rocinante/tools/quickstart')
        rows = [line.split() for line in output.splitlines() if len(line.split()) == 3 and line.split()[0].isdigit()]
        self.assertGreater(len(rows), 3, output)
        for row in rows:
            self.assertGreater(float(row[1]), 0, output)
            self.assertGreater(float(row[2]), 0, output)
        # Everything is installed: the next run changes nothing.
        self.run_inside('/root/rocinante/tools/setup', '--check')


if __name__ == '__main__':
    if '--list' not in sys.argv:
        RELEASE, SOURCE = sys.argv[1:3]
        SOURCE = os.path.abspath(SOURCE)
    tap.main(sys.modules['__main__'])
