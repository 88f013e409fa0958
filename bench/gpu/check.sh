#!/usr/bin/env bash
# Checks on a machine with a GPU what no other can show, in under 10 minutes and without a network.
#
#   bench/gpu/check.sh [--build DIR] [--out DIR] [--limit S]
#
#   --build  a build with the plugin; without it, build/gpu-check is made, with LONGHAUL_CUDA=ON
#   --out    where check.json, gpu.json and the stages' logs go; build/gpu-check-out otherwise
#   --limit  how long all stages may take together, 590 s otherwise; what is left then is SKIP
#
# Stages: facts, build, conformance (fresh seeds, poisoned memory; a model's gradients beside the
# CPU's), sanitizers, speed (kernels beside the copy ceiling and beside PyTorch; training beside
# the products alone and beside PyTorch), ceilings (copies on the device and over PCIe), nccl (the
# library; one rank; two ranks on one GPU, one of which is killed), worker, regions (a run of
# three on one GPU), train (a region that trains on it beside one that does not). Each is PASS,
# FAIL or SKIP with a reason; the table and check.json are written whatever happens. It leaves
# clocks, power, MIG and persistence as they are. Exit status: 0 nothing failed, 1 something did,
# 77 "not run": there is no GPU to use.
set -uo pipefail
cd "$(dirname "$0")/../.."
build='' out=build/gpu-check-out total=590
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=${2:?--build needs a folder}; shift ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    --limit) total=${2:?--limit needs seconds}; shift ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "check: unknown flag $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done
[[ $total =~ ^[0-9]{1,6}$ ]] || { echo "check: --limit $total: whole seconds, please" >&2; exit 2; }
mkdir -p "$out"
: > "$out/stages.tsv"
failed=0
SECONDS=0

note() { # stage verdict seconds text
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$(tr '\t\n' '  ' <<<"$4")" >> "$out/stages.tsv"
    [ "$2" != FAIL ] || failed=1
}

table() {
    printf '%-26s %-5s %5s  %s\n' STAGE IS S WORD
    awk -F'\t' '{printf "%-26s %-5s %5s  %s\n", $1, $2, $3, substr($4, 1, 160)}' "$out/stages.tsv"
}

finish() {
    python3 - "$out" "$(git rev-parse --short HEAD 2> /dev/null || echo unknown)" <<'PYTHON'
import json, os, sys
out, commit = sys.argv[1:]
with open(os.path.join(out, "stages.tsv"), encoding="utf-8") as file:
    rows = [line.rstrip("\n").split("\t") for line in file]
stages = [{"stage": a, "verdict": b, "seconds": int(c), "word": d} for a, b, c, d in rows]
with open(os.path.join(out, "check.json"), "w", encoding="utf-8") as file:
    json.dump({"check": "gpu", "commit": commit, "stages": stages}, file, indent=2)
PYTHON
    table
}

# stage NAME LIMIT_S COMMAND...: status 77 and 3 are SKIP, with the last line of what it said. So is
# a stage for which no time is left.
stage() {
    local name=$1 limit=$2 begun=$SECONDS left=$((total - SECONDS)) late=FAIL status verdict
    shift 2
    if [ $left -le 0 ]; then
        note "$name" SKIP 0 "the $total s of all stages are over"
        return 1
    fi
    [ "$limit" -lt $left ] || limit=$left late=SKIP
    timeout -k 5 "$limit" "$@" > "$out/$name.log" 2>&1
    status=$?
    case $status in
    0) verdict=PASS ;;
    77 | 3) verdict=SKIP ;;
    124 | 137) verdict=$late; echo "more than $limit s" >> "$out/$name.log" ;;
    *) verdict=FAIL ;;
    esac
    note "$name" $verdict $((SECONDS - begun)) "$(tail -n 1 "$out/$name.log")"
    [ $verdict = PASS ]
}

# How many GPUs programs see: CUDA takes CUDA_VISIBLE_DEVICES up to the first entry that is none.
seen() {
    local all n=0 entry list=()
    all=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU')
    if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
        IFS=, read -ra list <<< "$CUDA_VISIBLE_DEVICES"
        for entry in ${list[@]+"${list[@]}"}; do
            [[ $entry =~ ^([0-9]+|GPU-.+|MIG-.+)$ ]] && [ $n -lt "$all" ] || break
            n=$((n + 1))
        done
        all=$n
    fi
    echo "$all"
}

# ---- facts: is there anything to check?
why=''
command -v nvidia-smi > /dev/null || why='no nvidia-smi, so no NVIDIA driver'
[ -n "$why" ] || nvidia-smi -L 2> /dev/null | grep -q '^GPU' || why='the driver sees no GPU'
[ -n "$why" ] || [ "$(seen)" -gt 0 ] ||
    why="CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-} hides all"
if [ -n "$why" ]; then
    note facts SKIP 0 "$why"
    finish
    echo "check: not run: $why"
    exit 77
fi
facts=name,driver_version,memory.free,clocks.sm,clocks.mem
facts+=,pcie.link.gen.max,pcie.link.width.max
nvidia-smi --query-gpu=$facts --format=csv,noheader > "$out/facts.log" 2>&1
note facts PASS 0 "$(head -n 1 "$out/facts.log")"
trap finish EXIT

# ---- build
if [ -z "$build" ]; then
    build=build/gpu-check
    make_it() {
        cmake -S . -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DLONGHAUL_CUDA=ON &&
            cmake --build "$1" --target longhaul_cuda longhaul_cublaslt parity_real gpu_model \
                bench_gpu bench_gpu_train nccl_real nccl_one longhaul longhaul-worker \
                longhaul-server
    }
    export -f make_it
    stage build 240 bash -c 'make_it "$1"' make_it "$build" || exit 1
fi
folder=$PWD/$build
case $build in /*) folder=$build ;; esac
export LONGHAUL_CUDA_PLUGIN=$folder/liblonghaul_cuda.so
export LONGHAUL_GEMM_PLUGIN=${LONGHAUL_GEMM_PLUGIN:-$folder/liblonghaul_cublaslt.so}
if [ ! -e "$LONGHAUL_CUDA_PLUGIN" ]; then
    note build FAIL 0 "$LONGHAUL_CUDA_PLUGIN is not there"
    exit 1
fi

# ---- conformance: other values every time; the seed is in the logs' names of cases
export LH_PARITY_SEED=$((RANDOM * 32768 + RANDOM))
note seed PASS 0 "LH_PARITY_SEED=$LH_PARITY_SEED"
parity=$build/tests/parity/parity_real
for suite in encode dense guard fold each transfer layers optimizer; do
    LH_TEST_QUICK=1 stage "conformance.$suite" 60 "$parity" $suite
done

# unless WHY NAME LIMIT_S COMMAND...: a stage; SKIP if there is a reason, or no such program.
unless() {
    local why=$1 name=$2 program=$4
    shift
    [ -n "$why" ] || [ -n "$(command -v "$program")" ] || why="$program is not in this build"
    if [ -n "$why" ]; then
        note "$name" SKIP 0 "$why"
    else
        stage "$@"
    fi
}

# ---- training: whoever has no cuBLASLt has no products
[ -n "${LONGHAUL_CUBLASLT_LIB:-}" ] || LONGHAUL_CUBLASLT_LIB=$(ldconfig -p 2> /dev/null |
    sed -n 's/.*libcublasLt\.so\.13 .*=> //p' | head -n 1)
[ -n "$LONGHAUL_CUBLASLT_LIB" ] || LONGHAUL_CUBLASLT_LIB=$(python3 -c 'import glob, nvidia
print("\n".join(glob.glob(list(nvidia.__path__)[0] + "/*/lib/libcublasLt.so.13")))' \
    2> /dev/null | head -n 1)
export LONGHAUL_CUBLASLT_LIB
no_products=''
[ -n "$LONGHAUL_CUBLASLT_LIB" ] ||
    no_products='no libcublasLt.so.13 is found; LONGHAUL_CUBLASLT_LIB may name one'
[ -e "$LONGHAUL_GEMM_PLUGIN" ] || no_products="$LONGHAUL_GEMM_PLUGIN is not there"
LH_TEST_PLUGIN=$LONGHAUL_CUDA_PLUGIN LH_TEST_PRODUCTS=$LONGHAUL_GEMM_PLUGIN unless \
    "$no_products" conformance.model 60 "$build/tests/gpu/gpu_model"

# ---- sanitizers
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)
for tool in memcheck racecheck initcheck synccheck; do
    if [ -z "$sanitizer" ]; then
        note "sanitizer.$tool" SKIP 0 'no compute-sanitizer'
    elif LH_TEST_QUICK=1 stage "sanitizer.$tool" 60 "$sanitizer" --tool $tool --error-exitcode 1 \
        "$parity" transfer; then
        :
    elif grep -qs 'not supported' "$out/sanitizer.$tool.log"; then
        sed -i "/^sanitizer.$tool\t/s/\tFAIL\t/\tSKIP\t/" "$out/stages.tsv"
        failed=$(grep -c $'\tFAIL\t' "$out/stages.tsv")
    fi
done

# ---- speed: told, never a reason to fail
stage speed 120 "$build/bench/bench_gpu" --json "$out/gpu.json"
stage speed.torch 60 "${LH_BENCH_PYTHON:-python3}" bench/gpu/chain_torch.py $((256 << 20))
unless "$no_products" speed.train 90 "$build/bench/bench_gpu_train" --json "$out/train.json"
stage speed.train.torch 60 "${LH_BENCH_PYTHON:-python3}" bench/gpu/train_torch.py

# ---- ceilings: what the same run copied; told as well
ceilings() {
    python3 - "$out/gpu.json" <<'PYTHON'
import json, sys
try:
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = {row["name"]: row["value"] for row in json.load(file)["rows"]}
    words = [f"{word} {rows[name]:.1f} GB/s" for word, name in (
        ("on the device", "gpu.copy"), ("to it", "gpu.copy.in"), ("from it", "gpu.copy.out"))]
except (OSError, ValueError, KeyError) as err:
    print(f"the bench left no figures of copies: {err!r}")
    sys.exit(77)
print(", ".join(words))
PYTHON
}
export -f ceilings
export out
stage ceilings 20 bash -c ceilings

# ---- NCCL, a worker, regions
nccl=${LONGHAUL_NCCL_LIB:-}
[ -n "$nccl" ] ||
    nccl=$(ldconfig -p 2> /dev/null | sed -n 's/.*libnccl\.so\.2 .*=> //p' | head -n 1)
[ -n "$nccl" ] || nccl=$(python3 -c 'import os, nvidia.nccl as n
print(os.path.join(list(n.__path__)[0], "lib", "libnccl.so.2"))' 2> /dev/null)
no_nccl='' no_programs=''
[ -n "$nccl" ] || no_nccl='no NCCL is found; LONGHAUL_NCCL_LIB may name one'
for program in server/longhaul-server worker/longhaul-worker deploy/longhaul; do
    "$build/$program" --version > /dev/null 2>&1 ||
        no_programs="${program##*/} does not run on this machine"
done

plugin=$LONGHAUL_CUDA_PLUGIN
unless "$no_nccl" nccl 60 "$build/tests/nccl/nccl_real" "$nccl"
unless "$no_nccl" nccl.one 60 "$build/tests/nccl/nccl_one" "$nccl" "$plugin"
unless "${no_nccl:-$no_programs}" nccl.ranks 120 tests/gpu/ranks.py --build "$build" \
    --plugin "$plugin" --nccl "$nccl"
unless "$no_programs" worker 90 tests/gpu/worker.py --build "$build" --plugin "$plugin"
unless "$no_programs" regions 90 tests/gpu/worker.py --build "$build" --plugin "$plugin" --regions
unless "${no_products:-$no_programs}" train 90 tests/gpu/worker.py --build "$build" \
    --plugin "$plugin" --products "$LONGHAUL_GEMM_PLUGIN"
[ "$failed" = 0 ] || exit 1
