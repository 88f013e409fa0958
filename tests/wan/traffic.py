#!/usr/bin/env python3
"""Traffic for the tests of the emulator: traffic.py MODE ARGUMENTS, inside a region.

The receiving kernel timestamps packets, so that busy processors change no result. A server
announces its port on the descriptor in $READY once it listens. Python 3.9, standard library.
"""
import hashlib
import os
import select
import socket
import struct
import sys
import threading
import time

TIMESTAMPS, FORCE_RECEIVE_BUFFER = 35, 33  # SO_TIMESTAMPNS, SO_RCVBUFFORCE
FRAME = struct.Struct("!IBI")  # length, kind, number


def announce(word):
    os.write(int(os.environ["READY"]), f"{word}\n".encode())


def pattern(size):
    return hashlib.shake_256(b"wanem").digest(size)


def serve(port):
    server = socket.create_server(("", int(port)))
    announce(port)
    return server


def accept(port):
    with serve(port) as server:
        return server.accept()[0]


def be_prompt():
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def arrival(notes):
    """Returns when the kernel received a packet, in ns."""
    seconds, nanoseconds = struct.unpack("qq", notes[0][2])
    return seconds * 10**9 + nanoseconds


def read_exactly(connection, size):
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def echo_request(mark, number):
    total = 0x800 + mark + number
    check = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return struct.pack("!BBHHH", 8, 0, check, mark, number)


def ping(host, count, interval, timeout):
    """Prints the round-trip times in ms; fails if no answer comes."""
    be_prompt()
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    raw.setsockopt(socket.SOL_SOCKET, TIMESTAMPS, 1)
    host, count = socket.gethostbyname(host), int(count)
    interval, timeout = float(interval), float(timeout)
    sent, answered, mark, start = {}, 0, os.getpid() & 0xFFFF, time.monotonic()
    while answered < count:
        number = len(sent)
        last = start + (count - 1) * interval + timeout
        due = start + number * interval if number < count else last
        if select.select([raw], [], [], max(0, due - time.monotonic()))[0]:
            data, notes, _, _ = raw.recvmsg(1500, 200)
            kind, code, _, whose, number = struct.unpack("!BBHHH", data[20:28])
            if (kind, code, whose) == (0, 0, mark) and number in sent:
                print((arrival(notes) - sent[number]) / 1e6)
                answered += 1
        elif number < count:
            sent[number] = time.time_ns()
            raw.sendto(echo_request(mark, number), (host, 0))
        else:
            break
    sys.exit(answered == 0)


def receive(port):
    """Prints the digest of the bytes of one TCP connection."""
    connection, digest = accept(port), hashlib.sha256()
    while data := connection.recv(1 << 20):
        digest.update(data)
    print(digest.hexdigest())


def digest(size):
    """Prints the digest that `receive` should print."""
    print(hashlib.sha256(pattern(int(size))).hexdigest())


def send(host, port, size):
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(pattern(int(size)))


def measure(port, skip, seconds):
    """Prints the Mbit/s of one TCP connection after the first seconds."""
    connection = accept(port)
    start = time.monotonic() + float(skip)
    end, begun, received, now = start + float(seconds), None, 0, 0.0
    while (now := time.monotonic()) < end:
        size = len(connection.recv(1 << 20))
        if now < start:
            begun = None
        elif begun is None:
            begun = now
        else:
            received += size
    print(received * 8e-6 / (now - begun))


def flood(host, port, control):
    """Sends until the receiver closes the connection."""
    with socket.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        connection.connect((host, int(port)))
        try:
            while True:
                connection.sendall(bytes(1 << 17))
        except ConnectionError:
            pass


def collect(port, count):
    """Reads that many TCP connections to their ends."""
    with serve(port) as server:
        connections = [server.accept()[0] for _ in range(int(count))]
        while connections:
            for connection in select.select(connections, [], [])[0]:
                if not connection.recv(1 << 20):
                    connections.remove(connection)


def scatter(host, port, count, size, seconds):
    """Sends on that many TCP connections, evenly over time."""
    connections = [socket.create_connection((host, int(port))) for _ in range(int(count))]
    start, parts = time.monotonic(), 50
    for part in range(parts):
        time.sleep(max(0, start + part * float(seconds) / parts - time.monotonic()))
        for connection in connections:
            connection.sendall(bytes(int(size) // parts))


def sink(port):
    """Prints figures of UDP probes: count, out of order; minimum, 5th percentile, median, 95th
    percentile, maximum and mean one-way ms; median ms between arrivals."""
    be_prompt()
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, FORCE_RECEIVE_BUFFER, 64 << 20)
    udp.setsockopt(socket.SOL_SOCKET, TIMESTAMPS, 1)
    udp.bind(("", int(port)))
    announce(port)
    udp.settimeout(20)
    times, arrivals, last, disorder = [], [], -1, 0
    try:
        while True:
            data, notes, _, _ = udp.recvmsg(9000, 200)
            number, sent = data[:40].split()[:2]
            udp.settimeout(1.5)
            arrivals.append(arrival(notes))
            times.append((arrivals[-1] - int(sent)) / 1e6)
            disorder += int(number) < last
            last = max(last, int(number))
    except TimeoutError:
        gaps = sorted(b - a for a, b in zip(arrivals, arrivals[1:]))
        times.sort()
        n = len(times)
        print(n, disorder, times[0], times[n // 20], times[n // 2], times[n - 1 - n // 20],
              times[-1], sum(times) / n, gaps[len(gaps) // 2] / 1e6)


def probe(host, port, count, interval_ms, size):
    be_prompt()
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    start = time.monotonic_ns()
    for number in range(int(count)):
        due = start + int(number * float(interval_ms) * 1e6)
        while (left := due - time.monotonic_ns()) > 0:
            time.sleep(left / 1e9)
        text = f"{number} {time.time_ns()} ".encode()
        udp.sendto(text.ljust(int(size), b"."), (host, int(port)))


def calls(port):
    """Answers each frame of a connection with the same number and 32 bytes, or 16 KiB to a push."""
    connection = accept(port)
    try:
        while True:
            size, kind, number = FRAME.unpack(read_exactly(connection, FRAME.size))
            answer = hashlib.sha256(read_exactly(connection, size)).digest()
            answer = answer if kind == 0 else answer * 512
            connection.sendall(FRAME.pack(len(answer), kind, number) + answer)
    except EOFError:
        pass


def send_calls(connection, enough, waiting, lock):
    """Sends calls of 200 bytes until the file exists; every tenth is a push of 200 kB."""
    number, data = 0, pattern(200000)
    while not os.path.exists(enough):
        kind = int(number % 10 == 9)
        body = data if kind else data[number % 1000:number % 1000 + 200]
        with lock:
            waiting.append((kind, number, hashlib.sha256(body).digest()))
        connection.sendall(FRAME.pack(len(body), kind, number) + body)
        number += 1
        time.sleep(0.02)
    connection.shutdown(socket.SHUT_WR)


def call(host, port, enough):
    """Prints how many calls and pushes were answered; asserts that all were in order and intact."""
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    waiting, lock, answered = [], threading.Lock(), [0, 0]
    sender = threading.Thread(target=send_calls, args=(connection, enough, waiting, lock))
    sender.start()
    announce("calling")
    try:
        while True:
            size, kind, number = FRAME.unpack(read_exactly(connection, FRAME.size))
            answer = read_exactly(connection, size)
            with lock:
                expected = waiting.pop(0)
            assert expected == (kind, number, answer[:32]), (expected, kind, number)
            answered[kind] += 1
    except EOFError:
        pass
    sender.join()
    assert not waiting, len(waiting)
    print(*answered)


MODES = (ping, receive, digest, send, measure, flood, collect, scatter, sink, probe, calls, call)

if __name__ == "__main__":
    {mode.__name__: mode for mode in MODES}[sys.argv[1]](*sys.argv[2:])
