#!/usr/bin/env bash
# The main job, as a new user runs it: installs what is missing, builds, gets the texts, and
# trains one model in three regions over emulated long links (deploy/examples/three-regions.yaml).
#
#   ./deploy/demo.sh [--json FILE] [--with-faults] [--no-wan] [--short] [--text DIR] [--dir DIR]
#
#   --json FILE     write summary.json there, too
#   --with-faults   in the middle: kill -9 of a shard server, a worker, the coordinator; then a
#                   region is cut off for 20 s
#   --no-wan        loopback instead of emulated links (no root, no /dev/net/tun)
#   --short         a sixth of the tokens, a look rather than a result
#   --text DIR      own texts, DIR/<region>/<language>/*.txt and DIR/heldout/<language>.txt
#   --dir DIR       folder of the run; an unfinished run in it goes on. By itself each kind of demo
#                   has its own: run/demo, with -short, -own (texts), -faults, -no-wan behind it
#
# Ends with the exit status of `longhaul up`: 0 when all replicas agree and every language was
# learned.
set -euo pipefail
cd "$(dirname "$0")/.."

value() { # value FLAG VALUE...: the value, or a complaint
    [ $# -gt 1 ] || { echo "demo.sh: $1 wants a value (see --help)" >&2; return 2; }
    echo "$2"
}

text="" dir="" short="" faults="" wan="" up=()
while [ $# -gt 0 ]; do
    case $1 in
    --json) json=$(value "$@"); up+=(--json "$(realpath -m "$json")"); shift ;;
    --with-faults) faults=-faults up+=("$1") ;;
    --no-wan) wan=-no-wan up+=("$1") ;;
    --short) short=-short ;;
    --text) text=$(value "$@"); shift ;;
    --dir) dir=$(value "$@"); shift ;;
    -h | --help) sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "demo.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done

# A run that has ended says its verdict again, and the folder of another topology is refused: none
# of these may meet the folder of another.
own=${text:+-own}
: "${dir:=run/demo$short$own$faults$wan}"

step() { # step NAME COMMAND...: runs it, says how long it took
    local name=$1 start=$SECONDS
    shift
    "$@"
    printf '== %s: %d s\n' "$name" $((SECONDS - start))
}

build() {
    cmake --preset release > /dev/null
    cmake --build --preset release \
        --target longhaul longhaul-server longhaul-worker longhaul-wanem | tail -n 1
}

tokens() {
    local from=${text:-data/text}
    [ -n "$text" ] || ./deploy/text/corpora.sh --out data/text
    if [ ! -e "data/tokens$own/units.json" ] || [ -n "$text" ]; then
        # the same amount of each corpus: languages of a region alternate by size, and the largest
        # would drown the smallest
        local limit=(--limit-bytes-per-language 1400000)
        [ -z "$text" ] || limit=()
        build/release/deploy/longhaul data prepare --text "$from" --out "data/tokens$own" \
            --unit-tokens 2048 "${limit[@]}"
    fi
}

step "installation" ./deploy/install-deps.sh
step "build" build
step "texts" tokens

topology=deploy/examples/three-regions.yaml
if [ -n "$short" ]; then
    mkdir -p run
    sed 's/^run: .*/run: three-regions-short/; s/^budget_tokens: .*/budget_tokens: 600_000/' \
        "$topology" > run/short.yaml
    topology=run/short.yaml
fi
exec build/release/deploy/longhaul up "$topology" --data "data/tokens$own" --dir "$dir" "${up[@]}"
