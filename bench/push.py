#!/usr/bin/env python3
"""How fast is a durable push? `bench/run.sh push [--json FILE]`.

Real programs under mutual TLS, a synthetic trainer (`trainer.kind`), shards of 17 million
parameters pushed as `dense-fp32`, 69 MB each, one worker unless the row says otherwise.

- `push.durable.*`: four shards of one server. The server is stopped (SIGSTOP) until the frames of
  all four lie sealed in the outbox, then goes on: from there to the last durable acknowledgement
  and fold, at the server and in the worker's replica.
- `push.alone.*`: one such push at a time, from its sealed frame to the same, and the share of every
  stage by the debug events of both logs.
- `push.memory.*`: as `push.durable.*`, with log and outbox in a memory file system (/dev/shm): what
  the software takes where no disk is waited for.
- `push.memory.mtls.8workers`, and `push.durable.*` with the part `many` (minutes): eight workers on
  one shard, which cut together (BSP), the server stopped and let go in the same way, to the last
  acknowledgement; `.moved` counts what the seven others were sent of each push, too.
- `push.link.*`: pushes one after the other over an emulated link (root and /dev/net/tun).
- `push.snapshot.mtls`: a worker that lost its replica joins again, from its request to the loaded
  state; `.first` is a run's first join, whose server has just started.

Ceilings, measured just before each part: one stream of TLS 1.3 over loopback by OpenSSL alone, and
a write and fdatasync of a file of the same size, which `.of_disk` rows stand beside. Needs 12 GB of
memory and of disk, and 8 GB of /dev/shm for `push.memory.*`.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import live  # noqa: E402
import report  # noqa: E402

SHARDS = 4
JOINS = 4  # `longhaul up` gives a worker up that ends six times in a row
IN_MEMORY = "/dev/shm"
MEMORY_BYTES = 8 << 30
RTT_MS, MBIT, NEAR = 150, 1000, 0.02
SHAPES = {  # of one shard, of SHARDS of them
    "full": ("{dim: 512, layers: 5, heads: 8, kv_heads: 8, ffn: 1536, context: 64}",
             "{dim: 1024, layers: 5, heads: 8, kv_heads: 8, ffn: 3072, context: 64}"),
    "tiny": ("{dim: 32, layers: 2, heads: 2, kv_heads: 2, ffn: 64, context: 64}",
             "{dim: 64, layers: 2, heads: 2, kv_heads: 2, ffn: 128, context: 64}"),
}
TOPOLOGY = """run: push
budget_tokens: {budget}
tokens_per_s: {speed}
model: {shape}
coordinator: {{region: here}}
servers:
  - {{name: s0, region: here, shards: {shards}}}
regions: {{here: {{h: 1, speed: {near}, workers: {workers}}}{far}}}
link: {{rtt_ms: {rtt}, mbit: {mbit}}}
server:
  update.mode: {mode}
  checkpoint.every_versions: 100000
  checkpoint.replay_ms: 0
  log: {{level: debug, format: json}}
worker:
  codec: {{name: {codec}}}
  trainer: {{kind: synthetic, learning_rate: 0.001, batch: 4}}
  data: {{window: 1, prefetch: 2}}
  seal.cipher: {cipher}
  replica.every_versions: 100000
  snapshot.every_rounds: 100000
  log: {{level: debug, format: json}}
"""
STAGES = (  # of a lone push: what ends at which event, in whose log
    ("connect", "s0", "push.begun"), ("receive", "s0", "push.received"),
    ("open", "s0", "push.opened"), ("decide", "s0", "group.made"),
    ("log", "s0", "group.synced"), ("fold", "s0", "group.done"),
    ("answer", "here-0", "push.decided"), ("follow", "here-0", "record.folded"),
)


def run(tool, folder, name, pause, rounds, workers=1, shards=1, shape="full", cipher="xchacha20",
        codec="dense-fp32", far=False, mode="async", **more):
    """`far`: one worker, behind the link; the one beside the server does next to nothing."""
    text = TOPOLOGY.format(
        budget=workers * live.TOKENS * rounds, shape=SHAPES[shape][shards > 1], cipher=cipher,
        speed=workers * live.TOKENS / pause, workers=workers, codec=codec, mode=mode,
        shards=list(range(shards)), near=NEAR if far else 1,
        far=", far: {h: 1}" if far else "", rtt=RTT_MS, mbit=MBIT)
    names = ["far-0"] if far else [f"here-{i}" for i in range(workers)]
    return live.Run(tool, folder, name, text, names, *(() if far else ("--no-wan",)), **more)


def pushes(one, worker, until):
    """Seconds of each of a worker's pushes, from `push.made` to the last event of `until`."""
    ends = [one.times(event, [worker]) for event in until]
    made = one.times("push.made", [worker])
    out = []
    for start, after in zip(made, made[1:] + [float("inf")]):
        reached = [min((t for t in times if start < t < after), default=None) for times in ends]
        if None not in reached:
            out.append(max(reached) - start)
    return out


class Holding:
    """Stops the server while nothing is under way, until frames lie sealed, lets it go, again.

    `group` frames are waited for, `patience` seconds at most: the last rounds of a run may have
    fewer.
    """

    def __init__(self, group, patience):
        self.group, self.patience, self.run = group, patience, None
        self.released = []  # when, how many
        self.read = {}  # of each worker's log: how far, and how often which event

    def count(self, event):
        """In all workers' logs; only what is new is read, for the pushes need the cores."""
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
        """Between a stop and its end; how many frames were sealed meanwhile."""
        if self.count("push.cut") > decided:
            return 0  # too late: they are under way
        self.wait(lambda: self.count("push.made") >= decided + self.group, self.patience)
        return self.count("push.made") - decided

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
            done += sealed or 1  # else when the next one is through

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


def held(tool, folder, name, pause, rounds, **shape):
    """A run whose pushes wait sealed, and what held them."""
    holding = Holding(shape.get("workers", 1) * shape.get("shards", 1), 2 * pause)
    one = run(tool, folder, name, pause, rounds + 2, during=holding, **shape)
    if not any(holding.spans("push.decided")):
        raise SystemExit(f"{name}: no group of pushes was held and let go")
    return one, holding


def stages(one):
    """Median seconds of each stage of a lone push."""
    events = {node: [(e["mono_us"] / 1e6, e["event"]) for e in one.log(node)]
              for node in ("s0", "here-0")}
    took = {name: [] for name, _, _ in STAGES}
    for start in one.times("push.made", ["here-0"])[1:]:
        at, found = start, {}
        for name, node, event in STAGES:
            after = [t for t, kind in events[node] if kind == event and t > start]
            if not after:
                break
            found[name] = max(0.0, after[0] - at)
            at = max(at, after[0])
        if len(found) == len(took):
            for name, seconds in found.items():
                took[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in took.items() if seconds}


def tls_alone(build, folder):
    """GB/s of one stream of TLS 1.3 over loopback: push and pull."""
    path = os.path.join(folder, "transport.json")
    subprocess.run([os.path.join(build, "bench", "bench_transport_grpc"), "--json", path],
                   check=True, stdout=subprocess.DEVNULL)
    with open(path, encoding="utf-8") as file:
        rows = {row["name"]: row for row in json.load(file)["rows"]}
    return [rows[f"transport.{way}.64mib"]["against_value"] for way in ("push", "pull")]


def disk_alone(folder, size):
    """GB/s of a write and fdatasync into a file whose room is allocated, as a log's is."""
    path, bytes_, out = os.path.join(folder, "disk"), os.urandom(1 << 20) * (size >> 20), []
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(fd, 0, 5 * len(bytes_))
        os.fsync(fd)
        for i in range(5):
            start = time.monotonic()
            os.pwrite(fd, bytes_, i * len(bytes_))
            os.fdatasync(fd)
            out.append(len(bytes_) / (time.monotonic() - start) / 1e9)
    finally:
        os.close(fd)
        os.unlink(path)
    return out


class Rejoining:
    """Kills a worker and takes its replica's copies away, so that it joins by a snapshot, again."""

    def __init__(self, count):
        self.count = count

    def lose_replica(self, one):
        worker = one.status("here-0")["pid"]
        os.kill(worker, signal.SIGSTOP)  # else it might write one meanwhile
        copies = os.path.join(one.dir, "here-0", "replica")
        for name in os.listdir(copies):
            os.unlink(os.path.join(copies, name))
        os.kill(worker, signal.SIGKILL)

    def __call__(self, one):
        tail = live.Tail(one, "here-0")
        tail.next("push.decided", 0)
        for _ in range(self.count):
            tail.wait("hello.answer", 1, lambda: self.lose_replica(one))
            time.sleep(1)  # until what it does after a start is done


def snapshot_seconds(one):
    """Of each join, from its request to the loaded state."""
    asked, loaded = one.times("snapshot.asked"), one.times("replica.snapshot")
    ends = [min((t for t in loaded if t > start), default=None) for start in asked]
    again = asked[1:] + [float("inf")]
    return [end - start for start, end, after in zip(asked, ends, again) if end and end < after]


def measure_snapshots(out, tool, folder, flags, tls):
    pause = 12 if flags.shape == "full" else 4
    one = run(tool, folder, "joins", pause, 3, shape=flags.shape, during=Rejoining(JOINS))
    size = one.summary["model"]["parameters"] * 4 / 1e9
    again = [size / s for s in snapshot_seconds(one)[1:]]
    if len(again) < JOINS:
        raise SystemExit(f"joins: only {len(again)} of {JOINS} joins are in the log")
    out.row("push.snapshot.mtls", "GB/s", again, *tls["pull"])
    shutil.rmtree(one.dir)


def peak_rows(out, one, name):
    """Peaks against what they may be at most: 4 bytes a parameter and 256 MiB at the server."""
    parameters = one.summary["model"]["parameters"]
    peak = one.status("s0")["peak_bytes"]
    out.row(f"push.server.{name}.peak_bytes", "B", [peak], "4 bytes a parameter + 256 MiB",
            4 * parameters + (256 << 20))
    peak = max(one.status(worker)["peak_bytes"] for worker in one.workers)
    out.row(f"push.worker.{name}.peak_bytes_per_parameter", "B", [peak / parameters])


def measure_alone(out, tool, folder, flags, tls):
    one = run(tool, folder, "alone", 1.5 if flags.shape == "full" else 0.2, flags.pushes + 2,
              shape=flags.shape)
    size = one.summary["model"]["parameters"] * 4 / 1e9
    took = pushes(one, "here-0", ("push.decided", "record.folded"))[1:]
    out.row("push.alone.mtls.xchacha20", "GB/s", [size / s for s in took], *tls["push"])
    for name, seconds in stages(one).items():
        out.row(f"push.alone.stage.{name}", "s", [seconds], "the whole push",
                statistics.median(took))
    out.row("push.snapshot.mtls.first", "GB/s", [size / s for s in snapshot_seconds(one)[:1]],
            *tls["pull"])
    peak_rows(out, one, "alone")


def measure_held(out, tool, folder, flags, kind):
    """`push.KIND.*`: four shards of one server at once. The median with XChaCha20, in GB/s."""
    pause = 6 if flags.shape == "full" else 1.5
    rates = {}
    for cipher in ("xchacha20", "aes256gcm"):
        against = ceilings(folder, flags)
        one, holding = held(tool, folder, cipher, pause, flags.rounds, shards=SHARDS,
                            shape=flags.shape, cipher=cipher)
        size = one.summary["model"]["parameters"] * 4 / SHARDS / 1e9
        ends = zip(holding.spans("push.decided"), holding.spans("record.folded"))
        rates[cipher] = [ack[1] * size / max(ack[0], fold[0]) for ack, fold in ends if ack and fold]
        name = f"push.{kind}.mtls.{cipher}"
        out.row(name, "GB/s", rates[cipher], *against["push"])
        if kind == "durable":
            out.row(f"{name}.of_disk", "GB/s", rates[cipher], *against["disk"])
        if kind == "durable" and cipher == "xchacha20":
            peak_rows(out, one, f"{SHARDS}shards")
        shutil.rmtree(one.dir)
    return statistics.median(rates["xchacha20"])


def measure_in_memory(out, tool, flags):
    if not os.path.isdir(IN_MEMORY) or shutil.disk_usage(IN_MEMORY).free < MEMORY_BYTES:
        raise SystemExit(f"{IN_MEMORY}: no {MEMORY_BYTES >> 30} GiB there for the part `memory`; "
                         "leave it out (--parts)")
    folder = tempfile.mkdtemp(prefix="longhaul-push-", dir=IN_MEMORY)
    try:
        live.prepare(tool, folder, ("here/en",))
        single = measure_held(out, tool, folder, flags, "memory")
        measure_many(out, tool, folder, flags, single, "memory")
    finally:
        shutil.rmtree(folder)


def measure_many(out, tool, folder, flags, single, kind):
    many, holding = held(tool, folder, "many", 5 if flags.shape == "full" else 1.5, flags.rounds,
                         workers=8, shape=flags.shape, mode="bsp")
    size = many.summary["model"]["parameters"] * 4 / 1e9
    against = "one worker with four shards of the same size", single
    rates = [span[1] * size / span[0] for span in holding.spans("push.decided") if span]
    out.row(f"push.{kind}.mtls.8workers", "GB/s", rates, *against)
    folds = filter(None, holding.spans("record.folded", each=8))
    moved = [8 * n * size / took for took, n in folds]
    if moved:  # else a group's records reached others after the next one was let go
        out.row(f"push.{kind}.mtls.8workers.moved", "GB/s", moved, *against)
    peak_rows(out, many, f"{kind}.8workers")
    shutil.rmtree(many.dir)


def measure_link(out, tool, folder, flags):
    folder = os.path.join(folder, "far")
    live.prepare(tool, folder, ("here/de", "far/en"))
    far = run(tool, folder, "link", 0.3, flags.rounds * 2 + 2, shards=SHARDS, shape=flags.shape,
              far=True)
    size = far.summary["model"]["parameters"] * 4 / SHARDS / 1e9
    acks = far.times("push.decided")
    rates = [SHARDS * size / (b - a) for a, b in
             zip(acks[2 * SHARDS::SHARDS], acks[3 * SHARDS::SHARDS])]
    out.row(f"push.link.{RTT_MS}ms-{MBIT // 1000}gbit", "GB/s", rates, "the link",
            MBIT / 8e3)
    shutil.rmtree(far.dir)


def measure_acks(out, tool, folder, flags):
    small = run(tool, folder, "small", 0.05, 20 * flags.pushes, shape="tiny", codec="dense-sign")
    acks = sorted(pushes(small, "here-0", ("push.decided",))[5:])
    out.row("push.ack.p50_ms", "ms", [1e3 * acks[len(acks) // 2]])
    out.row("push.ack.p99_ms", "ms", [1e3 * acks[len(acks) * 99 // 100]])
    out.condition("small_pushes", len(acks))


def known(path, name):
    """The value of a row that an earlier piece left in the file; 0: it has none."""
    if not path or not os.path.exists(path):
        return 0
    with open(path, encoding="utf-8") as file:
        return next((r["value"] for r in json.load(file)["rows"] if r["name"] == name), 0)


def ceilings(folder, flags):
    """What a part's figures stand beside, measured just before it: the host's pace changes."""
    push_tls, pull_tls = tls_alone(flags.build, folder)
    alone = "one stream of TLS 1.3, OpenSSL alone"
    rates = disk_alone(folder, 69 << 20 if flags.shape == "full" else 1 << 20)
    flags.tls.append(push_tls)
    if not folder.startswith(IN_MEMORY):
        flags.disk += rates
    return {"push": (alone, push_tls), "pull": (alone, pull_tls),
            "disk": ("a write and fdatasync alone", statistics.median(rates))}


def measure(out, tool, folder, flags):
    if "alone" in flags.parts:
        measure_alone(out, tool, folder, flags, ceilings(folder, flags))
    if "snapshot" in flags.parts:
        measure_snapshots(out, tool, folder, flags, ceilings(folder, flags))
    single = known(flags.json, "push.durable.mtls.xchacha20")
    if "held" in flags.parts:
        single = measure_held(out, tool, folder, flags, "durable")
    if "memory" in flags.parts:
        measure_in_memory(out, tool, flags)
    if "many" in flags.parts:
        measure_many(out, tool, folder, flags, single, "durable")
    if "acks" in flags.parts:
        measure_acks(out, tool, folder, flags)
    if "link" in flags.parts:
        measure_link(out, tool, folder, flags)
    if flags.disk:
        out.row("push.disk.write_sync", "GB/s", flags.disk, "one stream of TLS 1.3, OpenSSL alone",
                statistics.median(flags.tls))
    if flags.tls:
        out.condition("tls_alone_gb_s", " ".join(f"{rate:.2f}" for rate in flags.tls))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json", help="rows of one commit come together")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="full")
    parser.add_argument("--pushes", type=int, default=10, help="one at a time")
    parser.add_argument("--rounds", type=int, default=5, help="of several at once")
    parser.add_argument("--parts", default="alone,snapshot,held,memory,acks,link",
                        type=lambda text: text.split(","))
    flags = parser.parse_args()
    flags.tls, flags.disk = [], []  # what was measured of the ceilings
    tool = os.path.join(flags.build, "deploy", "longhaul")
    folder = tempfile.mkdtemp(prefix="longhaul-push-")
    out = report.Report("push", flags.json, join=True)
    out.condition("shards_of_durable", SHARDS)
    try:
        live.prepare(tool, folder, ("here/en",))
        measure(out, tool, folder, flags)
    finally:
        shutil.rmtree(folder)
    out.finish()


if __name__ == "__main__":
    main()
