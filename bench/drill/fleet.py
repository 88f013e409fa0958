"""README's "Across machines" on the regions of emulated links: a coordinator in the first region,
the shards' servers in the next two, a worker in each but the first. All settings that affect times
are README's, which are the defaults; the model is small, and the trainer a synthetic one.
"""
import dataclasses
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", "crash"), os.path.join(ROOT, "tests", "e2e")]
import history  # noqa: E402
from cluster import LOUD, SERVERS, SHARDS, Cluster, figures  # noqa: E402
from world import SHAPE, Node, World, check, until  # noqa: E402

# Tokens a second of each region, and of a unit: a round also takes a second.
SPEED = UNIT_TOKENS = 2048
PORT = 7700


class FarWorld(World):
    """Texts of these regions, which stay there; units for `seconds` of training."""

    def __init__(self, build, regions, seconds, keep):
        self.regions = regions
        super().__init__(build, run="drill", units=int(seconds * SPEED / UNIT_TOKENS), keep=keep,
                         shape=SHAPE, unit_tokens=UNIT_TOKENS, shards=SHARDS)

    def make_data(self, units):
        line = b"all work and no play makes a dull model "
        size = units * self.unit_tokens
        os.makedirs(self.path("text", "heldout"))
        for number, region in enumerate(self.regions):
            os.makedirs(self.path("text", region, f"l{number}"))
            with open(self.path("text", region, f"l{number}", "a.txt"), "wb") as out:
                out.write(line * (size // len(line) + 1))
            with open(self.path("text", "heldout", f"l{number}.txt"), "wb") as out:
                out.write(line * 20)
        stays = [word for region in self.regions for word in ("--stays", region)]
        self.tool("data", "prepare", "--text", self.path("text"), "--out", self.path("data"),
                  "--unit-tokens", str(self.unit_tokens), "--sequence", "64", *stays)
        self.read_units()


class Fleet(Cluster):
    """The programs of a run, each in its region. `seconds`: how long its data last at least."""

    def __init__(self, build, links, seconds, keep=False):
        self.links, self.hub, self.region = links, links.regions[0], links.regions[1:]
        super().__init__(build, 0, keep, FarWorld(build, self.region, seconds, keep))

    def start(self):
        self.coordinator = self._node("coordinator", self.hub, "coordinator", PORT, **{
            "role": "coordinator", "coordinator.workers": len(self.region),
            "data.units": self.world.path("data", "units.json"),
            "run.budget_tokens": sum(u["tokens"] for u in self.world.units)})
        self.servers = [self._node("server", self.region[i], f"shard-{i}", PORT + 1, **{
            "role": "shard", "shards": [i], "coordinator": self.coordinator.address,
            "model.weights": self.world.path("weights.bin"), "update.eta": 2})
            for i in range(SERVERS)]
        self.workers = [self._node("worker", region, f"{region}-0", 0, **{
            "coordinator": self.coordinator.address,
            "data.units": self.world.path("data", "units.json"),
            "data.dir": self.world.path("data"), "codec.density": 0.072, "trainer.batch": 4,
            "trainer.learning_rate": 0.006, "trainer.kind": "synthetic",
            "trainer.tokens_per_s": SPEED}) for region in self.region]
        for node in (self.coordinator, *self.servers):
            node.start().listening()
        for worker in self.workers:
            worker.start()
        return self

    def _node(self, kind, region, name, port, **more):
        settings = {**self.world.common(kind, region, name), **LOUD, **more}
        node = Node(self.world, kind, region, name, settings)
        node.before = self.links.enter(region)
        if port:
            node.address = self.links.address(region, port)
        return node

    def worker_of(self, region):
        return next(worker for worker in self.workers if worker.region == region)

    def peers_rtt_s(self, worker):
        """Round trip to the farthest node that a worker talks to."""
        return max(self.links.rtt_s(worker.region, node.region)
                   for node in (self.coordinator, *self.servers))

    def end(self, patience):
        """Ends the run with the units credited so far; gives its history's figures and
        violations."""
        until("units are credited", lambda: self.coordinator.status().get("credited"), patience)
        line = [*self.links.enter(self.hub), self.world.program("longhaul"), "drain", "run",
                "--end", *self.world.admin(self.coordinator)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"longhaul drain run --end: {done.returncode}: {done.stderr}")
        for worker in self.workers:
            check(worker.end(patience) == 0, f"{worker.name} ended with "
                  f"{worker.process.returncode}:\n{worker.tail()}")
        until("the coordinator knows", lambda: self.coordinator.status().get("phase") == "ended")
        h = dataclasses.replace(self.history(), ended=False)  # not every unit is credited
        violations = [f"{name}: {text}" for name, text in history.judge(h)]
        for node in (*self.servers, self.coordinator):
            check(node.ask_to_end() == 0, f"{node.name} ended with {node.process.returncode}")
        return {**figures(h), "credited": h.credited}, violations
