"""Counts system calls, allocations and locks of the daemon's dataplane threads during traffic."""
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import time

from .processes import BenchmarkError

# System calls that a dataplane thread may make: copies from and to programs, waking a sleeping program and being woken, and
# yielding the processor without work, which includes a change of its priority.
ALLOWED_CALLS = {'process_vm_readv', 'process_vm_writev', 'preadv', 'pwritev', 'write', 'read', 'epoll_wait', 'epoll_pwait',
                 'epoll_pwait2', 'ppoll', 'sched_yield', 'sched_setattr'}
SLOT = struct.Struct('<3q')


def dataplane_thread(daemon, patience_s=10.0):
    """The busiest thread. Waits until there is traffic, since an idle dataplane sleeps."""
    interval_s = 0.2
    deadline = time.monotonic() + patience_s
    before = daemon.threads()
    while time.monotonic() < deadline:
        time.sleep(interval_s)
        after = daemon.threads()
        ran = {tid: times[0] - before.get(tid, times)[0] for tid, times in after.items()}
        busiest = max(ran, key=ran.get)
        if ran[busiest] > interval_s / 4:  # other programs may use the processor as well
            return busiest
        before = after
    raise BenchmarkError('no thread of the daemon is busy')


def read_counts(path):
    """{tid: (allocator calls, locks)} from the file of libcall_count."""
    data = pathlib.Path(path).read_bytes()
    return {tid: (calls, locks) for tid, calls, locks in SLOT.iter_unpack(data) if tid}


def parse_strace_summary(text):
    """{system call: count} from the output of `strace -c`."""
    calls = {}
    row = re.compile(r'^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?([a-z_]\w*)$')
    for line in text.splitlines():
        match = row.match(line)
        if match and match[2] != 'total':
            calls[match[2]] = int(match[1])
    return calls


def trace(tid, seconds):
    """Counts system calls of one thread for some seconds. The tracer stops the thread at each call, so counts are low."""
    tracer = subprocess.Popen(['strace', '-c', '-qq', '-p', str(tid)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(seconds)
    tracer.send_signal(signal.SIGINT)
    try:
        output, _ = tracer.communicate(timeout=10)
    except subprocess.TimeoutExpired as error:
        tracer.kill()
        raise BenchmarkError('strace did not end') from error
    if 'Operation not permitted' in output or 'ptrace' in output:
        raise BenchmarkError(f'strace may not look at the daemon: {output.strip()}')
    return parse_strace_summary(output)


def watch(daemon, counts_file, program, message_bytes, seconds):
    """Traces the dataplane thread during a perftest run: {calls_per_s, allocator_calls, locks, seconds}."""
    arguments = ['-s', message_bytes, '-D', int(2 * seconds) + 6]
    with daemon.pair(program, *arguments) as client:
        tid = dataplane_thread(daemon)
        if read_counts(counts_file).get(daemon.pid, (0, 0))[0] == 0:
            raise BenchmarkError('nothing is counted: no thread of the daemon seems ever to have allocated')
        time.sleep(0.5)  # warm-up
        before = read_counts(counts_file).get(tid, (0, 0))
        time.sleep(seconds)
        after = read_counts(counts_file).get(tid, (0, 0))
        calls = trace(tid, seconds) if shutil.which('strace') else None
        if client.poll() is not None:
            raise BenchmarkError(f'{program} ended too early:\n{client.stdout.read()[-800:]}{daemon.describe_failure()}')
        name = pathlib.Path(f'/proc/{daemon.pid}/task/{tid}/comm').read_text().strip()
    result = {'thread': name, 'seconds': seconds, 'allocator_calls': after[0] - before[0], 'locks': after[1] - before[1]}
    if calls is not None:
        result['system_calls_per_s'] = {call: count / seconds for call, count in sorted(calls.items())}
        result['not_allowed'] = sorted(set(calls) - ALLOWED_CALLS)
    return result


def environment(build, counts_file):
    """Environment of a daemon whose allocations and locks are counted."""
    library = pathlib.Path(build, 'tests/bench/libcall_count.so').resolve()
    return {'LD_PRELOAD': os.pathsep.join(filter(None, [str(library), os.environ.get('LD_PRELOAD')])),
            'ROCI_CALL_COUNT': str(counts_file)}
