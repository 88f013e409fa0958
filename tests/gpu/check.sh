#!/usr/bin/env bash
# bench/gpu/check.sh where there is no GPU says so, and where there is one that only pretends, takes
# every stage: check.sh BUILD EMULATED. The tools of NVIDIA's are stand-ins in a folder of its own.
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

# A build whose plugin is the emulated one, and a bench and suites that are quick.
mkdir -p "$out/build/tests/parity" "$out/build/bench" "$out/build/worker"
cp "$emulated" "$out/build/liblonghaul_cuda.so"
printf '#!/bin/sh\necho "GPU 0: one that pretends"\n' > "$out/bin/nvidia-smi"
printf '#!/bin/sh\nexec "%s/tests/parity/parity_real" transfer\n' "$build" \
    > "$out/build/tests/parity/parity_real"
small='--values 9000 --worker-values 9000 --repeats 1'
printf '#!/bin/sh\nexec "%s/bench/bench_gpu" %s "$@"\n' "$build" "$small" \
    > "$out/build/bench/bench_gpu"
printf '#!/bin/sh\nshift 4\nexec "$@"\n' > "$out/bin/compute-sanitizer"
shape='--dim 16 --layers 1 --heads 4 --ffn 24 --vocab 50 --context 16 --batch 2 --steps 2'
printf '#!/bin/sh\nexec "%s/bench/bench_gpu_train" %s --product 32 "$@"\n' "$build" "$shape" \
    > "$out/build/bench/bench_gpu_train"
mkdir -p "$out/build/tests/gpu"
cp "$build/tests/gpu/gpu_model" "$out/build/tests/gpu"
chmod +x "$out"/bin/* "$out/build/tests/parity/parity_real" "$out/build/bench/"*
export LH_BENCH_EMULATED=1 # else no bench takes it for a device
# The emulated plugin multiplies as well; cuBLASLt is not opened.
export LONGHAUL_GEMM_PLUGIN=$emulated LONGHAUL_CUBLASLT_LIB=none.so
PATH=$out/bin:$PATH LONGHAUL_NCCL_LIB='' bench/gpu/check.sh --build "$out/build" --out "$out/2" \
    > "$out/said" || { cat "$out/said"; die "with one that pretends it fails"; }
python3 - "$out/2" <<'PYTHON'
import json, os, sys
stages = {s["stage"]: s for s in json.load(open(os.path.join(sys.argv[1], "check.json")))["stages"]}
passed = ["facts", "seed", "conformance.encode", "conformance.transfer", "sanitizer.memcheck",
          "conformance.layers", "conformance.model", "speed", "speed.train"]
for name in passed:
    assert stages[name]["verdict"] == "PASS", stages[name]
assert "on the device" in stages["ceilings"]["word"], stages["ceilings"]
assert stages["ceilings"]["verdict"] == "PASS", stages["ceilings"]
for name, why in {"nccl": "no NCCL is found", "nccl.one": "no NCCL is found",
                  "nccl.ranks": "no NCCL is found", "worker": "does not run on this machine",
                  "regions": "does not run on this machine",
                  "train": "does not run on this machine",
                  "speed.train.torch": "PyTorch"}.items():
    assert stages[name]["verdict"] == "SKIP" and why in stages[name]["word"], stages[name]
rows = json.load(open(os.path.join(sys.argv[1], "gpu.json")))["rows"]
assert len(rows) == 9 and all(row["value"] > 0 for row in rows), rows
rows = json.load(open(os.path.join(sys.argv[1], "train.json")))["rows"]
names = ["gpu.product.fp32", "gpu.product.bf16", "gpu.train.fp32", "gpu.train.fp32.work",
         "gpu.train.bf16", "gpu.train.bf16.work"]
assert [row["name"] for row in rows] == names and all(row["value"] > 0 for row in rows), rows
PYTHON

# A suite that fails is told of, and the others are run all the same. There is a made-up NCCL, but
# one of its two programs alone; the bench leaves no figures.
mkdir -p "$out/build/tests/nccl"
printf '#!/bin/sh\necho "NCCL at $1"\n' > "$out/build/tests/nccl/nccl_real"
printf '#!/bin/sh\necho none\n' > "$out/build/bench/bench_gpu"
chmod +x "$out/build/tests/nccl/nccl_real"
printf '#!/bin/sh\necho broken\nexit 1\n' > "$out/build/tests/parity/parity_real"
status=0
PATH=$out/bin:$PATH LONGHAUL_NCCL_LIB=$out/nccl.so LONGHAUL_GEMM_PLUGIN=$out/none.so \
    bench/gpu/check.sh --build "$out/build" --out "$out/3" > "$out/said" || status=$?
[ $status = 1 ] || die "a suite fails, and it ends with $status"
grep -q '^conformance.encode *FAIL' "$out/said" || die "the table does not say what failed"
grep -q '^speed *PASS' "$out/said" || die "what comes after is not run"
grep -q "^nccl *PASS .*NCCL at $out/nccl.so" "$out/said" || die "NCCL is not asked"
grep -q '^nccl.one *SKIP .*nccl_one is not in this build' "$out/said" || die "nccl.one is not there"
grep -q '^nccl.ranks *SKIP .*does not run on this machine' "$out/said" ||
    die "ranks without a worker"
for name in conformance.model speed.train train; do
    grep -q "^$name *SKIP .*none.so is not there" "$out/said" || die "$name without products"
done
grep -q '^ceilings *SKIP .*the bench left no figures' "$out/said" || die "ceilings of nothing"

# What CUDA_VISIBLE_DEVICES hides is not there.
printf '#!/bin/sh\nprintf "GPU 0: one\\nGPU 1: another\\n"\n' > "$out/bin/nvidia-smi"
for hidden in '' -1 none; do
    status=0
    CUDA_VISIBLE_DEVICES=$hidden PATH=$out/bin:$PATH bench/gpu/check.sh --build "$out/build" \
        --out "$out/5" > "$out/said" || status=$?
    [ $status = 77 ] || die "all GPUs are hidden by '$hidden', and it ends with $status"
    grep -q "^check: not run: CUDA_VISIBLE_DEVICES=$hidden hides" "$out/said" ||
        die "it does not say why with '$hidden'"
done

# Nothing goes on beyond the limit of all stages: neither the one under way nor what comes after.
printf '#!/bin/sh\nexec sleep 100\n' > "$out/build/tests/parity/parity_real"
PATH=$out/bin:$PATH LONGHAUL_NCCL_LIB=$out/nccl.so bench/gpu/check.sh --build "$out/build" \
    --out "$out/4" --limit 2 > "$out/said" || die "without time left it ends with $?"
grep -q '^conformance.encode *SKIP .*more than [12] s' "$out/said" || die "a stage goes on"
for name in conformance.fold sanitizer.memcheck speed nccl; do
    grep -q "^$name *SKIP .*the 2 s of all stages are over" "$out/said" ||
        die "$name is not left out"
done
status=0
bench/gpu/check.sh --limit soon > "$out/said" 2>&1 || status=$?
[ $status = 2 ] && grep -q 'limit soon: whole seconds' "$out/said" || die "a wrong --limit: $status"
echo "check: said so, took every stage, told of a failure"
