"""Runs unittest with a TAP line per test, so that Meson counts each test."""
import sys
import unittest


class Result(unittest.TextTestResult):
    """Prints the lines."""

    def report(self, word, test, remark=''):
        print(f'{word} {self.testsRun} {test.id()}{remark}', flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.report('ok', test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.report('not ok', test)

    def addError(self, test, err):
        super().addError(test, err)
        self.report('not ok', test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.report('ok', test, f' # SKIP {reason}')


def each(suite):
    """The single tests of a suite."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


def main(module):
    """Runs the tests of the module and ends the program; with --list it prints their names only."""
    tests = unittest.defaultTestLoader.loadTestsFromModule(module)
    if '--list' in sys.argv:
        print('\n'.join(test.id() for test in each(tests)))
        sys.exit(0)
    print(f'1..{tests.countTestCases()}', flush=True)
    outcome = unittest.TextTestRunner(stream=sys.stderr, resultclass=Result).run(tests)
    sys.exit(not outcome.wasSuccessful())
