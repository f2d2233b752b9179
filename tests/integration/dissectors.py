"""Independent dissectors for captures of the daemon: tshark, scapy, and icrc.py."""
import os
import subprocess

from harness import DEBIAN_PYTHON, LIMIT_S

HERE = os.path.dirname(os.path.abspath(__file__))


def tshark(path, *arguments):
    return subprocess.run(['tshark', '-r', path, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout


def check(test, path, frames):
    """Whether they find no error, and the same packets in the same order as `roci decode` (`frames`)."""
    test.assertEqual(tshark(path, '-Y', '_ws.malformed || !(infiniband || arp || icmpv6)'), '')
    dissected = tshark(path, '-Y', 'infiniband.bth', '-T', 'fields', '-e', 'infiniband.bth.opcode', '-e', 'infiniband.bth.psn')
    theirs = [tuple(int(word) for word in line.split()) for line in dissected.splitlines()]
    test.assertEqual(theirs, [(frame['bth']['opcode'], frame['bth']['psn']) for frame in frames])

    # The oldest and the newest frames only: the bitwise computation is slow.
    plain = path + '.pcap'
    subprocess.run(['editcap', '-F', 'pcap', path, plain], capture_output=True, timeout=LIMIT_S, check=True)
    verified = subprocess.run([DEBIAN_PYTHON, os.path.join(HERE, 'icrc.py'), plain], capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
    test.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
    v4 = sum('ipv4' in frame for frame in frames)
    test.assertEqual(verified.stdout, f'{len(frames)} right, {v4} by scapy, 0 wrong\n')
