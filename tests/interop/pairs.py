"""Runs pairs of programs, one at each of two ends, and prints their results as TAP lines."""
import sys
import threading
import time
import typing

from ends import LIMIT_S, settle
from harness import await_, ended_well

# `roci impair` names what it does so, and counts it so.
IMPAIRED = {'--loss': 'lost', '--reorder': 'reordered', '--duplicate': 'duplicated', '--corrupt': 'corrupted'}
SEEDS = 10  # that are tried until each has happened
BAD_DATA = ('invalid data', 'mismatch')
NO_OTHER_LIMIT_S = 5  # for a server whose client has failed


class Case:
    """A pair of programs. In the commands {device}, {gid}, {port}, {mtu} and {address} are the own device, its GID index for
    the family, a TCP port, the path MTU, and the own address, {programs} a folder with programs of ours; {peer} and {tcp} are
    the server's address as the connection manager and as TCP know it. `cm`: the server listens by the connection manager.
    `awaits`: it does not listen, but says this before the client may start; or nothing, if that is ''.

    `impair`: rocid's port meanwhile, both ways; it must do all that it is asked for at least once. `rnr`: the server must
    send RNR NAKs, and the client get them. `killed`: which of both is, when both have said `flows`; the other must say
    `gone` and end. `fails`: what the client must say, and fail."""

    def __init__(self, server, client=None, family='v4', cm=False, awaits=None, impair=(), rnr=False, killed=None, flows='',
                 gone='', fails=None):
        self.server = server
        self.client = client or f'{server} {{tcp}}'
        self.family = family
        self.cm, self.awaits, self.impair, self.rnr, self.fails = cm, awaits, impair, rnr, fails
        self.killed, self.flows, self.gone = killed, flows, gone
        self.name = f'{family} {server}' + (f' [{" ".join(impair)}]' if impair else '') + (f' [{killed} killed]' if killed else '')


class Outcome(typing.NamedTuple):
    """What went wrong with a pair, or ''. `late`: only that something was not done in time."""
    wrong: str = ''
    late: bool = False


def command_for(end, peer, text, family):
    return text.format(device=end.device, gid=end.gids[family], port=end.tcp_port, mtu=end.path_mtu,
                       address=end.addresses[family], peer=peer.addresses[family], tcp=peer.tcp_address, programs=end.programs)


def start_server(case, server_end, client_end):
    """The server; and whether it is ready for its client."""
    server = server_end.start(command_for(server_end, client_end, case.server, case.family))
    if case.awaits is None:
        return server, server_end.await_listener(server, server_end.tcp_port, case.cm)
    await_(lambda: case.awaits in server.output() or server.status() is not None, LIMIT_S)
    return server, case.awaits in server.output()


def run_programs(case, server_end, client_end):
    server, ready = start_server(case, server_end, client_end)
    if not ready:
        late = server.status() is None
        server.kill()
        return Outcome(f'server: not ready, exit status {server.status()}\n{server.output()}', late)
    client = client_end.start(command_for(client_end, server_end, case.client, case.family))
    if case.killed:
        victim, survivor = (client, server) if case.killed == 'client' else (server, client)
        return kill_one(case, victim, survivor)
    client_status = client.wait(LIMIT_S)
    if case.fails is not None:
        server.kill()
        said = client.output()
        right = case.fails in said and client_status not in (0, None)
        return Outcome('' if right else f'client: "{case.fails}" was to be said, exit status {client_status}\n{said}',
                       client_status is None)
    if client_status is None:  # (what the server says of the client's end is no fault of its)
        server_status = server.status()
        server.kill()
    else:
        server_status = server.wait(LIMIT_S if client_status == 0 else NO_OTHER_LIMIT_S)
    return both_done((client, client_status), (server, server_status))


def both_done(client, server):
    """Of programs and their exit statuses, None where one was not done in time."""
    wrong, late = '', True
    for role, (program, status) in (('client', client), ('server', server)):
        said = program.output()
        bad_data = any(text in said for text in BAD_DATA)
        if status is not None and ended_well(status, said) and not bad_data:
            continue
        wrong += f'{role}: exit status {status}\n{said}'
        # A server is cut short when its client has failed.
        late &= status is None and not bad_data
    return Outcome(wrong, bool(wrong) and late)


def kill_one(case, victim, survivor):
    flowing = await_(lambda: all(case.flows in program.output() for program in (victim, survivor)) or
                     None not in (victim.status(), survivor.status()), LIMIT_S)
    alive = victim.status() is None and survivor.status() is None
    early = case.gone in survivor.output()
    victim.kill()
    if not flowing or not alive or early:
        survivor.kill()
        return Outcome(f'no traffic before the kill\n{victim.output()}\n{survivor.output()}', alive and not early)
    status = survivor.wait(LIMIT_S)
    said = survivor.output()
    if status is None or case.gone not in said or any(text in said for text in BAD_DATA):
        return Outcome(f'survivor: "{case.gone}" was to be said, exit status {status}\n{said}')
    return Outcome()


def run_impaired(case, roci, server_end, client_end):
    """`roci` is the one of both ends that is on this side. How many frames there are depends on the time that each takes, so
    one seed may spare them all of something."""
    for seed in range(1, SEEDS + 1):
        for direction in ('in', 'out'):
            roci.impair('--direction', direction, *case.impair, '--seed', str(seed))
        try:
            outcome = run_programs(case, server_end, client_end)
            done = roci.impaired()
        finally:
            roci.impair('--clear')
        idle = [name for option, name in IMPAIRED.items() if option in case.impair and not done[name]]
        if outcome.wrong or not idle:
            return outcome
    return Outcome(f'no frame was {" or ".join(idle)}')


def run_counted(case, server_end, client_end):
    """Looks whether RNR NAKs have passed."""
    ends = ((server_end, 'send_rnr_err'), (client_end, 'rcvd_rnr_err'))
    before = [end.counter(name) for end, name in ends]
    outcome = run_programs(case, server_end, client_end)
    if outcome.wrong:
        return outcome
    # (The guest's are read at once, the daemon's follow.)
    idle = [f'{end.name}: {name}' for (end, name), then in zip(ends, before)
            if not await_(lambda end=end, name=name, then=then: end.counter(name) > then, LIMIT_S)]
    return Outcome(f'no RNR NAK: {", ".join(idle)}' if idle else '')


def run_case(case, roci, server_end, client_end):
    if case.impair:
        return run_impaired(case, roci, server_end, client_end)
    if case.rnr:
        return run_counted(case, server_end, client_end)
    return run_programs(case, server_end, client_end)


def run_patiently(case, roci, server_end, client_end, report):
    """What went wrong, or ''. What was only late is given a second chance: a guest may be without a processor of its own."""
    outcome = run_case(case, roci, server_end, client_end)
    if outcome.late:
        report.say('once more, after:\n' + '\n'.join(outcome.wrong.splitlines()[-5:]))
        settle()
        outcome = run_case(case, roci, server_end, client_end)
    return outcome.wrong


class Report:
    """TAP lines; of several threads, if need be."""

    def __init__(self, count):
        self.lock = threading.Lock()
        self.number = self.failed = 0
        print(f'1..{count}')

    def add(self, name, wrong, seconds):
        with self.lock:
            self.number += 1
            self.failed += bool(wrong)
            print(f'{"not ok" if wrong else "ok"} {self.number} - {name}\n# {seconds:.1f} s')
            for line in wrong.splitlines()[-25:]:
                print('#', line[:200])
            sys.stdout.flush()

    def say(self, text):
        with self.lock:
            print('# ' + '\n# '.join(text.splitlines()), flush=True)


def run_all(cases, roci, guest, report, prefix=''):
    """`cases` are pairs of a case and its ends, (server, client); `roci` is the end on this side. Whether
    daemon and guest lived to the end."""
    for case, (server_end, client_end) in cases:
        started = time.monotonic()
        wrong = run_patiently(case, roci, server_end, client_end, report)
        report.add(f'{prefix}{server_end.name} serves: {case.name}', wrong, time.monotonic() - started)
        if roci.daemon.process.poll() is not None or not guest.alive():
            return False
        settle()
    return True


def report_end(ends, report):
    """Nothing may be left at any of them; ends the daemon of the first, which is on this side."""
    left = {end.name: left for end in ends if (left := end.left())}
    daemon = ends[0].daemon
    status = daemon.stop()
    wrong = f'left {left}, status {status}\n{daemon.last_output}' if left or status != 0 else ''
    report.add('nothing is left, and the daemon ends with status 0', wrong, 0)
