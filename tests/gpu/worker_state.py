#!/usr/bin/env python3
"""A worker whose state is on the device that trains (gpu.state), in real programs on the emulator.

A run's model is, to the byte, that of a run with the state on the host. A killed worker comes back.
A device without memory for the state, and one that leaves out records, are handled.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e"))
from loopback import check_replicas  # noqa: E402
from worker import ON_DEVICE, train  # noqa: E402
from world import Alike, World, check, until  # noqa: E402


def weights_of(worker):
    with open(os.path.join(worker.dir, "final.weights"), "rb") as file:
        return file.read()


ON_BOTH = {**ON_DEVICE, "gpu.state": "device"}


def state(args):
    """Base, residual and replica are on the device that trains: the run's model is, to the byte,
    that of a run with the state on the host. With bsp both take the same steps."""
    found = {}
    for where in ("host", "device"):
        with Alike(args.build, 3072) as world:
            there = {**ON_DEVICE, "LONGHAUL_GEMM_PLUGIN": args.emulated, "gpu.state": where}
            worker, backend = train(world, args.emulated, "cuda", mode="bsp", **there)
            is_ = worker.last("gpu_state")
            check(is_["where"] == where and is_["why"] == "", f"{is_}")
            on_gpu = where != "host"
            check(backend["name"] == ("cpu" if on_gpu else "cuda"), f"{backend}")
            check(worker.says("state.device", "an emulated device", " bytes a parameter (")
                  == on_gpu, worker.tail())
            check(not on_gpu or (is_["encoded"] > 0 and is_["folded"] > 0), f"{is_}")
            found[where] = weights_of(worker)
            print(f"state: {is_}")
    check(len(set(found.values())) == 1, "the models differ")


def killed(args):
    """Two workers, one with its state on the device. That one is killed with -9 twice and started
    again. Replicas agree, and so does the device at each digest record."""
    with World(args.build, units=36, unit_tokens=512) as world:
        shard = world.both(workers=2)
        shard.start().listening()
        there = {**ON_BOTH, "LONGHAUL_CUDA_PLUGIN": args.emulated,
                 "LONGHAUL_GEMM_PLUGIN": args.emulated}
        worker = world.worker("asia", shard, **there).start()
        other = world.worker("europe", shard, **{"trainer.tokens_per_s": 200}).start()
        for life in range(2):
            until("it pushed and folded in this life",
                  lambda: worker.status().get("gpu_state", {}).get("encoded", 0) > 1
                  and worker.status()["gpu_state"]["folded"] > 3)
            worker.kill()
            worker.start()
        for one in (worker, other):
            one.must_end(120)
        check_replicas([shard], [worker, other])
        is_ = worker.last("gpu_state")
        check(is_["where"] == "device" and is_["folded"] > 0, f"{is_}")
        check(is_["compared"] > 0 and is_["differed"] == 0, f"{is_}")
        check(worker.text().count(" state.device ") == 3, worker.tail())
        check(not worker.says("state.differs"), worker.tail())
        check(other.last("gpu_state") == {"where": "host", "why": ""}, f"{other.last('gpu_state')}")
        shard.ask_to_end()
        print(f"killed twice: {is_}")


def no_room(args):
    """A device that trains but has no memory for the arrays: with `auto` the state stays on the
    host, and the worker says so; with `device` the start fails. If a device leaves out records, the
    digests find it and the state is copied anew."""
    os.environ["LH_FAKE_PLUGIN_REAL"] = args.emulated
    there = {**ON_DEVICE, "LONGHAUL_GEMM_PLUGIN": args.emulated}
    os.environ["LH_FAKE_PLUGIN"] = "arrays"
    with World(args.build, units=6, unit_tokens=512) as world:
        worker, _ = train(world, args.fake, "cpu", **there, **{"gpu.state": "auto"})
        is_ = worker.last("gpu_state")
        check(is_["where"] == "host" and "does not fit on an emulated device" in is_["why"],
              f"{is_}")
        check(worker.says("state.host", " bytes a parameter (", "the host holds the state"),
              worker.tail())
        check(worker.last("training")["backend"] == "cuda", worker.tail())
        worker.settings.update({"gpu.state": "device", "dir": world.path("anew")})
        check(worker.start().end() != 0 and
              worker.says("gpu.state is device, but: the state does not fit"), worker.tail())
        print(f"no room: {is_['why']}")
    os.environ["LH_FAKE_PLUGIN"] = "skips"
    with World(args.build, units=12, unit_tokens=512) as world:
        shard = world.both()
        shard.start().listening()
        there = {**ON_BOTH, "LONGHAUL_CUDA_PLUGIN": args.fake,
                 "LONGHAUL_GEMM_PLUGIN": args.emulated}
        worker = world.worker("asia", shard, **there).start()
        worker.must_end(120)
        check_replicas([shard], [worker])
        is_ = worker.last("gpu_state")
        check(is_["differed"] > 0 and worker.says("state.differs", "copied anew from the host"),
              f"{is_} {worker.tail()}")
        shard.ask_to_end()
        print(f"skips: {is_}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--emulated", help="the plugin with an emulated device")
    parser.add_argument("--fake", help="the plugin that is wrong")
    args = parser.parse_args()
    state(args)
    killed(args)
    no_room(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
