#!/usr/bin/env python3
"""Does a run end when the simulation says? `bench/run.sh slowed [--json FILE]`.

Four regions on emulated links of 100 ms and 100 Mbit/s, with the real programs; a fifth has the
coordinator and the server. The trainer is the synthetic one, 1,024 tokens/s in each region. After
two fifths of the time that training would take, one region is slowed to a quarter: its worker is
stopped in order, and restarted with a smaller `trainer.tokens_per_s`, which takes a second or two.
Once for each rule of leasing (coordinator.balance). Beside it: bench_sim on the same scene, without
the restart (which gives the slowed region's leases back), median of --seeds.

A figure is the time from the phase `run` until all units are credited. Needs root and /dev/net/tun;
three to four minutes per rule, mostly waiting.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "drill"),
                os.path.join(os.path.dirname(HERE), "tests", "e2e")]
import links  # noqa: E402
import report  # noqa: E402
from loopback import check_credit, check_replicas, end_all, end_workers  # noqa: E402
from world import SHAPE, Node, World, check, until  # noqa: E402

REGIONS = ("asia", "europe", "america", "africa")
RTT_MS, MBIT = 100, 100
SPEED, UNIT_TOKENS, STEP_TOKENS, SEQUENCE, H = 1024, 8192, 1024, 128, 8  # bench/sim/scene.h
SLOW_AT, SLOW_TO = 0.4, 0.25
PORT = 7700
PATIENCE_S = 120


class ManyTexts(World):
    """Texts of these regions, which may all leave; `units` of each."""

    def make_data(self, units):
        line = b"all work and no play makes a dull model "
        size = units // len(REGIONS) * self.unit_tokens + 1
        os.makedirs(self.path("text", "heldout"))
        for number, region in enumerate(REGIONS):
            os.makedirs(self.path("text", region, f"l{number}"))
            with open(self.path("text", region, f"l{number}", "a.txt"), "wb") as out:
                out.write((line * (size // len(line) + 1))[:size])
            with open(self.path("text", "heldout", f"l{number}.txt"), "wb") as out:
                out.write(line * 20)
        self.tool("data", "prepare", "--text", self.path("text"), "--out", self.path("data"),
                  "--unit-tokens", str(self.unit_tokens), "--sequence", str(SEQUENCE))
        self.read_units()


class Fleet:
    def __init__(self, world, net, rule):
        self.world, self.net = world, net
        self.coordinator = self.node("coordinator", "hub", "coordinator", PORT, **{
            "role": "coordinator", "coordinator.workers": len(REGIONS),
            "data.units": world.path("data", "units.json"), "coordinator.balance": rule,
            "run.budget_tokens": sum(u["tokens"] for u in world.units),
            "coordinator.h_base": H}).start().listening()
        self.server = self.node("server", "hub", "shard-0", PORT + 1, **{
            "role": "shard", "shards": [0], "coordinator": self.coordinator.address,
            "model.weights": world.path("weights.bin")}).start().listening()
        self.workers = [self.node("worker", region, f"{region}-0", 0, **{
            "coordinator": self.coordinator.address,
            "data.units": world.path("data", "units.json"), "data.dir": world.path("data"),
            "codec.density": 1 / 64, "trainer.batch": STEP_TOKENS // SEQUENCE,
            "trainer.learning_rate": 0.001, "trainer.kind": "synthetic",
            "trainer.tokens_per_s": SPEED}).start() for region in REGIONS]

    def node(self, kind, region, name, port, **more):
        node = Node(self.world, kind, region, name,
                    {**self.world.common(kind, region, name), **more})
        node.before = self.net.enter(region)
        if port:
            node.address = self.net.address(region, port)
        return node

    def phase_s(self, words):
        """When the coordinator logged this change of phase, since its start; None: not yet."""
        for line in self.coordinator.text().splitlines():
            if "run.phase" in line and words in line:
                return float(re.search(r" \+([\d.]+) ", line).group(1))
        return None

    def now_s(self):
        return self.coordinator.status().get("up_s", 0)


def drop(fleet, began, after):
    """Slows the first region after the run has gone on for `after` seconds."""
    until("it is time", lambda: fleet.now_s() >= began + after, after + PATIENCE_S)
    worker = fleet.workers[0]
    worker.must_stop()
    worker.start(f"trainer.tokens_per_s={SPEED * SLOW_TO}")


def real(flags, rule):
    """Seconds of one run with real processes."""
    with tempfile.NamedTemporaryFile("w", suffix=".world") as file:
        file.write("".join(f"region {name}\n" for name in ("hub", *REGIONS)))
        file.write(f"link all all rate={MBIT}mbit rtt={RTT_MS}ms\n")
        file.flush()
        net = links.Links(flags.build, file.name, f"slowed-{os.getpid()}")
    try:
        with ManyTexts(flags.build, run="slowed", units=flags.units * len(REGIONS), keep=flags.keep,
                       shape=dict(SHAPE, context=SEQUENCE), unit_tokens=UNIT_TOKENS,
                       shards=1) as world:
            fleet = Fleet(world, net, rule)
            began = until("the run begins", lambda: fleet.phase_s("-> run"), PATIENCE_S)
            drop(fleet, began, SLOW_AT * flags.units * UNIT_TOKENS / SPEED)
            patience = 2 * flags.units * UNIT_TOKENS / SPEED + PATIENCE_S
            ended = until("all is credited", lambda: fleet.phase_s("-> drain"), patience)
            end_workers(fleet.coordinator, fleet.workers)
            check_replicas([fleet.server], fleet.workers, shards=1)
            check_credit(world, fleet.coordinator, [fleet.server])
            end_all([fleet.coordinator, fleet.server])
            check(len(world.units) == flags.units * len(REGIONS),
                  f"{len(world.units)} units were prepared")
    finally:
        net.close()
    return ended - began


def simulated(flags, rule):
    program = os.path.join(flags.build, "bench", "bench_sim")
    seconds = []
    for seed in range(1, flags.seeds + 1):
        line = [program, "--workers", len(REGIONS), "--units", flags.units, "--speeds", 1,
                "--rtt-ms", f"{RTT_MS},{RTT_MS}", "--mbit", f"{MBIT},{MBIT}", "--stands-for", 1,
                "--h-base", H, "--window", 0, "--rule", rule, "--seed", seed,
                "--slow", f"{1 / len(REGIONS)},{SLOW_AT},{SLOW_TO}"]
        said = subprocess.run([str(word) for word in line], check=True, stdout=subprocess.PIPE,
                              text=True)
        seconds.append(json.loads(said.stdout)["makespan_s"])
    return statistics.median(seconds)


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", default="build/release")
    flags.add_argument("--json")
    flags.add_argument("--rules", default="finish,level", help="with commas")
    flags.add_argument("--units", type=int, default=20, help="of each region")
    flags.add_argument("--runs", type=int, default=1, help="of each rule with real processes")
    flags.add_argument("--seeds", type=int, default=20, help="of each rule, simulated")
    flags.add_argument("--keep", action="store_true", help="keep the runs' folders")
    flags = flags.parse_args()
    out = report.Report("slowed", flags.json)
    out.condition("scene", f"{len(REGIONS)} regions, {flags.units} units of {UNIT_TOKENS} tokens "
                  f"each, {SPEED} tokens/s; {RTT_MS} ms, {MBIT} Mbit/s; one region slowed to "
                  f"{SLOW_TO} of its speed")
    for rule in flags.rules.split(","):
        out.row(f"slowed.{rule}", "s", [real(flags, rule) for _ in range(flags.runs)],
                "the simulation", simulated(flags, rule))
    out.finish()


if __name__ == "__main__":
    main()
