"""Reads and writes the table in docs/memory.md: behaviour of registered memory with Rocinante and with Linux's soft-RoCE."""
import collections
import re

HEAD = '| operation | memory | moment | Rocinante | Linux soft-RoCE |'
RULE = '|---|---|---|---|---|'
MOMENTS = ('before', 'registered', 'traffic', 'after')
READ_ONLY = 'PROT_READ anonymous'
# Words of the document that stand for several kinds.
GROUPS = {
    'private': ('malloc', 'brk heap', 'anonymous', 'THP', 'stack', '.data', '.bss', 'private file'),
    'shared': ('shared file', 'memfd', 'SysV', 'shared anonymous'),
}
NOT_RUN = '?'  # in the document: the row has not been run yet
# Begins the paragraph that names the operations on UNNAMED memory with the results of ANONYMOUS memory where the daemon cannot map it.
UNPRIVILEGED = '- **Daemons without privilege**'
UNNAMED, ANONYMOUS = ('SysV', 'shared anonymous'), 'anonymous'
LIMIT = '## Known limits'  # names the operations whose results differ but should not
NO_RESULT = 'no result'
NEVER = (NO_RESULT, 'lost', 'crashed', 'hung', 'died', 'no device', 'not registered')

Name = collections.namedtuple('Name', 'operation kind moment')
Row = collections.namedtuple('Row', 'error sees reads writes remark')


def skipped(result):
    return 'skipped: ' in result


def parse_rows(text):
    """Parses the output of memory_table. Returns the document's cell for each Name, in order."""
    rows = {}
    for line in text.splitlines():
        fields = line.split('\t')
        if len(fields) == 8:
            rows[Name(*fields[:3])] = Row(*fields[3:])
    return {name: cell(rows, name, row) for name, row in rows.items()}


def cell(rows, name, row):
    """The text of a cell. A WRITE to PROT_READ memory always fails, so the document leaves that result out and shows the
    result for memory that is the same otherwise."""
    writes = row.writes
    if name.kind == READ_ONLY and writes != '-':
        like = rows.get(name._replace(kind='anonymous'))
        writes = f'WRITE {writes}' if writes != 'error' else like.writes if like else 'seen'
    words = ', '.join(word for word in (row.sees, row.reads, writes) if word != '-')
    return (f'{row.error}: ' if row.error != '-' else '') + '; '.join(part for part in (words, row.remark) if part not in ('', '-'))


def kinds_of(names):
    """The kinds of each operation, in order."""
    kinds = collections.defaultdict(list)
    for name in names:
        if name.kind not in kinds[name.operation]:
            kinds[name.operation].append(name.kind)
    return kinds


def put_together(kinds, every):
    """The document's words for `kinds`, some or all of the kinds `every` of an operation."""
    if len(every) > 1 and list(kinds) == list(every):
        return 'all'
    left, words = list(kinds), []
    for word, members in GROUPS.items():
        here = [kind for kind in members if kind in every]
        if len(here) > 1 and all(kind in left for kind in here):
            words.append(word)
            left = [kind for kind in left if kind not in here]
    return ', '.join(words + left)


def take_apart(words, every):
    if words == 'all':
        return list(every)
    kinds = []
    for word in words.split(', '):
        kinds += [kind for kind in GROUPS[word] if kind in every] if word in GROUPS else [word]
    return kinds


def seen_by_program(text):
    return text.split(';')[0].split(', ')[0]


def wrong(name, ours, theirs):
    """Why Rocinante's result is never acceptable for registered memory, even if it is documented; '' if it may be."""
    if any(word in ours for word in NEVER):
        return f'{name}: {ours}'
    if 'not seen' in ours and 'not seen' not in theirs:
        return f'{name}: what the device writes is lost silently'
    if name.moment != '-' and seen_by_program(ours) != seen_by_program(theirs):
        return f'{name}: the program sees {seen_by_program(ours)}, with soft-RoCE {seen_by_program(theirs)}'
    return ''


def lines_of(operation, every, results):
    """The document's lines of one operation. `results`: (Rocinante, soft-RoCE) by (kind, moment)."""
    alike = {}
    for kind in every:
        of_kind = tuple((moment, results[kind, moment]) for moment in (*MOMENTS, '-') if (kind, moment) in results)
        alike.setdefault(of_kind, []).append(kind)
    for of_kind, kinds in alike.items():
        by_result = {}
        for moment, result in of_kind:
            by_result.setdefault(result, []).append(moment)
        for (ours, theirs), moments in by_result.items():
            when = 'all' if len(moments) == len(MOMENTS) else ', '.join(moments)
            yield f'| {operation} | {put_together(kinds, every)} | {when} | {ours} | {"same" if theirs == ours else theirs} |'


class Document:
    """The table and the text around it."""

    def __init__(self, path, names):
        """`names`: of all rows that there are."""
        self.path, self.names = path, list(names)
        self.kinds = kinds_of(self.names)
        with open(path, encoding='utf-8') as file:
            lines = file.read().split('\n')
        self.start = lines.index(HEAD)
        self.end = next(i for i in range(self.start, len(lines)) if not lines[i].startswith('|'))
        self.before, self.after = lines[:self.start], lines[self.end:]
        self.ours, self.theirs, self.problems = {}, {}, []
        for line in lines[self.start + 2:self.end]:
            self.read_line(line)

    def read_line(self, line):
        operation, kinds, moments, ours, theirs = (field.strip() for field in line.strip('|').split('|'))
        for kind in take_apart(kinds, self.kinds.get(operation, [])):
            for moment in MOMENTS if moments == 'all' else moments.split(', '):
                name = Name(operation, kind, moment)
                if name in self.ours:
                    self.problems.append(f'{name} is there twice')
                self.ours[name] = ours
                self.theirs[name] = ours if theirs == 'same' else theirs
        known = set(self.names)
        self.problems += [f'{name} does not exist' for name in self.ours if name not in known]

    def unprivileged(self):
        """Our results where the daemon may not open /proc/PID/map_files."""
        paragraph = re.split(r'\n(?:- |\n)', '\n'.join(self.after).partition(UNPRIVILEGED)[2])[0]
        named = {' '.join(operation.split()) for operation in re.findall('`([^`]*)`', paragraph)}
        by_address = {name for name in self.ours
                      if name.kind in UNNAMED and name.operation in named and name.moment in ('registered', 'traffic')}
        return {name: self.ours[name._replace(kind=ANONYMOUS)] if name in by_address else result for name, result in self.ours.items()}

    def check(self):
        """Returns what is wrong with the document alone, without results of runs."""
        missing = [f'{name} is missing' for name in self.names if name not in self.ours]
        not_run = [f'{name} has no result' for name in self.names if NOT_RUN in (self.ours.get(name), self.theirs.get(name))]
        text = '\n'.join(self.after)
        limit = text.partition(LIMIT)[2]
        silent = [problem for ours in (self.ours, self.unprivileged()) for name in ours if f'`{name.operation}`' not in limit
                  if (problem := wrong(name, ours[name], self.theirs[name]))]
        different = dict.fromkeys(name.operation for name in self.names if self.ours.get(name) != self.theirs.get(name))
        unexplained = [f'`{operation}` differs, and the text behind the table does not name it'
                       for operation in different if f'`{operation}`' not in text]
        return self.problems + missing + not_run + silent + unexplained

    def update(self, ours, theirs):
        """Replaces results by those of runs. Rows that were skipped, or not run, do not change."""
        for results, column in ((ours, self.ours), (theirs, self.theirs)):
            column.update({name: result for name, result in results.items() if not skipped(result)})

    def write(self):
        lines = [HEAD, RULE]
        for operation, every in self.kinds.items():
            results = {(name.kind, name.moment): (self.ours.get(name, NOT_RUN), self.theirs.get(name, NOT_RUN))
                       for name in self.names if name.operation == operation}
            lines += lines_of(operation, every, results)
        with open(self.path, 'w', encoding='utf-8') as file:
            file.write('\n'.join(self.before + lines + self.after))
