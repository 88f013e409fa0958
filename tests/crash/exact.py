#!/usr/bin/env python3
"""kill -9 loses or doubles no bit of a worker's mass, and a power cut loses only the part that
server/docs/0000-protocol.md#rule-11 gives up: `exact.py --build build/release`.

Coordinator, two shard servers and three workers on loopback, as in kill.py; the workers are the
real program with a trainer in fixed point (exact_worker.c), so that their contribution is known
exactly. After each run history.py judges it, and for every worker and parameter mass.c adds the
log's admitted pushes and the worker's residual: the sum equals the contribution, bit for bit. A run
is of one of these kinds:

  kills           workers are killed with -9 at random moments and restarted
  cuts            all are on disks of their own, as in power.py (root): the disks of workers and
                  servers lose power at random moments, and workers are killed in between
  failpoints      workers die once at each of their failpoints (a build with -DLH_BUGS=ON)
  failpoint-cuts  and their disks lose power then

A power cut may take unsynced contents of a slot, and only if the slot is lost: the part of the
directory that server/docs/0000-protocol.md#rule-11 keeps is computed independently of the worker,
and the mass missing at the end must be exactly the rest, in bits. The worker must report every lost
slot, and no other.

The check must detect a residual that is off by one grain, and a push that is counted twice.
"""
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import time

from cluster import SHARDS, Cluster, Sums, add_flags, check, figures, flags_of, judged, verdict

import failpoints
import history
import power
from report import Report
from world import DENSITY

BASE = 98304.0  # every parameter's first value: between 2^16 and 2^17, and stays there


class Exact(Cluster):
    """A cluster in fixed point. At codec density 0.1 beta is 1, so no residual decays."""

    WORKER = {"codec.name": "topk-fp32"}
    PROGRAM = "crash_exact_worker"

    def __init__(self, build, units, keep):
        super().__init__(build, units, keep)
        self.write_base()

    def write_base(self):
        """Every parameter begins at BASE."""
        path = self.world.path("weights.bin")
        values = os.path.getsize(path) // 4
        with open(path, "wb") as file:
            file.write(struct.pack("<f", BASE) * values)

    def copies(self, _worker):
        """Copies of the worker's directory around each power cut: [(before, after)]."""
        return []

    def mass(self, shard):
        """The output of mass.c for a shard after the run."""
        line = [self.world.program("crash_mass"),
                self.world.path(self.servers[shard].name + ".yaml"), str(shard), self.kept[shard]]
        for w in self.workers:
            number = history.worker_id("e2e.test", "crash", w.region, w.name)
            line.append(f"{number:016x}={w.dir}")
            line += [folder for pair in self.copies(w) for folder in pair]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"mass of shard {shard}: {done.stdout}{done.stderr}")
        found = json.loads(done.stdout)
        check(found["pushes"] and found["held"], f"nothing was proved: {found}")
        check(found.pop("density") == [DENSITY] * 2, f"a push of another density: {found}")
        return found | self.judge_losses(shard, found.pop("rebuilt"))

    def judge_losses(self, _shard, _rebuilt):
        """Figures from mass.c's output about the slots around each cut."""
        return {}


class ExactHosts(Exact, power.Hosts):
    """The same cluster on disks whose power can be cut."""

    WORKERS_ON_DISK = 3

    def __init__(self, build, units, keep):
        super().__init__(build, units, keep)
        self.cut = {}  # worker's name -> (copy before, copy after, end of its log) of each cut

    def copies(self, worker):
        return [cut[:2] for cut in self.cut.get(worker.name, [])]

    def copy(self, node, when):
        """Copies slots, snapshots and outbox as the next start would find them."""
        number = len(self.cut.get(node.name, []))
        to = self.world.path(f"cut-{node.name}-{number}-{when}")
        os.mkdir(to)
        for name in os.listdir(node.dir) if os.path.isdir(node.dir) else []:
            path = os.path.join(node.dir, name)
            if name.startswith(("slot-", "residual-")):
                shutil.copy(path, to)
            elif name == "outbox":
                shutil.copytree(path, os.path.join(to, name))
        shutil.copy(node.boot, os.path.join(to, "boot"))
        return to

    def lose_power(self, node):
        if node.kind == "worker":
            node.kill()
            before = self.copy(node, "before")
        super().lose_power(node)
        if node.kind == "worker":
            cut = before, self.copy(node, "after"), os.path.getsize(node.log)
            self.cut.setdefault(node.name, []).append(cut)

    def mass(self, shard):
        for worker in self.workers:
            shutil.copy(worker.boot, os.path.join(worker.dir, "boot"))
        return super().mass(shard)

    def judge_losses(self, shard, rebuilt):
        """Checks that every lost slot was reported, and no other."""
        lost = rebuilt[1::2].count("1")
        check(lost, "no cut took a slot: nothing was proved about them")
        for worker in self.workers:
            cuts = self.cut.get(worker.name, [])
            slots, rebuilt = rebuilt[:2 * len(cuts)], rebuilt[2 * len(cuts):]
            self.check_told(worker, shard, [c[2] for c in cuts], slots)
        return {"slots_lost": lost}

    @staticmethod
    def check_told(worker, shard, ends, slots):
        """For each cut that lost the slot, a process before the next cut must report the loss. A
        cut that comes before any process started finds the slot lost already, and shares that
        report."""
        with open(worker.log, "rb") as file:
            log = file.read()
        ends = [*ends, len(log)]
        told = [any(b'"residual.rebuilt"' in line and b"shard %d:" % shard in line
                    for line in log[begin:end].splitlines())
                for begin, end in zip(ends, ends[1:])]
        for i, said in enumerate(told):
            lost, later = slots[2 * i + 1] == "1", i
            while lost and not said and slots[2 * later + 2:2 * later + 3] == "1":
                later += 1
                said = told[later]
            check(said == lost, f"{worker.name}, cut {i}, shard {shard}: the slot was "
                  f"{'lost and nobody said so' if lost else 'said to be lost and was not'}")


def kill_some(given, draw, cluster):
    """Kills workers at random moments, also while they start."""
    done = 0
    while done < given.deaths and not cluster.over():
        time.sleep(draw.choice((0, 0.1, 0.3)) * draw.random())
        cluster.keep_segments()
        done += kill_one(draw, cluster)
        if done % 4 == 0:
            cluster.wait_for_pushes(6)
    check(done, "the run was over before the first kill")
    return {"kills": done}


def kill_one(draw, cluster):
    node = draw.choice(cluster.workers)
    if not node.alive() and node.process.returncode == 0:
        return False
    node.kill()
    node.process.stdout.close()
    node.start()
    return True


def cut_some(given, draw, cluster):
    """Cuts power, mostly of workers, at random moments, also while they start; kills in between."""
    done = {"cuts_worker": 0, "cuts_server": 0, "kills": 0}
    while done["cuts_worker"] + done["cuts_server"] < given.deaths and not cluster.over():
        node = draw.choice([*cluster.workers * 2, *cluster.servers])
        if node.kind == "worker" and not node.alive() and node.process.returncode == 0:
            break
        power.cycle(draw, cluster, node)
        done["cuts_" + node.kind] += 1
        if draw.random() < 0.3:
            done["kills"] += kill_one(draw, cluster)
        if draw.random() < 0.6:
            cluster.wait_for_pushes(6)
    check(done["cuts_worker"], "no worker's power was cut")
    return done


def fire_all(given, _draw, cluster):
    """Fires every failpoint of a worker once."""
    names = [name for name, role in failpoints.names() if role == "worker"]
    cut = given.what == "failpoint-cuts"
    for name in names:
        failpoints.fire(cluster, name, "worker", 1 if name.startswith("file") else 2,
                        cluster.lose_power if cut else None)
        check(not cluster.over(), f"the run was over at {name}")
    return {"cuts_worker" if cut else "kills": len(names)}


KINDS = {"kills": (Exact, kill_some, 15), "cuts": (ExactHosts, cut_some, 25),
         "failpoints": (Exact, fire_all, 0), "failpoint-cuts": (ExactHosts, fire_all, 0)}


def one_run(given, draw, sums):
    kind, deaths, units = KINDS[given.what]
    cluster = kind(given.build, max(800 if not units else 0, units * given.deaths), keep=given.keep)
    with cluster.world:
        try:
            cluster.start(given.speed)
            cluster.wait_for_pushes(10)
            found = deaths(given, draw, cluster)
            found |= figures(judged(cluster))
            for shard in range(SHARDS):
                for key, value in cluster.mass(shard).items():
                    found[key] = found.get(key, 0) + value
        finally:
            if isinstance(cluster, power.Hosts):
                cluster.release()
        sums.add(found)
        print(f"{given.what}: {found}", flush=True)


def campaign(given):
    sums, draw = Sums(), random.Random(given.seed)
    report = Report("campaign-exact", given.json, given.join)
    whats = given.what
    report.call(f"--what {' '.join(whats)} --seed {given.seed} --runs {given.runs} "
                f"--deaths {given.deaths}")
    for given.what in whats:
        for _ in range(given.runs):
            one_run(given, draw, sums)
    report.count("exact.runs", given.runs * len(whats))
    sums.rows(report, "exact")
    report.finish()


def main():
    flags = flags_of(__doc__, speed=1500)
    flags.add_argument("--what", nargs="+", choices=list(KINDS), default=["kills"])
    flags.add_argument("--deaths", type=int, default=20, help="kills or cuts of a run")
    flags.add_argument("--runs", type=int, default=1, help="of each kind")
    add_flags(flags, "chooses victims and moments")
    given = flags.parse_args()
    cuts = any("cuts" in what for what in given.what)
    if cuts:
        power.isolated()
    return verdict(lambda: (cuts and power.probe(), campaign(given)))


if __name__ == "__main__":
    sys.exit(main())
