#!/usr/bin/env python3
"""What does a durable acknowledgement cost? `bench/run.sh durable [--json FILE]`.

Real programs under mutual TLS: eight workers of a synthetic trainer, each pushing to one shard as
fast as it is answered, and following the others. By turns, in one minute, the server's log is
synced and is not: there a preloaded library (nosync.c) makes nothing of fsync and fdatasync. The
workers never sync in either, so that nothing but the server's sync is in between.

- `durable.SIZE.pushes_per_s`: acknowledged by the server with its sync, beside without.
- `durable.SIZE.commit_p99_ms`: the 99th percentile of what a push waits at the server from its
  opened seal to its durable record: the group before it, its own, the sync. Beside without it.
- `durable.SIZE.added_p99_ms`: that with the sync, less without; beside twice the disk's own p99 of
  a write of a push's size into allocated room and fdatasync, of the same minutes.
- `durable.SIZE.ack_p99_ms`: from the cut at the worker to its hearing of the decision. Ten
  processes share the host's cores, so it is mostly the wait for one.
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
SIZES = {  # shape, seconds of a worker's step, bytes that a disk alone is given
    "small": ("{dim: 32, layers: 2, heads: 2, kv_heads: 2, ffn: 64, context: 64}", 0.004,
              "dense-sign"),
    "medium": ("{dim: 128, layers: 1, heads: 2, kv_heads: 2, ffn: 384, context: 64}", 0.02,
               "dense-fp32"),
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
  data: {{window: 1, prefetch: 2}}
  replica.every_versions: 100000
  snapshot.every_rounds: 100000
  log: {{level: debug, format: json}}
"""


def percentile(samples, share):
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * share))]


def run(tool, folder, name, size, rounds, synced):
    """Of one run: pushes a second in its middle, seconds of each to its answer and of its commit,
    their bytes, how many a group has."""
    shape, pause, codec = SIZES[size]
    text = TOPOLOGY.format(budget=WORKERS * live.TOKENS * rounds, shape=shape, codec=codec,
                           speed=WORKERS * live.TOKENS / pause, workers=WORKERS)
    os.environ["LH_BENCH_SYNCED"] = "longhaul-server" if synced else ""
    one = live.Run(tool, folder, name, text, [f"here-{i}" for i in range(WORKERS)], "--no-wan")
    ends = one.times("push.decided")
    ends = ends[len(ends) // 5:-(len(ends) // 5)]  # while all are there
    took = [s for worker in one.workers for s in pushes(one, worker, ("push.decided",))[5:]]
    waits = commits(one)
    said = one.status("s0")["counters"]
    total = said["admitted"] + said["refused"]
    groups, bytes_ = total / max(1, said["groups"]), said["bytes_in"] / max(1, total)
    shutil.rmtree(one.dir)
    return (len(ends) - 1) / (ends[-1] - ends[0]), took, waits, bytes_, groups


def commits(one):
    """Seconds of each push from its opened seal to the sync of its group, by the server's log."""
    waiting, group, out = [], [], []
    for event in one.log("s0"):
        at, name = event["mono_us"] / 1e6, event["event"]
        if name == "push.opened":
            waiting.append(at)
        elif name == "group.made":
            group, waiting = waiting, []
        elif name == "group.synced":
            out += [at - start for start in group]
            group = []
    return out[len(out) // 10:]  # the first are of a start


def disk_alone(folder, size, count):
    """Seconds of each write and fdatasync into a file whose room is allocated, as a log's is."""
    path, bytes_, out = os.path.join(folder, "disk"), os.urandom(size), []
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(fd, 0, size * count)
        os.fsync(fd)
        for i in range(count):
            start = time.monotonic()
            os.pwrite(fd, bytes_, i * size)
            os.fdatasync(fd)
            out.append(time.monotonic() - start)
    finally:
        os.close(fd)
        os.unlink(path)
    return out


def measure(out, tool, folder, size, flags):
    """By turns, so that a slow minute of the host meets both; the first pair warms up."""
    rate, took, waits = ({True: [], False: []} for _ in range(3))
    disk = []
    for turn in range(flags.turns + 1):
        for synced in (False, True):
            one = run(tool, folder, f"{size}-{turn}-{synced}", size, flags.rounds, synced)
            if turn:
                rate[synced].append(one[0])
                took[synced] += one[1]
                waits[synced] += one[2]
        disk += disk_alone(folder, max(4096, int(one[3])), 200)
    plain = percentile(rate[False], 0.5)
    out.row(f"durable.{size}.pushes_per_s", "1/s", rate[True], "without fsync", plain)
    for what, samples in (("ack", took), ("commit", waits)):
        for share, name in ((0.5, "p50"), (0.99, "p99")):
            out.row(f"durable.{size}.{what}_{name}_ms", "ms",
                    [1e3 * percentile(samples[True], share)], "without fsync",
                    1e3 * percentile(samples[False], share))
    own = 1e3 * percentile(disk, 0.99)
    out.row(f"durable.{size}.disk_p50_ms", "ms", [1e3 * percentile(disk, 0.5)])
    out.row(f"durable.{size}.disk_p99_ms", "ms", [own])
    out.row(f"durable.{size}.added_p99_ms", "ms",
            [1e3 * (percentile(waits[True], 0.99) - percentile(waits[False], 0.99))],
            "twice the disk's own p99", 2 * own)
    out.condition(f"{size}_push_bytes", round(one[3]))
    out.condition(f"{size}_pushes_a_group", f"{one[4]:.1f}")
    out.condition(f"{size}_pushes", len(took[True]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=400, help="pushes of a worker in one run")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--size", action="append", choices=sorted(SIZES))
    flags = parser.parse_args()
    tool = os.path.join(flags.build, "deploy", "longhaul")
    folder = tempfile.mkdtemp(prefix="longhaul-durable-")
    os.environ["LD_PRELOAD"] = os.path.realpath(os.path.join(flags.build, "bench",
                                                             "libbench_nosync.so"))
    out = report.Report("durable", flags.json)
    out.condition("workers", WORKERS)
    try:
        live.prepare(tool, folder, ("here/en",))
        for size in flags.size or SIZES:
            measure(out, tool, folder, size, flags)
    finally:
        shutil.rmtree(folder)
    out.finish()


if __name__ == "__main__":
    main()
