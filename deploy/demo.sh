#!/usr/bin/env bash
# The main job, as a new user runs it: installs what is missing, builds, gets the texts, and
# trains one model in three regions over emulated long links (deploy/examples/three-regions.yaml).
#
#   ./deploy/demo.sh [--json FILE] [--with-faults] [--no-wan] [--short] [--text DIR] [--dir DIR]
#   ./deploy/demo.sh --private [--with-faults] [--no-wan] [--dir DIR]
#   ./deploy/demo.sh --poison [--text DIR] [--dir DIR]
#
#   --json FILE     write summary.json there, too
#   --with-faults   in the middle: kill -9 of a shard server, a worker, the coordinator; then a
#                   region is cut off for 20 s
#   --no-wan        loopback instead of emulated links (no root, no /dev/net/tun)
#   --short         a tenth of the tokens, a look rather than a result
#   --private       differential privacy instead, two runs of about 15 s: one region's records
#                   beside two public ones (deploy/examples/private-records.yaml), then three
#                   regions whose loops are private (deploy/examples/private.yaml). Each ends with
#                   what was promised, and the audit of the logs
#   --poison        a partner poisons the model, is found, expelled, and its pushes are taken out;
#                   beside two control runs without it, on loopback, for three minutes
#                   (deploy/poison.sh). Ends with 0 if their held-out losses differ by at most 1 %
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

text="" dir="" short="" faults="" wan="" private="" poison="" up=()
while [ $# -gt 0 ]; do
    case $1 in
    --json) json=$(value "$@"); up+=(--json "$(realpath -m "$json")"); shift ;;
    --with-faults) faults=-faults up+=("$1") ;;
    --no-wan) wan=-no-wan up+=("$1") ;;
    --short) short=-short ;;
    --private) private=-private ;;
    --poison) poison=-poison ;;
    --text) text=$(value "$@"); shift ;;
    --dir) dir=$(value "$@"); shift ;;
    -h | --help) sed -n '2,26s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "demo.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done

if [ -n "$poison" ] && [ -n "$short$private${up[*]}" ]; then
    echo "demo.sh: --poison goes with --text and --dir alone (see --help)" >&2
    exit 2
fi

# A run that has ended says its verdict again, and the folder of another topology is refused: none
# of these may meet the folder of another.
own=${text:+-own}
: "${dir:=run/demo$private$poison$short$own$faults$wan}"

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

# The loop of worker/client/examples, which brings its own records, and its 36 parameters.
line() {
    local client=$PWD/build/release/worker/client
    cmake --build --preset release --target longhaul_client | tail -n 1
    mkdir -p run/line
    cc -O2 -I . worker/client/examples/line.c -L "$client" -llonghaul -Wl,-rpath,"$client" \
        -o run/line/line
    echo '{"schema": "longhaul.manifest/1", "model": {}, "chunk": 4096, "shards": 1, "tensors":
        [{"name": "weight", "shape": [4, 8]}, {"name": "bias", "shape": [4]}]}' \
        > run/line/model.json
    head -c 144 /dev/zero > run/line/weights.bin
    sed "s,import: model},import: run/line}," deploy/examples/private.yaml |
        sed "s,\\./line,$PWD/run/line/line," > run/line/private.yaml
}

# Records of asia, which are invented, and the docs of this tree as everybody's texts.
records() {
    local text=run/records-text tool=build/release/deploy/longhaul
    rm -rf "$text"
    mkdir -p "$text"/{private/asia/notes,public/{europe/server,america/deploy,heldout}}
    awk 'BEGIN {
        srand(7)
        split("fever cough headache rash fatigue nausea", ill)
        split("rest tea aspirin walks sleep broth", cure)
        split("Ada Ben Chen Dora Emil Fay Gus Hana", name)
        for (i = 0; i < 2000; i++)
            printf "%s came on day %d with %s and %s, was told to try %s, returned on day %d\n",
                name[1 + int(rand() * 8)], i, ill[1 + int(rand() * 6)], ill[1 + int(rand() * 6)],
                cure[1 + int(rand() * 6)], i + int(rand() * 30)
    }' > "$text/private/asia/notes/notes.txt"
    local public=$text/public
    for of in europe/server america/deploy; do
        cat "${of#*/}"/docs/*.md > "$public/$of/docs.txt"
        tail -c 20000 "$public/$of/docs.txt" > "$public/heldout/${of#*/}.txt"
        truncate -s -20000 "$public/$of/docs.txt"
    done
    "$tool" data prepare --text "$text/private" --out run/records-asia --documents line
    "$tool" data prepare --text "$public" --out run/records-tokens --unit-tokens 1024 --sequence 64
    sed 's,data: records,data: run/records-asia,' deploy/examples/private-records.yaml \
        > run/private-records.yaml
}

private_one() { # private_one DIR [FLAG...] -- UP-ARGUMENT...: a run, its statement, its audit
    local tool=build/release/deploy/longhaul to=$1 flags=() failed=0
    shift
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    shift
    "$tool" up "$@" --dir "$to" || failed=$?
    echo "== what the run promises (longhaul privacy statement)"
    "$tool" privacy statement --config "$to/coordinator.yaml" --budget "$to/asia-0.budget" \
        "${flags[@]}"
    echo "== what the logs show (longhaul privacy audit)"
    "$tool" privacy audit "$to/shard-0" "$to/shard-1" || failed=$?
    return "$failed"
}

private_run() {
    local status=0 net=()
    [ -z "$wan" ] || net=(--no-wan)
    step "records" records
    private_one "$dir-records" --records 2000 -- run/private-records.yaml \
        --data run/records-tokens "${net[@]}" || status=$?
    step "loop" line
    private_one "$dir" -- run/line/private.yaml "${up[@]}" || status=$?
    exit "$status"
}

step "installation" ./deploy/install-deps.sh
step "build" build
[ -z "$private" ] || private_run
step "texts" tokens

[ -z "$poison" ] || exec ./deploy/poison.sh deploy/examples/poison.yaml \
    --data "data/tokens$own" --dir "$dir"

topology=deploy/examples/three-regions.yaml
if [ -n "$short" ]; then
    mkdir -p run
    sed 's/^run: .*/run: three-regions-short/; s/^budget_tokens: .*/budget_tokens: 400_000/' \
        "$topology" > run/short.yaml
    topology=run/short.yaml
fi
exec build/release/deploy/longhaul up "$topology" --data "data/tokens$own" --dir "$dir" "${up[@]}"
