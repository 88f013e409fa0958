#!/usr/bin/env python3
"""A rolling upgrade: a run goes on while its processes are replaced by those of another build.

    tests/e2e/rolling.py --build build/release --old OTHER/build/release

All processes begin as programs of --old. Then they are ended one after the other, alternately in
order and by kill -9, and restarted from their directories as programs of --build: a worker, a
server, the coordinator, the other server, the other workers. After each step all workers train on,
so new workers have old servers, old workers have new ones, and an old coordinator has both. At the
end every unit is credited once, and all replicas are equal. Without --old both are --build: a
rolling restart.
"""
import argparse
import os
import sys

from loopback import check_credit, check_replicas, end_all, end_workers, kill_and_see, \
    nothing_left, trained_on
from world import REGIONS, World, check, until

UNITS, SPEED = 300, 3000  # about 35 s of training


def runs_from(node, build):
    """The node's program belongs to this build."""
    program = os.path.realpath(f"/proc/{node.process.pid}/exe")
    return program.startswith(os.path.realpath(build) + os.sep)


def check_mixed(nodes, replaced, old, new):
    for node in nodes:
        build = new if node in replaced else old
        check(runs_from(node, build), f"{node.name} is none of {build}")


def run(world, old, new):
    coordinator = world.coordinator().start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in (0, 1)]
    workers = [world.worker(region, coordinator, **{"trainer.tokens_per_s": SPEED}).start()
               for region in REGIONS]
    until("all workers train", trained_on(workers, {}, 8))
    world.build = new
    replaced = []
    for node in (workers[0], servers[0], coordinator, servers[1], *workers[1:]):
        check_mixed(world.nodes, replaced, old, new)
        kill_and_see(node, workers, orderly=len(replaced) % 2 == 0)
        replaced.append(node)
    check_mixed(world.nodes, world.nodes, old, new)
    check(coordinator.status().get("phase", "running") == "running",
          "the run ended before the last process was replaced: that proves nothing")
    end_workers(coordinator, workers)
    check_replicas(servers, workers)
    check_credit(world, coordinator, servers)
    end_all([coordinator, *servers])


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--build", required=True, help="the build tree that replaces")
    flags.add_argument("--old", help="the build tree that is replaced")
    flags.add_argument("--keep", action="store_true", help="keep the run's folder")
    given = flags.parse_args()
    old = given.old or given.build
    with World(old, units=UNITS, keep=given.keep) as world:
        run(world, old, given.build)
        nothing_left(world)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
