"""Decides whether a small concurrent program may have an outcome under the memory model of C++.

The model is RC11 (Lahav et al., Repairing Sequential Consistency in C/C++11, PLDI 2017) without its rule against cycles of program
order and reads-from, which C++ does not have either. All accesses are atomic. Every choice of what each load reads and of the order
of the stores to each location is tried, so programs must be small: about ten operations.
"""
import itertools
from dataclasses import dataclass
from typing import Callable, Optional

RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST = 'relaxed', 'acquire', 'release', 'acq_rel', 'seq_cst'
_ACQUIRES = (ACQUIRE, ACQ_REL, SEQ_CST)
_RELEASES = (RELEASE, ACQ_REL, SEQ_CST)


@dataclass(frozen=True)
class Op:
    """One operation. `change` makes the value to store of what was read (stores: of None)."""
    kind: str  # load, store, rmw, fence
    place: str
    order: str
    change: Optional[Callable] = None
    name: str = ''  # of the value read


def load(place, order, name):
    """Reads `place`; the outcome has the value as `name`."""
    return Op('load', place, order, None, name)


def store(place, value, order):
    """Writes `place`."""
    return Op('store', place, order, lambda _: value)


def exchange(place, value, order, name=''):
    """Writes `place` and reads what was there, in one step."""
    return Op('rmw', place, order, lambda _: value, name)


def fetch_or(place, bits, order, name=''):
    """Sets bits of `place` and reads what was there, in one step."""
    return Op('rmw', place, order, lambda old: old | bits, name)


def fence():
    """atomic_thread_fence(memory_order_seq_cst)"""
    return Op('fence', '', SEQ_CST)


class _Relation:
    """A set of pairs of events, as a row of successors (a bit mask) for each event."""

    def __init__(self, count, pairs=()):
        self.rows = [0] * count
        for first, second in pairs:
            self.rows[first] |= 1 << second

    @classmethod
    def of_rows(cls, rows):
        """The relation with these rows."""
        relation = cls(0)
        relation.rows = rows
        return relation

    def __or__(self, other):
        return self.of_rows([a | b for a, b in zip(self.rows, other.rows)])

    def __and__(self, other):
        return self.of_rows([a & b for a, b in zip(self.rows, other.rows)])

    def then(self, other):
        """The composition: a step of this one and a step of the other."""
        rows = []
        for row in self.rows:
            reached = 0
            for middle, onward in enumerate(other.rows):
                if row >> middle & 1:
                    reached |= onward
            rows.append(reached)
        return self.of_rows(rows)

    def maybe(self):
        """A step of this one, or none."""
        return self.of_rows([row | 1 << i for i, row in enumerate(self.rows)])

    def closure(self):
        """One or more steps."""
        rows = list(self.rows)
        for middle in range(len(rows)):
            for i, row in enumerate(rows):
                if row >> middle & 1:
                    rows[i] |= rows[middle]
        return self.of_rows(rows)

    def only(self, first=None, second=None):
        """The pairs whose ends are in the masks."""
        rows = [row if first is None or first >> i & 1 else 0 for i, row in enumerate(self.rows)]
        return self.of_rows(rows if second is None else [row & second for row in rows])

    def is_irreflexive(self):
        """Whether no event is related to itself."""
        return not any(row >> i & 1 for i, row in enumerate(self.rows))

    def is_acyclic(self):
        """Whether no event is reached from itself."""
        return self.closure().is_irreflexive()


class _Program:
    """The events of the threads, after one store per location for its first value."""

    def __init__(self, initial, threads):
        self.events = [Op('store', place, RELAXED, lambda _, value=value: value) for place, value in initial.items()]
        self.first = len(self.events)
        thread_of = [-1] * self.first
        for number, ops in enumerate(threads):
            self.events += ops
            thread_of += [number] * len(ops)
        self.count = len(self.events)
        every = range(self.count)
        self.program_order = _Relation(self.count, (
            (a, b) for a in every for b in every
            if a < b and (thread_of[a] == thread_of[b] or a < self.first <= b)))
        self.same_place = _Relation(self.count, (
            (a, b) for a in every for b in every if self.events[a].place and self.events[a].place == self.events[b].place))
        self.reads = [i for i in every if self.events[i].kind in ('load', 'rmw')]
        self.writes = [i for i in every if self.events[i].kind in ('store', 'rmw')]

    def mask(self, choose):
        """The events that `choose` accepts."""
        return sum(1 << i for i, event in enumerate(self.events) if choose(event))

    def values(self, source):
        """What each event reads, or None if the sources of rmws form a cycle."""
        written, read = {}, {}
        pending = list(range(self.count))
        while pending:
            left = []
            for i in pending:
                event = self.events[i]
                if i in source:
                    if source[i] not in written:
                        left.append(i)
                        continue
                    read[i] = written[source[i]]
                if event.change is not None:
                    written[i] = event.change(read.get(i))
            if len(left) == len(pending):
                return None
            pending = left
        return read

    def is_consistent(self, source, orders):
        """Whether the axioms hold. `source`: the store that each read reads; `orders`: the stores to each location in order."""
        n = self.count
        reads_from = _Relation(n, ((write, read) for read, write in source.items()))
        modified = _Relation(n, (pair for order in orders for pair in itertools.combinations(order, 2)))
        reads_before = _Relation(n, (
            (read, later) for read, write in source.items() for later in range(n)
            if modified.rows[write] >> later & 1 and later != read))
        # Atomicity: nothing is stored between what an rmw reads and what it stores.
        if not reads_before.then(modified).is_irreflexive():
            return False
        rmws = self.mask(lambda e: e.kind == 'rmw')
        fences = self.mask(lambda e: e.kind == 'fence')
        stores = self.mask(lambda e: e.kind in ('store', 'rmw'))
        loads = self.mask(lambda e: e.kind in ('load', 'rmw'))
        sequence = reads_from.only(second=rmws).closure().maybe().only(stores)
        before_fence = self.program_order.only(fences).maybe()
        after_fence = self.program_order.only(second=fences).maybe()
        synchronizes = before_fence.then(sequence).then(reads_from.only(second=loads)).then(after_fence)
        synchronizes = synchronizes.only(self.mask(lambda e: e.kind == 'fence' or e.kind != 'load' and e.order in _RELEASES),
                                         self.mask(lambda e: e.kind == 'fence' or e.kind != 'store' and e.order in _ACQUIRES))
        happens = (self.program_order | synchronizes).closure()
        communicates = (reads_from | modified | reads_before).closure()
        if not happens.is_irreflexive() or not happens.then(communicates).is_irreflexive():
            return False
        return self._has_order_of_seq_cst(happens, communicates, modified | reads_before, fences)

    def _has_order_of_seq_cst(self, happens, communicates, overwrites, fences):
        different = _Relation.of_rows([row & ~same for row, same in zip(self.program_order.rows, self.same_place.rows)])
        order = (self.program_order | different.then(happens).then(different) | (happens & self.same_place) | overwrites)
        accesses = self.mask(lambda e: e.order == SEQ_CST and e.kind != 'fence')
        itself = _Relation(self.count, ((i, i) for i in range(self.count)))
        left = itself.only(accesses) | happens.maybe().only(fences)
        right = itself.only(accesses) | happens.maybe().only(second=fences)
        base = left.then(order).then(right)
        by_fences = (happens | happens.then(communicates).then(happens)).only(fences, fences)
        return (base | by_fences).is_acyclic()

    def executions(self):
        """Every choice of sources and of orders of stores."""
        by_place = {}
        for write in self.writes:
            by_place.setdefault(self.events[write].place, []).append(write)
        choices = [[w for w in by_place[self.events[read].place] if w != read] for read in self.reads]
        orders = [[(stores[0], *rest) for rest in itertools.permutations(stores[1:])] for stores in by_place.values()]
        for sources in itertools.product(*choices):
            for order in itertools.product(*orders):
                yield dict(zip(self.reads, sources)), order


def outcomes(initial, *threads):
    """All outcomes that the model allows: a set of frozensets of (name, value)."""
    program = _Program(initial, threads)
    found = set()
    for source, orders in program.executions():
        read = program.values(source)
        if read is None:
            continue
        outcome = frozenset((program.events[i].name, value) for i, value in read.items() if program.events[i].name)
        if outcome not in found and program.is_consistent(source, orders):
            found.add(outcome)
    return found


def allows(initial, threads, **outcome):
    """Whether an outcome with these values is possible."""
    wanted = set(outcome.items())
    return any(wanted <= found for found in outcomes(initial, *threads))
