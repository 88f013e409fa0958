#!/usr/bin/env bash
# Runs the checks that need a GPU on a machine that has one, in two runs of at most 5 minutes each
# and without a network. Nothing is built here: bench/gpu/pack.sh packs a build for a machine that
# has none of our packages. Needed are bash, coreutils, awk and the driver; Python and PyTorch for
# some stages.
#
#   bench/gpu/check.sh [--build DIR] [--run A|B|all] [--commit C] [--out DIR] [--tar FILE]
#                      [--limit S]
#
#   --build   a build with the plugin, or an unpacked pack; build/release otherwise
#   --run     A: conformance, model, train, speed. B: nccl, worker, regions, sanitizers. all: both
#   --commit  the commit of the build; the pack's COMMIT otherwise, else git's
#   --out     where check.json, gpu.json and the stages' logs go; build/gpu-check-out otherwise
#   --tar     one .tar.gz of that folder, written whatever happens
#   --limit   the time for all stages together; 290 s, for all 590 s
#
# Stages: facts; A: conformance (fresh seeds, poisoned memory; arrays beyond 2^31 values; a model's
# gradients beside the CPU's), train (a region that trains on the GPU beside one that does not),
# speed (kernels beside the copy ceiling and beside PyTorch, eager and compiled; training beside
# the products alone and beside PyTorch), ceilings (copies on the device and over PCIe); B: nccl
# (the library; one rank; two ranks on one GPU, one of which is killed), worker, regions (a run of
# three on one GPU), sanitizers. It leaves clocks, power, MIG and persistence as they are.
#
# A stage is PASS, FAIL, SLOW (it ran out of time, which says nothing about correctness), or SKIP
# with a reason. Exit status: 0 every check that this machine allows has passed; 1 something failed;
# 3 incomplete, because a stage was SLOW, left out for time, or found no device; 77 "not run": there
# is no GPU to use.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=build/release out=build/gpu-check-out run=all commit='' tar='' total=''
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=${2:?--build needs a folder}; shift ;;
    --run) run=${2:?--run needs A, B or all}; shift ;;
    --commit) commit=${2:?--commit needs a commit}; shift ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    --tar) tar=${2:?--tar needs a file}; shift ;;
    --limit) total=${2:?--limit needs seconds}; shift ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "check: unknown flag $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done
[[ $run =~ ^(A|B|all)$ ]] || { echo "check: --run $run: A, B or all, please" >&2; exit 2; }
[ -n "$total" ] || { [ "$run" = all ] && total=590 || total=290; }
[[ $total =~ ^[0-9]{1,6}$ ]] || { echo "check: --limit $total: whole seconds, please" >&2; exit 2; }
[ -n "$commit" ] || commit=$(cat "$build/COMMIT" 2> /dev/null || git rev-parse --short HEAD \
    2> /dev/null || echo unknown)
mkdir -p "$out"
: > "$out/stages.tsv"
failed=0 incomplete=0
SECONDS=0

note() { # stage verdict seconds text
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$(tr '\t\n' '  ' <<<"$4")" >> "$out/stages.tsv"
    case $2 in
    FAIL) failed=1 ;;
    SLOW) incomplete=1 ;;
    esac
}

# The table, check.json and the tar.
finish() {
    awk -F'\t' -v commit="$commit" -v run="$run" '
        function text(s) { gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s)
                           gsub(/[\001-\037]/, " ", s); return "\"" s "\"" }
        BEGIN { printf "{\"check\": \"gpu\", \"run\": %s, \"commit\": %s, \"stages\": [",
                       text(run), text(commit) }
        { printf "%s\n  {\"stage\": %s, \"verdict\": %s, \"seconds\": %d, \"word\": %s}",
                 (NR > 1 ? "," : ""), text($1), text($2), $3, text($4) }
        END { print "\n]}" }' "$out/stages.tsv" > "$out/check.json"
    {
        printf '%-26s %-5s %5s  %s\n' "STAGE of $commit" IS S WORD
        awk -F'\t' '{printf "%-26s %-5s %5s  %s\n", $1, $2, $3, substr($4, 1, 160)}' \
            "$out/stages.tsv"
    } | tee "$out/table.txt"
    [ -z "$tar" ] || tar -czf "$tar" -C "$out" .
}

# stage NAME LIMIT_S COMMAND...: status 77 and 3 are SKIP, with the last line of the output, and so
# is a stage for which no time is left. Each leaves the check incomplete: `may` and `unless` are for
# parts that a machine may lack.
stage() {
    local name=$1 limit=$2 begun=$SECONDS left=$((total - SECONDS)) status verdict
    shift 2
    if [ $left -le 0 ]; then
        incomplete=1
        note "$name" SKIP 0 "the $total s of all stages are over"
        return 1
    fi
    limit=${LH_CHECK_STAGE:-$limit} # of tests: no stage may take longer
    [ "$limit" -lt $left ] || limit=$left
    timeout -k 5 "$limit" "$@" > "$out/$name.log" 2>&1 < /dev/null
    status=$?
    case $status in
    0) verdict=PASS ;;
    77 | 3) verdict=SKIP incomplete=1 ;;
    124 | 137) verdict=SLOW; echo "too slow: more than $limit s" >> "$out/$name.log" ;;
    *) verdict=FAIL ;;
    esac
    note "$name" $verdict $((SECONDS - begun)) "$(tail -n 1 "$out/$name.log")"
    [ $verdict = PASS ]
}

# A stage whose needs this machine may lack: its own SKIP leaves nothing incomplete.
may() {
    local was=$incomplete
    stage "$@"
    ! tail -n 1 "$out/stages.tsv" | grep -q $'\tSKIP\t' || [ $((total - SECONDS)) -le 0 ] ||
        incomplete=$was
}

# unless WHY stage|may NAME LIMIT_S COMMAND...: SKIP if there is a reason.
unless() {
    local why=$1
    shift
    if [ -n "$why" ]; then
        note "$2" SKIP 0 "$why"
    else
        "$@"
    fi
}

# The number of GPUs that programs see: CUDA reads CUDA_VISIBLE_DEVICES up to the first invalid
# entry.
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

# ---- available tools and libraries
folder=$PWD/$build
case $build in /*) folder=$build ;; esac
export LONGHAUL_CUDA_PLUGIN=$folder/liblonghaul_cuda.so
export LONGHAUL_GEMM_PLUGIN=${LONGHAUL_GEMM_PLUGIN:-$folder/liblonghaul_cublaslt.so}
plugin=$LONGHAUL_CUDA_PLUGIN parity=$build/tests/parity/parity_real
if [ ! -e "$plugin" ]; then
    note build FAIL 0 "$plugin is not there: --build names a build with LONGHAUL_CUDA=ON, or a pack"
    exit 1
fi
python=${LH_BENCH_PYTHON:-python3} no_python='' no_programs='' no_products='' no_nccl=''
command -v "$python" > /dev/null || no_python='no python3 here'
for program in server/longhaul-server worker/longhaul-worker deploy/longhaul; do
    "$build/$program" --version > "$out/version.log" 2>&1 ||
        no_programs="${program##*/} does not run here: $(head -n 1 "$out/version.log")"
done
[ -z "$no_programs" ] || incomplete=1
[ -z "$no_python" ] || no_programs=$no_python
# The path of NAME: the system's, or one in a Python package.
library() { # NAME
    local found
    found=$(ldconfig -p 2> /dev/null | sed -n "s/.*$1 .*=> //p" | head -n 1)
    [ -n "$found" ] || found=$("$python" -c 'import glob, sys, nvidia
print("\n".join(glob.glob(list(nvidia.__path__)[0] + "/*/lib/" + sys.argv[1])))' "$1" \
        2> /dev/null | head -n 1)
    echo "$found"
}
export LONGHAUL_CUBLASLT_LIB=${LONGHAUL_CUBLASLT_LIB:-$(library libcublasLt.so.13)}
[ -n "$LONGHAUL_CUBLASLT_LIB" ] ||
    no_products='no libcublasLt.so.13 is found; LONGHAUL_CUBLASLT_LIB may name one'
[ -e "$LONGHAUL_GEMM_PLUGIN" ] || no_products="$LONGHAUL_GEMM_PLUGIN is not there"
nccl=${LONGHAUL_NCCL_LIB:-$(library libnccl.so.2)}
[ -n "$nccl" ] || no_nccl='no NCCL is found; LONGHAUL_NCCL_LIB may name one'

# ---- run A: conformance, a model, training, speed
# Other values every time; the seed is in the names of cases in the logs.
conformance() {
    export LH_PARITY_SEED=$((RANDOM * 32768 + RANDOM))
    note seed PASS 0 "LH_PARITY_SEED=$LH_PARITY_SEED"
    for suite in encode dense guard fold each transfer layers optimizer; do
        LH_TEST_QUICK=1 stage "conformance.$suite" 60 "$parity" $suite
    done
    stage conformance.large 60 "$parity" large
    LH_TEST_PLUGIN=$plugin LH_TEST_PRODUCTS=$LONGHAUL_GEMM_PLUGIN unless "$no_products" \
        stage conformance.model 60 "$build/tests/gpu/gpu_model"
}

# Speed is reported, and never a reason to fail.
speed() {
    stage speed 90 "$build/bench/bench_gpu" --json "$out/gpu.json"
    unless "$no_python" stage ceilings 20 "$python" -c "$ceilings" "$out/gpu.json"
    unless "$no_python" may speed.torch 90 "$python" bench/gpu/chain_torch.py $((256 << 20))
    unless "$no_products" stage speed.train 60 "$build/bench/bench_gpu_train" \
        --json "$out/train.json"
    unless "$no_python" may speed.train.torch 60 "$python" bench/gpu/train_torch.py
}
ceilings='
import json, sys
try:
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = {row["name"]: row["value"] for row in json.load(file)["rows"]}
    words = [f"{word} {rows[name]:.1f} GB/s" for word, name in (
        ("on the device", "gpu.copy"), ("to it", "gpu.copy.in"), ("from it", "gpu.copy.out"))]
except (OSError, ValueError, KeyError) as err:
    print(f"the bench left no figures of copies: {err!r}")
    sys.exit(77)
print(", ".join(words))'

# ---- run B: NCCL, workers, regions, sanitizers
workers() {
    unless "$no_nccl" stage nccl 60 "$build/tests/nccl/nccl_real" "$nccl"
    unless "$no_nccl" stage nccl.one 60 "$build/tests/nccl/nccl_one" "$nccl" "$plugin"
    unless "${no_nccl:-$no_programs}" may nccl.ranks 90 "$python" tests/gpu/ranks.py \
        --build "$build" --plugin "$plugin" --nccl "$nccl"
    unless "$no_programs" stage worker 60 "$python" tests/gpu/worker.py --build "$build" \
        --plugin "$plugin"
    unless "$no_programs" stage regions 60 "$python" tests/gpu/worker.py --build "$build" \
        --plugin "$plugin" --regions
}

# These come last, because they are slow. For initcheck memory is not poisoned, because poisoned
# memory counts as written.
sanitizers() {
    local sanitizer suite tool name
    sanitizer=$(command -v compute-sanitizer ||
        ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)
    for suite in transfer layers optimizer dense; do
        for tool in memcheck initcheck racecheck synccheck; do
            name=sanitizer.$tool.$suite
            if [ -z "$sanitizer" ]; then
                note "$name" SKIP 0 'no compute-sanitizer'
                continue
            fi
            export LH_PARITY_POISON=1
            [ $tool != initcheck ] || LH_PARITY_POISON=0
            LH_TEST_QUICK=1 may "$name" 60 bash -c "$supported" sanitizer "$out/$name.log" \
                "$sanitizer" --tool $tool --error-exitcode 1 "$parity" $suite
        done
    done
}
# A device that the tool does not support is skipped.
supported='
log=$1
shift
"$@"
status=$?
[ $status = 0 ] || ! grep -qi "not supported" "$log" || status=77
exit $status'

[ "$run" = B ] || conformance
[ "$run" = B ] || unless "${no_products:-$no_programs}" stage train 90 "$python" \
    tests/gpu/worker.py --build "$build" --plugin "$plugin" --products "$LONGHAUL_GEMM_PLUGIN"
[ "$run" = B ] || speed
[ "$run" = A ] || workers
[ "$run" = A ] || sanitizers
[ "$failed" = 0 ] || exit 1
[ "$incomplete" = 0 ] || { echo 'check: incomplete: see SLOW and SKIP' >&2; exit 3; }
