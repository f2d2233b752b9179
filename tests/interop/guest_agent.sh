# Runs in a guest what guest.py asks for through the shared folder: N.sh is run as soon as it is there and leaves what it
# said in N.out and its exit status in N.status; N.kill ends it with all that it has started.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C
cd /run/host || exit
ip link set lo up

run() {
  setsid bash "$1.running" >"$1.out" 2>&1 &
  echo $! >"$1.pid"
  wait $!
  echo $? >"$1.status.part"
  mv "$1.status.part" "$1.status"
}

touch ready
while :; do
  for job in *.sh; do
    [ "$job" != guest_agent.sh ] && [ -e "$job" ] || continue
    mv "$job" "${job%.sh}.running"
    run "${job%.sh}" &
  done
  for job in *.kill; do
    [ -e "$job" ] || continue
    rm "$job"
    kill -KILL -- "-$(cat "${job%.kill}.pid")"
  done
  sleep 0.05
done
