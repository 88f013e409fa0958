#!/bin/bash
# Up, exec, down, crashes, several instances at once. ./life.sh PROGRAM
. "$(dirname "$0")/lib.sh"

# Prints the host's state that wanem could change, without the remaining lease times.
host_state() {
    {
        ip -o link; ip -o -4 addr; ip route
        cat /proc/sys/net/ipv4/{ip_forward,tcp_rmem,tcp_wmem}
    } | sed 's/valid_lft.*//' | grep -v '@\|veth\|docker'
} 2>&1
host_before=$(host_state)
check "comes up" "$wanem" up "$work/topology"
check "refuses to come up twice" says 'already up' "$wanem" up "$work/topology"
check "namespaces are visible to ip-netns" ip netns exec "$WANEM_INSTANCE-us" true
check "exec returns the exit status" exits 7 in_region us sh -c 'exit 7'
check "exec returns 127 for a missing program" exits 127 in_region us /no/such/program
check "exec returns 126 for a file that is no program" exits 126 in_region us "$work/topology"
check "exec returns 125 for a missing region" exits 125 in_region mars true
said=$(echo in | in_region us sh -c 'cat; echo "$1"' - 'a  b')
check "exec passes arguments and input" [ "$said" = "$(printf 'in\na  b')" ]
hosts=$(in_region us ip -o -4 addr show dev wan0 | awk '{ print $4 }' | xargs)
check "regions have their host addresses" [ "$hosts" = "10.77.1.1/32 10.77.1.2/32 10.77.1.3/32" ]
ap=$(in_region us getent ahostsv4 ap | awk '{ print $1; exit }')
check "region names resolve" [ "$ap" = 10.77.3.1 ]
h2=$(in_region us getent ahostsv4 h2.eu | awk '{ print $1; exit }')
check "host names resolve" [ "$h2" = 10.77.2.2 ]
check "sysctls apply inside" \
    [ "$(in_region eu sysctl -n net.ipv4.tcp_congestion_control)" = reno ]
check "the host sees no device of a region" fails ip link show wan0
source=$(in_region us ip route get 10.77.2.1 | sed -n 's/.*src \([0-9.]*\).*/\1/p')
check "packets leave with the first address" [ "$source" = 10.77.1.1 ]
check "regions reach each other" reaches us eu
check "an address of the region that no host has is unreachable" fails reaches us 10.77.1.9
check "an address of no region is unreachable" fails reaches us 10.77.99.1

# ---------------------------------------------------------------- down, crash

settle() {
    "$wanem" exec us -- sh -c "echo settled >/proc/self/fd/$ready; exec sleep 1000" \
        >/dev/null 2>&1 &
    sleeper=$! # the sleeper itself: exec becomes it
    announced settled
}
settle
check "down" "$wanem" down
cp "$work/output" "$work/down"
check "down tells of processes that remain inside" grep -q '1 process left' "$work/down"
check "and spares them" kill -0 $sleeper
kill $sleeper
check "nothing is left" gone "$WANEM_INSTANCE"
check "the host is as before" [ "$host_before" = "$(host_state)" ]

"$wanem" up -f "$work/topology" >&$ready 2>"$work/log" & daemon=$!
check "comes up in the foreground" announced "$WANEM_INSTANCE is up"
check "down" "$wanem" down
wait $daemon
check "the daemon in the foreground ended well" [ $? = 0 ]

crash() { local daemon; daemon=$(pgrep -f "$wanem up") && kill -9 $daemon && ended $daemon; }
"$wanem" up "$work/topology"
settle
check "the daemon is killed" crash
check "its devices are gone" fails in_region us ip link show wan0
check "commands want the daemon" says 'is not up' "$wanem" show
check "up clears up after it" "$wanem" up "$work/topology"
cp "$work/output" "$work/up"
check "saying so" grep -q 'crashed; cleaning up' "$work/up"
check "and what remains inside" grep -q 'us: 1 process left without network' "$work/up"
check "it works" reaches us eu
kill $sleeper
settle
check "the daemon is killed again" crash
check "down -k clears up after it" "$wanem" down -k
wait $sleeper 2>/dev/null
check "and kills what ran inside" [ $? = 137 ]
check "leaving nothing" gone "$WANEM_INSTANCE"
killed_early() { # at each of many moments of coming up
    local moment daemon
    for moment in 001 002 003 005 007 010 013 017 021 026 032 040 050 070 100; do
        "$wanem" up -f "$work/topology" >/dev/null 2>&1 & daemon=$!
        sleep 0.$moment
        kill -9 $daemon
        wait $daemon 2>/dev/null
        "$wanem" down && gone "$WANEM_INSTANCE" || { echo "after 0.$moment s"; return 1; }
    done
}
check "killed while it comes up, it can be cleared up" killed_early

# ---------------------------------------------------------------- instances

side_by_side() { # four instances that come and go at the same time
    local round name pids status=0
    for round in 1 2 3; do
        for step in "up $work/topology" down; do
            pids=()
            for name in "$other"-{1..4}; do "$wanem" -n "$name" $step & pids+=($!); done
            for pid in "${pids[@]}"; do wait "$pid" || status=1; done
        done
    done
    for name in "$other"-{1..4}; do gone "$name" || status=1; done
    return $status
}
check "instances come and go side by side" side_by_side
at_once() { # of several that would make the same instance, one succeeds
    local pids=() made=0
    for _ in 1 2 3 4; do "$wanem" up "$work/topology" & pids+=($!); done
    for pid in "${pids[@]}"; do wait "$pid" && made=$((made + 1)); done
    [ $made = 1 ] && reaches us eu && "$wanem" down && gone "$WANEM_INSTANCE"
}
check "an instance is made only once" at_once

sed 's/\bap\b/alien/' "$work/topology" >"$work/clash"
ip netns add "$WANEM_INSTANCE-alien"
check "refuses a namespace that is there already" says 'File exists' "$wanem" up "$work/clash"
check "leaves that one" ip netns exec "$WANEM_INSTANCE-alien" true
check "and removes its own" [ ! -e "/run/netns/$WANEM_INSTANCE-us" ]
ip netns del "$WANEM_INSTANCE-alien"
check "comes up once it is gone" "$wanem" up "$work/clash"
daemon=$(pgrep -f "$wanem up")
check "down by a signal" kill "$daemon"
check "ends" ended "$daemon"
check "leaves nothing" gone "$WANEM_INSTANCE"
verdict
