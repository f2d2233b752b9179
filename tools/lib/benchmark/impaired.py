"""Measures utilisation and loss of RDMA WRITEs on a link that `roci impair --rate` limits."""
import contextlib
import statistics
import subprocess
import time

from .processes import CLIENT_DEVICE, SERVER_DEVICE, Daemon

RATE = '1Gbit'
RATE_GBPS = 1.0
CONGESTION_ON = '[congestion]\nenabled = "on"\n'
WRITES = ('ib_write_bw', '-s', 65536, '-D', 1000)
SETTLES_S = 2.0
# Name: configuration of the daemon, options of `roci impair`, options of perftest's, pairs of programs.
CASES = {
    'a queue for the whole window': (None, (), ('-t', 8), 1),
    'a queue of 100 kB': (None, ('--rate-queue', '100kB'), (), 1),
    'two senders, marks': (CONGESTION_ON, ('--rate-queue', '1MB', '--rate-ecn', '40kB:200kB'), (), 2),
}


def measure(build, seconds, repetitions, progress):
    """{name: {'gbps': received payload and headers, 'lost': packets in the last interval}}"""
    found = {}
    for name, (config, impairment, options, pairs) in CASES.items():
        with Daemon(build, config=config) as daemon, contextlib.ExitStack() as stack:
            subprocess.run([build / 'tools/roci', '--runtime-dir', daemon.runtime_dir, 'impair', CLIENT_DEVICE, '--rate', RATE, *impairment],
                           stdout=subprocess.PIPE, timeout=20, check=True)
            for _ in range(pairs):
                stack.enter_context(daemon.pair(*WRITES, *options))
            time.sleep(SETTLES_S)
            runs = [measure_interval(daemon, seconds) for _ in range(repetitions)]
        found[name] = {'gbps': statistics.median(run['gbps'] for run in runs), 'lost': statistics.median_low(run['lost'] for run in runs)}
        progress(f'a link of {RATE}, {name}: {found[name]["gbps"]:.2f} Gb/s')
    return found


def measure_interval(daemon, seconds):
    begin, before = time.monotonic(), counters(daemon)
    time.sleep(seconds)
    after, end = counters(daemon), time.monotonic()
    return {'gbps': (after['bytes'] - before['bytes']) * 8e-9 / (end - begin), 'lost': after['lost'] - before['lost']}


def counters(daemon):
    ports = {port['device']: port for port in daemon.show('ports')}
    return {'bytes': ports[SERVER_DEVICE]['counters']['rx_bytes'],
            'lost': ports[CLIENT_DEVICE]['impairments'][0]['counters']['rate_dropped']}
