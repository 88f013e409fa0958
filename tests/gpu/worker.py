#!/usr/bin/env python3
"""Workers that encode and train on the emulated device, and one on a host without a driver.

The first two runs end with the servers' digests. One reports that the device encoded its pushes;
the other says in one line of its log, and in status.json, why the CPU did. `longhaul gpu` says the
same of each. Then three regions train one model, each with a worker that encodes on the one device;
one region trains on it, to the CPU's losses; and one on the device trains with one on the CPU. At
last a device fails under a worker, which ends, and goes on when it is started again.
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e"))
from loopback import check_replicas  # noqa: E402
from world import REGIONS, Alike, World, check, held, until  # noqa: E402


def train(world, plugin, backend, mode="async", **more):
    """Runs one worker to the end of the run. Returns it and its last backend status."""
    shard = world.both(**{"update.mode": mode}).start().listening()
    settings = {"LONGHAUL_CUDA_PLUGIN": plugin, **more}
    worker = world.worker("asia", shard, backend=backend, **settings).start()
    truth = until("the run ends", lambda: worker.process.poll() is not None and held([shard]), 120)
    check(worker.process.returncode == 0, f"the worker ended with {worker.process.returncode}")
    check(worker.last_holdings() == truth, "the worker's replica is not the server's")
    shard.ask_to_end()
    return worker, worker.last("backend")


def asked(world, plugin):
    return json.loads(world.tool("gpu", "--plugin", plugin, "--products", plugin, "--nccl",
                                 "none.so", "-o", "json"))


def emulated(args):
    with World(args.build, units=6, unit_tokens=512) as world:
        worker, backend = train(world, args.emulated, "auto")
        check(backend["name"] == "cuda" and backend["why"] == "", f"{backend}")
        check(backend["encoded"] > 0, f"no push was encoded on the device: {backend}")
        check(worker.says("backend.cuda", "an emulated device"), "the log names no device")
        found = asked(world, args.emulated)
        check(found["gpu"]["devices"][0]["name"] == "an emulated device", f"{found}")
        check(found["gpu"]["why"] == "" and "no NCCL" in found["nccl"]["why"], f"{found}")
        check(found["products"]["name"] == "the emulator's loops", f"{found}")
        text = world.tool("gpu", "--plugin", args.emulated, "--products", args.emulated)
        check("products the emulator's loops" in text, text)
        check("an emulated device" in text and "backend  cuda" in text, text)
        print(f"emulated: {backend['encoded']} pushes")


def without(args):
    os.environ["LH_FAKE_PLUGIN"] = "driver"
    with World(args.build, units=6, unit_tokens=512) as world:
        worker, backend = train(world, args.fake, "cuda", **{"trainer.backend": "cuda"})
        trainer = worker.last("training")
        check(trainer["backend"] == "cpu" and trainer["device"] == "", f"{trainer}")
        check("no NVIDIA driver; the CPU is used" in trainer["why"], f"{trainer}")
        check(worker.says("trainer.cpu", "no NVIDIA driver; the CPU is used"), worker.tail())
        check(backend["name"] == "cpu", f"{backend}")
        check("this machine has no NVIDIA driver; the CPU is used" in backend["why"], f"{backend}")
        check(worker.says("backend.cpu", "no NVIDIA driver; the CPU is used"), worker.tail())
        found = asked(world, args.fake)
        check(found["gpu"]["opened"] and not found["gpu"]["devices"], f"{found}")
        check("no NVIDIA driver" in found["gpu"]["why"], f"{found}")
        check("without lk_gemm_query" in found["products"]["why"], f"{found}")
        print(f"without: {backend['why']}")


def regions(args, plugin):
    """Three regions to the end of a run; all replicas agree, and the device encoded for each."""
    # Slow, so that the last region to start still finds work.
    slow = {"LONGHAUL_CUDA_PLUGIN": plugin, "trainer.tokens_per_s": 1500}
    with World(args.build, units=90, unit_tokens=512) as world:
        shard = world.both(workers=len(REGIONS)).start().listening()
        workers = [world.worker(region, shard, backend="cuda", **slow).start()
                   for region in REGIONS]
        for worker in workers:
            worker.must_end(120)
        check_replicas([shard], workers)
        encoded = {worker.region: worker.last("backend") for worker in workers}
        for region, backend in encoded.items():
            check(backend["name"] == "cuda" and backend["encoded"] > 0, f"{region}: {backend}")
        shard.ask_to_end()
        counts = ", ".join(f"{region} {is_['encoded']}" for region, is_ in encoded.items())
        print(f"three regions on one device: pushes encoded: {counts}")


ON_DEVICE = {"trainer.backend": "cuda"}


def losses(build, plugin, products):
    """One region's run on the CPU and on the device: the losses agree to rounding. With bsp each
    step starts from the same parameters, at any speed."""
    found = {}
    for name in ("cpu", "fp32", "bf16"):
        more = {} if name == "cpu" else {**ON_DEVICE, "trainer.precision": name}
        more["LONGHAUL_GEMM_PLUGIN"] = products
        with Alike(build, 3072) as world:
            worker, _ = train(world, plugin, "cpu", mode="bsp", **more)
            trainer = worker.last("training")
            check(trainer["backend"] == ("cpu" if name == "cpu" else "cuda"), f"{trainer}")
            check(trainer["why"] == "" and (name == "cpu" or name in trainer["device"]),
                  f"{trainer}")
            check(name == "cpu" or worker.says("trainer.cuda", " bytes a parameter ("),
                  worker.tail())
            found[name] = worker.last("loss")
    check(found["cpu"] < 5.5, f"the CPU learned nothing: {found}")
    for name, loss in found.items():
        most = 0.005 if name == "bf16" else 0.001
        check(abs(loss - found["cpu"]) < most * found["cpu"], f"losses differ: {found}")
    print("losses: " + ", ".join(f"{name} {loss:.5f}" for name, loss in found.items()))


def mixed(args):
    """A region that trains and encodes on the device, and one of processors: replicas agree."""
    with World(args.build, units=18, unit_tokens=512) as world:
        shard = world.both().start().listening()
        there = {**ON_DEVICE, "backend": "cuda", "LONGHAUL_CUDA_PLUGIN": args.emulated,
                 "LONGHAUL_GEMM_PLUGIN": args.emulated, "trainer.norms_every_rounds": 1}
        # The CPU's region is much faster than the emulator, so it starts after the first one has
        # trained. It has ranks (none of them is started), and so it trains on the CPU.
        ranks = {"trainer.backend": "auto", "gpu.state": "auto", "ranks.count": 2,
                 "trainer.tokens_per_s": 600}
        workers = [world.worker("asia", shard, **there).start()]
        until("the region on the device trains", lambda: workers[0].status().get("tokens"), 120)
        workers.append(world.worker("europe", shard, **ranks).start())
        for worker in workers:
            worker.must_end(120)
        check_replicas([shard], workers)
        trainer, backend = workers[0].last("training"), workers[0].last("backend")
        check(trainer["backend"] == "cuda" and backend["encoded"] > 0, f"{trainer} {backend}")
        why = workers[1].last("training")["why"]
        check(why.startswith("ranks.reduce is shm, ") and why.endswith("; the CPU trains"), why)
        where = workers[1].last("gpu_state")
        check(where == {"where": "host", "why": why}, f"{where}")
        check(workers[0].last("tokens") > 0, "the region on the device trained nothing")
        check(workers[0].says("tensor.norms"), workers[0].tail())
        shard.ask_to_end()
        print(f"mixed: {backend['encoded']} pushes of a region that trained on the device")


def breaks(args):
    """The device fails at a step: the worker ends and logs the cause. Restarted on a working
    device, it goes on from its directory, and nothing is lost or counted twice."""
    os.environ["LH_FAKE_PLUGIN"] = "step"
    os.environ["LH_FAKE_PLUGIN_REAL"] = args.emulated
    with World(args.build, units=6, unit_tokens=512) as world:
        shard = world.both().start().listening()
        there = {**ON_DEVICE, "LONGHAUL_CUDA_PLUGIN": args.fake,
                 "LONGHAUL_GEMM_PLUGIN": args.emulated}
        worker = world.worker("asia", shard, backend="cpu", **there).start()
        check(worker.end(120) != 0, "the worker took no notice of a device that fails")
        check(worker.says("training on the GPU, ", "the device fell off the bus"), worker.tail())
        worker.settings["LONGHAUL_CUDA_PLUGIN"] = args.emulated
        worker.start().must_end(120)
        check(worker.text().count("trainer.cuda") == 2, worker.tail())
        check_replicas([shard], [worker])
        check(shard.says("closing -> ended, 3072 tokens credited"), shard.tail())
        shard.ask_to_end()
        print("breaks: ended, and went on to the end of the run")


def real(args):
    with World(args.build, units=6, unit_tokens=512) as world:
        _, backend = train(world, args.plugin, "cuda")
        check(backend["name"] == "cuda" and backend["encoded"] > 0, f"{backend}")
        print(f"{backend['device']}: {backend['encoded']} pushes")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--emulated", help="the plugin with an emulated device")
    parser.add_argument("--fake", help="the plugin that is wrong")
    parser.add_argument("--plugin", help="only a worker on the device of this plugin")
    parser.add_argument("--products", help="with --plugin: a region trains there, by this plugin "
                        "of matrix products, and one on the CPU")
    parser.add_argument("--regions", action="store_true", help="with --plugin: three regions there")
    args = parser.parse_args()
    if args.plugin and args.regions:
        regions(args, args.plugin)
        return 0
    if args.plugin and args.products:
        losses(args.build, args.plugin, args.products)
        return 0
    if args.plugin:
        real(args)
        return 0
    emulated(args)
    without(args)
    regions(args, args.emulated)
    losses(args.build, args.emulated, args.emulated)
    mixed(args)
    breaks(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
