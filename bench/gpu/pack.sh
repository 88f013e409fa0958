#!/usr/bin/env bash
# Packs the files that bench/gpu/check.sh needs into one, for a machine with none of our packages.
#
#   bench/gpu/pack.sh [--build DIR] [--out FILE] [--commit C] [--level N] [--most MIB]
#                     [--plugin FILE]
#
#   --build   a build with the plugin; build/release otherwise
#   --out     the file; build/gpu-pack.tar.xz otherwise
#   --commit  the commit of the build; git's otherwise
#   --level   of xz, 0 to 9; 6 otherwise
#   --most    the file's maximum size, 28 MiB otherwise; a larger one is an error
#   --plugin  in place of both plugins of the build: the emulated one, for rehearsals
#
# In the file: bin has the programs, stripped; lib/longhaul the plugins and every library that they
# need but glibc's and the driver's; COMMIT the commit; and links where a build tree has programs,
# so that the folder is a --build of check.sh. Programs find their libraries by a DT_RPATH that
# begins with $ORIGIN (CMakeLists.txt). On the machine, in a copy of the tree:
#
#   python3 -m tarfile -e gpu-pack.tar.xz /tmp/gpu-pack
#   bench/gpu/check.sh --build /tmp/gpu-pack --run A --tar A.tar.gz
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build/release out=build/gpu-pack.tar.xz commit='' level=6 most=28 plugin=''
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=${2:?--build needs a folder} ;;
    --out) out=${2:?--out needs a file} ;;
    --commit) commit=${2:?--commit needs a commit} ;;
    --level) level=${2:?--level needs a number} ;;
    --most) most=${2:?--most needs MiB} ;;
    --plugin) plugin=${2:?--plugin needs a file} ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "pack: unknown flag $1 (see --help)" >&2; exit 2 ;;
    esac
    shift 2
done
[[ $level =~ ^[0-9]$ && $most =~ ^[0-9]+$ ]] ||
    { echo "pack: --level is a digit, --most a whole number" >&2; exit 2; }
die() { echo "pack: $*" >&2; exit 1; }
if [ -z "$commit" ]; then
    commit=$(git rev-parse --short HEAD) || die "no git here: --commit names the commit"
    [ -z "$(git status --porcelain --untracked-files=no)" ] || commit+=+
fi

programs=(server/longhaul-server worker/longhaul-worker deploy/longhaul bench/bench_gpu
    bench/bench_gpu_train tests/parity/parity_real tests/gpu/gpu_model tests/nccl/nccl_real
    tests/nccl/nccl_one)
plugins=(liblonghaul_cuda.so liblonghaul_cublaslt.so)
glibc='^(ld-linux.*|lib(c|m|dl|pthread|rt|resolv|util|anl|mvec))\.so\.[0-9]+$'
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/bin" "$stage/lib/longhaul"
echo "$commit" > "$stage/COMMIT"

libraries_of() { # NAME PATH lines of what a file needs
    ldd "$1" | while read -r name arrow path _; do
        [ "$arrow" = '=>' ] || continue
        [ "$path" != not ] || die "$1 needs $name, which is not on this machine"
        [[ $name =~ $glibc ]] || echo "$name $path"
    done
}

for program in "${programs[@]}"; do
    from=$build/$program name=${program##*/}
    [ -x "$from" ] || die "$from is not there: build it first"
    LC_ALL=C readelf -d "$from" | grep -q '(RPATH).*\[\$ORIGIN/\.\./lib/longhaul\]' ||
        die "$from finds no library beside it: its DT_RPATH is not \$ORIGIN/../lib/longhaul"
    strip -o "$stage/bin/$name" "$from"
    mkdir -p "$stage/${program%/*}"
    ln -s "$(dirname "$program" | sed 's|[^/]*|..|g')/bin/$name" "$stage/$program"
    libraries_of "$from" >> "$stage/libraries"
done
for name in "${plugins[@]}"; do
    from=${plugin:-$build/$name}
    [ -e "$from" ] || die "$from is not there: build with LONGHAUL_CUDA=ON"
    strip --strip-unneeded -o "$stage/lib/longhaul/$name" "$from"
    ln -s "lib/longhaul/$name" "$stage/$name"
    libraries_of "$from" >> "$stage/libraries"
done
sort -u "$stage/libraries" | while read -r name path; do
    strip --strip-unneeded -o "$stage/lib/longhaul/$name" "$path"
done
rm "$stage/libraries"
mkdir -p "$(dirname "$out")"
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner -c . | xz -T2 "-$level" > "$out"
bytes=$(stat -c %s "$out")
[ "$bytes" -le $((most << 20)) ] || die "$out has $bytes bytes, more than $most MiB"
echo "pack: $out, $((bytes >> 10)) KiB, commit $commit"
