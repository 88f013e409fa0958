"""Figures and their ceilings, measured alternately: a shared host's pace changes within minutes, so
a ceiling is measured while its pushes are sealed, and each figure is divided by its own."""
import json
import os
import signal
import subprocess
import sys
import time

HZ = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids):
    """Processor seconds of processes so far, in all their threads; one that has ended counts 0."""
    ticks = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / HZ


def idle_seconds():
    """Seconds of all processors since the start: idle, or waiting for a disk."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = file.readline().split()
    return (int(fields[4]) + int(fields[5])) / HZ


def settle(pids, patience=5.0):
    """Waits until these processes have next to nothing to do: a ceiling needs the processors."""
    end, before = time.monotonic() + patience, cpu_seconds(pids)
    while time.monotonic() < end:
        time.sleep(0.1)
        now = cpu_seconds(pids)
        if now - before <= 0.02:
            return
        before = now


class Ceilings:
    """Moves 64 MiB on request: by TLS 1.3 alone, and by our transport without any work.

    A process of its own that lives as long as the bench (bench_transport_grpc --turns 1)."""

    def __init__(self, build):
        program = os.path.join(build, "bench", "bench_transport_grpc")
        # pylint: disable-next=consider-using-with
        self.child = subprocess.Popen([program, "--turns", "1"], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.tls = []  # every figure of TLS alone, in GB/s

    def turn(self, way):
        """(TLS alone, the transport alone) in GB/s; `way`: push or pull."""
        self.child.stdin.write(way + "\n")
        self.child.stdin.flush()
        tls, grpc = (float(word) for word in self.child.stdout.readline().split())
        self.tls.append(tls)
        return tls, grpc

    def close(self):
        self.child.stdin.close()
        self.child.wait()


class Holding:
    """Stops the server while no push is under way, until frames are sealed, continues it, repeats.

    It waits for `group` frames, at most `patience` seconds: the last rounds of a run may have
    fewer. `turn()` is called just before each release; its results are in `turns`.
    """

    def __init__(self, group, patience, turn):
        self.group, self.patience, self.turn, self.run = group, patience, turn, None
        self.released, self.turns = [], []  # times and counts; their ceilings
        self.read = {}  # for each worker's log: its read size, and counts of events

    def count(self, event):
        """Count in all workers' logs; only new lines are read, because the pushes need the
        cores."""
        return sum(self.counts(worker).get(event, 0) for worker in self.run.workers)

    def counts(self, worker):
        at, found = self.read.get(worker, (0, {}))
        try:
            with open(os.path.join(self.run.dir, f"{worker}.log"), "rb") as file:
                file.seek(at)
                new = file.read()
        except OSError:
            return found  # no log yet
        whole = new.rfind(b"\n") + 1
        for line in new[:whole].split(b"\n"):
            event = line.partition(b'"event":"')[2].partition(b'"')[0].decode()
            found[event] = found.get(event, 0) + 1
        self.read[worker] = at + whole, found
        return found

    def wait(self, ready, patience=float("inf")):
        end = time.monotonic() + patience
        while self.run.child.poll() is None and time.monotonic() < end:
            if ready():
                return True
            time.sleep(0.02)
        return False

    def hold(self, decided):
        """Stops and continues the server once; gives the number of frames sealed meanwhile."""
        if self.count("push.cut") > decided:
            return 0  # too late: they are under way
        self.wait(lambda: self.count("push.made") >= decided + self.group, self.patience)
        sealed = self.count("push.made") - decided
        if sealed:
            settle([self.run.status(worker)["pid"] for worker in self.run.workers])
            self.turns.append(self.turn())
        return sealed

    def __call__(self, one):
        self.run, done = one, self.group  # the first pushes find everything cold
        while self.wait(lambda: self.count("push.cut") == self.count("push.decided") >= done):
            done = self.count("push.decided")
            server = one.status("s0")["pid"]
            os.kill(server, signal.SIGSTOP)
            try:
                sealed = self.hold(done)
            finally:
                released = time.monotonic()
                os.kill(server, signal.SIGCONT)
            if sealed:
                self.released.append((released, sealed))
            done += sealed or 1  # otherwise when the next push is through

    def spans(self, event, each=1):
        """(seconds, frames) from each release to the last of its frames' events, `each` a frame.

        None: not all of them came before the next one."""
        times = sorted(e["mono_us"] / 1e6 for worker in self.run.workers
                       for e in self.run.events[worker] if e["event"] == event and
                       (event != "record.folded" or e["text"].endswith("kind 1")))
        out, ends = [], [start for start, _ in self.released[1:]] + [float("inf")]
        for (start, sealed), after in zip(self.released, ends):
            own = [t for t in times if start < t < after][:sealed * each]
            out.append((own[-1] - start, sealed) if len(own) == sealed * each else None)
        return out

    def rates(self, frame_gb, *events, each=1):
        """(GB/s, its turn) of each release for whose frames all these events were logged."""
        spans = [self.spans(event, each) for event in events]
        for turn, found in zip(self.turns, zip(*spans)):
            if all(found):
                took, n = max(span[0] for span in found), found[0][1]
                yield n * each * frame_gb / took, turn


class Pushers:
    """Workers that only push, each a process of its own (bench_pusher), to shard 0 of a run."""

    def __init__(self, build, tool, one, count):
        secrets = os.path.join(one.dir, "secrets")
        with open(os.path.join(one.dir, "s0.yaml"), encoding="utf-8") as file:
            address = next(line.split(None, 1)[1] for line in file if line.startswith("listen:"))
        self.children = []
        for i in range(count):
            subprocess.run([tool, "certs", "issue", "--dir", secrets, "--run", "push", "--role",
                            "worker", "--region", "here", "--name", f"pusher-{i}", "--out",
                            secrets], check=True, stdout=subprocess.DEVNULL)
            # pylint: disable-next=consider-using-with
            self.children.append(subprocess.Popen(
                [os.path.join(build, "bench", "bench_pusher"),
                 *(os.path.join(secrets, name) for name in (
                     "ca.pem", f"pusher-{i}.pem", f"pusher-{i}.key", "job.keys")),
                 os.path.join(one.dir, "model.json"), "0", address.strip().strip('"')],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def tell(self, word, answer, children):
        """Sends the word to all of them, then reads all answers; gives the seconds until the
        last."""
        start = time.monotonic()
        for child in children:
            child.stdin.write(word + "\n")
            child.stdin.flush()
        for child in children:
            said = child.stdout.readline()
            if not said.startswith(answer):
                raise SystemExit(f"bench_pusher said {said!r} to {word!r}")
        return time.monotonic() - start

    def push(self, count):
        """Seconds from the sealed frames to the last durable answer."""
        pushing = self.children[:count]
        self.tell("seal", "sealed", pushing)
        settle([child.pid for child in pushing])
        return self.tell("push", "admitted", pushing)

    def close(self):
        for child in self.children:
            child.stdin.close()
        for child in self.children:
            child.wait()


RECEIVE = """
import socket, time
door = socket.create_server(("", 0))
print(door.getsockname()[1], flush=True)
stream, room, got = door.accept()[0], bytearray(1 << 20), 0
start = time.monotonic() + 4  # until BBR has found the rate
while (now := time.monotonic()) < start + 2:
    n = stream.recv_into(room)
    got += n if now >= start else 0
print(got / 2e9, flush=True)
"""
SEND = """
import socket, sys
stream, piece = socket.create_connection((sys.argv[1], int(sys.argv[2]))), bytes(1 << 20)
try:
    while True:
        stream.sendall(piece)
except OSError:
    pass
"""


class Line:
    """Plain TCP from `far` to `here` through a run's emulated link: the emulator's own rate."""

    def __init__(self, build, one):
        with open(os.path.join(one.dir, "links.json"), encoding="utf-8") as file:
            instance = json.load(file)["instance"]
        self.enter = [os.path.join(build, "deploy", "longhaul-wanem"), "-n", instance, "exec"]

    def turn(self):
        """GB/s of one flow, over two seconds once it has adapted to the link."""
        python = [sys.executable, "-c"]
        with subprocess.Popen([*self.enter, "here", "--", *python, RECEIVE],
                              stdout=subprocess.PIPE, text=True) as receiver:
            port = receiver.stdout.readline().strip()
            with subprocess.Popen([*self.enter, "far", "--", *python, SEND, "10.77.1.1", port]):
                return float(receiver.stdout.readline())
