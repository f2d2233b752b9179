# shellcheck shell=bash
# Shared by the shell scripts in tools/: starts a daemon and servers that end with the script. Sourced after common.sh.

# Processes that the script has started and must end.
background=()

# Ends the processes in `background`, newest first; SIGKILL after 5 s.
stop_background() {
  local i pid try
  for ((i = ${#background[@]} - 1; i >= 0; i--)); do
    pid=${background[i]}
    kill -TERM "$pid" 2>/dev/null || continue
    for ((try = 0; try < 50; try++)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  background=()
}

# start_daemon RUNTIME-DIR LOG ARGUMENTS...: returns when the daemon accepts connections.
start_daemon() {
  local runtime_dir=$1 log=$2 pid try
  shift 2
  mkdir -p -m 700 "$runtime_dir"
  "$roci_top/build/control/rocid" --runtime-dir "$runtime_dir" "$@" >"$log" 2>&1 &
  pid=$!
  background+=("$pid")
  for ((try = 0; try < 300; try++)); do
    ! grep -qx 'rocid: ready' "$log" || return 0
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  tail -n 20 "$log" >&2
  die "rocid did not become ready"
}

# A TCP port that is currently free.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }

# await_listener PORT PID: waits until a process listens on the TCP port; status 1 if PID ends before, or after 10 s.
await_listener() {
  local try
  for ((try = 0; try < 100; try++)); do
    [ -z "$(ss -Hltn "sport = :$1")" ] || return 0
    kill -0 "$2" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}
