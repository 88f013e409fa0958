#!/usr/bin/env python3
"""Loops with their own data: `own_data.py --build BUILD`.

Two regions on loopback, workers with `trainer.kind: external`, a loop beside each that is linked
with liblonghaul.so. The run ends by itself when the ledger counts as many tokens as the budget,
also when the coordinator is killed while the run ends. A loop that asks such a run for units is
refused, and so is one with its own data in a run that leases units; in both cases the worker logs
why and ends. The settings name the run's kind.
"""
import sys

from external import Trainer, write_model
from loopback import check_replicas
from world import REGIONS, World, check, flags_of, until

MANY, MORE = 10**12, 30_000  # tokens


def begin(world, trainers, own):
    """Starts coordinator, servers, workers and a loop beside each, and waits until all train."""
    write_model(world)
    regions = REGIONS[:2]
    coordinator = world.coordinator(len(regions), **{
        "coordinator.h_base": 4, "run.budget_tokens": MANY,
        "coordinator.data": "own" if own else "leased"}).start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in range(2)]
    workers = [world.worker(r, coordinator, **{"trainer.kind": "external"}).start()
               for r in regions]
    trainers += [Trainer(world, w, 1, own).start() for w in workers]
    until("every loop's cuts are committed", lambda: all(t.cuts() > 2 for t in trainers), 60)
    return coordinator, servers, workers


def change_data(world, trainer, own, why):
    """The loop goes on with data of the other kind, and its worker is refused."""
    trainer.kill()
    other = Trainer(world, trainer.worker, 1, own).start()
    try:
        check(trainer.worker.end(60) != 0, f"{trainer.worker.name} ended in good order")
        check(trainer.worker.says("member.refused", why),
              f"{trainer.worker.name} does not say why:\n{trainer.worker.tail()}")
    finally:
        other.kill()


def own_budget(world, trainers):
    coordinator, servers, workers = begin(world, trainers, own=True)
    until("the coordinator counts what they train", lambda: coordinator.status().get(
        "credited_tokens", 0) > 0, 60)
    change_data(world, trainers[0], False, "have data of their own")
    workers[0].start()
    trainers[0].start()
    tokens = coordinator.status()["credited_tokens"]
    coordinator.kill()
    budget = tokens + MORE
    coordinator.settings["run.budget_tokens"] = budget
    coordinator.start().listening()
    until("the run ends", lambda: coordinator.status().get("phase", "running") != "running", 120)
    coordinator.kill()
    coordinator.start().listening()
    for worker, trainer in zip(workers, trainers):
        check(trainer.end() == 0, f"the loop of {worker.name}: {trainer.process.returncode}")
        worker.must_end(120)
    until("the coordinator knows", lambda: coordinator.status().get("phase") == "ended")
    check(not coordinator.says("run.phase", "-> running", "draining ->"),
          "the run went on after it began to end")
    check_replicas(servers, workers)
    status = coordinator.status()
    check(status["credited"] == 0, "a unit is credited that nobody claimed")
    for server in servers:
        for shard in server.shards():
            check(shard["tokens"] >= budget, f"shard {shard['shard']} has {shard['tokens']} tokens "
                  f"of {budget}")
    for node in [coordinator, *servers]:
        node.must_stop()


def leased_then_own(world, trainers):
    coordinator, _, _ = begin(world, trainers, own=False)
    until("units are credited", lambda: coordinator.status().get("credited", 0) > 2, 60)
    change_data(world, trainers[0], True, "brings its own data")


def main():
    given = flags_of(__doc__).parse_args()
    for play, units in ((own_budget, 8), (leased_then_own, 2000)):
        print(play.__name__)
        with World(given.build, units=units, keep=given.keep) as world:
            trainers = []
            try:
                play(world, trainers)
            finally:  # stops all trainers, also after an error
                for trainer in trainers:
                    if trainer.process.poll() is None:
                        trainer.kill()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
