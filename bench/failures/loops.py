"""The training loops of bench/failures.py, one function for each arm; cell.py forks them.

A step is a pause, and every parameter changes once per window by seeded noise: nothing is learned,
and the processor has next to nothing to do. `note(steps)` records the surviving steps.
"""
import os
import sys
import time
from datetime import timedelta

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "frontdoor"),
                os.path.join(ROOT, "worker", "python")]
import model as models  # noqa: E402
import torch  # noqa: E402

TOKENS, LIGHTHOUSE, STORE = 32, 7711, 7710  # of a step; ports


def begin(given):
    """Every loop's start: the pause in which a process would import PyTorch."""
    time.sleep(given["start_s"])
    torch.set_num_threads(1)
    model = models.make("bytes")
    return model, models.Modelled(model.parameters(), given["h"])


def steps(given, optimizer):
    """Trains for ever; yields after each step."""
    while True:
        time.sleep(max(0.0, given["step_s"] - optimizer.lasts()))
        optimizer.step()
        optimizer.zero_grad()
        yield


def note(given, done):
    """Records the steps of all regions that survive this process, as far as it knows."""
    path = f"{given['done']}.new"
    with open(path, "w", encoding="ascii") as file:
        file.write(str(done))
    os.replace(path, given["done"])


def longhaul(given):
    """The package of worker/python; the servers count the surviving steps."""
    import longhaul as package

    model, optimizer = begin(given)
    with package.AsyncDiLoCo(package.Client.from_env(), model, optimizer,
                             tokens_per_step=TOKENS) as run:
        for _ in steps(given, optimizer):
            if run.finished:
                return


def torchft(given):
    """torchft's DiLoCo with the settings of its train_diloco.py. Committed steps survive: H steps
    of each participant."""
    import torch.distributed as dist
    from torchft.checkpointing.http_transport import HTTPTransport
    from torchft.local_sgd import DiLoCo
    from torchft.manager import Manager
    from torchft.process_group import ProcessGroupGloo

    model, optimizer = begin(given)
    outer = models.outer(model.parameters())

    def load(state):
        model.load_state_dict(state["model"])
        outer.load_state_dict(state["outer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=10)), use_async_quorum=False,
        min_replica_size=1, load_state_dict=load, quorum_retries=10,
        state_dict=lambda: {"model": model.state_dict(), "outer": outer.state_dict()},
        replica_id=f"failures_{given['rank']}", timeout=timedelta(seconds=30),
        checkpoint_transport=HTTPTransport(timeout=timedelta(seconds=10), num_chunks=0),
        rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port,
        lighthouse_addr=f"http://127.0.0.1:{LIGHTHOUSE}", hostname="127.0.0.1")
    with DiLoCo(manager, [model], optimizer, outer, sync_every=given["h"],
                use_bucketization=True):
        for _ in steps(given, optimizer):
            note(given, manager.batches_committed() * given["h"])


def lighthouse(_given):
    """torchft's lighthouse, with the settings of its README."""
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(bind=f"127.0.0.1:{LIGHTHOUSE}", min_replicas=1,
                              join_timeout_ms=10000, quorum_tick_ms=100)
    while server.address():
        time.sleep(60)


def checkpoint(given):
    """DiLoCo in a dozen lines over gloo; every few windows the first rank saves the common
    parameters, from which all restart."""
    import torch.distributed as dist

    model, optimizer = begin(given)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{STORE}", rank=given["rank"],
                            world_size=given["regions"], timeout=timedelta(seconds=60))
    anchor, n, path = models.Anchor(model), 0, os.path.join(given["folder"], "saved")
    if os.path.exists(path):
        kept = torch.load(path)
        anchor.optimizer.load_state_dict(kept["outer"])
        anchor.flat.copy_(kept["flat"])
        n = kept["n"]
    for _ in steps(given, optimizer):
        n += 1
        if n % given["h"]:
            continue
        mean = anchor.delta()
        dist.all_reduce(mean)
        anchor.step(mean.div_(given["regions"]))
        if n % given["save_steps"] == 0 and given["rank"] == 0:
            with open(path + ".new", "wb") as file:
                torch.save({"n": n, "flat": anchor.flat, "outer": anchor.optimizer.state_dict()},
                           file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(path + ".new", path)
            note(given, n * given["regions"])
