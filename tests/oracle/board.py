#!/usr/bin/env python3
"""TensorBoard reads a node's event files: `board.py --build BUILD`.

A coordinator, a server and a worker train with log.tensorboard. TensorBoard's own reader finds each
node's metrics under their names, with rising times and steps, and the last value of a shard's
version is one that the server had. After kill -9 of the server its next process writes a new file.
"""
import argparse
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from tensorboard.backend.event_processing import event_accumulator  # noqa: E402
from world import World, check, until  # noqa: E402

TAGS = {"coordinator": "longhaul_run_tokens_total", "shard-0": "longhaul_shard_version/shard=0",
        "asia-0": "longhaul_ready"}


def scalars(board, name, tag):
    """(time, step, value) of each point; [] while there is no such tag."""
    reader = event_accumulator.EventAccumulator(os.path.join(board, name))
    reader.Reload()
    return reader.Scalars(tag) if tag in reader.Tags()["scalars"] else []


def play(world):
    board = world.path("board")
    told = {"log.tensorboard": board}
    coordinator = world.coordinator(1, **told).start().listening()
    server = world.server(0, coordinator, **told).start().listening()
    worker = world.worker("asia", coordinator, **told, **{"trainer.tokens_per_s": 400}).start()
    for name, tag in TAGS.items():
        until(f"{name} has written two times", lambda n=name, t=tag: len(scalars(board, n, t)) >= 2)
        points = scalars(board, name, tag)
        for before, after in zip(points, points[1:]):
            check(after.wall_time - before.wall_time >= 9 and after.step >= before.step,
                  f"{name}: {points}")
    version = scalars(board, "shard-0", TAGS["shard-0"])[-1].value
    check(0 < version <= server.shards()[0]["version"], f"version {version}")
    server.kill()
    server.start().listening()
    until("the server's next life has a file of its own",
          lambda: len(os.listdir(os.path.join(board, "shard-0"))) == 2)
    for node in (worker, server, coordinator):
        node.must_stop()


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--build", required=True, help="the build tree")
    given = flags.parse_args()
    with World(given.build, units=90, shards=1) as world:
        play(world)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
