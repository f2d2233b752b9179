#!/usr/bin/env bash
# Usage: with_nfs_server.sh NFS_SERVER COMMAND...
#
# Exports a new folder by NFS_SERVER on the built-in wire and runs COMMAND, a test of the NFS client (tests/remote_server.h says
# what its environment tells it). Then compares the exported folder with what the test has kept. Run it among a daemon's devices.
# Exit status: that of COMMAND; 99 if the server fails or the files differ.
set -euo pipefail

(($# >= 2)) || { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 99; }
program=$1
shift
readonly address=10.99.0.2 port=20249 tcp_port=20250
scratch=$(mktemp -d "${TMPDIR:-/tmp}/roci-nfs.XXXXXX")
server=
clean_up() {
  [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
  rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 99' INT TERM
fail() {
  printf 'with_nfs_server.sh: %s\n' "$1" >&2
  cat "$scratch/log" >&2
  exit 99
}

mkdir -p "$scratch"/{kept,export/given/below/further}
for size in 0 1 5 4096 70001 1048576 3145731; do
  head -c "$size" /dev/urandom >"$scratch/export/given/below/size $size"
done
for number in {1..30}; do echo "number $number" >"$scratch/export/given/below/further/$number"; done

"$program" --tcp "127.0.0.1:$tcp_port" --rdma "$address:$port" "$scratch/export" >"$scratch/log" 2>&1 &
server=$!
for ((try = 0; try < 300; try++)); do
  ! grep -q ready "$scratch/log" || break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
grep -q ready "$scratch/log" || fail 'the server did not become ready'

status=0
NFS_SERVER=$address NFS_PORT=$port NFS_SOURCE=10.99.0.1 NFS_MOUNT="127.0.0.1 $tcp_port $scratch/export" \
  NFS_KEEP=$scratch/kept "$@" || status=$?
((status == 0)) || exit "$status"

files() { (cd "$1" && find . -type f -printf '%P\n' | sort); }
[ "$(files "$scratch/export" | wc -l)" -gt 50 ] || fail 'the test has left no files'
diff <(files "$scratch/export") <(files "$scratch/kept") >&2 || fail 'the server has other files than the test has kept'
(cd "$scratch/kept" && find . -type f -exec cmp {} "$scratch/export/"{} \;) >"$scratch/differences" 2>&1
[ ! -s "$scratch/differences" ] || { cat "$scratch/differences" >&2; fail 'files differ'; }
kill "$server"
wait "$server" || fail 'the server ended with an error'
server=
