"""The programs that rxe_test.py runs with Linux's soft-RoCE, and the combinations for each."""
import itertools
import typing

from pairs import Case

FAMILIES = ('v4', 'v6')
PATH_MTUS = (1024, 4096)
LINK_KINDS = ('tap', 'vhost-user')
SERVERS = ('roci', 'rxe')
# Every combination of any two of the four properties of a Place, in five places instead of sixteen.
COVERING = ((0, 0, 0, 0), (0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0))
ONE = ((0, 0, 0, 0),)

VERBS = '-d {device} -g {gid} -p {port} -m {mtu}'
PERFTEST = '-d {device} -x {gid} -p {port} -F -u 18 -m {mtu}'
LOSS = ('--loss', '3%', '--reorder', '3%', '--duplicate', '2%', '--corrupt', '1%')
# perftest asks the server's device for as many outstanding READs as the client's allows, so use what both devices allow.
READS = '-o 16'


class Place(typing.NamedTuple):
    family: str
    path_mtu: int
    link_kind: str
    server: str


class Program(typing.NamedTuple):
    """A pair of commands. `case` returns the Case for a Place. `often`: every run uses more places than for other programs.
    Set for programs that check every byte, and for programs that cover what few others do."""
    case: typing.Callable
    families: tuple = FAMILIES
    often: bool = False


def pair(server, client=None, families=FAMILIES, often=False, **about):
    """The same commands at every place. `about` are arguments of Case."""
    return Program(lambda place: Case(server, client, place.family, **about), families, often)


def pingpongs():
    # -e: wait for events, because polling would keep the guest's kernel from its own work. -c: check every byte.
    yield pair(f'ibv_rc_pingpong {VERBS} -e -c -s 65537 -n 20', often=True)
    yield pair(f'ibv_uc_pingpong {VERBS} -e -c -n 50', often=True)
    yield pair('ibv_ud_pingpong -d {device} -g {gid} -p {port} -e -c -s {mtu} -n 50', often=True)
    yield pair(f'ibv_srq_pingpong {VERBS} -e -c -q 4 -n 50', often=True)


def perftests():
    for test in ('write', 'read', 'send', 'atomic'):
        size = '' if test == 'atomic' else '-s 65536'
        outs = READS if test in ('read', 'atomic') else ''
        yield pair(f'ib_{test}_bw {PERFTEST} {size} {outs} -n 50')
        yield pair(f'ib_{test}_lat {PERFTEST} {outs} -n 50')
    # UC retransmits nothing, and the receiver waits for all messages. So send no more packets than the queue of the guest's
    # network device holds (256), in case the guest does not run meanwhile.
    yield pair(f'ib_send_bw {PERFTEST} -c UC -s 9000 -n 25')
    yield pair(f'ib_write_bw {PERFTEST} -c UC -s 9000 -n 25')
    yield pair(f'ib_send_bw {PERFTEST} -c UD -s {{mtu}} -n 50')
    yield pair(f'ib_send_lat {PERFTEST} -c UD -s 64 -n 50')
    yield pair(f'ib_write_bw {PERFTEST} -b -q 4 -s 10000 -n 50')
    # Few receives, so that the sender gets RNR NAKs.
    yield pair(f'ib_send_bw {PERFTEST} -s 64 -n 300 -r 1 -t 16', rnr=True)


def connections():
    yield pair('rping -s -a {address} -C 20 -V', 'rping -c -a {peer} -C 20 -V', cm=True, often=True)
    yield pair('rping -s -a {address} -C 5 -S 30000 -V', 'rping -c -a {peer} -C 5 -S 30000 -V', cm=True)
    yield pair('ucmatose -b {address} -c 5 -C 20', 'ucmatose -s {peer} -c 5 -C 20', cm=True, often=True)
    yield pair('udaddy -b {address}', 'udaddy -s {peer}', cm=True, often=True)
    # perftest's -R is left out: its client sometimes crashes if the server is slower. The client makes a second connection for
    # the data, for which the server listens a little later, and crashes if that connection is refused.
    # Linux 6.1 cannot join IPv6 groups here: error 524.
    yield pair('stdbuf -oL mckey -m 224.0.0.77 -b {address} -C 10', 'mckey -m 224.0.0.77 -b {address} -s -C 10', ('v4',),
               often=True, awaits='joined')
    yield pair('sleep 60', 'ucmatose -s {peer}', awaits='', fails='RDMA_CM_EVENT_REJECTED, error: 8')


def window_case(place):
    # Linux's soft-RoCE does not check accesses against the bounds of its windows.
    rows = 'all' if place.server == 'roci' else 'inside'
    return Case(f'{{programs}}/windows -s {{address}} {rows}', f'{{programs}}/windows -c {{peer}} {rows}', place.family, cm=True)


def own_programs():
    yield Program(window_case, often=True)
    yield pair(f'{{programs}}/data {VERBS}', often=True)
    yield pair(f'{{programs}}/faults {VERBS} -w rows', often=True)


def data_on_a_bad_link(place):
    # Linux's soft-RoCE waits for its timer at every gap in the responses of a READ, and retries for ever.
    timeout = 12 if place.server == 'roci' else 16
    return Case(f'{{programs}}/data {VERBS} -u {timeout}', family=place.family, impair=LOSS)


def perftest_on_a_bad_link(test):
    """The requester, which is the client, gives up after eight ACK timeouts without progress, and real-time lcores of other
    tests can keep the processors from the guest for up to a second. So a requester outside the guest waits longer: four
    times as long as is usual here, at least two seconds in all. One inside the guest stops with it."""
    size = '' if test == 'atomic' else '-s 30000'
    outs = READS if test in ('read', 'atomic') else ''

    def case(place):
        timeout = 14 if place.server == 'roci' else 16
        return Case(f'ib_{test}_bw {PERFTEST.replace("-u 18", f"-u {timeout}")} {size} {outs} -n 50', None, place.family, impair=LOSS)
    return case


def connection_on_a_bad_link(place):
    """Linux's connection manager does not repeat a DREQ whose program has destroyed the identifier. A server outside the guest
    that misses it waits for ever, as it would for a real peer."""
    data_only = ('--loss', '5%', '--opcode', 'RC_*')
    return Case('rping -s -a {address} -C 20 -V', 'rping -c -a {peer} -C 20 -V', place.family, cm=True, impair=('--loss', '5%'),
                impair_in=data_only if place.server == 'roci' else None)


def on_bad_links():
    yield Program(data_on_a_bad_link)
    # ACKs are not impaired: the program that is done first destroys its queue pair, and a lost last ACK would never be repeated.
    yield pair(f'ibv_rc_pingpong {VERBS} -e -c -s 20000 -n 50', impair=(*LOSS, '--opcode', 'RC_SEND*'))
    for test in ('write', 'read', 'send', 'atomic'):
        yield Program(perftest_on_a_bad_link(test))
    yield Program(connection_on_a_bad_link)


def killed():
    for victim, survivor in (('client', 'server'), ('server', 'client')):
        yield pair(f'{{programs}}/faults {VERBS} -w stream', killed=victim, flows='flowing',
                   gone='the other end is gone: transport retry counter exceeded')
        yield pair('stdbuf -oL rping -s -a {address} -v -V', 'stdbuf -oL rping -c -a {peer} -v -V', cm=True, killed=victim,
                   flows='rdma-ping-5:', gone=f'{survivor} DISCONNECT EVENT')


PROGRAMS = (*pingpongs(), *perftests(), *connections(), *own_programs(), *on_bad_links(), *killed())


def places(number, families, choices):
    """The places of program `number`, one for each of `choices`. They differ between programs, so that all values are used
    equally often in total."""
    turn = [number >> bit & 1 for bit in range(4)]
    found = []
    for choice in choices:
        family, *rest = (one ^ other for one, other in zip(choice, turn))
        place = Place(families[family % len(families)],
                      *(values[i] for values, i in zip((PATH_MTUS, LINK_KINDS, SERVERS), rest)))
        if place not in found:
            found.append(place)
    return found


def all_cases(everywhere):
    """Returns pairs of a case and its place. `everywhere`: every program at every place."""
    def choices(program):
        if everywhere:
            return itertools.product((0, 1), repeat=4)
        return COVERING if program.often else ONE

    return [(program.case(place), place) for number, program in enumerate(PROGRAMS)
            for place in places(number, program.families, choices(program))]
