"""The lines of README.md that lead from nothing to a device, for the tests that run them."""
import pathlib
import re

README = pathlib.Path(__file__).resolve().parent.parent / 'README.md'


def line(way):
    """The line of the table row that begins with `way`."""
    return re.search(rf'^\| {re.escape(way)} \| `([^`]+)`', README.read_text(encoding='utf-8'), re.MULTILINE)[1]
