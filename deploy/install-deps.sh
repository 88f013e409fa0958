#!/usr/bin/env bash
# Installs what is missing to build, run and test Longhaul on Debian 12/13 or Ubuntu 24.04.
#
#   deploy/install-deps.sh               build and demo
#   deploy/install-deps.sh --build-only  what a compile needs, nothing else
#   deploy/install-deps.sh --tests       build, demo and everything tests/run.sh uses
#   deploy/install-deps.sh --list        prints the packages (combine with the above), installs none
#
# When all is there it only asks dpkg and ends at once: scripts call it unconditionally. Installing
# needs root (or sudo) and apt; without them it names the missing packages and exits with 3.
set -euo pipefail

build=(
    cmake ninja-build gcc libc6-dev pkg-config
    protobuf-c-compiler libprotobuf-c-dev # the words on the wire
    libgrpc-dev                           # transport (C core)
    libssl-dev libsodium-dev              # identity, seal
    liblz4-dev libopenblas-dev            # dense frames, matrix products
    libjansson-dev libyaml-dev            # JSON, YAML
    libmicrohttpd-dev                     # metrics, probes and the page
    libcurl4-openssl-dev                  # S3 stores
)
demo=(iproute2 python3 ca-certificates) # long links; text of the corpora; fetching them
tests=(
    git libcmocka-dev clang clang-format clang-tidy lld ccache openssl valgrind
    systemd      # systemd-analyze reads the units of deploy/systemd
    curl         # e2e.week
    slurmctld slurmd slurm-client munge # e2e.slurm starts its own
    lintian dpkg-dev file # reads the packages of deploy/debian; cpack needs the others
    python3-venv # a place for the oracles' packages, made when an oracle asks for one
)

die() { echo "install-deps: $*" >&2; exit 3; }

wanted=("${build[@]}" "${demo[@]}")
list=0
for arg in "$@"; do
    case $arg in
    --build-only) wanted=("${build[@]}") ;;
    --tests) wanted=("${build[@]}" "${demo[@]}" "${tests[@]}") ;;
    --list) list=1 ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "install-deps: unknown flag $arg (see --help)" >&2; exit 2 ;;
    esac
done

# Of the arguments, those that dpkg does not hold as installed.
missing_of() {
    local have name
    have=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null) || true
    for name; do
        [[ $'\n'$have$'\n' == *$'\n'"ii $name"$'\n'* ]] || echo "$name"
    done
}

# clang's sanitizer and fuzzer runtimes are a package named after clang's version, and only
# recommended by clang: libclang-rt-14-dev on Debian 12, -18- on Ubuntu 24.04, -19- on Debian 13.
clang_runtime() {
    local depends
    depends=$(dpkg-query -W -f '${Depends}\n' clang 2>/dev/null) ||
        depends=$(apt-cache depends clang 2>/dev/null) || true
    sed -n 's/.*clang-\([0-9][0-9]*\).*/libclang-rt-\1-dev/p' <<<"$depends" | head -n 1
}

command -v dpkg-query >/dev/null ||
    die "this is no Debian or Ubuntu. Install the equivalents of: ${wanted[*]}"
if [ $list = 1 ]; then
    printf '%s\n' "${wanted[@]}"
    exit 0
fi

missing=($(missing_of "${wanted[@]}")) # names of packages have no blanks
needs_clang=0
[[ " ${wanted[*]} " != *" clang "* ]] || needs_clang=1
if [ $needs_clang = 1 ] && runtime=$(clang_runtime) && [ -n "$runtime" ]; then
    missing+=($(missing_of "$runtime"))
fi
[ ${#missing[@]} -gt 0 ] || exit 0

echo "install-deps: missing: ${missing[*]}"
command -v apt-get >/dev/null || die "apt-get is not here; install them by hand"
as_root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
        die "not root and no sudo. As root: apt-get install ${missing[*]}"
    as_root=(sudo)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
    # RUNLEVEL=1: no service of a package is started.
    "${as_root[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o DPkg::Lock::Timeout=300 "$@" \
        >"$log" 2>&1 || { tail -n 20 "$log" >&2; die "apt-get $1 failed (above)"; }
}
apt update
if [ $needs_clang = 1 ] && [ -z "${runtime:-}" ]; then # known only with fresh package lists
    runtime=$(clang_runtime)
    [ -n "$runtime" ] || die "cannot tell which libclang-rt-*-dev belongs to clang"
    missing+=("$runtime")
fi
apt install --no-install-recommends "${missing[@]}"
left=($(missing_of "${missing[@]}"))
[ ${#left[@]} = 0 ] || die "still missing after the installation: ${left[*]}"
echo "install-deps: done"
