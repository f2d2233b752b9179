# Runs the commands of guest.py in a guest. Orders come by the second serial port: "run N" for the command in commands/N.sh of the
# shared folder, whose output goes to output/N; "end N" kills it with its descendants. When it has ended, "N STATUS" goes back.
#
# The guest is emulated: a new program takes 60 ms or more, a new file in the shared folder about as long. So the agent waits
# without polling and starts no program, and each command runs in a subshell, which can use the functions below. (There $$ is the
# agent; use $BASHPID.)
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C
cd /run/host || exit
ip link set lo up
exec {never}<> <(:)

# pause SECONDS: as sleep, without a program.
pause() {
  read -r -t "$1" -u "$never" || true
}

# await_row PATTERN FILE...: waits until a line of one of the files matches the regular expression.
await_row() {
  local pattern=$1 file rows
  shift
  while :; do
    for file; do
      mapfile rows <"$file"
      ! [[ ${rows[*]} =~ $pattern ]] || return 0
    done
    pause 0.05
  done
}

# Runs command N, in the background.
run() {
  set -m  # a process group of its own
  (source "commands/$1.sh") </dev/null >"output/$1" 2>&1 &
  echo $! >"/tmp/groups/$1"
  wait $!
  echo "$1 $?" >&"$serial"
}

# Kills command N with its descendants.
end() {
  until [ -s "/tmp/groups/$1" ]; do pause 0.05; done
  kill -KILL -- "-$(<"/tmp/groups/$1")"
}

mkdir /tmp/groups
stty -F /dev/ttyS1 clocal -echo
exec {serial}<>/dev/ttyS1
echo "$(</proc/uptime)" >starting && mv starting ready
while read -r order number <&"$serial"; do
  case $order in
    run) run "$number" & ;;
    end) end "$number" & ;;
  esac
done 2>/dev/null
