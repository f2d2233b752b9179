#!/usr/bin/env python3
"""Man pages, completions and the service: they agree with --help and with the example of the configuration. Prints TAP.

Usage: pages_test.py ROCI ROCID PAGES_DIR
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOP / 'tests'))
import tap  # pylint: disable=wrong-import-position

ROCI, ROCID = sys.argv[1:3]
PAGES = pathlib.Path(sys.argv[3])
MOST_EXPOSURE = 3.0  # of `systemd-analyze security`


def help_of(*command):
    return subprocess.run([*command, '--help'], capture_output=True, text=True, check=True, timeout=30).stdout


def part_of(text, heading):
    """The lines below a heading of --help, up to an empty line."""
    match = re.search(rf'^{heading}:\n((?:.+\n)+)', text, re.MULTILINE)
    return match[1] if match else ''


def commands():
    """(page, command) of each program and subcommand."""
    yield PAGES / 'rocid.8', (ROCID,)
    yield PAGES / 'roci.1', (ROCI,)
    for name in re.findall(r'^  (\w+) ', part_of(help_of(ROCI), 'Subcommands'), re.MULTILINE):
        yield PAGES / f'roci-{name}.1', (ROCI, name)


def options_of_help(text):
    """{name: explanation} of the options of --help. A long name has its explanation on the next line."""
    found, name = {}, None
    for line in part_of(text, 'Options').splitlines():
        match = re.match(r'  (-\S+)', line)
        name = match[1].split(',')[-1] if match else name
        found[name] = found.get(name, '') + ' ' + line[30:].strip()
    return found


def plain(page):
    """A page's text without fonts and escapes."""
    text = re.sub(r'\\f[BIR]', '', page.read_text(encoding='utf-8'))
    return text.replace('\\-', '-').replace('\\(ti', '~').replace('\\(ha', '^').replace('\\&', '').replace('\\e', '\\')


def options_of_page(page):
    section = re.search(r'^\.SH OPTIONS\n(.*?)^\.SH', plain(page), re.MULTILINE | re.DOTALL)
    return set(re.findall(r'^(?:-\w, )?(--[\w-]+)', section[1], re.MULTILINE))


class ManPages(unittest.TestCase):

    def test_every_command_has_one(self):
        self.assertEqual({page.name for page, _command in commands()} | {'rocid.toml.5'},
                         {page.name for page in PAGES.glob('*.[158]')})

    def test_they_have_the_options_of_help(self):
        for page, command in commands():
            options = options_of_help(help_of(*command))
            self.assertEqual(options_of_page(page), set(options), page)
            text = ' '.join(plain(page).split())
            for name, explanation in options.items():
                # The name and the kind of its value may stand before the explanation, on the same line.
                words = explanation.split()[-3:]
                self.assertIn(' '.join(words), text, f'{page}: {name}')

    def test_they_have_the_subcommands(self):
        for page, command in commands():
            for name in re.findall(r'^  (\w+) ', part_of(help_of(*command), 'Subcommands'), re.MULTILINE):
                self.assertRegex(plain(page), rf'(?m)^(roci-{name}\(1\)|\.SS "roci {command[-1]} {name} )', page)

    def test_the_configuration_s_has_every_key(self):
        text = plain(PAGES / 'rocid.toml.5')
        example = (TOP / 'docs/rocid.toml').read_text(encoding='utf-8')
        keys = re.findall(r'^(?:# )*([a-z_0-9]+) = ', example, re.MULTILINE)
        self.assertGreater(len(keys), 50)
        for key in keys:
            self.assertRegex(text, rf'(?m)^{key} = ')
        for heading in re.findall(r'^(?:# )?(\[\[?[a-z.]+\]\]?)', example, re.MULTILINE):
            self.assertIn(f'\n.SH {heading}\n', text)

    @unittest.skipUnless(shutil.which('man') and shutil.which('groff'), 'there is no man, or no groff')
    def test_roff_has_no_warnings(self):
        for page in PAGES.glob('*.[158]'):
            done = subprocess.run(['man', '--warnings', '-E', 'UTF-8', '-l', '-Tutf8', '-Z', page],
                                  env={**os.environ, 'MANROFFSEQ': '', 'MANWIDTH': '80'}, capture_output=True, text=True, check=False)
            self.assertEqual(done.stderr, '', page)


class Completions(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.runtime_dir = pathlib.Path(scratch.name)
        for device in ('roci0', 'roci1'):
            (self.runtime_dir / 'sysfs/class/infiniband' / device).mkdir(parents=True)

    def complete(self, *words, program='roci'):
        """What bash offers for the last word."""
        script = f'. {PAGES / program}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _{program}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(['bash', '--norc', '-c', script, 'bash', program, *words], capture_output=True, text=True, check=True,
                              env={**os.environ, 'ROCI_RUNTIME_DIR': str(self.runtime_dir)}, timeout=30)
        self.assertEqual(done.stderr, '')
        return done.stdout.split()

    def test_scripts_parse(self):
        for shell, names in (('bash', ('roci', 'rocid')), ('zsh', ('_roci', '_rocid')), ('fish', ('roci.fish', 'rocid.fish'))):
            for name in names:
                if shutil.which(shell):
                    done = subprocess.run([shell, '-n', PAGES / name], capture_output=True, text=True, check=False, timeout=30)
                    self.assertEqual((done.returncode, done.stderr), (0, ''), name)

    def test_scripts_of_all_shells_have_every_option(self):
        for name in ('roci', '_roci', 'roci.fish'):
            text = (PAGES / name).read_text(encoding='utf-8')
            for _page, command in commands():
                for option in options_of_help(help_of(*command)) if command[0] == ROCI else ():
                    self.assertIn(option if name != 'roci.fish' else f'-l {option[2:]}', text, name)

    def test_commands(self):
        self.assertEqual(self.complete('sh'), ['show'])
        self.assertEqual(self.complete('addr', ''), ['add', 'del', 'show'])
        self.assertEqual(self.complete('--runtime-dir', '/x', 'dec'), ['decode'])

    def test_options(self):
        self.assertIn('--rate-queue', self.complete('impair', '--rate'))
        self.assertEqual(self.complete('impair', 'roci0', '--cl'), ['--clear'])
        self.assertEqual(self.complete('--check', program='rocid'), ['--check-config'])

    def test_values(self):
        self.assertEqual(self.complete('impair', '--direction', ''), ['in', 'out'])
        self.assertEqual(self.complete('--log-level', 'de', program='rocid'), ['debug'])
        self.assertEqual(self.complete('show', 'q'), ['qps'])

    def test_devices(self):
        self.assertEqual(self.complete('capture', 'ro'), ['roci0', 'roci1'])
        self.assertEqual(self.complete('show', '--json', 'qps', ''), ['roci0', 'roci1'])
        self.assertEqual(self.complete('route', 'add', 'roci1'), ['roci1'])
        self.assertEqual(self.complete('trace', ''), ['roci0', 'roci1'])

    def test_nothing_after_the_last_argument(self):
        self.assertEqual(self.complete('capture', 'roci0', ''), [])


class Service(unittest.TestCase):

    @unittest.skipUnless(shutil.which('systemd-analyze'), 'there is no systemd-analyze')
    def test_is_hardened(self):
        done = subprocess.run(['systemd-analyze', 'security', '--offline=true', '--no-pager', PAGES / 'rocid.service'],
                              capture_output=True, text=True, check=False, timeout=60)
        level = re.search(r'Overall exposure level for rocid.service: ([0-9.]+)', done.stdout)
        self.assertTrue(level, done.stderr)
        self.assertLessEqual(float(level[1]), MOST_EXPOSURE, done.stdout)

    def test_starts_the_installed_daemon(self):
        unit = (PAGES / 'rocid.service').read_text(encoding='utf-8')
        self.assertRegex(unit, r'(?m)^ExecStart=/\S+/bin/rocid --config /\S+/rocinante/rocid\.toml ')
        self.assertNotRegex(unit, '@[a-z]+@')


if __name__ == '__main__':
    tap.main(sys.modules[__name__])
