"""What adapters refuse, drop or fail: posts on device DEVICE and on another, a line for each with what the post returns and status
and vendor error of its completion. Run by personality_test.py with the system's Python, for pyverbs.

Usage: personality_posts.py DEVICE OTHER_DEVICE
"""
import sys
import time

from pyverbs import enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR, MW
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.wr import SGE, RecvWR, SendWR

GID_INDEX = 1
REMOTE = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC


class End:
    """A device with a completion queue and some memory."""

    def __init__(self, name):
        self.context = Context(name=name)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 100)
        self.mr = MR(self.pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | REMOTE)

    def make(self, qp_type):
        return QP(self.pd, QPInitAttr(qp_type=qp_type, scq=self.cq, rcq=self.cq, cap=QPCap(max_send_wr=10, max_recv_wr=10)))

    def make_extended(self, operation):
        mask = e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
        init = QPInitAttrEx(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, pd=self.pd, send_ops_flags=operation, comp_mask=mask,
                            cap=QPCap(max_send_wr=10, max_recv_wr=10))
        QPEx(self.context, init).close()

    def elements(self):
        return [SGE(self.mr.buf, 8, self.mr.lkey)]

    def receive(self, qp):
        qp.post_recv(RecvWR(1, 1, self.elements()))

    def send(self, qp):
        qp.post_send(SendWR(1, e.IBV_WR_SEND, num_sge=1, sg=self.elements()))

    def read(self, qp):
        request = SendWR(1, e.IBV_WR_RDMA_READ, num_sge=1, sg=self.elements())
        request.set_wr_rdma(self.mr.rkey, self.mr.buf)
        qp.post_send(request)

    def add(self, qp, peer):
        request = SendWR(1, e.IBV_WR_ATOMIC_FETCH_AND_ADD, num_sge=1, sg=self.elements())
        request.set_wr_atomic(peer.mr.rkey, peer.mr.buf, 1)
        qp.post_send(request)

    def say(self, what, post, wait_s=10):
        try:
            post()
            result = 0
        except PyverbsRDMAError as error:
            result = error.error_code
        seen = []
        end = time.monotonic() + wait_s
        while result == 0 and not seen and time.monotonic() < end:
            seen = [f'{wc.status}/{wc.vendor_err}' for wc in self.cq.poll(1)[1]]
        print(f'{what}:', result, *seen, flush=True)

    @staticmethod
    def say_refusal(what, call):
        try:
            call()
            print(f'{what}: 0')
        except PyverbsRDMAError as error:
            print(f'{what}:', error.error_code)

    def connect(self, qp, peer, peer_qp):
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = REMOTE
        attr.dest_qp_num = peer_qp.qp_num
        attr.path_mtu = e.IBV_MTU_1024
        attr.timeout = 14
        attr.retry_cnt = 7
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        route = GlobalRoute(dgid=peer.context.query_gid(1, GID_INDEX), sgid_index=GID_INDEX)
        attr.ah_attr = AHAttr(is_global=1, port_num=1, gr=route)
        qp.to_rts(attr)


end, other = End(sys.argv[1]), End(sys.argv[2])
rc, other_rc = end.make(e.IBV_QPT_RC), other.make(e.IBV_QPT_RC)
end.say('receive in RESET', lambda: end.receive(rc), wait_s=0.2)
end.say('send in RESET', lambda: end.send(rc), wait_s=0.2)
end.connect(rc, other, other_rc)
other.connect(other_rc, end, rc)
end.say('atomic', lambda: end.add(rc, other))
other.say('atomic of the peer', lambda: other.add(other_rc, end))
rc.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
end.say('flush', lambda: end.receive(rc))
ud = end.make(e.IBV_QPT_UD)
ud.to_rts(QPAttr(port_num=1))
end.say('READ on UD', lambda: end.read(ud))
end.say_refusal('window', lambda: MW(end.pd, e.IBV_MW_TYPE_1).close())
end.say_refusal('ibv_wr_rdma_write', lambda: end.make_extended(e.IBV_QP_EX_WITH_RDMA_WRITE))
end.say_refusal('ibv_wr_atomic_fetch_add', lambda: end.make_extended(e.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD))
end.say_refusal('ibv_wr_bind_mw', lambda: end.make_extended(e.IBV_QP_EX_WITH_BIND_MW))
