#!/usr/bin/env python3
"""`roci decode` as a command: what it prints, and its exit statuses.

Usage: decode_test.py ROCI VECTORS
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

ROCI, VECTORS = (os.path.abspath(path) for path in sys.argv[1:3])
ATOMICS = os.path.join(VECTORS, 'rxe/vec-rc_atomic-v4.pcap')


def decode(*arguments, data=b''):
    return subprocess.run([ROCI, 'decode', *arguments], input=data, capture_output=True, timeout=60, check=False)


def read(path):
    with open(path, 'rb') as file:
        return file.read()


class DecodeTest(unittest.TestCase):
    def test_a_good_file(self):
        done = decode(ATOMICS)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.decode().splitlines()
        self.assertEqual(len(lines), 12)
        self.assertTrue(all('verdict=good' in line and 'reencoded=same' in line for line in lines))
        self.assertEqual(done.stderr.decode(), '12 frames, 12 of RoCE: 0 failed, 0 cut\n')

    def test_json_and_standard_input(self):
        done = decode('--json', '-', data=read(ATOMICS))
        self.assertEqual(done.returncode, 0, done.stderr)
        frames = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([frame['frame'] for frame in frames], list(range(1, 13)))
        self.assertEqual(frames[0]['bth']['name'], 'RC_FETCH_ADD')
        self.assertEqual(frames[0]['atomiceth']['swap_add'], 0x102030405060708)
        self.assertEqual(frames[0]['ipv4']['src'], '10.0.0.1')

    def test_a_frame_that_fails(self):
        data = bytearray(read(ATOMICS))
        data[-6] ^= 1
        done = decode('-', data=bytes(data))
        self.assertEqual(done.returncode, 1)
        self.assertIn('1 failed', done.stderr.decode())
        only = decode('--failed', '-', data=bytes(data)).stdout.decode()
        self.assertEqual(only.count('\n'), 1)
        self.assertIn('verdict=bad', only)

    def test_a_damaged_file(self):
        done = decode('-', data=read(ATOMICS)[:-3])
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.count(b'\n'), 11)
        self.assertIn(b'ends within', done.stderr)

    def test_output_that_cannot_be_written(self):
        # The frame that fails comes long after the output's buffer is full.
        good = read(ATOMICS)
        bad = bytearray(good[24:])
        bad[-6] ^= 1
        data = good + 300 * good[24:] + bytes(bad)
        self.assertEqual(decode('-', data=data).returncode, 1)
        for command in ('exec "$0" decode "$1" >/dev/full', 'exec "$0" decode "$1" >&-',
                        'exec "$0" decode --failed "$1" >/dev/full'):
            with tempfile.NamedTemporaryFile() as file:
                file.write(data)
                file.flush()
                done = subprocess.run(['sh', '-c', command, ROCI, file.name], capture_output=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 2, (command, done.stderr))
            self.assertIn(b'cannot write', done.stderr, command)
            self.assertNotIn(b' 0 failed', done.stderr, command)

    def test_frames_that_are_not_looked_at(self):
        good = read(ATOMICS)
        unknown = good[:20] + struct.pack('<I', 147) + good[24:]
        done = decode('-', data=unknown)
        self.assertEqual(done.returncode, 2)
        self.assertIn('link type 147', done.stderr.decode())
        self.assertIn('12 frames, 0 of RoCE: 0 failed, 0 cut; not looked at: 12 of link types', done.stderr.decode())
        v1 = bytes(12) + b'\x89\x15' + bytes(60)
        short = bytes(12) + b'\x08\x00' + bytes(10)
        others = b''.join(struct.pack('<IIII', 1, 2, len(frame), length) + frame
                          for frame, length in ((v1, 74), (short, 24), (short, 90)))
        done = decode('-', data=good + others)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr.decode(), '15 frames, 12 of RoCE: 0 failed, 0 cut; not looked at: 1 of RoCEv1, '
                         '1 cut in front of the UDP port, 1 with headers that are not understood\n')

    def test_wrong_usage(self):
        self.assertEqual(decode().returncode, 2)
        self.assertEqual(decode('--nonsense', ATOMICS).returncode, 2)
        self.assertEqual(decode('/nonexistent.pcap').returncode, 2)
        self.assertEqual(decode('-', data=b'no capture').returncode, 2)
        self.assertEqual(decode(VECTORS).returncode, 2)

    def test_what_wireshark_writes(self):
        # Its pcapng, its nanoseconds, and two files of different interfaces in one.
        with tempfile.TemporaryDirectory() as folder:
            other = os.path.join(VECTORS, 'nic-to-nic.pcap')
            written = os.path.join(folder, 'written')
            for command in (['editcap', '-F', 'pcapng', other, written], ['editcap', '-F', 'nsecpcap', other, written],
                            ['mergecap', '-I', 'none', '-w', written, other, ATOMICS]):
                subprocess.run(command, capture_output=True, timeout=60, check=True)
                done = decode('--json', written)
                self.assertEqual(done.returncode, 0, (command, done.stderr))
                expected = 117 if command[0] == 'mergecap' else 105
                frames = [json.loads(line) for line in done.stdout.splitlines()]
                self.assertEqual(len(frames), expected, command)
                self.assertIn('1650970190.668808000', [frame['time'] for frame in frames])
            subprocess.run(['editcap', '-s', '60', other, written], capture_output=True, timeout=60, check=True)
            done = decode('--json', written)
            self.assertEqual(done.returncode, 0, done.stderr)
            cut = [json.loads(line)['verdict'] for line in done.stdout.splitlines()].count('cut')
            self.assertGreater(cut, 90)
            self.assertIn(f'{cut} cut', done.stderr.decode())

    def test_help(self):
        done = decode('--help')
        self.assertEqual(done.returncode, 0)
        for word in (b'Exit status', b'Examples', b'--json', b'reencoded', b'pcapng'):
            self.assertIn(word, done.stdout)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
