# Shared functions of the emulator's tests; sourced with the program as $1. Needs root,
# /dev/net/tun, iproute2 and python3.
#
# Busy processors should not change a result. The receiving kernel timestamps packets, and nothing
# may come early. Lateness is judged by the minimum or the median, with tolerance for a slow machine
# (deploy/wan/measure.sh has the exact figures). Every step waits for the event it depends on.
program=$(realpath "${1:-none}")
cd "$(dirname "$0")" || exit 1
here=$PWD
work=$(mktemp -d)
export WANEM_INSTANCE=t$$
other=u$$
wanem=$work/wanem # of our own, so that pgrep finds no other test's
passed=0 failed=0

give_up() { echo "$0: $*; configure with LH_NO_WAN=1 to leave the tests wan.* out"; exit 1; }
[ -x "$program" ] || give_up "usage: $0 PROGRAM"
[ "$(id -u)" = 0 ] || give_up "network namespaces need root"
[ -c /dev/net/tun ] || give_up "no /dev/net/tun"
for tool in ip ss pgrep python3; do
    command -v $tool >/dev/null || give_up "no program $tool"
done
cp "$program" "$wanem" || exit 1
export ASAN_OPTIONS=log_path=$work/sanitizer
export UBSAN_OPTIONS=log_path=$work/sanitizer:print_stacktrace=1

clean_up() {
    jobs -p | xargs -r kill 2>/dev/null
    "$wanem" down -k 2>/dev/null
    for name in "$other" "$other"-{1..4}; do "$wanem" -n "$name" down -k; done 2>/dev/null
    ip netns del "$WANEM_INSTANCE-alien" 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# check NAME COMMAND...: the check passes if the command succeeds.
check() {
    local name=$1
    shift
    if "$@" >"$work/output" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $name"
    else
        failed=$((failed + 1))
        echo "FAILED  $name: $*"
        sed 's/^/        /' "$work/output" | head -20
    fi
}
# Prints the result of a whole file of tests; the last line of each.
verdict() {
    check "no sanitizer complains" fails grep -r . "$work" --include='sanitizer*'
    echo "$passed passed, $failed failed"
    [ $failed = 0 ]
}
between() {
    awk -v low="$1" -v high="$2" -v value="$3" \
        'BEGIN { exit !(value != "" && value + 0 >= low && value + 0 <= high) }'
}
fails() { ! "$@"; }
exits() { local want=$1; shift; "$@"; [ $? = "$want" ]; }
# says PATTERN COMMAND...: the command fails with a message that contains the pattern.
says() {
    local want=$1 text
    shift
    text=$("$@" 2>&1) && return 1
    echo "$text"
    grep -qF -- "$want" <<<"$text"
}
# until_true COMMAND...: polls for a state that no event announces, for at most ten seconds.
until_true() {
    local end=$((SECONDS + 10))
    until "$@"; do [ $SECONDS -lt $end ] || return 1; done
}
# ended PID: waits for the end of a process that may not be our child.
ended() {
    python3 - "$1" <<'PYTHON'
import os, select, sys
try:
    process = os.pidfd_open(int(sys.argv[1]))
except ProcessLookupError:
    sys.exit()
sys.exit(not select.select([process], [], [], 20)[0])
PYTHON
}
mkfifo "$work/ready"
exec {ready}<>"$work/ready"
export READY=$ready
# announced WORD: waits until a process writes the word to the pipe.
announced() {
    local word
    while read -r -t 20 -u "$ready" word; do [ "$word" = "$1" ] && return; done
    return 1
}

in_region() { "$wanem" exec "$1" -- "${@:2}"; }
traffic() { in_region "$1" timeout 60 python3 "$here/traffic.py" "${@:2}"; }
# Prints a counter ($3) of the link from $1 to $2.
counter() {
    "$wanem" stats -j | sed -n "s/.*\"from\":\"$1\",\"to\":\"$2\".*\"$3\":\([-0-9.]*\).*/\1/p"
}
calc() { awk "BEGIN { printf \"%.3f\", $1 }"; }
# Prints the minimum round-trip time in ms from region $1 to host $2, of $3 pings: waits for a
# processor are not the link's.
rtt() { traffic "$1" ping "$2" "$3" 0.05 2 | sort -n | head -n 1; }
reaches() { traffic "$1" ping "$2" 3 0.02 1 >/dev/null; }

port=6000
# Sends $3 bytes over TCP from region $1 to $2 and runs the command in the other arguments
# meanwhile. The received bytes must be the same.
transfer() {
    local receiver sender
    port=$((port + 1))
    traffic "$2" receive $port >"$work/digest" & receiver=$!
    announced $port || return 1
    traffic "$1" send "$2" $port "$3" & sender=$!
    "${@:4}" || return 1
    wait $sender && wait $receiver &&
        [ "$(cat "$work/digest")" = "$(python3 "$here/traffic.py" digest "$3")" ]
}
# Sends UDP probes from region $1 to $2: count, interval in ms, bytes. Sets the sink's figures.
probe() {
    local sink
    port=$((port + 1))
    traffic "$2" sink $port >"$work/probe" & sink=$!
    announced $port
    traffic "$1" probe "$2" $port "$3" "$4" "$5"
    wait $sink
    # shellcheck disable=SC2034
    read -r count disorder least low median high greatest mean gap <"$work/probe"
}
# Measures one TCP flow from region $1 to $2: congestion control, seconds to skip, seconds to
# measure. Prints Mbit/s.
throughput() {
    local receiver
    port=$((port + 1))
    traffic "$2" measure $port "$4" "$5" & receiver=$!
    announced $port || return 1
    traffic "$1" flood "$2" $port "$3"
    wait $receiver
}

cat >"$work/topology" <<'TOPOLOGY'
# five regions
region us hosts=3
region eu hosts=2
region ap
region sa   # no link line of its own
region af
sysctl net.ipv4.tcp_congestion_control=reno
link all all rtt=20ms
link us eu rtt=50ms
link us to ap delay=30ms
TOPOLOGY
# Nothing of instance $1 is left. Its daemon may end a little after its namespaces.
gone() {
    [ ! -e "/run/wanem/$1" ] && [ ! -e "/run/wanem/$1.lock" ] &&
        ! ls /run/netns | grep "^$1-" && until_true fails pgrep -f "$wanem up"
}
