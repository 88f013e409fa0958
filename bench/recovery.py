#!/usr/bin/env python3
"""How long is a server gone? `bench/run.sh recovery [--json FILE] [--shape full|tiny] [--kills N]`.

Real programs on loopback under mutual TLS: one shard of 257 million parameters (1 GB), pushed as
64 of 4096 signs by one worker of a synthetic trainer (`trainer.kind`). The server is killed with
-9 again and again, at times that nothing chose but the clock; each time the figure is what passes
from the kill to the next push that is acknowledged, the launcher's wait of 0.2 s before it starts
another process included. Then the coordinator, a process of its own, is killed: what counts is the
longest time between two acknowledged pushes around it, beside the same of the time before.
Needs 12 GB of memory and 8 GB of disk.
"""
import argparse
import os
import random
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import live  # noqa: E402
import report  # noqa: E402

SHAPES = {  # shape, seconds between two cuts
    "full": ("{dim: 1024, layers: 20, heads: 8, kv_heads: 8, ffn: 2816, context: 64}", 2.0),
    "tiny": ("{dim: 32, layers: 2, heads: 2, kv_heads: 2, ffn: 64, context: 64}", 0.2),
}
STEADY_S = 20.5  # of healthy life after which the launcher forgets a crash
TOPOLOGY = """run: recovery
budget_tokens: {budget}
tokens_per_s: {speed}
model: {shape}
coordinator: {{region: here}}
servers:
  - {{name: s0, region: here, shards: [0]}}
regions: {{here: {{h: 1}}}}
worker:
  codec: {{name: topk-sign, density: 0.015625}}
  trainer: {{kind: synthetic, learning_rate: 0.001, batch: 4}}
  data: {{window: 1, prefetch: 8}}
  replica.every_versions: 100000
  snapshot.every_rounds: 100000
  log: {{level: debug, format: json}}
"""


class Kills:
    """What is done while the run goes on: see `during` of live.Run."""

    def __init__(self, shape, kills, seed):
        self.pause, self.kills, self.chance = SHAPES[shape][1], kills, random.Random(seed)
        self.seconds, self.coordinator_gap, self.usual_gap = [], 0.0, 0.0

    def __call__(self, run):
        log = live.Tail(run, "here-0")
        log.wait("push.decided", 3)
        for k in range(self.kills):
            time.sleep((STEADY_S if k else 0) + self.chance.random() * 2 * self.pause)
            killed = run.kill("s0")
            self.seconds.append(log.next("push.decided", killed) - killed)
        log.wait("push.decided", 3)
        start = time.monotonic()
        time.sleep(5 * self.pause)
        killed = run.kill("coordinator")
        time.sleep(5 * self.pause)
        end = time.monotonic()
        log.next("push.decided", end)
        self.usual_gap = log.longest_gap("push.decided", start, killed)
        self.coordinator_gap = log.longest_gap("push.decided", killed - self.pause, end)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="full")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    tool = os.path.join(flags.build, "deploy", "longhaul")
    folder = tempfile.mkdtemp(prefix="longhaul-recovery-")
    out = report.Report("recovery", flags.json)
    shape, pause = SHAPES[flags.shape]
    seconds = (flags.kills - 1) * STEADY_S + flags.kills * (3 * pause + 6) + 20 * pause + 5
    text = TOPOLOGY.format(shape=shape, speed=live.TOKENS / pause,
                           budget=int(live.TOKENS * seconds / pause))
    kills = Kills(flags.shape, flags.kills, flags.seed)
    try:
        live.prepare(tool, folder, ("here/en",))
        run = live.Run(tool, folder, "run", text, ["here-0"], "--no-wan", during=kills)
    finally:
        shutil.rmtree(folder)
    out.condition("parameters", run.summary["model"]["parameters"])
    out.condition("seed", flags.seed)
    out.condition("seconds between two cuts", pause)
    out.row("recovery.server.seconds", "s", kills.seconds)
    out.row("recovery.server.worst_s", "s", [max(kills.seconds)])
    out.row("recovery.coordinator.longest_gap_s", "s", [kills.coordinator_gap],
            "the longest gap before the kill", kills.usual_gap)
    out.finish()


if __name__ == "__main__":
    main()
