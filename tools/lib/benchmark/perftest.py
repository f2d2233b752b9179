"""Measurements with perftest's programs, and parsers of their output."""
import re
import statistics

from .processes import BenchmarkError

# In Debian's versions, perftest uses one buffer on each side: of its page size for smaller messages, else of the message's size.
PAGE_BYTES = 4096


def working_set_bytes(message_bytes):
    """Memory that a bandwidth test of one queue pair accesses, both sides together."""
    return 2 * max(message_bytes, PAGE_BYTES)


def parse_bandwidth(text):
    """Rows of a bandwidth test that ran with --report_gbits: [{bytes, iterations, peak_gbps, gbps, million_per_s}]."""
    row = re.compile(r'^\s*(\d+)\s+(\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s*$', re.MULTILINE)
    if 'BW average[Gb/sec]' not in text:
        raise BenchmarkError(f'no bandwidth in Gb/s in what perftest printed:\n{text[-800:]}')
    rows = [{'bytes': int(size), 'iterations': int(count), 'peak_gbps': float(peak), 'gbps': float(average),
             'million_per_s': float(rate)} for size, count, peak, average, rate in row.findall(text)]
    if not rows:
        raise BenchmarkError(f'no result in what perftest printed:\n{text[-800:]}')
    for result in rows:
        # The bandwidth column has few digits; rate and size give more.
        result['gbps'] = max(result['gbps'], result['million_per_s'] * result['bytes'] * 8e-3)
    return rows


def parse_latency(text):
    """A latency test: its summary line in microseconds, and with -H all measurements as `samples_us`."""
    if 't_typical[usec]' not in text:
        raise BenchmarkError(f'no latency in microseconds in what perftest printed:\n{text[-800:]}')
    names = ('least_us', 'most_us', 'typical_us', 'average_us', 'deviation_us', 'p99_us', 'p99_9_us')
    row = re.search(r'^\s*(\d+)\s+(\d+)((?:\s+\d+\.\d+){7})\s*$', text, re.MULTILINE)
    if not row:
        raise BenchmarkError(f'no result in what perftest printed:\n{text[-800:]}')
    result = {'bytes': int(row[1]), 'iterations': int(row[2]), **dict(zip(names, map(float, row[3].split())))}
    result['samples_us'] = [float(value) for value in re.findall(r'^\s*\d+, (\d+\.\d+)\s*$', text, re.MULTILINE)]
    return result


def median_of(results, key):
    """The median result by that key (the lower of two)."""
    middle = statistics.median_low(result[key] for result in results)
    return next(result for result in results if result[key] == middle)


def measure_bandwidth(daemon, program, message_bytes, seconds, repetitions, progress):
    """The median of several runs of about `seconds` each. `values_gbps` and `values_million_per_s` have all of them."""
    arguments = ['--report_gbits', '-s', message_bytes]
    iterations = 2000 if message_bytes < 1 << 20 else 200
    trial = parse_bandwidth(daemon.run_pair(program, *arguments, '-n', iterations))[0]
    wanted = trial['million_per_s'] * 1e6 * seconds
    if wanted > 2 * iterations:  # the trial was too short: its rate is only a hint
        trial = parse_bandwidth(daemon.run_pair(program, *arguments, '-n', int(wanted / 5) // 100 * 100 + 100))[0]
        wanted = trial['million_per_s'] * 1e6 * seconds
    iterations = max(500, int(wanted) // 100 * 100)
    results = []
    for run in range(repetitions):
        results.append(parse_bandwidth(daemon.run_pair(program, *arguments, '-n', iterations))[0])
        progress(f'{program} -s {message_bytes}: {results[-1]["gbps"]:.2f} Gb/s, {results[-1]["million_per_s"]:.3f} million/s '
                 f'({run + 1} of {repetitions})')
    result = dict(median_of(results, 'million_per_s'))
    result['values_gbps'] = [each['gbps'] for each in results]
    result['values_million_per_s'] = [each['million_per_s'] for each in results]
    return result


def measure_latency(daemon, program, message_bytes, iterations, repetitions, progress):
    """The run with the median typical time; `values_us` has all."""
    results = []
    for run in range(repetitions):
        results.append(parse_latency(daemon.run_pair(program, '-s', message_bytes, '-n', iterations, '-H')))
        progress(f'{program} -s {message_bytes}: typical {results[-1]["typical_us"]:.2f} us, 99th percentile '
                 f'{results[-1]["p99_us"]:.2f} us ({run + 1} of {repetitions})')
    result = dict(median_of(results, 'typical_us'))
    result['values_us'] = [each['typical_us'] for each in results]
    return result


def measure_all_sizes(daemon, program, iterations, repetitions, progress):
    """Bandwidth over message size (-a): the median of each size, [{bytes, gbps}]."""
    by_size = {}
    for run in range(repetitions):
        rows = parse_bandwidth(daemon.run_pair(program, '--report_gbits', '-a', '-n', iterations, limit_s=180))
        progress(f'{program} -a: {len(rows)} sizes, best {max(row["gbps"] for row in rows):.2f} Gb/s ({run + 1} of {repetitions})')
        for row in rows:
            by_size.setdefault(row['bytes'], []).append(row['gbps'])
    return [{'bytes': size, 'gbps': statistics.median(values)} for size, values in sorted(by_size.items())]
