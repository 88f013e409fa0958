#!/usr/bin/env python3
"""Two ranks of a worker on one GPU, by NCCL: they train, one is killed with -9 and comes back.

Each process gives NCCL a host name of its own (NCCL_HOSTID), because NCCL refuses two ranks on one
device of one host. Exit status 77: it refuses them all the same; the last line says so. In the end
both ranks hold the same parameters, and the worker's replica is the server's.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e"))
from loopback import check_replicas  # noqa: E402
from peers import Region, check_equal, kill_a_rank  # noqa: E402
from world import World, check, until  # noqa: E402

REFUSED = "Duplicate GPU detected"
SKIPPED = 77


def refusal(region):
    """Returns NCCL's message in a rank's log file, if it refuses the device."""
    for rank in region.ranks:
        try:
            with open(os.path.join(rank.dir, "nccl.log"), encoding="utf-8") as log:
                words = [line.strip() for line in log if REFUSED in line]
        except FileNotFoundError:
            continue
        if words:
            return words[0]
    return None


def run(world, args):
    shard = world.both().start().listening()
    more = {"ranks.reduce": "nccl", "ranks.patience_ms": "5 s", "ranks.wire": "fp32",
            "LONGHAUL_NCCL_LIB": args.nccl, "LONGHAUL_CUDA_PLUGIN": args.plugin}
    region = Region(world, shard, 2, more)
    for i, rank in enumerate(region.ranks):
        rank.before = ["env", f"NCCL_HOSTID=longhaul-rank-{i}", "CUDA_VISIBLE_DEVICES=0"]
    region.start()
    until("both ranks are members, or NCCL refuses them",
          lambda: region.members() == 2 or refusal(region) or not region.worker.alive(), 90)
    if refusal(region):
        print(f"not run: NCCL takes no two ranks on one GPU: {refusal(region)}")
        return SKIPPED
    check(region.worker.alive(), f"the worker ended:\n{region.worker.tail()}")
    for i, rank in enumerate(region.ranks):
        check(rank.says("nccl.open", f"rank {i} on GPU 0", f"NCCL_HOSTID=longhaul-rank-{i}"),
              rank.tail())
    kill_a_rank(region)
    check(shard.status()["coordinator"]["phase"] == "running",
          "the run ended before the rank was back: the kill proves nothing")
    for rank in region.ranks:
        rank.must_end(180)
    check_equal(region)
    check_replicas([shard], [region.worker])
    shard.ask_to_end()
    print("two ranks on one GPU: one was killed and came back; both end with the same parameters")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--plugin", required=True, help="the CUDA plugin")
    parser.add_argument("--nccl", required=True, help="NCCL's file")
    args = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with World(args.build, units=120) as world:
        return run(world, args)


if __name__ == "__main__":
    sys.exit(main())
