# shellcheck shell=bash
# Shared by the shell scripts in tools/: messages, retries, time limits. Sourced, not run.

readonly roci_top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# The folders with the project's own code.
readonly source_folders=(memory roce dataplane control verbs_provider tools tests)

# Messages go to stderr; stdout is for results.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "error: $*"; exit 1; }

# retry TRIES COMMAND...: waits longer after each failure; returns the last exit status.
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

# bounded SECONDS COMMAND...: SIGTERM at the time limit, SIGKILL 10 s later; status 124 if the limit was reached.
bounded() {
  # --foreground: in a separate process group, the default, the command would not end with the script, nor get Ctrl-C.
  timeout --foreground --kill-after=10 "$@"
}

# usage: prints the comment block that begins in the second line of the calling script.
usage() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }

# The code name of the system's release, e.g. bookworm.
release() { (. /etc/os-release && printf '%s\n' "${VERSION_CODENAME:-}"); }

# Packages that a script needs besides those of tools/packages.txt.
more_packages=()

# listed_packages [RELEASE]: the names in tools/packages.txt for a release (default: the system's), and more_packages, one per line.
listed_packages() {
  awk -v release="${1:-$(release)}" '
    {sub(/#.*/, "")}
    !NF {next}
    !match($0, /\[.*\]/) {print $1; next}
    {
      releases = " " substr($0, RSTART + 1, RLENGTH - 2) " "
      excluded = sub(/^ *!/, " ", releases)
      if ((index(releases, " " release " ") > 0) != excluded) print $1
    }' "$roci_top/tools/packages.txt"
  printf '%s\n' ${more_packages[@]+"${more_packages[@]}"} | sed '/^$/d'
}

# The listed packages that are not installed, one per line.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p' | sort -u)
  comm -13 <(printf '%s\n' "$installed") <(listed_packages | sort -u)
}
