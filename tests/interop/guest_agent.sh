# Runs the commands of guest.py in a guest, through the shared folder: new/N.sh is run as soon as it exists, with its output in
# jobs/N.out and its exit status as a line in jobs/N.status; new/N.kill ends it with all its descendants. (Each poll reads the
# folder new/, so finished entries are removed from it.)
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C
cd /run/host || exit
ip link set lo up
mkdir -p jobs
shopt -s nullglob
exec {never}<> <(:)

run() {
  setsid bash "$1.running" >"$1.out" 2>&1 &
  echo $! >"$1.pid"
  wait $!
  echo $? >"$1.status"
}

cp /proc/uptime starting && mv starting ready
while :; do
  for file in new/*; do
    name=${file##*/}
    case $name in
      *.sh) mv "$file" "jobs/${name%.sh}.running"; run "jobs/${name%.sh}" & ;;
      *.kill) rm "$file"; kill -KILL -- "-$(<"jobs/${name%.kill}.pid")" ;;
    esac
  done
  read -r -t 0.05 -u "$never"
done
