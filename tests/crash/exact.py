#!/usr/bin/env python3
"""No bit of a worker's mass is lost or doubled by kill -9: `exact.py --build build/release`.

Coordinator, two shard servers and three workers on loopback, as in kill.py; the workers are the
real program with a trainer in fixed point (exact_worker.c), so that what they put in is known
exactly. Workers are killed with -9 at random moments and started again, or, with --failpoints and a
build with -DLH_BUGS=ON, once at each of their failpoints. After the run history.py judges it, and
mass.c adds up, of every worker and parameter, what the log's admitted pushes carry and what the
worker's residual holds: together they are what went in, bit for bit.

A residual that is one grain off and a push that counts once more must be seen.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import time

from cluster import SHARDS, Cluster, Sums, check, figures, judged, verdict

import failpoints
import history
from report import Report

BASE = 98304.0  # every parameter's first value: between 2^16 and 2^17, and stays there


class Exact(Cluster):
    """A cluster in fixed point. beta: a residual that decayed would not be one."""

    WORKER = {"codec.name": "topk-fp32", "codec.beta": 1}
    PROGRAM = "crash_exact_worker"

    def __init__(self, build, units, keep):
        super().__init__(build, units, keep)
        path = self.world.path("weights.bin")
        values = os.path.getsize(path) // 4
        with open(path, "wb") as file:
            file.write(struct.pack("<f", BASE) * values)

    def mass(self, shard):
        """What mass.c finds of a shard when the run is over."""
        line = [self.world.program("crash_mass"),
                self.world.path(self.servers[shard].name + ".yaml"), str(shard), self.kept[shard]]
        for w in self.workers:
            number = history.worker_id("e2e.test", "crash", w.region, w.name)
            line.append(f"{number:016x}={w.dir}")
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"mass of shard {shard}: {done.stdout}{done.stderr}")
        found = json.loads(done.stdout)
        check(found["pushes"] and found["held"], f"nothing was proved: {found}")
        return found


def kill_some(draw, cluster, kills):
    """Workers die at random moments, also in their starts."""
    done = 0
    while done < kills and not cluster.over():
        time.sleep(draw.choice((0, 0.1, 0.3)) * draw.random())
        cluster.keep_segments()
        node = draw.choice(cluster.workers)
        if not node.alive() and node.process.returncode == 0:
            continue
        node.kill()
        node.process.stdout.close()
        node.start()
        done += 1
        if done % 4 == 0:
            cluster.wait_for_pushes(6)
    check(done, "the run was over before the first kill")
    return done


def fire_all(cluster):
    """Every failpoint of a worker, once."""
    names = [name for name, role in failpoints.names() if role == "worker"]
    for name in names:
        failpoints.fire(cluster, name, "worker", 1 if name.startswith("file") else 2)
        check(not cluster.over(), f"the run was over at {name}")
    return len(names)


def one_run(given, draw, sums):
    cluster = Exact(given.build, given.units, keep=given.keep)
    with cluster.world:
        cluster.start(given.speed)
        cluster.wait_for_pushes(10)
        deaths = fire_all(cluster) if given.failpoints else kill_some(draw, cluster, given.kills)
        found = figures(judged(cluster)) | {"deaths": deaths}
        for shard in range(SHARDS):
            for key, value in cluster.mass(shard).items():
                found[key] = found.get(key, 0) + value
        sums.add(found)
        print(f"{deaths} deaths: {found}", flush=True)


def campaign(given):
    sums, draw = Sums(), random.Random(given.seed)
    report = Report("campaign-exact", given.json)
    for _ in range(given.runs):
        one_run(given, draw, sums)
    report.condition("faults", "kill -9 of workers that train in fixed point")
    sums.rows(report, "exact")
    report.finish()


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", required=True, help="the build tree")
    flags.add_argument("--kills", type=int, default=20, help="of a run")
    flags.add_argument("--runs", type=int, default=1)
    flags.add_argument("--units", type=int, default=300)
    flags.add_argument("--speed", type=int, default=1500, help="tokens a second of each worker")
    flags.add_argument("--seed", type=int, default=1, help="chooses victims and moments")
    flags.add_argument("--failpoints", action="store_true", help="die at each of these instead")
    flags.add_argument("--keep", action="store_true", help="keep the runs' folders")
    flags.add_argument("--json")
    given = flags.parse_args()
    return verdict(lambda: campaign(given))


if __name__ == "__main__":
    sys.exit(main())
