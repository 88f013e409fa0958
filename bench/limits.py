#!/usr/bin/env python3
"""Does it work at its stated limits? `bench/run.sh limits [--json FILE]`.

Each figure is beside its bound.

 limits.coordinator.*   the real program over loopback, with a store of 1,024 workers' names that
                        hold all of 4,194,304 units of a run (four epochs of the data), in long runs
                        of neighbours (`.runs`) and, at worst, each unit by itself (`.each`):
                        start_s, from its start to the line with its address; bytes, its own
                        memory for each unit; get_s, the time of `longhaul get`, the slowest of
                        members, plan, shards, regions
 limits.server.*        a server with 256 shards: start_s, and mib, its own memory
 limits.store.*, .units.*, .cache.*   the same code alone (bench/limits_parts.c)

A log of 10 million records is not included: `bench/run.sh recovery` measures a log's replay.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "tests", "e2e")]
import report  # noqa: E402
from world import World, check  # noqa: E402

WORKERS, EPOCHS, SHARDS = 1024, 4, 256
UNITS, FILES = 1 << 20, 800000  # of the data; in a cache of 100 GB
SHAPE = {"architecture": "transformer", "vocab": 256, "dim": 256, "layers": 4, "heads": 4,
         "kv_heads": 4, "ffn": 1024, "context": 64, "tied": True}


def own_bytes(node):
    with open(f"/proc/{node.process.pid}/status", encoding="utf-8") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("RssAnon"))


class Limits(World):
    """A run with `units` units of data, which name one small file."""

    def make_data(self, units):
        os.makedirs(self.path("data"))
        with open(self.path("data", "f.bin"), "wb") as file:
            file.write(bytes(1024))
        with open(self.path("data", "units.json"), "w", encoding="utf-8") as file:
            file.write('{"schema": "longhaul.units/1", "vocabulary": 256, "dtype": "u16", '
                       '"unit_tokens": 8, "units": [')
            for i in range(units):
                file.write(f'{"," if i else ""}\n{{"id": {i}, "file": "f.bin", "from": {8 * i}, '
                           f'"tokens": 8, "language": "l", "home": "asia", "sha256": "{i:064x}", '
                           '"may_leave": true}')
            file.write('], "heldout": []}\n')
        self.units = [{"tokens": 8}] * units


def started(node):
    begun = time.monotonic()
    node.start().listening()
    return time.monotonic() - begun


def get_s(world, node):
    """Seconds of the slowest query."""
    took = []
    for what in ("members", "plan", "shards", "regions"):
        begun = time.monotonic()
        code, said, complaint = world.try_tool("get", what, *world.admin(node))
        took.append(time.monotonic() - begun)
        check(code == 0 and said, f"longhaul get {what}: {code}: {complaint}")
    return max(took)


def coordinator(world, rows, units, run, name):
    node = world.coordinator(WORKERS, **{
        "run.epochs": EPOCHS, "run.budget_tokens": 8 * units,
        "coordinator.worker_timeout_s": "1 h",  # none of them is running
        "dir": world.path(f"coordinator-{name}")})
    node.dir = node.settings["dir"]
    os.makedirs(node.dir)
    subprocess.run([os.path.join(world.build, "bench", "bench_limits_fill"), node.dir,
                    str(units * EPOCHS), str(WORKERS), str(run)], check=True)
    starts, memory, gets = [], [], []
    for _ in range(3):
        starts.append(started(node))
        memory.append(own_bytes(node) / (units * EPOCHS))
        gets.append(get_s(world, node))
        node.must_stop()
        node.process.stdout.close()
    rows.row(f"limits.coordinator.start_s.{name}", "s", starts, "the bound", 2)
    rows.row(f"limits.coordinator.bytes.{name}", "bytes", memory, "the bound", 64)
    rows.row(f"limits.coordinator.get_s.{name}", "s", gets, "the bound", 1)


def server(build, rows):
    with World(build, units=48, shape=SHAPE, shards=SHARDS) as world:
        boss = world.coordinator(1).start().listening()
        node = world.server(0, boss, **{"shards": list(range(SHARDS))})
        starts, memory = [], []
        for _ in range(3):
            starts.append(started(node))
            memory.append(own_bytes(node) / 2**20)
            node.must_stop()
            node.process.stdout.close()
        rows.row("limits.server.start_s", "s", starts, "the bound", 2)
        rows.row("limits.server.mib", "MiB", memory)
        boss.must_stop()


def parts(build, rows, units):
    """Adds the figures of bench_limits_parts."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "parts.json")
        subprocess.run([os.path.join(build, "bench", "bench_limits_parts"), "--json", path,
                        "--rows", str(units * EPOCHS), "--units", str(units),
                        "--files", str(FILES * units // UNITS)], check=True)
        with open(path, encoding="utf-8") as file:
            made = json.load(file)
    rows.rows += made["rows"]
    for name in ("store", "data", "cache"):
        rows.condition(name, made["conditions"][name])


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", required=True, help="the build tree")
    flags.add_argument("--units", type=int, default=UNITS,
                       help="units of the data; fewer make the cache smaller too")
    flags.add_argument("--json")
    given = flags.parse_args()
    rows = report.Report("limits", given.json)
    rows.condition("coordinator", f"{WORKERS} names, {given.units} units in {EPOCHS} epochs")
    rows.condition("server", f"{SHARDS} shards")
    with Limits(given.build, units=given.units, shape=SHAPE) as world:
        coordinator(world, rows, given.units, 4096, "runs")
        coordinator(world, rows, given.units, 1, "each")
    server(given.build, rows)
    parts(given.build, rows, given.units)
    rows.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
