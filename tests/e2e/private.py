#!/usr/bin/env python3
"""Private regions whose processes are killed: `private.py --build BUILD [--level L] [--cycles N]`.

Two regions on loopback. At region level a loop of worker/client/examples trains beside each; at
record level the built-in trainer does, on documents of its region; at level reported it is a loop
in Python that clips and adds noise by itself (reported_loop.py). In each cycle a worker, a loop, a
server, the coordinator, or all processes of a region are killed with -9 at a random moment and
restarted. After each one the servers' logs and the budget files are read: no file shows a smaller
charge than the logs, no total fell or was admitted twice, as many steps are charged as were
released, and none above the plan. Then the plan's steps are spent, the run ends by itself, and the
statement gives the charged steps.

With --state FILE the run's folder and the number of finished cycles are kept there, and a later
call goes on with them.
"""
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import time

from external import Trainer
from loopback import check_replicas
from world import REGIONS, World, check, flags_of, until

IN, OUT, SHARDS = 8, 4, 2
HEAD = struct.Struct("<4sHHI")
RATE = 0.1
TERMS = 65  # common/format/privacy.h


class Line(Trainer):
    """The example's loop, which has its own records."""

    def __init__(self, world, worker):
        super().__init__(world, worker, 1, True)
        self.program = world.program("external_example")

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "1000000000", "3"], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={**os.environ, "LONGHAUL_SOCKET":
                                 os.path.join(self.worker.dir, "trainer.sock")})
        return self


class Reported(Line):
    """A loop in Python that clips and adds noise by itself, and reports that it does."""

    def start(self):
        here = os.path.dirname(os.path.abspath(__file__))
        package = os.path.join(here, "..", "..", "worker", "python")
        terms = self.world.terms
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, os.path.join(here, "reported_loop.py"), str(terms["sigma"]),
                 str(terms["rate"]), str(terms["clip"])], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={**os.environ, "PYTHONPATH": package,
                                 "LONGHAUL_LIBRARY": os.path.join(
                                     self.world.build, "worker", "client", "liblonghaul.so.1"),
                                 "LONGHAUL_SOCKET": os.path.join(self.worker.dir, "trainer.sock")})
        return self


class Kept(World):
    """A world left by an earlier call."""

    def __init__(self, build, folder):  # pylint: disable=super-init-not-called
        self.build, self.run, self.keep, self.dir, self.nodes = build, "e2e", True, folder, []
        self.read_units()


def write_model(world):
    tensors = [{"name": "weight", "shape": [OUT, IN]}, {"name": "bias", "shape": [OUT]}]
    with open(world.path("model.json"), "w", encoding="utf-8") as file:
        json.dump({"schema": "longhaul.manifest/1", "model": {}, "chunk": 4096, "shards": SHARDS,
                   "tensors": tensors}, file)
    with open(world.path("weights.bin"), "wb") as file:
        file.write(bytes(4 * (IN * OUT + OUT)))


def id_of(worker):
    """The worker's id in the logs (common/docs/0001-formats.md)."""
    uri = f"spiffe://e2e.test/longhaul/e2e/worker/{worker.region}/{worker.name}"
    number = hashlib.blake2b(uri.encode(), digest_size=32).digest()[:8]
    return f"{int.from_bytes(number, 'little') | 1:016x}"


def budget_of(worker):
    """Charged steps by shard, from the file beside the records. A rename replaces it whole."""
    path = worker.settings["privacy.budget"]
    check(os.path.exists(path), f"{worker.name}: the file says nothing, it is gone")
    with open(path, "rb") as file:
        data = file.read()
    magic, version, _, runs = HEAD.unpack_from(data)
    check((magic, version, runs) == (b"LHPB", 1, 1), f"{worker.name}: {data[:12]}")
    shards, = struct.unpack_from("<I", data, HEAD.size + 16)
    return struct.unpack_from(f"<{shards}Q", data, HEAD.size + 20 + TERMS)


def terms_of(world, level, steps):
    if level == "region":
        return {"level": level, "sigma": 2 * steps ** 0.5, "clip": 0.5, "epsilon": 8,
                "delta": 1e-6, "steps": steps}
    plan = json.loads(world.tool("privacy", "plan", "--epsilon", "8", "--delta", "1e-6", "--steps",
                                 str(steps), "--rate", str(RATE), "-o", "json"))
    return {"level": level, "sigma": plan["noise_over_clip"], "rate": RATE, "clip": 0.5,
            "epsilon": 8, "delta": 1e-6, "steps": steps, "record_tokens": 64}


class Play:
    """The run's processes. `kind`: of the loops beside the workers; None: the level's default."""

    def __init__(self, world, level, steps, regions=2, kind=None):
        self.world, self.level, self.steps = world, level, steps
        world.terms = terms_of(world, level, steps)
        self.coordinator = world.coordinator(regions, **{
            "coordinator.h_base": 4, "run.budget_tokens": 10**12,
            "coordinator.data": "private", "coordinator.step_tokens": 16,
            **{f"privacy.{k}": v for k, v in world.terms.items()}})
        self.coordinator.start().listening()
        self.servers = [world.server(i, self.coordinator).start().listening()
                        for i in range(SHARDS)]
        mine = {"trainer.kind": "external", "codec.name": "dense-fp32", "codec.density": "auto"}
        if level == "reported":
            mine = {"trainer.kind": "external", "privacy.reported": "on"}
        if level == "record":  # about 20 steps a second
            mine = {"trainer.tokens_per_s": 60000}
        self.workers = [world.worker(r, self.coordinator, **{
            "privacy.budget": world.path(r + ".budget"), **mine}).start()
            for r in REGIONS[:regions]]
        kind = kind or {"region": Line, "reported": Reported}.get(level)
        self.loops = [kind(world, w).start() for w in self.workers if kind]
        self.last = []

    def audit(self):
        rows = json.loads(self.world.tool(
            "privacy", "audit", *(s.dir for s in self.servers), "--config",
            self.coordinator.write_settings(), "-o", "json"))
        return {row["worker"]: row for row in rows}

    def judge(self):
        """Compares charges by file and by log. The logs are read first: files may advance
        meanwhile."""
        rows = self.audit()
        for worker in self.workers:
            row, charged = rows.get(id_of(worker)), budget_of(worker)
            check(all(c <= self.steps for c in charged), f"{charged} is above the plan")
            if not row:
                continue
            check(row["verdict"] == "within the plan", f"{row}")
            for released, shown, said in zip(row["released"], row["by_shard"], charged):
                if self.level != "region":
                    said = charged[0]
                check(released <= shown <= said, f"{worker.name}: {row}, the file says {charged}")
        # A trimmed log has fewer releases than before, but never fewer charges.
        return sum(sum(row["by_shard"]) for row in rows.values())

    def is_spent(self):
        return all(w.process.poll() is not None for w in self.workers)

    def goes_on(self, before):
        """Waits until the log shows more releases, or all steps of the plan are spent."""
        until("releases go on", lambda: self.judge() > before or self.is_spent(), 90)

    def kill(self, draw):
        """Kills some processes and restarts them."""
        region = draw.randrange(2)
        worker, loop = self.workers[region], self.loops[region:region + 1]
        server = draw.choice(self.servers)
        victims = draw.choice([[worker], loop or [worker], [worker, *loop], [server],
                               [server, worker], [self.coordinator], [worker, *loop, server]])
        time.sleep(draw.uniform(0, 0.6))
        for victim in victims:
            victim.kill()
        time.sleep(draw.choice([0, 0, 0.2]))
        self.judge()
        for victim in victims:
            victim.start()
            if victim in (server, self.coordinator):
                victim.listening()

    def shown(self):
        """Epsilon of both regions, from the operator's tool."""
        rows = json.loads(self.world.tool("get", "regions", "-o", "json",
                                          *self.world.admin(self.coordinator)))
        return len(rows) == 2 and all(0 < row.get("epsilon", 0) <= 8 for row in rows)

    def spend(self):
        """Spends the rest of the budget, until the run ends."""
        for loop in self.loops:
            check(loop.end(240) == 0, f"the loop of {loop.worker.name}: {loop.process.returncode}")
        for worker in self.workers:
            worker.must_end(240)
        self.judge()
        for worker in self.workers:
            said = worker.last("privacy")
            # An external loop ends some steps before the last: nothing stops it between two steps.
            least = self.steps - 60 if self.level == "reported" else self.steps
            check(said["state"] == "spent" and least <= said["charged"] <= self.steps, f"{said}")
            check(0 < said["epsilon"] <= 8 and said["level"] == self.level, f"{said}")
            receipt = json.loads(self.world.tool(
                "privacy", "statement", "--config", self.coordinator.write_settings(), "--budget",
                worker.settings["privacy.budget"], "-o", "json"))
            check((receipt["level"], receipt["steps_charged"]) == (self.level, said["charged"]),
                  f"{receipt}")
            if self.level == "reported":
                check("as the trainer reported" in receipt["enforced"], f"{receipt}")
        check_replicas(self.servers, self.workers)

    def close(self):
        for loop in self.loops:
            if loop.process.poll() is None:
                loop.kill()


def main():
    flags = flags_of(__doc__.splitlines()[0])
    flags.add_argument("--level", choices=("region", "record", "reported"), default="region")
    flags.add_argument("--cycles", type=int, default=10)
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--state", help="file by which a later call goes on")
    given = flags.parse_args()
    state = {"done": 0, "dir": None}
    if given.state and os.path.exists(given.state):
        with open(given.state, encoding="utf-8") as file:
            state = json.load(file)
    world = Kept(given.build, state["dir"]) if state["dir"] else World(
        given.build, shards=SHARDS, keep=given.keep or bool(given.state),
        **({"units": 240, "unit_tokens": 64} if given.level == "record" else {"units": 6}))
    with world:
        if not state["dir"] and given.level != "record":
            write_model(world)
        state["dir"] = world.dir
        each = 250 if given.level == "reported" else 60  # 50 steps a second there
        play = Play(world, given.level, each + each * given.cycles)
        try:
            until("budgets are charged", lambda: all(
                os.path.exists(w.settings["privacy.budget"]) for w in play.workers), 60)
            until("regions show their epsilon", play.shown, 60)
            while state["done"] < given.cycles and not play.is_spent():
                before = play.judge()
                play.kill(random.Random(f"{given.seed} {state['done']}"))
                play.goes_on(before)
                state["done"] += 1
                if given.state:
                    with open(given.state + ".tmp", "w", encoding="utf-8") as out:
                        json.dump(state, out)
                    os.replace(given.state + ".tmp", given.state)
            print(f"{state['done']} cycles, {play.judge()} steps charged by the logs")
            check(state["done"] > given.cycles // 2, "the plan's steps were spent too soon")
            if not given.state:
                play.spend()
        finally:
            play.close()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
