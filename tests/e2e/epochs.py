#!/usr/bin/env python3
"""Three regions train three epochs of the data over loopback, and are killed in the later ones.

A worker and the coordinator are killed with -9 in the second epoch, a worker in the third. At the
end every unit of every epoch is credited once, and the status showed the progress on the way. A
worker with another number of epochs ends with a message that names both numbers.
"""
import json
import sys

from loopback import (check_credit, check_replicas, end_all, end_workers, kill_and_see, play,
                      trained_on)
from world import REGIONS, check, until

EPOCHS = 3


def credited(coordinator):
    return coordinator.status().get("credited", 0)


def in_epoch(world, coordinator, epoch, part):
    """Waits until that part of the epoch's units is credited; epochs may overlap."""
    least = (epoch + part) * len(world.units)
    until(f"{least:.0f} units are credited", lambda: credited(coordinator) >= least)
    status = coordinator.status()
    check(status["phase"] == "running", f"the run is over too soon: {status['phase']}")
    check(status["data_epochs"] == EPOCHS, f"{status['data_epochs']} epochs")
    check(status["units"] == EPOCHS * len(world.units), f"{status['units']} units of the run")


def check_leases(world, coordinator):
    """Each unit of the run has a row with its epoch and its data."""
    rows = json.loads(world.tool("get", "leases", *world.admin(coordinator), "-o",
                                 "json"))["leases"]
    check([row["unit"] for row in rows] == list(range(EPOCHS * len(world.units))), "rows")
    for row in rows:
        data = world.units[row["unit"] % len(world.units)]
        check(row["data_epoch"] == row["unit"] // len(world.units), f"{row}")
        check((row["language"], row["home"], row["tokens"]) ==
              (data["language"], data["home"], data["tokens"]), f"{row} and {data}")


def refused(world, coordinator):
    """A worker with another number of epochs ends; both sides log the reason."""
    worker = world.worker("asia", coordinator, **{"run.epochs": EPOCHS - 1}).start()
    check(worker.end(60) != 0, "a worker of two epochs is in a run of three")
    check(worker.says("the run has 3 data epochs"), "the worker does not say why it ended")
    check(coordinator.says("the worker expects 2 (run.epochs)"), "nor does the coordinator")


def run(world):
    tokens = EPOCHS * sum(u["tokens"] for u in world.units)
    coordinator = world.coordinator(**{"run.epochs": EPOCHS, "run.seed": 5,
                                       "run.budget_tokens": tokens}).start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in (0, 1)]
    refused(world, coordinator)
    workers = [world.worker(region, coordinator, **{
        "trainer.tokens_per_s": 4000, "run.epochs": EPOCHS if region == "asia" else 0}).start()
               for region in REGIONS]
    until("all workers train", trained_on(workers, {}, 8))
    in_epoch(world, coordinator, 1, 0.1)
    kill_and_see(workers[0], workers)
    kill_and_see(coordinator, workers)
    check_leases(world, coordinator)
    in_epoch(world, coordinator, 2, 0)
    kill_and_see(workers[1], workers)
    check(coordinator.status().get("phase", "running") == "running", "the run ended before that")
    end_workers(coordinator, workers)
    check_replicas(servers, workers)
    check_credit(world, coordinator, servers, EPOCHS)
    check(coordinator.status()["data_epoch"] == EPOCHS - 1, "it is not in the last epoch")
    end_all([coordinator, *servers])


if __name__ == "__main__":
    sys.exit(play(__doc__, run, 150))
