"""Goodput over a simulated link that reorders or loses frames: runs tests/sim/reorder."""
import json
import subprocess


def run(program):
    return read(subprocess.run([program], stdout=subprocess.PIPE, check=True, timeout=600).stdout)


def read(text):
    """{operation: {'percent': [...], 'mbps': {curve: [...]}, 'share': {curve: [of the goodput without the fault]}}}"""
    found = json.loads(text)
    percent = [permille / 10 for permille in found.pop('permille')]
    return {operation: {'percent': percent, 'mbps': curves, 'share': {name: [each / mbps[0] for each in mbps] for name, mbps in curves.items()}}
            for operation, curves in found.items()}
