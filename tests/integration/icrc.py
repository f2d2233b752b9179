"""The ICRC of RoCEv2 from the IBTA's text, bit by bit (vol 1, 7.8.1 and annex A17.3.3): independent of the product.

As a program: icrc.py CAPTURE checks every RoCE frame of a capture with scapy, which supports IPv4 only, and with this module;
prints the number of correct ones for each, and a line per wrong one. Needs Debian's python3 for python3-scapy.
"""
import struct
import sys

POLYNOMIAL = 0x04C11DB7
ROCE_PORT = 4791


def reflect(value, bits):
    return int(format(value, f'0{bits}b')[::-1], 2)


def crc32(data):
    """CRC-32 of Ethernet, a bit at a time, the least significant bit of each byte first."""
    register = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            feedback = (register >> 31) ^ ((byte >> bit) & 1)
            register = (register << 1) & 0xFFFFFFFF
            if feedback:
                register ^= POLYNOMIAL
    return reflect(register ^ 0xFFFFFFFF, 32)


def network_part(frame):
    """The IP packet of an Ethernet frame, without tags and padding; None if there is none."""
    at, kind = 14, struct.unpack_from('!H', frame, 12)[0]
    while kind in (0x8100, 0x88A8):
        kind = struct.unpack_from('!H', frame, at + 2)[0]
        at += 4
    if kind == 0x0800:
        return frame[at:at + struct.unpack_from('!H', frame, at + 2)[0]]
    if kind == 0x86DD:
        return frame[at:at + 40 + struct.unpack_from('!H', frame, at + 4)[0]]
    return None


def is_roce(packet):
    if packet is None or len(packet) < 44:
        return False
    v6 = packet[0] >> 4 == 6
    udp = 40 if v6 else 20
    return packet[6 if v6 else 9] == 17 and struct.unpack_from('!H', packet, udp + 2)[0] == ROCE_PORT


def icrc_of(packet):
    """The four bytes that are to stand at the end of the IP packet."""
    masked = bytearray(packet[:-4])
    if packet[0] >> 4 == 6:
        udp = 40
        masked[0] |= 0x0F  # traffic class and flow label
        masked[1:4] = b'\xff\xff\xff'
        masked[7] = 0xFF  # hop limit
    else:
        udp = 20
        masked[1] = 0xFF  # type of service
        masked[8] = 0xFF  # time to live
        masked[10:12] = b'\xff\xff'  # header checksum
    masked[udp + 6:udp + 8] = b'\xff\xff'  # UDP checksum
    masked[udp + 8 + 4] = 0xFF  # FECN, BECN, reserved bits
    return struct.pack('<I', crc32(b'\xff' * 8 + bytes(masked)))


def main():
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP
    from scapy.layers.l2 import Ether
    from scapy.utils import RawPcapReader
    right, by_scapy, wrong = 0, 0, 0
    for number, (frame, _) in enumerate(RawPcapReader(sys.argv[1]), 1):
        packet = network_part(frame)
        if not is_roce(packet):
            continue
        if icrc_of(packet) == packet[-4:]:
            right += 1
        else:
            wrong += 1
            print(f'frame {number}: ICRC {packet[-4:].hex()}, not {icrc_of(packet).hex()}')
        if packet[0] >> 4 != 4:
            continue
        dissected = Ether(frame[:12] + b'\x08\x00' + packet)
        transport = dissected[IP][BTH]
        if transport.compute_icrc(bytes(transport)[:-4]) == packet[-4:]:
            by_scapy += 1
        else:
            wrong += 1
            print(f'frame {number}: scapy says that the ICRC is wrong')
    print(f'{right} right, {by_scapy} by scapy, {wrong} wrong')
    return 1 if wrong or not right else 0


if __name__ == '__main__':
    sys.exit(main())
