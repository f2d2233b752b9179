"""The list of planted bugs: reads tests/mutations/*.toml, checks every entry and computes the changed text of a file.

tests/mutations/README.md describes the format.
"""
import dataclasses
import re
import tomllib

SUITES = ('unit', 'sim', 'fuzz', 'integration')
EDIT_KEYS = {'file', 'old', 'new'}
BUG_KEYS = {'name', 'breaks', 'expect', 'test', 'edit'} | EDIT_KEYS


class ListError(Exception):
    """An entry is malformed or does not apply to the tree; the message names the entry."""


@dataclasses.dataclass(frozen=True)
class Edit:
    """Replaces `old`, which occurs exactly once in `file`, by `new`."""
    file: str
    old: str
    new: str


@dataclasses.dataclass(frozen=True)
class Bug:
    """One entry. `expect`: the suite that must catch the bug; `test`: the Meson test to try first, or ''."""
    name: str
    breaks: str
    expect: str
    test: str
    edits: tuple
    list_name: str

    def planted(self, top):
        """Returns {file: text with the bug} for the files under `top`, a pathlib.Path."""
        texts = {}
        for edit in self.edits:
            path = top / edit.file
            if edit.file not in texts:
                if not path.is_file():
                    raise ListError(f'{self.name}: there is no file {edit.file}')
                texts[edit.file] = path.read_text(encoding='utf-8')
            found = texts[edit.file].count(edit.old)
            if found != 1:
                raise ListError(f'{self.name}: the old text occurs {found} times in {edit.file}, not once')
            texts[edit.file] = texts[edit.file].replace(edit.old, edit.new)
        return texts


def _edits(name, entry):
    tables = entry.get('edit', [])
    if EDIT_KEYS & entry.keys():
        tables = [{key: entry[key] for key in EDIT_KEYS & entry.keys()}] + tables
    for table in tables:
        if set(table) != EDIT_KEYS or not all(isinstance(text, str) for text in table.values()):
            raise ListError(f'{name}: an edit needs file, old and new, and nothing else')
        if not table['old'] or table['old'] == table['new']:
            raise ListError(f'{name}: an edit of {table["file"]} changes nothing')
    if not tables:
        raise ListError(f'{name}: there is no edit')
    return tuple(Edit(**table) for table in tables)


def _bug(list_name, entry):
    name = entry.get('name', '')
    if not isinstance(name, str) or not re.fullmatch(r'[a-z0-9]+(-[a-z0-9]+)*', name):
        raise ListError(f'{list_name}: an entry has no name in lower case with hyphens: {name!r}')
    unknown = entry.keys() - BUG_KEYS
    if unknown:
        raise ListError(f'{name}: unknown key {", ".join(sorted(unknown))}')
    if not entry.get('breaks'):
        raise ListError(f'{name}: `breaks` does not tell what breaks')
    if entry.get('expect') not in SUITES:
        raise ListError(f'{name}: `expect` is none of {", ".join(SUITES)}')
    if entry['expect'] == 'integration' and not entry.get('test'):
        raise ListError(f'{name}: with expect = "integration", `test` must name the test')
    return Bug(name, entry['breaks'], entry['expect'], entry.get('test', ''), _edits(name, entry), list_name)


def load(folder):
    """Returns the bugs of every list in `folder`, a pathlib.Path, in the order of the files and of their entries."""
    bugs = []
    for path in sorted(folder.glob('*.toml')):
        try:
            document = tomllib.loads(path.read_text(encoding='utf-8'))
        except tomllib.TOMLDecodeError as error:
            raise ListError(f'{path.name}: {error}') from error
        if set(document) - {'bug'}:
            raise ListError(f'{path.name}: only [[bug]] tables are allowed')
        bugs += [_bug(path.stem, entry) for entry in document.get('bug', [])]
    names = [bug.name for bug in bugs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ListError(f'names that occur more than once: {", ".join(twice)}')
    return bugs
