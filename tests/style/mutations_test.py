#!/usr/bin/env python3
"""Every bug of tools/mutate still applies to the tree, and no list has lost its bugs. Prints TAP."""
import pathlib
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / 'tests'), str(TOP / 'tools/lib')]
import mutate_build  # pylint: disable=wrong-import-position
import mutate_list  # pylint: disable=wrong-import-position
import tap  # pylint: disable=wrong-import-position

LEAST_BUGS = 130


class Mutations(unittest.TestCase):
    """The lists in tests/mutations."""

    def test_every_bug_applies(self):
        wrong = []
        for bug in mutate_list.load(TOP / 'tests/mutations'):
            try:
                bug.planted(TOP)
            except mutate_list.ListError as error:
                wrong.append(str(error))
        self.assertEqual(wrong, [])

    def test_there_are_enough(self):
        self.assertGreaterEqual(len(mutate_list.load(TOP / 'tests/mutations')), LEAST_BUGS)

    def test_an_entry_that_fits_nowhere_is_an_error(self):
        edit = mutate_list.Edit('tests/style/mutations_test.py', 'no such ' + 'text', '')
        bug = mutate_list.Bug('name', 'breaks', 'unit', '', (edit,), 'list')
        with self.assertRaisesRegex(mutate_list.ListError, 'occurs 0 times'):
            bug.planted(TOP)

    def test_the_first_failing_case_is_found(self):
        for output, case in (
                ('[ RUN      ] A.B\n[       OK ] A.B\n[ RUN      ] C.D\nx.cc:1: Failure\n[  FAILED  ] C.D (3 ms)\n[  FAILED  ] 1 test', ('C.D', False)),
                ('[ RUN      ] A.B\n[  FAILED  ] A.B, where GetParam() = 4 (3 ms)\n', ('A.B', False)),
                ('[ RUN      ] A.B\nterminate called without an active exception\n', ('A.B', True)),
                ('1..2\nok 1 m.One.test_a\nnot ok 2 m.One.test_b\n', ('m.One.test_b', False)),
                ('something else', ('', True))):
            self.assertEqual(mutate_build.first_failure(output), case)

    def test_a_command_that_is_out_of_time_ends_what_it_began(self):
        with tempfile.TemporaryDirectory() as folder:
            command = ['bash', '-c', 'trap "sleep 0.3; touch ended; exit" TERM; touch begun; sleep 60 & wait']
            self.assertIsNone(mutate_build.run_bounded(command, 1, pathlib.Path(folder) / 'log', cwd=folder))
            if (pathlib.Path(folder) / 'begun').exists():  # the machine may be busy
                self.assertTrue((pathlib.Path(folder) / 'ended').exists())

    def test_a_build_anew_asks_no_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            scratch = mutate_build.Scratch(TOP, pathlib.Path(folder), 1)
            (scratch.source / 'roce').mkdir(parents=True)
            (scratch.source / 'roce/x.cc').write_text('without', encoding='utf-8')
            scratch.build.mkdir()
            # A rule that tells the setting of the cache, whenever the file has changed.
            (scratch.build / 'build.ninja').write_text(
                'rule r\n command = echo "recache=$$CCACHE_RECACHE" >>$out\nbuild x: r ../source/roce/x.cc\n', encoding='utf-8')
            scratch.plant({'roce/x.cc': 'with'})
            scratch.make(['x'], 'bug')
            scratch.make(['x'], 'bug', anew=True)
            self.assertEqual((scratch.build / 'x').read_text(encoding='utf-8'), 'recache=\nrecache=1\n')


if __name__ == '__main__':
    tap.main(sys.modules[__name__])
