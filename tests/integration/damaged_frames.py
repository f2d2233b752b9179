"""Frames that a device must drop, by the counter of `roci show ports` that must count them: hand-made frames, and those of
gate 1's fuzz corpus."""
import json
import os
import random
import socket
import struct
import subprocess

from icrc import icrc_of, is_roce, network_part

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fuzz/corpus/parse_packet')
ROCE_PORT = 4791
SENDER = bytes.fromhex('020000000077')
# `roci decode` cannot tell whether frames damaged before the UDP port were RoCE.
IN_FRONT_OF_UDP = ('frame_truncated', 'ipv4_header', 'ipv4_options', 'ipv4_fragment', 'ipv4_checksum', 'ipv6_header',
                   'ipv6_fragment', 'ipv6_extension', 'vlan_stack')
# A SEND-only packet of a reliable connection to a queue pair that does not exist.
BTH = bytes.fromhex('0400ffff00abcdef80000000')
DETH = bytes.fromhex('0000000000000011')
RETH = bytes(16)


def ipv4_checksum(header):
    total = sum(struct.unpack(f'!{len(header) // 2}H', header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def with_icrc(packet):
    """An IP packet; its last four bytes are a placeholder for the ICRC."""
    return packet[:-4] + icrc_of(packet)


class Maker:
    """Makes frames to a station from addresses of its network."""

    def __init__(self, mac, v4, v6):
        self.mac, self.v4, self.v6 = mac, v4, v6

    def ethernet(self, packet, kind=0x0800, tags=b''):
        return self.mac + SENDER + tags + struct.pack('!H', kind) + packet

    @staticmethod
    def udp(transport, extra=0):
        return struct.pack('!HHHH', 0xC000, ROCE_PORT, 12 + len(transport) + extra, 0) + transport + bytes(4)

    def ipv4(self, payload, version=0x45, fragment=0x4000, options=b'', extra=0, checksum_extra=0, to=None):
        head = struct.pack('!BBHHHBBH4s4s', version, 0, 20 + len(options) + len(payload) + extra, 0, fragment, 64, 17, 0,
                           socket.inet_aton(self.v4[0]), socket.inet_aton(to or self.v4[1])) + options
        checksum = ipv4_checksum(head) + checksum_extra & 0xFFFF
        return head[:10] + struct.pack('!H', checksum) + head[12:] + payload

    def ipv6(self, payload, version=6, next_header=17, source=None, extra=0):
        return struct.pack('!IHBB', version << 28, len(payload) + extra, next_header, 64) + \
            socket.inet_pton(socket.AF_INET6, source or self.v6[0]) + socket.inet_pton(socket.AF_INET6, self.v6[1]) + payload

    def by_reason(self):
        udp, v4, v6 = self.udp, self.ipv4, self.ipv6
        roce = udp(BTH)
        group = udp(b'\x64' + BTH[1:5] + b'\xff\xff\xff' + BTH[8:] + DETH)
        return {
            'frame_truncated': self.ethernet(v4(roce)[:24]),
            'vlan_stack': self.ethernet(with_icrc(v4(roce)), tags=bytes.fromhex('8100000581000006')),
            'ipv4_header': self.ethernet(v4(roce, version=0x55)),
            'ipv4_options': self.ethernet(v4(roce, version=0x46, options=b'\x01\x01\x01\x00')),
            'ipv4_fragment': self.ethernet(v4(roce, fragment=0x2000)),
            'ipv4_checksum': self.ethernet(v4(roce, checksum_extra=1)),
            'ipv6_header': self.ethernet(v6(roce, version=5), 0x86DD),
            'ipv6_fragment': self.ethernet(v6(b'\x11\x00\x00\x01\x00\x00\x00\x07' + roce, next_header=44), 0x86DD),
            'ipv6_extension': self.ethernet(v6(b'\x3c\x00\x01\x04\x00\x00\x00\x00\x11\x00\x01\x04\x00\x00\x00\x00' + roce,
                                               next_header=0), 0x86DD),
            'ipv6_mapped_address': self.ethernet(v6(roce, source='::ffff:192.0.2.7'), 0x86DD),
            'ip_length': self.ethernet(v4(roce, extra=400)),
            'udp_length': self.ethernet(v4(udp(BTH, extra=4))),
            'transport_version': self.ethernet(v4(udp(b'\x04\x03' + BTH[2:]))),
            'reserved_opcode': self.ethernet(v4(udp(b'\x5f' + BTH[1:]))),
            'headers_truncated': self.ethernet(v4(udp(b'\x06' + BTH[1:]))),
            'length_not_multiple_of_4': self.ethernet(v4(udp(BTH + b'x'))),
            'pad_count': self.ethernet(v4(udp(b'\x04\x30' + BTH[2:]))),
            'payload_length': self.ethernet(v4(udp(b'\x0c' + BTH[1:] + RETH + b'data'))),
            'icrc': self.ethernet(v4(udp(BTH + b'data'))),
            'unknown_qp': self.ethernet(with_icrc(v4(roce))),
            'unknown_multicast': self.ethernet(with_icrc(v4(group, to='239.9.9.9'))),
        }

    def corpus(self):
        """The fuzz target's inputs as frames to the station. An odd first byte requests correct checksums."""
        frames = []
        for name in sorted(os.listdir(CORPUS)):
            with open(os.path.join(CORPUS, name), 'rb') as file:
                data = file.read()
            if len(data) < 15:
                continue
            frame = self.mac + data[7:]
            frames.append(with_checksums(frame) if data[0] & 1 else frame)
        return frames

    def mutations(self, count, seed):
        """The corpus with faults: bytes changed, cut off or added behind the addresses, half of them with right checksums."""
        chance = random.Random(seed)
        corpus = self.corpus()
        frames = []
        while len(frames) < count:
            frame = bytearray(chance.choice(corpus))
            for _ in range(chance.randint(1, 3)):
                at = chance.randrange(12, min(len(frame), 90))
                kind = chance.randrange(4)
                if kind == 0:
                    del frame[max(at, 16):]
                elif kind == 1:
                    frame += bytes(chance.randrange(1, 64))
                else:
                    frame[at] ^= 1 << chance.randrange(8)
            frame = bytes(frame)
            if len(frame) >= 16 and not has_odd_tags(frame):
                frames.append(with_checksums(frame) if chance.randrange(2) else frame)
        return frames


def has_odd_tags(frame):
    """Whether the frame has several tags (`roci decode` reads them), or one without payload (the kernel drops it)."""
    return frame[12:14] == b'\x81\x00' and (len(frame) < 20 or frame[16:18] == b'\x81\x00')


def with_checksums(frame):
    at = 18 if frame[12:14] == b'\x81\x00' else 14
    packet = network_part(frame) if len(frame) >= at + 20 else None
    if not packet:
        return frame
    if packet[0] == 0x45 and len(packet) >= 20:
        header = packet[:10] + b'\0\0' + packet[12:20]
        packet = header[:10] + struct.pack('!H', ipv4_checksum(header)) + packet[12:]
    if is_roce(packet) and len(packet) >= 64:  # with a BTH, whatever the IP version
        packet = with_icrc(packet)
    return frame[:at] + packet + frame[at + len(packet):]


def pcap_of(frames):
    file = struct.pack('<IHHiIII', 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    return file + b''.join(struct.pack('<IIII', 1, 0, len(frame), len(frame)) + frame for frame in frames)


def reasons_of(roci, frames):
    """Expected counts of each reason, by `roci decode`, for a device without queue pairs that gets the frames. Counts of
    IN_FRONT_OF_UDP are minimums."""
    done = subprocess.run([roci, 'decode', '--json', '-'], input=pcap_of(frames), capture_output=True, timeout=60, check=False)
    expected = {}
    for line in done.stdout.splitlines():
        frame = json.loads(line)
        if 'in' in frame or 'grh' in frame:
            continue  # devices do not decode tunnels and RoCEv1
        destination = frame.get('bth', {}).get('dest_qpn')
        if frame.get('malformed') == 'not_roce':
            continue  # for the control plane
        if 'malformed' in frame:
            reason = frame['malformed']
        elif frame['icrc']['verdict'] == 'bad':
            reason = 'icrc'
        elif destination == 0xFFFFFF:
            reason = 'unknown_multicast'
        elif destination <= 1:
            continue
        else:
            reason = 'unknown_qp'
        expected[reason] = expected.get(reason, 0) + 1
    return expected
