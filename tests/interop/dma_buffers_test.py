#!/usr/bin/env python3
"""Memory regions in DMA buffers of the kernel: of this machine's kernel if it has udmabuf, else of a guest's with vgem. In that
case the daemon runs in the guest, too.

Usage: dma_buffers_test.py ROCI ROCID PLUGIN TEST WITH_DAEMON FOLDER

TEST is the program with the tests, WITH_DAEMON the script that runs it with the devices of a daemon. Prints a TAP line for
each test. FOLDER keeps the guest's kernel for the next run. Skipped without udmabuf if no guest can run either.
"""
import os
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'integration'))
sys.dont_write_bytecode = True
from guest import NO_NETWORK, Guest, Unavailable, make_image  # pylint: disable=wrong-import-position

LIMIT_S = 300  # the guest's processor is emulated
MEMORY_MIB = 1536
RESULT = re.compile(r'^\[ +(OK|FAILED|SKIPPED) +\] ([A-Za-z]+\.[A-Za-z]+)', re.M)


def command(rocid, roci, plugin, test, with_daemon):
    return f'ROCI_TEST_NEEDS_DMA_BUFFERS=yes bash {with_daemon} {rocid} {roci} {plugin} {LIMIT_S - 60} {test}'


def run_here(paths):
    done = subprocess.run(['bash', '-c', command(*paths)], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done.returncode, done.stdout + done.stderr


def run_in_guest(paths, image):
    """Returns the exit status and output of the test program. The programs are copied, because the build folder may lie below
    a temporary folder, and the guest has temporary folders of its own."""
    guest = Guest(image, NO_NETWORK, memory_mib=MEMORY_MIB)
    try:
        folder = guest.share / 'programs'
        folder.mkdir()
        names = [os.path.basename(shutil.copy(path, folder)) for path in paths]
        guest.run('cp -r /run/host/programs /tmp/programs', LIMIT_S)
        job = guest.start('cd /tmp/programs && ' + command(*(f'/tmp/programs/{name}' for name in names)))
        return job.wait(LIMIT_S), job.output()
    finally:
        guest.stop()


def report(status, output):
    results = {name: what for what, name in RESULT.findall(output)}
    wrong = status != 0 or not results
    print(f'1..{len(results) + 1}')
    for number, (name, what) in enumerate(results.items(), 1):
        print(f'{"ok" if what == "OK" else "not ok"} {number} - {name}')
    print(f'{"not ok" if wrong else "ok"} {len(results) + 1} - the program ends with status 0')
    if wrong:
        for line in output.splitlines()[-60:]:
            print('#', line[:200])
    return 1 if wrong else 0


def main():
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    roci, rocid, plugin, test, with_daemon, folder = sys.argv[1:]
    paths = [rocid, roci, plugin, test, with_daemon]
    # Clean up also when the time limit ends the test.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if os.access('/dev/udmabuf', os.R_OK | os.W_OK):
        return report(*run_here(paths))
    try:
        make_image(folder)
        return report(*run_in_guest(paths, folder))
    except Unavailable as error:
        print(f'1..0 # SKIP {error}')
        return 0


if __name__ == '__main__':
    sys.exit(main())
