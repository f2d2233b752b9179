#!/usr/bin/env python3
"""Runs a command and ends every process that it leaves behind, including those in other sessions.

Usage: subreaper.py COMMAND...

`meson test` starts each test in a new session and leaves the tests running if it ends by an exception (full disk) or by
SIGKILL. Orphans of the command become children of this process, which ends them: SIGTERM, SIGKILL after GRACE_S. SIGTERM,
SIGINT and SIGHUP are passed on; after PATIENCE_S the command is killed. The exit status is that of the command, as in a
shell.
"""
import ctypes
import os
import pathlib
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
GRACE_S = 2
PATIENCE_S = 15  # less than tools/test waits before it kills this process


def parents():
    """Parent and name of each process. (Not the arguments: reading them accesses the process's memory and may block.)"""
    found = {}
    for folder in pathlib.Path('/proc').iterdir():
        if folder.name.isdigit():
            try:
                before, _, after = (folder / 'stat').read_text(encoding='utf-8', errors='replace').rpartition(')')
            except OSError:
                continue  # it has ended
            state, parent = after.split()[:2]
            if state not in 'ZX':
                found[int(folder.name)] = int(parent), before.partition('(')[2]
    return found


def descendants():
    """The names of the living processes below this one, by process number."""
    found, below = parents(), {os.getpid()}
    while True:
        more = {pid for pid, (parent, _) in found.items() if parent in below} - below
        if not more:
            return {pid: found[pid][1] for pid in below - {os.getpid()}}
        below |= more


def reap(options=os.WNOHANG):
    """Reaps the next child that has ended: its process number and status; 0: none."""
    try:
        return os.waitpid(-1, options)
    except ChildProcessError:
        return 0, 0


def end_all():
    """Ends the remaining processes; returns their names."""
    names, begin = {}, time.monotonic()
    while left := descendants():
        for pid in left:
            late = time.monotonic() > begin + GRACE_S
            if late or pid not in names:
                try:
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
                except (ProcessLookupError, PermissionError):
                    pass
        names.update(left)
        if time.monotonic() > begin + 2 * GRACE_S:
            break  # a process of another user, or blocked in the kernel
        time.sleep(0.05)
        while reap()[0]:
            pass
    return sorted(set(names.values()))


def run(command):
    """Runs the command to its end; returns its exit status as in a shell."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f'subreaper: {command[0]}: {error.strerror}', file=sys.stderr)
        os._exit(127)

    def pass_on(number, _frame):
        signal.alarm(PATIENCE_S)
        os.kill(child, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    ended = status = 0
    while ended != child:
        ended, status = reap(0)
    for number in (*PASSED_ON, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def main():
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise SystemExit(f'subreaper: prctl: {os.strerror(ctypes.get_errno())}')
    status = run(sys.argv[1:])
    left = end_all()
    if left:
        print('ended what was left running: ' + ' '.join(left), file=sys.stderr)
    return status


if __name__ == '__main__':
    sys.exit(main())
