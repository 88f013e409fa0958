#!/bin/bash
# Partitions, changes while data flows, many flows at once. ./cuts.sh PROGRAM
. "$(dirname "$0")/lib.sh"
check "comes up" "$wanem" up "$work/topology"

"$wanem" set all all rtt=20ms rate=unlimited
check "regions reach each other" reaches us eu
"$wanem" cut us eu
check "a cut separates two regions" fails reaches us eu
check "in both directions" fails reaches eu us
check "and no others" reaches us ap
check "show tells" grep -qE '^us +eu .* down$' <("$wanem" show)
"$wanem" heal us eu
check "heal joins them" reaches us eu
"$wanem" cut us to eu
probe eu us 20 1 100
check "a cut of one direction leaves the other" [ "$count" = 20 ]
probe_lost() { port=$((port + 1)); traffic us probe eu $port 20 1 100; }
"$wanem" reset
probe_lost
severed="$(counter us eu severed) $(counter us eu delivered_packets)"
check "and blocks its own" [ "$severed" = "20 0" ]
"$wanem" heal all
check "heal all undoes it" reaches us eu
"$wanem" cut us
check "a cut of one region isolates it" fails reaches us ap
check "from all sides" fails reaches sa us
check "while the others reach each other" reaches sa eu
"$wanem" heal us
check "until it is healed" reaches us ap
"$wanem" set us eu rtt=1s
"$wanem" reset
in_flight() { [ "$(counter us eu in_flight)" = 1 ]; }
traffic us ping eu 1 0 2 >/dev/null & ping=$!
check "a packet is in flight" until_true in_flight
"$wanem" cut us eu
"$wanem" heal us eu
check "a cut takes what is in flight" fails wait $ping
check "and counts it" [ "$(counter us eu severed)" = 1 ]
"$wanem" set us eu rtt=20ms rate=50mbit
"$wanem" reset
has() { [ "$(counter us eu "$1")" -ge "$2" ]; }
cut_for_a_second() {
    until_true has delivered_bytes 1000000 && "$wanem" cut us eu && until_true has severed 1 &&
        sleep 1 && "$wanem" heal us eu
}
check "a TCP connection outlives a cut, its data intact" transfer us eu 10000000 cut_for_a_second
storm() { # two hundred changes under way
    until_true has delivered_bytes 1000000 || return 1
    for round in {1..50}; do
        "$wanem" set us eu rtt=$((round % 7 * 10))ms jitter=0ms rate=$((20 + round))mbit \
            loss=0.$((round % 3))% &&
            "$wanem" cut us to eu && "$wanem" heal us to eu &&
            "$wanem" set eu to us delay=${round}ms || return 1
    done
    "$wanem" set us eu rtt=20ms rate=50mbit loss=0%
}
"$wanem" reset
check "and 200 changes while it sends" transfer us eu 20000000 storm
check "which cut and lost some of it" has severed 1

# One long connection as gRPC keeps it: small calls and 200 kB pushes with their answers, while the
# link changes.
port=$((port + 1))
"$wanem" set us eu rtt=40ms rate=50mbit
"$wanem" reset
traffic eu calls $port & server=$!
announced $port
traffic us call eu $port "$work/enough" >"$work/calls" & client=$!
check "a long connection of calls and pushes begins" announced calling
check "it carries data" until_true has delivered_bytes 1000000
"$wanem" set us eu rtt=100ms loss=0.1% jitter=5ms
check "also over a longer and lossy link" until_true has delivered_bytes 2000000
"$wanem" cut us eu
check "a cut stops it" until_true has severed 1
sleep 2 # the length of the cut
"$wanem" heal us eu
"$wanem" set us eu rtt=20ms loss=0% jitter=0ms
check "and the healed link revives it" until_true has delivered_bytes 4000000
touch "$work/enough"
check "it ends well" wait $client
check "its server too" wait $server
read -r calls pushes <"$work/calls"
check "it answered $calls calls and $pushes pushes, in order and intact" between 100 10000 "$calls"
check "of which every tenth a push" between "$((calls / 9 - 1))" "$((calls / 9 + 1))" "$pushes"

# ---------------------------------------------------------------- many flows, two instances

"$wanem" set all all rtt=30ms rate=100mbit queue=50ms
"$wanem" reset
flows=0 pids=()
for from in us eu ap sa af; do
    for to in us eu ap sa af; do
        [ $from = $to ] && continue
        flows=$((flows + 1))
        traffic $to collect $((7000 + flows)) 3 & pids+=($!)
    done
done
for _ in $(seq $flows); do read -r -t 20 -u "$ready"; done # all are listening
flows=0
for from in us eu ap sa af; do
    for to in us eu ap sa af; do
        [ $from = $to ] && continue
        flows=$((flows + 1))
        traffic $from scatter $to $((7000 + flows)) 3 500000 4 & pids+=($!)
    done
done
finished=0
for pid in "${pids[@]}"; do wait "$pid" && finished=$((finished + 1)); done
check "60 flows over 20 links of 5 regions: servers and clients end" [ $finished = 40 ]
busy=$("$wanem" stats -j | sed 's/.*"delivered_bytes":\([0-9]*\).*/\1/' |
    awk '$1 > 1500000' | wc -l)
check "each link carried its flows" [ "$busy" = 20 ]
"$wanem" stats -j >"$work/stats"
check "stats are JSON Lines" python3 -c \
    'import json, sys; assert len([json.loads(line) for line in open(sys.argv[1])]) == 20' \
    "$work/stats"
check "a second instance comes up beside the first" "$wanem" -n "$other" up "$work/topology"
check "its regions reach each other" \
    "$wanem" -n "$other" exec us -- python3 "$here/traffic.py" ping eu 1 0 2
check "its settings are its own" grep -qE '^us +eu +25ms .* unlimited' \
    <("$wanem" -n "$other" show)
check "it goes down" "$wanem" -n "$other" down
check "and leaves the first alone" reaches us eu
check "goes down" "$wanem" down
verdict
