"""Packages and tarballs for tests: those named on the command line, or made by tools/package."""
import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD_LIMIT_S = 3000


def make(output, *options):
    """Runs tools/package; returns what it prints, the paths of what it made."""
    done = subprocess.run([TOP / 'tools/package', '--no-setup', *options, '--output', output], check=True, stdout=subprocess.PIPE, text=True,
                          timeout=BUILD_LIMIT_S)
    return [pathlib.Path(line) for line in done.stdout.splitlines()]


def tarball(arguments):
    """The tarball that the arguments name, or a new one. The next test makes it again in seconds: its objects stay in build-static/."""
    named = [argument for argument in arguments if not argument.startswith('-')]
    return pathlib.Path(named[0]).resolve() if named else make(TOP / 'build-package', '--tarball')[0]
