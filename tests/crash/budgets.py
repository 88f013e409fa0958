#!/usr/bin/env python3
"""Private regions lose power, and their disks fill: `budgets.py --build build/release`.

Like tests/e2e/private.py, but each worker and its records' budget file are on a disk of their own
(power.py). In each cycle a host loses power while it charges and releases; or its disk is full for
some seconds, in half of these cycles with a kill -9 meanwhile; or processes are killed as in
private.py. After each cycle no budget file shows a smaller charge than the logs, no total fell or
was admitted twice, and none is above the plan; then releases go on. Needs root; status 77 where
disks can't be cut.

--lie gives the workers a libc whose fdatasync() and fsync() do nothing: then some file must show a
smaller charge than the logs after a cut, or the cycles prove nothing.
"""
import os
import random
import subprocess
import sys
import time

from cluster import Failure, check, flags_of, until, verdict
from faults import empty, fill
from power import Hosts, isolated, probe

import private  # tests/e2e; cluster.py has made it importable
from world import World

FAULTS = ("power", "full", "kill")


class Budgets(Hosts):
    """Private workers on disks of their own; the other nodes are in the world's folder."""

    WORKERS_ON_DISK = 2

    def __init__(self, world, lie):  # pylint: disable=super-init-not-called
        self.world, self.disks, self.make = world, [], {"worker": world.worker}
        self.lie = {"LD_PRELOAD": lie} if lie else {}
        world.worker = self.private_worker

    def private_worker(self, *given, **more):
        node = self.on_disk("worker", *given, **more, **self.lie)
        node.settings["privacy.budget"] = os.path.join(node.disk.folder, "budget")
        return node


def start_again(worker):
    """Restarts a worker that ended because its disk was full; any other end is a failure."""
    if worker.alive():
        return
    if worker.process.returncode != -9:
        check(worker.says("No space left on device"),
              f"{worker.name} ended with {worker.process.returncode}:\n{worker.tail()}")
    worker.start()


def cut(play, hosts, draw, worker, loop):
    time.sleep(draw.choice((0.02, 0.1, 0.4)) * draw.random())
    for each in loop:
        each.kill()
    hosts.lose_power(worker)
    play.judge()
    for each in (worker, *loop):
        each.start()


def crowd(play, draw, worker):
    fill(worker.disk.folder)
    time.sleep(draw.uniform(0, 1))
    if draw.random() < 0.5:
        if worker.alive():
            worker.kill()
        play.judge()
        worker.start()
        time.sleep(draw.uniform(0, 1))
    play.judge()
    empty(worker.disk.folder)
    start_again(worker)


def cycles(given, play, hosts):
    done = dict.fromkeys(FAULTS, 0)
    while sum(done.values()) < given.cycles and not play.is_spent():
        draw = random.Random(f"{given.seed} {sum(done.values())}")
        before, fault = play.judge(), FAULTS[sum(done.values()) % len(FAULTS)]
        region = draw.randrange(2)
        worker, loop = play.workers[region], play.loops[region:region + 1]
        if fault == "power":
            cut(play, hosts, draw, worker, loop)
        elif fault == "full":
            crowd(play, draw, worker)
        else:
            play.kill(draw)
        play.goes_on(before)
        done[fault] += 1
    check(sum(done.values()) > given.cycles // 2, "the plan's steps were spent too soon")
    print(f"{given.level}: {done}, {play.judge()} steps charged by the logs")


def campaign(given):
    world = World(given.build, shards=private.SHARDS, keep=given.keep,
                  **({"units": 240, "unit_tokens": 64} if given.level == "record" else
                     {"units": 6}))
    with world:
        if given.level != "record":
            private.write_model(world)
        hosts, play = Budgets(world, given.lie), None
        each = 500 if given.level == "reported" else 120
        try:
            play = private.Play(world, given.level, each * (1 + given.cycles))
            until("budgets are charged", lambda: all(
                os.path.exists(w.settings["privacy.budget"]) for w in play.workers), 60)
            cycles(given, play, hosts)
        finally:
            if play:
                play.close()
            hosts.release()


def lied(given):
    try:
        campaign(given)
    except Failure as failure:
        check("the file says" in str(failure), f"another failure than was wanted: {failure}")
        print(f"as it should: {failure}")
        return
    raise Failure("nothing was synced, and no file says less than the logs: the cuts show nothing")


def main():
    flags = flags_of(__doc__)
    flags.add_argument("--level", choices=("region", "record", "reported"), default="region")
    flags.add_argument("--cycles", type=int, default=6)
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--lie", metavar="LIB", help="a library whose fdatasync() does nothing")
    given = flags.parse_args()
    isolated()
    return verdict(lambda: (probe(), lied(given) if given.lie else campaign(given)))


if __name__ == "__main__":
    sys.exit(main())
