#!/usr/bin/env python3
"""Ranks that train on the emulated device, and a worker whose state is there too (gpu.state).

A rank is killed with -9 and comes back: with the state on the worker's device the model is, to the
byte, that of a run with the state on the host. With sums over TCP the worker is killed too, in
another run: replicas and servers agree, the device agrees with the host at each digest record, and
all ranks end with the worker's parameters.
With --nccl the tests' NCCL sums, in the device's own memory. The abort of a communicator then hangs
while its device has an operation under way, in a worker and in a rank that encodes there. The
process still ends, because nothing waits for that device, and is started again.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e"))
from loopback import check_replicas  # noqa: E402
from peers import (Region, check_cuda, check_equal, fault, kill_a_rank,  # noqa: E402
                   kill_the_worker)
from world import Alike, World, check, until  # noqa: E402

RANKS = 3
# One sequence a step, the worker's. So all sums have the same bits with any number of ranks, and
# two runs agree wherever the kill falls and however late a busy machine lets the other ranks join.
SEQUENCES = 1
STEADY = {"trainer.warmup": 0, "trainer.min_ratio": 1}  # the learning rate


def settings_of(args, where, more_still):
    more = {"trainer.backend": "cuda", "gpu.state": where, "LONGHAUL_CUDA_PLUGIN": args.plugin,
            "LONGHAUL_GEMM_PLUGIN": args.plugin, "trainer.batch": 1,
            "trainer.accumulate": SEQUENCES,
            "ranks.reduce": "nccl" if args.nccl else "tcp", "ranks.patience_ms": "3 s",
            "ranks.wire": "fp32", "trainer.tokens_per_s": 600, **STEADY}
    if args.nccl:
        more["LONGHAUL_NCCL_LIB"] = args.plugin
    return {**more, **more_still}


def begin(world, args, where, own=(), **more):
    """Starts the other ranks first, so that most of the worker's steps have all of them. `own`:
    settings of the ranks; `more`: of the server."""
    shard = world.both(**more)
    shard.start().listening()
    region = Region(world, shard, RANKS, settings_of(args, where, dict(own)))
    for rank in region.ranks[1:]:
        rank.start()
    for rank in region.ranks[1:]:
        until("it has its device", lambda r=rank: r.says("trainer.cuda", "an emulated device"))
    region.worker.start()
    region.together()
    return shard, region


def end(shard, region, where):
    for rank in region.ranks:
        rank.must_end(180)
    check_equal(region)
    check_cuda(region)
    check_replicas([shard], [region.worker])
    is_ = region.worker.last("gpu_state")
    check(is_["where"] == where and is_["why"] == "", f"{is_}")
    if where != "host":
        check(is_["encoded"] > 0 and is_["folded"] > 0, f"{is_}")
        check(is_["compared"] > 0 and is_["differed"] == 0, f"{is_}")
        check(not region.worker.says("state.differs"), region.worker.tail())
    shard.ask_to_end()
    return is_


def one_killed(args):
    found = {}
    for where in ("host", "device"):
        with Alike(args.build, 4608) as world:
            shard, region = begin(world, args, where, {"trainer.tokens_per_s": 300},
                                  **{"update.mode": "bsp"})
            if where != "host":
                until("it pushed", lambda r=region: r.worker.status()["gpu_state"]["encoded"] > 0)
                kill_a_rank(region)
                check(shard.status()["coordinator"]["phase"] == "running",
                      "the run ended before the rank was back: the kill proves nothing")
            is_ = end(shard, region, where)
            with open(os.path.join(region.worker.dir, "final.weights"), "rb") as file:
                found[where] = file.read()
    check(found["host"] == found["device"], "the models differ")
    print(f"a rank was killed, the model is that of a state on the host: {is_}")


def worker_killed(args):
    with World(args.build, units=18, unit_tokens=512) as world:
        shard, region = begin(world, args, "device")
        until("it pushed", lambda: region.worker.status()["gpu_state"]["encoded"] > 1)
        kill_the_worker(region)
        check(shard.status()["coordinator"]["phase"] == "running",
              "the run ended before the worker was back: the kill proves nothing")
        is_ = end(shard, region, "device")
        check(region.worker.text().count(" state.device ") == 2, region.worker.tail())
        print(f"the worker was killed: {is_}")


def hangs(world, node, other, word):
    """After a fault of `other` the abort of `node` hangs; `node` ends and logs why."""
    met = fault(world, node, "abort")
    until(f"{other.name} meets {word}", fault(world, other, word))
    check(node.end() != 0 and met(), f"{node.name} ended as if it were in order")
    check(node.says("abort hangs; this process ends to be started again"), node.tail())
    check(node.says("region.hangs", "its memory is kept"), node.tail())
    node.start()


def abort_hangs(args):
    """Only the worker computes, so the others' sums are under way before its own. A hang of one of
    them leaves the worker's sum on its device, and an error of the worker leaves the others'."""
    for where, word in (("device", "hang"), ("host", "error")):
        with World(args.build, units=18, unit_tokens=512) as world:
            os.mkdir(world.path("faults"))
            os.environ["LH_FAKE_NCCL_FAULTS"] = world.path("faults")
            # Slow, so that the run lasts until the process that hangs is back.
            slow = {"backend": "auto", "trainer.tokens_per_s": 200}
            shard, region = begin(world, args, where, slow)
            node, other = region.worker, region.ranks[-1]
            if where == "host":
                node, other = other, node
            until("it trains", lambda r=region: r.worker.status()["tokens"] > 0)
            hangs(world, node, other, word)
            region.together()
            check(shard.status()["coordinator"]["phase"] == "running",
                  "the run ended before the process was back")
            end(shard, region, where)
            print(f"an abort that hangs, gpu.state {where}: {node.name} ended, and came back")
    del os.environ["LH_FAKE_NCCL_FAULTS"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--plugin", required=True, help="the plugin with an emulated device")
    parser.add_argument("--nccl", action="store_true", help="it is the tests' NCCL as well")
    args = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    one_killed(args)
    if args.nccl:
        abort_hangs(args)
    else:
        worker_killed(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
