"""Man pages (man(7)) of the commands, from their --help, and of the configuration, from its commented example."""
import re

# A line of capitals, alone or before remarks in parentheses, heads a section. So does "Examples:".
HEADING = re.compile(r'^([A-Z][A-Z ]{2,})$|^(Examples):$')
VERBATIM = ('EXAMPLES',)


class Roff:
    """Collects the lines of a page."""

    def __init__(self, replacements):
        self.lines = []
        self.replacements = replacements

    def plain(self, text):
        """Text with the names of files as installed."""
        for pattern, replacement in self.replacements:
            text = re.sub(pattern, replacement, text)
        return escape(text)

    def inline(self, text):
        """Text for a filled line: `code` in bold."""
        text = self.plain(text)
        return re.sub(r'`([^`]+)`', r'\\fB\1\\fR', text)

    def request(self, name, *arguments):
        if name == 'PP' and self.lines[-1].startswith('.S'):
            return  # a section starts with a paragraph
        self.lines.append(' '.join([f'.{name}', *(quote(argument) for argument in arguments)]))

    def text(self, text):
        text = self.inline(text)
        self.lines.append('\\&' + text if text.startswith(('.', "'")) else text)

    def verbatim(self, lines):
        self.request('PP')
        self.lines += ['.RS 4', '.nf']
        for line in lines:
            line = self.plain(line)
            self.lines.append('\\&' + line if line.startswith(('.', "'")) else line)
        self.lines += ['.fi', '.RE']

    def item(self, term, text, is_bold=True):
        """A term and its explanation. A term in roff has its own fonts."""
        self.lines += ['.TP', ('\\fB' + self.inline(term) + '\\fR') if is_bold else term]
        self.text(text)


NOTHING = '\0'  # the explanation of a term without one; roff needs a line


def escape(text):
    return text.replace('\\', '\\e').replace('-', '\\-').replace('~', '\\(ti').replace('^', '\\(ha').replace(NOTHING, '\\&')


def quote(text):
    text = escape(text).replace('"', '\\(dq')
    return f'"{text}"' if ' ' in text or not text else text


def dedent(lines):
    width = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[width:] for line in lines]


def blocks(lines):
    """Runs of lines without an empty one."""
    run = []
    for line in [*lines, '']:
        if line.strip():
            run.append(line)
        elif run:
            yield run
            run = []


def column_of(lines):
    """The column at which the explanations of a list of terms start, or None."""
    match = next((found for found in (re.match(r'\S.*?\s{2,}(?=\S)', line) for line in lines) if found), None)
    if not match:
        return None
    column = match.end()
    for line in lines:
        is_term = not line.startswith(' ')
        if is_term and (len(line) <= column or line[column - 1] != ' ' or line[column] == ' '):
            return None
        if not is_term and line[:column].strip():
            return None
    return column if not lines[0].startswith(' ') else None


def write_list(page, lines, column):
    """A list of terms, whose explanations start at the column."""
    items = []
    for line in lines:
        if line.startswith(' '):
            items[-1][1].append(line.strip())
        else:
            items.append((line[:column].strip(), [line[column:].strip()]))
    for term, texts in items:
        page.item(term, ' '.join(texts))


def write_part(page, lines):
    """Lines of a block that are all indented, or all not: a list of terms, a paragraph, or else verbatim."""
    is_indented = lines[0].startswith(' ')
    lines = dedent(lines)
    column = column_of(lines)
    if column is not None:
        write_list(page, lines, column)
    elif is_indented:
        page.verbatim(lines)
    else:
        page.request('PP')
        page.text(' '.join(lines))


def write_block(page, lines):
    """A list of terms, or a paragraph in which indented lines are lists."""
    column = column_of(lines)
    if column is not None:
        write_list(page, lines, column)
        return
    part = []
    for line in [*lines, None]:
        if part and (line is None or line.startswith(' ') != part[0].startswith(' ')):
            write_part(page, part)
            part = []
        part.append(line)


def sections(text):
    """(heading, lines); the heading of the first is ''."""
    found = [('', [])]
    for line in text.splitlines():
        match = HEADING.match(line)
        if match:
            found.append(((match[1] or match[2]).upper(), []))
        else:
            found[-1][1].append(line)
    return found


def write_text(page, heading, lines):
    if heading in VERBATIM:
        page.verbatim(dedent([line for line in lines if line.strip()]))
        return
    for block in blocks(dedent(lines)):
        write_block(page, block)


def value_of(option):
    """What stands for an option's value."""
    kind, _, constraint = option['type'].partition(':')
    if constraint.startswith('{'):
        return constraint[1:-1].replace(',', '|')
    return {'TEXT': 'VALUE', 'INT': 'NUMBER', 'UINT': 'NUMBER', 'FLOAT': 'NUMBER'}.get(kind, kind)


def write_option(page, option):
    value = value_of(option)
    names = ', '.join(f'\\fB{escape(name)}\\fR' for name in option['names']) or f'\\fI{escape(option["positional"])}\\fR'
    if value and option['names']:
        names += f' \\fI{escape(value)}\\fR'
    remarks = [f'Default: {option["default"]}.'] if option['default'] else []
    limits = re.search(r' in \[(\S+) - (\S+)\]$', option['type'])
    if limits:
        remarks.append(f'From {limits[1]} to {limits[2]}.')
    if option['excludes']:
        remarks.append(f'Not with {", ".join(option["excludes"])}.')
    text = option['help'].rstrip('.') + '.' if remarks else option['help']
    page.item(names, ' '.join([text, *remarks]), is_bold=False)


def write_options(page, options, heading):
    if options:
        page.request('SH', heading)
    for option in options:
        write_option(page, option)


def usage_of(command):
    return re.search(r'^Usage: (.*)$', command['help'], re.MULTILINE)[1]


def write_commands(page, command, parents):
    """The subcommands: those of roci have pages of their own, those of a subcommand are part of its page."""
    page.request('SH', 'COMMANDS')
    for sub in command['commands']:
        if not parents:
            page.item(f'\\fB{escape(command["name"] + "-" + sub["name"])}\\fR(1)', sub['about'], is_bold=False)
            continue
        page.request('SS', usage_of(sub))
        page.text(sub['about'] + '.')
        for option in sub['options']:
            if '--help' not in option['names']:
                write_option(page, option)
        if sub['footer'] != command['footer']:
            write_text(page, '', sub['footer'].splitlines())


def command_page(command, parents, section, about, replacements):
    """The page of one command. `about`: see pages.py."""
    page = Roff(replacements)
    name = '-'.join([*parents, command['name']])
    summary, _, description = command['about'].partition('\n')
    summary = re.sub(rf'^{command["name"]}(:| -) ', '', summary)
    parts = sections(command['footer'])
    page.request('TH', name.upper(), section, '', f'Rocinante {about["version"]}', 'Rocinante')
    page.request('SH', 'NAME')
    page.lines.append(f'{escape(name)} \\- {escape(summary[0].lower() + summary[1:])}')
    page.request('SH', 'SYNOPSIS')
    program, *rest = usage_of(command).split(' [', 1)
    page.lines.append(f'\\fB{escape(program)}\\fR' + ''.join(escape(f' [{part}') for part in rest))
    page.request('SH', 'DESCRIPTION')
    write_text(page, '', description.splitlines() or [summary[0].upper() + summary[1:] + '.'])
    write_text(page, '', parts[0][1])
    write_options(page, [option for option in command['options'] if not option['names']], 'ARGUMENTS')
    write_options(page, [option for option in command['options'] if option['names']], 'OPTIONS')
    if command['commands']:
        write_commands(page, command, parents)
    for heading, lines in parts[1:]:
        if heading != 'SEE ALSO':
            page.request('SH', heading)
            write_text(page, heading, lines)
    page.request('SH', 'SEE ALSO')
    page.text(', '.join(other for other in about['see_also'] if other != f'{name}({section})'))
    return '\n'.join(page.lines) + '\n'


# A line of the example: its code may be a remark itself ("# key = value  # text").
SECTION = re.compile(r'^(\[\[?[a-z.]+\]\]?)\s*(?:#\s*(.*))?$')
KEY = re.compile(r'^([a-z_0-9]+) = ((?:"[^"]*"|[^#"])+?)\s*(?:#\s*(.*))?$')


def example_lines(text):
    """(kind, match, text) of each line of the example; kinds: section, key, more (of the explanation above), text, space."""
    for line in text.splitlines():
        stripped = re.sub(r'^# ?', '', line)
        section, key, more = SECTION.match(stripped), KEY.match(stripped), re.match(r'^#?\s{8,}#\s*(.*)$', line)
        if section:
            yield 'section', section, section[2] or ''
        elif key:
            yield 'key', key, key[3] or ''
        elif more:
            yield 'more', more, more[1]
        else:
            yield 'text' if stripped.strip() else 'space', None, stripped.removeprefix('# ')


def write_remark(page, lines, is_item):
    """What the example says of a key, or else between keys."""
    if is_item:
        page.text(' '.join(lines))
    else:
        write_text(page, '', lines)


def configuration_page(example, about, replacements):
    """rocid.toml(5)."""
    page = Roff(replacements)
    page.request('TH', 'ROCID.TOML', '5', '', f'Rocinante {about["version"]}', 'Rocinante')
    page.request('SH', 'NAME')
    page.lines.append('rocid.toml \\- configuration of rocid')
    page.request('SH', 'DESCRIPTION')
    page.text(f'The service reads {about["config"]}; `rocid --config FILE` reads FILE. Values below are defaults or examples. '
              f'{about["docdir"]}/rocid.toml has them as one file.')
    lines, is_item = [], False
    for kind, match, text in [*example_lines(example), ('space', None, '')]:
        if kind != 'more' and (kind != 'text' or is_item):
            write_remark(page, lines, is_item)
            lines, is_item = [], False
        if kind == 'section':
            page.request('SH', match[1])
        elif kind == 'key':
            is_item = True
            page.lines += ['.TP', f'\\fB{escape(match[1])}\\fR = {escape(match[2].strip())}']
            text = text or NOTHING
        lines += [text] if text else []
    page.request('SH', 'SEE ALSO')
    page.text('rocid(8), roci(1)')
    return '\n'.join(page.lines) + '\n'
