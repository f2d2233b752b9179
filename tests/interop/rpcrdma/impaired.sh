#!/usr/bin/env bash
# Usage: impaired.sh ROCI COMMAND...
#
# Runs COMMAND while the daemon's devices lose 1% of all frames and reorder and duplicate as many. Run it among the devices.
set -euo pipefail

(($# >= 2)) || { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 99; }
roci=$1
shift
for device in roci0 roci1; do
  "$roci" impair "$device" --loss 1% --reorder 1% --duplicate 1% --seed 8166 >&2
done
exec "$@"
