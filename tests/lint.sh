#!/usr/bin/env bash
# clang-tidy over C files: tests/lint.sh [--changed [BASE]] [FILE...]
#
# Without arguments every file of the rooms; --changed: those that differ from BASE (main) or are
# new. Checks are in .clang-tidy; the commands come from the clang build, configured here. Not a
# part of tests/run.sh: clang-tidy versions differ in their findings. Exit status 1: any findings.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-tidy >/dev/null ||
    { echo "lint: no clang-tidy (deploy/install-deps.sh --tests)" >&2; exit 3; }

if [ "${1:-}" = --changed ]; then
    base=${2:-main}
    mapfile -t files < <({ git diff --name-only --diff-filter=d "$base" -- '*.c'
                           git ls-files -o --exclude-standard -- '*.c'; } | sort -u)
elif [ $# -gt 0 ]; then
    files=("$@")
else
    mapfile -t files < <(git ls-files -- '*.c' ':!tests/unit')
fi
[ ${#files[@]} -gt 0 ] || { echo "lint: no files"; exit 0; }

cmake --preset clang >/dev/null
cmake --build --preset clang --target proto/all -- -j2 >/dev/null # generated headers
# Only what this build compiles can be checked.
mapfile -t known < <(for file in "${files[@]}"; do
    ! grep -qF "\"file\": \"$PWD/$file\"" build/clang/compile_commands.json || echo "$file"; done)
echo "lint: ${#known[@]} of ${#files[@]} files"
found=0
lint() {
    clang-tidy --quiet -p build/clang --extra-arg=-I"$PWD" "$@" 2>/dev/null
}
export -f lint
[[ " ${known[*]} " != *" common/base/err.c "* ]] || lint common/base/err.c || found=1
printf '%s\n' "${known[@]}" | grep -vx common/base/err.c |
    xargs -r -P "$(nproc)" -n 4 bash -c 'lint --extra-arg=-includetests/lint.h "$@"' lint || found=1
[ $found = 1 ] || echo "lint: clean"
exit $found
