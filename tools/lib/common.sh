# shellcheck shell=bash
# Shared by the shell scripts in tools/: messages, retries, time bounds. Sourced, never run.

readonly roci_top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# The folders that hold the project's own code.
readonly source_folders=(memory roce dataplane control verbs_provider tools tests)

# Everything that a person reads goes to stderr, so that stdout stays free for results.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "error: $*"; exit 1; }

# retry TRIES COMMAND...: waits longer after each failure; gives the last exit status.
retry() {
  local tries=$1 i status
  shift
  for ((i = 1; ; i++)); do
    "$@" && return 0
    status=$?
    ((i >= tries)) && return "$status"
    say "attempt $i of $tries failed (status $status): $*; trying again in $((3 * i)) s"
    sleep $((3 * i))
  done
}

# bounded SECONDS COMMAND...: SIGTERM at the limit, SIGKILL 10 s later; status 124 when it ran out of time.
bounded() {
  # In a process group of its own, which `timeout` makes otherwise, the command would not end with the script, nor see Ctrl-C.
  timeout --foreground --kill-after=10 "$@"
}

# usage: prints the comment block that begins on the calling script's second line.
usage() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }

# The names in tools/packages.txt, one a line.
listed_packages() { sed 's/#.*//' "$roci_top/tools/packages.txt" | tr -s '[:space:]' '\n' | sed '/^$/d'; }

# The listed packages that are not installed, one a line.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p' | sort -u)
  comm -13 <(printf '%s\n' "$installed") <(listed_packages | sort -u)
}
