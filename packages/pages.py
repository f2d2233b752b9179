#!/usr/bin/env python3
"""Writes the man pages and the completion scripts, from what --help prints and from the example of a configuration.

Usage: pages.py [--docdir DIR] [--config FILE] DESCRIPTION EXAMPLE OUTPUT_DIR

DESCRIPTION is the output of describe-commands (tools/describe_main.cc), EXAMPLE is docs/rocid.toml. --docdir and --config are the
installed paths that the pages name.
"""
import argparse
import json
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import completion  # pylint: disable=wrong-import-position
import manual  # pylint: disable=wrong-import-position

SECTIONS = {'roci': '1', 'rocid': '8'}


def see_also(programs):
    pages = ['rocid(8)', 'rocid.toml(5)', 'roci(1)']
    return pages + [f'roci-{command["name"]}(1)' for program in programs for command in program['commands']]


def man_pages(description, example, arguments):
    """(file name, text) of all man pages."""
    programs = description['programs']
    about = {'version': description['version'], 'docdir': arguments.docdir, 'config': arguments.config, 'see_also': see_also(programs)}
    replacements = [(r'\bdocs/rocid\.toml is a commented example', 'rocid.toml(5) describes it'),
                    (r'\bdocs/rocid\.toml\b', 'rocid.toml(5)'), (r'\bdocs/([a-z-]+\.md)', rf'{arguments.docdir}/\1')]
    for program in programs:
        section = SECTIONS[program['name']]
        yield f'{program["name"]}.{section}', manual.command_page(program, [], section, about, replacements)
        for command in program['commands']:
            yield (f'{program["name"]}-{command["name"]}.{section}',
                   manual.command_page(command, [program['name']], section, about, replacements))
    yield 'rocid.toml.5', manual.configuration_page(example, about, replacements)


def completions(description):
    """(file name, text) of all completion scripts."""
    for program in description['programs']:
        name = program['name']
        yield from ((name, completion.bash(program)), (f'_{name}', completion.zsh(program)), (f'{name}.fish', completion.fish(program)))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split('Usage: ')[1].split('\n')[0])
    for name, default in (('--docdir', '/usr/share/doc/rocinante'), ('--config', '/etc/rocinante/rocid.toml')):
        parser.add_argument(name, default=default)
    for name in ('description', 'example', 'output'):
        parser.add_argument(name, type=pathlib.Path)
    arguments = parser.parse_args()
    description = json.loads(arguments.description.read_text(encoding='utf-8'))
    example = arguments.example.read_text(encoding='utf-8')
    for name, text in (*man_pages(description, example, arguments), *completions(description)):
        (arguments.output / name).write_text(text, encoding='utf-8')


if __name__ == '__main__':
    main()
