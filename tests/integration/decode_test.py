#!/usr/bin/env python3
"""`roci decode` as a command: output and exit statuses.

Usage: decode_test.py ROCI VECTORS
"""
import gzip
import json
import os
import select
import struct
import subprocess
import sys
import tempfile
import unittest

import icrc

ROCI, VECTORS = (os.path.abspath(path) for path in sys.argv[1:3])
ATOMICS = os.path.join(VECTORS, 'rxe/vec-rc_atomic-v4.pcap')


def decode(*arguments, data=b''):
    return subprocess.run([ROCI, 'decode', *arguments], input=data, capture_output=True, timeout=60, check=False)


def read(path):
    with open(path, 'rb') as file:
        return file.read()


def pcap(records):
    return struct.pack('<IHHiIII', 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1) + records


def record(frame, length=None):
    return struct.pack('<IIII', 1, 2, len(frame), len(frame) if length is None else length) + frame


def checksum(data):
    total = sum(struct.unpack(f'!{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(protocol, carried, offset=0):
    head = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + len(carried), 1, offset // 8, 64, protocol, 0, b'\xc0\0\2\1',
                       b'\xc0\0\2\2')
    return head[:10] + struct.pack('!H', checksum(head)) + head[12:] + carried


def roce(version):
    """An RC ACK: IP packet with an ICRC from icrc.py, an independent implementation."""
    transport = bytes.fromhex('1100ffff000000120045678a1f000003') + bytes(4)
    udp = struct.pack('!HHHH', 50000, 4791, 8 + len(transport), 0)
    if version == 4:
        packet = ipv4(17, udp + transport)
    else:
        packet = struct.pack('!IHBB', 6 << 28, len(udp + transport), 17, 64) + (b'\xfd' + bytes(14) + b'\1') * 2 + udp + transport
    return packet[:-4] + icrc.icrc_of(packet)


def tunnels(version):
    """Names of encapsulations, and frames that contain the packet."""
    packet = roce(version)
    kind = b'\x08\x00' if version == 4 else b'\x86\xdd'
    macs = bytes.fromhex('060000000001060000000002')
    frame = macs + kind + packet

    def udp(port, carried):
        return ipv4(17, struct.pack('!HHHH', 50000, port, 8 + len(carried), 0) + carried)

    outer = macs + b'\x08\x00'
    session = (b'\0\x21' if version == 4 else b'\0\x57') + packet
    return {f'{name} {version}': within for name, within in {
        'plain': frame,
        'vxlan': outer + udp(4789, bytes.fromhex('0800000000001000') + frame),
        'geneve': outer + udp(6081, bytes.fromhex('0000655800000500') + frame),
        'gre': outer + ipv4(47, b'\0\0' + kind + packet),
        'nvgre': outer + ipv4(47, bytes.fromhex('2000655800000309') + frame),
        'erspan': outer + ipv4(47, bytes.fromhex('100088be00000001' + '1000004d00000000') + frame),
        'ip in ip': outer + ipv4(4 if version == 4 else 41, packet),
        'mpls': macs + bytes.fromhex('8847' + '00010040' + '00020140') + packet,
        'pppoe': macs + bytes.fromhex('886411000003') + struct.pack('!H', len(session)) + session,
        'snap': macs + struct.pack('!H', 8 + len(packet)) + bytes.fromhex('aaaa03000000') + kind + packet,
        'stacked tags': macs + bytes.fromhex('88a80005' + '81000006') + kind + packet,
        'vxlan in mpls': macs + bytes.fromhex('8847' + '00020140') + udp(4789, bytes.fromhex('0800000000001000') + frame),
    }.items()}


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
        # The bad frame comes long after the output's buffer is full.
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

    def test_frames_that_are_not_decoded(self):
        good = read(ATOMICS)
        unknown = good[:20] + struct.pack('<I', 147) + good[24:]
        done = decode('-', data=unknown)
        self.assertEqual(done.returncode, 2)
        self.assertIn('link type 147', done.stderr.decode())
        self.assertIn('12 frames, 0 of RoCE: 0 failed, 0 cut; not decoded: 12 of unsupported link types', done.stderr.decode())
        macsec = bytes(12) + b'\x88\xe5' + bytes(60)
        esp = bytes(12) + b'\x08\x00' + ipv4(50, bytes(60))
        fragment = bytes(12) + b'\x08\x00' + ipv4(17, bytes(60), offset=8)
        short = bytes(12) + b'\x08\x00' + bytes(10)
        others = b''.join(record(frame, length) for frame, length in (
            (macsec, 74), (esp, 94), (esp, 94), (fragment, 94), (short, 24), (short, 90)))
        done = decode('-', data=good + others)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr.decode(), '18 frames, 12 of RoCE: 0 failed, 0 cut; not decoded: '
                         '1 truncated before the UDP port, 1 with unsupported headers, 1 later fragments, '
                         '1 in macsec, 2 in esp\n')

    def test_a_udp_header_that_is_cut_by_its_frame(self):
        whole = bytes(12) + b'\x08\x00' + ipv4(17, struct.pack('!HHHH', 50000, 4791, 24, 0) + bytes(16))
        for kept in range(38, 42):
            self.assertEqual(decode('-', data=pcap(record(whole[:kept]))).returncode, 1, kept)
            done = decode('-', data=pcap(record(whole[:kept], len(whole))))
            self.assertEqual((done.returncode, done.stderr), (0, b'1 frames, 1 of RoCE: 0 failed, 1 cut\n'), kept)

    def test_compressed_files(self):
        good = read(ATOMICS)
        plain = decode(ATOMICS)
        with tempfile.NamedTemporaryFile(suffix='.gz') as file:
            file.write(gzip.compress(good))
            file.flush()
            for done in (decode(file.name), decode('-', data=gzip.compress(good))):
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, plain.stdout, plain.stderr))
        done = decode('-', data=gzip.compress(good)[:-9])
        self.assertEqual(done.returncode, 1)
        self.assertIn(b'the gzip file ends too early', done.stderr)
        done = decode('-', data=gzip.compress(b'no capture'))
        self.assertEqual(done.returncode, 2)
        done = decode('-', data=b'\x28\xb5\x2f\xfd' + bytes(60))
        self.assertEqual(done.returncode, 2)
        self.assertIn(b'zstd: zstdcat FILE | roci decode -', done.stderr)

    def test_a_capture_that_goes_on(self):
        good = read(ATOMICS)
        first = 24 + 16 + struct.unpack_from('<I', good, 32)[0]
        with subprocess.Popen([ROCI, 'decode', '-'], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            process.stdin.write(good[:first])
            process.stdin.flush()
            self.assertTrue(select.select([process.stdout], [], [], 30)[0], 'the first frame is not printed')
            self.assertTrue(process.stdout.readline().startswith(b'1 '))
            rest, _ = process.communicate(good[first:], timeout=60)
            self.assertEqual(rest.count(b'\n'), 11)
            self.assertEqual(process.returncode, 0)

    def test_tunnels_agree_with_tshark(self):
        frames = {name: frame for version in (4, 6) for name, frame in tunnels(version).items()}
        data = pcap(b''.join(record(frame) for frame in frames.values()))
        done = decode('--json', '-', data=data)
        self.assertEqual(done.returncode, 0, done.stderr)
        ours = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(ours), len(frames))
        with tempfile.NamedTemporaryFile(suffix='.pcap') as file:
            file.write(data)
            file.flush()
            fields = [word for field in ('frame.number', 'infiniband.bth.opcode', 'infiniband.bth.psn')
                      for word in ('-e', field)]
            shown = subprocess.run(['tshark', '-n', '-r', file.name, '-T', 'fields', *fields], capture_output=True,
                                   text=True, timeout=60, check=True).stdout
        theirs = [tuple(int(word, 0) if word else None for word in line.split('\t')) for line in shown.splitlines()]
        for name, mine, other in zip(frames, ours, theirs, strict=True):
            self.assertEqual((mine['frame'], mine['bth']['opcode'], mine['bth']['psn']), other, name)
        # One wrong bit in each inner packet.
        bad = pcap(b''.join(record(frame[:-1] + bytes([frame[-1] ^ 1])) for frame in frames.values()))
        done = decode('--failed', '-', data=bad)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.count(b'\n'), len(frames))

    def test_wrong_usage(self):
        self.assertEqual(decode().returncode, 2)
        self.assertEqual(decode('--nonsense', ATOMICS).returncode, 2)
        self.assertEqual(decode('/nonexistent.pcap').returncode, 2)
        self.assertEqual(decode('-', data=b'no capture').returncode, 2)
        self.assertEqual(decode(VECTORS).returncode, 2)

    def test_files_of_wireshark(self):
        # pcapng and nanosecond files of Wireshark, and a merge of two files with different interfaces.
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
