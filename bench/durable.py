#!/usr/bin/env python3
"""What does a durable acknowledgement cost? `bench/run.sh durable [--json FILE]`.

Real programs under mutual TLS: eight workers of a synthetic trainer, each pushing to one shard and
following the others. By turns the server's log is synced and is not: there a preloaded library
(nosync.c) makes nothing of fsync and fdatasync. Only the server's folder is on the disk: workers,
coordinator and every log are in /dev/shm, so that nothing but the server's sync is in between.

Two loads. `full`: each worker pushes as soon as it is answered.

- `durable.SIZE.pushes_per_s`: acknowledged by the server with its sync, beside without.
- `durable.SIZE.processors_busy`, `.server_busy`, `.log_busy`: meanwhile, with the sync: the share
  of all processors that was in use, of one processor that the server used, and of the time in which
  the log was written and synced. What is at 1 sets the rate.

`paced`: the workers wait between two pushes, so that processors are free and the log is measured,
not the wait for a processor.

- `durable.SIZE.commit_p99_ms`: the 99th percentile of what a push waits at the server from its
  opened seal to its durable record: the group before it, its own, the sync. Beside without it.
- `durable.SIZE.added_p99_ms`: that with the sync, less without.
- `durable.SIZE.disk_p99_ms`: of a write of a push's size into allocated room and fdatasync, by a
  probe of its own beside the load, in the same seconds; it stands beside `.disk_idle_p99_ms`, the
  same beside the load that is not synced. Twice the former is what `added_p99_ms` may be.
- `durable.SIZE.ack_p99_ms`: from the cut at the worker to its hearing of the decision.
"""
import argparse
import os
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import live  # noqa: E402
import report  # noqa: E402
from push import pushes  # noqa: E402

WORKERS = 8
IN_MEMORY = "/dev/shm"
MEMORY_BYTES = 2 << 30
SIZES = {  # shape, codec, seconds between two writes of the disk's probe
    "small": ("{dim: 32, layers: 2, heads: 2, kv_heads: 2, ffn: 64, context: 64}", "dense-sign",
              0.02),
    "medium": ("{dim: 128, layers: 1, heads: 2, kv_heads: 2, ffn: 384, context: 64}", "dense-fp32",
               0.1),
}
LOADS = {  # seconds of a worker's step, steps of each
    "small": {"full": (0.004, 600), "paced": (0.15, 80)},
    "medium": {"full": (0.02, 60), "paced": (0.8, 25)},
}
TOPOLOGY = """run: durable
budget_tokens: {budget}
tokens_per_s: {speed}
model: {shape}
coordinator: {{region: here}}
servers:
  - {{name: s0, region: here, shards: [0]}}
regions: {{here: {{h: 1, workers: {workers}}}}}
server:
  checkpoint.every_versions: 100000
  checkpoint.replay_ms: 0
  log: {{level: debug, format: json}}
worker:
  codec: {{name: {codec}}}
  trainer: {{kind: synthetic, learning_rate: 0.001, batch: 4}}
  data: {{window: 1, prefetch: 64}}
  replica.every_versions: 100000
  snapshot.every_rounds: 100000
  log: {{level: debug, format: json}}
"""


def percentile(samples, share):
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * share))]


class Beside:
    """While a run goes on: writes and syncs of a file on the server's disk, one every so often, and
    what the processors do."""

    def __init__(self, disk, bytes_, every):
        self.disk, self.bytes, self.every = disk, os.urandom(bytes_), every
        self.syncs = []  # seconds of each
        self.seen = []  # when, ticks of all processors: busy and in all, ticks of the server

    def look(self, run):
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(n) for n in file.readline().split()[1:9]]
        try:
            with open(f"/proc/{run.status('s0')['pid']}/stat", encoding="ascii") as file:
                mine = file.read().rpartition(") ")[2].split()
        except (OSError, ValueError, KeyError):  # not there yet, or not any more
            return
        idle = ticks[3] + ticks[4]
        self.seen.append((time.monotonic(), sum(ticks) - idle, sum(ticks),
                          int(mine[11]) + int(mine[12])))

    def __call__(self, run):
        path, count = os.path.join(self.disk, "probe"), max(1, (64 << 20) // len(self.bytes))
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(fd, 0, len(self.bytes) * count)
            os.fsync(fd)
            while run.child.poll() is None:
                start = time.monotonic()
                os.pwrite(fd, self.bytes, len(self.syncs) % count * len(self.bytes))
                os.fdatasync(fd)
                self.syncs.append(time.monotonic() - start)
                if not self.seen or start - self.seen[-1][0] > 0.2:
                    self.look(run)
                time.sleep(max(0.001, self.every - (time.monotonic() - start)))
        finally:
            os.close(fd)
            os.unlink(path)

    def busy(self, start, end):
        """Shares of all processors and, the server's, of one; between two moments."""
        inside = [seen for seen in self.seen if start <= seen[0] <= end]
        if len(inside) < 2:
            inside = self.seen
        (at, busy, total, own), (to, busy_to, total_to, own_to) = inside[0], inside[-1]
        ticks = os.sysconf("SC_CLK_TCK")
        return ((busy_to - busy) / max(1, total_to - total),
                (own_to - own) / ticks / max(1e-3, to - at))


class One:
    """One run, with the server's folder on the disk and all else in memory."""

    def __init__(self, flags, folders, size, load, synced):
        shape, codec, every = SIZES[size]
        pause, rounds = LOADS[size][load]
        rounds = flags.rounds or rounds
        text = TOPOLOGY.format(budget=WORKERS * live.TOKENS * rounds, shape=shape, codec=codec,
                               speed=WORKERS * live.TOKENS / pause, workers=WORKERS)
        memory, disk = folders
        os.mkdir(os.path.join(disk, "s0"))
        os.mkdir(os.path.join(memory, "run"))
        os.symlink(os.path.join(disk, "s0"), os.path.join(memory, "run", "s0"))
        os.environ["LH_BENCH_SYNCED"] = "longhaul-server" if synced else ""
        beside = Beside(disk, flags.bytes.get(size, 4096), every)
        one = live.Run(flags.tool, memory, "run", text, [f"here-{i}" for i in range(WORKERS)],
                       "--no-wan", during=beside)
        self.read(one, beside)
        flags.bytes[size] = max(4096, round(self.bytes))
        shutil.rmtree(one.dir)
        shutil.rmtree(os.path.join(disk, "s0"))

    def read(self, one, beside):
        ends = one.times("push.decided")
        ends = ends[len(ends) // 5:-(len(ends) // 5)]  # while all are there
        self.rate = (len(ends) - 1) / (ends[-1] - ends[0])
        self.acks = [s for worker in one.workers
                     for s in pushes(one, worker, ("push.decided",))[5:]]
        self.waits, self.log_busy = commits(one, ends[0], ends[-1])
        self.busy = beside.busy(ends[0], ends[-1])
        self.syncs = beside.syncs
        said = one.status("s0")["counters"]
        total = said["admitted"] + said["refused"]
        self.group, self.bytes = total / max(1, said["groups"]), said["bytes_in"] / max(1, total)


def commits(one, start, end):
    """Seconds of each push from its opened seal to the sync of its group, by the server's log; the
    share of the time between two moments in which a group was written and synced."""
    waiting, group, out, made, busy = [], [], [], 0, 0.0
    for event in one.log("s0"):
        at, name = event["mono_us"] / 1e6, event["event"]
        if name == "push.opened":
            waiting.append(at)
        elif name == "group.made":
            group, waiting, made = waiting, [], at
        elif name == "group.synced":
            out += [at - since for since in group]
            busy += max(0.0, min(at, end) - max(made, start))
            group = []
    return out[len(out) // 10:], busy / (end - start)  # the first are of a start


def pooled(runs, what):
    return [sample for run in runs for sample in getattr(run, what)]


def measure(out, flags, folders, size):
    """By turns, so that a slow minute of the host meets both; the first pair warms up."""
    runs = {(load, synced): [] for load in LOADS[size] for synced in (False, True)}
    One(flags, folders, size, "full", False)
    for _ in range(flags.turns):
        for load, synced in runs:
            runs[load, synced].append(One(flags, folders, size, load, synced))
    full, plain = runs["full", True], runs["full", False]
    out.row(f"durable.{size}.pushes_per_s", "1/s", [run.rate for run in full], "without fsync",
            percentile([run.rate for run in plain], 0.5))
    out.row(f"durable.{size}.processors_busy", "of all", [run.busy[0] for run in full])
    out.row(f"durable.{size}.server_busy", "of one", [run.busy[1] for run in full])
    out.row(f"durable.{size}.log_busy", "of the time", [run.log_busy for run in full])
    paced, plain = runs["paced", True], runs["paced", False]
    for what, name in (("acks", "ack"), ("waits", "commit")):
        for share, point in ((0.5, "p50"), (0.99, "p99")):
            out.row(f"durable.{size}.{name}_{point}_ms", "ms",
                    [1e3 * percentile(pooled(paced, what), share)], "without fsync",
                    1e3 * percentile(pooled(plain, what), share))
    for share, point in ((0.5, "p50"), (0.99, "p99")):
        out.row(f"durable.{size}.disk_{point}_ms", "ms",
                [1e3 * percentile(pooled(paced, "syncs"), share)])
        out.row(f"durable.{size}.disk_idle_{point}_ms", "ms",
                [1e3 * percentile(pooled(plain, "syncs"), share)])
    out.row(f"durable.{size}.added_p99_ms", "ms",
            [1e3 * (percentile(pooled(paced, "waits"), 0.99)
                    - percentile(pooled(plain, "waits"), 0.99))],
            "twice the disk's own p99", 2e3 * percentile(pooled(paced, "syncs"), 0.99))
    out.condition(f"{size}_push_bytes", round(paced[0].bytes))
    out.condition(f"{size}_pushes_a_group", f"{full[0].group:.1f}, {paced[0].group:.1f}")
    out.condition(f"{size}_pushes", f"{len(pooled(full, 'acks'))}, {len(pooled(paced, 'acks'))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, help="steps of a worker in every run")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--size", action="append", choices=sorted(SIZES))
    flags = parser.parse_args()
    flags.tool, flags.bytes = os.path.join(flags.build, "deploy", "longhaul"), {}
    if not os.path.isdir(IN_MEMORY) or shutil.disk_usage(IN_MEMORY).free < MEMORY_BYTES:
        raise SystemExit(f"{IN_MEMORY}: no {MEMORY_BYTES >> 30} GiB there, where all but the "
                         "server's folder goes")
    folders = (tempfile.mkdtemp(prefix="longhaul-durable-", dir=IN_MEMORY),
               tempfile.mkdtemp(prefix="longhaul-durable-"))
    os.environ["LD_PRELOAD"] = os.path.realpath(os.path.join(flags.build, "bench",
                                                             "libbench_nosync.so"))
    out = report.Report("durable", flags.json)
    out.condition("workers", WORKERS)
    out.condition("loads", "full: as fast as it is answered; paced: "
                  + ", ".join(f"{size} {LOADS[size]['paced'][0]} s" for size in SIZES))
    try:
        live.prepare(flags.tool, folders[0], ("here/en",))
        for size in flags.size or SIZES:
            measure(out, flags, folders, size)
    finally:
        for folder in folders:
            shutil.rmtree(folder)
    out.finish()


if __name__ == "__main__":
    main()
