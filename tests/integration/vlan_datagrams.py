#!/usr/bin/env python3
"""Sends datagrams from roci0 to roci1, one per given GID index, which is used on both sides. Prints a line for each: the tag
of ibv_wc_read_cvlan, or `nothing` if no datagram arrives.

Usage (Debian's Python, for pyverbs): vlan_datagrams.py SERVICE_LEVEL INDEX...
"""
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQEX, CqInitAttrEx, PollCqAttr
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

QKEY = 0x11111111
GRH_BYTES = 40
BYTES = 64
LIMIT_S = 10


class End:

    def __init__(self, name):
        self.context = Context(name=name)
        self.pd = PD(self.context)
        self.cq = CQEX(self.context, CqInitAttrEx(cqe=16, wc_flags=e.IBV_WC_STANDARD_FLAGS | e.IBV_WC_EX_WITH_CVLAN))
        self.mr = MR(self.pd, GRH_BYTES + BYTES, e.IBV_ACCESS_LOCAL_WRITE)
        attr = QPAttr()
        attr.qkey = QKEY
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_UD, scq=self.cq, rcq=self.cq, cap=QPCap()), attr)

    def sge(self, length):
        return [SGE(self.mr.buf, length, self.mr.lkey)]

    def poll(self):
        """Returns status and tag of the next completion."""
        deadline = time.monotonic() + LIMIT_S
        while self.cq.start_poll(PollCqAttr()) != 0:
            if time.monotonic() > deadline:
                return None
        found = self.cq.status, self.cq.read_cvlan()
        self.cq.end_poll()
        return found


def main(level, indices):
    sender, receiver = End('roci0'), End('roci1')
    for index in indices:
        receiver.qp.post_recv(RecvWR(num_sge=1, sg=receiver.sge(GRH_BYTES + BYTES)))
        gid = receiver.context.query_gid(1, index)
        route = GlobalRoute(dgid=gid, sgid_index=index)
        ah = AH(sender.pd, attr=AHAttr(gr=route, is_global=1, port_num=1, sl=level))
        request = SendWR(num_sge=1, sg=sender.sge(BYTES), opcode=e.IBV_WR_SEND)
        request.set_wr_ud(ah, receiver.qp.qp_num, QKEY)
        sender.qp.post_send(request)
        if sender.poll()[0] != e.IBV_WC_SUCCESS:
            raise SystemExit('not sent')
        found = receiver.poll()
        print('nothing' if found is None else f'{found[1]:#x}')


main(int(sys.argv[1]), [int(word) for word in sys.argv[2:]])
