#!/usr/bin/env bash
# Runs one bench from a fresh clone: builds what it needs; only one runs at a time.
#
#   ./bench/run.sh NAME [--json FILE] [flags of the bench]
#   ./bench/run.sh --list
#
# A result that is written to bench/results renews the page there, and README (bench/page.py).
# The lock is bench/.lock: two benches at once would measure nothing, so a second one exits with
# status 3 instead of waiting. `learning` fetches the demo's texts first (deploy/text/corpora.sh);
# `codec` also measures PyTorch if .venv/bin/python or $LH_BENCH_PYTHON has it.
# Tests name their own build and lock in LH_BENCH_BUILD and LH_BENCH_LOCK.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/.."

names() { # each has a program bench_NAME, or is a script over the whole product
    find bench -maxdepth 1 -name '*.py' ! -name report.py ! -name live.py ! -name '*_torch.py' \
        ! -name page.py ! -name 'section*.py' ! -name picture.py ! -name front.py \
        ! -name peers.py ! -name learned.py ! -name kills.py ! -name turns.py \
        ! -name stages.py -printf '%f\n' |
        sed 's/\.py$//'
    find bench -maxdepth 1 -name '*.c' ! -name report.c ! -name device.c ! -name pusher.c \
        ! -name 'limits_*.c' \
        -printf '%f\n' | sed 's/\.c$//'
    find bench -mindepth 2 -name main.c -printf '%h\n' | sed 's|.*/||'
}

case ${1:-} in
--list) names | sort; exit 0 ;;
'' | -*) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
name=$1
shift
all=$(names)
grep -qx -- "$name" <<<"$all" ||
    { echo "bench/run.sh: no bench $name; --list names them" >&2; exit 2; }

given=() # --json FILE is the caller's, and must be writable before hours are spent
while [ $# -gt 0 ]; do
    given+=("$1")
    if [ "$1" = --json ] && [ $# -gt 1 ]; then
        case $2 in /*) file=$2 ;; *) file=$from/$2 ;; esac
        { [ ! -d "$file" ] && [ -w "$(dirname "$file")" ]; } ||
            { echo "bench/run.sh: --json $2: cannot be written there" >&2; exit 2; }
        given+=("$file")
        shift
    fi
    shift
done
set -- "${given[@]}"

exec 9> "${LH_BENCH_LOCK:-bench/.lock}"
flock -n 9 || { echo "bench/run.sh: another bench is running (bench/.lock)" >&2; exit 3; }

targets=("bench_$name")
[ ! -e "bench/$name.py" ] || targets=(all)
[ "$name" != learning ] || targets+=(longhaul)
build=${LH_BENCH_BUILD:-build/release}
if [ -z "${LH_BENCH_BUILD:-}" ]; then
    ./deploy/install-deps.sh
    cmake --preset release > /dev/null
    cmake --build --preset release --target "${targets[@]}" | tail -n 1
fi
if [ -z "${LH_BENCH_PYTHON+set}" ] && .venv/bin/python -c 'import torch' 2> /dev/null; then
    export LH_BENCH_PYTHON=.venv/bin/python
fi

python=python3
if [ "$name" = balancer ] && ! python3 -c 'import scipy' 2> /dev/null; then
    [ -x .venv/bin/python ] || python3 -m venv .venv
    .venv/bin/pip install -q -r bench/balancer/requirements.txt
    python=.venv/bin/python
fi
[ "$name" != learning ] || ./deploy/text/corpora.sh --out data/text
if [ "$name" = learning ]; then
    mkdir -p run
    [ -e data/tokens/units.json ] || build/release/deploy/longhaul data prepare --text data/text \
        --out data/tokens --unit-tokens 2048 --limit-bytes-per-language 1400000
fi
if [ -e "bench/$name.py" ]; then
    "$python" "bench/$name.py" --build "$build" "$@" 9>&-
else
    "$build/bench/bench_$name" "$@" 9>&-
fi
while [ $# -gt 1 ]; do
    if [ "$1" = --json ] && [ "$(dirname "$(realpath "$2")")" = "$PWD/bench/results" ]; then
        ./bench/page.py
    fi
    shift
done
