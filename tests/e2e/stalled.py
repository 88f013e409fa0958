#!/usr/bin/env python3
"""A region whose trainer stands still costs the others nothing: `stalled.py --build BUILD`.

Three regions, two shard servers and a coordinator on loopback; a training loop beside each worker.
One loop is stopped with SIGSTOP, while its worker lives and answers.

`run`: in the middle of the run. The worker is reported as stalled, the others train all units, also
those that it had begun, and the run ends without it. `drain`: an operator ends the run while the
loop is stopped. In both cases the coordinator, the worker's own log and `longhaul get plan` say
that it was left out, and the others end with the servers' digests.
"""
import signal
import sys
import time

import external
from loopback import check_credit, check_replicas
from world import REGIONS, World, check, flags_of, until

FLOOR = {"coordinator.stall_floor_s": "3 s", "coordinator.h_base": 4}
UNIT_TOKENS = 1024


def start(world, trainers):
    external.write_model(world)
    coordinator = world.coordinator(**FLOOR).start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in range(external.SHARDS)]
    workers = [world.worker(region, coordinator,
                            **{"trainer.kind": "external", "codec.name": "topk-fp32",
                               }).start() for region in REGIONS]
    trainers += [external.Trainer(world, w, 1, False).start() for w in workers]
    until("all have cut", lambda: all(t.cuts() > 2 for t in trainers))
    return coordinator, servers, workers


def row_of(coordinator, worker):
    return next(w for w in coordinator.status()["workers"] if w["name"] == worker.name)


def stop(worker, trainer):
    """Stops the loop within a unit: a loop between units delays nothing."""
    def tokens():
        return worker.status()["trainer"]["life_tokens"]

    while True:
        trainer.process.send_signal(signal.SIGSTOP)
        then = time.time() + 1
        until("it says where its loop stands", lambda: worker.status().get("time_s", 0) > then)
        trained = tokens()
        if trained % UNIT_TOKENS:
            return
        trainer.process.send_signal(signal.SIGCONT)
        until("the loop goes on", lambda: tokens() > trained)


def play(world, case, trainers):
    coordinator, servers, workers = start(world, trainers)
    stopped, others = workers[0], workers[1:]
    stop(stopped, trainers[0])
    if case == "drain":
        print(world.tool("drain", "run", "--end", *world.admin(coordinator)).strip())
    else:
        until("it is stalled", lambda: row_of(coordinator, stopped)["member_state"] == "stalled")
        check(coordinator.says("worker.stalled"), "no event tells of the stalled worker")
    until("the run has ended", lambda: coordinator.status()["phase"] == "ended", 150)
    for worker in others:
        worker.must_end()
    check("left_out" in row_of(coordinator, stopped), "the coordinator leaves nobody out")
    check(not any("left_out" in row_of(coordinator, w) for w in others), "it left out another one")
    check(coordinator.says("run.left_out"), "no event names who was left out")
    until("it was told", lambda: stopped.says("run.left_out"))
    plan = world.tool("get", "plan", *world.admin(coordinator))
    check(f"{stopped.name} of {REGIONS[0]} is left out" in plan, f"get plan says\n{plan}")
    check_replicas(servers, others)
    if case == "run":
        check_credit(world, coordinator, servers)
    stopped.must_end()  # its loop is still stopped, but the worker ends


def main():
    given = flags_of(__doc__).parse_args()
    for case, units in (("run", 240), ("drain", 2000)):
        trainers = []
        with World(given.build, units=units, keep=given.keep, shards=external.SHARDS) as world:
            try:
                play(world, case, trainers)
            finally:
                for trainer in trainers:
                    if trainer.process.poll() is None:
                        trainer.kill()
        print(f"{case}: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
