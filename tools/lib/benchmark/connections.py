"""Measures connection setup and teardown with Debian's cmtime, which creates real queue pairs."""
import pathlib
import re
import subprocess
import time

from .processes import BenchmarkError, stop, tail

SERVER_ADDRESS, CLIENT_ADDRESS = '10.99.0.2', '10.99.0.1'


def parse(text):
    """The output of cmtime's client: {phase: milliseconds for all connections together}."""
    rows = re.findall(r'^([a-z ]+?)\s*:\s*(\d+\.\d+)\s+-?\d+\.\d+\s+\d+\.\d+\s+\d+\.\d+\s*$', text, re.MULTILINE)
    failed = re.search(r'^(?:failure .*|event: .*|RDMA_CM_EVENT_.*)$', text, re.MULTILINE)
    if failed:
        raise BenchmarkError(f'cmtime: {failed[0]}')
    if not rows or 'connect' not in dict(rows):
        raise BenchmarkError(f'no result in what cmtime printed:\n{text[-800:]}')
    return {phase: float(total) for phase, total in rows}


def listens(daemon):
    return any(each['state'] == 'listen' for each in daemon.show('connections'))


def measure(daemon, count, repetitions, progress):
    """`count` simultaneous connections between programs on the two devices. Returns the median run."""
    log = pathlib.Path(daemon.scratch.name, 'cmtime.log')
    with open(log, 'wb') as out:
        server = subprocess.Popen(daemon.command('cmtime', '-b', SERVER_ADDRESS), stdout=out, stderr=out, start_new_session=True)
    try:
        deadline = time.monotonic() + 20
        while not listens(daemon):
            if server.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f'the server side of cmtime did not start:\n{tail(log)}{daemon.describe_failure()}')
            time.sleep(0.05)
        runs = []
        for _ in range(repetitions):
            text = daemon.run_program('cmtime', '-s', SERVER_ADDRESS, '-b', CLIENT_ADDRESS, '-c', count, limit_s=120)
            phases = parse(text)
            runs.append({'connections': count, 'phases_ms': phases, 'per_s': count * 1e3 / sum(phases.values())})
            progress(f'{count} connections: {runs[-1]["per_s"]:.0f} a second')
    finally:
        stop(server, 1.0)
    return sorted(runs, key=lambda run: run['per_s'])[(len(runs) - 1) // 2]
