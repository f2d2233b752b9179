#!/usr/bin/env python3
"""The project's declarations of libibverbs' private structures agree with libibverbs' own headers: sizes, offsets, the order of the
operation table and the types of the plugin's functions. Takes the headers from the source packages of several Debian releases.

Usage: compare_headers_test.py TOP [unittest arguments]

The archives come from the mirror in the machine's apt configuration, which checks the signatures, and are kept in
${ROCI_CACHE_DIR:-~/.cache/rocinante}/rdma-core. A release is skipped if the mirror cannot be reached or does not have its archive.
ROCI_RDMA_CORE names a folder with more unpacked source trees to compare, such as worktrees of upstream's repository.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(sys.argv[1]).resolve()
HERE = TOP / 'tests/unit/verbs_provider/generations'
CACHE = pathlib.Path(os.environ.get('ROCI_CACHE_DIR') or pathlib.Path.home() / '.cache/rocinante') / 'rdma-core'
RELEASES = ('bookworm', 'trixie', 'sid')
FETCH_LIMIT_S = 900
# Layouts by the first release of rdma-core that has them (verbs_provider/generations/layouts.h), and private ABI numbers.
LAYOUTS = {36: 34, 59: 59, 62: 62, 64: 64, 65: 65}
NUMBERS = {36: 34, 57: 57, 59: 59, 64: 64, 65: 65}
NEWEST = 65


def run(*command, seconds=300, **arguments):
    """Output of a command; CalledProcessError or TimeoutExpired."""
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds, **arguments).stdout


def latest(table, release):
    return table[max(first for first in table if first <= release)]


def fetch(suite):
    """The unpacked source tree of rdma-core in `suite`, from the cache or the mirror; or SkipTest."""
    kept = CACHE / suite
    if kept.is_dir():
        return kept
    with tempfile.TemporaryDirectory(prefix='roci-rdma-core.') as name:
        folder = pathlib.Path(name)
        try:
            archive = run(TOP / 'tools/lib/fetch-source', 'rdma-core', suite, cwd=folder, seconds=FETCH_LIMIT_S).strip()
        except (OSError, subprocess.SubprocessError) as error:
            said = (getattr(error, 'stderr', '') or str(error)).strip().splitlines()
            raise unittest.SkipTest(f"the mirror does not give rdma-core's source of {suite}: {said[-1] if said else error}") from error
        tree = folder / 'tree'
        tree.mkdir()
        run('tar', '-xf', folder / archive, '-C', tree, '--strip-components=1', '--no-same-owner')
        CACHE.mkdir(parents=True, exist_ok=True)
        shutil.move(tree, CACHE / f'{suite}.new')
        os.rename(CACHE / f'{suite}.new', kept)
    return kept


def collect(tree, include):
    """Arranges the headers as rdma-core's build does for its providers."""
    for target, source in (('infiniband', 'libibverbs'), ('ccan', 'ccan'), ('util', 'util'), ('rdma', 'kernel-headers/rdma')):
        (include / target).mkdir(parents=True)
        for header in (tree / source).glob('*.h'):
            shutil.copy(header, include / target)
    shutil.copy(tree / 'kernel-headers/rdma/ib_user_ioctl_verbs.h', include / 'infiniband')
    (include / 'kernel-abi').mkdir()
    for name in ('ib_user_verbs', 'rdma_user_rxe'):
        run('python3', tree / 'buildlib/make_abi_structs.py', tree / f'kernel-headers/rdma/{name}.h', include / f'kernel-abi/{name}.h')
    (include / 'config.h').touch()


def version(tree):
    """(release, private ABI number) of a source tree."""
    text = (tree / 'CMakeLists.txt').read_text()
    return [int(re.search(rf'^set\({name} "(\d+)', text, re.M)[1]) for name in ('PACKAGE_VERSION', 'IBVERBS_PABI_VERSION')]


class Headers(unittest.TestCase):
    """One test for each Debian release, and for each tree in ROCI_RDMA_CORE."""

    def printed(self, source, release, *folders):
        """What ours.cc or theirs.cc prints, compiled with `folders` first."""
        with tempfile.TemporaryDirectory() as place:
            done = subprocess.run(
                ['c++', '-std=c++20', '-O1', '-w', f'-DROCI_LAYOUT={latest(LAYOUTS, release)}', f'-DROCI_RELEASE={release}',
                 *(f'-I{folder}' for folder in (*folders, TOP)), HERE / source, '-o', f'{place}/program'],
                capture_output=True, text=True, check=False, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            return sorted(run(f'{place}/program').splitlines())

    def compare(self, tree):
        release, number = version(tree)
        if release > NEWEST:
            self.skipTest(f'rdma-core {release} has the private ABI {number}; add it to verbs_provider/generations')
        self.assertEqual(number, latest(NUMBERS, release))
        with tempfile.TemporaryDirectory() as place:
            collect(tree, pathlib.Path(place))
            theirs = self.printed('theirs.cc', release, HERE / 'headers', place)
        self.assertGreater(len(theirs), 130)
        self.assertEqual(self.printed('ours.cc', release), theirs)


def add_tests():
    for suite in RELEASES:
        setattr(Headers, f'test_{suite}', lambda self, suite=suite: self.compare(fetch(suite)))
    if 'ROCI_RDMA_CORE' in os.environ:
        for tree in pathlib.Path(os.environ['ROCI_RDMA_CORE']).glob('*/'):
            setattr(Headers, f'test_{tree.name}', lambda self, tree=tree: self.compare(tree))


add_tests()
if __name__ == '__main__':
    sys.path.insert(0, str(TOP / 'tests'))
    import tap
    sys.argv = sys.argv[:1] + sys.argv[2:]
    tap.main(sys.modules['__main__'])
