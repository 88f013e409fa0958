#!/usr/bin/env python3
"""What does a durable acknowledgement cost? `bench/run.sh durable [--json FILE]`.

Real programs under mutual TLS: eight workers of a synthetic trainer, each pushing to one shard and
following the others. Alternately the server's log is synced and is not: then a preloaded library
(nosync.c) makes fsync and fdatasync do nothing. Only the server's folder is on the disk: workers,
coordinator and every log are in /dev/shm, so that only the server's sync makes a difference.

Two loads. `full`: each worker pushes as soon as it is answered.

- `durable.SIZE.pushes_per_s`: acknowledged by the server with its sync, beside without.
- `durable.SIZE.processors_busy`, `.server_busy`, `.log_busy`: meanwhile, with the sync: the busy
  share of all processors, the server's share of one processor, and the share of the time in which
  the log was written and synced. The one at 1 limits the rate.

`paced`: the workers wait between two pushes, so that processors are free and the log is measured,
not the wait for a processor.

- `durable.SIZE.commit_p99_ms`: the 99th percentile of a push's time at the server from its opened
  seal to its durable record: the group before it, its own, the sync. Beside the one without sync.
- `durable.SIZE.added_p99_ms`: that with the sync, less without.
- `durable.SIZE.disk_p99_ms`: of a write of a push's size into allocated space and fdatasync, by a
  probe beside the load, in the same seconds; beside it `.disk_idle_p99_ms`, the same probe while
  the log is not synced. `added_p99_ms` may be at most twice the former.
- `durable.SIZE.askers_p99_ms`: the same by eight probes, each with its own file and at the pace of
  a worker. While the disk stalls one probe meets one slow sync, and eight meet eight, as pushes
  do: `added_p99_ms` divided by it is the log's own share.
- `durable.SIZE.added_p99_by_turn_ms`: `added_p99_ms` of each turn, beside that turn's disk: a turn
  in which the disk stalled does not affect the others' figure.
- `durable.SIZE.ack_p99_ms`: from the cut at the worker to its receipt of the decision.

A run takes up to a minute, four of them are a turn. `--size small --turns 1 --join` is a part of
two or three minutes: samples in FILE.runs from earlier parts at this commit count too, because
percentiles are of all pushes.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
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
              0.04),
    "medium": ("{dim: 128, layers: 1, heads: 2, kv_heads: 2, ffn: 384, context: 64}", "dense-fp32",
               0.4),
}
WARM_UP_ROUNDS = 20
LOADS = {  # seconds of a worker's step, steps of each
    "small": {"full": (0.004, 3000), "paced": (0.15, 80)},
    "medium": {"full": (0.02, 250), "paced": (0.8, 25)},
}
TOPOLOGY = """run: durable
budget_tokens: {budget}
tokens_per_s: {speed}
model: {shape}
coordinator: {{region: here}}
servers:
  - {{name: s0, region: here, shards: [0]}}
regions: {{here: {{workers: {workers}}}}}
server:
  coordinator.h_base: 1
  checkpoint.every_versions: off
  log: {{level: debug, format: json}}
worker:
  codec: {{name: {codec}}}
  trainer: {{kind: synthetic, learning_rate: 0.001, batch: 4}}
  data: {{window: 1}}
  log: {{level: debug, format: json}}
"""


def percentile(samples, share):
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * share))]


class Beside:
    """Runs beside a run: writes and syncs of files on the server's disk, one at a fixed pace and
    eight at the pace of the workers; and the processors' load."""

    def __init__(self, disk, bytes_, every, pace):
        """`pace`: seconds between two writes of each of the eight; 0: without them."""
        self.disk, self.bytes, self.every, self.pace = disk, os.urandom(bytes_), every, pace
        self.syncs, self.asked = [], []  # seconds of each; the eight's
        self.seen = []  # time, ticks of all processors: busy and in all, ticks of the server

    def look(self, run):
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(n) for n in file.readline().split()[1:9]]
        try:
            with open(f"/proc/{run.status('s0')['pid']}/stat", encoding="ascii") as file:
                mine = file.read().rpartition(") ")[2].split()
        except (OSError, ValueError, KeyError):  # not there yet, or no longer
            return
        idle = ticks[3] + ticks[4]
        self.seen.append((time.monotonic(), sum(ticks) - idle, sum(ticks),
                          int(mine[11]) + int(mine[12])))

    def ask(self, run, number, every, syncs):
        """Writes and syncs until the run ends; the seconds of each sync go to `syncs`."""
        path, count = os.path.join(self.disk, f"probe-{number}"), (64 << 20) // len(self.bytes)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(fd, 0, len(self.bytes) * count)
            os.fsync(fd)
            time.sleep(every * number / WORKERS)  # not all at once
            for turn in range(sys.maxsize):
                if run.child.poll() is not None:
                    return
                start = time.monotonic()
                os.pwrite(fd, self.bytes, turn % count * len(self.bytes))
                os.fdatasync(fd)
                syncs.append(time.monotonic() - start)
                if not number and (not self.seen or start - self.seen[-1][0] > 0.2):
                    self.look(run)
                time.sleep(max(0.001, every - (time.monotonic() - start)))
        finally:
            os.close(fd)
            os.unlink(path)

    def __call__(self, run):
        eight = [threading.Thread(target=self.ask, args=(run, number, self.pace, self.asked))
                 for number in range(1, WORKERS + 1) if self.pace]
        for thread in eight:
            thread.start()
        self.ask(run, 0, self.every, self.syncs)
        for thread in eight:
            thread.join()

    def busy(self, start, end):
        """Busy shares of all processors and, for the server, of one; between two times."""
        inside = [seen for seen in self.seen if start <= seen[0] <= end]
        if len(inside) < 2:
            inside = self.seen
        (at, busy, total, own), (to, busy_to, total_to, own_to) = inside[0], inside[-1]
        ticks = os.sysconf("SC_CLK_TCK")
        return ((busy_to - busy) / max(1, total_to - total),
                (own_to - own) / ticks / max(1e-3, to - at))


def one_run(flags, folders, size, load, synced, rounds=None):
    """A run with the server's folder on the disk and the rest in memory; gives its figures."""
    shape, codec, every = SIZES[size]
    pause, usual = LOADS[size][load]
    steps = WORKERS * (rounds or flags.rounds or usual)
    text = TOPOLOGY.format(budget=live.TOKENS * steps, shape=shape, codec=codec,
                           speed=WORKERS * live.TOKENS / pause, workers=WORKERS)
    memory, disk = folders
    os.mkdir(os.path.join(disk, "s0"))
    os.mkdir(os.path.join(memory, "run"))
    os.symlink(os.path.join(disk, "s0"), os.path.join(memory, "run", "s0"))
    os.environ["LH_BENCH_SYNCED"] = "longhaul-server" if synced else ""
    os.sync()  # earlier writes of others must not count for this run
    before = os.getloadavg()[0]
    beside = Beside(disk, flags.bytes.get(size, 4096), every, pause if load == "paced" else 0)
    one = live.Run(flags.tool, memory, "run", text, [f"here-{i}" for i in range(WORKERS)],
                   "--no-wan", during=beside)
    done = sum(region["tokens"] for region in one.summary["regions"].values()) // live.TOKENS
    if done < steps:
        raise SystemExit(f"{size}, {load}: ended after {done} of {steps} steps: is there text for "
                         "so many?")
    seen = {"size": size, "load": load, "synced": synced, "load_average": before}
    seen |= read(one, beside)
    flags.bytes[size] = max(4096, round(seen["bytes"]))
    shutil.rmtree(one.dir)
    shutil.rmtree(os.path.join(disk, "s0"))
    return seen


def read(one, beside):
    ends = one.times("push.decided")
    ends = ends[len(ends) // 5:-(len(ends) // 5)]  # while all workers are there
    acks = [s for worker in one.workers for s in pushes(one, worker, ("push.decided",))[5:]]
    waits, log_busy = commits(one, ends[0], ends[-1])
    processors, server = beside.busy(ends[0], ends[-1])
    said = one.status("s0")["counters"]
    total = said["admitted"] + said["refused"]
    return {"rate": (len(ends) - 1) / (ends[-1] - ends[0]), "acks": acks, "waits": waits,
            "log_busy": log_busy, "processors_busy": processors, "server_busy": server,
            "syncs": settled(beside.syncs), "asked": settled(beside.asked),
            "group": total / max(1, said["groups"]), "bytes": said["bytes_in"] / max(1, total)}


def settled(samples):
    """Without the first tenth, which belongs to the start."""
    return samples[len(samples) // 10:]


def commits(one, start, end):
    """Seconds of each push from its opened seal to the sync of its group, from the server's log;
    the share of the time between two moments in which a group was written and synced."""
    waiting, group, out, made, busy = [], [], [], 0, 0.0
    for event in one.log("s0"):
        at, name = event["mono_us"] / 1e6, event["event"]
        if name == "push.unsealed":
            waiting.append(at)
        elif name == "group.made":
            group, waiting, made = waiting, [], at
        elif name == "group.synced":
            out += [at - since for since in group]
            busy += max(0.0, min(at, end) - max(made, start))
            group = []
    return settled(out), busy / (end - start)


class Runs:
    """The runs of this call and, with --join, of earlier ones at this commit."""

    def __init__(self, flags, commit):
        self.path, self.commit, self.of = flags.json and flags.json + ".runs", commit, []
        if not self.path or not os.path.exists(self.path):
            return
        if not flags.join:
            os.unlink(self.path)
            return
        with open(self.path, encoding="utf-8") as file:
            runs = [json.loads(line) for line in file]
        self.of = [run for run in runs if run["commit"] == commit]

    def add(self, run):
        self.of.append(run | {"commit": self.commit})
        if self.path:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(self.of[-1]) + "\n")

    def each(self, what, size, load, synced):
        return [run[what] for run in self.of
                if (run["size"], run["load"], run["synced"]) == (size, load, synced)]

    def pooled(self, *which):
        return [sample for samples in self.each(*which) for sample in samples]


def measure(flags, folders, runs, size):
    """Alternates, so that a slow minute of the host affects both; a short run warms up."""
    for turn in range(flags.turns):
        if not turn:
            one_run(flags, folders, size, "full", False, WARM_UP_ROUNDS)
        for load in LOADS[size]:
            for synced in (False, True):
                runs.add(one_run(flags, folders, size, load, synced))


def rows(out, runs, size):
    full, paced, plain = (size, "full", True), (size, "paced", True), (size, "paced", False)
    out.row(f"durable.{size}.pushes_per_s", "1/s", runs.each("rate", *full), "without fsync",
            runs.each("rate", size, "full", False))
    for what, unit in (("processors", "of all"), ("server", "of one"), ("log", "of the time")):
        out.row(f"durable.{size}.{what}_busy", unit, runs.each(f"{what}_busy", *full))
    points = ((0.5, "p50"), (0.99, "p99"))

    def ms(what, which, share):
        return 1e3 * percentile(runs.pooled(what, *which), share)

    for what, name in (("acks", "ack"), ("waits", "commit")):
        for share, point in points:
            out.row(f"durable.{size}.{name}_{point}_ms", "ms", [ms(what, paced, share)],
                    "without fsync", ms(what, plain, share))
    for what, which, name in (("syncs", paced, "disk"), ("syncs", plain, "disk_idle"),
                              ("asked", paced, "askers")):
        for share, point in points:
            out.row(f"durable.{size}.{name}_{point}_ms", "ms", [ms(what, which, share)])
    added = ms("waits", paced, 0.99) - ms("waits", plain, 0.99)
    out.row(f"durable.{size}.added_p99_ms", "ms", [added], "twice the disk's own p99",
            2 * ms("syncs", paced, 0.99))
    turns = [[percentile(samples, 0.99) for samples in runs.each(what, *which)]
             for what, which in (("waits", paced), ("waits", plain), ("syncs", paced))]
    out.row(f"durable.{size}.added_p99_by_turn_ms", "ms",
            [1e3 * (synced - not_synced) for synced, not_synced, _ in zip(*turns)],
            "twice the disk's own p99 of the turn", [2e3 * disk for disk in turns[2]])
    out.row(f"durable.{size}.added_beside_askers_p99_ms", "ms", [added],
            "twice the p99 of eight askers", 2 * ms("asked", paced, 0.99))
    out.condition(f"{size}_push_bytes", round(runs.each("bytes", *paced)[0]))
    out.condition(f"{size}_pushes_a_group", ", ".join(
        f"{percentile(runs.each('group', *which), 0.5):.1f}" for which in (full, paced)))
    out.condition(f"{size}_pushes", f"{len(runs.pooled('acks', *full))}, "
                  f"{len(runs.pooled('acks', *paced))} in {len(runs.each('rate', *full))} turns")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json")
    parser.add_argument("--join", action="store_true",
                        help="count the runs of earlier calls too, in FILE.runs: a part at a time")
    parser.add_argument("--rounds", type=int, help="steps of a worker in every run")
    parser.add_argument("--turns", type=int, default=2,
                        help="of four runs each; 0: only the rows of earlier calls")
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
    runs = Runs(flags, report.commit())
    out.condition("workers", WORKERS)
    out.condition("loads", "full: as fast as it is answered; paced: "
                  + ", ".join(f"{size} {LOADS[size]['paced'][0]} s" for size in SIZES))
    try:
        most = max(flags.rounds or steps for loads in LOADS.values() for _, steps in loads.values())
        live.prepare(flags.tool, folders[0], ("here/en",), WORKERS * most)
        for size in flags.size or SIZES:
            measure(flags, folders, runs, size)
    finally:
        for folder in folders:
            shutil.rmtree(folder)
    for size in SIZES:
        if runs.each("rate", size, "full", True):
            rows(out, runs, size)
    if not runs.of:
        raise SystemExit(f"no runs of {runs.commit} yet: --turns 1 or more makes some")
    loads = [run["load_average"] for run in runs.of]
    out.condition("load_before_runs", f"{min(loads):.2f} to {max(loads):.2f}")
    out.finish()


if __name__ == "__main__":
    main()
