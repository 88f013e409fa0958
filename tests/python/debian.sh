#!/usr/bin/env bash
# The first run of a new user: two wheels in an empty Debian, and the lines of
# worker/python/README.md. Run as root: tests/python/debian.sh WHEELS [FLAG OF PIP]...
#
# WHEELS is the folder of both wheels. LEND names folders of this machine that the Debian sees at
# the same place (wheels for pip, say), SUITE another Debian than bookworm. Needs debootstrap, and
# the packages of Debian and PyPI. The last lines give the seconds that each step took; a
# synced step is one that every loop takes with what its worker pushed and folded. Leaves nothing.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; }
for program in debootstrap unshare chroot; do
    command -v "$program" >/dev/null || { echo "debian: no $program" >&2; exit 3; }
done
[ "$(id -u)" = 0 ] || { echo "debian: run as root" >&2; exit 3; }
wheels=$(realpath "$1")
shift
root=$(mktemp -d "${TMPDIR:-/tmp}/lh-debian.XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT # what is mounted is mounted in its own namespace

echo "debian: an empty ${SUITE:-bookworm} in $root"
debootstrap --variant=minbase "${SUITE:-bookworm}" "$root" http://deb.debian.org/debian \
    >"$root.log" ||
    { tail "$root.log"; exit 1; }
rm -f "$root.log"
cp /etc/resolv.conf "$root/etc/"
cp "$wheels"/longhaul-*.whl "$wheels"/longhaul_programs-*.whl "$root/srv/"
for folder in ${LEND:-}; do mkdir -p "$root$folder"; done

cat >"$root/srv/synced.py" <<'END'
"""Waits until every worker has pushed, and has seen what was folded."""
import glob
import json
import sys
import time

def synced(path):
    try:
        with open(path, encoding="utf-8") as file:
            s = json.load(file)
        return s["accepted"] + s["damped"] > 0 and all(x["viewed"] > 0 for x in s["shards"])
    except (OSError, ValueError, KeyError):
        return False

until = time.monotonic() + 600
while sum(map(synced, glob.glob("run/run/*-0/status.json"))) < 3:
    if time.monotonic() > until:
        sys.exit("no synced step in 600 s")
    time.sleep(0.2)
END
cat >"$root/srv/user.sh" <<'END'
set -eu
cd /srv
begun=$(date +%s)
say() { echo "debian: $(($(date +%s) - begun)) s: $*"; }
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3 python3-venv >/dev/null
say "Python is there"
python3 -m venv longhaul && . longhaul/bin/activate
pip install -q "$@" torch numpy longhaul-*.whl longhaul_programs-*.whl
say "the wheels are installed"
python3 -m longhaul.first run
say "the first run is made"
longhaul up run/run.yaml --data run/data --dir run/run --no-wan >up.log 2>&1 &
up=$!
python3 synced.py || { tail -n 40 up.log; exit 1; }
say "the first synced step of every loop"
wait $up || { tail -n 40 up.log; exit 1; }
grep -E '^  (ok|FAILED|note) ' up.log
say "the run has ended"
END
# In namespaces of its own: mounts and processes are gone when it ends.
LEND=${LEND:-} unshare --mount --pid --fork --propagation private bash -euc '
    root=$1; shift
    mount -t proc proc "$root/proc"
    for folder in $LEND; do mount --bind -o ro "$folder" "$root$folder"; done
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv TERM=dumb \
        chroot "$root" bash /srv/user.sh "$@"' bash "$root" "$@"
