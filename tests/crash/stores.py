#!/usr/bin/env python3
"""A run on an S3 store under faults: `stores.py --build build/release`.

Units are read from a real store, SeaweedFS, and checkpoints are uploaded to it. Each cycle is one
fault drawn from the seed: kill -9 of the store; SIGSTOP of it; a link on which every 64 KiB take a
second; an upload that is held in the middle while the server is killed with -9; the store killed,
and then a worker or the server. Afterwards the run trains on from the store, and the store gets a
newer checkpoint; all its objects can be opened. A run ends after --faults cycles: units are
credited as in the logs, all replicas have the server's digests, and the store has the last version.

With --file each run is a line there, and the same call goes on where an interrupted one stopped.
"""
import os
import pathlib
import random
import signal
import sys
import time

from cluster import REGIONS, World, campaign_of_faults, check, until
from loopback import check_replicas, mark, trained_on

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "oracle"))
from store import ADDRESS, KEY, SECRET, Store, Way, stored, told, verified  # noqa: E402

UNITS = 6000  # more than can be trained during a run's faults
PLACE = "s3://longhaul/units"


class Run:
    def __init__(self, world, store, way, draw):
        self.world, self.store, self.way, self.draw = world, store, way, draw
        os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET,
                          AWS_ENDPOINT_URL=f"http://127.0.0.1:{way.port}")
        world.tool("store", "push", world.path("data"), PLACE)
        units = {"data.units": PLACE + "/units.json"}
        self.coordinator = world.coordinator(2, **units).start().listening()
        self.server = world.server(0, self.coordinator, **{
            "checkpoint.every_versions": 8, "checkpoint.store": ADDRESS}).start().listening()
        self.workers = [world.worker(region, self.coordinator, **units, **{
            "data.dir": PLACE, "trainer.tokens_per_s": 3000}).start() for region in REGIONS[:2]]
        until("all workers train", trained_on(self.workers, {}, 4))
        until("a checkpoint is stored", lambda: told(self.server)["uploads"] > 0)

    # ------------------------------------------------------------ faults

    def is_away(self):
        """A program has noticed: the server has nothing to store once no unit is left."""
        before = sum(w.text().count("units.closed") for w in self.workers)
        until("the store is missed", lambda: told(self.server)["away"] or before < sum(
            w.text().count("units.closed") for w in self.workers))

    def store_is_killed(self):
        self.store.kill()
        self.is_away()
        self.store.start()

    def store_stands_still(self):
        self.store.process.send_signal(signal.SIGSTOP)
        self.is_away()
        self.store.process.send_signal(signal.SIGCONT)

    def link_is_slow(self):
        self.way.pause_s = 1
        until("training goes on", trained_on(self.workers, mark(self.workers), 8))
        self.way.pause_s = 0

    def upload_is_cut(self):
        self.way.held.clear()
        self.way.hold_after = 1000
        check(self.way.held.wait(150), "something is held in the middle")
        self.server.kill()
        self.way.hold_after = None
        self.server.start().listening()

    def store_and_a_node_are_killed(self):
        self.store.kill()
        node = self.draw.choice([self.server, *self.workers])
        node.kill()
        node.start()
        if node is self.server:
            node.listening()
        self.is_away()
        self.store.start()

    FAULTS = (store_is_killed, store_stands_still, link_is_slow, upload_is_cut,
              store_and_a_node_are_killed)

    def fault(self):
        fault, began = self.draw.choice(self.FAULTS), time.monotonic()
        fault(self)
        before = until("the server tells of its shard", self.server.shards)[0]["version"]
        check(all(node.alive() for node in (self.coordinator, self.server, *self.workers)),
              "a process ended")
        until("the store is back", lambda: not told(self.server)["away"])
        until("all workers train on", trained_on(self.workers, mark(self.workers), 8))
        until("a newer checkpoint is stored",
              lambda: max(stored(self.world, self.server), default=0) > before)
        verified(self.world, self.server)
        return [fault.__name__, round(time.monotonic() - began, 1)]

    def end(self):
        self.world.tool("drain", "run", "--end", *self.world.admin(self.coordinator))
        for worker in self.workers:
            worker.must_end()
        check_replicas([self.server], self.workers, shards=1)
        check(all(worker.last("lost") == 0 for worker in self.workers), "a push was lost")
        last = self.server.shards()[0]
        until("it ended", lambda: self.coordinator.status().get("phase") == "ended")
        there = self.coordinator.status()["credited"]
        check(there == last["credited"], f"{there} credited, {last['credited']} in the log")
        self.server.must_stop()
        check(max(stored(self.world, self.server)) == last["version"], "the last one is stored")
        self.coordinator.must_stop()
        return there


def one_run(given, seed):
    with World(given.build, units=UNITS, shards=1) as world:
        store = Store(world.path("weed"))
        way = Way(store.ports["s3.port"])
        try:
            store.start()
            run = Run(world, store, way, random.Random(seed))
            faults = [run.fault() for _ in range(given.faults)]
            credited = run.end()
        finally:
            if store.process:
                store.kill()
            way.socket.close()
    return {"seed": seed, "faults": faults, "credited": credited,
            "load": round(os.getloadavg()[0], 1)}


if __name__ == "__main__":
    sys.exit(campaign_of_faults(
        __doc__, one_run, 3, "; with more, workers ask the store ever more seldom"))
