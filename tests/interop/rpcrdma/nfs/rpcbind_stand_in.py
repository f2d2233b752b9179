#!/usr/bin/env python3
"""Stands in for rpcbind where nobody asks for ports: accepts every registration of the guest's kernel, whose NFS server does not
start without it.

Usage: rpcbind_stand_in.py SOCKET
"""
import socket  # (Few modules: the guest's processor is slow.)
import struct
import sys
import threading

LAST_FRAGMENT = 0x80000000  # RFC 5531, section 11
NULL = 0  # procedure


def answer(connection):
    """Answers calls over one connection: NULL, and TRUE to all others (SET and UNSET)."""
    with connection, connection.makefile('rwb') as stream:
        while len(mark := stream.read(4)) == 4:
            call = stream.read(struct.unpack('>I', mark)[0] & ~LAST_FRAGMENT)
            procedure, = struct.unpack('>I', call[20:24])
            # The XID; an accepted reply with an empty verifier and the status SUCCESS.
            reply = call[:4] + struct.pack('>5I', 1, 0, 0, 0, 0) + (b'' if procedure == NULL else struct.pack('>I', 1))
            stream.write(struct.pack('>I', LAST_FRAGMENT | len(reply)) + reply)
            stream.flush()


def main():
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        while True:
            threading.Thread(target=answer, args=listener.accept()[:1], daemon=True).start()


if __name__ == '__main__':
    main()
