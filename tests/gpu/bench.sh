#!/usr/bin/env bash
# --backend of the codec's bench: bench.sh BUILD EMULATED. Without a GPU, cuda is refused, and auto
# reports why it uses the CPU. An emulated device counts as none, unless a test asks for its rows.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1 emulated=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
none=$out/no-plugin.so
die() { echo "bench: $*" >&2; cat "$out/said" >&2; exit 1; }

# bench PLUGIN STATUS [flags]: runs the bench; its output goes to $out/said
bench() {
    local plugin=$1 want=$2 status=0
    shift 2
    rm -f "$out/doc.json"
    LONGHAUL_CUDA_PLUGIN=$plugin "$build/bench/bench_codec" --json "$out/doc.json" --codecs 2 \
        --values 9000 --fold-values 9000 --repeats 1 --torch 0 "$@" > "$out/said" 2>&1 || status=$?
    [ $status = "$want" ] || die "$* with $plugin ends with $status, not $want"
}
said() { grep -q -- "$1" "$out/said" || die "it does not say: $1"; }
rows() { # rows COUNT, of which CUDA on a device; WHY is in the conditions
    tests/contracts/validate.py bench "$out/doc.json"
    python3 - "$out/doc.json" "$@" <<'PYTHON'
import json, sys
doc, (count, cuda, why) = json.load(open(sys.argv[1])), sys.argv[2:]
names = [row["name"] for row in doc["rows"]]
assert len(names) == int(count), names
assert sum(name.endswith(".cuda") for name in names) == int(cuda), names
assert all(row["value"] > 0 for row in doc["rows"]), doc["rows"]
assert any(why in str(value) for value in doc["conditions"].values()), doc["conditions"]
PYTHON
}

unset LH_BENCH_EMULATED
for plugin in "$none" "$emulated"; do
    bench "$plugin" 3 --backend cuda
    said '^codec: not run: '
    [ ! -e "$out/doc.json" ] || die "it wrote figures of a GPU that is not there"
done
said "an emulated device: its times are none of a GPU's"
bench "$none" 0 --backend auto
rows 8 0 "cpu: "
bench "$emulated" 0 --backend auto
rows 8 0 "an emulated device: its times are none of a GPU's"
bench "$emulated" 0
rows 8 0 "cpu: asked for"
LH_BENCH_EMULATED=1 bench "$emulated" 0 --backend cuda
rows 10 2 "an emulated device, "
LH_BENCH_EMULATED=1 bench "$emulated" 0 --backend auto
rows 10 2 "no figure of a GPU's"
bench "$emulated" 2 --backend gpu
said '--backend cpu|cuda|auto'
bench "$emulated" 2 --backend cud
status=0
LONGHAUL_CUDA_PLUGIN=$emulated "$build/bench/bench_gpu" --values 9000 > "$out/said" 2>&1 ||
    status=$?
[ $status = 3 ] || die "bench_gpu on an emulated device ends with $status"
said '^gpu: not run: '
echo "bench: refused without a GPU, measured the CPU, and told an emulated device from one"
