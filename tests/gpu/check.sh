#!/usr/bin/env bash
# bench/gpu/check.sh reports a missing GPU, and with a fake one it runs every stage:
# check.sh BUILD EMULATED. NVIDIA's tools are stand-ins in a temporary folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1 emulated=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
die() { echo "check: $*" >&2; exit 1; }

mkdir "$out/none" "$out/bin" # nvidia-smi may be on this machine: one that sees nothing goes before
printf '#!/bin/sh\nexit 9\n' > "$out/none/nvidia-smi"
chmod +x "$out/none/nvidia-smi"
status=0
PATH=$out/none:$PATH bench/gpu/check.sh --build "$build" --out "$out/1" > "$out/said" || status=$?
[ $status = 77 ] || die "without a GPU it ends with $status"
grep -q '^check: not run: the driver sees no GPU$' "$out/said" || die "it does not say why"
python3 - "$out/1/check.json" <<'PYTHON'
import json, sys
stages = json.load(open(sys.argv[1]))["stages"]
assert [s["verdict"] for s in stages] == ["SKIP"], stages
PYTHON

# A build with the emulated plugin, and a quick bench and suites. Its programs only print a version;
# a stand-in for Python lets the tests of regions succeed at once.
mkdir -p "$out/build/tests/parity" "$out/build/bench" "$out/build/worker" "$out/build/server" \
    "$out/build/deploy"
for program in server/longhaul-server worker/longhaul-worker deploy/longhaul; do
    printf '#!/bin/sh\necho 1\n' > "$out/build/$program"
    chmod +x "$out/build/$program"
done
cat > "$out/bin/python-of-check" <<'STAND_IN'
#!/bin/sh
case $1 in tests/gpu/*) echo "$@"; exit 0 ;; esac
exec python3 "$@"
STAND_IN
export LH_BENCH_PYTHON=$out/bin/python-of-check
cp "$emulated" "$out/build/liblonghaul_cuda.so"
printf '#!/bin/sh\necho "GPU 0: one that pretends"\n' > "$out/bin/nvidia-smi"
printf '#!/bin/sh\nexec "%s/tests/parity/parity_real" guard\n' "$build" \
    > "$out/build/tests/parity/parity_real"
small='--values 9000 --worker-values 9000 --repeats 1'
printf '#!/bin/sh\nexec "%s/bench/bench_gpu" %s "$@"\n' "$build" "$small" \
    > "$out/build/bench/bench_gpu"
printf '#!/bin/sh\necho "$2 poison $LH_PARITY_POISON: $6"\nshift 4\n"$@"\n' \
    > "$out/bin/compute-sanitizer"
shape='--dim 16 --layers 1 --heads 4 --ffn 24 --vocab 50 --context 16 --batch 2 --steps 2'
printf '#!/bin/sh\nexec "%s/bench/bench_gpu_train" %s --product 32 "$@"\n' "$build" "$shape" \
    > "$out/build/bench/bench_gpu_train"
mkdir -p "$out/build/tests/gpu"
cp "$build/tests/gpu/gpu_model" "$out/build/tests/gpu"
chmod +x "$out"/bin/* "$out/build/tests/parity/parity_real" "$out/build/bench/"*
export LH_BENCH_EMULATED=1 # else no bench takes it for a device
# The emulated plugin multiplies as well, so cuBLASLt is not opened.
export LONGHAUL_GEMM_PLUGIN=$emulated LONGHAUL_CUBLASLT_LIB=none.so
# check NAME STATUS FLAGS...: a run into $out/NAME; its output goes to $out/said
check() {
    local name=$1 want=$2 status=0
    shift 2
    PATH=$out/bin:$PATH LONGHAUL_NCCL_LIB=${nccl:-} bench/gpu/check.sh --build "$out/build" \
        --out "$out/$name" "$@" > "$out/said" 2>&1 || status=$?
    [ $status = "$want" ] || { cat "$out/said"; die "run $name ends with $status, not $want"; }
}
check A 0 --run A --commit of-a-test --tar "$out/A.tar.gz"
check B 0 --run B
python3 - "$out" <<'PYTHON'
import json, os, sys, tarfile
out = sys.argv[1]
def stages_of(run, commit=None):
    with open(os.path.join(out, run, "check.json")) as file:
        document = json.load(file)
    assert document["run"] == run and commit in (None, document["commit"]), document
    return {s["stage"]: s for s in document["stages"]}
a, b = stages_of("A", "of-a-test"), stages_of("B")
for name in ("facts", "seed", "conformance.encode", "conformance.transfer", "conformance.layers",
             "conformance.large", "conformance.model", "train", "speed", "ceilings", "speed.train"):
    assert a[name]["verdict"] == "PASS", a[name]
assert "on the device" in a["ceilings"]["word"], a["ceilings"]
assert a["speed.train.torch"]["verdict"] == "SKIP" and "PyTorch" in a["speed.train.torch"]["word"]
assert not [n for n in a if n.startswith(("nccl", "worker", "regions", "sanitizer"))], a
for name in ("nccl", "nccl.one", "nccl.ranks"):
    assert b[name]["verdict"] == "SKIP" and "no NCCL is found" in b[name]["word"], b[name]
for name in ("worker", "regions"):
    assert b[name]["verdict"] == "PASS", b[name]
# The sanitizers come last, over four suites; only initcheck sees memory that is not poisoned.
last = list(b)[-16:]
assert last == [f"sanitizer.{tool}.{suite}"
                for suite in ("transfer", "layers", "optimizer", "dense")
                for tool in ("memcheck", "initcheck", "racecheck", "synccheck")], list(b)
for name in last:
    with open(os.path.join(out, "B", f"{name}.log")) as file:
        said = file.read()
    tool, suite = name.split(".")[1:]
    assert f"{tool} poison {int(tool != 'initcheck')}: {suite}\n" in said, (name, said)
    assert ("memory as the device gives it" in said) == (tool == "initcheck"), (name, said)
with tarfile.open(os.path.join(out, "A.tar.gz")) as logs:
    names = logs.getnames()
for name in ("check.json", "table.txt", "gpu.json", "conformance.large.log"):
    assert f"./{name}" in names, names
rows = json.load(open(os.path.join(out, "A", "gpu.json")))["rows"]
assert len(rows) == 9 and all(row["value"] > 0 for row in rows), rows
rows = json.load(open(os.path.join(out, "A", "train.json")))["rows"]
names = ["gpu.product.fp32", "gpu.product.bf16", "gpu.train.fp32", "gpu.train.fp32.work",
         "gpu.train.bf16", "gpu.train.bf16.work"]
assert [row["name"] for row in rows] == names and all(row["value"] > 0 for row in rows), rows
PYTHON

# A failing suite is reported, and the others still run. There is a fake NCCL, but only one of its
# two test programs; the bench leaves no figures; the worker's program does not run.
mkdir -p "$out/build/tests/nccl"
printf '#!/bin/sh\necho "NCCL at $1"\n' > "$out/build/tests/nccl/nccl_real"
printf '#!/bin/sh\necho none\n' > "$out/build/bench/bench_gpu"
printf '#!/bin/sh\necho "no libgrpc"\nexit 127\n' > "$out/build/worker/longhaul-worker"
chmod +x "$out/build/tests/nccl/nccl_real"
printf '#!/bin/sh\necho broken\nexit 1\n' > "$out/build/tests/parity/parity_real"
nccl=$out/nccl.so LONGHAUL_GEMM_PLUGIN=$out/none.so check 3 1
grep -q '^conformance.encode *FAIL' "$out/said" || die "the table does not say what failed"
grep -q '^speed *PASS' "$out/said" || die "what comes after is not run"
grep -q "^nccl *PASS .*NCCL at $out/nccl.so" "$out/said" || die "NCCL is not asked"
grep -q '^nccl.one *FAIL' "$out/said" || die "nccl.one is not there, and passes"
grep -q '^nccl.ranks *SKIP .*longhaul-worker does not run here: no libgrpc' "$out/said" ||
    die "ranks without a worker"
for name in conformance.model speed.train train; do
    grep -q "^$name *SKIP .*none.so is not there" "$out/said" || die "$name without products"
done
grep -q '^ceilings *SKIP .*the bench left no figures' "$out/said" || die "ceilings of nothing"

# A driver that lists a GPU which no program can use is no success: every suite is reported as
# skipped.
printf '#!/bin/sh\necho "no device"\nexit 77\n' > "$out/build/tests/parity/parity_real"
printf '#!/bin/sh\necho 1\n' > "$out/build/worker/longhaul-worker"
check 7 3 --run A
grep -q '^conformance.encode *SKIP .*no device' "$out/said" || die "the suite's word is lost"
grep -q '^check: incomplete' "$out/said" || die "nothing was shown, and it does not say so"

# A stage that runs out of time is reported as slow, which is neither failure nor success.
printf '#!/bin/sh\n[ $1 != encode ] || exec sleep 100\n' > "$out/build/tests/parity/parity_real"
LH_CHECK_STAGE=1 check 8 3 --run A
grep -q '^conformance.encode *SLOW .*too slow: more than 1 s' "$out/said" || die "not too slow"
grep -q '^conformance.fold *PASS' "$out/said" || die "what comes after is not run"

# GPUs that CUDA_VISIBLE_DEVICES hides are not used.
printf '#!/bin/sh\nprintf "GPU 0: one\\nGPU 1: another\\n"\n' > "$out/bin/nvidia-smi"
for hidden in '' -1 none; do
    status=0
    CUDA_VISIBLE_DEVICES=$hidden PATH=$out/bin:$PATH bench/gpu/check.sh --build "$out/build" \
        --out "$out/5" > "$out/said" || status=$?
    [ $status = 77 ] || die "all GPUs are hidden by '$hidden', and it ends with $status"
    grep -q "^check: not run: CUDA_VISIBLE_DEVICES=$hidden hides" "$out/said" ||
        die "it does not say why with '$hidden'"
done

# After the limit for all stages the stage under way is stopped and the later ones are skipped.
printf '#!/bin/sh\nexec sleep 100\n' > "$out/build/tests/parity/parity_real"
nccl=$out/nccl.so check 4 3 --limit 2
grep -q '^conformance.encode *SLOW .*more than [12] s' "$out/said" || die "a stage goes on"
for name in conformance.fold sanitizer.memcheck.dense speed nccl; do
    grep -q "^$name *SKIP .*the 2 s of all stages are over" "$out/said" ||
        die "$name is not left out"
done
status=0
bench/gpu/check.sh --limit soon > "$out/said" 2>&1 || status=$?
[ $status = 2 ] && grep -q 'limit soon: whole seconds' "$out/said" || die "a wrong --limit: $status"
status=0
bench/gpu/check.sh --run C > "$out/said" 2>&1 || status=$?
[ $status = 2 ] && grep -q 'run C: A, B or all' "$out/said" || die "a wrong --run: $status"
status=0
PATH=$out/bin:$PATH bench/gpu/check.sh --build "$out/none" --out "$out/9" > "$out/said" || status=$?
[ $status = 1 ] && grep -q '^build *FAIL .*--build names a build' "$out/said" || die "no build"
echo "check: said so, took every stage, told of a failure"
