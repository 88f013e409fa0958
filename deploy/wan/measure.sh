#!/bin/bash
# Measures the emulator and prints the tables behind README.md's figures. Needs root, iproute2,
# ping, iperf3 and python3; takes about 40 minutes on an idle machine.
# ./measure.sh PROGRAM [PART...]: the built longhaul-wanem, then only the named parts of
# rtt throughput buffers loss queue packets mesh cut.
program=$(realpath "${1:-none}")
shift
[ -x "$program" ] || { echo "usage: measure.sh PROGRAM [PART...]"; exit 2; }
work=$(mktemp -d)
for tool in ip ping iperf3 python3; do
    command -v $tool >/dev/null || { echo "measure.sh needs $tool"; exit 1; }
done
export WANEM_INSTANCE=m$$
wanem=$work/wanem
trap '"$wanem" down -k 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cp "$program" "$wanem" || exit 1 # of our own, so that pgrep finds no other's

in_region() { "$wanem" exec "$1" -- timeout 200 "${@:2}"; }
# FUNCTION COUNTER: sum or max of a counter over all links.
over_links() {
    "$wanem" stats -j | python3 -c '
import json, sys
counter = sys.argv[2]
print({"sum": sum, "max": max}[sys.argv[1]](json.loads(line)[counter] for line in sys.stdin))
' "$1" "$2"
}
total() { over_links sum "$1"; }
worst() { over_links max "$1"; }
cpu_ns() { awk '{ print $1 }' "/proc/$(pgrep -f "$wanem up")/schedstat"; }
calc() { awk "BEGIN { printf \"%.${2:-1}f\", $1 }"; }
# Reads numbers; prints "median (least to most)".
spread() {
    sort -n | awk '{ v[NR] = $1 }
        END { printf "%s (%s to %s)", v[int((NR + 1) / 2)], v[1], v[NR] }'
}
up() { printf '%b' "$1" >"$work/topology"; "$wanem" up "$work/topology"; }
# A socket that begins with bbr goes on pacing under cubic; so begin with reno.
reno='sysctl net.ipv4.tcp_congestion_control=reno\n'
two="region a\nregion b\n$reno"

port=5000
# One TCP flow from a to b: congestion control, seconds to skip, seconds to measure. Prints Mbit/s
# and daemon CPU s/Gbit.
flow() {
    port=$((port + 1))
    "$wanem" reset
    in_region b iperf3 -s -1 -p $port >/dev/null &
    sleep 0.3
    local cpu
    cpu=$(cpu_ns)
    in_region a iperf3 -c b -p $port -C "$1" -O "$2" -t "$3" -J >"$work/flow"
    cpu=$(($(cpu_ns) - cpu))
    wait $!
    python3 - "$cpu" "$(total delivered_bytes)" "$work/flow" <<'PYTHON'
import json, sys
rate = json.load(open(sys.argv[3]))["end"]["sum_received"]["bits_per_second"] / 1e6
print(f"{rate:.0f} {int(sys.argv[1]) / int(sys.argv[2]) / 8:.3f}")
PYTHON
}

# Prints the error of a round-trip time in µs for each of so many pings (ping(8) rounds to 1 ms
# above 100 ms).
cat >"$work/ping.py" <<'PYTHON'
import os, socket, struct, sys, time
# so as to measure the link and not the waiting for a processor
os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
host, count, interval, rtt = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
ping = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
ping.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS: the kernel tells when a packet arrived
ping.settimeout(3)
for number in range(count):
    packet = struct.pack("!BBHHH", 8, 0, 0, 7, number)
    total = sum(struct.unpack("!4H", packet))
    packet = struct.pack("!BBHHH", 8, 0, ~((total & 0xffff) + (total >> 16)) & 0xffff, 7, number)
    sent = time.clock_gettime_ns(time.CLOCK_REALTIME)
    ping.sendto(packet, (host, 0))
    while True:
        data, notes, _, _ = ping.recvmsg(1500, 200)
        if struct.unpack("!BBHHH", data[20:28])[::4] == (0, number):
            break
    seconds, nanoseconds = struct.unpack("qq", notes[0][2])
    print((seconds * 10**9 + nanoseconds - sent) / 1e3 - rtt * 1e3)
    time.sleep(interval)
PYTHON

rtt() {
    echo "### Error of the round-trip time, in µs"
    echo
    echo "| RTT (ms) | processors | median | least | 99th percentile | most |"
    echo "|---|---|---|---|---|---|"
    up "$two"
    for load in idle busy; do
        [ $load = busy ] && for _ in 1 2 3; do timeout 350 sh -c 'while :; do :; done' & done
        for ms in 0 1 50 150 300; do
            "$wanem" set a b rtt=${ms}ms
            count=$((ms > 100 ? 100 : 300))
            in_region a python3 "$work/ping.py" 10.77.2.1 $count 0.02 $ms | sort -n |
                awk -v ms=$ms -v load=$load '{ v[NR] = $1 } END {
                    printf "| %d | %s | %.0f | %.0f | %.0f | %.0f |\n",
                        ms, load, v[int(NR / 2)], v[1], v[int(NR * .99)], v[NR] }'
        done
    done
    kill $(jobs -p) 2>/dev/null
    wait 2>/dev/null
    "$wanem" down
    echo
}

throughput() {
    echo "### One TCP flow: goodput in Mbit/s, median of 3 (range); daemon CPU in s/Gbit"
    echo
    echo "| rate | RTT (ms) | cubic | CPU | bbr | CPU |"
    echo "|---|---|---|---|---|---|"
    up "$two"
    for rate in 100mbit 1gbit unlimited; do
        for ms in 0 50 150 300; do
            "$wanem" set a b rtt=${ms}ms rate=$rate
            row="| $rate | $ms |"
            for control in cubic bbr; do
                for _ in 1 2 3; do flow $control $((2 + ms / 30)) 6; done >"$work/runs"
                row="$row $(awk '{ print $1 }' "$work/runs" | spread) |"
                row="$row $(awk '{ print $2 }' "$work/runs" | sort -n | sed -n 2p) |"
            done
            echo "$row"
        done
    done
    "$wanem" down
    echo
}

buffers() {
    echo "### Greatest socket buffers and one TCP flow over 1 Gbit/s, 300 ms: goodput in Mbit/s"
    echo
    echo "| tcp_rmem max | tcp_wmem max | cubic | bbr |"
    echo "|---|---|---|---|"
    for sizes in "6291456 4194304" "33554432 4194304" "67108864 67108864" \
        "134217728 134217728" "268435456 268435456"; do
        read -r receive send <<<"$sizes"
        memory="sysctl net.ipv4.tcp_rmem=4096 131072 $receive\n"
        memory="${memory}sysctl net.ipv4.tcp_wmem=4096 16384 $send\n"
        up "$two${memory}link a b rtt=300ms rate=1gbit\n"
        row="| $((receive >> 20)) MiB | $((send >> 20)) MiB |"
        for control in cubic bbr; do
            for _ in 1 2 3; do flow $control 12 6; done >"$work/runs"
            row="$row $(awk '{ print $1 }' "$work/runs" | spread) |"
        done
        echo "$row"
        "$wanem" down
    done
    echo
}

loss() {
    echo "### Loss: share of packets lost, in %; one TCP flow, 1 Gbit/s, 50 ms"
    echo
    echo "| configured | UDP, 100000 packets | cubic flow | its goodput | bbr flow | its goodput |"
    echo "|---|---|---|---|---|---|"
    up "${two}link a b rtt=50ms rate=1gbit\n"
    share() {
        "$wanem" stats -j | python3 -c '
import json, sys
link = json.loads(sys.stdin.readline())
offered = link["offered_packets"]
print("%.3f of %d" % (100 * link["lost"] / offered, offered))
'
    }
    for percent in 0.01 0.1 1 5; do
        "$wanem" set a to b loss=$percent%
        "$wanem" reset
        port=$((port + 1))
        in_region b iperf3 -s -1 -p $port >/dev/null &
        sleep 0.3
        in_region a iperf3 -c b -p $port -u -b 160M -l 1000 -k 100000 >/dev/null
        wait $!
        row="| $percent | $(share) |"
        for control in cubic bbr; do
            goodput=$(flow $control 4 8 | awk '{ print $1 }')
            row="$row $(share) | $goodput |"
        done
        echo "$row"
    done
    "$wanem" down
    echo
}

queue() {
    echo "### Rate and queue under UDP overload (RTT 20 ms)"
    echo
    echo "| rate | queue | offered Mbit/s | delivered Mbit/s (IP) |" \
        "ping during overload (ms), median and most |"
    echo "|---|---|---|---|---|"
    up "${two}link a b rtt=20ms\n"
    while read -r rate queue offered; do
        "$wanem" set a b rate=$rate queue=$queue
        port=$((port + 1))
        in_region b iperf3 -s -1 -p $port >/dev/null &
        sleep 0.3
        in_region a iperf3 -c b -p $port -u -b "$offered" -l 1400 -t 6 >/dev/null &
        sleep 1.5
        "$wanem" reset
        start=$(date +%s%N)
        in_region a ping -n -i 0.02 -c 150 b | sed -n 's/.*time=\([0-9.]*\) ms/\1/p' | sort -n |
            awk '{ v[NR] = $1 } END {
                printf "%.1f, %.1f (%d of 150 answered)", v[int((NR + 1) / 2)], v[NR], NR
            }' >"$work/ping"
        bytes=$("$wanem" stats -j | sed -n 's/.*"from":"a".*"delivered_bytes":\([0-9]*\).*/\1/p')
        took=$(($(date +%s%N) - start))
        wait
        delivered=$(calc "$bytes * 8000 / $took" 2)
        echo "| $rate | $queue | ${offered%M} | $delivered | $(cat "$work/ping") |"
    done <<<'10mbit 50ms 20M
100mbit 10ms 150M
100mbit 50ms 150M
100mbit 125kb 150M'
    "$wanem" down
    echo
}

packets() {
    echo "### Small packets, no rate limit, RTT 50 ms"
    echo
    up "${two}link a b rtt=50ms\n"
    "$wanem" reset
    in_region b iperf3 -s -1 -p 5900 >/dev/null &
    sleep 0.3
    cpu=$(cpu_ns)
    in_region a iperf3 -c b -p 5900 -u -b 0 -l 100 -t 5 >/dev/null
    cpu=$(($(cpu_ns) - cpu))
    delivered=$(total delivered_packets)
    lost=$("$wanem" exec a -- ip -s link show wan0 | awk '/TX:/ { getline; print $4 }')
    echo "UDP flood of 100-byte datagrams for 5 s:" \
        "$(calc "$delivered / 5000" 0) thousand packets/s crossed," \
        "$(calc "$cpu / $delivered / 1000" 2) µs of daemon CPU each;"
    echo "lost before the daemon: $lost packets."
    wait
    cat >"$work/echo.py" <<'PYTHON'
import asyncio, sys, time
async def echo(reader, writer):
    while data := await reader.read(4096):
        writer.write(data)
async def serve():
    async with await asyncio.start_server(echo, "", 5901) as server:
        await server.serve_forever()
async def client(host, times, seconds):
    reader, writer = await asyncio.open_connection(host, 5901)
    end = time.monotonic() + seconds
    while (start := time.monotonic()) < end:
        writer.write(b"x" * 200)
        await reader.readexactly(200)
        times.append(time.monotonic() - start)
    writer.close()
async def load(host, connections):
    times = []
    await asyncio.gather(*(client(host, times, 5) for _ in range(connections)))
    times.sort()
    print("%d round trips of 200 bytes in 5 s; %.2f ms median, %.2f ms 99th percentile" %
          (len(times), 1e3 * times[len(times) // 2], 1e3 * times[int(len(times) * .99)]))
asyncio.run(serve() if sys.argv[1] == "serve" else load(sys.argv[2], int(sys.argv[3])))
PYTHON
    in_region b python3 "$work/echo.py" serve & server=$!
    sleep 0.5
    for connections in 1 100; do
        "$wanem" reset
        cpu=$(cpu_ns)
        echo -n "Requests over $connections TCP connections: "
        in_region a python3 "$work/echo.py" load b $connections | tr '\n' ';'
        cpu=$(($(cpu_ns) - cpu))
        delivered=$(total delivered_packets)
        echo " $delivered packets, $(calc "$cpu / $delivered / 1000" 2) µs of daemon CPU each."
    done
    kill $server
    "$wanem" down -k 2>/dev/null
    wait 2>/dev/null
    echo
}

# One row: rate of each of the 20 links, tcp_min_tso_segs.
mesh_at() {
    local n=0 pids=()
    five="region r1\nregion r2\nregion r3\nregion r4\nregion r5\n$reno"
    up "${five}sysctl net.ipv4.tcp_min_tso_segs=$2\nlink all all rtt=100ms rate=$1\n"
    for from in 1 2 3 4 5; do
        for to in 1 2 3 4 5; do
            [ $from = $to ] && continue
            n=$((n + 1))
            in_region r$to iperf3 -s -1 -p $((8000 + n)) >/dev/null &
        done
    done
    sleep 1
    n=0
    for from in 1 2 3 4 5; do
        for to in 1 2 3 4 5; do
            [ $from = $to ] && continue
            n=$((n + 1))
            in_region r$from iperf3 -c r$to -p $((8000 + n)) -C cubic -P $((2 + n % 2)) \
                -O 6 -t 10 -J >"$work/mesh$n" &
            pids+=($!)
        done
    done
    sleep 7
    "$wanem" reset
    cpu=$(cpu_ns)
    sleep 8
    cpu=$(($(cpu_ns) - cpu))
    late="$(worst late_avg_us) $(worst late_max_us)"
    wait "${pids[@]}"
    python3 - $1 $2 $cpu $late "$work"/mesh* <<'PYTHON'
import json, sys
cpu, late_avg, late_max = map(float, sys.argv[3:6])
ends = [json.load(open(name))["end"] for name in sys.argv[6:]]
rates = sorted(end["sum_received"]["bits_per_second"] / 1e6 for end in ends)
assert sum(len(end["streams"]) for end in ends) == 50
print("| %s | %s | %.1f (%.1f to %.1f) | %.0f | %.0f%% | %.2f | %.1f |" %
      (sys.argv[1], sys.argv[2], rates[10], rates[0], rates[-1], sum(rates), cpu / 8e7,
       late_avg / 1e3, late_max / 1e3))
PYTHON
    "$wanem" down -k 2>/dev/null
    wait 2>/dev/null
}
mesh() {
    echo "### Five regions, full mesh, RTT 100 ms, 50 concurrent cubic flows"
    echo
    echo "| rate of each link | tcp_min_tso_segs | goodput per link, Mbit/s: median (range) |" \
        "of all | daemon's share of a processor |" \
        "lateness of packets on the worst link: mean, ms | most, ms |"
    echo "|---|---|---|---|---|---|---|"
    mesh_at 10mbit 2
    mesh_at 50mbit 2
    mesh_at 100mbit 2
    mesh_at 100mbit 8
    echo
}

cut() {
    echo "### A TCP stream across a cut (RTT 100 ms, 100 Mbit/s)"
    echo
    echo "| cut for (s) | silence at the receiver (s), 3 runs |"
    echo "|---|---|"
    cat >"$work/stream.py" <<'PYTHON'
import socket, sys, time
if sys.argv[1] == "receive":
    with socket.create_server(("", int(sys.argv[2]))) as server:
        connection = server.accept()[0]
        last, silence = time.monotonic(), 0
        while connection.recv(1 << 20):
            now = time.monotonic()
            silence, last = max(silence, now - last), now
        print("%.2f" % silence)
else:
    with socket.create_connection((sys.argv[2], int(sys.argv[3]))) as connection:
        end = time.monotonic() + float(sys.argv[4])
        while time.monotonic() < end:
            connection.sendall(bytes(10000))
PYTHON
    up "${two}link a b rtt=100ms rate=100mbit\n"
    for seconds in 0.1 0.5 1 5 20; do
        : >"$work/silences"
        for _ in 1 2 3; do
            port=$((port + 1))
            in_region b python3 "$work/stream.py" receive $port >>"$work/silences" & receiver=$!
            sleep 0.4
            length=$(calc "3 + 2.5 * $seconds + 1")
            in_region a python3 "$work/stream.py" send b $port "$length" & sender=$!
            sleep 2
            "$wanem" cut a b
            sleep "$seconds"
            "$wanem" heal a b
            wait $sender $receiver
        done
        echo "| $seconds | $(xargs <"$work/silences") |"
    done
    "$wanem" down
    echo
}

for part in "${@:-rtt throughput buffers loss queue packets mesh cut}"; do
    for name in $part; do "$name"; done
done
