#!/usr/bin/env python3
"""The memory per parameter: `tests/up/memory.py BUILD`.

A model of 10.6 million parameters without training (`trainer.kind: synthetic`), every state copied
and sent at least once; the peaks that the processes report must stay within the figures of
server/README.md and worker/README.md.
"""
import json
import os
import shutil
import signal
import sys
import time

import real

TOPOLOGY = """run: {run}
budget_tokens: {budget}
tokens_per_s: {speed}
model: {{dim: 384, layers: 6, heads: 6, kv_heads: 6, ffn: 1024, context: 64}}
coordinator: {{region: europe}}
servers:
  - {{name: s0, region: europe, shards: [0]}}
  - {{name: s1, region: america, shards: [1]}}
regions: {{asia: {asia}, europe: {{speed: 2}}, america: {{speed: 1}}}}
server: {{coordinator.h_base: 4, checkpoint.every_versions: 10}}
worker: {{trainer: {{kind: synthetic, learning_rate: 0.001, batch: 4}}}}
"""
# Bytes per parameter; and bytes for code, libraries and the transport.
# The core, the synthetic trainer, a copy of the replica; the second number includes frames that
# wait on a busy machine: 92 MiB were seen.
WORKER = 16 + 4 + 4, 112 << 20
# The fold, a checkpoint's copy, a snapshot's copy; beside them 43 MiB were seen when all coincide.
SERVER = 4 + 8, 48 << 20


def judge(world, node, parameters, role):
    limit, fixed = role
    with open(world.path("run", node, "status.json"), encoding="utf-8") as file:
        peak = json.load(file)["peak_bytes"]
    print(f"{node:12} {peak / 1e6:8.1f} MB: {(peak - fixed) / parameters:.1f} bytes each of "
          f"{parameters / 1e6:.1f} M parameters over {fixed >> 20} MiB, {limit} allowed")
    real.check(peak <= limit * parameters + fixed, f"{node} took {peak} bytes")
    real.check(peak >= 4 * parameters, f"{node} says {peak} bytes, which cannot be")


def main():
    real.TOPOLOGY = TOPOLOGY
    world = real.World(sys.argv[1], "memory", 4_000_000, 40000, "{speed: 4}")
    up = world.up("--no-wan")
    end = time.monotonic() + real.PATIENCE_S
    while world.credited() < 100_000 and up.poll() is None and time.monotonic() < end:
        time.sleep(0.1)  # polls; the count decides
    up.send_signal(signal.SIGINT)  # the model learns nothing, so no evaluation is needed
    said, _ = up.communicate(timeout=real.PATIENCE_S)
    real.check(up.returncode == 8, f"up ended with {up.returncode}:\n{said}")
    parameters = os.path.getsize(world.path("run", "weights.bin")) // 4
    real.check(parameters > 10_000_000, f"{parameters} parameters are too few to tell")
    for node in ("asia-0", "europe-0", "america-0"):
        judge(world, node, parameters, WORKER)
    for node in ("s0", "s1"):  # one shard each, of equal size up to a chunk
        kept = os.listdir(world.path("run", node, "checkpoints"))
        real.check(len(kept) == 2, f"{node} has written fewer than two checkpoints: {kept}")
        judge(world, node, parameters // 2, SERVER)
    shutil.rmtree(world.dir)


main()
