"""The applications of tests/apps/run: name, start command, and how success is recognised."""
import os
import re
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))

# Name, IPv4 and IPv6 address of the devices of a daemon without a configuration.
DEVICES = (('roci0', '10.99.0.1', 'fd72:6f63:6900::1'), ('roci1', '10.99.0.2', 'fd72:6f63:6900::2'))
NEAR, FAR = DEVICES
PRELOAD = 'rsocket/librspreload.so'


class Skip(Exception):
    """Why something was not tried."""


class Case:
    """`run` takes a Trial, raises AssertionError when something is wrong, and returns a remark (a figure) or None. `needs`:
    further packages. `refused`: why it cannot work; run then checks that it is refused as expected. `patience`: how many
    times the usual limit it may take."""

    def __init__(self, name, run, needs=(), refused=None, patience=1):
        self.name, self.run, self.needs, self.refused, self.patience = name, run, needs, refused, patience


class App:
    def __init__(self, program, package, cases, skipped=None):
        self.program, self.package, self.skipped = program, package, skipped
        self.cases = cases


def good(wrong):
    assert not wrong, wrong


def found(pattern, text, what):
    match = re.search(pattern, text)
    assert match, f'{what}: "{pattern}" is not in: {" | ".join(text.split(chr(10))[-4:])}'
    return ' '.join(match.group(0).split())


def pair(server, client, port=None, stays=False, env=None, figure=None, server_env=None):
    """The usual: a server, a client when it listens (`port`: of TCP, `udp:N`, or a word that it says; None: by librdmacm), both
    end with 0. `figure`: what the client's output must contain."""
    def run(trial):
        first = trial.start(server, {**(env or {}), **(server_env or {})})
        assert trial.listens(first, port), f'the server does not listen: {trial.last(first)}'
        second = trial.start(client, env)
        wrong = trial.finish(second, 'client')
        if wrong:
            raise AssertionError(f'{wrong}; server: {trial.last(first)}')
        if not stays:
            good(trial.finish(first, 'server'))
        return found(figure, trial.output(second), 'client') if figure else None
    return run


# ---- qperf

QPERF_PORT = 19800
WITH_CM = ('rc_bw', 'rc_bi_bw', 'rc_lat', 'rc_rdma_read_bw', 'rc_rdma_read_lat', 'rc_rdma_write_bw', 'rc_rdma_write_lat',
           'rc_compare_swap_mr', 'rc_fetch_add_mr', 'ver_rc_compare_swap', 'ver_rc_fetch_add')
BY_LID = ('rc_bw', 'uc_bw', 'ud_bw')


def qperf(options):
    return pair(f'qperf -lp {QPERF_PORT}', f'qperf -lp {QPERF_PORT} {FAR[1]} {options}', QPERF_PORT, True,
                figure=r'= +[0-9.]+ \S+')


def qperf_by_lid(test):
    def run(trial):
        server = trial.start(f'qperf -lp {QPERF_PORT}')
        assert trial.listens(server, QPERF_PORT), 'the server does not listen'
        client = trial.start(f'qperf -lp {QPERF_PORT} {FAR[1]} -t 1 {test}')
        assert trial.finish(client, 'client') != '', 'it worked?'
        output = trial.output(client) + trial.output(server)
        found('failed to (modify QP to RTR|create address handle): Invalid argument', output, 'client')
    return run


QPERF = [Case(f'-cm1 {test}', qperf(f'-t 1 -cm1 {test}')) for test in WITH_CM] + [
    Case(test, qperf_by_lid(test), refused='qperf without -cm1 addresses its peer by LID and without a GRH, which no RoCE '
         'device takes (EINVAL); -cm1 exists for rc tests only') for test in BY_LID]

# ---- fio

FIO_SERVER = 'fio --name=receive --ioengine=rdma --port=7777 --rw=read --bs={0} --size=32m --iodepth=16 {1}'
FIO_CLIENT = ('fio --name=send --ioengine=rdma --hostname={0} --port=7777 --verb={1} --rw=write --bs={2} --size=32m '
              '--iodepth_batch_complete=1 {3}')


def fio(verb, block, client='--iodepth=16', server='', address=FAR[1]):
    return pair(FIO_SERVER.format(block, server), FIO_CLIENT.format(address, verb, block, client),
                figure=r'WRITE: bw=\S+')


# fio asks for no repetition of SENDs for which no receive is posted (rnr_retry_count 0), so the sender must not outrun the
# receiver: one at a time, at a rate.
FIO = [Case('verb=write', fio('write', '64k')), Case('verb=write bs=4k', fio('write', '4k')),
       Case('verb=write bs=1m', fio('write', '1m')), Case('verb=read', fio('read', '64k')),
       Case('verb=send', fio('send', '64k', '--iodepth=1 --rate_iops=200')),
       Case('verb=send with verify', fio('send', '64k', '--iodepth=1 --rate_iops=200 --verify=crc32c --do_verify=0',
                                         '--verify=crc32c'))]

# ---- UCX

UCX_TESTS = (('tag_lat', 8), ('tag_lat', 65536), ('tag_bw', 65536), ('tag_sync_lat', 1024), ('stream_lat', 1024),
             ('stream_bw', 65536), ('ucp_am_lat', 8), ('ucp_am_bw', 65536), ('ucp_put_lat', 8), ('ucp_put_bw', 65536),
             ('ucp_get', 65536), ('ucp_add', 8), ('ucp_fadd', 8), ('ucp_swap', 8), ('ucp_cswap', 8))
UCX_PORT = 13500


def ucx_info(trial):
    process = trial.start('ucx_info -d')
    good(trial.finish(process, 'ucx_info'))
    output = trial.output(process)
    for transport in ('rc_verbs', 'ud_verbs'):
        for device in DEVICES:
            found(rf'Transport: {transport}\n# +Device: {device[0]}:1', output, 'devices')
    return None


def ucx_perftest(transport, test, size):
    def run(trial):
        # Short names: rc_v brings ud_verbs as the auxiliary transport that makes its connections.
        base = {'UCX_TLS': f'{transport},self', 'UCX_WARN_UNUSED_ENV_VARS': 'n'}
        options = f'-p {UCX_PORT} -t {test} -s {size} -n 200 -w 20'
        server = trial.start(f'ucx_perftest {options}', {**base, 'UCX_NET_DEVICES': f'{FAR[0]}:1'})
        assert trial.listens(server, UCX_PORT), f'the server does not listen: {trial.last(server)}'
        client = trial.start(f'ucx_perftest 127.0.0.1 {options}', {**base, 'UCX_NET_DEVICES': f'{NEAR[0]}:1'})
        good(trial.finish(client, 'client'))
        good(trial.finish(server, 'server'))
        return found('Final: .*', trial.output(client), 'client')
    return run


UCX = [Case('ucx_info -d', ucx_info)] + [
    Case(f'{transport} {test} {size}', ucx_perftest(transport, test, size))
    for transport in ('rc_v', 'ud_v') for test, size in UCX_TESTS]

# ---- MPI

MPI_ENV = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1', 'UCX_WARN_UNUSED_ENV_VARS': 'n',
           'OMPI_MCA_rmaps_base_oversubscribe': '1', 'OMPI_MCA_btl_base_warn_component_unused': '0',
           'OMPI_MCA_btl_vader_single_copy_mechanism': 'none'}


def mpi(kind, launch, env, ranks):
    def run(trial):
        compiler = f'mpicxx.{kind}'
        if not shutil.which(compiler) or not shutil.which('g++'):
            raise Skip(f'no {compiler}')
        program = os.path.join(trial.folder, 'mpi_check')
        subprocess.run([compiler, '-O1', '-o', program, os.path.join(HERE, 'mpi_check.cc')], check=True,
                       capture_output=True, timeout=trial.left(), env={**os.environ, 'OMPI_CXX': 'g++'})
        before = packets(trial)
        process = trial.start(f'mpirun.{kind} -np {ranks} {launch} {program}', {**MPI_ENV, **env})
        good(trial.finish(process, 'mpirun'))
        output = trial.output(process)
        found('all good', output, 'mpi_check')
        assert packets(trial) > before + 1000, 'it did not use the devices'
        return found('8 B: .*', output, 'mpi_check')
    return run


def packets(trial):
    return sum(port['counters']['rx_roce_packets'] for port in trial.daemon.show('ports'))


def over(transport):
    return {'UCX_TLS': f'{transport},self', 'UCX_NET_DEVICES': 'roci0:1,roci1:1'}


OPENMPI = [Case(f'UCX {transport}, {ranks} ranks', mpi('openmpi', '--mca pml ucx --mca osc ucx', over(transport), ranks),
                ('libopenmpi-dev',), patience=3) for transport, ranks in (('rc_v', 2), ('rc_v', 4), ('ud_v', 2))]
MPICH = [Case(f'UCX {transport}, {ranks} ranks', mpi('mpich', '', over(transport), ranks), ('libmpich-dev',), patience=3)
         for transport, ranks in (('rc_v', 2), ('rc_v', 4), ('ud_v', 2))]

# ---- libfabric


def fi_info(trial):
    process = trial.start('fi_info -p verbs')
    good(trial.finish(process, 'fi_info'))
    for kind in ('FI_EP_MSG', 'FI_EP_DGRAM'):
        found(kind, trial.output(process), 'fi_info')


def fi_pingpong(provider, endpoint, sizes=('-I', '100', '-S', '1024'), figure=r'(?m)^1k.*'):
    options = ['-p', provider, '-e', endpoint, '-c', *sizes]
    return pair(['fi_pingpong', *options], ['fi_pingpong', *options, FAR[1]], 47592, figure=figure)


LIBFABRIC = [Case('fi_info -p verbs', fi_info)] + [
    Case(f'fi_pingpong {provider} {endpoint}', fi_pingpong(provider, endpoint))
    for provider, endpoint in (('verbs', 'msg'), ('verbs', 'dgram'), ('verbs;ofi_rxm', 'rdm'), ('verbs;ofi_rxd', 'rdm'))] + [
    Case(f'fi_pingpong {provider} {endpoint} all sizes', fi_pingpong(provider, endpoint, ('-I', '20'), r'(?m)^1m.*'))
    for provider, endpoint in (('verbs', 'msg'), ('verbs;ofi_rxm', 'rdm'), ('verbs;ofi_rxd', 'rdm'))]

# ---- DAPL

DAPL_PROVIDERS = {'cma': ('libdaplofa.so.2', NEAR[1] + ' 0', FAR[1] + ' 0'),
                  'scm': ('libdaploscm.so.2', NEAR[0] + ' 1', FAR[0] + ' 1')}


def dapl(provider, server, client, port, stays=False, figure=None):
    """`{0}` in the commands is the interface adapter's name."""
    def run(trial):
        library, near, far = DAPL_PROVIDERS[provider]
        registry = os.path.join(trial.folder, 'dat.conf')
        with open(registry, 'w', encoding='ascii') as file:
            for name, parameters in (('near', near), ('far', far)):
                file.write(f'{name} u2.0 nonthreadsafe default {library} dapl.2.0 "{parameters}" ""\n')
        env = {'DAT_OVERRIDE': registry, 'DAPL_GLOBAL_ROUTING': '1'}
        return pair(server.format('far'), client.format('near'), port, stays, env, figure)(trial)
    return run


def dapltest(options):
    return ('dapltest -T S -D {0}', 'dapltest -T ' + options.replace('HOST', f'-s {FAR[1]} -D {{0}}'))


def dapl_cases():
    for provider in DAPL_PROVIDERS:
        for program in ('dtest', 'dtestx'):
            # dtest polls memory without a call in which it would give the processor away: few and short.
            few = ' -B 4 -b 4096' if program == 'dtest' else ''
            yield Case(f'{program} {provider}', dapl(provider, program + ' -P {0}' + few,
                                                     f'{program} -P {{0}} -h {FAR[1]}{few}',
                                                     15828, figure='PASSED' if program == 'dtest' else None),
                       patience=2)
    server, client = dapltest('T HOST -d -i 100 -t 1 -w 1 -R BE client SR 1024 4 server SR 1024 4 client RR 4096 '
                              'server RW 4096')
    for provider in DAPL_PROVIDERS:
        yield Case(f'dapltest {provider}', dapl(provider, server, client, 'Service Point Ready', True,
                                                figure='Total RDMA Write.*'),
                   patience=2)


DAPL = list(dapl_cases())

# ---- Sockets over RDMA


def preload_library():
    found_at = [path for path in (f'/usr/lib/x86_64-linux-gnu/{PRELOAD}', f'/usr/lib/aarch64-linux-gnu/{PRELOAD}')
                if os.path.exists(path)]
    if not found_at:
        raise Skip('librspreload.so is not there')
    return found_at[0]


def preloaded(server, client, figure, port_space_ready=None):
    def run(trial):
        # env: only the program itself is to have the library, not `roci run`.
        wrapped = [['env', f'LD_PRELOAD={preload_library()}', *command.split()] for command in (server, client)]
        return pair(*wrapped, port_space_ready, True, figure=figure)(trial)
    return run


def preloaded_in_vain(server, client, port, why):
    """The client must fail, and one of them say `why` (an expression)."""
    def run(trial):
        env = ['env', f'LD_PRELOAD={preload_library()}']
        first = trial.start([*env, *server.split()])
        assert trial.listens(first, port), f'the server does not listen: {trial.last(first)}'
        second = trial.start([*env, *client.split()])
        assert trial.finish(second, 'client') != '', 'it worked?'
        found(why, trial.output(first) + trial.output(second), 'output')
    return run


def udpong(trial):
    server = trial.start(f'udpong -b {FAR[1]}')
    assert trial.listens(server, 'udp:7174'), 'the server does not listen'
    client = trial.start(f'udpong -s {FAR[1]} -b {NEAR[1]}')
    assert trial.finish(client, 'client') != '', 'it worked?'
    found('rconnect: ', trial.output(client), 'client')


RSOCKETS = [
    Case('iperf', preloaded('iperf -s -p 5301', f'iperf -c {FAR[1]} -p 5301 -n 8M', r'8\.00 MBytes.*'), ('iperf',)),
    Case('iperf3', preloaded_in_vain('iperf3 -s -p 5301', f'timeout 6 iperf3 -c {FAR[1]} -p 5301 -n 2M', None,
                                     'getsockopt - Operation not supported'), ('iperf3',),
         refused='select() of librspreload names its own descriptors instead of the program\'s (mended in rdma-core 63, '
         '"librdmacm: Fix select function"), so iperf3, which lives by it, never sees that there is something to read'),
    Case('qperf tcp_bw', preloaded_in_vain(f'qperf -lp {QPERF_PORT}', f'qperf -lp {QPERF_PORT} {FAR[1]} -t 1 tcp_bw', None,
                                           'F_SETOWN failed: Operation not supported'), ('qperf',),
         refused='rsockets knows no fcntl(F_SETOWN), without which qperf does not start a test')]
UDPONG = [Case('udpong', udpong, refused='datagram rsockets makes an address handle without a GRH for its own end, which no '
               'RoCE device takes (EINVAL)')]

APPLICATIONS = [
    App('qperf', 'qperf', QPERF),
    App('fio', 'fio', FIO),
    App('UCX', 'ucx-utils', UCX),
    App('Open MPI', 'openmpi-bin', OPENMPI),
    App('MPICH', 'mpich', MPICH),
    App('libfabric', 'libfabric-bin', LIBFABRIC),
    App('DAPL', 'dapl2-utils', DAPL),
    App('librspreload', 'librdmacm1', RSOCKETS),
    App('rsockets', 'rdmacm-utils', UDPONG),
    App('Ceph', 'ceph-osd', [Case('messenger', None)], 'a storage cluster: too large for this'),
    App('Gloo', 'libgloo0', [Case('ibverbs', None)], 'a library without a program'),
    App('librpma', 'librpma0', [Case('ping', None)], 'a library without a program; fio in Debian is built without it'),
    App('srptools', 'srptools', [Case('ibsrpdm', None)], 'InfiniBand management datagrams, not of RoCE'),
    App('ibacm', 'ibacm', [Case('ib_acme', None)], 'resolves InfiniBand paths, not of RoCE'),
]
