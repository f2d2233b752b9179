"""Pairs of programs, one at each of two ends, and what comes of them as TAP lines."""
import sys
import time

from ends import LIMIT_S, settle

PORT = 18600


class Case:
    """A pair of programs. In the commands {device}, {gid}, {port} and {address} are the own device, its GID index for the
    family, a TCP port, and the own address, {programs} a folder with
    programs of ours; {peer} and {tcp} are the server's address as the connection manager and as
    TCP know it. `cm`: by the connection manager. `joins`: nobody listens, the server joins a group. `impair`: of rocid's
    port meanwhile, both ways. `killed`: the client is, and the server must notice. `fails`: what the client must say.
    `servers`: the ends that may be one."""

    def __init__(self, server, client=None, family='v4', cm=False, joins=False, impair=(), killed=False, fails=None,
                 servers=('roci', 'rxe')):
        self.server = server
        self.client = client or f'{server} {{tcp}}'
        self.family = family
        self.servers = servers
        self.cm, self.joins, self.impair, self.killed, self.fails = cm, joins, impair, killed, fails
        self.name = f'{family} {server}' + (f' [{" ".join(impair)}]' if impair else '') + (' [killed]' if killed else '')


def command_for(end, peer, text, family):
    return text.format(device=end.device, gid=end.gids[family], port=PORT, address=end.addresses[family],
                       peer=peer.addresses[family], tcp=peer.tcp_address, programs=end.programs)


def run_case(case, server_end, client_end):
    """What went wrong, or ''."""
    server = server_end.start(command_for(server_end, client_end, case.server, case.family))
    if case.joins:
        time.sleep(2)
    else:
        server_end.await_listener(server, None if case.cm else PORT)
    client = client_end.start(command_for(client_end, server_end, case.client, case.family))
    if case.killed:
        time.sleep(2)
        client.kill()
        status = server.wait(LIMIT_S)
        if status is None:
            return f'server: did not notice that the client was killed\n{server.output()}'
        return ''
    client_status = client.wait(LIMIT_S)
    if case.fails is not None:
        server.kill()
        said = client.output()
        return '' if case.fails in said else f'client: "{case.fails}" was to be said\n{said}'
    server_status = server.wait(LIMIT_S if client_status == 0 else 5)
    wrong = ''
    for role, program, status in (('client', client, client_status), ('server', server, server_status)):
        said = program.output()
        if status != 0 or 'invalid data' in said:
            wrong += f'{role}: exit status {status}\n{said}'
    return wrong


def run_again(case, roci, server_end, client_end):
    """What went wrong twice, or ''. A guest without a processor of its own may be late."""
    wrong = run_impaired(case, roci, server_end, client_end)
    if not wrong:
        return ''
    print('# once more, after:\n# ' + '\n# '.join(wrong.splitlines()[-5:]))
    settle()
    return run_impaired(case, roci, server_end, client_end)


def run_impaired(case, roci, server_end, client_end):
    directions = ('in', 'out') if case.impair else ()
    for direction in directions:
        roci.impair('--direction', direction, *case.impair)
    try:
        return run_case(case, server_end, client_end)
    finally:
        if directions:
            roci.impair('--clear')


class Report:
    """TAP lines."""

    def __init__(self, count):
        self.number = self.failed = 0
        print(f'1..{count}')

    def add(self, name, wrong, seconds):
        self.number += 1
        self.failed += bool(wrong)
        print(f'{"not ok" if wrong else "ok"} {self.number} - {name}\n# {seconds:.1f} s')
        for line in wrong.splitlines()[-25:]:
            print('#', line[:200])
        sys.stdout.flush()


def run_all(cases, roci, guest, report, prefix=''):
    """`cases` are pairs of a case and its ends, (server, client); `roci` is the end on this side. Whether
    daemon and guest lived to the end."""
    for case, (server_end, client_end) in cases:
        started = time.monotonic()
        wrong = run_again(case, roci, server_end, client_end)
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
