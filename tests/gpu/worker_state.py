#!/usr/bin/env python3
"""A worker whose state is on the device that trains (gpu.state), in real programs on the emulator.

The model that comes of a run is that of a state on the host, to the byte; a worker that is killed
comes back; a device without memory for it, one that leaves out records, and one that fails beside
the one that trains are dealt with.
With --plugin alone: a state that is spread over the first two GPUs of this machine, beside one on
the host.
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
    """Base, residual and replica on the device that trains: the model that comes of a run is that
    of a state on the host, to the byte, also where the first pushes are denser than what the
    device is prepared for. With bsp both take the same steps."""
    found = {}
    os.environ["LH_SIMT_DEVICES"] = "3"
    for where in ("host", "device", "spread", "pinned"):
        with Alike(args.build, 3072) as world:
            there = {**ON_DEVICE, "gpu.products": args.emulated, "gpu.state": where,
                     "codec.density_start": 0.5, "codec.density_fall": 0.4}
            if where == "spread":
                there["gpu.spread"] = "1,2"
            worker, backend = train(world, args.emulated, "cuda", mode="bsp", **there)
            is_ = worker.last("gpu_state")
            check(is_["where"] == where and is_["why"] == "", f"{is_}")
            on_gpu = where != "host"
            check(backend["name"] == ("cpu" if on_gpu else "cuda"), f"{backend}")
            for place in ("device", "spread", "pinned"):
                check(worker.says(f"state.{place}", "an emulated device", " bytes a parameter (")
                      == (where == place), worker.tail())
            check(where != "pinned" or worker.says(" 32.0 of the host (", " available"),
                  worker.tail())
            if where == "spread":
                check([d["device"] for d in is_["devices"]] == [1, 2], f"{is_}")
                check(all(d["shards"] == 1 for d in is_["devices"]), f"{is_}")
                check(worker.says(" on 2 GPUs; of the fullest, GPU "), worker.tail())
            check(not on_gpu or (is_["encoded"] > 0 and is_["folded"] > 0), f"{is_}")
            found[where] = weights_of(worker)
            print(f"state: {is_}")
    del os.environ["LH_SIMT_DEVICES"]
    check(len(set(found.values())) == 1, "the models differ")


def killed(args, where):
    """A worker whose state is on the device, or on another one, beside one whose is not; it is
    killed with -9 and started again. Replicas agree, and so does the device at each digest
    record."""
    if where == "spread":
        os.environ["LH_SIMT_DEVICES"] = "2"
    with World(args.build, units=36, unit_tokens=512) as world:
        shard = world.both(workers=2)
        shard.settings["digest.every_versions"] = 3
        shard.start().listening()
        there = {**ON_BOTH, "gpu.plugin": args.emulated, "gpu.products": args.emulated}
        if where == "spread":
            there.update({"gpu.state": "spread", "gpu.spread": "1,0"})
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
        check(is_["where"] == where and is_["folded"] > 0, f"{is_}")
        check(is_["compared"] > 0 and is_["differed"] == 0, f"{is_}")
        check(worker.text().count(f" state.{where} ") == 3, worker.tail())
        check(not worker.says("state.differs"), worker.tail())
        check(other.last("gpu_state") == {"where": "host", "why": ""}, f"{other.last('gpu_state')}")
        shard.ask_to_end()
        print(f"killed twice: {is_}")
    os.environ.pop("LH_SIMT_DEVICES", None)


def own_is_full(args):
    """The device that trains has no memory for the arrays, and another one has: auto takes it."""
    os.environ["LH_FAKE_PLUGIN_REAL"] = args.emulated
    os.environ["LH_FAKE_PLUGIN"] = "own"
    os.environ["LH_SIMT_DEVICES"] = "2"
    there = {**ON_DEVICE, "gpu.products": args.emulated}
    with World(args.build, units=6, unit_tokens=512) as world:
        worker, _ = train(world, args.fake, "cpu", **there,
                          **{"gpu.state": "auto", "gpu.spread": "0,1"})
        is_ = worker.last("gpu_state")
        check(is_["where"] == "spread" and [d["device"] for d in is_["devices"]] == [1]
              and is_["encoded"] > 0, f"{is_}")
        check("does not fit on an emulated device" in is_["why"], f"{is_}")
        check(worker.says("state.spread", " on 1 GPU;", "does not fit on an emulated device"),
              worker.tail())
        print(f"the own GPU is full: {is_}")
    del os.environ["LH_SIMT_DEVICES"]


def another_fails(args):
    """Another GPU than the one that trains fails: the worker ends with a line that names it, and
    goes on from its directory without it."""
    os.environ["LH_FAKE_PLUGIN_REAL"] = args.emulated
    os.environ["LH_FAKE_PLUGIN"] = "cross"
    os.environ["LH_SIMT_DEVICES"] = "2"
    there = {**ON_DEVICE, "gpu.plugin": args.fake, "gpu.products": args.emulated}
    with World(args.build, units=12, unit_tokens=512) as world:
        shard = world.both().start().listening()
        worker = world.worker("asia", shard, **there,
                              **{"gpu.state": "spread", "gpu.spread": "1"}).start()
        check(worker.end() != 0 and worker.says(
            "training on the GPU, an emulated device", "the state on GPU 1, an emulated device: ",
            "fell off the bus; start the worker again"), worker.tail())
        worker.settings.update({"gpu.plugin": args.emulated, "gpu.state": "device",
                                "gpu.spread": ""})
        worker.start().must_end(120)
        check_replicas([shard], [worker])
        check(worker.last("gpu_state")["where"] == "device", worker.tail())
        shard.ask_to_end()
        print("another GPU failed, and is named")
    del os.environ["LH_SIMT_DEVICES"]


def no_room(args):
    """A device that trains and has no memory for the arrays: auto pins them on the host, or keeps
    the state there where the device has no memory at all, and says so; device ends the start. One
    that leaves out records is found by the digests and filled anew."""
    os.environ["LH_FAKE_PLUGIN_REAL"] = args.emulated
    os.environ["LH_FAKE_PLUGIN"] = "few"
    there = {**ON_DEVICE, "gpu.products": args.emulated}
    with World(args.build, units=6, unit_tokens=512) as world:
        worker, _ = train(world, args.fake, "cpu", **there, **{"gpu.state": "auto"})
        is_ = worker.last("gpu_state")
        check(is_["where"] == "pinned" and is_["encoded"] > 0
              and "does not fit on an emulated device" in is_["why"], f"{is_}")
        check(worker.says("state.pinned", " of the host (", "does not fit on an emulated device"),
              worker.tail())
        print(f"no room for arrays: {is_}")
    os.environ["LH_FAKE_PLUGIN"] = "arrays"
    with World(args.build, units=6, unit_tokens=512) as world:
        worker, _ = train(world, args.fake, "cpu", **there, **{"gpu.state": "auto"})
        is_ = worker.last("gpu_state")
        check(is_["where"] == "host" and "does not fit on an emulated device" in is_["why"],
              f"{is_}")
        check(worker.says("state.host", " bytes a parameter (", "; pinned: the state does not fit",
                          "the host holds the state"), worker.tail())
        check(worker.last("training")["backend"] == "cuda", worker.tail())
        worker.settings.update({"gpu.state": "device", "dir": world.path("anew")})
        check(worker.start().end() != 0 and
              worker.says("gpu.state is device, but: the state does not fit"), worker.tail())
        print(f"no room: {is_['why']}")
    os.environ["LH_FAKE_PLUGIN"] = "skips"
    with World(args.build, units=12, unit_tokens=512) as world:
        shard = world.both()
        shard.settings["digest.every_versions"] = 2
        shard.start().listening()
        there = {**ON_BOTH, "gpu.plugin": args.fake, "gpu.products": args.emulated}
        worker = world.worker("asia", shard, **there).start()
        worker.must_end(120)
        check_replicas([shard], [worker])
        is_ = worker.last("gpu_state")
        check(is_["differed"] > 0 and worker.says("state.differs", "filled anew from the host"),
              f"{is_} {worker.tail()}")
        shard.ask_to_end()
        print(f"skips: {is_}")


def real(args):
    """On this machine's first two GPUs: the model is that of a state on the host, to the byte."""
    found = {}
    for where in ("host", "spread"):
        with Alike(args.build, 3072) as world:
            there = {**ON_DEVICE, "gpu.products": args.products, "gpu.state": where}
            if where == "spread":
                there["gpu.spread"] = "0,1"
            worker, _ = train(world, args.plugin, "cuda", mode="bsp", **there)
            is_ = worker.last("gpu_state")
            check(is_["where"] == where, f"{is_}")
            check(where == "host" or len(is_["devices"]) == 2, f"{is_}")
            found[where] = weights_of(worker)
    check(found["host"] == found["spread"], "the models differ")
    print(f"spread over two GPUs, the model is that of a state on the host: {is_}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--emulated", help="the plugin with an emulated device")
    parser.add_argument("--fake", help="the plugin that is wrong")
    parser.add_argument("--plugin", help="the CUDA plugin, on a machine with two GPUs")
    parser.add_argument("--products", default="", help="the plugin of products that goes with it")
    args = parser.parse_args()
    if args.plugin:
        real(args)
        return 0
    state(args)
    killed(args, "device")
    killed(args, "spread")
    no_room(args)
    own_is_full(args)
    another_fails(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
