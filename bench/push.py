#!/usr/bin/env python3
"""How fast is a durable push? `bench/run.sh push [--json FILE]`.

Real programs under mutual TLS, a synthetic trainer (`trainer.kind`), shards of 16.7 million
parameters pushed as `dense-fp32`, 64 MiB each, one worker unless the row says otherwise.

- `push.durable.*`: four shards of one server. The server is stopped (SIGSTOP) until the frames of
  all four are sealed in the outbox, then continued: from there to the last durable acknowledgement
  and fold, at the server and in the worker's replica.
- `push.alone.*`: one shard in the same way, and the share of every stage, from both logs' events.
- `push.memory.*`: as `push.durable.*`, with log and outbox in a memory file system (/dev/shm): the
  software's own time, without waits for a disk.
- `push.many.*`: eight workers that only push (bench_pusher), to one shard: alternately one alone
  and all at once, from their sealed frames to the last durable acknowledgement.
- `push.link.*`: pushes one after the other over an emulated link (root and /dev/net/tun). The
  server's folder is on the disk, the worker's outbox in /dev/shm: distant hosts share no disk.
- `push.snapshot.mtls.sealed`: a worker that lost its replica joins again, from the arrival of its
  request at the server to the loaded state. Its ceilings also have open connections; `.connect`
  are the seconds until that arrival (a new connection, mutual TLS), `.join` is the rate with them,
  `push.snapshot.mtls.first` that of a run's first join, whose server has just started.
- `push.snapshot.mtls.large`: the same with 268 MB, where a join's fixed time counts less.
- `push.snapshot.mtls.aes256gcm`: the same with another cipher of the job key's seal.

A shared host's pace changes within minutes, so ceilings are measured alternately with the figures,
while the frames are sealed (turns.py): one stream of TLS 1.3 over loopback by OpenSSL alone; our
transport (gRPC) moving the same bytes without work (`.of_transport`); a write and fdatasync of a
file of the same size (`.of_disk`). A row's ratio is the median of its turns' ratios. Needs 12 GB of
memory and of disk, and 8 GB of /dev/shm for `push.memory.*` and `push.link.*`.
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
import turns  # noqa: E402

SHARDS = 4
WORKERS = 8
JOINS = 4  # `longhaul up` gives up a worker that ends six times in a row
SNAPSHOTS = {  # the rows `push.snapshot.mtls*`; the codec does not matter to them
    ".large": {"shape": "large", "codec": "topk-sign"},
    ".sealed": {},
    ".aes256gcm": {"cipher": "aes256gcm"},
}
IN_MEMORY = "/dev/shm"
MEMORY_BYTES = 8 << 30
RTT_MS, MBIT, NEAR = 150, 1000, 0.02
# The outbox is never trimmed here, and it is in /dev/shm: 64 MiB a push, 10 GiB in five turns; the
# rest is for slots and copies of both workers (computed: 3 GB).
LINK_BYTES = 14 << 30
LINK_TURNS = 5
LINK_PUSHES = 8 * SHARDS  # of a turn: 17 s at best; BBR pauses 0.4 s in every 10 s (PROBE_RTT)
SHAPES = {  # with one shard, with SHARDS of them
    "full": ("{dim: 512, layers: 5, heads: 8, kv_heads: 8, ffn: 1480, context: 64}",
             "{dim: 1024, layers: 5, heads: 8, kv_heads: 8, ffn: 2984, context: 64}"),
    "tiny": ("{dim: 32, layers: 2, heads: 2, kv_heads: 2, ffn: 64, context: 64}",
             "{dim: 64, layers: 2, heads: 2, kv_heads: 2, ffn: 128, context: 64}"),
}
SHAPES["large"] = (SHAPES["full"][1],) * 2  # four times as many in one shard, 268 MB
TLS = "one stream of TLS 1.3, OpenSSL alone, by turns"
TRANSPORT = "the transport moving the same bytes without work, by turns"
DISK = "a write and fdatasync alone, by turns"
WHOLE = "push.decided", "record.folded"
TOPOLOGY = """run: push
budget_tokens: {budget}
tokens_per_s: {speed}
model: {shape}
coordinator: {{region: here}}
servers:
  - {{name: s0, region: here, shards: {shards}}}
regions: {{here: {{speed: {near}, workers: {workers}}}{far}}}
link: {{rtt_ms: {rtt}, mbit: {mbit}}}
server:
  coordinator.h_base: 1
  update.mode: {mode}
  checkpoint.every_versions: off
  seal.cipher: {cipher}
  log: {{level: debug, format: json}}
worker:
  codec: {{name: {codec}}}
  trainer: {{kind: synthetic, learning_rate: 0.001, batch: 4}}
  data: {{window: 1}}
  seal.cipher: {cipher}
  log: {{level: debug, format: json}}
"""
STAGES = (  # of a lone push: the event that ends it, and the log that has it
    ("connect", "s0", "push.begun"), ("receive", "s0", "push.received"),
    ("open", "s0", "push.unsealed"), ("decide", "s0", "group.made"),
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
        far=", far: {}" if far else "", rtt=RTT_MS, mbit=MBIT)
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


def held(tool, folder, name, pause, rounds, turn, **shape):
    """A run whose pushes wait sealed while `turn()` measures their ceilings; gives it and
    Holding."""
    group = shape.get("workers", 1) * shape.get("shards", 1)
    holding = turns.Holding(group, 2 * pause, turn)
    one = run(tool, folder, name, pause, rounds + 2, during=holding, **shape)
    if not any(holding.spans("push.decided")):
        raise SystemExit(f"{name}: no group of pushes was held and let go")
    return one, holding


def stages(one, released):
    """Median seconds of each stage of the lone pushes that were released at these times."""
    logged = {node: [(e["mono_us"] / 1e6, e["event"]) for e in one.log(node)]
              for node in ("s0", "here-0")}
    took = {name: [] for name, _, _ in STAGES}
    for start, _ in released:
        at, found = start, {}
        for name, node, event in STAGES:
            # the answer may arrive before the server has logged that all is done
            since = at if node == "s0" else start
            after = [t for t, kind in logged[node] if kind == event and t >= since]
            if not after:
                break
            found[name] = max(0.0, after[0] - at)
            at = max(at, after[0])
        if len(found) == len(took):
            for name, seconds in found.items():
                took[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in took.items() if seconds}


def disk_alone(folder, bytes_):
    """GB/s of a write and fdatasync into a file with allocated space, as a log has."""
    path = os.path.join(folder, "disk")
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(fd, 0, len(bytes_))
        os.fsync(fd)
        start = time.monotonic()
        os.pwrite(fd, bytes_, 0)
        os.fdatasync(fd)
        return len(bytes_) / (time.monotonic() - start) / 1e9
    finally:
        os.close(fd)
        os.unlink(path)


class Rejoining:
    """Kills a worker and removes its replica's copies, so that it joins by a snapshot,
    repeatedly."""

    def __init__(self, count, ceilings):
        self.count, self.ceilings, self.turns = count, ceilings, []

    def turn(self, one):
        turns.settle([one.status(node)["pid"] for node in ("s0", "here-0")])
        self.turns.append(self.ceilings.turn("pull"))

    def lose_replica(self, one):
        worker = one.status("here-0")["pid"]
        os.kill(worker, signal.SIGSTOP)  # otherwise it might write one meanwhile
        copies = os.path.join(one.dir, "here-0", "replica")
        for name in os.listdir(copies):
            os.unlink(os.path.join(copies, name))
        os.kill(worker, signal.SIGKILL)

    def __call__(self, one):
        tail = live.Tail(one, "here-0")
        tail.next("push.decided", 0)
        for _ in range(self.count):
            self.turn(one)
            tail.wait("hello.answer", 1, lambda: self.lose_replica(one))
            time.sleep(1)  # until its work after a start is done
        self.turn(one)

    def beside(self):
        """(TLS alone, the transport alone) for each join: the mean of the turns around it."""
        return [tuple(map(statistics.mean, zip(*two))) for two in zip(self.turns, self.turns[1:])]


def snapshot_seconds(one):
    """(until the request is at the server, from there to the loaded state) of each join."""
    asked, loaded = one.times("snapshot.asked"), one.times("replica.snapshot")
    begun = [e["mono_us"] / 1e6 for e in one.log("s0") if e["event"] == "snapshot.begun"]
    out = []
    for start, after in zip(asked, asked[1:] + [float("inf")]):
        middle = min((t for t in begun if t > start), default=after)
        end = min((t for t in loaded if t > middle), default=after)
        if end < after:
            out.append((middle - start, end - middle))
    return out


def ratio_rows(out, name, pairs, disk=False):
    """GB/s compared with TLS alone, and with the other ceilings of each sample's own turn."""
    samples, beside = zip(*pairs)
    out.row(name, "GB/s", samples, TLS, [turn[0] for turn in beside])
    out.row(f"{name}.of_transport", "GB/s", samples, TRANSPORT, [turn[1] for turn in beside])
    if disk:
        out.row(f"{name}.of_disk", "GB/s", samples, DISK, [turn[2] for turn in beside])


def joins_of_one_run(tool, folder, flags, **how):
    """For each join GB, seconds to the request, from there to the state, and its ceilings."""
    pause = {"tiny": 4, "full": 12, "large": 20}[how["shape"]]
    joins = Rejoining(JOINS, flags.ceilings)
    one = run(tool, folder, "joins", pause, 3, during=joins, **how)
    size = one.summary["model"]["parameters"] * 4 / 1e9
    again = snapshot_seconds(one)[1:]
    if len(again) < JOINS:
        raise SystemExit(f"joins: only {len(again)} of {JOINS} joins are in the log")
    shutil.rmtree(one.dir)
    return [(size, *both, turn) for both, turn in zip(again, joins.beside())]


def measure_snapshots(out, tool, folder, flags):
    """All rows alternately, because the host's pace changes."""
    all_ = {name: [] for name in SNAPSHOTS}
    for _ in range(flags.snapshot_runs):
        for name, how in SNAPSHOTS.items():
            shape = how.get("shape", "full") if flags.shape == "full" else flags.shape
            all_[name] += joins_of_one_run(tool, folder, flags, **how | {"shape": shape})
    for name, joins in all_.items():
        name = f"push.snapshot.mtls{name}"
        ratio_rows(out, name, [(size / took, turn) for size, _, took, turn in joins])
        out.row(f"{name}.connect", "s", [connect for _, connect, _, _ in joins])
        out.row(f"{name}.join", "GB/s", [size / (before + took) for size, before, took, _ in joins])


def peak_rows(out, one, name):
    """Peaks compared with their bounds: 4 bytes a parameter and 256 MiB at the server."""
    parameters = one.summary["model"]["parameters"]
    peak = one.status("s0")["peak_bytes"]
    out.row(f"push.server.{name}.peak_bytes", "B", [peak], "4 bytes a parameter + 256 MiB",
            4 * parameters + (256 << 20))
    peak = max(one.status(worker)["peak_bytes"] for worker in one.workers)
    out.row(f"push.worker.{name}.peak_bytes_per_parameter", "B", [peak / parameters])


def measure_alone(out, tool, folder, flags):
    one, holding = held(tool, folder, "alone", 1.5, flags.pushes, flags.push_turn,
                        shape=flags.shape)
    size = one.summary["model"]["parameters"] * 4 / 1e9
    ratio_rows(out, "push.alone.mtls.xchacha20", list(holding.rates(size, *WHOLE)))
    whole = statistics.median(size / rate for rate, _ in holding.rates(size, *WHOLE))
    for name, seconds in stages(one, holding.released).items():
        out.row(f"push.alone.stage.{name}", "s", [seconds], "the whole push", whole)
    first = [size / sum(both) for both in snapshot_seconds(one)[:1]]
    out.row("push.snapshot.mtls.first", "GB/s", first)
    peak_rows(out, one, "alone")
    shutil.rmtree(one.dir)


def measure_held(out, tool, folder, flags, kind):
    """`push.KIND.*`: four shards of one server at once. The median with XChaCha20, in GB/s."""
    pause = 6 if flags.shape == "full" else 1.5
    single, disk = 0, kind == "durable"
    for cipher in ("xchacha20", "aes256gcm"):
        def turn():
            rate = (disk_alone(folder, flags.disk_bytes),) if disk else ()
            return (*flags.push_turn(), *rate)
        one, holding = held(tool, folder, cipher, pause, flags.rounds, turn, shards=SHARDS,
                            shape=flags.shape, cipher=cipher)
        size = one.summary["model"]["parameters"] * 4 / SHARDS / 1e9
        pairs = list(holding.rates(size, *WHOLE))
        ratio_rows(out, f"push.{kind}.mtls.{cipher}", pairs, disk)
        if disk:
            flags.disk += [beside[2] for _, beside in pairs]
        if cipher == "xchacha20":
            peak_rows(out, one, f"{kind}.{SHARDS}shards")
            single = statistics.median(rate for rate, _ in pairs)
        shutil.rmtree(one.dir)
    return single


def folder_in_memory(part, size):
    if not os.path.isdir(IN_MEMORY) or shutil.disk_usage(IN_MEMORY).free < size:
        raise SystemExit(f"{IN_MEMORY}: no {size >> 30} GiB there for the part `{part}`; "
                         "leave it out (--parts)")
    return tempfile.mkdtemp(prefix="longhaul-push-", dir=IN_MEMORY)


def measure_in_memory(out, tool, flags):
    folder = folder_in_memory("memory", MEMORY_BYTES)
    try:
        live.prepare(tool, folder, ("here/en",))
        measure_held(out, tool, folder, flags, "memory")
    finally:
        shutil.rmtree(folder)


class Crowd:
    """Alternately: TLS alone, one pusher's push, and those of all pushers at once.

    The run's own worker is stopped meanwhile: it would fold their records on the same cores."""

    def __init__(self, tool, flags):
        self.tool, self.flags = tool, flags
        self.beside, self.single, self.many = [], [], []

    def turn(self, pushers, nodes):
        turns.settle(nodes)
        self.beside.append(self.flags.push_turn())
        self.single.append(pushers.push(1))
        turns.settle(nodes)
        self.many.append(pushers.push(WORKERS))

    def __call__(self, one):
        live.Tail(one, "here-0").next("push.decided", 0)  # the run has begun then
        worker, server = (one.status(node)["pid"] for node in ("here-0", "s0"))
        pushers = turns.Pushers(self.flags.build, self.tool, one, WORKERS)
        try:
            pushers.push(WORKERS)  # warms up
            for _ in range(self.flags.rounds):
                turns.settle([worker, server])
                os.kill(worker, signal.SIGSTOP)
                try:
                    self.turn(pushers, [server])
                finally:
                    os.kill(worker, signal.SIGCONT)
        finally:
            pushers.close()
        subprocess.run([self.tool, "drain", "run", "--dir", one.dir, "--end"], check=True,
                       stdout=subprocess.DEVNULL)


def measure_many(out, tool, folder, flags):
    crowd = Crowd(tool, flags)
    one = run(tool, folder, "many", 4, 1000, shape=flags.shape, during=crowd)
    size = one.summary["model"]["parameters"] * 4 / 1e9
    single = [size / seconds for seconds in crowd.single]
    ratio_rows(out, "push.many.mtls.1worker", list(zip(single, crowd.beside)))
    out.row(f"push.many.mtls.{WORKERS}workers", "GB/s",
            [WORKERS * size / seconds for seconds in crowd.many], "one worker, by turns", single)
    peak_rows(out, one, "many")
    shutil.rmtree(one.dir)


class Link:
    """Alternately: pushes over the link at full speed, and plain TCP while the worker is
    stopped."""

    def __init__(self, tool, flags):
        self.tool, self.flags = tool, flags
        self.windows, self.beside, self.busy = [], [], []

    def __call__(self, one):
        live.Tail(one, "far-0").next("push.decided", 0)  # the run has begun then
        near = one.status("here-0")["pid"]
        os.kill(near, signal.SIGSTOP)  # it would fold the pushes on the same cores
        try:
            self.measure(one)
        finally:
            os.kill(near, signal.SIGCONT)
        subprocess.run([self.tool, "drain", "run", "--dir", one.dir, "--end"], check=True,
                       stdout=subprocess.DEVNULL)

    def measure(self, one):
        tail, line = live.Tail(one, "far-0"), turns.Line(self.flags.build, one)
        worker, server = (one.status(node)["pid"] for node in ("far-0", "s0"))
        for _ in range(min(self.flags.rounds, LINK_TURNS)):
            start, idle = time.monotonic(), turns.idle_seconds()
            tail.wait("push.decided", LINK_PUSHES)
            idle = (turns.idle_seconds() - idle) / (time.monotonic() - start)
            self.busy.append(os.cpu_count() - idle)
            os.kill(worker, signal.SIGSTOP)
            try:
                self.windows.append((start, time.monotonic()))
                turns.settle([server])
                self.beside.append(line.turn())
            finally:
                os.kill(worker, signal.SIGCONT)

    def rates(self, acks, frame_gb):
        """The rate of each window. Its first pushes don't count: the link was idle before."""
        for start, end in self.windows:
            own = [t for t in acks if start < t < end][2 * SHARDS:]
            yield (len(own) - 1) * frame_gb / (own[-1] - own[0])


def measure_link(out, tool, folder, flags):
    memory, link = folder_in_memory("link", LINK_BYTES), Link(tool, flags)
    try:
        live.prepare(tool, memory, ("here/de", "far/en"))
        os.makedirs(os.path.join(folder, "far", "s0"))
        os.mkdir(os.path.join(memory, "link"))
        os.symlink(os.path.join(folder, "far", "s0"), os.path.join(memory, "link", "s0"))
        far = run(tool, memory, "link", 0.3, 1000, shards=SHARDS, shape=flags.shape, far=True,
                  during=link)
        peak_rows(out, far, "link")
    finally:
        shutil.rmtree(memory)
    size = far.summary["model"]["parameters"] * 4 / SHARDS / 1e9
    rates = list(link.rates(far.times("push.decided"), size))
    name = f"push.link.{RTT_MS}ms-{MBIT // 1000}gbit"
    out.row(name, "GB/s", rates, "the link", MBIT / 8e3)
    out.row(f"{name}.busy_cores", "cores", link.busy, "all of them", os.cpu_count())
    out.row(f"{name}.of_tcp", "GB/s", rates, "one plain TCP flow, by turns", link.beside)


def measure_acks(out, tool, folder, flags):
    small = run(tool, folder, "small", 0.05, 20 * flags.pushes, shape="tiny", codec="dense-sign")
    acks = sorted(pushes(small, "here-0", ("push.decided",))[5:])
    out.row("push.ack.p50_ms", "ms", [1e3 * acks[len(acks) // 2]])
    out.row("push.ack.p99_ms", "ms", [1e3 * acks[len(acks) * 99 // 100]])
    out.condition("small_pushes", len(acks))


def measure(out, tool, folder, flags):
    if "alone" in flags.parts:
        measure_alone(out, tool, folder, flags)
    if "snapshot" in flags.parts:
        measure_snapshots(out, tool, folder, flags)
    if "held" in flags.parts:
        measure_held(out, tool, folder, flags, "durable")
    if "memory" in flags.parts:
        measure_in_memory(out, tool, flags)
    if "many" in flags.parts:
        measure_many(out, tool, folder, flags)
    if "acks" in flags.parts:
        measure_acks(out, tool, folder, flags)
    if "link" in flags.parts:
        measure_link(out, tool, folder, flags)
    if flags.disk:
        out.row("push.disk.write_sync", "GB/s", flags.disk)
    tls = sorted(flags.ceilings.tls)
    if tls:
        out.condition("tls_alone_gb_s", f"{tls[0]:.2f} to {tls[-1]:.2f} in {len(tls)} turns, "
                      f"{statistics.median(tls):.2f} in the middle")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json", help="rows of one commit come together")
    parser.add_argument("--shape", choices=("full", "tiny"), default="full")
    parser.add_argument("--pushes", type=int, default=10, help="one at a time")
    parser.add_argument("--rounds", type=int, default=5, help="of several at once")
    parser.add_argument("--snapshot-runs", type=lambda n: max(1, int(n)), default=3, metavar="N",
                        help="of four joins each, for a row: one join is 0.3 to 1.2 of TLS alone")
    parser.add_argument("--parts", default="alone,snapshot,held,memory,many,acks,link",
                        type=lambda text: text.split(","))
    flags = parser.parse_args()
    flags.disk = []  # the disk's measured rates
    flags.disk_bytes = os.urandom(1 << 20) * (64 if flags.shape == "full" else 1)
    flags.ceilings = turns.Ceilings(flags.build)
    flags.push_turn = lambda: flags.ceilings.turn("push")
    tool = os.path.join(flags.build, "deploy", "longhaul")
    folder = tempfile.mkdtemp(prefix="longhaul-push-")
    out = report.Report("push", flags.json, join=True)
    out.condition("shards_of_durable", SHARDS)
    try:
        live.prepare(tool, folder, ("here/en",))
        measure(out, tool, folder, flags)
    finally:
        flags.ceilings.close()
        shutil.rmtree(folder)
    out.finish()


if __name__ == "__main__":
    main()
