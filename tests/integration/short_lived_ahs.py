#!/usr/bin/env python3
"""For each line of its input, a GID index of roci0, creates and destroys an address handle to 10.99.0.2. Prints a line for each:
`made`, or the number of the error.

Usage (Debian's Python, for pyverbs): short_lived_ahs.py
"""
import sys

from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError


def main():
    domain = PD(Context(name='roci0'))
    for line in sys.stdin:
        route = GlobalRoute(dgid=GID('0000:0000:0000:0000:0000:ffff:0a63:0002'), sgid_index=int(line))
        try:
            AH(domain, attr=AHAttr(gr=route, is_global=1, port_num=1)).close()
            print('made', flush=True)
        except PyverbsRDMAError as error:
            print(error.error_code, flush=True)


if __name__ == '__main__':
    main()
