"""Hand-made messages of the connection manager (IBTA vol 1, 12.6 and 13.4.2), to and from RoCEv2 frames over IPv4."""
import socket
import struct

from icrc import icrc_of

ROCE_PORT = 4791
GSI_QPN = 1
GSI_QKEY = 0x80010000
UD_SEND, UD_SEND_IMMEDIATE = 0x64, 0x65
MAD_BYTES = 256
HEADER_BYTES = 24
REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP, APR = range(0x10, 0x1B)
TCP_SPACE = 0x0106 << 16  # service ID prefix, above the port


def gid(address):
    return bytes(10) + b'\xff\xff' + socket.inet_aton(address)


def ip_header(source, destination, source_port=7):
    """The header that librdmacm puts before a program's private data."""
    return (struct.pack('!BBH', 0, 0x40, source_port) + bytes(12) + socket.inet_aton(source) + bytes(12) +
            socket.inet_aton(destination))


def mad(attribute, body=b'', transaction=1, modifier=0, base=1, kind=7, version=2, method=3):
    head = struct.pack('!BBBBHHQHHI', base, kind, version, method, 0, 0, transaction, attribute, 0, modifier)
    return head + body + bytes(MAD_BYTES - HEADER_BYTES - len(body))


def at(fields, size=MAD_BYTES - HEADER_BYTES):
    """A body of (offset, bytes) pairs."""
    body = bytearray(size)
    for offset, value in fields:
        body[offset:offset + len(value)] = value
    return bytes(body)


def u24(value):
    return struct.pack('!I', value)[1:]


def req(ours, service, source, destination, qpn, *, transport=0, mtu=3, vendor=0, guid=0x77, timeout=20, data=b''):
    return at([(0, struct.pack('!I', ours)), (5, u24(vendor)), (8, struct.pack('!Q', service)),
               (16, struct.pack('!Q', guid)), (32, u24(qpn)), (43, bytes([timeout << 3 | transport << 1])), (44, u24(0x123456)),
               (47, bytes([timeout << 3 | 7])), (48, b'\xff\xff'), (50, bytes([mtu << 4 | 7])), (51, b'\xf0'),
               (52, b'\xff\xff\xff\xff'), (56, gid(source)), (72, gid(destination)), (93, b'\x40'),
               (95, bytes([17 << 3])), (140, ip_header(source, destination) + data)])


def sidr_req(ours, service, source, destination):
    return at([(0, struct.pack('!I', ours)), (4, b'\xff\xff'), (8, struct.pack('!Q', service)),
               (16, ip_header(source, destination))])


def ids(ours, theirs, *fields):
    return at([(0, struct.pack('!II', ours, theirs)), *fields])


def dreq(ours, theirs, their_qpn):
    return ids(ours, theirs, (8, u24(their_qpn)))


def frame(macs, source, destination, payload, opcode=UD_SEND, qkey=GSI_QKEY, source_qpn=GSI_QPN, psn=0):
    """A frame to `macs[0]` from `macs[1]`."""
    transport = struct.pack('!BBHII', opcode, 0x40, 0xFFFF, GSI_QPN, psn) + struct.pack('!II', qkey, source_qpn)
    transport += payload
    length = 20 + 8 + len(transport) + 4
    head = struct.pack('!BBHHHBBH4s4s', 0x45, 0, length, 0, 0x4000, 64, 17, 0, socket.inet_aton(source),
                       socket.inet_aton(destination))
    total = sum(struct.unpack('!10H', head))
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + struct.pack('!H', ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + head[12:]
    packet = head + struct.pack('!HHHH', 0xC000, ROCE_PORT, length - 20, 0) + transport + bytes(4)
    return macs[0] + macs[1] + b'\x08\x00' + packet[:-4] + icrc_of(packet)


class Mad:
    """A received MAD, with its frame."""

    def __init__(self, data):
        self.attribute, _, self.modifier = struct.unpack_from('!HHI', data, 16)
        self.transaction, = struct.unpack_from('!Q', data, 8)
        self.body = data[HEADER_BYTES:]
        self.sender, self.receiver = struct.unpack_from('!II', self.body)

    def number(self, offset, size):
        return int.from_bytes(self.body[offset:offset + size], 'big')


def mad_of(data):
    """The MAD of an Ethernet frame, or None; its ICRC must be right."""
    packet = data[14:]
    if data[12:14] != b'\x08\x00' or packet[9] != 17 or struct.unpack_from('!H', packet, 22)[0] != ROCE_PORT:
        return None
    packet = packet[:struct.unpack_from('!H', packet, 2)[0]]
    if packet[28] != UD_SEND or int.from_bytes(packet[33:36], 'big') != GSI_QPN:
        return None
    if icrc_of(packet) != packet[-4:]:
        raise AssertionError(f'wrong ICRC: {packet.hex()}')
    return Mad(packet[48:-4])
