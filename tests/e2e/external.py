#!/usr/bin/env python3
"""External trainers beside the workers, with real servers: `external.py --build BUILD`.

Three regions, two shard servers and a coordinator on loopback. The workers have `trainer.kind:
external`; beside each runs a training loop in fixed point that is linked with liblonghaul.so
(tests/external/loop.c). Trainers and workers are killed with -9 at random moments, also both at
once, and restarted, and so is a server. At the end all replicas have the servers' digests, every
unit is credited once, and each trainer ends with the run's final parameters. For every worker and
parameter, the pushes in the log (denser ones at first) plus the residual equal, bit for bit, the
contribution of the credited tokens (tests/crash/mass.c). With --own the loops have their own data:
no unit is claimed, tokens are counted, `longhaul drain run --end` ends the run, and the density is
constant.
"""
import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time

from loopback import check_credit, check_replicas, check_weights
from world import DENSITY, REGIONS, Failure, World, check, flags_of, until

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "crash"))
import history  # pylint: disable=wrong-import-position

BASE = 98304.0  # every parameter's first value: between 2^16 and 2^17, and stays there
SHARDS = 2


class Trainer:
    """The training loop beside a worker, over its restarts."""

    def __init__(self, world, worker, ranks, own, steps=None):
        self.world, self.worker, self.ranks = world, worker, ranks
        self.words = [world.path("tensors"), str(ranks), "4", "own" if own else "leased",
                      *([str(steps)] if steps else [])]
        self.out = world.path(worker.name + ".final")
        self.log = world.path(worker.name + ".trainer.log")
        self.tokens_file = world.path(worker.name + ".tokens")
        self.process = None

    def tokens(self):
        """Tokens that its process, or the one before, has trained."""
        with open(self.tokens_file, "rb") as file:
            return int.from_bytes(file.read(8), "little")

    def start(self):
        with open(self.log, "ab") as log, open(self.out, "wb") as out:
            self.process = subprocess.Popen(
                [self.world.program("external_loop"), *self.words], stdin=subprocess.DEVNULL,
                stdout=out, stderr=log, env={
                    **os.environ, "LONGHAUL_SOCKET": os.path.join(self.worker.dir, "trainer.sock"),
                    "LOOP_TOKENS": self.tokens_file})
        return self

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)

    def end(self, patience=120):
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise Failure(f"the trainer of {self.worker.name} has not ended") from None

    def cuts(self):
        return self.worker.status().get("trainer", {}).get("cuts", 0)


class Logs(threading.Thread):
    """Hard-links every segment of the servers' logs before checkpoints delete it."""

    def __init__(self, world, servers):
        super().__init__(daemon=True)
        self.world, self.servers, self.over = world, servers, threading.Event()
        self.kept = [world.path(f"kept-{i}") for i in range(len(servers))]
        for folder in self.kept:
            os.mkdir(folder)

    def look(self):
        for server, folder in zip(self.servers, self.kept):
            try:
                for name in os.listdir(os.path.join(server.dir, "log")):
                    history.keep_segment(os.path.join(server.dir, "log", name),
                                         os.path.join(folder, name))
            except FileNotFoundError:
                continue

    def run(self):
        while not self.over.wait(0.05):
            self.look()

    def done(self):
        self.over.set()
        self.join()
        self.look()


def write_model(world):
    path = world.path("weights.bin")
    values = os.path.getsize(path) // 4
    with open(path, "wb") as file:
        file.write(struct.pack("<f", BASE) * values)
    with open(world.path("model.json"), encoding="utf-8") as file:
        tensors = json.load(file)["tensors"]
    with open(world.path("tensors"), "w", encoding="utf-8") as out:
        for t in tensors:
            out.write(" ".join([t["name"], *map(str, t["shape"])]) + "\n")


def check_mass(world, workers, logs, own):
    for shard in range(SHARDS):
        line = [world.program("crash_mass"), world.path(f"shard-{shard}.yaml"), str(shard),
                logs.kept[shard]]
        for w in workers:
            number = history.worker_id("e2e.test", world.run, w.region, w.name)
            line.append(f"{number:016x}={w.dir}")
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"mass of shard {shard}: {done.stdout}{done.stderr}")
        found = json.loads(done.stdout)
        check(found["pushes"] and found["held"], f"nothing was proved: {found}")
        least, most = found["density"]
        check(least == most == DENSITY,
              f"pushes' densities: {found['density']}")
        print(f"shard {shard}: {found['pushes']} pushes of {found['tokens']} tokens, none of "
              f"{found['parameters']} sums is wrong")


def check_finals(workers, trainers):
    for worker, trainer in zip(workers, trainers):
        with open(os.path.join(worker.dir, "final.weights"), "rb") as file:
            run = file.read()
        with open(trainer.out, "rb") as file:
            check(file.read() == run, f"the trainer of {worker.name} ends with other parameters")


def is_over(coordinator):
    return coordinator.status().get("phase", "waiting") not in ("waiting", "running")


def more_cuts(trainers, coordinator, most=60):
    """Waits until every trainer's next cut is committed, or the run ends. A new worker process
    counts its cuts from 0."""
    before = {t: (t.worker.process.pid, t.cuts()) for t in trainers}

    def grown(t):
        pid, cuts = before[t]
        return t.cuts() > (cuts if t.worker.process.pid == pid else 0)
    until("every trainer's cuts are committed",
          lambda: all(map(grown, trainers)) or is_over(coordinator), most)


def harm(draw, trainers, server):
    """Kills something with -9 and returns once everything runs again."""
    t, what = draw.choice(trainers), draw.choice(("trainer", "worker", "both", "server", "worker"))
    if what == "server":
        server.kill()
        server.start().listening()
        return what
    if what in ("worker", "both"):
        t.worker.kill()
    if what in ("trainer", "both"):
        t.kill()
    time.sleep(draw.random() / 2)
    if what in ("worker", "both"):
        t.worker.start()
    if what in ("trainer", "both"):
        t.start()
    return what


def play(world, given, trainers):
    write_model(world)
    draw = random.Random(given.seed)
    endless = {"run.budget_tokens": 10**12, "coordinator.data": "own"} if given.own else {}
    coordinator = world.coordinator(**{"coordinator.h_base": 4, **endless}).start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in range(SHARDS)]
    logs = Logs(world, servers)
    logs.start()
    workers = [world.worker(region, coordinator, **{
        "trainer.kind": "external", "codec.name": "topk-fp32",
        "ranks.count": given.ranks}).start() for region in REGIONS]
    for worker in workers:
        trainers.append(Trainer(world, worker, given.ranks, given.own).start())
    more_cuts(trainers, coordinator)
    harms = {}
    for _ in range(given.kills):
        what = harm(draw, trainers, draw.choice(servers))
        harms[what] = harms.get(what, 0) + 1
        if draw.random() < 0.3 or given.own:
            more_cuts(trainers, coordinator)
        else:
            time.sleep(draw.random() / 2)
        if is_over(coordinator):  # on a busy machine a kill takes longer, and training does not
            break
    check(2 * sum(harms.values()) >= given.kills,
          f"the run ended after {sum(harms.values())} kills: the drill proves nothing")
    print("killed with -9:", ", ".join(f"{n} times {what}" for what, n in sorted(harms.items())))
    more_cuts(trainers, coordinator)
    # A worker that was just started does not report a loop yet.
    loop = lambda t: t.worker.status().get("trainer")
    until("each worker tells of its loop", lambda: all(map(loop, trainers)))
    lost = sum(loop(t)["lost_tokens"] for t in trainers)
    print(f"tokens that dead trainers took with them, of the workers' last lives: {lost}")
    if given.own:
        world.tool("drain", "run", "--end", *world.admin(coordinator))
    for worker, trainer in zip(workers, trainers):
        check(trainer.end() == 0, f"the trainer of {worker.name}: {trainer.process.returncode}")
        worker.must_end(120)
    until("the coordinator knows", lambda: coordinator.status().get("phase") == "ended")
    logs.done()
    check_replicas(servers, workers)
    check_weights(world, workers)
    check_finals(workers, trainers)
    check_mass(world, workers, logs, given.own)
    if given.own:
        check(sum(s["credited"] for n in servers for s in n.status()["shards"]) == 0,
              "a unit is credited that nobody claimed")
    else:
        check_credit(world, coordinator, servers)
    for node in [coordinator, *servers]:
        node.must_stop()


def main():
    flags = flags_of(__doc__, units=240)
    flags.add_argument("--kills", type=int, default=12)
    flags.add_argument("--ranks", type=int, default=1)
    flags.add_argument("--own", action="store_true", help="the loops have data of their own")
    flags.add_argument("--seed", type=int, default=1)
    given = flags.parse_args()
    with World(given.build, units=given.units, keep=given.keep, shards=SHARDS) as world:
        trainers = []
        try:
            play(world, given, trainers)
        finally:  # stops all trainers, also after an error
            for trainer in trainers:
                if trainer.process.poll() is None:
                    trainer.kill()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
