#!/usr/bin/env bash
# Runs all checks, from a fresh clone: ./tests/run.sh [--quick] [--stage NAME]... [--list]
#
# Installs missing packages, then runs the stages below one after the other; links, e2e and oracle,
# which mostly wait, run one after the other beside the rest. Each has a line `ok|FAILED stage
# (seconds, tests)` and a log in build/logs; a failing one's tail is printed.
# The last line is `N passed, N failed`, summed over all stages. The exit status is 0 only if
# nothing failed and every stage ran at least one test. Three stages may be `not run`, and say so:
# oracle, where pip cannot install PyTorch; links, without root and /dev/net/tun; arm, without a
# cross compiler and an emulator.
#
#   --quick   gcc only, the checks of the tree, and the simulator with few seeds: a few minutes
#   --stage   only these stages (their builds included); --list names them
#
# A test's ctest labels say where it runs: none: gcc as users build it, and clang with
# sanitizers; tsan: those and ThreadSanitizer; gcc, asan: only in that build; tree: once, since it
# reads only the tree; links, sim, bugs, coverage, e2e, oracle: their own stage.
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
logs=$root/build/logs
jobs=$(nproc)
OWN_STAGE='^(gcc|asan|tree|links|sim|bugs|coverage|e2e|oracle)$'

# ---- stages: run in a subshell with output in their log; tests are counted by run_ctest

stage_deps() { deploy/install-deps.sh --tests && count 1 0 0; }

# Some tests wait: one more test at a time than there are cores.
stage_gcc() { build release && jobs=$((jobs + 1)) run_ctest release -LE "${OWN_STAGE/gcc|/}"; }

stage_tree() { configure release && run_ctest release -L '^tree$'; }

# clang, with AddressSanitizer and UndefinedBehaviorSanitizer; the simulator too, with fewer seeds
stage_asan() { build asan && run_fewer asan "$(sed 's/asan|//; s/sim|//' <<<"$OWN_STAGE")"; }

stage_tsan() { build tsan --target tsan_tests && run_ctest tsan -L '^tsan$'; }

stage_fuzz() { count_said tests/fuzz/run.sh 3; } # a target each

stage_coverage() { build release && count_said tests/coverage.py --whole; } # a file each

stage_arm() { count_said tests/arm/run.sh; } # a unit test each

stage_sim() { build release && run_ctest release -L '^sim$'; }

stage_bugs() { build bugs --target bugs_tests && run_ctest bugs -L '^bugs$'; }

stage_links() {
    [ -z "${LH_NO_WAN:-}" ] || { echo "run: emulated links need root and /dev/net/tun"; return 77; }
    build release && run_ctest release -L '^links$'
}

# Its tests mostly wait: three per core, the longest first.
stage_e2e() { build release && jobs=$((3 * jobs)) run_ctest release -L '^e2e$'; }

stage_oracle() { # its tests exist once .venv does; some of them wait
    oracle_packages || { echo "run: pip cannot install tests/oracle/requirements.txt"; return 77; }
    build release && jobs=$((jobs + 1)) run_ctest release -L '^oracle$'
}

# The last one keeps every core busy to its end; those that leave one idle have others beside them.
ALL=(deps links e2e oracle gcc tree bugs asan tsan coverage fuzz arm sim)
# Stages that mostly wait run one after the other beside those that come after them.
WAITING=' links e2e oracle '
QUICK=(deps gcc tree sim)

# ---- parts of stages

# A command whose last line is `N passed, N failed`.
count_said() {
    local said
    "$@" | tee "$logs/$stage.said"
    local status=$?
    said=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$logs/$stage.said")
    count ${said:-0 1} 0
    return $status
}

# Installs what the oracle's tests import.
oracle_packages() {
    local list=tests/oracle/requirements.txt
    {
        flock 9
        [ ! .venv/complete -nt $list ] || return 0
        [ -x .venv/bin/python ] || python3 -m venv .venv || return
        .venv/bin/pip install -q -r $list || return
        # The collector takes a third of a process's time for importing PyTorch and exiting.
        echo 'import atexit, gc; gc.set_threshold(20_000, 10, 10); atexit.register(gc.freeze)' \
            >"$(echo .venv/lib/python3*/site-packages)/quick.pth" && touch .venv/complete
    } 9>build/venv.lock
}

# Once a run, and again when the oracle's packages are there: some tests exist only with them.
configure() {
    local configured=$logs/$1.configured
    [ "$configured" -nt .venv/complete ] ||
        { cmake --preset "$1" >/dev/null && touch "$configured"; }
}

# build PRESET [--target NAME]; a stage that runs beside this one may build the same
build() {
    {
        flock 9
        configure "$1" && cmake --build --preset "$@" -- -j"$jobs"
    } 9>"build/$1.lock"
}

# run_ctest PRESET FLAG...: the tests selected by the flags, counted from ctest's own report.
run_ctest() {
    local preset=$1 report=$logs/$stage.xml
    shift
    rm -f "$report"
    # ThreadSanitizer's memory map does not fit every kernel's randomised one
    local fixed=()
    [ "$preset" != tsan ] || ! setarch -R true 2>/dev/null || fixed=(setarch -R)
    "${fixed[@]}" ctest --test-dir "build/$preset" -j"$jobs" --timeout 300 --no-tests=error \
        --output-on-failure --output-junit "$report" "$@"
    local status=$?
    [ $status = 0 ] || tests/failed.py "$report"
    count_report "$report" && return $status
}

# A report of ctest in JUnit's format: disabled and skipped tests did not pass.
count_report() {
    local tests failures off skipped
    tests=$(attribute tests "$1") failures=$(attribute failures "$1")
    off=$(attribute disabled "$1") skipped=$(attribute skipped "$1")
    [ -n "$tests" ] || { echo "run: ctest wrote no report"; return 1; }
    count $((tests - failures - off - skipped)) "$failures" $((off + skipped))
}

# All tests but those with these labels; kernels with half of their seeds, since gcc has run all.
run_fewer() { LH_TEST_QUICK=1 jobs=$((jobs + 1)) run_ctest "$1" -LE "$2"; }

attribute() { sed -n "1,/>/s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$2" 2>/dev/null | head -n 1; }

count() { echo "$1 $2 $3" >>"$logs/$stage.count"; }

# ---- the run

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; }

chosen=()
quick=0
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --stage) chosen+=("${2:?--stage needs a name}"); shift ;;
    --list) printf '%s\n' "${ALL[@]}"; exit 0 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "run: unknown flag $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done
if [ ${#chosen[@]} = 0 ]; then
    chosen=("${ALL[@]}")
    [ $quick = 0 ] || chosen=("${QUICK[@]}")
fi
for stage in "${chosen[@]}"; do
    declare -F "stage_$stage" >/dev/null ||
        { echo "run: no stage $stage (see --list)" >&2; exit 2; }
done
[ $quick = 0 ] || export LH_TEST_QUICK=1 # tests with a length of their own shorten it

mkdir -p "$logs"
use_quick_tools() { # stage deps may install them
    [ -n "${LDFLAGS:-}" ] || ! command -v ld.lld >/dev/null || export LDFLAGS=-fuse-ld=lld
    # The same file in another clone gives the same object; a miss preprocesses nothing twice.
    command -v ccache >/dev/null || return 0
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
    export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
}

# Without these the tests of emulated links are not configured; stage links says so.
[ -c /dev/net/tun ] && [ "$(id -u)" = 0 ] || export LH_NO_WAN=1

passed=0 failed=0 skipped=0

# Runs one stage: prints its line; writes passed, failed and skipped counts to its .sum file.
run_stage() {
    local stage=$1 start=$SECONDS ran=0 bad=0 left=0 status word=ok
    use_quick_tools
    rm -f "$logs/$stage.count"
    ("stage_$stage") >"$logs/$stage.log" 2>&1 </dev/null
    status=$?
    if [ $status = 77 ]; then
        printf 'not run %s (%s)\n' "$stage" "$(tail -n 1 "$logs/$stage.log")"
        echo 0 0 0 >"$logs/$stage.sum"
        return
    fi
    if [ -e "$logs/$stage.count" ]; then
        read -r ran bad left < <(awk '{p += $1; f += $2; s += $3} END {print p, f, s}' \
            "$logs/$stage.count")
    fi
    [ $((ran + bad)) -gt 0 ] || status=1
    [ $status = 0 ] || [ "$bad" -gt 0 ] || bad=1 # the stage itself: no build, or no test
    [ "$bad" = 0 ] || status=1
    if [ $status != 0 ]; then
        word=FAILED
        echo "---- the end of ${logs#"$root"/}/$stage.log"
        tail -n 60 "$logs/$stage.log"
        echo "----"
    fi
    printf '%-6s %s (%d s, %d tests)\n' $word "$stage" $((SECONDS - start)) $((ran + bad))
    echo "$ran $bad $left" >"$logs/$stage.sum"
}

rm -f "$logs"/*.sum "$logs"/*.configured
waiting=() working=()
for stage in "${chosen[@]}"; do
    if [[ $WAITING == *" $stage "* ]]; then
        waiting+=("$stage")
    elif [ ${#waiting[@]} = 0 ]; then
        run_stage "$stage"
    else
        working+=("$stage")
    fi
done
# A minute of one core, beside stages that wait; stage oracle says what went wrong.
[[ " ${waiting[*]} " != *' oracle '* ]] || oracle_packages >"$logs/packages.log" 2>&1 </dev/null &
for stage in "${waiting[@]}"; do
    run_stage "$stage" >"$logs/beside.log"
    cat "$logs/beside.log"
done &
for stage in "${working[@]}"; do run_stage "$stage"; done
wait
for stage in "${chosen[@]}"; do # one that left no sum died
    read -r ran bad left < <(cat "$logs/$stage.sum" 2>/dev/null || echo 0 1 0)
    passed=$((passed + ran)) failed=$((failed + bad)) skipped=$((skipped + left))
done

printf 'all stages: %d s\n' $SECONDS
note=''
[ $skipped = 0 ] || note=", $skipped skipped"
echo "$passed passed, $failed failed$note"
[ $failed = 0 ] && [ $passed -gt 0 ]
