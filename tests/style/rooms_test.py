#!/usr/bin/env python3
"""Each rule of tools/check-includes about rooms and about the seam to the shards, in a tree of a few files. Prints TAP."""
import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOP / 'tests'))
import tap  # pylint: disable=wrong-import-position

loader = importlib.machinery.SourceFileLoader('check_includes', str(TOP / 'tools/check-includes'))
check_includes = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(check_includes)


class Rooms(unittest.TestCase):
    """`files` of a case: {path: the header that it includes, or ''}."""

    def complaints(self, files):
        with tempfile.TemporaryDirectory() as top:
            root = pathlib.Path(top)
            for path, name in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(f'#include "{name}"\n' if name else '')
            return check_includes.check_rooms(root, sorted(files))

    def test_every_room_may_include_those_below_only(self):
        for folder, levels in check_includes.ROOMS.items():
            rooms = [(level, room) for level, names in enumerate(levels) for room in names.split()]
            for level, room in rooms:
                for target_level, target in rooms:
                    found = self.complaints({f'{folder}/{room}/x.cc': f'{folder}/{target}/y.h', f'{folder}/{target}/y.h': ''})
                    allowed = target_level < level or target == room
                    self.assertEqual(len(found), 0 if allowed else 1, f'{folder}: {room} -> {target}: {found}')

    def test_an_arrow_upwards_is_told_with_its_cycle(self):
        found = self.complaints({'dataplane/base/clock.cc': 'dataplane/shard/worker.h', 'dataplane/shard/worker.h': 'dataplane/qp/qp.h',
                                 'dataplane/qp/qp.h': 'dataplane/base/clock.h', 'dataplane/base/clock.h': ''})
        self.assertEqual(found, ['dataplane/base/clock.cc:1: dataplane/shard/worker.h: shard is above base, '
                                 'a cycle: base -> shard -> qp -> base'])

    def test_rooms_on_one_level_do_not_include_each_other(self):
        found = self.complaints({'dataplane/port/x.cc': 'dataplane/link/y.h', 'dataplane/link/y.h': ''})
        self.assertEqual(found, ['dataplane/port/x.cc:1: dataplane/link/y.h: link is beside port'])

    def test_every_file_is_in_a_room(self):
        self.assertEqual(len(self.complaints({'dataplane/new.cc': ''})), 1)
        self.assertEqual(len(self.complaints({'control/attic/new.cc': ''})), 1)
        self.assertEqual(self.complaints({'control/pch/control_pch.h': '', 'verbs_provider/abi/rings.h': ''}), [])

    def test_what_lies_beside_the_rooms_may_include_all_and_is_included_by_none(self):
        top = {'control/daemon.cc': 'control/manage/show.h', 'control/manage/show.h': '', 'control/daemon.h': ''}
        self.assertEqual(self.complaints(top), [])
        self.assertEqual(len(self.complaints({**top, 'control/manage/show.h': 'control/daemon.h'})), 1)

    def test_unit_tests_lie_as_the_tree_does(self):
        self.assertEqual(self.complaints({'dataplane/qp/x.h': '', 'tests/unit/dataplane/qp/x_test.cc': ''}), [])
        self.assertEqual(len(self.complaints({'tests/unit/dataplane/qp/x_test.cc': ''})), 1)


class Seam(unittest.TestCase):
    def reached(self, files):
        """`files`: {path: the header that it includes, or ''}."""
        with tempfile.TemporaryDirectory() as top:
            root = pathlib.Path(top)
            for path, name in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(f'#include "{name}"\n' if name else '')
            return check_includes.check_seam(root, sorted(files))

    def test_no_header_leads_control_to_the_inside_of_a_shard(self):
        inside = {'dataplane/qp/queue_pair.h': '', 'dataplane/shard/worker.h': 'dataplane/qp/queue_pair.h'}
        way = {'control/session/session.h': 'dataplane/shard/shard_client.h', **inside}
        found = self.reached({**way, 'dataplane/shard/shard_client.h': 'dataplane/shard/worker.h'})
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith('dataplane/shard/shard_client.h:1: dataplane/shard/worker.h: is compiled into control/ ('
                                            'control/session/session.h -> dataplane/shard/shard_client.h -> dataplane/shard/worker.h)'),
                        found)
        # Through several headers, a plain type among them.
        for between in ('dataplane/types/flow_rule.h', 'dataplane/shard/commands.h', 'dataplane/base/counters.h'):
            found = self.reached({**way, 'dataplane/shard/shard_client.h': between, between: 'dataplane/qp/queue_pair.h'})
            self.assertEqual(len(found), 1, f'{between}: {found}')

    def test_a_source_of_the_shard_may_include_what_its_header_may_not(self):
        self.assertEqual(self.reached({'control/session/session.h': 'dataplane/shard/shard_client.h',
                                       'dataplane/shard/shard_client.h': 'dataplane/types/copy_use.h', 'dataplane/types/copy_use.h': '',
                                       'dataplane/shard/shard_client.cc': 'dataplane/shard/worker.h', 'dataplane/shard/worker.h': ''}), [])

    def test_the_lists_name_what_control_reaches(self):
        control = [path.relative_to(TOP).as_posix() for path in (TOP / 'control').rglob('*') if path.suffix in ('.cc', '.h')]
        included = {name for path in control for _, name in check_includes.own_includes(TOP, path)}
        listed = check_includes.FOR_CONTROL | check_includes.BEHIND_FOR_CONTROL
        behind = {name for path in listed | included if (TOP / path).is_file() and path.startswith('dataplane/')
                  for _, name in check_includes.own_includes(TOP, path)}
        self.assertEqual(sorted(listed - included - behind), [])


if __name__ == '__main__':
    tap.main(sys.modules[__name__])
