# Runs in a guest what guest.py asks for through the shared folder: new/N.sh is run as soon as it is there and leaves what it
# said in jobs/N.out and its exit status, a line, in jobs/N.status; new/N.kill ends it with all that it has started. (Every
# look at new/ reads the folder: what is done must not stay there.)
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

touch ready
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
