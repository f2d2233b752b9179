#!/usr/bin/env bash
# Usage: with_daemon.sh [--config FILE] ROCID ROCI PLUGIN SECONDS COMMAND...
#
# Starts a daemon in a private runtime folder, runs COMMAND with its devices (`roci run`), and stops the daemon.
# Exit status: that of the command; 124 if it did not end within SECONDS (times ROCI_TEST_PATIENCE, default 1); 99 if the
# daemon did not start, did not survive, or did not end successfully. After a failure the daemon's output is printed.
# Environment of the command: ROCID_PID is the daemon's process number. With ROCI_TEST_ENDS_DAEMON=yes the command may end
# the daemon. ROCI_TEST_PRELOAD is a library that only the daemon preloads; daemon and command then share a page, the file
# ROCI_TEST_ALLOCATIONS.
set -uo pipefail

config=()
if [ "${1:-}" = --config ]; then
  config=(--config "$2")
  shift 2
fi
(($# >= 5)) || { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 99; }
rocid=$1 roci=$2 plugin=$3 limit_s=$(($4 * ${ROCI_TEST_PATIENCE:-1}))
shift 4

scratch=$(mktemp -d "${TMPDIR:-/tmp}/roci-test.XXXXXX")
readonly runtime_dir=$scratch/run log=$scratch/rocid.log
mkdir -m 700 "$runtime_dir"
daemon=

# stop_daemon: SIGTERM, and SIGKILL after 10 s; its exit status, 0 if it was gone before.
stop_daemon() {
  local pid=$daemon try
  daemon=
  [ -n "$pid" ] || return 0
  kill -TERM "$pid" 2>/dev/null
  for ((try = 0; try < 100; try++)); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null
  wait "$pid"
}

clean_up() {
  [ -z "$daemon" ] || { kill -KILL "$daemon"; wait "$daemon"; } 2>/dev/null
  rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 99' INT TERM

fail() {
  printf 'with_daemon.sh: %s\n' "$1" >&2
  [ ! -s "$log" ] || { printf -- '--- rocid said:\n' >&2; tail -n 40 "$log" >&2; }
  exit "$2"
}

if [ -n "${ROCI_TEST_PRELOAD:-}" ]; then
  export ROCI_TEST_ALLOCATIONS=$scratch/allocations
  truncate --size 4096 "$ROCI_TEST_ALLOCATIONS"
fi
: >"$log"
LD_PRELOAD=${ROCI_TEST_PRELOAD:-${LD_PRELOAD:-}} "$rocid" --runtime-dir "$runtime_dir" "${config[@]}" >"$log" 2>&1 &
daemon=$!
for ((try = 0; try < 300; try++)); do
  ! grep -qx 'rocid: ready' "$log" || break
  kill -0 "$daemon" 2>/dev/null || break
  sleep 0.1
done
grep -qx 'rocid: ready' "$log" || fail 'the daemon did not become ready' 99

ROCID_PID=$daemon ROCI_RUNTIME_DIR=$runtime_dir timeout --kill-after=5 "$limit_s" \
  "$roci" --runtime-dir "$runtime_dir" run --plugin "$plugin" "$@"
status=$?
if [ "${ROCI_TEST_ENDS_DAEMON:-no}" = no ]; then
  kill -0 "$daemon" 2>/dev/null || fail 'the daemon did not survive' 99
  stop_daemon || fail "the daemon ended with status $?" 99
fi
((status == 0)) || fail "the command ended with status $status" "$status"
