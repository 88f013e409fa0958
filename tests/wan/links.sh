#!/bin/bash
# A link's delay, jitter, loss, rate and queue. ./links.sh PROGRAM
. "$(dirname "$0")/lib.sh"
check "comes up" "$wanem" up "$work/topology"

# ---------------------------------------------------------------- delay

"$wanem" reset
check "a region's own traffic stays inside" between 0 5 "$(rtt us h2.us 10)"
check "and crosses no link" [ "$(counter us eu offered_packets)" = 0 ]
check "round trip of 50 ms" between 49.8 54 "$(rtt us eu 20)"
check "of 25 + 30 - 20 / 2 ms, delays differing by direction" between 39.8 44 "$(rtt us ap 20)"
check "every host of a region is as far" between 49.8 54 "$(rtt us h2.eu 10)"
for ms in 1 150 300; do
    "$wanem" set us eu rtt=${ms}ms
    check "round trip of $ms ms, set at run time" \
        between "$(calc "$ms - 0.2")" "$((ms + 4))" "$(rtt us eu 20)"
done
check "links between other regions keep theirs" between 19.8 24 "$(rtt sa af 10)"

# ---------------------------------------------------------------- jitter

"$wanem" set all all rtt=40ms jitter=10ms
probe us eu 3000 1 100
check "jitter spreads the one-way delay" between 8 30 "$(calc "$high - $low")"
check "around its mean" between 17 28 "$mean"
check "but never below it by more than the jitter" between 9.8 15 "$least"
check "without reordering (of $count)" [ "$count $disorder" = "3000 0" ]
"$wanem" set us eu reorder=yes
probe us eu 2000 1 100
check "and with it on demand" between 200 2000 "$disorder"
"$wanem" set all all jitter=0ms reorder=no

# ---------------------------------------------------------------- loss

"$wanem" set us eu rtt=10ms loss=2%
"$wanem" reset
probe us eu 10000 0.2 200
check "2% loss of datagrams: arrived of 10000" between 9740 9860 "$count"
check "loss counter agrees" [ "$(counter us eu lost)" = $((10000 - count)) ]
"$wanem" reset
check "TCP carries 30 MB intact over 2% loss" transfer us eu 30000000
share=$(calc "100 * $(counter us eu lost) / $(counter us eu offered_packets)")
check "loss befalls single segments, not batches of them (share in %)" between 1.6 2.4 "$share"
"$wanem" set us eu loss=0% rate=50mbit queue=20kb jitter=2ms
check "TCP carries 10 MB intact over a short queue with jitter" transfer us eu 10000000
check "which overflowed" between 1 10000 "$(counter us eu overflowed)"

# ---------------------------------------------------------------- rate, queue

"$wanem" set all all rtt=20ms jitter=0ms rate=unlimited queue=50ms
"$wanem" reset
check "TCP carries 5 MB" transfer us ap 5000000
check "the counters show them" between 5000000 5600000 "$(counter us ap delivered_bytes)"
check "and nothing stays in flight" [ "$(counter us ap in_flight)" = 0 ]

"$wanem" reset
probe us ap 50 1 8000
check "datagrams above the MTU arrive" [ "$count $disorder" = "50 0" ]
check "as six fragments each" [ "$(counter us ap delivered_packets)" = 300 ]

"$wanem" set us eu rate=100mbit
check "100 Mbit/s with cubic" between 60 97.5 "$(throughput us eu cubic 2 4)"
if grep -qw bbr /proc/sys/net/ipv4/tcp_available_congestion_control; then
    check "100 Mbit/s with bbr" between 50 97.5 "$(throughput us eu bbr 2 4)"
else
    echo "NOT RUN 100 Mbit/s with bbr: this kernel has none"
fi
"$wanem" set us eu rate=10mbit queue=100ms
"$wanem" reset
probe us eu 3000 0.5 1250
check "an overloaded queue adds its 100 ms" between 108 125 "$median"
check "and no more" between 108 140 "$high"
check "and drops the rest: 20 Mbit/s offered to 10" between 1450 2400 "$count"
check "as its counter says" [ "$(counter us eu overflowed)" = $((3000 - count)) ]
check "the wire takes 1.022 ms for a packet of 1278 bytes" between 0.9 1.3 "$gap"
"$wanem" set us eu queue=12780b
probe us eu 1000 0.5 1250
check "a queue of ten packets adds their 10 ms" between 19 35 "$median"
check "and no more" between 19 50 "$high"
"$wanem" set us to eu rate=unlimited
check "limits differ by direction: out" between 30 100000 "$(throughput us eu reno 0 2)"
check "limits differ by direction: back" between 2 10 "$(throughput eu us reno 0 3)"
check "goes down" "$wanem" down
verdict
