#!/usr/bin/env python3
"""`update.mode: bsp` with the real programs: three regions of unequal speed, round by round.

In the middle a server and a worker are killed with -9. At the end no region has been a round ahead,
and all checks of loopback.py hold.
"""
import sys

from loopback import (check_credit, check_learned, check_replicas, check_weights, end_all,
                      end_workers, kill_and_see, play, trained_on)
from world import check, until

SPEED = {"asia": 8000, "europe": 4000, "america": 2000}  # tokens/s; the slowest sets the pace
BSP = {"update.mode": "bsp"}


def run(world):
    # The timeout exceeds a restart of a dead worker: otherwise the others would go on without it.
    coordinator = world.coordinator(**BSP, **{"coordinator.worker_timeout_s": "60 s"})
    coordinator.start().listening()
    servers = [world.server(i, coordinator, **BSP).start().listening() for i in (0, 1)]
    workers = [world.worker(region, coordinator, **{"trainer.tokens_per_s": speed}).start()
               for region, speed in SPEED.items()]
    until("all workers train", trained_on(workers, {}, 8))
    kill_and_see(servers[1], workers)
    kill_and_see(workers[2], workers)
    check(coordinator.status().get("phase", "running") == "running",
          "the run ended before the last kill: the drill proves nothing")
    end_workers(coordinator, workers)
    pushes = {w.name: [s["step"] for s in w.last("shards")] for w in workers}
    print("pushes of each shard:", pushes)
    every = [n for shards in pushes.values() for n in shards]
    check(max(every) - min(every) <= 1, f"somebody was ahead: {pushes}")
    check_replicas(servers, workers)
    check_credit(world, coordinator, servers)
    check_weights(world, workers)
    check_learned(world, workers[0])
    end_all([coordinator, *servers])


if __name__ == "__main__":
    sys.exit(play(__doc__, run, 120))
