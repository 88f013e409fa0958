#!/usr/bin/env python3
"""A server loses its disk, twice: `lost_disk.py --build build/release`.

Coordinator, two shard servers and three workers on loopback, as in kill.py. A server is killed with
-9 and its whole directory is deleted; restarted with the same settings it rebuilds from its
followers' copies, under a new epoch (server/docs/0000-protocol.md#rule-13 to #rule-18). The first
time the followers live on: they hold everything in memory. The second time all workers are killed
at the same moment: only their durable copies are left, and authors push again everything that was
acknowledged above the newest copy.

The run then goes to its end, and history.py judges it: nothing at or below the stable point is
missing, nothing acknowledged is lost, versions that the shard could not rebuild are named, no push
is decided twice in the shard's new branch, the rebuilt state is bit for bit the followers', every
unit is credited once, all replicas are equal.
"""
import os
import shutil
import sys
import time

from cluster import Cluster, check, figures, flags_of, judged, until, verdict

import history

AHEAD = 4  # records of the shard that no durable copy has when all are killed


class Losses(Cluster):
    """A cluster whose first server may lose its disk; the log of each disk is kept."""

    def __init__(self, build, units, keep):
        super().__init__(build, units, keep)
        self.old, self.rebuilds = [], []

    def written_after(self, node, since):
        """The node's status, once one was written after this moment (wall clock)."""
        path = os.path.join(node.dir, "status.json")
        until(f"{node.name} writes its status",
              lambda: os.path.exists(path) and os.stat(path).st_mtime > since)
        return node.status()

    def stable(self, since):
        shards = self.written_after(self.coordinator, since)["shards"]
        return next(s["stable"] for s in shards if s["shard"] == 0)

    def copied(self):
        """The version of the newest durable copy of shard 0 on a worker."""
        names = [name for w in self.workers for name in os.listdir(os.path.join(w.dir, "replica"))]
        return max([int(name[5:21], 16) for name in names
                    if name.startswith("0000-") and name.endswith(".ckpt")], default=0)

    def runs_ahead(self):
        """The current epoch has a stable point, and the log is ahead of all durable copies."""
        self.keep_segments()
        records, _ = history.read_segments(self.kept[0])
        base = self.rebuilds[-1].base if self.rebuilds else 0
        shards = self.coordinator.status().get("shards", [])
        stable = next((s["stable"] for s in shards if s["shard"] == 0), 0)
        return records and stable > base and self.copied() <= records[-1].version - AHEAD

    def replace_directory(self, server):
        """Deletes the directory: the server finds nothing when it restarts."""
        shutil.rmtree(server.dir)

    def lose(self, also):
        """Kill -9, the directory is deleted, the same command is run again. `also` dies with it."""
        server = self.servers[0]
        self.keep_segments()
        for node in [server, *also]:
            node.process.kill()
        for node in [server, *also]:
            node.process.wait()
            node.process.stdout.close()
        begun = time.monotonic()
        self.keep_segments()  # complete: the page cache belongs to the machine and survives
        stable = self.stable(time.time())  # the highest possible: only running workers can raise it
        self.old.append(self.kept[0])
        self.replace_directory(server)
        self.kept[0] = self.world.path(f"history-0-{len(self.old)}")
        os.mkdir(self.kept[0])
        server.start().listening()
        for node in also:
            node.start()

        def rebuilt():
            self.keep_segments(but=server)  # the other shard goes on meanwhile
            shards = server.status().get("shards", [])
            return next((s["rebuilt"] for s in shards if "rebuilt" in s), None)
        told = until("the shard is rebuilt", rebuilt)
        self.rebuilds.append(history.Rebuild(0, stable, told["from"], told["lost_to"]))
        check(server.says("shard.rebuilt", f"goes on from version {told['from']} "),
              "the server's log does not name what is lost")
        print(f"lost disk: back after {time.monotonic() - begun:.1f} s at version {told['from']}, "
              f"stable was {stable}, lost after it to {told['lost_to']}", flush=True)

    def records(self):
        records, job = super().records()
        lives = [history.read_segments(folder)[0] for folder in self.old]
        records[0], self.abandoned = history.splice([*lives, records[0]])
        return records, job

    def history(self):
        h = super().history()
        h.abandoned, h.rebuilds = {0: self.abandoned}, self.rebuilds
        return h


def run(given):
    cluster = Losses(given.build, given.units, given.keep)
    with cluster.world:
        begun = time.monotonic()
        cluster.start(given.speed)
        for also in ((), cluster.workers):
            cluster.wait_for_pushes(10)
            until("something is stable, and more lies above all durable copies",
                  cluster.runs_ahead)
            check(not cluster.over(), "the run was over before a disk was lost")
            cluster.lose(also)
        cluster.wait_for_pushes(10)
        check(not cluster.over(), "the run was over before the shard went on")
        h = judged(cluster)
        for worker in cluster.workers:
            check(not worker.says("replica.differs"),
                  f"{worker.name}: what came back is not bit for bit what followers held")
        check(h.abandoned[0], "nothing lay above what the shard went on from: little was proved")
        print(f"the run took {time.monotonic() - begun:.1f} s: {figures(h)}, "
              f"{len(h.abandoned[0])} records of given up branches")


def main(about, one_run):
    """A drill's main(): judges its run and gives the exit status."""
    given = flags_of(about, units=1500, speed=1500).parse_args()
    return verdict(lambda: one_run(given))


if __name__ == "__main__":
    sys.exit(main(__doc__, run))
