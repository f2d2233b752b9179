"""Runs pairs of programs, one at each of two ends, and prints their results as TAP lines."""
import sys
import threading
import time
import typing

from ends import LIMIT_S, settle
from harness import await_, ended_well

# Options of `roci impair`, and the counter of each.
IMPAIRED = {'--loss': 'lost', '--reorder': 'reordered', '--duplicate': 'duplicated', '--corrupt': 'corrupted'}
SEEDS = 10  # tried until each requested impairment has occurred
BAD_DATA = ('invalid data', 'mismatch')
NO_OTHER_LIMIT_S = 5  # time limit of a server whose client has failed


class Case:
    """A pair of programs. Words in the commands: {device}, {gid}, {port}, {mtu} and {address} are the program's own device, its
    GID index for the family, a TCP port, the path MTU, and its own address. {programs} is the folder of this project's
    programs. {peer} and {tcp} are the server's address for the connection manager and for TCP.

    `cm`: the server listens by the connection manager. `awaits`: the server does not listen; the client starts when the server
    has printed this text ('': at once). `impair`: options of `roci impair` for rocid's port, in both directions; each
    impairment must occur at least once. `rnr`: the server must send RNR NAKs, and the client must receive them. `killed`:
    'client' or 'server', killed when both have printed `flows`; the other must print `gone` and end. `fails`: the client must
    print this text and fail."""

    def __init__(self, server, client=None, family='v4', cm=False, awaits=None, impair=(), impair_in=None, rnr=False, killed=None,
                 flows='', gone='', fails=None):
        self.server = server
        self.client = client or f'{server} {{tcp}}'
        self.family = family
        self.cm, self.awaits, self.rnr, self.fails = cm, awaits, rnr, fails
        self.impair, self.impair_in = impair, impair_in or impair
        self.killed, self.flows, self.gone = killed, flows, gone
        self.name = f'{family} {server}' + (f' [{" ".join(impair)}]' if impair else '') + (f' [{killed} killed]' if killed else '')


class Outcome(typing.NamedTuple):
    """`wrong`: what went wrong with a pair, or ''. `late`: the only failure is that something was not done in time."""
    wrong: str = ''
    late: bool = False


def command_for(end, peer, text, family):
    return text.format(device=end.device, gid=end.gids[family], port=end.tcp_port, mtu=end.path_mtu,
                       address=end.addresses[family], peer=peer.addresses[family], tcp=peer.tcp_address, programs=end.programs)


def start_server(case, server_end, client_end):
    """Returns the server, and whether it is ready for its client."""
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
    if client_status is None:  # errors that the server reports because the client was killed do not count
        server_status = server.status()
        server.kill()
    else:
        server_status = server.wait(LIMIT_S if client_status == 0 else NO_OTHER_LIMIT_S)
    return both_done((client, client_status), (server, server_status))


def both_done(client, server):
    """The Outcome of two pairs of program and exit status. The status is None if a program was not done in time."""
    wrong, late = '', True
    for role, (program, status) in (('client', client), ('server', server)):
        said = program.output()
        bad_data = any(text in said for text in BAD_DATA)
        if status is not None and ended_well(status, said) and not bad_data:
            continue
        wrong += f'{role}: exit status {status}\n{said}'
        # A server is stopped early when its client has failed.
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
    """`roci` is the end on the host. The number of frames depends on timing, so with one seed an impairment may hit no frame:
    tries further seeds."""
    for seed in range(1, SEEDS + 1):
        for direction, options in (('in', case.impair_in), ('out', case.impair)):
            roci.impair('--direction', direction, *options, '--seed', str(seed))
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
    """Runs the pair and checks the counters of RNR NAKs."""
    ends = ((server_end, 'send_rnr_err'), (client_end, 'rcvd_rnr_err'))
    before = [end.counter(name) for end, name in ends]
    outcome = run_programs(case, server_end, client_end)
    if outcome.wrong:
        return outcome
    # The guest's counters are current, the daemon's may lag behind.
    idle = [f'{end.name}: {name}' for (end, name), then in zip(ends, before)
            if not await_(lambda end=end, name=name, then=then: end.counter(name) > then, LIMIT_S)]
    return Outcome(f'no RNR NAK: {", ".join(idle)}' if idle else '')


def run_case(case, roci, server_end, client_end):
    if case.impair:
        return run_impaired(case, roci, server_end, client_end)
    if case.rnr:
        return run_counted(case, server_end, client_end)
    return run_programs(case, server_end, client_end)


def run_patiently(case, roci, server_end, client_end, report, is_over=lambda: False):
    """Returns what went wrong, or ''. A pair that was only late runs again: the guest may not get a processor in time.
    `is_over`: whether an end has gone."""
    outcome = run_case(case, roci, server_end, client_end)
    if outcome.late and not is_over():
        report.say('once more, after:\n' + '\n'.join(outcome.wrong.splitlines()[-5:]))
        settle()
        outcome = run_case(case, roci, server_end, client_end)
    return outcome.wrong


class Report:
    """Prints TAP lines, and failures also to standard error, which Meson repeats. Thread-safe."""

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
            if wrong:
                print(f'{name}:', *(line[:200] for line in wrong.splitlines()[-25:]), sep='\n    ', file=sys.stderr, flush=True)

    def say(self, text):
        with self.lock:
            print('# ' + '\n# '.join(text.splitlines()), flush=True)


def ended(daemon, guest):
    """What the daemon or the guest said last, if either has ended; otherwise ''."""
    said = ''
    if not guest.alive():
        said += '\nthe guest has ended; its console:\n' + '\n'.join(guest.console_text().splitlines()[-20:])
    if not daemon.alive():
        said += f'\nthe daemon has ended with status {daemon.process.returncode}:\n' + '\n'.join(daemon.output().splitlines()[-5:])
    return said


def run_all(cases, roci, guest, report, prefix='', forgives=lambda: False):
    """Runs `cases`, pairs of a case and its ends (server, client). `roci` is the end on the host. Returns whether daemon and
    guest survived. `forgives`: whether neither end is to blame for the guest's end, so that the case is not reported."""
    for case, (server_end, client_end) in cases:
        started = time.monotonic()
        wrong = run_patiently(case, roci, server_end, client_end, report, lambda: bool(ended(roci.daemon, guest)))
        gone = ended(roci.daemon, guest)
        if gone and roci.daemon.alive() and forgives():
            return False
        report.add(f'{prefix}{server_end.name} serves: {case.name}', wrong + gone, time.monotonic() - started)
        if gone:
            return False
        settle()
    return True


def report_end(ends, report):
    """Checks that nothing is left at any end. Stops the daemon of the first end, which is on the host."""
    left = {end.name: left for end in ends if (left := end.left())}
    daemon = ends[0].daemon
    status = daemon.stop()
    wrong = f'left {left}, status {status}\n{daemon.last_output}' if left or status != 0 else ''
    report.add('nothing is left, and the daemon ends with status 0', wrong, 0)
