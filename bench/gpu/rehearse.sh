#!/usr/bin/env bash
# Runs bench/gpu/check.sh, both runs, from a pack and in a root that has only the parts of a bare
# machine with a GPU: a minimal system, Python, nvidia-smi and a driver library. Needs root,
# debootstrap and a mirror once; programs in the root reach no network.
#
#   bench/gpu/rehearse.sh --root DIR --driver FILE [--pack FILE] [--emulated] [--suite NAME]
#
#   --root      the root; made by debootstrap if it does not exist
#   --driver    a driver library that lists a GPU and then fails (tests/gpu/fake_driver.c)
#   --pack      of bench/gpu/pack.sh; build/gpu-pack.tar.xz otherwise
#   --emulated  the pack's plugin is the emulated one (pack.sh --plugin): conformance, training,
#               worker and regions have to pass; the benches' sizes are a GPU's
#   --suite     of debootstrap, stable otherwise
#
# Without --emulated no stage finds a working device: then each run has to end soon, incomplete or
# failed, with a message for every stage, check.json and the tar.
set -euo pipefail
cd "$(dirname "$0")/../.."
root='' driver='' pack=build/gpu-pack.tar.xz emulated='' suite=stable
while [ $# -gt 0 ]; do
    case $1 in
    --root) root=${2:?--root needs a folder}; shift ;;
    --driver) driver=${2:?--driver needs a file}; shift ;;
    --pack) pack=${2:?--pack needs a file}; shift ;;
    --suite) suite=${2:?--suite needs a name}; shift ;;
    --emulated) emulated=1 ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "rehearse: unknown flag $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done
die() { echo "rehearse: $*" >&2; exit 1; }
[ -n "$root" ] && [ -n "$driver" ] || die "--root and --driver are needed (see --help)"
[ -e "$pack" ] || die "$pack is not there: bench/gpu/pack.sh makes it"
[ -e "$root/usr" ] || debootstrap --variant=minbase --include=python3,iproute2 "$suite" "$root"
root=$(realpath "$root")

rm -rf "$root/tree" "$root/tmp/gpu-pack" "$root/out"
mkdir -p "$root/tree" "$root/out"
git ls-files -z | tar --null -T - -c | tar -x -C "$root/tree"
cp "$pack" "$root/tree/gpu-pack.tar.xz"
cp "$driver" "$root/usr/lib/libcuda.so.1"
cat > "$root/usr/bin/nvidia-smi" <<'STAND_IN'
#!/bin/sh
case $1 in
-L) echo "GPU 0: a GPU that does no work" ;;
*) echo "a GPU that does no work, 580" ;;
esac
STAND_IN
chmod +x "$root/usr/bin/nvidia-smi"

# In namespaces of its own: no network but the loopback, its own processes.
inside() { # COMMAND
    unshare --mount --net --pid --fork --mount-proc bash -c '
        mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" &&
            mount -t tmpfs tmpfs "$1/dev/shm" && ip link set lo up &&
            exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
                bash -c "$2"' inside "$root" "$1"
}

inside 'cd /tree && ldconfig && python3 -m tarfile -e gpu-pack.tar.xz /tmp/gpu-pack'
begin='cd /tree'
[ -z "$emulated" ] ||
    begin+='; export LH_BENCH_EMULATED=1 LONGHAUL_CUBLASLT_LIB=none.so LH_PARITY_VALUES=1052672'
for run in A B; do
    status=0
    begun=$SECONDS
    inside "$begin; bench/gpu/check.sh --build /tmp/gpu-pack --run $run --out /out/$run \
        --tar /out/$run.tar.gz" > "$root/out/$run.said" 2>&1 || status=$?
    cat "$root/out/$run.said"
    echo "rehearse: run $run ended with $status after $((SECONDS - begun)) s"
    [ $((SECONDS - begun)) -le 300 ] || die "run $run takes more than 5 minutes"
    tar -tzf "$root/out/$run.tar.gz" ./check.json > /dev/null || die "no check.json in the tar"
    ! grep -q 'GLIBC\|shared libraries\|not found' "$root/out/$run.said" ||
        die "something is not in the pack"
    if [ -z "$emulated" ]; then
        [ $status = 1 ] || [ $status = 3 ] || die "no GPU works, and run $run ends with $status"
        ! grep -E '^(conformance|speed|worker|regions)[^ ]* +PASS' "$root/out/$run.said" ||
            die "no GPU works, and that passed"
    fi
done
[ -z "$emulated" ] || ! grep -E '^(conformance|worker|regions|train)[^ ]* +(FAIL|SKIP)' \
    "$root"/out/[AB].said || die "the emulated device did not pass"
echo "rehearse: done"
