#!/usr/bin/env bash
# A pack of bench/gpu/pack.sh runs where none of our packages is: packed.sh BUILD EMULATED DRIVER.
# Every library but glibc's is in it and found there without LD_LIBRARY_PATH, its programs run, and
# check.sh takes it as a --build. With a build that has the real plugin, run A is played against a
# driver that lists a GPU and then fails: no success, and a reason for each stage.
# bench/gpu/rehearse.sh does the same in a root that has nothing else.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1 emulated=$2 driver=$3
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
die() { echo "packed: $*" >&2; exit 1; }

bench/gpu/pack.sh --build "$build" --out "$out/pack.tar.xz" --commit of-a-test --level 0 \
    --plugin "$emulated"
python3 -m tarfile -e "$out/pack.tar.xz" "$out/pack"
[ "$(cat "$out/pack/COMMIT")" = of-a-test ] || die "the commit is lost"
glibc='(linux-vdso|ld-linux[^ ]*|lib(c|m|dl|pthread|rt|resolv|util|anl|mvec))\.so'
for program in "$out"/pack/bin/*; do
    env -i /usr/bin/ldd "$program" | grep -vE "$glibc" | grep -vF /pack/bin/../lib/longhaul/ &&
        die "${program##*/} takes a library from elsewhere"
    LC_ALL=C readelf -d "$program" | grep -q '(RUNPATH)' && die "${program##*/} has a RUNPATH"
    readelf -S "$program" | grep -q '\.debug_info' && die "${program##*/} is not stripped"
done
for program in server/longhaul-server worker/longhaul-worker deploy/longhaul; do
    env -i "$out/pack/$program" --version > /dev/null || die "$program does not run"
done
env -i LONGHAUL_CUDA_PLUGIN="$out/pack/liblonghaul_cuda.so" "$out/pack/tests/parity/parity_real" \
    guard > /dev/null || die "a suite does not run from the pack"
status=0
bench/gpu/pack.sh --build "$build" --out "$out/large.tar.xz" --commit of-a-test --level 0 \
    --plugin "$emulated" --most 1 > "$out/said" 2>&1 || status=$?
[ $status = 1 ] && grep -q 'more than 1 MiB' "$out/said" || die "a pack that is too large: $status"
status=0
bench/gpu/pack.sh --build "$out" --out "$out/none" --commit x > "$out/said" 2>&1 || status=$?
[ $status = 1 ] && grep -q 'longhaul-server is not there: build it first' "$out/said" ||
    die "a build that is none: $status"

mkdir -p "$out/bin" "$out/driver"
printf '#!/bin/sh\necho "GPU 0: one that does no work"\n' > "$out/bin/nvidia-smi"
chmod +x "$out/bin/nvidia-smi"
cp "$driver" "$out/driver/libcuda.so.1"
if [ -e "$build/liblonghaul_cuda.so" ]; then
    # Only the stand-in for the driver is found by LD_LIBRARY_PATH; a real one is in a system
    # folder.
    cp "$build"/liblonghaul_{cuda,cublaslt}.so "$out/pack/lib/longhaul/"
    status=0
    PATH=$out/bin:$PATH LD_LIBRARY_PATH=$out/driver LONGHAUL_CUBLASLT_LIB=none.so \
        bench/gpu/check.sh --build "$out/pack" --run A --out "$out/A" > "$out/said" 2>&1 ||
        status=$?
    [ $status = 1 ] || [ $status = 3 ] || { cat "$out/said"; die "no GPU works: $status"; }
    grep -q '^STAGE of of-a-test ' "$out/said" || die "the pack's commit is lost"
    grep -q '^conformance.encode *SKIP .*initialization error; the CPU is used' "$out/said" ||
        { cat "$out/said"; die "the driver's word is lost"; }
fi
echo "packed: complete, stripped, and taken as a build"
