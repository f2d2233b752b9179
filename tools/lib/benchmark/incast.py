"""Many senders into one port of a simulated switch: runs tests/sim/incast and evaluates congestion control."""
import json
import subprocess

WIRES = ('lossless', 'lossy')


def run(program, senders=8, milliseconds=120):
    return read(subprocess.run([program, str(senders), str(milliseconds)], stdout=subprocess.PIPE, check=True, timeout=300).stdout)


def read(text):
    """{wire: {gbps: [[each step] of each sender], queued_kb, step_ms, goodput, fairness, lost, ...}}"""
    found = json.loads(text)
    return {wire: judge(found[wire], found['senders']) for wire in WIRES}


def judge(raw, senders):
    step_ns = raw['step_us'] * 1000
    received = [raw[f'received_bytes_{i}'] for i in range(senders)]
    steps = len(raw['queued_bytes'])
    late = [sum(each[steps // 2:]) for each in received]
    port_bytes = raw['rate_kbps'] / 8e6 * step_ns * steps
    return {
        'gbps': [[8 * count / step_ns for count in each] for each in received],
        'queued_kb': [count / 1000 for count in raw['queued_bytes']],
        'step_ms': raw['step_us'] / 1000,
        'port_gbps': raw['rate_kbps'] / 1e6,
        'goodput': sum(sum(each) for each in received) / port_bytes,
        'fairness': fairness(late),
        'late_gbps': [8 * count / (step_ns * (steps - steps // 2)) for count in late],
        **{name: raw[name] for name in ('lost', 'marked', 'pauses', 'longest_queue_bytes')},
    }


def fairness(shares):
    """Fairness index of Jain, Chiu and Hawe: 1 if all are equal, 1/n if one has everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0
