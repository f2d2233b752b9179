#!/usr/bin/env python3
"""docs/verbs.md has every function that <infiniband/verbs.h> declares, and every test that it names exists.

Usage: verbs_table_test.py TOP
"""
import os
import re
import sys

HEADER = '/usr/include/infiniband/verbs.h'
# Declared in the header, but not calls of an application.
INTERNAL = {'ibv_static_providers', 'ibv_rate', 'ibv_wc_opcode'}


def declared():
    with open(HEADER, encoding='utf-8') as header:
        text = re.sub(r'/\*.*?\*/', '', header.read(), flags=re.S)
    return set(re.findall(r'\b(ibv_[a-z0-9_]+)\s*\(', text)) - INTERNAL


def test_names(top):
    """Suites and cases of GoogleTest, names of Meson tests and files."""
    names = set()
    paths = (os.path.join(folder, name) for folder, _, files in os.walk(os.path.join(top, 'tests')) for name in files)
    for path in paths:
        names.add(os.path.basename(path))
        if not path.endswith(('.cc', 'meson.build')):
            continue
        with open(path, encoding='utf-8') as source:
            text = source.read()
        for suite, case in re.findall(r'^TEST(?:_[FP])?\((\w+),\s*(\w+)\)', text, flags=re.M):
            names.update((suite, f'{suite}.{case}'))
        names.update(re.findall(r"^\s*test\('(\w+)'", text, flags=re.M))
        # Rows of the tables of tests: each has a time limit.
        names.update(re.findall(r"^\s*'(\w+)': \{[^{}]*'timeout'", text, flags=re.M))
    return names


def main():
    top = sys.argv[1]
    with open(os.path.join(top, 'docs', 'verbs.md'), encoding='utf-8') as table:
        text = table.read()
    wrong = [f'{name} is in verbs.h and not in the table' for name in sorted(declared())
             if not re.search(rf'\b{name}\b', text)]
    known = test_names(top)
    for name in sorted(set(re.findall(r'`(Verbs\w+(?:\.\w+)?|verbs_(?!provider)\w+|\w+_test\.(?:cc|py))`', text))):
        if name not in known:
            wrong.append(f'there is no test {name}')
    for line in wrong:
        print('docs/verbs.md:', line)
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
