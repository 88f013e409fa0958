#!/usr/bin/env bash
# Fuzzes every decoder for a while: tests/fuzz/run.sh [seconds per target] [target ...]
#
# Builds the preset `fuzz` (clang, ASan, UBSan), runs two targets at a time from their corpora, and
# ends with `N passed, N failed`. libFuzzer's findings stay in build/fuzz/found/NAME: inputs that
# reach new code in corpus/, crashing ones in crash-*. Nothing is written into the tree.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-10}
shift $(($# > 0 ? 1 : 0))

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target fuzz -- -j2 -k0
programs=build/fuzz/tests/fuzz
[ $# -gt 0 ] || set -- $(cd tests/fuzz && ls fuzz_*.c 2>/dev/null | sed 's/^fuzz_//; s/\.c$//')
[ $# -gt 0 ] || { echo "fuzz: no target"; echo "0 passed, 1 failed"; exit 1; }

fuzz_one() {
    local name=$1 found=build/fuzz/found/$1 start=$SECONDS
    rm -rf "$found" && mkdir -p "$found/corpus"
    if "$programs/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -max_len=65536 -print_final_stats=1 -artifact_prefix="$found/" "$found/corpus" \
        "tests/fuzz/corpus/$name" >"$found/log" 2>&1; then
        printf 'ok     fuzz.%s (%d s, %s runs)\n' "$name" $((SECONDS - start)) \
            "$(sed -n 's/.*number_of_executed_units: *//p' "$found/log")"
    else
        tail -n 40 "$found/log"
        printf 'FAILED fuzz.%s: %s\n' "$name" "$found/log"
        touch "$found/failed"
    fi
}
export -f fuzz_one
export programs seconds
printf '%s\n' "$@" | xargs -P 2 -I{} bash -c 'fuzz_one {}'

failed=0
for name; do
    [ ! -e "build/fuzz/found/$name/failed" ] || failed=$((failed + 1))
done
echo "$(($# - failed)) passed, $failed failed"
[ $failed = 0 ]
